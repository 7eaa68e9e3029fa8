//! The run: schedule everything, wait until everything has fired, add up.

use std::{
    collections::TryReserveError,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    LoadArgs, nanos, process,
    progress::Progress,
    report::Report,
    subject::{Noted, Subject},
    tally::Tally,
};
use crate::failure::Failure;

/// After the last due instant: how often the waiting thread wakes up and sees nothing fired
/// before the rest counts as lost. Five seconds of running; while the process is stopped the
/// wheel cannot fire either, so that time does not count.
const PATIENCE: u32 = 2500;
/// The sleep between two such looks; the end is a matter of milliseconds.
const LOOK: Duration = Duration::from_millis(2);
/// Sets between two looks at the progress bar.
const BATCH: u64 = 4096;

/// Memory that a pending task takes at least, in bytes.
const LEAST_BYTES: u64 = 64;

/// Runs the load that `args` describes.
pub(super) fn run(args: &LoadArgs) -> Result<Report, Failure> {
    enough(args.tasks, process::available_bytes())?;
    let progress = Progress::new(args.tasks);
    let tally = Tally::new(args.tasks).map_err(|_| no_room(args.tasks))?;
    room_for(args.tasks).map_err(|_| no_room(args.tasks))?;
    let noted = Arc::new(Noted {
        tally,
        start: Instant::now(),
    });
    let (tally, start) = (&noted.tally, noted.start);
    let subject = Subject::start(args, &noted)?;

    let cpu_before = process::cpu_time();
    let resident_before = process::resident_bytes();
    let began = Instant::now();
    let mut delays = Delays::new(args.after, args.over);
    let mut last_due_ns = 0;
    for task in 0..args.tasks {
        let delay = delays.next();
        // Read before the call, so that it is never later than the due instant of the subject.
        let due_ns = nanos(start.elapsed() + delay);
        last_due_ns = last_due_ns.max(due_ns);
        subject.schedule(task, due_ns, delay)?;
        if task % BATCH == 0 {
            progress.show(task, tally.fired());
        }
    }
    let resident_after = process::resident_bytes();
    subject.flush()?;
    let scheduling = began.elapsed();

    wait(
        args.tasks,
        tally,
        // The last may fire one interval after it is due.
        start + Duration::from_nanos(last_due_ns) + args.interval,
        &progress,
    );
    let cpu = process::cpu_time()
        .zip(cpu_before)
        .map(|(after, before)| after.saturating_sub(before));
    let wakeups = subject.wakeups();
    // What is still pending was not fired: it counts as lost below.
    subject.stop();
    drop(progress);

    let grown = resident_after
        .zip(resident_before)
        .map(|(after, before)| after.saturating_sub(before));
    Ok(Report::new(
        args,
        tally.totals(),
        scheduling,
        grown,
        cpu,
        wakeups,
    ))
}

/// Returns when every task has fired or the rest is lost.
fn wait(tasks: u64, tally: &Tally, last_due: Instant, progress: &Progress) {
    let mut fired = tally.fired();
    let mut idle = 0;
    while fired < tasks && idle < PATIENCE {
        progress.show(tasks, fired);
        let ahead = last_due.saturating_duration_since(Instant::now());
        thread::sleep(if ahead.is_zero() {
            LOOK
        } else {
            ahead.min(progress.period())
        });
        let before = fired;
        fired = tally.fired();
        // A sleep that began before the last due instant proves nothing.
        idle = if ahead.is_zero() && fired == before {
            idle + 1
        } else {
            0
        };
    }
}

/// Refuses tasks that cannot have room in what is free.
fn enough(tasks: u64, available: Option<u64>) -> Result<(), Failure> {
    let least = tasks.saturating_mul(LEAST_BYTES);
    match available {
        Some(available) if available < least => Err(Failure::System(format!(
            "not enough memory for {tasks} tasks: they need {} MiB at least, and {} MiB are free",
            least >> 20,
            available >> 20
        ))),
        _ => Ok(()),
    }
}

/// Asks for the memory that the wheel will need at least, and gives it back: where the process
/// has a limit, it is told of before the run. (An allocation that fails later ends the process.)
fn room_for(tasks: u64) -> Result<(), TryReserveError> {
    let bytes = usize::try_from(tasks.saturating_mul(LEAST_BYTES)).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(bytes)
}

fn no_room(tasks: u64) -> Failure {
    Failure::System(format!("not enough memory for {tasks} tasks"))
}

/// Delays spread evenly over a span, in an order that is random but the same each run.
struct Delays {
    after: Duration,
    over_ns: u64,
    state: u64,
}

impl Delays {
    fn new(after: Duration, over: Duration) -> Self {
        Self {
            after,
            over_ns: nanos(over),
            state: 0,
        }
    }

    fn next(&mut self) -> Duration {
        // SplitMix64 (Steele, Lea, Flood 2014), scaled to the span by the high half of a product.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let offset_ns = (u128::from(z) * u128::from(self.over_ns)) >> 64;
        self.after + Duration::from_nanos(u64::try_from(offset_ns).unwrap_or(self.over_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_fill_their_span_evenly() {
        let mut delays = Delays::new(Duration::from_secs(5), Duration::from_secs(10));
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let delay = delays.next();
            assert!(delay >= Duration::from_secs(5) && delay < Duration::from_secs(15));
            tenths[usize::try_from(delay.as_secs()).unwrap() - 5] += 1;
        }
        assert!(
            tenths.iter().all(|count| (900..1100).contains(count)),
            "{tenths:?}"
        );
    }

    #[test]
    fn tasks_need_room_in_what_is_free() {
        assert!(enough(1 << 20, Some(64 << 20)).is_ok());
        assert!(enough(u64::MAX, None).is_ok());
        let refused = enough(1 << 20, Some((64 << 20) - 1)).unwrap_err();
        assert!(
            matches!(&refused, Failure::System(message) if message
                == "not enough memory for 1048576 tasks: they need 64 MiB at least, and 63 MiB are free"),
            "{refused:?}"
        );
    }

    #[test]
    fn no_span_is_one_instant() {
        let mut delays = Delays::new(Duration::from_secs(1), Duration::ZERO);
        assert_eq!(
            (delays.next(), delays.next()),
            (Duration::from_secs(1), Duration::from_secs(1))
        );
    }
}
