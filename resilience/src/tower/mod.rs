//! Layers for `tower`: a guard before a service decides about each request.
//!
//! | layer | guard | rejects with |
//! |---|---|---|
//! | [`BreakerLayer`] | a [`Breaker`](crate::Breaker) or throttle | [`Rejected`](crate::Rejected) |
//! | [`KeyedLayer`] | a breaker for each host or route, from a [`Registry`](crate::Registry) | [`Rejected`](crate::Rejected) |
//! | [`BulkheadLayer`] | a [`Bulkhead`](crate::Bulkhead), without waiting | [`Full`](crate::bulkhead::Full) |
//! | [`QueueLayer`] | a [`Bulkhead`](crate::Bulkhead), waiting in its queue | [`WaitError`](crate::bulkhead::WaitError) |
//! | [`LimitLayer`] | an [`AdaptiveLimit`](crate::AdaptiveLimit) | [`LimitExceeded`](crate::limit::LimitExceeded) |
//! | [`ShedLayer`] | a [`Shedder`](crate::Shedder), by priority | [`Shed`](crate::Shed) |
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use wheelhouse_resilience::Breaker;
//! use wheelhouse_resilience::tower::{BreakerLayer, LayerError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), wheelhouse_resilience::BuildError> {
//! let breaker = Breaker::consecutive().build()?;
//! let client = ServiceBuilder::new()
//!     .layer(BreakerLayer::new(breaker))
//!     .service(service_fn(|_request: ()| async { Err::<(), _>("connection refused") }));
//! for _ in 0..6 {
//!     assert_eq!(client.clone().oneshot(()).await, Err(LayerError::Failed("connection refused")));
//! }
//! let rejected = client.clone().oneshot(()).await.unwrap_err();
//! assert!(matches!(rejected, LayerError::Rejected(_)));
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - A request that is rejected never reaches the inner service. A guard that rejects everything (an
//!   open breaker, a full bulkhead) does so without asking whether that is ready.
//! - The inner service is called only after it has said that it is ready, and it is the same instance.
//! - Clones of a service, and all services of one layer, share the guard.
//! - A request whose future is dropped is cancelled; one whose future panics has failed.
//! - A layer itself boxes nothing, locks nothing and copies no name: a guard that admits costs what its
//!   permit costs, and a reference count. A closed breaker's permit is free of locks too. That of a
//!   keyed layer has its breaker looked up under the lock of one shard of the registry; that of a
//!   limit goes through the limiter's lock at its end; and one that waits in a bulkhead's queue is in
//!   a list under the queue's lock.
//!
//! # How calls are judged
//!
//! `Ok` is a success and `Err` a failure, unless a [`Classify`] says otherwise: a closure, or
//! `HttpStatus` and `GrpcStatus` with the features `http` and `grpc`. Those can also judge a response
//! at the end of its body, with [`until_body_ends`](GuardLayer::until_body_ends).

#[cfg(feature = "http")]
mod body;
mod classify;
mod future;
#[cfg(feature = "grpc")]
mod grpc;
mod guard;
#[cfg(feature = "http")]
mod http;
mod keyed;
mod queue;
mod service;

#[cfg(feature = "http")]
pub use body::{BodyFuture, BodyLayer, BodyService, GuardedBody};
#[cfg(feature = "http")]
pub use classify::ClassifyResponse;
pub use classify::{ByResult, Classify};
pub use future::{LayerError, ResponseFuture};
#[cfg(feature = "grpc")]
pub use grpc::GrpcStatus;
pub use guard::{Admit, Guard, Settle, Shedding};
#[cfg(feature = "http")]
pub use http::{ByHost, ByPath, HttpStatus};
pub use keyed::{Key, Keyed};
pub use queue::{QueueFuture, QueueLayer, QueueService};
pub use service::{
    BreakerLayer, BulkheadLayer, GuardLayer, GuardService, KeyedLayer, LimitLayer, ShedLayer,
};
