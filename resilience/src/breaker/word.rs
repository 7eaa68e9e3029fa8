//! The state word: which mode a breaker is in, and which of its generations.
//!
//! | bits | what |
//! |---|---|
//! | 0–2 | [`Mode`] |
//! | 3 | watched: only in `Closed`, see below |
//! | 4–63 | the generation: how many transitions there have been |
//!
//! | mode | who may leave it |
//! |---|---|
//! | `Closed` | who trips it, under the gate's lock |
//! | `Ramp` | a failure, under the lock; anybody after its end, to `Closed` in the same generation |
//! | `Open` | the first call, or timer, at the deadline, under the lock |
//! | `HalfOpen` | the probe that decides, a lease or the half-open time that ends, under the lock |
//! | the others | their user, under the lock |
//!
//! Watched is a breaker with a rate that is exceeded but for the minimum volume, or with an eager rate
//! that has a mark in its window: a failure that finds that sets the bit, and each success then looks; one that finds that it is no longer so
//! clears it. Both without the lock, in the same generation. Other successes do
//! not look: their word has no such bit.

use super::State;

/// What a breaker does with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Mode {
    Closed = 0,
    /// Closed, for a part of the calls.
    Ramp = 1,
    Open = 2,
    HalfOpen = 3,
    ForcedOpen = 4,
    ForcedClosed = 5,
    Disabled = 6,
    MetricsOnly = 7,
}

const MODES: [Mode; 8] = [
    Mode::Closed,
    Mode::Ramp,
    Mode::Open,
    Mode::HalfOpen,
    Mode::ForcedOpen,
    Mode::ForcedClosed,
    Mode::Disabled,
    Mode::MetricsOnly,
];

const WATCHED: u64 = 1 << 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    pub(crate) fn new(generation: u64, mode: Mode) -> Self {
        Word(generation << 4 | mode as u64)
    }

    #[inline]
    pub(crate) fn mode(self) -> Mode {
        MODES[(self.0 & 7) as usize]
    }

    /// Closed, and not watched.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & 15 == Mode::Closed as u64
    }

    pub(crate) fn is_watched(self) -> bool {
        self.0 & WATCHED != 0
    }

    pub(crate) fn watched(self) -> Self {
        Word(self.0 | WATCHED)
    }

    #[inline]
    pub(crate) fn generation(self) -> u64 {
        self.0 >> 4
    }

    /// The same generation in another mode, not watched.
    pub(crate) fn with(self, mode: Mode) -> Self {
        Word::new(self.generation(), mode)
    }

    pub(crate) fn next(self, mode: Mode) -> Self {
        Word::new(self.generation() + 1, mode)
    }
}

impl Mode {
    pub(crate) fn state(self) -> State {
        match self {
            Mode::Closed | Mode::Ramp => State::Closed,
            Mode::Open => State::Open,
            Mode::HalfOpen => State::HalfOpen,
            Mode::ForcedOpen => State::ForcedOpen,
            Mode::ForcedClosed => State::ForcedClosed,
            Mode::Disabled => State::Disabled,
            Mode::MetricsOnly => State::MetricsOnly,
        }
    }
}
