//! A command as most tests want it.

use std::time::Duration;

use tokio::time::sleep;
use wheelhouse_resilience::command::{CommandError, Event};
use wheelhouse_resilience::{Command, State};

pub(crate) type Answer<T = ()> = Result<T, CommandError<&'static str>>;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn command() -> Command {
    Command::builder("test").build().unwrap()
}

pub(crate) async fn succeed(command: &Command) -> Answer {
    command.run(async { Ok(()) }).await
}

pub(crate) async fn fail(command: &Command) -> Answer {
    command.run(async { Err("refused") }).await
}

pub(crate) fn state(command: &Command) -> State {
    command.breaker().unwrap().state()
}

/// Twenty failures, which open the breaker.
pub(crate) async fn open(command: &Command) {
    for _ in 0..20 {
        assert_eq!(state(command), State::Closed);
        let _ = fail(command).await;
    }
    assert_eq!(state(command), State::Open);
}

/// A fallback that takes a while.
pub(crate) async fn slowly<E>(time: Duration) -> Result<(), E> {
    sleep(time).await;
    Ok(())
}

/// Which of the events of all calls so far happened how often.
pub(crate) fn happened(command: &Command) -> Vec<(&'static str, u64)> {
    let totals = command.stats().totals;
    let all = Event::ALL.map(|event| (event.name(), totals.of(event)));
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}
