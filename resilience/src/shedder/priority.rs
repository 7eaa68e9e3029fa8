//! [`Priority`]: whose requests are shed first.

/// How much a request matters when not all can be served: the lowest are shed first.
///
/// ```
/// use wheelhouse_resilience::Priority;
///
/// assert!(Priority::Low < Priority::Normal && Priority::High < Priority::Critical);
/// assert_eq!(Priority::default(), Priority::Normal);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Nobody waits for it: prefetching, batches, crawlers.
    Low,
    /// Somebody waits for it.
    #[default]
    Normal,
    /// Losing it costs more than others: a payment against a page view.
    High,
    /// What keeps the service itself alive: health checks, administration. It is shed too when
    /// there is more of it than can be served.
    Critical,
}

impl Priority {
    /// How many there are.
    pub(super) const COUNT: usize = 4;

    /// Every priority, from the lowest up.
    pub(super) const ALL: [Priority; Self::COUNT] = [
        Priority::Low,
        Priority::Normal,
        Priority::High,
        Priority::Critical,
    ];

    /// Its name in lower case, as in metrics.
    ///
    /// ```
    /// use wheelhouse_resilience::Priority;
    ///
    /// assert_eq!(Priority::Low.name(), "low");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
            Priority::Critical => "critical",
        }
    }
}
