//! The state word: which mode a breaker is in, and which of its generations.
//!
//! | bits | what |
//! |---|---|
//! | 0–2 | [`Mode`] |
//! | 3–63 | the generation: how many transitions there have been |
//!
//! | mode | who may leave it |
//! |---|---|
//! | `Closed` | who trips it, under the gate's lock |
//! | `Ramp` | a failure, under the lock; anybody after its end, to `Closed` in the same generation |
//! | `Open` | the first call, or timer, at the deadline, under the lock |
//! | `HalfOpen` | the probe that decides, a lease or the half-open time that ends, under the lock |
//! | the others | their user, under the lock |

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    pub(crate) fn new(generation: u64, mode: Mode) -> Self {
        Word(generation << 3 | mode as u64)
    }

    #[inline]
    pub(crate) fn mode(self) -> Mode {
        MODES[(self.0 & 7) as usize]
    }

    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & 7 == Mode::Closed as u64
    }

    #[inline]
    pub(crate) fn generation(self) -> u64 {
        self.0 >> 3
    }

    /// The same generation in another mode.
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
