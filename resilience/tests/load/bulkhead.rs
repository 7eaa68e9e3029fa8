//! `Bulkhead` through its public face: permits, the queue, giving up, resizing.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use wheelhouse_resilience::Bulkhead;
use wheelhouse_resilience::bulkhead::{AcquireOwned, Full, OwnedPermit, WaitError};

type Waiting = Pin<Box<AcquireOwned>>;

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Somebody who has been polled once and waits.
fn queue_up(bulkhead: &Bulkhead) -> Waiting {
    let mut waiting = Box::pin(bulkhead.acquire_owned());
    assert!(poll(waiting.as_mut()).is_pending());
    waiting
}

/// The permit that `waiting` was granted.
fn granted(waiting: &mut Waiting) -> Option<OwnedPermit> {
    match poll(waiting.as_mut()) {
        Poll::Ready(result) => Some(result.expect("there is no limit")),
        Poll::Pending => None,
    }
}

fn full(bulkhead: &Bulkhead) -> bool {
    matches!(bulkhead.try_acquire(), Err(Full { .. }))
}

/// A bulkhead that is all taken, by the permits returned.
fn taken(permits: usize, queue: usize) -> (Bulkhead, Vec<OwnedPermit>) {
    let bulkhead = Bulkhead::builder(permits).queue(queue).build().unwrap();
    let all = (0..permits).map(|_| bulkhead.try_acquire_owned().unwrap());
    let all = all.collect();
    (bulkhead, all)
}

#[test]
fn r34_without_permits_everything_is_refused_until_there_are_some() {
    let bulkhead = Bulkhead::new(0);
    for _ in 0..3 {
        assert!(full(&bulkhead));
        assert!(matches!(
            poll(pin!(bulkhead.acquire())),
            Poll::Ready(Err(WaitError::Full(_)))
        ));
        assert!(bulkhead.acquire_timeout(Duration::MAX).is_err());
    }
    assert_eq!(bulkhead.stats().rejected, 9);
    bulkhead.resize(1).unwrap();
    let permit = bulkhead.try_acquire().unwrap();
    assert!(full(&bulkhead));
    drop(permit);
    assert!(bulkhead.acquire_timeout(Duration::ZERO).is_ok());

    // And those who were willing to wait get them.
    let bulkhead = Bulkhead::builder(0).queue(2).build().unwrap();
    let mut waiting = [queue_up(&bulkhead), queue_up(&bulkhead)];
    bulkhead.resize(1).unwrap();
    let first = granted(&mut waiting[0]).expect("the first in the queue");
    assert!(granted(&mut waiting[1]).is_none());
    drop(first);
    assert!(granted(&mut waiting[1]).is_some());
}

#[tokio::test]
async fn r39_calls_one_after_the_other_all_run_in_order() {
    for queue in [0, 1] {
        let bulkhead = Bulkhead::builder(1).queue(queue).build().unwrap();
        let mut order = Vec::new();
        for call in 0..3 {
            let permit = bulkhead.acquire().await.expect("nobody else is there");
            tokio::task::yield_now().await;
            order.push(call);
            drop(permit);
        }
        assert_eq!(order, [0, 1, 2]);
        assert_eq!(bulkhead.stats().waited, 0);
    }
}

#[test]
fn r56_without_a_queue_the_second_is_refused_at_once() {
    let bulkhead = Bulkhead::new(1);
    let first = bulkhead.try_acquire().unwrap();
    let Poll::Ready(Err(WaitError::Full(full))) = poll(pin!(bulkhead.acquire())) else {
        panic!("it should neither wait nor get one");
    };
    assert_eq!((full.permits, full.queue), (1, 0));
    assert!(bulkhead.try_acquire_owned().is_err());
    // Being full is over with the first call.
    drop(first);
    assert!(poll(pin!(bulkhead.acquire())).ready_with(Result::is_ok));
}

trait ReadyWith<T> {
    /// Whether it is ready, with what `check` finds right.
    fn ready_with(self, check: impl FnOnce(&T) -> bool) -> bool;
}

impl<T> ReadyWith<T> for Poll<T> {
    fn ready_with(self, check: impl FnOnce(&T) -> bool) -> bool {
        matches!(self, Poll::Ready(value) if check(&value))
    }
}

#[test]
fn r58_a_completed_future_holds_no_permit() {
    let bulkhead = Bulkhead::builder(1).queue(1).build().unwrap();
    let mut at_once = Box::pin(bulkhead.acquire_owned());
    let permit = granted(&mut at_once).expect("it is free");
    let mut after_a_wait = queue_up(&bulkhead);
    drop(permit);
    let permit = granted(&mut after_a_wait).expect("it was given back");
    drop(permit);
    assert_eq!(bulkhead.in_use(), 0);
    let mut refused = Box::pin(bulkhead.acquire_owned());
    bulkhead.resize(0).unwrap();
    let held = queue_up(&bulkhead);
    assert!(poll(refused.as_mut()).ready_with(Result::is_err));
    drop(held);
    bulkhead.resize(1).unwrap();
    // All of them are still there.
    let kept = (at_once, after_a_wait, refused);
    assert!(bulkhead.try_acquire().is_ok());
    drop(kept);
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (0, 0));
    assert_eq!(bulkhead.stats().cancelled, 1);
}

#[test]
fn permits_go_round_in_order_of_arrival() {
    let (bulkhead, mut held) = taken(2, 3);
    let mut waiting: Vec<_> = (0..3).map(|_| queue_up(&bulkhead)).collect();
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (2, 3));
    assert!(matches!(
        poll(pin!(bulkhead.acquire())),
        Poll::Ready(Err(WaitError::Full(Full { queue: 3, .. })))
    ));
    for first in 0..3 {
        drop(held.remove(0));
        let permits: Vec<_> = waiting.iter_mut().map(granted).collect();
        let who = permits.iter().position(Option::is_some);
        assert_eq!(who, Some(0), "round {first}");
        held.extend(permits.into_iter().flatten());
        drop(waiting.remove(0));
    }
    assert_eq!(bulkhead.stats().waited, 3);
}

#[test]
fn nobody_overtakes_the_queue() {
    let (bulkhead, held) = taken(1, 2);
    let mut first = queue_up(&bulkhead);
    drop(held);
    // It has been granted to the first, who has not noticed.
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (1, 0));
    assert!(full(&bulkhead));
    let mut second = queue_up(&bulkhead);
    assert!(granted(&mut second).is_none());
    drop(granted(&mut first).expect("it is the first's"));
    assert!(full(&bulkhead));
    assert!(granted(&mut second).is_some());
    assert!(!full(&bulkhead));
}

#[test]
fn who_leaves_the_queue_or_drops_a_grant_is_passed_over() {
    let (bulkhead, held) = taken(1, 4);
    let gone = queue_up(&bulkhead);
    let unnoticed = queue_up(&bulkhead);
    let bell = Arc::new(Bell::default());
    let mut last = Box::pin(bulkhead.acquire_owned());
    let waker = Waker::from(bell.clone());
    assert!(
        last.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(gone);
    assert_eq!(bulkhead.queued(), 2);
    drop(held);
    assert_eq!((bulkhead.queued(), bell.0.load(SeqCst)), (1, 0));
    drop(unnoticed);
    assert_eq!(bell.0.load(SeqCst), 1);
    assert!(granted(&mut last).is_some());
    let stats = bulkhead.stats();
    assert_eq!((stats.cancelled, stats.waited), (2, 1));
    assert_eq!((stats.in_use, stats.queued), (0, 0));
}

#[test]
fn a_panicking_holder_gives_its_permit_back() {
    let (bulkhead, held) = taken(1, 1);
    let mut waiting = queue_up(&bulkhead);
    let holder = thread::spawn(move || {
        let _held = held;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(holder.join().is_err());
    assert!(granted(&mut waiting).is_some());
}

#[test]
fn fewer_permits_take_none_away() {
    let (bulkhead, mut held) = taken(3, 1);
    bulkhead.resize(1).unwrap();
    assert_eq!((bulkhead.permits(), bulkhead.in_use()), (1, 3));
    let mut waiting = queue_up(&bulkhead);
    for _ in 0..2 {
        held.pop();
        assert!(granted(&mut waiting).is_none());
        assert!(full(&bulkhead));
    }
    held.pop();
    let permit = granted(&mut waiting).expect("the last has come back");
    bulkhead.resize((1 << 31) - 1).unwrap();
    assert_eq!(bulkhead.permits(), (1 << 31) - 1);
    assert!(!full(&bulkhead));
    drop(permit);
}

#[test]
fn more_permits_than_can_be_counted_are_refused() {
    let refused = Bulkhead::builder(1 << 31).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "permits is 2147483648; allowed are 0 to 2147483647"
    );
    let bulkhead = Bulkhead::new(3);
    assert_eq!(
        bulkhead.resize(usize::MAX).unwrap_err().argument(),
        "permits"
    );
    assert_eq!(bulkhead.permits(), 3);
    assert!(std::panic::catch_unwind(|| Bulkhead::new(usize::MAX)).is_err());
}

#[test]
fn more_permits_go_to_the_queue_first() {
    let (bulkhead, held) = taken(1, 5);
    let mut waiting: Vec<_> = (0..5).map(|_| queue_up(&bulkhead)).collect();
    bulkhead.resize(4).unwrap();
    assert!(full(&bulkhead));
    let permits: Vec<_> = waiting.iter_mut().map(granted).collect();
    let got: Vec<_> = permits.iter().map(Option::is_some).collect();
    assert_eq!(got, [true, true, true, false, false]);
    drop((held, permits, waiting));
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (0, 0));
}

#[test]
fn the_latest_waker_is_the_one_that_is_woken() {
    let (bulkhead, held) = taken(1, 1);
    let mut waiting = queue_up(&bulkhead);
    let bells: [Arc<Bell>; 2] = Default::default();
    for bell in &bells {
        let waker = Waker::from(bell.clone());
        let context = &mut Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(context).is_pending());
    }
    drop(held);
    assert_eq!(bells.each_ref().map(|bell| bell.0.load(SeqCst)), [0, 1]);
    assert_eq!(Arc::strong_count(&bells[0]), 1, "the old waker is gone");
}

#[test]
fn wakers_run_outside_the_lock() {
    struct Reenter(Bulkhead, mpsc::Sender<(usize, bool)>);
    impl Wake for Reenter {
        fn wake(self: Arc<Self>) {
            let nobody_waits = self.0.queued();
            self.0.resize(2).unwrap();
            let _ = self.1.send((nobody_waits, full(&self.0)));
        }
    }
    let (bulkhead, held) = taken(1, 1);
    let (said, heard) = mpsc::channel();
    let waker = Waker::from(Arc::new(Reenter(bulkhead.clone(), said)));
    let mut waiting = Box::pin(bulkhead.acquire());
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(held);
    assert_eq!(heard.try_recv(), Ok((0, false)));
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_asleep() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let (bulkhead, held) = taken(3, 3);
    let bells: [Arc<Bell>; 2] = Default::default();
    let [first, last] = bells.each_ref().map(|bell| Waker::from(bell.clone()));
    let wakers = [first, Waker::from(Arc::new(Bomb)), last];
    let mut waiting = wakers.map(|waker| {
        let mut waiting = queue_up(&bulkhead);
        let context = &mut Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(context).is_pending());
        waiting
    });
    // All at once, by a holder that panics itself: a second panic would end the process.
    bulkhead.resize(0).unwrap();
    drop(held);
    let resizer = bulkhead.clone();
    let holder = thread::spawn(move || {
        struct Resize(Bulkhead);
        impl Drop for Resize {
            fn drop(&mut self) {
                self.0.resize(3).unwrap();
            }
        }
        let _resize = Resize(resizer);
        panic!("on purpose");
    });
    assert!(holder.join().is_err());
    assert_eq!(bells.each_ref().map(|bell| bell.0.load(SeqCst)), [1, 1]);
    assert_eq!(bulkhead.stats().contained_panics, 1);
    assert!(waiting.each_mut().map(granted).iter().all(Option::is_some));
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (0, 0));
}

#[test]
fn a_thread_gets_the_permit_it_blocks_for() {
    let (bulkhead, held) = taken(1, 1);
    let waiting = bulkhead.clone();
    let thread = thread::spawn(move || waiting.acquire_timeout(Duration::MAX).is_ok());
    while bulkhead.queued() == 0 {
        thread::yield_now();
    }
    drop(held);
    assert!(thread.join().unwrap());
    assert_eq!((bulkhead.stats().waited, bulkhead.in_use()), (1, 0));
}

#[test]
fn a_thread_waits_no_longer_than_it_said() {
    let (bulkhead, held) = taken(1, 1);
    for limit in [Duration::ZERO, Duration::from_millis(2)] {
        let refused = bulkhead.acquire_timeout(limit).unwrap_err();
        assert_eq!(refused, WaitError::TimedOut(limit));
    }
    assert_eq!((bulkhead.stats().timed_out, bulkhead.queued()), (2, 0));
    // Nothing of them is left in the way.
    drop(held);
    assert!(bulkhead.acquire_timeout(Duration::ZERO).is_ok());
}

/// What the `tokio` feature adds: limits of waiting on tokio's clock.
#[cfg(feature = "tokio")]
mod limited {
    use super::*;
    use tokio::time::{Instant, advance, sleep, timeout};

    const LIMIT: Duration = Duration::from_millis(50);

    fn limited() -> (Bulkhead, OwnedPermit) {
        let bulkhead = Bulkhead::builder(1)
            .queue(3)
            .max_wait(LIMIT)
            .build()
            .unwrap();
        let held = bulkhead.try_acquire_owned().unwrap();
        (bulkhead, held)
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_waits_to_its_limit_and_no_longer() {
        let (bulkhead, held) = limited();
        let start = Instant::now();
        let refused = bulkhead.acquire().await.unwrap_err();
        assert_eq!(refused, WaitError::TimedOut(LIMIT));
        let waited = start.elapsed();
        assert!(
            (LIMIT..LIMIT + Duration::from_millis(2)).contains(&waited),
            "{waited:?}"
        );
        let stats = bulkhead.stats();
        assert_eq!((stats.timed_out, stats.queued, stats.cancelled), (1, 0, 0));
        drop(held);
        assert!(bulkhead.acquire().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_that_was_granted_wins_over_the_limit() {
        let (bulkhead, held) = limited();
        let mut waiting = queue_up(&bulkhead);
        drop(held);
        advance(LIMIT * 2).await;
        assert!(granted(&mut waiting).is_some());
        assert_eq!(bulkhead.stats().timed_out, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_times_out_leaves_the_others_their_turn() {
        let (bulkhead, held) = limited();
        let first = tokio::spawn(bulkhead.acquire_owned());
        sleep(LIMIT / 2).await;
        let second = tokio::spawn(bulkhead.acquire_owned());
        sleep(LIMIT * 3 / 4).await;
        assert_eq!(
            first.await.unwrap().unwrap_err(),
            WaitError::TimedOut(LIMIT)
        );
        drop(held);
        assert!(second.await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_around_the_future_does_as_well() {
        let (bulkhead, held) = taken(1, 1);
        assert!(timeout(LIMIT, bulkhead.acquire()).await.is_err());
        assert_eq!((bulkhead.queued(), bulkhead.stats().cancelled), (0, 1));
        drop(held);
        assert!(timeout(LIMIT, bulkhead.acquire()).await.unwrap().is_ok());
    }

    #[test]
    fn threads_keep_to_the_limit_too() {
        let (bulkhead, _held) = limited();
        let refused = bulkhead.acquire_timeout(Duration::MAX).unwrap_err();
        assert_eq!(refused, WaitError::TimedOut(LIMIT));
    }
}
