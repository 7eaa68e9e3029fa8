//! What the default policy can be set to, and who is admitted under each setting.
//!
//! No one setting suits every kind of traffic: loops and scans want a table that hardly changes,
//! keys that are used twice within moments and never again want one that forgets by age. The
//! [tuner](crate::tuner) finds out which it is.

/// The entries that came last are the window; its oldest one and an entry of the rest, the main
/// part, compete for the place of the latter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The window's share of the table, in 65 536ths.
    pub(super) window: u16,
    /// Accesses per entry after which all counts are halved.
    pub(super) age: u8,
    /// Entries of the main part that are looked at for the one with the fewest hits.
    pub(super) look: u8,
    pub(super) admission: Admission,
    /// Whether entries that were used while in the window go round once more, for one use each: uses
    /// within moments say little.
    pub(super) spares: bool,
}

/// By how much the newcomer must have been asked for more often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Once more; twice where the other one was used again, or while the cache is young and a
    /// single repetition says little.
    Strict,
    /// Once more; twice where the other one was used again.
    Fair,
    /// As often.
    Open,
}

/// For loops, scans and skewed popularity; what a cache begins with.
pub(crate) const STEADY: Setting = Setting {
    window: 786,
    age: 10,
    look: 64,
    admission: Admission::Strict,
    spares: true,
};

/// For popularity that moves.
pub(crate) const BALANCED: Setting = Setting {
    window: 13_107,
    age: 10,
    look: 8,
    admission: Admission::Fair,
    spares: false,
};

/// For traffic where the recent is what counts.
pub(crate) const RECENT: Setting = Setting {
    window: 52_429,
    age: 4,
    look: 8,
    admission: Admission::Open,
    spares: true,
};

/// All of them, [`STEADY`] first.
pub(crate) const SETTINGS: [Setting; 3] = [STEADY, BALANCED, RECENT];

impl Setting {
    /// Entries of `len` that are the window: at least one.
    pub(super) fn window_of(&self, len: usize) -> usize {
        ((len as u64 * u64::from(self.window) + (1 << 15)) >> 16).max(1) as usize
    }
}

impl Admission {
    pub(super) fn admits(self, newcomer: u8, other: u8, young: bool) -> bool {
        match self {
            Self::Strict if young => newcomer > other + 1,
            Self::Strict | Self::Fair => newcomer > other + u8::from(other >= 2),
            Self::Open => newcomer >= other,
        }
    }
}
