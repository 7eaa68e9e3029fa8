//! Cron schedules in and out as text, so that a test reads like the table it holds.

use wheelhouse_wheel::cron::{Cron, Timestamp};

/// The first `count` runs after `from` (RFC 3339), each as the clock of the zone shows it.
pub(crate) fn runs(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let cron = Cron::new(expression, zone).unwrap();
    let from: Timestamp = from.parse().unwrap();
    let shown = |run: Timestamp| {
        let shown = run.to_zoned(cron.zone().clone());
        shown.strftime("%F %T%:z").to_string()
    };
    cron.after(from).take(count).map(shown).collect()
}
