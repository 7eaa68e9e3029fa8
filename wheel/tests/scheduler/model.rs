//! A scheduler on a manual clock against a naive model of its tasks.
//!
//! - Each run begins at the instant that the model says, and knows when it was due.
//! - After each step every task is where the model says, and its next run is when the model says.
//! - What an operation returns is what it does to the model.
//! - As many runs are missed as the model says; nothing else is counted.
//!
//! Time passes from event to event, as in a process that keeps up, and in jumps, as in one that
//! stalls. Runs take time, which passes for all.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::sync::oneshot;
use wheelhouse_wheel::scheduler::{
    Cancel, MissedTick, Run, Scheduler, Status, TaskHandle, TaskOptions,
};
use wheelhouse_wheel::{Clock, ManualClock};

use crate::support::schedule::{Kind, Missed, Phase, Plan, Start, Task};

#[derive(Debug, Clone)]
enum Op {
    Schedule(Plan),
    Pause(usize),
    Resume(usize),
    Reschedule(usize, u64),
    Cancel(usize),
    /// Time passes from event to event.
    Pass(u64),
    /// Time jumps.
    Jump(u64),
}

/// Runs that wait for the clock: until when, and how they hear of it.
type Sleepers = Arc<Mutex<Vec<(u64, oneshot::Sender<()>)>>>;

struct Subject {
    clock: ManualClock,
    start: Instant,
    scheduler: Scheduler,
    handles: Vec<TaskHandle>,
    /// Since the last comparison.
    starts: Arc<Mutex<Vec<Start>>>,
    sleepers: Sleepers,
}

impl Subject {
    fn new() -> Self {
        let clock = ManualClock::starting_at(SystemTime::UNIX_EPOCH);
        let builder = Scheduler::builder().clock(clock.clone());
        Subject {
            start: clock.now(),
            clock,
            scheduler: builder.build().unwrap(),
            handles: Vec::new(),
            starts: Arc::default(),
            sleepers: Arc::default(),
        }
    }

    fn schedule(&mut self, plan: &Plan, until: Option<u64>) {
        let number = self.handles.len();
        let (clock, start) = (self.clock.clone(), self.start);
        let (starts, sleepers) = (self.starts.clone(), self.sleepers.clone());
        let mut takes = plan.takes.clone().into_iter().cycle();
        let work = move || {
            let millis = |at: Instant| at.duration_since(start).as_millis() as u64;
            let now = millis(clock.now());
            let due = millis(Run::current().expect("a run").due());
            starts.lock().push((now, number, due));
            let takes = takes.next().expect("a cycle");
            let ended = (takes > 0).then(|| {
                let (wake, ended) = oneshot::channel();
                sleepers.lock().push((now + takes, wake));
                ended
            });
            async move {
                if let Some(ended) = ended {
                    ended.await.expect("the clock moves on");
                }
            }
        };
        let options = self.options(plan, until);
        let millis = Duration::from_millis;
        let handle = match plan.kind {
            Kind::After(delay) => options.after(millis(delay), work),
            Kind::Every(period) => options.every(millis(period), work),
            Kind::AfterCompletion(delay) => options.every_after_completion(millis(delay), work),
            Kind::Cron(seconds) if seconds < 60 => {
                options.cron(&format!("*/{seconds} * * * * *"), "UTC", work)
            }
            Kind::Cron(seconds) => {
                let minutes = seconds / 60;
                options.cron(&format!("*/{minutes} * * * *"), "UTC", work)
            }
        };
        self.handles.push(handle.unwrap());
    }

    fn options(&self, plan: &Plan, until: Option<u64>) -> TaskOptions {
        let mut options = self.scheduler.task();
        if let Kind::Cron(_) = plan.kind {
            options = options.coalesce(plan.coalesce);
        }
        if let Kind::Every(_) = plan.kind {
            options = options.missed_tick(match plan.missed {
                Missed::Burst => MissedTick::Burst,
                Missed::Delay => MissedTick::Delay,
                Missed::Skip => MissedTick::Skip,
            });
        }
        if let Some(grace) = plan.grace {
            options = options.grace(Duration::from_millis(grace));
        }
        if plan.immediately {
            options = options.immediately();
        }
        if let Some(limit) = plan.limit {
            options = options.run_limit(limit);
        }
        if let Some(until) = until {
            options = options.until(self.start + Duration::from_millis(until));
        }
        options
    }

    /// Lets everything happen that happens at this instant, until as much has as in the model.
    async fn settle(&self, now: u64, model: &Model) {
        // A cron task may have been let go to look at the calendar, which is over afterwards.
        self.clock.advance(Duration::ZERO);
        let (due, rest) = std::mem::take(&mut *self.sleepers.lock())
            .into_iter()
            .partition(|(until, _)| *until <= now);
        *self.sleepers.lock() = rest;
        for (_, wake) in due as Vec<(u64, oneshot::Sender<()>)> {
            let _ = wake.send(());
        }
        let give_up = Instant::now() + Duration::from_secs(10);
        while Instant::now() < give_up {
            let stats = self.scheduler.stats();
            let same = stats.started == model.started
                && stats.missed == model.missed()
                && stats.in_progress == model.running();
            if same {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Default)]
struct Model {
    now: u64,
    tasks: Vec<Task>,
    /// Since the last comparison.
    starts: Vec<Start>,
    /// In all.
    started: u64,
}

impl Model {
    fn settle(&mut self) {
        for (number, task) in self.tasks.iter_mut().enumerate() {
            task.settle(number, self.now, &mut self.starts);
        }
        self.started += self.starts.len() as u64;
    }

    fn next_event(&self) -> Option<u64> {
        self.tasks.iter().filter_map(Task::next_event).min()
    }

    fn missed(&self) -> u64 {
        self.tasks.iter().map(|task| task.missed).sum()
    }

    fn running(&self) -> u64 {
        let runs = |task: &&Task| matches!(task.phase, Phase::Runs { .. });
        self.tasks.iter().filter(runs).count() as u64
    }
}

/// Both are at one instant and should agree.
async fn compare(subject: &Subject, model: &mut Model) -> Result<(), TestCaseError> {
    model.settle();
    subject.settle(model.now, model).await;
    let at = |due| Some(subject.start + Duration::from_millis(due));
    for (number, (task, handle)) in model.tasks.iter().zip(&subject.handles).enumerate() {
        let expected = match task.phase {
            Phase::Waits { .. } if task.paused => (Status::Paused, None),
            Phase::Waits { due } => (Status::Scheduled, at(due)),
            Phase::Runs { .. } => (Status::Running, None),
            Phase::Ended => (Status::Ended, None),
        };
        let is = (handle.status(), handle.next_run());
        prop_assert_eq!(is, expected, "task {} at {}: {:?}", number, model.now, task);
    }
    let mut starts = std::mem::take(&mut *subject.starts.lock());
    // Those of one instant are in no order that the tasks would know.
    starts.sort_unstable();
    model.starts.sort_unstable();
    prop_assert_eq!(starts, std::mem::take(&mut model.starts));
    prop_assert_eq!(subject.scheduler.stats().missed, model.missed());
    Ok(())
}

async fn step(subject: &mut Subject, model: &mut Model, op: Op) -> Result<(), TestCaseError> {
    let tasks = model.tasks.len();
    let pick = |number: usize| number % tasks.max(1);
    match op {
        Op::Schedule(plan) => {
            let task = Task::new(plan.clone(), model.now);
            subject.schedule(&plan, task.until());
            model.tasks.push(task);
        }
        _ if tasks == 0 => {}
        Op::Pause(number) => {
            let paused = model.tasks[pick(number)].set_paused(true);
            prop_assert_eq!(subject.handles[pick(number)].pause(), paused);
        }
        Op::Resume(number) => {
            let resumed = model.tasks[pick(number)].set_paused(false);
            prop_assert_eq!(subject.handles[pick(number)].resume(), resumed);
        }
        Op::Reschedule(number, delay) => {
            let moved = model.tasks[pick(number)].reschedule(model.now + delay);
            let delay = Duration::from_millis(delay);
            prop_assert_eq!(subject.handles[pick(number)].reschedule(delay), moved);
        }
        Op::Cancel(number) => {
            let task = &mut model.tasks[pick(number)];
            let expected = match task.phase {
                Phase::Waits { .. } => Cancel::Cancelled,
                Phase::Runs { .. } => Cancel::Running,
                Phase::Ended => Cancel::Ended,
            };
            task.cancel();
            prop_assert_eq!(subject.handles[pick(number)].cancel(), expected);
        }
        Op::Pass(by) => {
            let end = model.now + by;
            while let Some(next) = model.next_event().filter(|next| *next < end) {
                model.now = next;
                subject
                    .clock
                    .set(subject.start + Duration::from_millis(next));
                compare(subject, model).await?;
            }
            model.now = end;
            subject
                .clock
                .set(subject.start + Duration::from_millis(end));
        }
        Op::Jump(by) => {
            model.now += by;
            subject.clock.advance(Duration::from_millis(by));
        }
    }
    compare(subject, model).await
}

fn plan() -> impl Strategy<Value = Plan> {
    let kind = prop_oneof![
        1 => (0u64..3000).prop_map(Kind::After),
        3 => (30u64..5000).prop_map(Kind::Every),
        2 => (30u64..5000).prop_map(Kind::AfterCompletion),
        3 => select(vec![1u64, 5, 15, 30, 60, 300, 1200]).prop_map(Kind::Cron),
    ];
    let missed = select(vec![Missed::Burst, Missed::Delay, Missed::Skip]);
    let takes = prop_oneof![
        3 => Just(0u64),
        2 => 1u64..20,
        2 => 20u64..1500,
        1 => 1500u64..70_000,
    ];
    (
        kind,
        missed,
        option::weighted(0.3, prop_oneof![0u64..100, 100u64..8000, 8000u64..400_000]),
        any::<bool>(),
        prop::bool::weighted(0.2),
        option::weighted(0.2, 1u64..20),
        option::weighted(0.2, 0u64..90_000),
        vec(takes, 1..4),
    )
        .prop_map(
            |(kind, missed, grace, coalesce, immediately, limit, lasts, takes)| {
                let once = matches!(kind, Kind::After(_));
                Plan {
                    kind,
                    missed,
                    grace,
                    coalesce,
                    immediately: immediately && !once,
                    limit: limit.filter(|_| !once),
                    lasts,
                    takes,
                }
            },
        )
}

fn op() -> impl Strategy<Value = Op> {
    let task = || 0usize..100;
    prop_oneof![
        4 => plan().prop_map(Op::Schedule),
        2 => task().prop_map(Op::Pause),
        3 => task().prop_map(Op::Resume),
        2 => (task(), prop_oneof![Just(0u64), 1u64..3000, 3000u64..150_000])
            .prop_map(|(task, delay)| Op::Reschedule(task, delay)),
        1 => task().prop_map(Op::Cancel),
        5 => prop_oneof![0u64..50, 50u64..3000].prop_map(Op::Pass),
        1 => (3000u64..100_000).prop_map(Op::Pass),
        3 => prop_oneof![0u64..50, 50u64..3000].prop_map(Op::Jump),
        1 => prop_oneof![3000u64..200_000, 200_000u64..900_000].prop_map(Op::Jump),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        max_shrink_time: 60_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn runs_begin_when_the_model_says(ops in vec(op(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut subject, mut model) = (Subject::new(), Model::default());
            for op in ops {
                step(&mut subject, &mut model, op).await?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}
