//! Rounds, interleaving, medians, the output line, and the child processes.
//!
//! Ground rules: a workload times itself and checks its own result outside the timed part; the
//! harness only decides when it runs and how the rounds fold into one value. Subjects take turns
//! within a round, so that a machine that drifts drifts under all of them alike.

use std::fmt::Display;
use std::path::Path;
use std::process::{Command, ExitCode};

/// A part of the comparison: `versus -- NAME`.
#[derive(Debug)]
pub struct Part {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its workloads, in the order in which they run.
    pub workloads: &'static [Workload],
}

/// One workload and the subjects that can do it.
#[derive(Debug)]
pub struct Workload {
    /// Its name in the output.
    pub name: &'static str,
    /// Threads that call the subject.
    pub threads: usize,
    /// At which sizes it runs.
    pub size: Size,
    /// How often it runs.
    pub pace: Pace,
    /// Subjects that are timed, in a process with the plain allocator.
    pub timed: &'static [Entry],
    /// Subjects whose heap is counted, in a process with the counting allocator.
    pub counted: &'static [Entry],
}

/// At which sizes a workload runs.
#[derive(Debug, Clone, Copy)]
pub enum Size {
    /// At those of the command line.
    Given,
    /// At the one in its name.
    Fixed(usize),
}

/// How often a workload runs when the command line does not say.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// 5 rounds after a warm-up.
    Short,
    /// 3 rounds without a warm-up: a round takes tens of seconds.
    Long,
}

/// A subject in a workload.
#[derive(Debug)]
pub struct Entry {
    /// Its name in the output; ours start with `wheelhouse`.
    pub subject: &'static str,
    /// Runs the workload once on it.
    pub run: fn(&Load) -> Outcome,
}

/// What one run gets to do.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The size, as defined by the workload.
    pub n: usize,
    /// Seeds the input: the same for every subject of a round.
    pub seed: u64,
    /// A smoke run: delays may shrink, `n` has shrunk already.
    pub smoke: bool,
    /// Reads the bytes live on the heap; only in the counting process.
    pub live_bytes: Option<fn() -> u64>,
    /// Reads how many allocations there were so far; only in the counting process.
    pub allocations: Option<fn() -> u64>,
}

/// The counting allocator as the counting process knows it.
#[derive(Debug, Clone, Copy)]
pub struct Heap {
    /// Bytes live now.
    pub live_bytes: fn() -> u64,
    /// Allocations so far, those that only grew what was there included.
    pub allocations: fn() -> u64,
}

/// What one run measured, or why its result is wrong.
pub type Outcome = Result<Vec<Sample>, Wrong>;

/// A subject did not do what the workload asked of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(pub String);

/// Compares a part of a result with what it must be.
///
/// # Errors
///
/// [`Wrong`], naming both, when they differ.
pub fn expect<T: PartialEq + Display>(what: &str, got: T, wanted: T) -> Result<(), Wrong> {
    if got == wanted {
        Ok(())
    } else {
        Err(Wrong(format!("{what}: {got} instead of {wanted}")))
    }
}

/// One measured value of one run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// What was measured.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The value.
    pub value: f64,
    /// How the values of the rounds become one.
    pub fold: Fold,
}

impl Sample {
    /// A value whose rounds fold into their median.
    pub fn median(metric: &'static str, unit: &'static str, value: f64) -> Self {
        Self {
            metric,
            unit,
            value,
            fold: Fold::Median,
        }
    }

    /// The same value, folded another way.
    #[must_use]
    pub fn folded(self, fold: Fold) -> Self {
        Self { fold, ..self }
    }
}

/// How the values of the rounds become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// The median.
    Median,
    /// The sum over all rounds.
    Sum,
    /// The largest.
    Max,
}

impl Fold {
    /// Folds the values of all rounds, at least one.
    pub fn apply(self, values: &mut [f64]) -> f64 {
        match self {
            Self::Sum => values.iter().sum(),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Median => {
                values.sort_by(f64::total_cmp);
                let middle = values.len() / 2;
                if values.len() % 2 == 1 {
                    values[middle]
                } else {
                    f64::midpoint(values[middle - 1], values[middle])
                }
            }
        }
    }
}

/// What a command line asks for.
#[derive(Debug)]
pub struct Plan {
    /// The workloads to run, one size each.
    pub tasks: Vec<Task>,
    /// Rounds, where the command line says so.
    pub rounds: Option<u32>,
    /// A smoke run: one round, no warm-up.
    pub smoke: bool,
}

/// One workload at one size.
#[derive(Debug)]
pub struct Task {
    /// The part it belongs to.
    pub part: &'static str,
    /// The workload.
    pub workload: &'static Workload,
    /// The size.
    pub n: usize,
    /// The subjects asked for.
    pub subjects: Vec<&'static str>,
}

impl Workload {
    /// Every subject that can do it, once.
    pub fn subjects(&self) -> impl Iterator<Item = &'static str> {
        let uncounted = self.counted.iter().filter(|counted| {
            self.timed
                .iter()
                .all(|timed| timed.subject != counted.subject)
        });
        self.timed
            .iter()
            .chain(uncounted)
            .map(|entry| entry.subject)
    }

    /// The sizes at which it runs when the command line gives `given`.
    pub fn sizes(&self, given: &[usize], smoke: bool) -> Vec<usize> {
        match self.size {
            Size::Given => given.to_vec(),
            Size::Fixed(n) if smoke => vec![n.min(given[0])],
            Size::Fixed(n) => vec![n],
        }
    }
}

/// Runs every task in child processes: one for what is timed and one, of the program `counted`, for
/// what is counted. Their lines go straight to standard output.
pub fn run_in_children(plan: &Plan, counted: &Path) -> ExitCode {
    let this = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("error: this program's own path: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut all_right = true;
    for task in &plan.tasks {
        for (program, entries) in [
            (this.as_path(), task.workload.timed),
            (counted, task.workload.counted),
        ] {
            if entries
                .iter()
                .any(|one| task.subjects.contains(&one.subject))
            {
                all_right &= run_child(program, plan, task);
            }
        }
    }
    if all_right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_child(program: &Path, plan: &Plan, task: &Task) -> bool {
    let mut command = Command::new(program);
    command.args(["--child", task.part, "--only", task.workload.name]);
    command.args(["--n", &task.n.to_string()]);
    command.args(["--subject", &task.subjects.join(",")]);
    if let Some(rounds) = plan.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    if plan.smoke {
        command.arg("--test");
    }
    match command.status() {
        Ok(status) => {
            if !status.success() && status.code() != Some(1) {
                eprintln!("error: workload={}: {status}", task.workload.name);
            }
            status.success()
        }
        Err(error) => {
            eprintln!("error: {}: {error}", program.display());
            false
        }
    }
}

/// Runs every task in this process, and prints its lines: what is counted when `heap` is given, what
/// is timed otherwise.
pub fn run_here(plan: &Plan, heap: Option<Heap>) -> ExitCode {
    let mut all_right = true;
    for task in &plan.tasks {
        all_right &= run_task(plan, task, heap);
    }
    if all_right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One subject's values so far.
struct Series {
    entry: &'static Entry,
    rounds: Vec<Vec<Sample>>,
    wrong: bool,
}

fn run_task(plan: &Plan, task: &Task, heap: Option<Heap>) -> bool {
    let workload = task.workload;
    let entries = if heap.is_some() {
        workload.counted
    } else {
        workload.timed
    };
    let mut subjects: Vec<Series> = entries
        .iter()
        .filter(|entry| task.subjects.contains(&entry.subject))
        .map(|entry| Series {
            entry,
            rounds: Vec::new(),
            wrong: false,
        })
        .collect();

    let (default_rounds, warm_up) = match workload.pace {
        Pace::Short => (5, true),
        Pace::Long => (3, false),
    };
    // What is counted needs no warm caches.
    let warm_up = warm_up && !plan.smoke && heap.is_none();
    let rounds = if plan.smoke {
        1
    } else {
        plan.rounds.unwrap_or(default_rounds)
    };

    for round in 0..rounds + u32::from(warm_up) {
        let load = Load {
            n: task.n,
            seed: u64::from(round) + 1,
            smoke: plan.smoke,
            live_bytes: heap.map(|heap| heap.live_bytes),
            allocations: heap.map(|heap| heap.allocations),
        };
        for series in subjects.iter_mut().filter(|series| !series.wrong) {
            match (series.entry.run)(&load) {
                Ok(_) if warm_up && round == 0 => {}
                Ok(samples) => series.rounds.push(samples),
                Err(wrong) => {
                    let (workload, subject) = (workload.name, series.entry.subject);
                    eprintln!("wrong result: workload={workload} subject={subject}: {wrong}");
                    series.wrong = true;
                }
            }
        }
    }

    for series in subjects.iter().filter(|series| !series.wrong) {
        for (at, first) in series.rounds[0].iter().enumerate() {
            let mut values: Vec<f64> = series.rounds.iter().map(|one| one[at].value).collect();
            println!(
                "workload={} subject={} n={} threads={} metric={} value={} unit={} rounds={}",
                workload.name,
                series.entry.subject,
                task.n,
                workload.threads,
                first.metric,
                decimal(first.fold.apply(&mut values)),
                first.unit,
                rounds,
            );
        }
    }
    subjects.iter().all(|series| !series.wrong)
}

/// A plain decimal with at most six places and no trailing zeros.
fn decimal(value: f64) -> String {
    let digits = format!("{value:.6}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_plain_decimals() {
        let written = [0.0, 12.5, 1_000_000.0, 0.000_04, 48.123_456_7, 3e12].map(decimal);
        assert_eq!(
            written,
            [
                "0",
                "12.5",
                "1000000",
                "0.00004",
                "48.123457",
                "3000000000000"
            ]
        );
    }

    #[test]
    fn rounds_fold_into_median_sum_or_maximum() {
        assert_eq!(Fold::Median.apply(&mut [9.0, 1.0, 5.0]), 5.0);
        assert_eq!(Fold::Median.apply(&mut [9.0, 1.0, 5.0, 2.0]), 3.5);
        assert_eq!(Fold::Sum.apply(&mut [9.0, 1.0, 5.0]), 15.0);
        assert_eq!(Fold::Max.apply(&mut [1.0, 9.0, 5.0]), 9.0);
    }
}
