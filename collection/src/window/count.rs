//! [`CountWindow`]: the last `n` outcomes.
//!
//! # How threads meet
//!
//! Each stripe has a word with its outcomes since it last shared some: how many, and a bit for each
//! error and each slow one. When there are [`BLOCK`] of them, the thread that added the last takes the
//! lock, exchanges the word for 0 and pushes what was in it into the [`OutcomesRing`].
//!
//! # Invariants
//!
//! - I6: nothing is lost or counted twice: a word is only added to and exchanged for 0 under the lock,
//!   and what is exchanged is pushed before the lock is released. (The exception is a block of plain
//!   successes when the ring is full of them: pushing that would change nothing.)
//! - I7: an outcome and its marks come in one access, so no reader sees more errors than requests.
//!
//! # Races considered
//!
//! - A stripe goes past its block while its publisher waits for the lock: successes need no room, and
//!   a marked outcome for which there is none takes the lock itself. Each thread publishes before it
//!   adds again, so the number in a word is bounded by [`BLOCK`] and the number of threads.
//! - A block of successes is dropped while another thread publishes an error: the drop is as if it had
//!   been first. The error stays a block longer than it would have, which is within what is promised.

use std::fmt;
use std::time::Instant;

use crate::BuildError;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, stripe};

use super::Window;
use super::bucket::{Outcome, Outcomes};
use super::outcomes_ring::{OutcomesRing, Run};
use super::stripes::{Line, Stripes};

/// The largest window.
const MAX_SIZE: usize = 1 << 24;

/// How many outcomes a stripe keeps to itself.
const BLOCK: u64 = 8;

/// Smaller windows have one stripe: the blocks of several would be too much of them.
const STRIPED_FROM: usize = 64;

/// How many outcomes of a word have room for their marks: errors in bits 0 to 23, slow ones in bits
/// 24 to 47, and the number of outcomes above.
const ROOM: u64 = 24;
const NUMBER: u32 = 48;
const ONE: u64 = 1 << NUMBER;

/// The last `n` outcomes, for any number of threads.
///
/// ```
/// use wheelhouse_collection::{CountWindow, Outcome};
///
/// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
/// let window = CountWindow::new(3)?;
/// for outcome in [Outcome::Failure, Outcome::Success, Outcome::Success] {
///     window.add(outcome);
/// }
/// assert_eq!(window.snapshot().errors, 1);
///
/// window.add(Outcome::Success); // the failure is the fourth last now
/// assert_eq!(window.snapshot().errors, 0);
/// assert_eq!(window.snapshot().requests, 3);
/// # Ok(()) }
/// ```
///
/// With one writing thread it is exactly that. Threads share their outcomes in blocks of eight, so
/// with several, outcomes may be out of order by as much, and the sum be off by at most eight for
/// each writer: it may have an outcome that ought to have left, or lack one that ought to be there.
/// Windows of less than 64 are exact for any number of writers that do not write at the same time.
/// A sum never has more errors than requests, nor more requests than `n`.
pub struct CountWindow {
    stripes: Stripes,
    size: u32,
    /// Whether pushing successes changes nothing. Only a hint outside the lock.
    clean: AtomicBool,
    /// On a line of its own: the lock is written to all the time.
    ring: Line<Mutex<OutcomesRing>>,
}

impl CountWindow {
    /// A window of the last `size` outcomes, 1 to 16 777 216. It takes two bits for each.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when `size` is outside its range.
    pub fn new(size: usize) -> Result<Self, BuildError> {
        if !(1..=MAX_SIZE).contains(&size) {
            let value = size.to_string();
            return Err(BuildError::new("size", value, "1 to 16777216"));
        }
        Ok(CountWindow {
            stripes: Stripes::new(),
            size: size as u32,
            clean: AtomicBool::new(false),
            ring: Line(Mutex::new(OutcomesRing::new(size))),
        })
    }

    /// Adds an outcome.
    ///
    /// Returns this thread's share: what it, and few others, have added and not shared yet, at most
    /// seven outcomes unless threads meet. No decision can rest on it; none at all means that it has
    /// just been shared.
    ///
    /// ```
    /// use wheelhouse_collection::{CountWindow, Outcome};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = CountWindow::new(100)?;
    /// assert_eq!(window.add(Outcome::SlowFailure).slow, 1);
    /// assert_eq!(window.snapshot().slow_rate(), 1.0);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn add(&self, outcome: Outcome) -> Outcomes {
        self.add_on(stripe(), outcome)
    }

    #[inline]
    fn add_on(&self, thread: usize, outcome: Outcome) -> Outcomes {
        let stripe = self.stripe(thread);
        let word = if outcome == Outcome::Success {
            // Relaxed: nothing is published beside the word itself (I6, I7).
            stripe.fetch_add(ONE, Ordering::Relaxed) + ONE
        } else {
            match add_marked(stripe, outcome) {
                Ok(word) => word,
                Err(full) => {
                    self.publish(full, stripe, Some(outcome));
                    return Outcomes::default();
                }
            }
        };
        if word >> NUMBER >= BLOCK {
            self.publish(word, stripe, None);
            return Outcomes::default();
        }
        outcomes(word)
    }

    #[inline]
    fn stripe(&self, thread: usize) -> &AtomicU64 {
        let striped = self.size as usize >= STRIPED_FROM;
        self.stripes.of(if striped { thread } else { 0 })
    }

    /// Pushes what the stripe has, and one more outcome that it had no room for. `seen` is what was
    /// in it.
    fn publish(&self, seen: u64, stripe: &AtomicU64, more: Option<Outcome>) {
        // Relaxed, both: see the last race.
        if seen == BLOCK * ONE
            && more.is_none()
            && self.clean.load(Ordering::Relaxed)
            && stripe
                .compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
        let mut ring = self.ring.0.lock();
        take_in(&mut ring, stripe);
        if let Some(outcome) = more {
            ring.push(Run {
                errors: u64::from(outcome.is_error()),
                slow: u64::from(outcome.is_slow()),
                len: 1,
            });
        }
        let clean = ring.is_clean();
        // Relaxed: a hint, and only written under the lock. Written when it changes, so that those
        // who read it keep their line.
        if clean != self.clean.load(Ordering::Relaxed) {
            self.clean.store(clean, Ordering::Relaxed);
        }
    }

    /// How many outcomes there are, with their errors and slow ones.
    #[must_use]
    pub fn snapshot(&self) -> Outcomes {
        let size = u64::from(self.size);
        let ring = self.ring.0.lock();
        let mut recent = Outcomes::default();
        for stripe in self.stripes.iter() {
            // Relaxed: a word is moved into the ring under the lock only.
            let word = run(stripe.load(Ordering::Relaxed), size);
            recent.requests += u64::from(word.len);
            recent.errors += u64::from(word.errors.count_ones());
            recent.slow += u64::from(word.slow.count_ones());
        }
        let held = ring.sums().requests;
        let leaving = (held + recent.requests).saturating_sub(size).min(held);
        let older = ring.without_oldest(leaving as usize);
        drop(ring);
        // Several stripes may have more than the window between them.
        let requests = (older.requests + recent.requests).min(size);
        Outcomes {
            requests,
            errors: (older.errors + recent.errors).min(requests),
            slow: (older.slow + recent.slow).min(requests),
        }
    }

    /// Forgets everything that was added.
    ///
    /// ```
    /// use wheelhouse_collection::{CountWindow, Outcome, Outcomes};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = CountWindow::new(100)?;
    /// window.add(Outcome::Failure);
    /// window.clear();
    /// assert_eq!(window.snapshot(), Outcomes::default());
    /// # Ok(()) }
    /// ```
    pub fn clear(&self) {
        let mut ring = self.ring.0.lock();
        for stripe in self.stripes.iter() {
            // Relaxed, as in `take_in`.
            stripe.swap(0, Ordering::Relaxed);
        }
        ring.clear();
        self.clean.store(false, Ordering::Relaxed);
    }

    /// How many outcomes the window has room for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size as usize
    }
}

impl Window for CountWindow {
    type Value = Outcome;
    type Total = Outcomes;

    #[inline]
    fn add_at(&self, _now: Instant, outcome: Outcome) -> Outcomes {
        self.add(outcome)
    }

    fn snapshot_at(&self, _now: Instant) -> Outcomes {
        self.snapshot()
    }

    fn clear(&self) {
        self.clear();
    }
}

impl fmt::Debug for CountWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountWindow")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Adds an outcome with its marks and gives the new word, or the old one if it has no room.
fn add_marked(stripe: &AtomicU64, outcome: Outcome) -> Result<u64, u64> {
    let (error, slow) = (u64::from(outcome.is_error()), u64::from(outcome.is_slow()));
    // Relaxed: nothing is published beside the word itself (I6, I7).
    let mut word = stripe.load(Ordering::Relaxed);
    loop {
        let number = word >> NUMBER;
        if number >= ROOM {
            return Err(word);
        }
        let marked = word + ONE + (error << number) + (slow << (ROOM + number));
        match stripe.compare_exchange_weak(word, marked, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Ok(marked),
            Err(changed) => word = changed,
        }
    }
}

/// Moves what a stripe has into the ring.
fn take_in(ring: &mut OutcomesRing, stripe: &AtomicU64) {
    // Relaxed: the word is all there is to it, and others read it under the lock.
    let word = stripe.swap(0, Ordering::Relaxed);
    let mut rest = word >> NUMBER;
    let mut marks = word;
    while rest > 0 {
        let number = rest.min(ROOM);
        ring.push(run(marks & (ONE - 1) | number << NUMBER, u64::MAX));
        // All marks are among the first.
        marks = 0;
        rest -= number;
    }
}

/// The newest outcomes in a word, at most `most`.
fn run(word: u64, most: u64) -> Run {
    const MARKS: u64 = (1 << ROOM) - 1;
    let number = word >> NUMBER;
    let len = number.min(most);
    let gone = (number - len).min(63);
    Run {
        errors: (word & MARKS) >> gone,
        slow: (word >> ROOM & MARKS) >> gone,
        len: len as u32,
    }
}

#[inline]
fn outcomes(word: u64) -> Outcomes {
    let run = run(word, BLOCK);
    Outcomes {
        requests: u64::from(run.len),
        errors: u64::from(run.errors.count_ones()),
        slow: u64::from(run.slow.count_ones()),
    }
}
