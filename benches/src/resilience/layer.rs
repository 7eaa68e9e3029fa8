//! Workloads on a breaker in front of a future: what a tower layer costs a service that answers at
//! once.
//!
//! A call is one `poll_ready`, one `call` and polls of the response until it is there, by hand and
//! without a runtime, so that nothing else is timed or counted. `recloser` has no layer; its form for
//! a future wraps the same future.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tower_layer::Layer;
use tower_service::Service;
use wheelhouse_resilience::tower::BreakerLayer;

use super::memory::counted_only;
use crate::harness::{Load, Outcome, Sample, expect};
use crate::peers::CallBreaker;
use crate::peers::breakers_wheelhouse::{Kind, Ours};

/// Something that makes asynchronous calls through a breaker.
pub(super) trait CallService {
    /// A new one, closed.
    fn new() -> Self;

    /// Makes a call that answers with its number at once; `None` when it was rejected.
    fn call(&mut self, number: u64) -> Option<u64>;
}

/// Calls timed in a round, at least.
const TIMED_CALLS: usize = 4_000_000;

/// Calls before anything is counted.
const FIRST_CALLS: u64 = 100;

/// Every call succeeds.
pub(super) fn closed<S: CallService>(load: &Load) -> Outcome {
    let calls = if load.smoke {
        load.n
    } else {
        load.n.max(TIMED_CALLS)
    };
    let mut service = S::new();
    let began = Instant::now();
    let sum = add_up(&mut service, calls as u64);
    let spent = began.elapsed();
    check(sum, calls as u64)?;
    let each = spent.as_secs_f64() * 1e9 / calls as f64;
    Ok(vec![Sample::median("ns_per_call", "ns", each)])
}

/// Allocations of a call.
pub(super) fn allocations<S: CallService>(load: &Load) -> Outcome {
    let allocations = load.allocations.ok_or_else(counted_only)?;
    let mut service = S::new();
    check(add_up(&mut service, FIRST_CALLS), FIRST_CALLS)?;
    let before = allocations();
    let sum = add_up(&mut service, load.n as u64);
    let made = allocations() - before;
    check(sum, load.n as u64)?;
    let each = made as f64 / load.n as f64;
    Ok(vec![Sample::median("allocs", "allocations", each)])
}

fn add_up<S: CallService>(service: &mut S, calls: u64) -> u64 {
    (0..calls)
        .map(|number| service.call(black_box(number)).unwrap_or(u64::MAX))
        .fold(0, u64::wrapping_add)
}

fn check(sum: u64, calls: u64) -> Result<(), crate::harness::Wrong> {
    let wanted = calls * calls.saturating_sub(1) / 2;
    expect("sum of the numbers", sum, wanted)
}

/// The service behind the layer.
#[derive(Debug, Clone)]
struct AtOnce;

impl Service<u64> for AtOnce {
    type Response = u64;
    type Error = Infallible;
    type Future = Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, number: u64) -> Self::Future {
        ready(Ok(number))
    }
}

/// A breaker's layer around [`AtOnce`].
pub(super) struct Layered<K> {
    service: <BreakerLayer as Layer<AtOnce>>::Service,
    _breaker: Ours<K>,
}

impl<K: Kind> CallService for Layered<K> {
    fn new() -> Self {
        let breaker = Ours::<K>::new();
        let layer = BreakerLayer::new(breaker.breaker().clone());
        Self {
            service: layer.layer(AtOnce),
            _breaker: breaker,
        }
    }

    #[inline]
    fn call(&mut self, number: u64) -> Option<u64> {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(())) = self.service.poll_ready(&mut context) else {
            return None;
        };
        finish(self.service.call(number))
    }
}

impl CallService for recloser::AsyncRecloser {
    fn new() -> Self {
        Self::from(recloser::Recloser::default())
    }

    #[inline]
    fn call(&mut self, number: u64) -> Option<u64> {
        finish(recloser::AsyncRecloser::call(
            self,
            ready(Ok::<_, Infallible>(number)),
        ))
    }
}

fn finish<E>(future: impl Future<Output = Result<u64, E>>) -> Option<u64> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result.ok();
        }
    }
}
