//! [`CountWindow`]: the last `n` outcomes.
//!
//! # How threads meet
//!
//! Each stripe has a word with its outcomes since it last shared some: how many, and a mark for each
//! error and each slow one. When there are eight of them, or sixteen if the stripe keeps pace, the
//! thread that added the last takes them out, in blocks of eight, and pushes them into the [`Blocks`]
//! that all share.
//!
//! A stripe keeps pace if the others had pushed no more than two blocks between its last two shares.
//! Then its outcomes alternate with theirs, and a block more or less in the order of the circle moves
//! the outcomes of each by half of that. One that is slower shares each block: its outcomes are spread
//! over more of the others', and come into the circle all at once.
//!
//! # Invariants
//!
//! - I6: nothing is lost or counted twice: a word changes in one access, by an outcome or by blocks
//!   that leave, and blocks that leave are pushed by who took them. (The exception are blocks of plain
//!   successes when the circle is full of them: pushing those would change nothing.)
//! - I7: an outcome and its marks come in one access.
//! - I9: no more than eight outcomes of a word count once the others have filled the window since it
//!   was last shared: it may be left for good.
//!
//! # Races considered
//!
//! - A stripe becomes more than due before it is shared: successes need no room, and a marked outcome
//!   for which there is none shares first. Each thread shares before it adds again, so what is in a
//!   word is bounded by the number of threads.
//! - Blocks of successes are dropped while another thread pushes an error: the drop is as if it had
//!   been first. The error stays a little longer than it would have, which is within what is promised.
//! - A reader finds neither in the word nor in the circle blocks that are on their way: likewise.
//! - A reader adds up words and circle at different times, and may find more errors than outcomes: it
//!   caps them.
//! - Two threads share one stripe at the same time, and the older mark of the circle stays: the stripe
//!   is taken for slower than it is, until it shares again.

use std::fmt;
use std::time::Instant;

use crate::BuildError;
use crate::striped::Striped;
use crate::sync::{AtomicU64, Ordering, stripe};

use super::Window;
use super::blocks::{BLOCK, Blocks};
use super::bucket::{Outcome, Outcomes};

/// The largest window.
const MAX_SIZE: usize = 1 << 24;

/// Smaller windows have one stripe: what several keep to themselves would be too much of them.
const STRIPED_FROM: u32 = 64;

/// How many outcomes of a word have room for their marks: errors in bits 0 to 23, slow ones in bits
/// 24 to 47, the number of outcomes in bits 48 to 62, and whether it keeps pace in bit 63.
const ROOM: u64 = 24;
const MARKS: u64 = (1 << ROOM) - 1;
const ONE: u64 = 1 << (2 * ROOM);
const PACE: u64 = 1 << 63;

/// How many blocks others push between two shares of a stripe that keeps pace.
const IN_STEP: u64 = 2;

#[derive(Debug)]
struct Stripe {
    word: AtomicU64,
    /// How many blocks had been claimed when it last shared.
    shared_at: AtomicU64,
}

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
/// with several the order between them is kept no better than that, and a sum is off by at most eight
/// outcomes for each writer (sixteen for one that has suddenly become slower, until it shares): some
/// may be there that ought to have left, in the place of others. Windows of less than 64 are exact for
/// any number of writers that do not write at the same time. A sum never has more errors than
/// requests, nor more requests than `n`.
pub struct CountWindow {
    stripes: Striped<Stripe>,
    blocks: Blocks,
}

impl CountWindow {
    /// A window of the last `size` outcomes, 1 to 16 777 216. It takes two bits for each.
    ///
    /// ```
    /// use wheelhouse_collection::CountWindow;
    ///
    /// let refused = CountWindow::new(0).unwrap_err();
    /// assert_eq!(refused.to_string(), "size is 0; allowed are 1 to 16777216");
    /// ```
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
            stripes: Striped::new(|| Stripe {
                word: AtomicU64::new(0),
                shared_at: AtomicU64::new(0),
            }),
            blocks: Blocks::new(size as u32),
        })
    }

    /// Adds an outcome.
    ///
    /// At every eighth or sixteenth outcome of a thread it shares what it has added with the others, if
    /// that changes anything. It then returns the sum of what has been shared, which it has at hand: a
    /// [`snapshot`](Self::snapshot) without the last outcomes of each thread, at most fifteen. A caller
    /// for whom that is good enough may decide on it and save the snapshot, which costs more while
    /// others write.
    ///
    /// ```
    /// use wheelhouse_collection::{CountWindow, Outcome};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = CountWindow::new(100)?;
    /// assert!((0..7).all(|_| window.add(Outcome::Failure).is_none()));
    /// assert_eq!(window.snapshot().errors, 7);
    ///
    /// let shared = window.add(Outcome::Failure).unwrap();
    /// assert_eq!(shared.errors, 8);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn add(&self, outcome: Outcome) -> Option<Outcomes> {
        let stripe = self.stripe(stripe());
        let word = match outcome {
            // Relaxed: nothing is published beside the word itself (I6, I7).
            Outcome::Success => stripe.word.fetch_add(ONE, Ordering::Relaxed) + ONE,
            marked => add_marked(stripe, marked, |word| self.share(stripe, word)),
        };
        match is_due(word) {
            false => None,
            true => self.share(stripe, word),
        }
    }

    #[inline]
    fn stripe(&self, thread: usize) -> &Stripe {
        let striped = self.blocks.size() >= STRIPED_FROM;
        self.stripes.of(if striped { thread } else { 0 })
    }

    /// Takes blocks out of a stripe and shares them, if it is due and nobody else does. Takes the word
    /// that was seen there.
    #[inline(never)]
    fn share(&self, stripe: &Stripe, mut word: u64) -> Option<Outcomes> {
        while is_due(word) {
            let blocks = number(word).min(ROOM) / BLOCK;
            let left = without(word, blocks * BLOCK);
            let exchanged = stripe.word.compare_exchange_weak(
                word,
                left,
                // Relaxed, both: the word is all there is to it (I6).
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return self.push(stripe, word, blocks),
                Err(changed) => word = changed,
            }
        }
        None
    }

    /// Pushes the oldest outcomes of a word, which have been taken out of the stripe.
    fn push(&self, stripe: &Stripe, word: u64, blocks: u64) -> Option<Outcomes> {
        let taken: [u16; (ROOM / BLOCK) as usize] = std::array::from_fn(|index| {
            let errors = word >> (BLOCK * index as u64) & 0xFF;
            let slow = word >> (ROOM + BLOCK * index as u64) & 0xFF;
            (errors | slow << BLOCK) as u16
        });
        let taken = &taken[..blocks as usize];
        let changes = taken.iter().any(|&block| block != 0) || !self.blocks.is_clean();
        let mut in_step = true;
        if changes {
            let claimed = self.blocks.push(taken);
            // Relaxed, both: an estimate, see the last race.
            let others = claimed.saturating_sub(stripe.shared_at.load(Ordering::Relaxed));
            stripe.shared_at.store(claimed + blocks, Ordering::Relaxed);
            in_step = others <= IN_STEP;
        }
        // Relaxed: as all of the word. When it changes, which is seldom.
        if in_step != (word & PACE != 0) {
            stripe.word.fetch_xor(PACE, Ordering::Relaxed);
        }
        changes.then(|| capped(self.blocks.newest(u64::from(self.blocks.size()))))
    }

    /// How many outcomes there are, with their errors and slow ones.
    ///
    /// ```
    /// use wheelhouse_collection::{CountWindow, Outcome};
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = CountWindow::new(100)?;
    /// window.add(Outcome::SlowFailure);
    /// window.add(Outcome::Success);
    /// let sum = window.snapshot();
    /// assert_eq!((sum.requests, sum.errors, sum.slow), (2, 1, 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Outcomes {
        let size = u64::from(self.blocks.size());
        let mut recent = Outcomes::default();
        let claimed = self.blocks.claimed();
        for stripe in self.stripes.iter() {
            // Relaxed, both: see the races.
            let others = claimed.saturating_sub(stripe.shared_at.load(Ordering::Relaxed));
            let most = match others * BLOCK < size {
                true => size,
                false => size.min(BLOCK), // I9
            };
            add(
                &mut recent,
                newest(stripe.word.load(Ordering::Relaxed), most),
            );
        }
        recent.requests = recent.requests.min(size);
        let mut sum = self.blocks.newest(size - recent.requests);
        add(&mut sum, recent);
        capped(sum)
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
            // Relaxed, both: as in `push`.
            stripe.word.swap(0, Ordering::Relaxed);
            stripe.shared_at.store(0, Ordering::Relaxed);
        }
        self.blocks.clear();
    }

    /// How many outcomes the window has room for.
    ///
    /// ```
    /// use wheelhouse_collection::CountWindow;
    ///
    /// # fn main() -> Result<(), wheelhouse_collection::BuildError> {
    /// let window = CountWindow::new(100)?;
    /// assert_eq!(window.size(), 100);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn size(&self) -> usize {
        self.blocks.size() as usize
    }
}

impl Window for CountWindow {
    type Value = Outcome;
    type Total = Outcomes;

    #[inline]
    fn add_at(&self, _now: Instant, outcome: Outcome) {
        self.add(outcome);
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

/// Adds an outcome with its marks, and returns the new word. `share` makes room in a full one.
fn add_marked(stripe: &Stripe, outcome: Outcome, share: impl Fn(u64) -> Option<Outcomes>) -> u64 {
    let (error, slow) = (u64::from(outcome.is_error()), u64::from(outcome.is_slow()));
    // Relaxed: nothing is published beside the word itself (I6, I7).
    let mut word = stripe.word.load(Ordering::Relaxed);
    loop {
        let number = number(word);
        if number >= ROOM {
            share(word);
            word = stripe.word.load(Ordering::Relaxed);
            continue;
        }
        let marked = word + ONE + (error << number) + (slow << (ROOM + number));
        let exchanged = stripe.word.compare_exchange_weak(
            word,
            marked,
            // Relaxed, both: as above.
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        match exchanged {
            Ok(_) => return marked,
            Err(changed) => word = changed,
        }
    }
}

#[inline]
fn number(word: u64) -> u64 {
    (word & !PACE) / ONE
}

/// Whether a word is to be shared. It then has a block at least.
#[inline]
fn is_due(word: u64) -> bool {
    number(word) >= BLOCK << (word / PACE)
}

/// A word without its oldest outcomes.
fn without(word: u64, oldest: u64) -> u64 {
    let errors = (word & MARKS) >> oldest;
    let slow = (word >> ROOM & MARKS) >> oldest;
    (word & PACE) | ((number(word) - oldest) * ONE) | (slow << ROOM) | errors
}

/// The sums of the newest outcomes in a word, at most `most`.
fn newest(word: u64, most: u64) -> Outcomes {
    let number = number(word);
    let requests = number.min(most);
    // Of more there are no marks.
    let gone = (number - requests).min(ROOM);
    Outcomes {
        requests,
        errors: u64::from(((word & MARKS) >> gone).count_ones()),
        slow: u64::from(((word >> ROOM & MARKS) >> gone).count_ones()),
    }
}

fn add(sum: &mut Outcomes, more: Outcomes) {
    sum.requests += more.requests;
    sum.errors += more.errors;
    sum.slow += more.slow;
}

fn capped(sum: Outcomes) -> Outcomes {
    Outcomes {
        requests: sum.requests,
        errors: sum.errors.min(sum.requests),
        slow: sum.slow.min(sum.requests),
    }
}
