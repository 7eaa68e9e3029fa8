//! `Bulkhead` against a naive queue, under tokio's paused clock.
//!
//! Properties, after each step:
//! - who holds a permit, who waits and in which order, and who was refused, timed out or left is what
//!   the model says;
//! - the counts of permits in use and of those waiting are the model's;
//! - in the end, when all is dropped, every permit can be taken.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, advance};
use wheelhouse_resilience::Bulkhead;
use wheelhouse_resilience::bulkhead::{AcquireOwned, OwnedPermit, WaitError};

const LIMIT: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
enum Op {
    Try,
    /// Acquire, and poll once.
    Queue,
    /// Poll the i-th of those that wait.
    Poll(usize),
    /// Drop the i-th of those that wait.
    Leave(usize),
    /// Give back the i-th permit.
    Release(usize),
    Resize(usize),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Try),
        4 => Just(Op::Queue),
        4 => (0..8usize).prop_map(Op::Poll),
        2 => (0..8usize).prop_map(Op::Leave),
        4 => (0..8usize).prop_map(Op::Release),
        1 => (0..5usize).prop_map(Op::Resize),
        2 => (1..60u64).prop_map(Op::Advance),
    ]
}

/// Somebody who waits, as the model has them.
#[derive(Debug)]
struct Waiter {
    number: u64,
    until: Instant,
}

#[derive(Debug, Default)]
struct Model {
    permits: usize,
    capacity: usize,
    holding: usize,
    /// In order of arrival.
    queue: VecDeque<Waiter>,
    /// Granted and not noticed.
    granted: Vec<u64>,
}

impl Model {
    fn in_use(&self) -> usize {
        self.holding + self.granted.len()
    }

    fn has_room(&self) -> bool {
        self.in_use() < self.permits && self.queue.is_empty()
    }

    fn hand_over(&mut self) {
        while self.in_use() < self.permits
            && let Some(first) = self.queue.pop_front()
        {
            self.granted.push(first.number);
        }
    }

    fn was_granted(&mut self, number: u64) -> bool {
        let at = self.granted.iter().position(|granted| *granted == number);
        at.map(|at| self.granted.swap_remove(at)).is_some()
    }

    fn remove(&mut self, number: u64) {
        self.queue.retain(|waiter| waiter.number != number);
    }
}

struct Run {
    bulkhead: Bulkhead,
    model: Model,
    waiting: Vec<(u64, Pin<Box<AcquireOwned>>)>,
    held: Vec<OwnedPermit>,
    next: u64,
}

fn look(future: &mut Pin<Box<AcquireOwned>>) -> Poll<Result<OwnedPermit, WaitError>> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

impl Run {
    fn queue(&mut self) {
        let number = self.next;
        self.next += 1;
        let mut future = Box::pin(self.bulkhead.acquire_owned());
        match look(&mut future) {
            Poll::Ready(Ok(permit)) => {
                assert!(self.model.has_room());
                self.model.holding += 1;
                self.held.push(permit);
            }
            Poll::Ready(Err(WaitError::Full(full))) => {
                assert!(!self.model.has_room());
                assert_eq!(self.model.queue.len(), self.model.capacity);
                assert_eq!(full.permits, self.model.permits);
            }
            Poll::Ready(Err(other)) => panic!("{other}"),
            Poll::Pending => {
                assert!(!self.model.has_room());
                assert!(self.model.queue.len() < self.model.capacity);
                let until = Instant::now() + LIMIT;
                self.model.queue.push_back(Waiter { number, until });
                self.waiting.push((number, future));
            }
        }
    }

    fn poll(&mut self, index: usize) {
        let (number, future) = &mut self.waiting[index];
        let number = *number;
        let looked = look(future);
        if self.model.was_granted(number) {
            let Poll::Ready(Ok(permit)) = looked else {
                panic!("{number} was granted a permit and got {looked:?}");
            };
            self.model.holding += 1;
            self.held.push(permit);
            drop(self.waiting.remove(index));
            return;
        }
        let now = Instant::now();
        let waiter = self
            .model
            .queue
            .iter()
            .find(|waiter| waiter.number == number);
        let until = waiter.expect("it waits").until;
        match looked {
            // tokio's timer goes by whole milliseconds and is never early.
            Poll::Pending => assert!(now < until + Duration::from_millis(2)),
            Poll::Ready(Err(WaitError::TimedOut(LIMIT))) => {
                assert!(now >= until);
                self.model.remove(number);
                drop(self.waiting.remove(index));
            }
            other => panic!("{number} waits and got {other:?}"),
        }
    }

    fn leave(&mut self, index: usize) {
        let (number, future) = self.waiting.remove(index);
        drop(future);
        if self.model.was_granted(number) {
            self.model.hand_over();
        } else {
            self.model.remove(number);
        }
    }

    async fn apply(&mut self, op: Op) {
        let waiting = |index: usize| (!self.waiting.is_empty()).then(|| index % self.waiting.len());
        match op {
            Op::Try => {
                let taken = self.bulkhead.try_acquire_owned();
                assert_eq!(taken.is_ok(), self.model.has_room());
                self.model.holding += usize::from(taken.is_ok());
                self.held.extend(taken);
            }
            Op::Queue => self.queue(),
            Op::Poll(index) => {
                if let Some(index) = waiting(index) {
                    self.poll(index);
                }
            }
            Op::Leave(index) => {
                if let Some(index) = waiting(index) {
                    self.leave(index);
                }
            }
            Op::Release(index) => {
                if !self.held.is_empty() {
                    let index = index % self.held.len();
                    drop(self.held.remove(index));
                    self.model.holding -= 1;
                    self.model.hand_over();
                }
            }
            Op::Resize(permits) => {
                self.bulkhead.resize(permits).unwrap();
                self.model.permits = permits;
                self.model.hand_over();
            }
            Op::Advance(ms) => advance(Duration::from_millis(ms)).await,
        }
    }

    fn validate(&self) {
        let stats = self.bulkhead.stats();
        let model = &self.model;
        let found = (stats.permits, stats.in_use, stats.queued);
        assert_eq!(found, (model.permits, model.in_use(), model.queue.len()));
    }
}

proptest! {
    #[test]
    fn behaves_as_a_naive_queue(
        permits in 0..4usize,
        capacity in 0..5usize,
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let bulkhead = Bulkhead::builder(permits).queue(capacity).max_wait(LIMIT).build().unwrap();
            let model = Model { permits, capacity, ..Model::default() };
            let mut run = Run { bulkhead, model, waiting: Vec::new(), held: Vec::new(), next: 0 };
            for op in ops {
                run.apply(op).await;
                run.validate();
            }
            let Run { bulkhead, waiting, held, .. } = run;
            drop(waiting);
            drop(held);
            bulkhead.resize(3).unwrap();
            let all: Vec<_> = (0..3).map(|_| bulkhead.try_acquire()).collect();
            assert!(all.iter().all(Result::is_ok) && bulkhead.try_acquire().is_err());
        });
    }
}
