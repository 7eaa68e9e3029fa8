//! One call of a command, from its caller's conditions to its result: [`Call`].

use std::fmt;
use std::pin::{Pin, pin};
use std::task::Context;
use std::time::Duration;

use tokio::time::Instant;

use crate::bulkhead::{OwnedPermit as OwnedPlace, Permit as BulkheadPermit};
use crate::{Permit, Rejected};

use super::blocking::Blocking;
use super::event::Event;
use super::race::{Outcome, is_ready, race};
use super::record::Ending;
use super::{Command, CommandError, FallbackError, Shared};

/// A call of a [`Command`] with conditions of its caller's: [`Command::call`].
#[must_use = "a call does nothing until it runs"]
pub struct Call<'a, C> {
    shared: &'a Shared,
    deadline: Option<Instant>,
    cancelled: C,
}

impl<'a, C: Future<Output = ()>> Call<'a, C> {
    pub(super) fn new(command: &'a Command, cancelled: C) -> Self {
        Call {
            shared: &command.shared,
            deadline: None,
            cancelled,
        }
    }

    /// The caller needs no result after `deadline`. If that comes before the command's timeout and
    /// passes, the call ends as [`CommandError::DeadlineExceeded`], which is no failure of what was
    /// called; at the same instant the timeout counts.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    /// use wheelhouse_resilience::command::CommandError;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let command = Command::builder("search").build()?;
    /// let late = command.call().deadline(Instant::now()).run(async { Ok::<_, ()>(7) }).await;
    /// assert_eq!(late, Err(CommandError::DeadlineExceeded));
    /// # Ok(()) }
    /// ```
    pub fn deadline(mut self, deadline: impl Into<Instant>) -> Self {
        self.deadline = Some(deadline.into());
        self
    }

    /// The call ends as [`CommandError::Cancelled`] once `cancelled` is ready: a `CancellationToken`'s
    /// `cancelled()`, say. Work that is done at the same instant has its result.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    /// use wheelhouse_resilience::command::CommandError;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let command = Command::builder("search").build()?;
    /// let cancelled = std::future::ready(());
    /// let result = command.call().cancelled_by(cancelled).run(async { Ok::<_, ()>(7) }).await;
    /// assert_eq!(result, Err(CommandError::Cancelled));
    /// # Ok(()) }
    /// ```
    pub fn cancelled_by<D: Future<Output = ()>>(self, cancelled: D) -> Call<'a, D> {
        Call {
            shared: self.shared,
            deadline: self.deadline,
            cancelled,
        }
    }

    /// [`Command::run`] on these conditions.
    ///
    /// # Errors
    ///
    /// [`CommandError`] says why there is no result.
    pub fn run<T, E>(
        self,
        work: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, CommandError<E>>> {
        self.attempt(work, Attempt::returned)
    }

    /// [`Command::run_or`] on these conditions.
    ///
    /// # Errors
    ///
    /// [`FallbackError`] says why neither has a result.
    pub async fn run_or<T, E, F, B: Future<Output = Result<T, F>>>(
        self,
        work: impl Future<Output = Result<T, E>>,
        fallback: impl FnOnce(&CommandError<E>) -> B,
    ) -> Result<T, FallbackError<E, F>> {
        let attempt = self.attempt(work, |attempt| attempt).await;
        attempt.or(fallback).await
    }

    /// [`Command::run_blocking`] on these conditions.
    ///
    /// # Errors
    ///
    /// [`CommandError`] says why there is no result.
    pub fn run_blocking<T: Send + 'static, E: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, CommandError<E>>> {
        self.attempt_blocking(work, Attempt::returned)
    }

    /// [`Command::run_blocking_or`] on these conditions.
    ///
    /// # Errors
    ///
    /// [`FallbackError`] says why neither has a result.
    pub async fn run_blocking_or<T, E, F, B>(
        self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
        fallback: impl FnOnce(&CommandError<E>) -> B,
    ) -> Result<T, FallbackError<E, F>>
    where
        T: Send + 'static,
        E: Send + 'static,
        B: Future<Output = Result<T, F>>,
    {
        let attempt = self.attempt_blocking(work, |attempt| attempt).await;
        attempt.or(fallback).await
    }

    // Each of the two is one future with nothing nested in it: a future that awaits another is copied
    // with it, and what has a timer is large. Work that is ready at once makes no timer.
    async fn attempt<T, E, R>(
        self,
        work: impl Future<Output = Result<T, E>>,
        finish: impl FnOnce(Attempt<'a, T, E>) -> R,
    ) -> R {
        let (shared, began) = (self.shared, Instant::now());
        let ending = Ending::of_call(shared, began);
        let time = Time::of(shared, began, self.deadline);
        let mut cancelled = pin!(self.cancelled);
        let given_up = is_ready(cancelled.as_mut()).await;
        let result = match time.begin(given_up).and_then(|()| shared.enter()) {
            Err(error) => Err(error),
            // Declared before the work is pinned, so that it is dropped first when the caller gives up.
            Ok((_place, permit)) => {
                let outcome = {
                    let (mut work, mut sleep) = (pin!(work), pin!(None));
                    let poll =
                        |context: &mut Context<'_>| work.as_mut().poll(context).map(Outcome::Done);
                    race(poll, cancelled, sleep.as_mut(), time.until()).await
                };
                time.settle(permit, outcome)
            }
        };
        finish(Attempt::end(shared, began, ending, result))
    }

    async fn attempt_blocking<T: Send + 'static, E: Send + 'static, R>(
        self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
        finish: impl FnOnce(Attempt<'a, T, E>) -> R,
    ) -> R {
        let (shared, began) = (self.shared, Instant::now());
        let ending = Ending::of_call(shared, began);
        let time = Time::of(shared, began, self.deadline);
        let mut cancelled = pin!(self.cancelled);
        let given_up = is_ready(cancelled.as_mut()).await;
        let result = match time.begin(given_up).and_then(|()| shared.enter_owned()) {
            Err(error) => Err(error),
            Ok((place, permit)) => {
                let outcome = {
                    let mut work = Blocking::spawn(place, &shared.abandoned, work);
                    let mut sleep = pin!(None);
                    let poll = |context: &mut Context<'_>| Pin::new(&mut work).poll(context);
                    race(poll, cancelled, sleep.as_mut(), time.until()).await
                };
                time.settle(permit, outcome)
            }
        };
        finish(Attempt::end(shared, began, ending, result))
    }
}

impl<C> fmt::Debug for Call<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("command", &self.shared.name)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// How long a call may take: until the earlier of two instants.
#[derive(Debug, Clone, Copy)]
struct Time {
    began: Instant,
    /// The caller's.
    deadline: Option<Instant>,
    timeout: Option<Duration>,
}

impl Time {
    fn of(shared: &Shared, began: Instant, deadline: Option<Instant>) -> Self {
        Time {
            began,
            deadline,
            timeout: shared.settings.timeout,
        }
    }

    /// When the command's timeout passes; `None` also beyond what can be expressed.
    fn timeout_at(&self) -> Option<Instant> {
        self.began.checked_add(self.timeout?)
    }

    fn until(&self) -> Option<Instant> {
        [self.deadline, self.timeout_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether the caller still wants a result.
    fn begin<E>(&self, given_up: bool) -> Result<(), CommandError<E>> {
        if given_up {
            Err(CommandError::Cancelled)
        } else if self.deadline.is_some_and(|deadline| deadline <= self.began) {
            Err(CommandError::DeadlineExceeded)
        } else {
            Ok(())
        }
    }

    /// Tells the breaker how the work ended, and makes of it what the caller is told.
    fn settle<T, E>(
        &self,
        permit: Option<Permit<'_>>,
        outcome: Outcome<T, E>,
    ) -> Result<T, CommandError<E>> {
        let result = match outcome {
            Outcome::Done(result) => result.map_err(CommandError::Failed),
            Outcome::Cancelled => Err(CommandError::Cancelled),
            Outcome::TimeUp => Err(self.time_up()),
        };
        let Some(permit) = permit else {
            return result;
        };
        match &result {
            Ok(_) => permit.success(),
            Err(CommandError::Failed(_) | CommandError::TimedOut(_)) => permit.failure(),
            Err(_) => permit.ignored(),
        }
        result
    }

    fn time_up<E>(&self) -> CommandError<E> {
        match (self.timeout, self.timeout_at(), self.deadline) {
            (Some(timeout), Some(at), deadline) if deadline.is_none_or(|before| at <= before) => {
                CommandError::TimedOut(timeout)
            }
            _ => CommandError::DeadlineExceeded,
        }
    }
}

/// The work of a call is over.
struct Attempt<'a, T, E> {
    shared: &'a Shared,
    began: Instant,
    /// In nanoseconds of the record.
    ended: u64,
    /// How long it ran, if it did so to an end that says something.
    ran: Option<Duration>,
    result: Result<T, CommandError<E>>,
}

impl<'a, T, E> Attempt<'a, T, E> {
    fn end(
        shared: &'a Shared,
        began: Instant,
        ending: Ending<'a>,
        result: Result<T, CommandError<E>>,
    ) -> Self {
        let event = match &result {
            Ok(_) => Event::Success,
            Err(CommandError::Failed(_)) => Event::Failure,
            Err(CommandError::TimedOut(_)) => Event::Timeout,
            Err(CommandError::Rejected(_)) => Event::Rejected,
            Err(CommandError::ShortCircuited(_)) => Event::ShortCircuit,
            Err(CommandError::Cancelled) => Event::Cancelled,
            Err(CommandError::DeadlineExceeded) => Event::DeadlineExceeded,
        };
        let (ended, took) = ending.end(event);
        Attempt {
            shared,
            began,
            ended,
            ran: event.has_run().then_some(took),
            result,
        }
    }

    /// Its result as it is.
    fn returned(self) -> Result<T, CommandError<E>> {
        self.shared.note(self.ended, self.ran, self.ran);
        self.result
    }

    /// Its result, or that of the fallback.
    async fn or<F, B: Future<Output = Result<T, F>>>(
        self,
        fallback: impl FnOnce(&CommandError<E>) -> B,
    ) -> Result<T, FallbackError<E, F>> {
        let (shared, began) = (self.shared, self.began);
        let cause = match self.result {
            Ok(value) => {
                shared.note(self.ended, self.ran, self.ran);
                return Ok(value);
            }
            Err(cause) => cause,
        };
        // At once, since the caller may drop the fallback.
        shared.note(self.ended, self.ran, None);
        let result = shared.fall_back(began, cause, fallback).await;
        if self.ran.is_some() {
            let now = Instant::now();
            let took = now.saturating_duration_since(began);
            shared.note(shared.record.nanos_at(now), None, Some(took));
        }
        result
    }
}

impl Shared {
    /// A place, and a permit of the breaker if there is one.
    fn enter<E>(&self) -> Result<(BulkheadPermit<'_>, Option<Permit<'_>>), CommandError<E>> {
        Ok((self.places.try_acquire()?, self.admit()?))
    }

    fn enter_owned<E>(&self) -> Result<(OwnedPlace, Option<Permit<'_>>), CommandError<E>> {
        Ok((self.places.try_acquire_owned()?, self.admit()?))
    }

    /// A permit of the breaker, if there is one.
    fn admit(&self) -> Result<Option<Permit<'_>>, Rejected> {
        self.breaker
            .as_ref()
            .map(|breaker| breaker.try_acquire())
            .transpose()
    }

    async fn fall_back<T, E, F, B: Future<Output = Result<T, F>>>(
        &self,
        began: Instant,
        cause: CommandError<E>,
        fallback: impl FnOnce(&CommandError<E>) -> B,
    ) -> Result<T, FallbackError<E, F>> {
        let ending = Ending::of_fallback(self, began);
        let _place = match self.fallbacks.try_acquire() {
            Ok(place) => place,
            Err(full) => {
                ending.end(Event::FallbackRejected);
                return Err(FallbackError::Rejected { cause, full });
            }
        };
        let result = fallback(&cause).await;
        ending.end(match &result {
            Ok(_) => Event::FallbackSuccess,
            Err(_) => Event::FallbackFailure,
        });
        result.map_err(|error| FallbackError::Failed { cause, error })
    }

    /// Takes note of how long a call ran and took in all, if it did.
    fn note(&self, now: u64, executed: Option<Duration>, total: Option<Duration>) {
        if executed.or(total).is_some() {
            self.record.latency.note(now, executed, total);
        }
    }
}
