//! What the threads of a [`RollingWindow`](super::RollingWindow) share, and how they meet.
//!
//! Time is a number of nanoseconds since the window's start, at most [`LAST`]. Bucket `b` covers
//! `b * length .. (b + 1) * length`, and its end is its edge. One bucket is the current one; it only
//! ever gets later.
//!
//! # Ground rules
//!
//! - A writer adds to the word of its stripe and writes nothing else. The words together hold what
//!   has been added to the current bucket and not been folded yet.
//! - [`Row`], under the lock, holds the finished buckets and what of the current one has been folded.
//! - What readers need of the row is published in [`Head`]: the sum over a view, which is the current
//!   bucket or a later one (a reader whose time is past the edge looks ahead; it does not move the
//!   window).
//! - Words are emptied, and the head is written, only in a section: under the lock, between two
//!   additions to `sequence`, which is odd meanwhile.
//!
//! # A writer
//!
//! 1. Loads `edge` (Acquire). 2. If its time is not before that: locks, and turns the window to the
//!    bucket of its time, unless another has. 3. Adds to its word (Relaxed). 4. If a counter is heavy:
//!    locks and folds the word.
//!
//! A turn is a section: it exchanges every word for 0 and folds what was in them into the bucket that
//! ends, clears the buckets that leave the window, stores the new `edge` when all words are empty
//! (Release), and publishes the new sum.
//!
//! # A reader
//!
//! Loads `sequence`, then the head, then the words, then `sequence` again: equal and even means that
//! nothing was moved from words to row between, so nothing is counted twice or missed. If not, or
//! when its time is in another bucket than the view, it takes the lock, under which nothing moves.
//!
//! # Invariants
//!
//! - I3: a value added at a time in bucket `b` is counted in `b`, or in the current bucket if that is
//!   later. Never in an earlier one: the writer saw an edge after its time, so some turn to `b` or
//!   later had emptied its word (Release in `turn`, Acquire in `add`), and its addition comes after
//!   that in the order of the word.
//! - I4: nothing is lost or counted twice: words are only added to and exchanged for 0, and what is
//!   exchanged is folded.
//! - I5: what a value adds to several counters is added at once, and moved at once: so no reader sees
//!   more errors than requests.
//!
//! # Races considered
//!
//! - Two writers past the edge: the lock lets the second find the work done.
//! - A writer stops between 1 and 3, and the window turns meanwhile: its value is counted in the
//!   bucket that is current when it goes on, as if it had called a little later (I3).
//! - A turn while a reader reads: what the section wrote is published by the Release fence at its
//!   beginning; a reader that has seen any of it sees an odd or a new `sequence` after its Acquire
//!   fence, and starts again.
//! - A reader that looks ahead while a writer turns: both have the lock, one after the other. A view
//!   is never before the current bucket.

use std::time::{Duration, Instant};

use crate::striped::Striped;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};

use super::bucket::sealed::Cells;
use super::bucket::{Bucket, Carry, Counts};
use super::row::Row;
use super::word::Word;

/// The last nanosecond that is told from the next, after 292 years: edges fit their word.
pub(super) const LAST: u64 = u64::MAX / 2;

/// How often a reader tries before it takes the lock.
const TRIES: u32 = 2;

#[derive(Debug)]
pub(super) struct Shared<B: Bucket, S = ()> {
    stripes: Striped<Stripe<S>>,
    head: Head<B>,
    start: Instant,
    /// Of a bucket, 1 to [`LAST`] nanoseconds.
    length: u64,
    buckets: u32,
    /// Whether readers leave the unfinished bucket out.
    leaves_out_current: bool,
    /// In a box, which makes the whole smaller: what is in here is rounded up to pairs of lines.
    row: Mutex<Box<Row<B::Counters>>>,
}

/// What is on the line of a group of threads.
#[derive(Debug)]
struct Stripe<S> {
    word: AtomicU64,
    /// The owner's, which the window does not look at.
    carried: S,
}

/// Written in sections only.
#[derive(Debug)]
struct Head<B: Bucket> {
    sequence: AtomicU64,
    /// The end of the current bucket.
    edge: AtomicU64,
    /// The end of the bucket of the view.
    view_edge: AtomicU64,
    /// Sum of what the row has in the view.
    sums: <B::Counters as Cells>::Shared,
}

type Locked<'a, B> = MutexGuard<'a, Box<Row<<B as Bucket>::Counters>>>;

impl<B: Bucket> Shared<B> {
    /// At least one bucket, of at least a nanosecond.
    #[cfg(all(test, wheelhouse_loom))]
    pub(super) fn new(start: Instant, buckets: u32, length: Duration) -> Self {
        Self::carrying(start, buckets, length, || ())
    }
}

impl<B: Bucket, S: Carry<B>> Shared<B, S> {
    /// At least one bucket, of at least a nanosecond.
    pub(super) fn carrying(
        start: Instant,
        buckets: u32,
        length: Duration,
        each: impl Fn() -> S,
    ) -> Self {
        let length = nanos(length);
        Shared {
            stripes: Striped::new(|| Stripe {
                word: AtomicU64::new(0),
                carried: each(),
            }),
            head: Head {
                sequence: AtomicU64::new(0),
                edge: AtomicU64::new(length),
                view_edge: AtomicU64::new(length),
                sums: B::Counters::shared(),
            },
            start,
            length,
            buckets,
            leaves_out_current: false,
            row: Mutex::new(Box::new(Row::new(buckets))),
        }
    }

    pub(super) fn leave_out_current(&mut self) {
        self.leaves_out_current = true;
        let row = self.row.lock();
        self.section(|| self.publish(&row, self.view(&row)));
    }

    /// Time from the start to `now`, 0 before it.
    #[inline]
    pub(super) fn nanos_at(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.start))
    }

    /// What the calling thread carries, with its place in [`all_carried`](Self::all_carried).
    #[inline]
    pub(super) fn carried(&self) -> (usize, &S) {
        let (place, stripe) = self.stripes.mine_at();
        (place, &stripe.carried)
    }

    /// What `read` makes of what the calling thread carries and what is in its word: both as of one
    /// moment between two sections.
    #[inline]
    pub(super) fn with_carried<R>(&self, thread: usize, read: impl Fn(&S, B) -> R) -> R {
        let stripe = self.stripes.of(thread);
        // Relaxed: as in `snapshot`, and so are the fence and the looks at the sequence.
        let look = || read(&stripe.carried, B::from_counts(self.unpacked(stripe)));
        for _ in 0..TRIES {
            let sequence = self.head.sequence.load(Ordering::Acquire);
            if sequence % 2 == 1 {
                break;
            }
            let result = look();
            fence(Ordering::Acquire);
            if self.head.sequence.load(Ordering::Relaxed) == sequence {
                return result;
            }
        }
        let _row = self.row.lock();
        look()
    }

    /// The same for all threads: no section comes between.
    pub(super) fn with_all_carried(&self, mut read: impl FnMut(&S, B)) {
        let _row = self.row.lock();
        for stripe in self.stripes.iter() {
            read(&stripe.carried, B::from_counts(self.unpacked(stripe)));
        }
    }

    #[inline]
    fn unpacked(&self, stripe: &Stripe<S>) -> Counts<B> {
        Word::<B>::unpack(stripe.word.load(Ordering::Relaxed))
    }

    /// Takes what is in a word, and tells what is carried beside it.
    fn take(&self, stripe: &Stripe<S>) -> Counts<B> {
        // Relaxed: in a section, which publishes it to readers, as an edge does to writers.
        let counts = Word::<B>::unpack(stripe.word.swap(0, Ordering::Relaxed));
        stripe.carried.taken(&counts);
        counts
    }

    #[inline]
    pub(super) fn all_carried(&self) -> impl Iterator<Item = &S> {
        self.stripes.iter().map(|stripe| &stripe.carried)
    }

    pub(super) fn length(&self) -> Duration {
        Duration::from_nanos(self.length)
    }

    pub(super) fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The number of the bucket that `now` is in.
    pub(super) fn bucket(&self, now: u64) -> u64 {
        now.min(LAST) / self.length
    }

    /// Adds, for the thread of this number, and gives what is in that thread's word now.
    #[inline]
    pub(super) fn add(&self, thread: usize, now: u64, value: B::Value) -> B {
        let increments = B::increments(value);
        let now = now.min(LAST);
        // Acquire: pairs with the Release in `turn`, whose exchange of the word comes before our
        // addition (I3).
        let edge = self.head.edge.load(Ordering::Acquire);
        let counts = match Word::<B>::pack(&increments) {
            Some(delta) if now < edge => self.count(thread, delta),
            delta => self.add_slowly(thread, now, delta, &increments),
        };
        B::from_counts(counts)
    }

    #[inline]
    fn word(&self, thread: usize) -> &AtomicU64 {
        &self.stripes.of(thread).word
    }

    #[inline]
    fn count(&self, thread: usize, delta: u64) -> Counts<B> {
        // The window publishes nothing beside the word itself (I4, I5). Release: for owners, who with an
        // Acquire fence after `with_all_carried` find what this thread has counted on its line before.
        let old = self.word(thread).fetch_add(delta, Ordering::Release);
        let word = old.wrapping_add(delta);
        match Word::<B>::is_heavy(word) {
            false => Word::<B>::unpack(word),
            true => self.lighten(thread),
        }
    }

    /// Adds at an edge, or what is too great for a word.
    #[cold]
    #[inline(never)]
    fn add_slowly(
        &self,
        thread: usize,
        now: u64,
        delta: Option<u64>,
        increments: &Counts<B>,
    ) -> Counts<B> {
        match delta {
            Some(delta) => {
                self.turn(now, None);
                self.count(thread, delta)
            }
            None => {
                self.turn(now, Some(increments));
                // Relaxed: as in `count`.
                Word::<B>::unpack(self.word(thread).load(Ordering::Relaxed))
            }
        }
    }

    /// The sum over the window at `now`.
    #[inline]
    pub(super) fn snapshot(&self, now: u64) -> B {
        let now = now.min(LAST);
        for _ in 0..TRIES {
            // Acquire: pairs with the Release at the end of a section, and publishes what that wrote.
            let sequence = self.head.sequence.load(Ordering::Acquire);
            if sequence % 2 == 1 {
                break;
            }
            // Relaxed, and the words too: the second look at `sequence` tells whether they agree.
            let edge = self.head.edge.load(Ordering::Relaxed);
            let view_edge = self.head.view_edge.load(Ordering::Relaxed);
            // The current bucket is also the view of all earlier times: clocks may step back.
            if now >= view_edge || (view_edge != edge && now < view_edge - self.length) {
                break;
            }
            let mut counts = Counts::<B>::default();
            for (count, sum) in counts.as_mut().iter_mut().zip(self.head.sums.as_ref()) {
                *count = sum.load(Ordering::Relaxed);
            }
            if self.counts_words(edge, view_edge) {
                self.add_words(&mut counts);
            }
            // With the Release fence at the beginning of a section: if we saw any of its writes, we
            // see its `sequence`.
            fence(Ordering::Acquire);
            if self.head.sequence.load(Ordering::Relaxed) == sequence {
                return B::from_counts(counts);
            }
        }
        B::from_counts(self.snapshot_locked(now))
    }

    #[cold]
    fn snapshot_locked(&self, now: u64) -> Counts<B> {
        let row = self.row.lock();
        let view = self.bucket(now).max(row.current());
        if view != self.view(&row) {
            self.section(|| self.publish(&row, view));
        }
        let mut counts = row.sum_at(view, self.leaves_out_current);
        if self.counts_words(self.edge(row.current()), self.edge(view)) {
            self.add_words(&mut counts);
        }
        counts
    }

    /// The buckets of the window at `now`, oldest first.
    pub(super) fn buckets_at(&self, now: u64) -> Vec<B> {
        // So that nothing is allocated, and no code of the user's runs, under the lock.
        let mut buckets = Vec::with_capacity(self.buckets as usize);
        {
            let row = self.row.lock();
            let view = self.bucket(now).max(row.current());
            buckets.extend(row.buckets_at(view));
            if view == row.current() && self.leaves_out_current {
                buckets.pop();
            } else if let Some(current) = buckets.last_mut() {
                self.add_words(current);
            }
        }
        buckets.into_iter().map(B::from_counts).collect()
    }

    /// Forgets what was added before.
    pub(super) fn clear(&self) {
        let mut row = self.row.lock();
        self.section(|| {
            for stripe in self.stripes.iter() {
                self.take(stripe);
            }
            row.clear();
            self.publish(&row, self.view(&row));
        });
    }

    /// Makes the bucket of `now` the current one, unless that or a later one is, and adds to it what
    /// is too great for a word.
    fn turn(&self, now: u64, more: Option<&Counts<B>>) {
        let mut row = self.row.lock();
        let bucket = self.bucket(now);
        if bucket <= row.current() && more.is_none() {
            return;
        }
        self.section(|| {
            if bucket > row.current() {
                for stripe in self.stripes.iter() {
                    row.fold(&self.take(stripe));
                }
                row.advance(bucket);
                // Release: pairs with the Acquire in `add`, and publishes that the words are empty
                // (I3).
                self.head.edge.store(self.edge(bucket), Ordering::Release);
            }
            if let Some(increments) = more {
                row.fold(increments);
            }
            self.publish(&row, row.current());
        });
    }

    /// Moves what a stripe has into the row (I1), and gives what is left.
    #[cold]
    #[inline(never)]
    fn lighten(&self, thread: usize) -> Counts<B> {
        let mut row = self.row.lock();
        self.section(|| {
            row.fold(&self.take(self.stripes.of(thread)));
            self.publish(&row, self.view(&row));
        });
        Counts::<B>::default()
    }

    /// Runs `body`, which moves counts or writes the head. The caller has the lock.
    fn section(&self, body: impl FnOnce()) {
        // Relaxed: only written under the lock.
        let sequence = self.head.sequence.load(Ordering::Relaxed);
        self.head.sequence.store(sequence + 1, Ordering::Relaxed);
        // Pairs with the Acquire fence of a reader.
        fence(Ordering::Release);
        body();
        // Release: pairs with a reader's first look, and publishes the section.
        self.head.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Writes the sum of `view` for readers.
    fn publish(&self, row: &Row<B::Counters>, view: u64) {
        let counts = row.sum_at(view, self.leaves_out_current);
        for (sum, &count) in self.head.sums.as_ref().iter().zip(counts.as_ref()) {
            // Relaxed, and below: the section publishes it.
            sum.store(count, Ordering::Relaxed);
        }
        self.head
            .view_edge
            .store(self.edge(view), Ordering::Relaxed);
    }

    /// The bucket of the view that is published; the current one after a turn.
    fn view(&self, _lock: &Locked<'_, B>) -> u64 {
        // Relaxed: only written under the lock.
        self.head.view_edge.load(Ordering::Relaxed) / self.length - 1
    }

    fn edge(&self, bucket: u64) -> u64 {
        (bucket + 1) * self.length
    }

    /// Whether the current bucket, which ends at `edge`, belongs to what is seen from the bucket
    /// that ends at `view_edge`.
    #[inline]
    fn counts_words(&self, edge: u64, view_edge: u64) -> bool {
        // A reader that overlaps a turn may have one of them too old; it will not use the answer.
        match view_edge.saturating_sub(edge) {
            0 => !self.leaves_out_current,
            ahead => ahead < self.length.saturating_mul(u64::from(self.buckets)),
        }
    }

    #[inline]
    fn add_words(&self, counts: &mut Counts<B>) {
        for stripe in self.stripes.iter() {
            // Relaxed: either the lock or the second look at `sequence` says that it has not moved.
            let word = Word::<B>::unpack(stripe.word.load(Ordering::Relaxed));
            for (count, &more) in counts.as_mut().iter_mut().zip(word.as_ref()) {
                *count = count.saturating_add(more);
            }
        }
    }
}

/// A duration as time of a window.
fn nanos(duration: Duration) -> u64 {
    let nanos = duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()));
    nanos.min(LAST)
}
