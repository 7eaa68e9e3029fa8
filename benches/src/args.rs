//! The command line of `versus`.

use clap::Parser;

use crate::harness::{Part, Plan, Task};

/// Compares wheelhouse with its peers and prints one line per measurement.
#[derive(Debug, Parser)]
#[command(name = "versus")]
pub struct Args {
    /// The parts to run; all when none is named.
    #[arg(value_name = "PART")]
    parts: Vec<String>,
    /// Sizes; workloads with a size in their name keep it [default: 1000000].
    #[arg(long = "n", value_name = "N", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Only these workloads.
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these subjects.
    #[arg(long, value_name = "SUBJECT", value_delimiter = ',')]
    subject: Vec<String>,
    /// Rounds per measurement [default: 5, and 3 for those that take tens of seconds].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Smoke run: tiny sizes, every workload and subject once.
    #[arg(long)]
    test: bool,
    /// Ignored: cargo appends it.
    #[arg(long, hide = true)]
    bench: bool,
    /// Run in this process instead of one child per workload.
    #[arg(long, hide = true)]
    pub(crate) child: bool,
}

/// Why a command line was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadArgument {
    /// There is no such part, workload or subject.
    #[error("no {kind} named `{name}`; there are: {known}")]
    Unknown {
        /// What was looked for.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A size that no workload can run at.
    #[error("--n {0}: a size is at least 100")]
    Size(usize),
    /// The names given exclude each other.
    #[error("no workload of these parts has one of these subjects")]
    Nothing,
}

impl Args {
    /// What to run.
    ///
    /// # Errors
    ///
    /// [`BadArgument`] when a name is unknown, a size is too small, or nothing is left to run.
    pub fn plan(&self, known: &'static [Part]) -> Result<Plan, BadArgument> {
        let parts: Vec<&Part> = known
            .iter()
            .filter(|part| chosen(&self.parts, part.name))
            .collect();
        check("part", &self.parts, known.iter().map(|part| part.name))?;
        let workloads = || parts.iter().flat_map(|part| part.workloads);
        check("workload", &self.only, workloads().map(|one| one.name))?;
        let subjects = workloads().flat_map(|one| one.subjects());
        check("subject", &self.subject, subjects)?;
        if let Some(&size) = self.sizes.iter().find(|&&size| size < 100) {
            return Err(BadArgument::Size(size));
        }

        let default_size = if self.test { 1_000 } else { 1_000_000 };
        let given = if self.sizes.is_empty() {
            &[default_size]
        } else {
            &self.sizes[..]
        };
        let mut tasks = Vec::new();
        for part in parts {
            for workload in part.workloads {
                let subjects: Vec<&'static str> = workload
                    .subjects()
                    .filter(|subject| chosen(&self.subject, subject))
                    .collect();
                if subjects.is_empty() || !chosen(&self.only, workload.name) {
                    continue;
                }
                for n in workload.sizes(given, self.test) {
                    tasks.push(Task {
                        part: part.name,
                        workload,
                        n,
                        subjects: subjects.clone(),
                    });
                }
            }
        }
        if tasks.is_empty() {
            return Err(BadArgument::Nothing);
        }
        Ok(Plan {
            tasks,
            rounds: self.rounds,
            smoke: self.test,
        })
    }
}

/// Whether `name` is among those asked for; everything is when none was.
fn chosen(asked: &[String], name: &str) -> bool {
    asked.is_empty() || asked.iter().any(|one| one == name)
}

fn check<'a>(
    kind: &'static str,
    asked: &[String],
    known: impl Iterator<Item = &'a str>,
) -> Result<(), BadArgument> {
    let mut names: Vec<&str> = Vec::new();
    for name in known {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match asked.iter().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(BadArgument::Unknown {
            kind,
            name: name.clone(),
            known: names.join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PARTS;
    use crate::harness::Size;

    fn plan(line: &str) -> Result<Plan, BadArgument> {
        Args::try_parse_from(std::iter::once("versus").chain(line.split_whitespace()))
            .expect("the words are options of versus")
            .plan(PARTS)
    }

    #[test]
    fn cargos_own_flag_is_ignored_and_every_workload_is_planned() {
        let plan = plan("--bench").unwrap();
        assert_eq!(
            plan.tasks.len(),
            PARTS.iter().map(|part| part.workloads.len()).sum::<usize>()
        );
        let given = |task: &Task| matches!(task.workload.size, Size::Given);
        let mut given = plan.tasks.iter().filter(|task| given(task));
        assert!(given.all(|task| task.n == 1_000_000));
    }

    #[test]
    fn a_part_has_its_own_workloads_only() {
        let plan = plan("scheduler").unwrap();
        let names: Vec<_> = plan.tasks.iter().map(|t| (t.workload.name, t.n)).collect();
        assert_eq!(names, [("oneshot1m", 1_000_000), ("burst10k", 10_000)]);
        assert!(matches!(
            self::plan("scheduler --only fire"),
            Err(BadArgument::Unknown { .. })
        ));
    }

    #[test]
    fn a_workload_with_a_size_in_its_name_keeps_it() {
        let plan = plan("wheel --n 1000,2000 --only fire,late1m").unwrap();
        let sizes: Vec<_> = plan.tasks.iter().map(|t| (t.workload.name, t.n)).collect();
        assert_eq!(
            sizes,
            [("fire", 1_000), ("fire", 2_000), ("late1m", 1_000_000)]
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        for line in ["whale", "wheel --only inset", "wheel --subject wheelhose"] {
            assert!(
                matches!(plan(line), Err(BadArgument::Unknown { .. })),
                "{line}"
            );
        }
        assert!(matches!(plan("wheel --n 3"), Err(BadArgument::Size(3))));
        assert!(matches!(
            plan("wheel --only late1m --subject heap"),
            Err(BadArgument::Nothing)
        ));
    }

    #[test]
    fn a_smoke_run_is_tiny() {
        let plan = plan("--test").unwrap();
        assert!(plan.smoke && plan.tasks.iter().all(|task| task.n <= 1_000));
    }
}
