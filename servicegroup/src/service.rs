//! The contract of a service, and services with their options.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::policy::{Policies, Policy};
use crate::{BuildError, Error, ServiceContext};

/// Something that runs from the start of a group until it is told to stop.
///
/// The contract:
///
/// - [`run`](Self::run) calls [`ctx.ready()`](ServiceContext::ready) when the service is up. The
///   levels after it wait for that. A service that returns without it counts as up.
/// - It serves until [`ctx.stopping()`](ServiceContext::stopping), through
///   [`ctx.draining()`](ServiceContext::draining); then it finishes what it has begun and returns,
///   before [`ctx.deadline()`](ServiceContext::deadline).
/// - At the deadline it is left behind: its future is dropped at its next `.await`, and whatever
///   holds up that is not waited for.
/// - What it returns, and a panic, is in the report; what follows is up to its [`Policy`].
/// - It must not block its thread. What blocks goes on threads, by [`Blocking`](crate::Blocking) say.
///
/// Closures that take a [`ServiceContext`] are services; so are groups.
///
/// ```
/// use wheelhouse_servicegroup::{Error, Service, ServiceContext};
///
/// struct Ticker;
///
/// impl Service for Ticker {
///     async fn run(self, ctx: ServiceContext) -> Result<(), Error> {
///         ctx.ready();
///         ctx.stopping().await;
///         Ok(())
///     }
/// }
/// ```
pub trait Service: Send + 'static {
    /// Runs until the service has ended. Dropping the future ends it at once.
    fn run(self, ctx: ServiceContext) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<F, R> Service for F
where
    F: FnOnce(ServiceContext) -> R + Send + 'static,
    R: Future<Output = Result<(), Error>> + Send,
{
    async fn run(self, ctx: ServiceContext) -> Result<(), Error> {
        self(ctx).await
    }
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// How a member is started.
pub(crate) enum Start {
    Once(Option<Box<dyn FnOnce(ServiceContext) -> Running + Send>>),
    Again(Box<dyn FnMut(ServiceContext) -> Running + Send>),
}

/// A service with its name and its options.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_servicegroup::{Member, Policy, Restart, ServiceContext, ServiceGroup};
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let consume = || async |ctx: ServiceContext| {
///     ctx.ready();
///     ctx.stopping().await;
///     Ok(())
/// };
/// let mut group = ServiceGroup::builder().build()?;
/// group.add_level(
///     Member::restartable("mq", consume)
///         .cap(Duration::from_secs(3))
///         .on_error(Policy::Restart(Restart::default())),
/// )?;
/// # Ok(()) }
/// ```
#[must_use = "a member does nothing until it is added to a group"]
pub struct Member {
    pub(crate) name: String,
    pub(crate) start: Start,
    pub(crate) cap: Option<Duration>,
    pub(crate) start_timeout: Option<Duration>,
    pub(crate) ready_when_started: bool,
    pub(crate) policies: Policies,
}

impl Member {
    /// A service that is started once. The name has no white space, control characters, `,` or `=`,
    /// and does not begin with `hook:`; the group refuses others.
    pub fn new(name: impl Into<String>, service: impl Service) -> Self {
        let start: Box<dyn FnOnce(ServiceContext) -> Running + Send> =
            Box::new(|ctx| Box::pin(service.run(ctx)));
        Member::with(name.into(), Start::Once(Some(start)))
    }

    /// A service that may be started again, from what `make` gives for each start.
    pub fn restartable<S: Service>(
        name: impl Into<String>,
        mut make: impl FnMut() -> S + Send + 'static,
    ) -> Self {
        let start: Box<dyn FnMut(ServiceContext) -> Running + Send> = Box::new(move |ctx| {
            let service = make();
            Box::pin(service.run(ctx))
        });
        Member::with(name.into(), Start::Again(start))
    }

    fn with(name: String, start: Start) -> Self {
        Member {
            name,
            start,
            cap: None,
            start_timeout: None,
            ready_when_started: false,
            policies: Policies::default(),
        }
    }

    /// How long the service has from being told to end until it is left behind: more than 0. The
    /// time of its level is the limit and the default.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(cap);
        self
    }

    /// How long it may take until it says that it is ready: more than 0. The default is the group's.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = Some(timeout);
        self
    }

    /// Counts the service as ready as soon as it runs, for services that never say so.
    pub fn ready_when_started(mut self) -> Self {
        self.ready_when_started = true;
        self
    }

    /// What follows when the service returns `Ok` though nobody asked it to. By default it is
    /// ignored: the group goes on until all services have ended.
    pub fn on_end(mut self, policy: Policy) -> Self {
        self.policies.on_end = policy;
        self
    }

    /// What follows when the service returns an error before it was told to end. By default the
    /// group stops.
    pub fn on_error(mut self, policy: Policy) -> Self {
        self.policies.on_error = policy;
        self
    }

    /// What follows when the service panics. By default the group stops.
    pub fn on_panic(mut self, policy: Policy) -> Self {
        self.policies.on_panic = policy;
        self
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        check_name(&self.name)?;
        for (argument, time) in [("cap", self.cap), ("start_timeout", self.start_timeout)] {
            if time.is_some_and(|it| it.is_zero()) {
                return Err(BuildError::new(argument, "0ns", "more than 0ns"));
            }
        }
        for (argument, policy) in self.policies.all() {
            let Policy::Restart(restart) = policy else {
                continue;
            };
            restart.check()?;
            if matches!(self.start, Start::Once(_)) {
                let allowed = "restarts of what was added by `Member::restartable`";
                return Err(BuildError::new(argument, "Restart", allowed));
            }
        }
        Ok(())
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), BuildError> {
    let strange = |c: char| c.is_whitespace() || c.is_control() || c == ',' || c == '=';
    if name.is_empty() || name.contains(strange) || name.starts_with("hook:") {
        let allowed = "names without white space, control characters, `,` and `=` \
                       that are not empty and do not begin with `hook:`";
        return Err(BuildError::new("name", format!("{name:?}"), allowed));
    }
    Ok(())
}

impl<N: Into<String>, S: Service> From<(N, S)> for Member {
    fn from((name, service): (N, S)) -> Self {
        Member::new(name, service)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("name", &self.name)
            .field("cap", &self.cap)
            .field("start_timeout", &self.start_timeout)
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}

/// Services that are started and stopped side by side.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_servicegroup::{Level, Member, ServiceContext, ServiceGroup};
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let rpc = async |ctx: ServiceContext| { ctx.ready(); ctx.stopping().await; Ok(()) };
/// let mq = async |ctx: ServiceContext| { ctx.ready(); ctx.stopping().await; Ok(()) };
///
/// let mut group = ServiceGroup::builder().build()?;
/// group.add_level([Member::new("rpc", rpc), Member::new("mq", mq)])?;
/// group.add_level(
///     Level::from([("a", rpc), ("b", rpc)]).reserve(Duration::from_secs(2)),
/// )?;
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
#[must_use = "a level does nothing until it is added to a group"]
pub struct Level {
    pub(crate) members: Vec<Member>,
    pub(crate) reserve: Option<Duration>,
}

impl Level {
    /// The time that levels which are stopped before this one leave for it. By default all levels
    /// share alike what the other phases and such reserves leave.
    pub fn reserve(mut self, time: Duration) -> Self {
        self.reserve = Some(time);
        self
    }
}

impl<M: Into<Member>> FromIterator<M> for Level {
    fn from_iter<I: IntoIterator<Item = M>>(members: I) -> Self {
        Level {
            members: members.into_iter().map(Into::into).collect(),
            reserve: None,
        }
    }
}

impl<M: Into<Member>, const N: usize> From<[M; N]> for Level {
    fn from(members: [M; N]) -> Self {
        members.into_iter().collect()
    }
}

impl<M: Into<Member>> From<Vec<M>> for Level {
    fn from(members: Vec<M>) -> Self {
        members.into_iter().collect()
    }
}

impl From<Member> for Level {
    fn from(member: Member) -> Self {
        [member].into()
    }
}
