//! [`CountWindow`]: the last `n` outcomes.
//!
//! # How threads meet
//!
//! Each stripe has a word with its outcomes since it last shared some: how many, and a mark for each
//! error and each slow one. The thread that adds the eighth takes the oldest eight out of the word and
//! pushes them into the [`Blocks`] that all share.
//!
//! # Invariants
//!
//! - I6: nothing is lost or counted twice: a word changes in one access, by an outcome or by a block
//!   that leaves, and a block that leaves is pushed by who took it. (The exception is a block of plain
//!   successes when the circle is full of them: pushing that would change nothing.)
//! - I7: an outcome and its marks come in one access.
//!
//! # Races considered
//!
//! - A stripe goes past its block before that is taken: successes need no room, and a marked outcome
//!   for which there is none takes a block first. Each thread shares before it adds again, so what is
//!   in a word is bounded by the block and the number of threads.
//! - A block of successes is dropped while another thread pushes an error: the drop is as if it had
//!   been first. The error stays a block longer than it would have, which is within what is promised.
//! - A reader finds neither in the word nor in the circle a block that is on its way: likewise.
//! - A reader adds up words and circle at different times, and may find more errors than outcomes: it
//!   caps them.

use std::fmt;
use std::time::Instant;

use crate::BuildError;
use crate::sync::{AtomicU64, Ordering, stripe};

use super::Window;
use super::blocks::{BLOCK, Blocks};
use super::bucket::{Outcome, Outcomes};
use super::stripes::Stripes;

/// The largest window.
const MAX_SIZE: usize = 1 << 24;

/// Smaller windows have one stripe: the blocks of several would be too much of them.
const STRIPED_FROM: u32 = 64;

/// How many outcomes of a word have room for their marks: errors in bits 0 to 23, slow ones in bits
/// 24 to 47, and the number of outcomes above.
const ROOM: u64 = 24;
const MARKS: u64 = (1 << ROOM) - 1;
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
    blocks: Blocks,
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
            blocks: Blocks::new(size as u32),
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
        let word = match outcome {
            // Relaxed: nothing is published beside the word itself (I6, I7).
            Outcome::Success => stripe.fetch_add(ONE, Ordering::Relaxed) + ONE,
            marked => self.add_marked(stripe, marked),
        };
        match word >> NUMBER < BLOCK {
            true => outcomes(word),
            false => outcomes(self.share(stripe, word)),
        }
    }

    #[inline]
    fn stripe(&self, thread: usize) -> &AtomicU64 {
        let striped = self.blocks.size() >= STRIPED_FROM;
        self.stripes.of(if striped { thread } else { 0 })
    }

    /// Adds an outcome with its marks, and returns the new word.
    fn add_marked(&self, stripe: &AtomicU64, outcome: Outcome) -> u64 {
        let (error, slow) = (u64::from(outcome.is_error()), u64::from(outcome.is_slow()));
        // Relaxed: nothing is published beside the word itself (I6, I7).
        let mut word = stripe.load(Ordering::Relaxed);
        loop {
            let number = word >> NUMBER;
            if number >= ROOM {
                word = self.share(stripe, word);
                continue;
            }
            let marked = word + ONE + (error << number) + (slow << (ROOM + number));
            match stripe.compare_exchange_weak(word, marked, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return marked,
                Err(changed) => word = changed,
            }
        }
    }

    /// Takes the oldest eight outcomes out of a stripe and shares them, unless others have done so.
    /// Takes the word that was seen there and returns the one that was left.
    fn share(&self, stripe: &AtomicU64, mut word: u64) -> u64 {
        loop {
            if word >> NUMBER < BLOCK {
                return word;
            }
            let left = after_block(word);
            // Relaxed, both: the word is all there is to it (I6).
            match stripe.compare_exchange_weak(word, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let block = (word & 0xFF | (word >> ROOM & 0xFF) << BLOCK) as u16;
                    if block != 0 || !self.blocks.is_clean() {
                        self.blocks.push(block);
                    }
                    return left;
                }
                Err(changed) => word = changed,
            }
        }
    }

    /// How many outcomes there are, with their errors and slow ones.
    #[must_use]
    pub fn snapshot(&self) -> Outcomes {
        let size = u64::from(self.blocks.size());
        let mut recent = Outcomes::default();
        for stripe in self.stripes.iter() {
            // Relaxed: see the last two races.
            add(&mut recent, newest(stripe.load(Ordering::Relaxed), size));
        }
        recent.requests = recent.requests.min(size);
        let mut sum = self.blocks.newest(size - recent.requests);
        add(&mut sum, recent);
        Outcomes {
            requests: sum.requests,
            errors: sum.errors.min(sum.requests),
            slow: sum.slow.min(sum.requests),
        }
    }

    /// What threads have shared of the newest outcomes: a [`snapshot`](Self::snapshot) that leaves out
    /// at most the last seven of each thread, and does not touch what they write to on each call.
    ///
    /// Right after a thread has shared, which an empty result of [`add`](Self::add) tells, this costs
    /// it next to nothing.
    ///
    /// ```
    /// use wheelhouse_collection::{CountWindow, Outcome};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = CountWindow::new(100)?;
    /// for _ in 0..9 {
    ///     window.add(Outcome::Failure);
    /// }
    /// assert_eq!(window.shared().errors, 8);
    /// assert_eq!(window.snapshot().errors, 9);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shared(&self) -> Outcomes {
        let sum = self.blocks.newest(u64::from(self.blocks.size()));
        Outcomes {
            requests: sum.requests,
            errors: sum.errors.min(sum.requests),
            slow: sum.slow.min(sum.requests),
        }
    }

    /// Forgets everything that was added before. What other threads add at the same time may stay.
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
        for stripe in self.stripes.iter() {
            // Relaxed: as in `share`.
            stripe.swap(0, Ordering::Relaxed);
        }
        self.blocks.clear();
    }

    /// How many outcomes the window has room for.
    #[must_use]
    pub fn size(&self) -> usize {
        self.blocks.size() as usize
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
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// A word without its oldest eight outcomes.
fn after_block(word: u64) -> u64 {
    let errors = (word & MARKS) >> BLOCK;
    let slow = (word >> ROOM & MARKS) >> BLOCK;
    errors | slow << ROOM | ((word >> NUMBER) - BLOCK) << NUMBER
}

/// The sums of the newest outcomes in a word, at most `most`.
fn newest(word: u64, most: u64) -> Outcomes {
    let number = word >> NUMBER;
    let requests = number.min(most);
    // Of more there are no marks.
    let gone = (number - requests).min(ROOM);
    Outcomes {
        requests,
        errors: u64::from(((word & MARKS) >> gone).count_ones()),
        slow: u64::from(((word >> ROOM & MARKS) >> gone).count_ones()),
    }
}

/// The sums of all outcomes in a word.
#[inline]
fn outcomes(word: u64) -> Outcomes {
    Outcomes {
        requests: word >> NUMBER,
        errors: u64::from((word & MARKS).count_ones()),
        slow: u64::from((word >> ROOM & MARKS).count_ones()),
    }
}

fn add(sum: &mut Outcomes, more: Outcomes) {
    sum.requests += more.requests;
    sum.errors += more.errors;
    sum.slow += more.slow;
}
