//! The states of a group's services, and who may change them.
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | (none) | not started | the supervisor → starting |
//! | starting | runs, has not said that it is ready | itself → ready; the driver → draining, stopping, abandoned; the supervisor → exited, failed, restarting |
//! | ready | serves | the driver; the supervisor |
//! | restarting | ended, waits for its next start | the supervisor → starting, failed |
//! | draining | the group stops, it still serves | the driver → stopping, abandoned; the supervisor → exited, failed |
//! | stopping | told to end | the driver → abandoned; the supervisor → exited, failed |
//! | exited, failed, abandoned | the end | nobody |
//!
//! Ground rules: `order` before `records`. Who changes a state holds `order` until the line about it
//! is written, so that lines come in the order of the changes. `records` is held for a few moves
//! only, never while writing: the watchdog needs it, and standard error may be blocked. Subscribers and
//! recorders are told when both are free, so what they hear of two services may come in another order.
//!
//! - I1: a state only moves as in the table; of two that want to end a service one wins.
//! - I2: a service whose state is final has its exit, unless it is abandoned.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::meters;
use crate::report::{Exit, Outcome, ServiceReport};

/// Where a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum State {
    /// It runs and has not said that it is ready.
    Starting,
    /// It has said that it is ready.
    Ready,
    /// It failed and waits for its next start.
    Restarting,
    /// The group stops; the service still serves.
    Draining,
    /// It has been told to end.
    Stopping,
    /// It returned without an error.
    Exited,
    /// It returned an error, panicked, or did not start in time.
    Failed,
    /// Its time was up before it ended, and it was left behind.
    Abandoned,
}

impl State {
    fn is_final(self) -> bool {
        self >= State::Exited
    }

    /// Whether `self` may become `next` (I1).
    fn may_become(self, next: State) -> bool {
        use State::*;
        match next {
            Starting => self == Restarting,
            Ready => self == Starting,
            Restarting => matches!(self, Starting | Ready),
            Draining | Stopping => self < next,
            Exited | Failed | Abandoned => !self.is_final(),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Restarting => "restarting",
            State::Draining => "draining",
            State::Stopping => "stopping",
            State::Exited => "exited",
            State::Failed => "failed",
            State::Abandoned => "abandoned",
        })
    }
}

#[derive(Debug)]
struct Record {
    name: String,
    level: usize,
    state: Option<State>,
    started: Option<Instant>,
    ready_after: Option<Duration>,
    told: Option<Instant>,
    ended: Option<Instant>,
    exit: Option<Exit>,
    restarts: u32,
    cut: u64,
    ignored: bool,
}

#[derive(Debug)]
pub(crate) struct Board {
    to_stderr: bool,
    /// What names in lines begin with: the groups that this one is nested in.
    prefix: Mutex<String>,
    order: Mutex<()>,
    records: Mutex<Vec<Record>>,
}

impl Board {
    pub(crate) fn new(to_stderr: bool) -> Self {
        Board {
            to_stderr,
            prefix: Mutex::new(String::new()),
            order: Mutex::new(()),
            records: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn nest_in(&self, prefix: String) {
        *self.prefix.lock() = prefix;
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix.lock())
    }

    /// Adds a service; its number is that of those before it.
    pub(crate) fn add(&self, name: String, level: usize) {
        self.records.lock().push(Record {
            name,
            level,
            state: None,
            started: None,
            ready_after: None,
            told: None,
            ended: None,
            exit: None,
            restarts: 0,
            cut: 0,
            ignored: false,
        });
    }

    /// Moves a service to a state that it does not end with; false when it may not.
    pub(crate) fn enter(&self, service: usize, next: State) -> bool {
        self.change(service, |record| {
            let allowed = match record.state {
                None => next == State::Starting,
                Some(state) => state.may_become(next),
            };
            if !allowed {
                return None;
            }
            let now = Instant::now();
            let mut figure = None;
            match next {
                State::Starting => _ = record.started.get_or_insert(now),
                State::Ready if record.ready_after.is_none() => {
                    record.ready_after = record.started.map(|then| now - then);
                    figure = record.ready_after;
                }
                State::Restarting => record.restarts += 1,
                State::Stopping => record.told = Some(now),
                _ => {}
            }
            record.state = Some(next);
            Some((next, figure))
        })
    }

    /// Ends a service; false when it has been abandoned, or ended, before.
    pub(crate) fn end(&self, service: usize, exit: Exit, ignored: bool) -> bool {
        let missed = exit
            .nested()
            .is_some_and(|report| report.outcome() == Outcome::DeadlineMissed);
        self.change(service, |record| {
            let next = match exit.is_failure() {
                true if missed => State::Abandoned,
                true => State::Failed,
                false => State::Exited,
            };
            if !record.state.is_none_or(|state| state.may_become(next)) {
                return None;
            }
            let now = Instant::now();
            record.state = Some(next);
            record.ended = Some(now);
            record.exit = Some(exit);
            record.ignored = ignored;
            Some((next, record.told.map(|then| now - then)))
        })
    }

    /// Abandons whatever still runs, without a line about each: for the watchdog, which may not wait
    /// for `order`.
    pub(crate) fn give_up_all(&self) {
        for record in self.records.lock().iter_mut() {
            if let Some(state) = &mut record.state
                && state.may_become(State::Abandoned)
            {
                *state = State::Abandoned;
            }
        }
    }

    /// Adds to what a service had to cut.
    pub(crate) fn cut(&self, service: usize, count: u64) {
        if count == 0 {
            return;
        }
        let path = {
            let _order = self.order.lock();
            let name = {
                let mut records = self.records.lock();
                let record = &mut records[service];
                record.cut += count;
                record.name.clone()
            };
            let path = self.path(&name);
            self.write(&format!("service={path} cut={count}"));
            path
        };
        meters::cut(&path, count);
    }

    pub(crate) fn name(&self, service: usize) -> String {
        self.records.lock()[service].name.clone()
    }

    #[cfg(test)]
    fn state(&self, service: usize) -> Option<State> {
        self.records.lock()[service].state
    }

    /// All services, as seen at this moment, where the stop was asked for at `asked`.
    pub(crate) fn services(&self, asked: Option<Instant>) -> Vec<ServiceReport> {
        let records = self.records.lock();
        let stopped_after = |record: &Record| {
            let (asked, ended) = (asked?, record.ended?);
            ended.checked_duration_since(asked)
        };
        records
            .iter()
            .map(|record| ServiceReport {
                name: record.name.clone(),
                level: record.level,
                state: record.state,
                ready_after: record.ready_after,
                stopped_after: stopped_after(record),
                exit: record.exit.clone(),
                restarts: record.restarts,
                cut: record.cut,
                ignored: record.ignored,
            })
            .collect()
    }

    /// Writes a line on standard error, if lines are written there at all.
    pub(crate) fn write(&self, line: &str) {
        if self.to_stderr {
            // Nobody can be told that standard error is closed.
            let _ = std::io::stderr()
                .lock()
                .write_all(format!("{line}\n").as_bytes());
        }
    }

    /// `change` gives the new state, with how long the service took to get there from its start or
    /// from being told to end.
    fn change(
        &self,
        service: usize,
        change: impl FnOnce(&mut Record) -> Option<(State, Option<Duration>)>,
    ) -> bool {
        let (path, state, figure) = {
            let _order = self.order.lock();
            let (name, state, figure) = {
                let mut records = self.records.lock();
                let record = &mut records[service];
                let Some((state, figure)) = change(record) else {
                    return false;
                };
                (record.name.clone(), state, figure)
            };
            let path = self.path(&name);
            if self.to_stderr {
                self.write(&format!("service={path} state={state}"));
            }
            (path, state, figure)
        };
        meters::changed(&path, state, figure);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 8] = [
        State::Starting,
        State::Ready,
        State::Restarting,
        State::Draining,
        State::Stopping,
        State::Exited,
        State::Failed,
        State::Abandoned,
    ];

    #[test]
    fn nothing_leaves_a_final_state_and_nothing_returns_from_a_stop() {
        for state in ALL.into_iter().filter(|state| state.is_final()) {
            assert!(ALL.iter().all(|&next| !state.may_become(next)), "{state}");
        }
        for state in [State::Draining, State::Stopping] {
            for next in [State::Starting, State::Ready, State::Restarting] {
                assert!(!state.may_become(next), "{state} to {next}");
            }
        }
        assert!(!State::Stopping.may_become(State::Draining));
    }

    #[test]
    fn of_two_ends_the_first_wins() {
        let board = Board::new(false);
        board.add("a".into(), 0);
        assert!(board.enter(0, State::Starting));
        assert!(board.enter(0, State::Abandoned));
        assert!(!board.end(0, Exit::Ended, false));
        assert_eq!(board.state(0), Some(State::Abandoned));
    }
}
