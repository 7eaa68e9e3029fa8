//! When the next look at the whole window is needed.
//!
//! A ratio throttle rejects with probability max(0, excess / (requests + 1)). As long as the excess
//! is far below zero its exact value does not matter, and finding it out means to read what other
//! threads have just written. So a look that finds a slack of n (no n further bad events within this
//! bucket can make the excess positive) allows each of the four lanes to count a quarter of n
//! before anybody has to look again.
//!
//! Lanes count in the window anyway, and are told their share of the current bucket. A lane whose
//! share comes to a multiple of the step that the look allowed ends the slack: so each lane counts at
//! most a step without a look. The step is a power of two, which makes that a mask.
//!
//! The slack ends with the bucket, since good events leave the window then.
//!
//! # No spend is forgotten
//!
//! 1. A look begins by putting the word into a *session*, which has a number, and then reads the
//!    window. Looks that find a session under way join it.
//! 2. A bad event is counted in the window first; then it reads the word. In a session it adds itself
//!    to the word.
//! 3. A look publishes by compare-exchange from a word of its own session, with the spends that are in
//!    the word taken from its slack.
//!
//! So a spend of which the look has not read the count either sees the session, and is in the word
//! (2) or makes the exchange fail (3); or it has read the word before the session began. That it
//! cannot have: between its count and its read is a SeqCst fence, and so there is between the
//! session's beginning and the look's read of the count; of the two reads one sees what the other
//! side has written.
//!
//! A look that sleeps through its session finds another number, unless exactly a multiple of 2¹⁷
//! others began meanwhile, and publishes nothing.

use wheelhouse_collection::Striped;

use crate::sync::{AtomicU64, Ordering, fence};

/// Threads with different lanes count side by side.
const LANES: u64 = Striped::<()>::COUNT as u64;

const LOW_BITS: u32 = 8;
const LOW: u64 = (1 << LOW_BITS) - 1;
const SESSION: u64 = 1 << LOW_BITS;
const NUMBER_SHIFT: u32 = LOW_BITS + 1;
const END_SHIFT: u32 = 26;
const NUMBER: u64 = (1 << END_SHIFT) - (1 << NUMBER_SHIFT);

/// The longest step is 2 to this power.
const MOST_STEP: u32 = 24;

/// A session with so many spends is worth less than a new one.
const STALE_SESSION: u64 = 8;

/// Time in the word is in units of 2²⁰ ns, about a millisecond.
const UNIT_BITS: u32 = 20;

/// | bits | meaning |
/// |---|---|
/// | 0..8 | with a slack: log2 of the step; in a session: the spends since it began, 255 for more |
/// | 8 | a session is under way |
/// | 9..26 | the number of the session, or of that in which the slack was found |
/// | 26..64 | units of time at which the slack ends; 0 when there is none |
#[derive(Debug)]
pub(super) struct Slack(AtomicU64);

/// A look that has begun: the number of its session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look(u64);

impl Slack {
    pub(super) fn none() -> Self {
        Slack(AtomicU64::new(0))
    }

    /// Whether a caller at `now` may go without a look.
    #[inline]
    pub(super) fn covers(&self, now: u64) -> bool {
        // Relaxed, and all below: the word is all that is passed on, and fences order the rest.
        now >> UNIT_BITS < self.0.load(Ordering::Relaxed) >> END_SHIFT
    }

    /// Takes note of a bad event that is counted in the window, the `share`-th of its lane in this
    /// bucket: ends the slack if the lane has used what it may.
    #[inline]
    pub(super) fn spend(&self, share: u64) {
        // SeqCst: with that of `look`.
        fence(Ordering::SeqCst);
        let word = self.0.load(Ordering::Relaxed);
        if spent(word, share).is_some() {
            self.put_spend(share);
        }
    }

    #[cold]
    fn put_spend(&self, share: u64) {
        let _nothing_left_to_change =
            self.0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                    spent(word, share)
                });
    }

    /// Begins a look. To be called before the window is read.
    pub(super) fn look(&self) -> Look {
        let begun = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                let is_joined = word & SESSION != 0 && word & LOW < STALE_SESSION;
                (!is_joined).then(|| next_number(word) | SESSION)
            });
        let number = match begun {
            Ok(before) => next_number(before),
            Err(joined) => joined & NUMBER,
        };
        // SeqCst: with that of `spend`.
        fence(Ordering::SeqCst);
        Look(number)
    }

    /// Publishes that `slack` further bad events than the look has seen do no harm before `edge`, the
    /// end of the bucket.
    pub(super) fn renew(&self, look: Look, slack: f64, edge: u64) {
        let end = (edge >> UNIT_BITS).min(u64::MAX >> END_SHIFT);
        let _of_another_session =
            self.0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                    let spent = word & LOW;
                    if word & (NUMBER | SESSION) != look.0 | SESSION || spent == LOW {
                        return None;
                    }
                    let steps = ((slack - spent as f64) / LANES as f64) as u64;
                    let step = steps.checked_ilog2()?.min(MOST_STEP);
                    Some(end << END_SHIFT | look.0 | u64::from(step))
                });
    }

    /// To be called after the window was cleared: what looks have found before is no longer so.
    pub(super) fn clear(&self) {
        let _always = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                Some(next_number(word))
            });
    }
}

/// The word after a spend, if it changes.
#[inline]
fn spent(word: u64, share: u64) -> Option<u64> {
    if word & SESSION != 0 {
        return (word & LOW < LOW).then_some(word + 1);
    }
    let mask = (1_u64 << (word & LOW & 63)) - 1;
    (word >> END_SHIFT != 0 && share & mask == 0).then_some(word & NUMBER)
}

fn next_number(word: u64) -> u64 {
    word.wrapping_add(1 << NUMBER_SHIFT) & NUMBER
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    const EDGE: u64 = 250_000_000;

    /// Whatever the slack, four lanes together never count more than it without a look.
    #[test]
    fn lanes_together_stay_within_the_slack() {
        for slack in [
            0.0,
            0.9,
            3.9,
            4.0,
            7.0,
            12.5,
            100.0,
            12_345.0,
            1e9,
            f64::MAX,
        ] {
            for first in [0, 1, 7, 1000] {
                let word = Slack::none();
                word.renew(word.look(), slack, EDGE);
                // A lane counts alone; the others could have counted as much.
                let mut counted = 0;
                while word.covers(0) && counted < 1 << 25 {
                    counted += 1;
                    word.spend(first + counted);
                }
                assert!((4 * counted) as f64 <= slack, "{slack}: {counted}");
            }
        }
    }

    #[test]
    fn ends_with_the_bucket() {
        let word = Slack::none();
        assert!(!word.covers(0));
        word.renew(word.look(), 1e6, EDGE);
        assert!(word.covers(EDGE - (2 << UNIT_BITS)));
        assert!(!word.covers(EDGE));
        word.renew(word.look(), 1e6, u64::MAX);
        assert!(word.covers(EDGE));
        word.clear();
        assert!(!word.covers(0));
    }

    /// A look that sleeps while others look and spend: what it has seen is no longer so.
    #[test]
    fn a_look_that_sleeps_publishes_nothing_old() {
        let word = Slack::none();
        let asleep = word.look();
        for spend in 1..=1000 {
            word.spend(spend);
        }
        word.renew(asleep, 1e6, EDGE);
        assert!(!word.covers(0), "1000 spends are not in the word");

        let asleep = word.look();
        word.renew(word.look(), 8.0, EDGE);
        word.spend(2);
        assert!(!word.covers(0));
        // The same word as that which it began from, but for the number.
        let _ = word.look();
        word.renew(asleep, 1e6, EDGE);
        assert!(!word.covers(0));
    }

    #[test]
    fn looks_at_the_same_time_share_a_session() {
        let word = Slack::none();
        let (one, two) = (word.look(), word.look());
        word.spend(1);
        word.spend(2);
        // Two of the ten are gone: eight are left, two for each lane.
        word.renew(two, 10.0, EDGE);
        assert!(word.covers(0));
        word.renew(one, 1e6, EDGE);
        word.spend(4);
        assert!(!word.covers(0), "the other has published already");
    }
}

#[cfg(all(test, wheelhouse_loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    const LIMIT: u64 = 9;

    /// A window of bad events, and who looks at it.
    #[derive(Debug)]
    struct Model {
        slack: Slack,
        bad: AtomicU64,
    }

    impl Model {
        fn spend(&self) {
            let share = self.bad.fetch_add(1, Ordering::Relaxed) + 1;
            self.slack.spend(share);
        }

        fn look(&self) {
            let look = self.slack.look();
            let left = LIMIT.saturating_sub(self.bad.load(Ordering::Relaxed));
            self.slack.renew(look, left as f64, 1 << 40);
        }
    }

    /// Two threads count bad events while a third looks: a slack that is left never allows more than
    /// the limit leaves. Fails without either fence, and when a spend in a session changes nothing.
    #[test]
    fn no_spend_is_forgotten() {
        loom::model(|| {
            let model = Arc::new(Model {
                slack: Slack::none(),
                bad: AtomicU64::new(0),
            });
            let spending: Vec<_> = (0..2)
                .map(|_| {
                    let model = model.clone();
                    thread::spawn(move || (0..2).for_each(|_| model.spend()))
                })
                .collect();
            model.look();
            for thread in spending {
                thread.join().expect("the other thread does not panic");
            }
            // A step for each lane from now on: what has been counted and what may still be.
            let word = model.slack.0.load(Ordering::Relaxed);
            if model.slack.covers(0) {
                let bad = model.bad.load(Ordering::Relaxed);
                let step = 1_u64 << (word & LOW);
                let may = LANES * (step - bad % step);
                assert!(bad + may <= LIMIT, "{bad} and {may} more of {LIMIT}");
            }
        });
    }

    /// Two looks at once: whichever publishes, it has seen the spend or has it in its word.
    #[test]
    fn looks_that_join_see_every_spend() {
        loom::model(|| {
            let model = Arc::new(Model {
                slack: Slack::none(),
                bad: AtomicU64::new(LIMIT - LANES),
            });
            let spending = model.clone();
            let spending = thread::spawn(move || spending.spend());
            let looking = model.clone();
            let looking = thread::spawn(move || looking.look());
            model.look();
            spending.join().expect("the other thread does not panic");
            looking.join().expect("the other thread does not panic");
            // Fewer are left than there are lanes: a slack is one that a later spend has ended.
            assert!(!model.slack.covers(0));
        });
    }
}
