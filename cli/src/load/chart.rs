//! The histogram in the terminal: a bar a bucket, eighths of a column fine.

use std::fmt::Write;

use super::{
    buckets::{Bucket, buckets},
    report::Report,
};
use crate::figures::{grouped, human_ns};

/// Rows that fit a terminal together with the report.
const MOST_ROWS: usize = 24;
/// The part of the tasks that the first row holds at least.
const FIRST_ROW: f64 = 0.02;
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Draws the lateness of `report`, at most `columns` wide; each line ends in a line feed.
pub(super) fn draw(report: &Report, columns: usize, colours: bool) -> String {
    let buckets = buckets(&report.totals.lateness, MOST_ROWS, FIRST_ROW);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let percentiles = report.percentiles();
    let marks = |bucket: &Bucket| {
        let within = percentiles
            .iter()
            .filter(|(_, ns)| (bucket.from_ns..bucket.to_ns).contains(ns));
        within.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    };
    let count_columns = grouped(most).len();
    let marks_columns = buckets
        .iter()
        .map(|bucket| marks(bucket).len())
        .max()
        .unwrap_or(0);
    // What a row has beside its bar: two times of 8 with a dash between them, the share, the
    // count, the marks, and a space or two before each.
    let beside = 19 + 1 + 9 + (1 + count_columns) + (2 + marks_columns);
    let bar_columns = columns.min(120).saturating_sub(beside).max(10);
    let bar_style = console::Style::new().cyan().force_styling(colours);

    let mut text = String::new();
    for bucket in &buckets {
        let bar = bar(bucket.count, most, bar_columns);
        let row = format!(
            "{:>8} – {:<8} {}{} {:>6.2} % {:>count_columns$}  {}",
            human_ns(bucket.from_ns),
            human_ns(bucket.to_ns),
            bar_style.apply_to(&bar),
            " ".repeat(bar_columns - bar.chars().count()),
            100.0 * bucket.count as f64 / report.totals.fired as f64,
            grouped(bucket.count),
            marks(bucket),
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

/// A bar for `count` of `most`, which fills `columns`; never invisible unless it is 0.
fn bar(count: u64, most: u64, columns: usize) -> String {
    if count == 0 {
        return String::new();
    }
    let all = u128::from(most).max(1);
    let eighths = (u128::from(count) * columns as u128 * 8 / all).max(1) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_never_invisible() {
        assert_eq!(bar(0, 100, 10), "");
        assert_eq!(bar(1, 1_000_000, 10), "▏");
        assert_eq!(bar(50, 100, 10), "█████");
        assert_eq!(bar(100, 100, 10), "██████████");
        assert_eq!(bar(51, 100, 5), "██▌");
        assert_eq!(bar(u64::MAX, u64::MAX, 3), "███");
    }
}
