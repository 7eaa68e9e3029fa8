//! Expired pairs as a stream: its bound, what waits behind it, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use wheelhouse_wheel::{Clock, ExpiredStream, ManualClock, TimingWheel};

use crate::support::within::within_a_minute;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

type Parts = (ManualClock, TimingWheel<u32, u32>, ExpiredStream<u32, u32>);

fn stream(capacity: usize, shards: usize) -> Parts {
    let clock = ManualClock::new();
    let (wheel, stream) = TimingWheel::builder()
        .shards(shards)
        .clock(clock.clone())
        .stream(capacity)
        .unwrap();
    (clock, wheel, stream)
}

/// What the stream yields without waiting.
fn read(stream: &mut ExpiredStream<u32, u32>) -> Option<(u32, u32)> {
    stream.next().now_or_never().flatten()
}

#[test]
fn pairs_come_in_the_order_of_their_ticks() {
    let (clock, wheel, mut stream) = stream(1000, 16);
    for key in 0..500 {
        wheel.set_timer(key, key, (key * 7 % 500 + 1) * MS).unwrap();
    }
    clock.advance(HOUR);
    let read: Vec<u32> = std::iter::from_fn(|| read(&mut stream))
        .map(|pair| pair.0 * 7 % 500)
        .collect();
    assert_eq!(read, (0..500).collect::<Vec<_>>());
    assert_eq!(wheel.stats().fired, 500);
}

#[test]
fn a_full_stream_leaves_the_others_in_the_wheel() {
    within_a_minute(|| {
        for shards in [1, 16] {
            for capacity in [1, 2, 3, 10] {
                let (clock, wheel, mut stream) = stream(capacity, shards);
                for key in 0..100 {
                    wheel.set_timer(key, key, MS).unwrap();
                }
                clock.advance(MS);
                assert_eq!(
                    wheel.len(),
                    100 - capacity,
                    "capacity {capacity}, {shards} shards"
                );
                let stats = wheel.stats();
                assert_eq!((stats.pending, stats.fired), (100, 0));
                // Those can still be taken and moved.
                let waiting = (0..100).find(|key| wheel.contains(key)).unwrap();
                assert_eq!(wheel.take_timer(&waiting), Ok(Some(waiting)));
                let moved = (0..100).find(|key| wheel.contains(key)).unwrap();
                assert_eq!(wheel.reschedule_timer(&moved, HOUR), Ok(true));
                let mut keys = Vec::new();
                while keys.len() < 98 {
                    match read(&mut stream) {
                        Some((key, _)) => keys.push(key),
                        // The driver is on its way.
                        None => std::thread::yield_now(),
                    }
                    assert!(wheel.len() >= 100usize.saturating_sub(2 + keys.len() + capacity));
                }
                keys.sort_unstable();
                keys.dedup();
                assert_eq!(keys.len(), 98);
                assert!(!keys.contains(&waiting) && !keys.contains(&moved));
                assert_eq!(read(&mut stream), None);
                clock.advance(HOUR);
                assert_eq!(read(&mut stream), Some((moved, moved)));
            }
        }
    });
}

#[test]
fn buffered_pairs_are_returned_first() {
    let (clock, wheel, mut stream) = stream(10, 4);
    for key in 0..20 {
        wheel.set_timer(key, key, (key + 1) * MS).unwrap();
    }
    clock.advance(15 * MS);
    assert_eq!(read(&mut stream), Some((0, 0)));
    assert_eq!(read(&mut stream), Some((1, 1)));
    let left: Vec<u32> = wheel.stop().into_iter().map(|pair| pair.0).collect();
    assert_eq!(left, (2..20).collect::<Vec<_>>());
    assert_eq!(stream.next().now_or_never(), Some(None), "it has ended");
    let stats = wheel.stats();
    assert_eq!((stats.set, stats.fired, stats.returned), (20, 2, 18));
    assert_eq!(stats.pending, 0);
}

#[test]
fn stop_while_the_driver_waits_for_room() {
    within_a_minute(|| {
        let (clock, wheel, stream) = stream(1, 4);
        for key in 0..20 {
            wheel.set_timer(key, key, MS).unwrap();
        }
        clock.advance(MS);
        assert_eq!(wheel.stop().len(), 20);
        drop(stream);
    });
}

#[test]
fn a_dropped_stream_closes_the_wheel() {
    within_a_minute(|| {
        let (clock, wheel, stream) = stream(4, 4);
        for key in 0..20 {
            wheel.set_timer(key, key, MS).unwrap();
        }
        clock.advance(MS);
        drop(stream);
        assert!(wheel.set_timer(20, 20, MS).is_err());
        clock.advance(MS);
        assert_eq!(wheel.stop().len(), 20);
        assert_eq!(wheel.stop(), []);
    });
}

#[test]
fn the_last_handle_ends_the_stream() {
    let (_clock, wheel, mut stream) = stream(4, 4);
    wheel.set_timer(1, 1, HOUR).unwrap();
    drop(wheel);
    assert_eq!(stream.next().now_or_never(), Some(None));
}

#[test]
fn a_stream_that_nobody_reads_does_not_stop_a_clock() {
    within_a_minute(|| {
        let clock = ManualClock::new();
        let start = clock.now();
        let (blocked, _stream): (TimingWheel<u32, ()>, _) = TimingWheel::builder()
            .clock(clock.clone())
            .stream(1)
            .unwrap();
        blocked.set_timer(1, (), MS).unwrap();
        blocked.set_timer(2, (), MS).unwrap();
        let (fired, log) = std::sync::mpsc::channel();
        let wheel = TimingWheel::builder()
            .clock(clock.clone())
            .build({
                let clock = clock.clone();
                move |key: u32, ()| {
                    fired
                        .send((key, clock.now().duration_since(start)))
                        .unwrap()
                }
            })
            .unwrap();
        for key in 1..10 {
            wheel.set_timer(key, (), key * 5 * MS).unwrap();
        }
        // Neither does one that is stopped and still has a handle.
        let stopped = TimingWheel::builder()
            .clock(clock.clone())
            .build(|_: u32, ()| {})
            .unwrap();
        stopped.set_timer(1, (), 7 * MS).unwrap();
        stopped.flush().unwrap();
        assert_eq!(stopped.stop().len(), 1);
        clock.run_for(100 * MS);
        let log: Vec<_> = log.try_iter().collect();
        let expected: Vec<_> = (1..10).map(|key| (key, key * 5 * MS)).collect();
        assert_eq!(log, expected);
        assert_eq!(clock.now(), start + 100 * MS);
    });
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A stream and the bell of who reads it.
struct Reader {
    stream: ExpiredStream<u32, u32>,
    bell: Arc<Bell>,
}

impl Reader {
    fn poll(&mut self) -> Poll<Option<(u32, u32)>> {
        let waker = Waker::from(self.bell.clone());
        self.stream
            .poll_next_unpin(&mut Context::from_waker(&waker))
    }

    fn rings(&self) -> usize {
        self.bell.0.load(SeqCst)
    }
}

/// A stream whose reader waits for key 1, an hour away.
fn waiting_stream() -> (ManualClock, TimingWheel<u32, u32>, Reader) {
    let clock = ManualClock::new();
    let (wheel, stream) = TimingWheel::builder()
        .clock(clock.clone())
        .stream(8)
        .unwrap();
    wheel.set_timer(1, 7, HOUR).unwrap();
    clock.advance(MS);
    let bell = Arc::default();
    let mut reader = Reader { stream, bell };
    assert_eq!(reader.poll(), Poll::Pending);
    assert_eq!(reader.rings(), 0);
    (clock, wheel, reader)
}

#[test]
fn w26a_a_waiting_stream_yields_what_is_moved_to_now() {
    let (clock, wheel, mut reader) = waiting_stream();
    wheel.move_timer(1, Duration::ZERO).unwrap();
    clock.advance(MS);
    assert_eq!(reader.rings(), 1);
    assert_eq!(reader.poll(), Poll::Ready(Some((1, 7))));
    assert_eq!(reader.poll(), Poll::Pending);
    assert_eq!(wheel.stats().fired, 1);
}

#[test]
fn w26b_a_waiting_stream_goes_on_waiting_after_a_drain() {
    let (clock, wheel, mut reader) = waiting_stream();
    assert_eq!(wheel.drain(|_, _| {}), Ok(1));
    clock.advance(2 * HOUR);
    assert_eq!(reader.poll(), Poll::Pending);
    assert_eq!(reader.rings(), 0);
    wheel.set_timer(2, 8, MS).unwrap();
    clock.advance(MS);
    assert_eq!(reader.rings(), 1);
    assert_eq!(reader.poll(), Poll::Ready(Some((2, 8))));
}

#[test]
fn w26c_a_waiting_stream_ends_with_the_wheel() {
    let (_clock, wheel, mut reader) = waiting_stream();
    assert_eq!(wheel.stop(), [(1, 7)]);
    assert_eq!(reader.rings(), 1);
    assert_eq!(reader.poll(), Poll::Ready(None));
    assert_eq!(reader.poll(), Poll::Ready(None), "and stays at its end");
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_task_that_waits_is_woken_in_real_time() {
    let (wheel, mut expired) = TimingWheel::builder().stream(2).unwrap();
    wheel.set_timer(1000, (), HOUR).unwrap();
    let reader = tokio::spawn(async move {
        let mut keys = Vec::new();
        while let Some((key, ())) = expired.next().await {
            keys.push(key);
        }
        keys
    });
    for key in 0..1000 {
        wheel
            .set_timer(key, (), Duration::from_micros(u64::from(key) * 20))
            .unwrap();
    }
    while wheel.stats().fired < 1000 {
        tokio::time::sleep(MS).await;
    }
    let left = tokio::task::spawn_blocking(move || wheel.stop())
        .await
        .unwrap();
    assert_eq!(left, [(1000, ())]);
    let mut keys = reader.await.unwrap();
    keys.sort_unstable();
    assert_eq!(keys, (0..1000).collect::<Vec<u32>>());
}
