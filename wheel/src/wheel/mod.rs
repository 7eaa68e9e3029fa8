//! stub
/// Names one timer of one wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerKey(u64);
/// A timer that has come due.
#[derive(Debug)]
pub struct Expired<T> {
    /// a
    pub key: TimerKey,
    /// a
    pub deadline: u64,
    /// a
    pub value: T,
}
/// The pure structure.
#[derive(Debug)]
pub struct Wheel<T>(Vec<T>);
