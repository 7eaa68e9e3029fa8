//! The permits of a bulkhead and those who wait for one.
//!
//! # Ground rules
//!
//! One word says how many permits there are, how many are in use and whether anybody waits, so that
//! whoever takes, gives back or changes their number decides by what it saw at one instant:
//!
//! | bits | name | changed by |
//! |---|---|---|
//! | 0–30 | in use: held, or granted to somebody who has not noticed yet | takers and the hand-over add, whoever gives back subtracts |
//! | 31–61 | permits | `resize` |
//! | 63 | queued: somebody waits | set and cleared under the lock of the queue only |
//!
//! The lock is taken only when somebody waits or has to. No code of others runs under it: wakers are
//! cloned, woken and dropped outside. Each is woken and dropped by itself: one that panics keeps nobody
//! else from hearing of the permit that was granted to them.
//!
//! # Invariants
//!
//! - P1: in use goes up only from below permits. Fewer permits do not take any away: those in use run
//!   to their end, and nobody is admitted until enough have.
//! - P2: queued is set exactly while somebody waits, seen under the lock. While it is set only the
//!   hand-over takes permits, from the front: nobody overtakes.
//! - P3: a seat that is not in the queue has been granted a permit, unless its owner has taken it out.
//!   So the owner who leaves is told which it was.
//! - P4: nobody waits while a permit is free, but for the moment until the one who freed it, or added
//!   it, has the lock.
//!
//! # Races
//!
//! - Giving back against sitting down: both change the word. If the permit comes back first, the
//!   exchange that would set queued fails and finds the permit; otherwise giving back sees queued and
//!   hands over (P4).
//! - Leaving against the hand-over: the lock decides. Who leaves after it holds a permit and has to
//!   give it back, which hands it to the next (P3).
//! - `resize` against giving back: one word, so either the hand-over of the later of the two sees
//!   both changes, or nobody was waiting.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use crossbeam_utils::CachePadded;

use crate::contain::Contained;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The most permits that there can be.
pub(crate) const MAX_PERMITS: usize = (1 << 31) - 1;

/// The number of somebody who waits; later ones are greater.
pub(crate) type Seat = u64;

#[derive(Debug)]
pub(crate) struct Gate {
    word: CachePadded<AtomicU64>,
    queue: Mutex<Queue>,
    /// The most that may wait.
    capacity: usize,
    /// Wakers that panicked.
    wakers: Contained,
}

#[derive(Debug)]
struct Queue {
    waiting: BTreeMap<Seat, Waker>,
    next: Seat,
}

/// What somebody who wants a permit got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Taken,
    Queued(Seat),
    /// Neither a permit nor a place in the queue.
    Full,
}

impl Gate {
    pub(crate) fn new(permits: usize, capacity: usize) -> Self {
        let word = Word(0).with_permits(permits);
        Gate {
            word: CachePadded::new(AtomicU64::new(word.0)),
            queue: Mutex::new(Queue {
                waiting: BTreeMap::new(),
                next: 0,
            }),
            capacity,
            wakers: Contained::default(),
        }
    }

    /// Takes a permit if one is free and nobody waits: one exchange.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        let mut word = self.look();
        while let Some(taken) = word.taken() {
            match self.exchange(word, taken) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes a permit, or sits down to be woken by `waker` once it has been granted one.
    pub(crate) fn take_or_queue(&self, waker: &Waker) -> Turn {
        if self.try_take() {
            return Turn::Taken;
        }
        // Declared before the lock is taken, so dropped after it is free.
        let waker = waker.clone();
        let mut queue = self.queue.lock();
        let mut word = self.look();
        loop {
            let next = match word.taken() {
                Some(taken) => taken,
                None if queue.waiting.len() >= self.capacity => return Turn::Full,
                None => word.with_queued(),
            };
            match self.exchange(word, next) {
                Ok(()) if next.queued() => break,
                Ok(()) => return Turn::Taken,
                Err(now) => word = now,
            }
        }
        let seat = queue.next;
        queue.next += 1;
        queue.waiting.insert(seat, waker);
        Turn::Queued(seat)
    }

    /// Ready once `seat` has been granted a permit; it is the caller's from then on, and the seat is
    /// gone.
    pub(crate) fn poll(&self, seat: Seat, waker: &Waker) -> Poll<()> {
        let mut latest = waker.clone();
        let mut queue = self.queue.lock();
        let Some(known) = queue.waiting.get_mut(&seat) else {
            return Poll::Ready(());
        };
        if !known.will_wake(&latest) {
            std::mem::swap(known, &mut latest);
        }
        drop(queue);
        self.wakers.run(|| drop(latest));
        Poll::Pending
    }

    /// Gives `seat` up. `true` if it had been granted a permit, which the caller then holds (P3).
    pub(crate) fn leave(&self, seat: Seat) -> bool {
        let mut queue = self.queue.lock();
        let waker = queue.waiting.remove(&seat);
        if waker.is_some() && queue.waiting.is_empty() {
            // Relaxed: it publishes nothing, and as a read-modify-write it keeps what the word's
            // releases have published.
            self.word.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        drop(queue);
        match waker {
            Some(waker) => {
                self.wakers.run(|| drop(waker));
                false
            }
            None => true,
        }
    }

    /// Gives a permit back: one subtraction when nobody waits.
    #[inline]
    pub(crate) fn put_back(&self) {
        // Release: publishes what the holder did to whoever takes the permit next, with the Acquire
        // of `exchange`.
        let before = Word(self.word.fetch_sub(1, Ordering::Release));
        if before.queued() {
            self.hand_over();
        }
    }

    /// Sets how many permits there are. The queue gets what is new.
    pub(crate) fn resize(&self, permits: usize) {
        let mut word = self.look();
        loop {
            let resized = word.with_permits(permits);
            match self.exchange(word, resized) {
                Ok(()) => break,
                Err(now) => word = now,
            }
        }
        if word.queued() {
            self.hand_over();
        }
    }

    pub(crate) fn permits(&self) -> usize {
        self.look().permits()
    }

    pub(crate) fn in_use(&self) -> usize {
        self.look().in_use()
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// How often a waker panicked.
    pub(crate) fn waker_panics(&self) -> u64 {
        self.wakers.panics()
    }

    /// Grants free permits to the front of the queue.
    #[cold]
    fn hand_over(&self) {
        let mut granted = Vec::new();
        let mut queue = self.queue.lock();
        let mut word = self.look();
        while word.has_room() && !queue.waiting.is_empty() {
            let next = match queue.waiting.len() {
                1 => word.plus_one().without_queued(),
                _ => word.plus_one(),
            };
            match self.exchange(word, next) {
                Ok(()) => {
                    granted.extend(queue.waiting.pop_first());
                    word = next;
                }
                Err(now) => word = now,
            }
        }
        drop(queue);
        for (_, waker) in granted {
            self.wakers.run(|| waker.wake());
        }
    }

    /// Relaxed: the word is only compared, and exchanged if it has not changed.
    #[inline]
    fn look(&self) -> Word {
        Word(self.word.load(Ordering::Relaxed))
    }

    #[inline]
    fn exchange(&self, seen: Word, next: Word) -> Result<(), Word> {
        // Acquire: whoever takes a permit sees what its last holder did, published by the Release of
        // `put_back`. Relaxed on failure: then nothing was taken.
        self.word
            .compare_exchange_weak(seen.0, next.0, Ordering::Acquire, Ordering::Relaxed)
            .map(drop)
            .map_err(Word)
    }
}

const QUEUED: u64 = 1 << 63;
const PERMITS_SHIFT: u32 = 31;
const LOW: u64 = MAX_PERMITS as u64;

/// A value of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    #[inline]
    fn in_use(self) -> usize {
        (self.0 & LOW) as usize
    }

    #[inline]
    fn permits(self) -> usize {
        (self.0 >> PERMITS_SHIFT & LOW) as usize
    }

    #[inline]
    fn queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    #[inline]
    fn has_room(self) -> bool {
        self.in_use() < self.permits()
    }

    /// With one more permit in use, for somebody who comes by (P1, P2).
    #[inline]
    fn taken(self) -> Option<Word> {
        (self.has_room() && !self.queued()).then(|| self.plus_one())
    }

    /// It stays within its bits: it is only asked where there is room.
    #[inline]
    fn plus_one(self) -> Word {
        Word(self.0 + 1)
    }

    fn with_queued(self) -> Word {
        Word(self.0 | QUEUED)
    }

    fn without_queued(self) -> Word {
        Word(self.0 & !QUEUED)
    }

    fn with_permits(self, permits: usize) -> Word {
        debug_assert!(permits <= MAX_PERMITS, "checked where they come in");
        Word(self.0 & !(LOW << PERMITS_SHIFT) | (permits as u64) << PERMITS_SHIFT)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_word_do_not_touch() {
        let mut word = Word(0).with_permits(MAX_PERMITS).with_queued();
        assert_eq!((word.permits(), word.in_use()), (MAX_PERMITS, 0));
        word.0 += LOW;
        assert_eq!((word.permits(), word.in_use()), (MAX_PERMITS, MAX_PERMITS));
        assert!(word.queued() && !word.has_room());
        word = word.with_permits(0).without_queued();
        assert_eq!((word.permits(), word.in_use()), (0, MAX_PERMITS));
        assert_eq!(word.taken(), None);
        assert_eq!(Word(0).with_permits(1).taken().map(Word::in_use), Some(1));
    }
}
