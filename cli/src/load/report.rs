//! The figures of a run, for people and as JSON.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use super::{LoadArgs, chart, tally::Totals};
use crate::figures::{grouped, human_ns, rounded};

/// Below so many tasks the growth of the resident set says nothing about one of them: it comes
/// in pages, and in memory that was resident before.
const FEWEST_FOR_MEMORY: u64 = 100_000;

/// What a run has shown.
#[derive(Debug)]
pub(super) struct Report {
    tasks: u64,
    pub(super) totals: Totals,
    /// The settings in half a sentence.
    pub(super) settings: String,
    scheduling: Duration,
    bytes_per_task: Option<f64>,
    cpu: Option<Duration>,
    wakeups: u64,
}

/// The JSON object: the keys and their order are a contract.
#[derive(Serialize)]
struct Json {
    tasks: u64,
    fired: u64,
    early: u64,
    lost: u64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    p999_us: u64,
    max_us: u64,
    schedule_mops: f64,
    bytes_per_task: Option<f64>,
    cpu_s: Option<f64>,
    wakeups: u64,
}

impl Report {
    /// Puts together what was measured: `scheduling` is the time of all calls and a flush,
    /// `grown` the bytes by which the resident set grew from the first to the last call.
    pub(super) fn new(
        args: &LoadArgs,
        totals: Totals,
        scheduling: Duration,
        grown: Option<u64>,
        cpu: Option<Duration>,
        wakeups: u64,
    ) -> Self {
        let settings = format!(
            "due {} to {} after the call, interval {}, {}",
            humantime::format_duration(args.after),
            humantime::format_duration(args.after + args.over),
            humantime::format_duration(args.interval),
            if args.scheduler {
                "on the scheduler".to_owned()
            } else {
                format!("executor {}", args.executor)
            },
        );
        let bytes_per_task = grown
            .filter(|_| args.tasks >= FEWEST_FOR_MEMORY)
            .map(|bytes| bytes as f64 / args.tasks as f64);
        Self {
            tasks: args.tasks,
            totals,
            settings,
            scheduling,
            bytes_per_task,
            cpu,
            wakeups,
        }
    }

    /// Whether every task fired once, and none early.
    pub(super) fn is_exact(&self) -> bool {
        self.totals.early == 0 && self.lost() == 0 && self.totals.twice == 0
    }

    /// Names and values (nanoseconds) of what is reported of the lateness.
    pub(super) fn percentiles(&self) -> [(&'static str, u64); 5] {
        let at = |quantile| {
            // The histogram rounds up within its three digits; no percentile exceeds the maximum.
            self.totals
                .lateness
                .value_at_quantile(quantile)
                .min(self.totals.max_ns)
        };
        [
            ("p50", at(0.5)),
            ("p90", at(0.9)),
            ("p99", at(0.99)),
            ("p99.9", at(0.999)),
            ("max", self.totals.max_ns),
        ]
    }

    /// One object on one line.
    pub(super) fn json(&self) -> String {
        let us = self.percentiles().map(|(_, ns)| ns.div_ceil(1000));
        let json = Json {
            tasks: self.tasks,
            fired: self.totals.fired,
            early: self.totals.early,
            lost: self.lost(),
            p50_us: us[0],
            p90_us: us[1],
            p99_us: us[2],
            p999_us: us[3],
            max_us: us[4],
            schedule_mops: rounded(self.schedule_mops()),
            bytes_per_task: self.bytes_per_task.map(rounded),
            cpu_s: self.cpu.map(|cpu| rounded(cpu.as_secs_f64())),
            wakeups: self.wakeups,
        };
        let mut line = serde_json::to_string(&json).expect("numbers always serialize");
        line.push('\n');
        line
    }

    /// The report for people, for a terminal of `columns` columns.
    pub(super) fn text(&self, columns: usize, colours: bool) -> String {
        let unknown = || "unknown on this system".to_owned();
        let memory = match self.bytes_per_task {
            Some(bytes) => format!("{bytes:.1} bytes per task"),
            None if self.tasks < FEWEST_FOR_MEMORY => {
                let fewest = grouped(FEWEST_FOR_MEMORY);
                format!("– bytes per task (not measured below {fewest} tasks)")
            }
            None => unknown(),
        };
        let cpu = self
            .cpu
            .map_or_else(unknown, |cpu| format!("{:.2} s", cpu.as_secs_f64()));
        let lateness = self
            .percentiles()
            .map(|(name, ns)| format!("{name} {}", human_ns(ns)));
        let rows = [
            (
                "tasks",
                format!("{}, {}", grouped(self.tasks), self.settings),
            ),
            ("fired", self.fired_row()),
            (
                "scheduled",
                format!("{:.2} million a second", self.schedule_mops()),
            ),
            ("memory", memory),
            ("CPU", format!("{cpu}, {} wake-ups", grouped(self.wakeups))),
            ("lateness", lateness.join(" · ")),
        ];
        let mut text = String::new();
        for (name, value) in rows {
            let _ = writeln!(text, "{name:<10} {value}");
        }
        text.push('\n');
        text.push_str(&chart::draw(self, columns, colours));
        text
    }

    pub(super) fn tasks(&self) -> u64 {
        self.tasks
    }

    fn fired_row(&self) -> String {
        let (fired, early, lost) = (self.totals.fired, self.totals.early, self.lost());
        let mut row = format!("{}, early = {early}, lost = {lost}", grouped(fired));
        if self.totals.twice > 0 {
            let _ = write!(row, ", twice = {}", self.totals.twice);
        }
        row
    }

    fn lost(&self) -> u64 {
        self.tasks - (self.totals.fired - self.totals.twice)
    }

    fn schedule_mops(&self) -> f64 {
        self.tasks as f64 / self.scheduling.as_secs_f64().max(1e-9) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Workers, tally::Tally};

    /// Ten tasks, of which one fired twice, one early and two not at all.
    fn faulty() -> Report {
        let args = LoadArgs {
            tasks: 10,
            over: Duration::from_secs(1),
            after: Duration::ZERO,
            interval: Duration::from_millis(1),
            executor: Workers::Inline,
            scheduler: false,
            json: false,
            plot: None,
        };
        let tally = Tally::new(10).unwrap();
        for (task, start_ns) in [
            (0, 5),
            (1, 7),
            (1, 8),
            (2, 4),
            (3, 9),
            (4, 9),
            (5, 9),
            (6, 9),
            (7, 9),
        ] {
            tally.note(task, 5, start_ns);
        }
        Report::new(
            &args,
            tally.totals(),
            Duration::from_micros(5),
            None,
            None,
            3,
        )
    }

    #[test]
    fn faults_are_reported_and_none_hides_another() {
        let report = faulty();
        assert!(!report.is_exact());
        assert_eq!(
            report.json(),
            "{\"tasks\":10,\"fired\":9,\"early\":1,\"lost\":2,\"p50_us\":1,\"p90_us\":1,\"p99_us\":1,\
             \"p999_us\":1,\"max_us\":1,\"schedule_mops\":2.0,\"bytes_per_task\":null,\"cpu_s\":null,\
             \"wakeups\":3}\n"
        );
        let text = report.text(80, false);
        assert!(
            text.contains("fired      9, early = 1, lost = 2, twice = 1\n"),
            "{text}"
        );
        assert!(
            text.contains("memory     – bytes per task (not measured below 100,000 tasks)\n"),
            "{text}"
        );
    }
}
