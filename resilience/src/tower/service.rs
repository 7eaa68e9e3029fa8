//! [`GuardLayer`] and [`GuardService`]: a guard before a service.

use std::fmt;
use std::task::{Context, Poll, ready};

use tower_layer::Layer;
use tower_service::Service;

use super::future::{Duty, Guarded};
use super::{Admit, ByResult, Classify, Guard, Keyed, LayerError, ResponseFuture, Shedding};
use crate::{AdaptiveLimit, Breaker, Bulkhead, Registry, Shedder};

/// A breaker or throttle before a service.
pub type BreakerLayer<C = ByResult> = GuardLayer<Breaker, C>;

/// A breaker for each key of requests before a service.
pub type KeyedLayer<K, C = ByResult> = GuardLayer<Keyed<K>, C>;

/// A bulkhead before a service, which rejects what it has no place for.
pub type BulkheadLayer<C = ByResult> = GuardLayer<Bulkhead, C>;

/// An adaptive limit before a service.
pub type LimitLayer<C = ByResult> = GuardLayer<AdaptiveLimit, C>;

/// A load shedder before a service.
pub type ShedLayer<P, C = ByResult> = GuardLayer<Shedding<P>, C>;

/// Puts a [`Guard`] before a service, and tells it how calls went.
#[derive(Debug, Clone)]
pub struct GuardLayer<G, C = ByResult> {
    guard: G,
    classify: C,
}

/// A service behind a [`Guard`].
///
/// Whether it is ready is the inner service's to say, unless the guard turns everything away: then it
/// is ready to reject, and the inner service is not asked. The call that follows is rejected, whatever
/// the guard says by then.
pub struct GuardService<S, G: Guard, C = ByResult> {
    inner: S,
    guard: G,
    classify: C,
    readiness: Readiness<G::Rejection>,
}

/// What the last `poll_ready` has found out.
enum Readiness<R> {
    Unknown,
    Inner,
    ToReject(R),
}

impl<G> GuardLayer<G> {
    /// `guard` before a service, where `Ok` counts as success and `Err` as failure.
    pub fn new(guard: G) -> Self {
        GuardLayer {
            guard,
            classify: ByResult,
        }
    }
}

impl<K> GuardLayer<Keyed<K>> {
    /// A breaker of `registry` for each `key` of a request.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use wheelhouse_resilience::Registry;
    /// use wheelhouse_resilience::tower::KeyedLayer;
    ///
    /// fn host(request: &String) -> Cow<'_, str> {
    ///     Cow::Borrowed(request.split('/').next().unwrap_or_default())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let registry = Registry::builder().build()?;
    /// let client = ServiceBuilder::new()
    ///     .layer(KeyedLayer::by(registry.clone(), host))
    ///     .service(service_fn(|request: String| async move { Ok::<_, ()>(request) }));
    /// client.oneshot("example.org/index".to_owned()).await.unwrap();
    /// assert_eq!(registry.get("example.org").stats().successes, 1);
    /// # Ok(()) }
    /// ```
    pub fn by(registry: Registry, key: K) -> Self {
        GuardLayer::new(Keyed::new(registry, key))
    }
}

impl<P> GuardLayer<Shedding<P>> {
    /// `shedder` with the `priority` of a request.
    ///
    /// ```
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use wheelhouse_resilience::tower::ShedLayer;
    /// use wheelhouse_resilience::{Priority, Shedder};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let shedder = Shedder::builder().build()?;
    /// let server = ServiceBuilder::new()
    ///     .layer(ShedLayer::shedding(shedder.clone(), |_: &u8| Priority::Normal))
    ///     .service(service_fn(|request: u8| async move { Ok::<_, ()>(request) }));
    /// assert_eq!(server.oneshot(7).await, Ok(7));
    /// assert_eq!(shedder.stats().passed, 1);
    /// # Ok(()) }
    /// ```
    pub fn shedding(shedder: Shedder, priority: P) -> Self {
        GuardLayer::new(Shedding::new(shedder, priority))
    }
}

impl<G, C> GuardLayer<G, C> {
    /// Judges calls by `classify`.
    ///
    /// ```
    /// use wheelhouse_resilience::tower::BreakerLayer;
    /// use wheelhouse_resilience::{Breaker, Verdict};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let layer = BreakerLayer::new(Breaker::builder().build()?)
    ///     .classify(|result: Result<&u16, &String>| match result {
    ///         Ok(500..) | Err(_) => Verdict::Failure,
    ///         Ok(_) => Verdict::Success,
    ///     });
    /// # Ok(()) }
    /// ```
    pub fn classify<D>(self, classify: D) -> GuardLayer<G, D> {
        GuardLayer {
            guard: self.guard,
            classify,
        }
    }

    /// Judges HTTP responses, and holds their permits, until their bodies end.
    #[cfg(feature = "http")]
    pub fn until_body_ends(self) -> super::BodyLayer<G, C> {
        super::BodyLayer::new(self)
    }
}

impl<S, G: Guard, C: Clone> Layer<S> for GuardLayer<G, C> {
    type Service = GuardService<S, G, C>;

    fn layer(&self, inner: S) -> Self::Service {
        GuardService {
            inner,
            guard: self.guard.clone(),
            classify: self.classify.clone(),
            readiness: Readiness::Unknown,
        }
    }
}

impl<S, G: Guard, C> GuardService<S, G, C> {
    /// The service behind the guard.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The same, to change it. Calls to it go around the guard.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The guard.
    pub fn guard(&self) -> &G {
        &self.guard
    }

    pub(super) fn poll_readiness<Request>(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>>
    where
        S: Service<Request>,
    {
        self.readiness = match self.guard.turns_all_away() {
            Some(rejection) => Readiness::ToReject(rejection),
            None => {
                // Asked for again until it is called: it says so at once.
                ready!(self.inner.poll_ready(context))?;
                Readiness::Inner
            }
        };
        Poll::Ready(Ok(()))
    }

    /// Decides about a request, and makes its call if it is admitted.
    ///
    /// # Panics
    ///
    /// When `poll_ready` has not said that the service is ready.
    pub(super) fn begin<Request>(
        &mut self,
        request: Request,
    ) -> Guarded<S::Future, G::Permit, G::Rejection, C>
    where
        S: Service<Request>,
        G: Admit<Request>,
        C: Clone,
    {
        let admitted = match std::mem::replace(&mut self.readiness, Readiness::Unknown) {
            Readiness::Inner => self.guard.admit(&request),
            Readiness::ToReject(rejection) => match self.guard.turns_all_away() {
                // So that the guard counts it.
                Some(_) => Err(self.guard.admit(&request).err().unwrap_or(rejection)),
                None => Err(rejection),
            },
            Readiness::Unknown => panic!("a service is called only when poll_ready says so"),
        };
        match admitted {
            Ok(permit) => {
                let classify = self.classify.clone();
                Guarded::calling(Duty { permit, classify }, || self.inner.call(request))
            }
            Err(rejection) => Guarded::rejected(rejection),
        }
    }
}

impl<S, G, C, Request> Service<Request> for GuardService<S, G, C>
where
    S: Service<Request>,
    G: Admit<Request>,
    C: Classify<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = LayerError<G::Rejection, S::Error>;
    type Future = ResponseFuture<S::Future, G::Permit, G::Rejection, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_readiness(context).map_err(LayerError::Failed)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseFuture::new(self.begin(request))
    }
}

/// The clone has not been asked whether it is ready.
impl<S: Clone, G: Guard, C: Clone> Clone for GuardService<S, G, C> {
    fn clone(&self) -> Self {
        GuardService {
            inner: self.inner.clone(),
            guard: self.guard.clone(),
            classify: self.classify.clone(),
            readiness: Readiness::Unknown,
        }
    }
}

impl<S: fmt::Debug, G: Guard + fmt::Debug, C> fmt::Debug for GuardService<S, G, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ready = !matches!(self.readiness, Readiness::Unknown);
        f.debug_struct("GuardService")
            .field("inner", &self.inner)
            .field("guard", &self.guard)
            .field("is_ready", &is_ready)
            .finish_non_exhaustive()
    }
}
