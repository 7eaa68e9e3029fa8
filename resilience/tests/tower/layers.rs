//! Layers: readiness, rejection, sharing, verdicts, keys.

use std::borrow::Cow;
use std::cell::Cell;
use std::future::{Future, Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tower::{Layer, Service, ServiceExt, service_fn};
use wheelhouse_resilience::tower::{
    BreakerLayer, BulkheadLayer, GuardLayer, KeyedLayer, LayerError, LimitLayer, QueueLayer,
    ShedLayer,
};
use wheelhouse_resilience::{
    AdaptiveLimit, Breaker, Bulkhead, Priority, Reason, Registry, Shedder, State, Verdict, limit,
};
use wheelhouse_wheel::ManualClock;

/// A service that counts what is done to it, is ready when told, panics when it is called without
/// having said so, and answers when told.
#[derive(Debug)]
struct Watched {
    seen: Rc<Seen>,
    is_ready: bool,
}

#[derive(Debug, Default)]
struct Seen {
    polls: Cell<u32>,
    calls: Cell<u32>,
    never_ready: Cell<bool>,
    fails: Cell<bool>,
    hangs: Cell<bool>,
}

impl Watched {
    fn new() -> (Self, Rc<Seen>) {
        let seen = Rc::new(Seen::default());
        let service = Watched {
            seen: seen.clone(),
            is_ready: false,
        };
        (service, seen)
    }
}

/// Like most services, a clone has to be asked anew.
impl Clone for Watched {
    fn clone(&self) -> Self {
        Watched {
            seen: self.seen.clone(),
            is_ready: false,
        }
    }
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<u32, &'static str>>>>;

impl Service<u32> for Watched {
    type Response = u32;
    type Error = &'static str;
    type Future = Answer;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.seen.polls.set(self.seen.polls.get() + 1);
        if self.seen.never_ready.get() {
            return Poll::Pending;
        }
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Answer {
        assert!(
            std::mem::take(&mut self.is_ready),
            "called without being ready"
        );
        self.seen.calls.set(self.seen.calls.get() + 1);
        match (self.seen.hangs.get(), self.seen.fails.get()) {
            (true, _) => Box::pin(std::future::pending()),
            (false, true) => Box::pin(ready(Err("failed"))),
            (false, false) => Box::pin(ready(Ok(request))),
        }
    }
}

fn poll_ready<S: Service<u32>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

async fn call<S>(service: &mut S) -> Result<u32, S::Error>
where
    S: Service<u32, Response = u32>,
{
    service.ready().await?.call(7).await
}

/// R51: forced open, the inner service never ready: a rejection at once, and it is not polled.
#[tokio::test]
async fn r51_rejects_without_asking_the_inner_service() {
    let breaker = Breaker::builder().build().unwrap();
    let (inner, seen) = Watched::new();
    seen.never_ready.set(true);
    let mut service = BreakerLayer::new(breaker.clone()).layer(inner);
    breaker.force_open();
    for _ in 0..10 {
        match call(&mut service).await.unwrap_err() {
            LayerError::Rejected(rejected) => assert_eq!(rejected.reason(), Reason::ForcedOpen),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((seen.polls.get(), seen.calls.get()), (0, 0));
    assert_eq!(breaker.stats().rejected, 10);

    breaker.reset();
    assert!(poll_ready(&mut service).is_pending());
    assert_eq!(seen.polls.get(), 1);
}

/// R51 as a class: open by itself; a full bulkhead; and what opens or closes between the two steps.
#[tokio::test]
async fn r51_holds_for_every_guard_and_between_the_steps() {
    let clock = ManualClock::new();
    let breaker = Breaker::consecutive().clock(clock.clone()).build().unwrap();
    let (inner, seen) = Watched::new();
    let mut service = BreakerLayer::new(breaker.clone()).layer(inner);
    seen.fails.set(true);
    for _ in 0..6 {
        assert_eq!(call(&mut service).await, Err(LayerError::Failed("failed")));
    }
    let polls = seen.polls.get();
    assert!(matches!(
        call(&mut service).await,
        Err(LayerError::Rejected(_))
    ));
    assert_eq!(seen.polls.get(), polls);

    // Ready to reject, and half-open by the time of the call: rejected, and no probe is used up.
    assert!(poll_ready(&mut service).is_ready());
    clock.advance(Duration::from_secs(60));
    assert!(matches!(
        service.call(7).await,
        Err(LayerError::Rejected(_))
    ));
    assert_eq!(seen.polls.get(), polls);
    seen.fails.set(false);
    assert_eq!(call(&mut service).await, Ok(7));
    assert_eq!(breaker.state(), State::Closed);

    // Ready to call, and open by then: rejected, and the readiness is kept for the next.
    assert!(poll_ready(&mut service).is_ready());
    breaker.force_open();
    let calls = seen.calls.get();
    assert!(matches!(
        service.call(7).await,
        Err(LayerError::Rejected(_))
    ));
    assert_eq!(seen.calls.get(), calls);

    let bulkhead = Bulkhead::new(0);
    let (inner, seen) = Watched::new();
    let mut service = BulkheadLayer::new(bulkhead).layer(inner);
    assert!(matches!(
        call(&mut service).await,
        Err(LayerError::Rejected(_))
    ));
    assert_eq!(seen.polls.get(), 0);
}

/// R52: 100 clones of a half-open breaker's service, one permit: one call of the inner service.
#[tokio::test]
async fn r52_clones_share_the_guard() {
    let clock = ManualClock::new();
    let breaker = Breaker::consecutive().clock(clock.clone()).build().unwrap();
    for _ in 0..6 {
        breaker.try_acquire().unwrap().failure();
    }
    clock.advance(Duration::from_secs(60));
    let (inner, seen) = Watched::new();
    seen.hangs.set(true);
    let service = BreakerLayer::new(breaker).layer(inner);
    let mut clones: Vec<_> = (0..100).map(|_| service.clone()).collect();
    let mut calls = Vec::new();
    for clone in &mut clones {
        assert!(poll_ready(clone).is_ready());
        calls.push(clone.call(7));
    }
    assert_eq!(seen.calls.get(), 1);
}

/// R54: an inner service that panics unless it was polled ready, in every order of steps.
#[tokio::test]
async fn r54_the_instance_that_is_called_is_ready() {
    let breaker = Breaker::builder().build().unwrap();
    let (inner, seen) = Watched::new();
    let mut one = BreakerLayer::new(breaker.clone()).layer(inner.clone());
    let mut two = QueueLayer::new(Bulkhead::new(2)).layer(inner.clone());
    let mut three = GuardLayer::new(Some(breaker.clone())).layer(inner.clone());
    let mut four = QueueLayer::new(Bulkhead::new(2)).layer(BreakerLayer::new(breaker).layer(inner));
    for round in 0..20 {
        for _ in 0..round % 3 {
            assert!(poll_ready(&mut one).is_ready() && poll_ready(&mut two).is_ready());
            assert!(poll_ready(&mut three).is_ready() && poll_ready(&mut four).is_ready());
        }
        let mut clone = one.clone();
        assert_eq!(call(&mut clone).await, Ok(7));
        assert_eq!(call(&mut one).await, Ok(7));
        assert_eq!(call(&mut two).await, Ok(7));
        assert_eq!(call(&mut three).await, Ok(7));
        assert_eq!(call(&mut four).await, Ok(7));
    }
    assert_eq!(seen.calls.get(), 100);
}

/// R56: limit 1, two calls, rejecting: the second is rejected, and being full is not taken for the
/// inner service not being ready, nor the other way round.
#[tokio::test]
async fn r56_fullness_and_readiness_are_two_things() {
    let bulkhead = Bulkhead::new(1);
    let (inner, seen) = Watched::new();
    let mut service = BulkheadLayer::new(bulkhead.clone()).layer(inner);
    seen.hangs.set(true);
    let mut clone = service.clone();
    assert!(poll_ready(&mut service).is_ready() && poll_ready(&mut clone).is_ready());
    let first = service.call(1);
    match clone.call(2).await.unwrap_err() {
        LayerError::Rejected(full) => assert_eq!(full.permits, 1),
        other => panic!("{other:?}"),
    }
    assert_eq!((seen.calls.get(), bulkhead.in_use()), (1, 1));

    // Full: ready to reject. Not full and the inner service not ready: not ready.
    seen.never_ready.set(true);
    assert!(poll_ready(&mut clone).is_ready());
    assert!(clone.call(3).await.is_err());
    drop(first);
    assert_eq!(bulkhead.in_use(), 0);
    assert!(poll_ready(&mut clone).is_pending());
}

/// R11: three hosts, one dead.
#[tokio::test]
async fn r11_only_the_dead_key_opens() {
    fn host<'a>(request: &'a (u8, &'static str)) -> Cow<'a, str> {
        Cow::Borrowed(request.1)
    }
    let registry = Registry::builder()
        .default_breaker(Breaker::consecutive())
        .build()
        .unwrap();
    let reached = Cell::new(0);
    let mut client = KeyedLayer::by(registry.clone(), host).layer(service_fn(
        |(_, host): (u8, &'static str)| {
            reached.set(reached.get() + u32::from(host == "dead"));
            ready(if host == "dead" { Err(()) } else { Ok(()) })
        },
    ));
    for call in 0..100 {
        for host in ["one", "dead", "two"] {
            let result = client.ready().await.unwrap().call((call, host)).await;
            assert_eq!(result.is_ok(), host != "dead");
        }
    }
    assert_eq!(reached.get(), 6);
    assert_eq!(registry.get("dead").state(), State::Open);
    assert_eq!(registry.get("one").stats().successes, 100);
    assert_eq!(registry.get("two").state(), State::Closed);
    assert_eq!(registry.len(), 3);
}

#[tokio::test]
async fn every_way_to_end_is_told_apart() {
    let breaker = Breaker::builder().build().unwrap();
    let (inner, seen) = Watched::new();
    let judge = |result: Result<&u32, &&str>| match result {
        Ok(0) => Verdict::Ignored,
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::Failure,
    };
    let mut service = BreakerLayer::new(breaker.clone())
        .classify(judge)
        .layer(inner);
    for request in [0, 1, 2] {
        let _ = service.ready().await.unwrap().call(request).await;
    }
    seen.fails.set(true);
    let _ = call(&mut service).await;
    seen.hangs.set(true);
    assert!(poll_ready(&mut service).is_ready());
    let mut hung = service.call(1);
    let polled = std::pin::Pin::new(&mut hung).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    drop(hung);
    let stats = breaker.stats();
    assert_eq!((stats.successes, stats.failures), (2, 1));
    assert_eq!((stats.ignored, stats.cancelled), (1, 1));
}

#[tokio::test]
async fn a_panic_of_the_inner_service_is_a_failure() {
    let breaker = Breaker::builder().build().unwrap();
    let service = BreakerLayer::new(breaker.clone()).layer(service_fn(|_: u32| async {
        panic!("a bug");
        #[expect(unreachable_code, reason = "for the type")]
        Ok::<u32, ()>(1)
    }));
    let ended = tokio::spawn(service.oneshot(7)).await;
    assert!(ended.unwrap_err().is_panic());
    assert_eq!(breaker.stats().failures, 1);
}

/// What `catch_unwind` of futures is: the panic ends in a value, and the future is kept.
fn poll_catching<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Result<Poll<F::Output>, String> {
    let mut context = Context::from_waker(Waker::noop());
    let polled = AssertUnwindSafe(|| future.as_mut().poll(&mut context));
    catch_unwind(polled).map_err(|panic| panic.downcast_ref::<&str>().unwrap().to_string())
}

/// Behind a `catch_unwind` the future is dropped when no panic unwinds any more, or never: the
/// verdict is that of the panic, and comes with it.
#[test]
fn a_panic_that_is_caught_is_a_failure() {
    async fn bug(_request: u32) -> Result<u32, ()> {
        tokio::task::yield_now().await;
        panic!("a bug")
    }
    let breaker = Breaker::builder().build().unwrap();
    let mut service = BreakerLayer::new(breaker.clone()).layer(service_fn(bug));
    assert!(poll_ready(&mut service).is_ready());
    let mut call = Box::pin(service.call(7));
    assert!(poll_catching(&mut call).unwrap().is_pending());
    assert_eq!(poll_catching(&mut call).unwrap_err(), "a bug");
    assert_eq!(breaker.stats().failures, 1);
    drop(call);
    let stats = breaker.stats();
    assert_eq!((stats.failures, stats.cancelled), (1, 0));

    // The places of a limit and of a bulkhead are free, though the future is still there.
    let limit = AdaptiveLimit::builder(limit::Aimd::default())
        .build()
        .unwrap();
    let mut service = LimitLayer::new(limit.clone()).layer(service_fn(bug));
    assert!(poll_ready(&mut service).is_ready());
    let mut kept = Box::pin(service.call(7));
    assert!(poll_catching(&mut kept).unwrap().is_pending());
    assert_eq!(limit.in_flight(), 1);
    assert!(poll_catching(&mut kept).is_err());
    assert_eq!(limit.in_flight(), 0);

    let bulkhead = Bulkhead::new(1);
    let mut service = QueueLayer::new(bulkhead.clone()).layer(service_fn(bug));
    assert!(poll_ready(&mut service).is_ready());
    let mut kept = Box::pin(service.call(7));
    assert!(poll_catching(&mut kept).unwrap().is_pending());
    assert_eq!(bulkhead.in_use(), 1);
    assert!(poll_catching(&mut kept).is_err());
    assert_eq!(bulkhead.in_use(), 0);
}

/// A service may panic before it has a future.
#[test]
fn a_panic_of_the_call_itself_is_a_failure() {
    fn bug(_request: u32) -> Ready<Result<u32, ()>> {
        panic!("a bug")
    }
    let breaker = Breaker::builder().build().unwrap();
    let mut service = BreakerLayer::new(breaker.clone()).layer(service_fn(bug));
    assert!(poll_ready(&mut service).is_ready());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(service.call(7)))).is_err());
    assert_eq!(breaker.stats().failures, 1);
}

#[tokio::test]
async fn limits_and_shedders_guard_as_well() {
    let limit = AdaptiveLimit::builder(limit::Aimd::default())
        .initial(1)
        .build()
        .unwrap();
    let (inner, seen) = Watched::new();
    let mut limited = LimitLayer::new(limit.clone()).layer(inner);
    seen.hangs.set(true);
    assert!(poll_ready(&mut limited).is_ready());
    let held = limited.call(1);
    assert!(matches!(
        call(&mut limited).await,
        Err(LayerError::Rejected(_))
    ));
    drop(held);
    seen.hangs.set(false);
    assert_eq!(call(&mut limited).await, Ok(7));
    assert_eq!(limit.in_flight(), 0);

    let shedder = Shedder::builder().build().unwrap();
    let (inner, seen) = Watched::new();
    let mut server = ShedLayer::shedding(shedder.clone(), |_: &u32| Priority::High).layer(inner);
    assert_eq!(call(&mut server).await, Ok(7));
    seen.fails.set(true);
    assert_eq!(call(&mut server).await, Err(LayerError::Failed("failed")));
    let stats = shedder.stats();
    assert_eq!((stats.passed, stats.failed, stats.in_flight), (1, 1, 0));
}

/// Requests wait in the order in which they came, and one that is dropped leaves the queue.
#[tokio::test(start_paused = true)]
async fn a_queue_holds_requests_until_there_is_a_place() {
    let bulkhead = Bulkhead::builder(1)
        .queue(2)
        .max_wait(None)
        .build()
        .unwrap();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = order.clone();
    let service = QueueLayer::new(bulkhead.clone()).layer(service_fn(move |request: u32| {
        log.lock().unwrap().push(request);
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, ()>(request)
        }
    }));
    let spawn = |request| tokio::spawn(service.clone().oneshot(request));
    let one = spawn(1);
    tokio::task::yield_now().await;
    let two = spawn(2);
    tokio::task::yield_now().await;
    let three = spawn(3);
    tokio::task::yield_now().await;
    let full = service.clone().oneshot(4).await;
    assert!(matches!(full, Err(LayerError::Rejected(_))));
    two.abort();
    assert_eq!(one.await.unwrap(), Ok(1));
    assert_eq!(three.await.unwrap(), Ok(3));
    assert_eq!(*order.lock().unwrap(), [1, 3]);
    assert_eq!(bulkhead.in_use(), 0);
}

/// Named futures: they can be fields.
#[test]
fn futures_have_names() {
    use wheelhouse_resilience::tower::{ByResult, ResponseFuture};
    use wheelhouse_resilience::{OwnedPermit, Rejected};

    type Call = ResponseFuture<Ready<Result<u32, ()>>, OwnedPermit, Rejected, ByResult>;
    let breaker = Breaker::builder().build().unwrap();
    let mut service = BreakerLayer::new(breaker).layer(service_fn(|n: u32| ready(Ok::<_, ()>(n))));
    assert!(poll_ready(&mut service).is_ready());
    let mut call: Call = service.call(3);
    let polled = std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(Ok(3)));
}
