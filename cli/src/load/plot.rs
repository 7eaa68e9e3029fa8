//! The lateness distribution as an SVG: bars for the share of each bucket, a line for the
//! cumulative share, and the percentiles.

use std::fmt::Write;

use super::{
    buckets::{Bucket, buckets},
    report::Report,
};
use crate::{
    figures::{grouped, human_ns},
    plot::{LEFT, RIGHT, Sheet, WIDTH, nice_axis},
};

const HEIGHT: f64 = 540.0;
/// Percentile labels stand above the plot area.
const TOP: f64 = 160.0;
const BOTTOM: f64 = HEIGHT - 70.0;
/// Enough for twenty to the decade over four decades.
const MOST_BUCKETS: usize = 80;
/// The part of the tasks that the first bar holds at least.
const FIRST_BAR: f64 = 0.005;
/// Space that a label needs, in SVG units.
const TICK_LABEL: f64 = 56.0;
const MARK_LABEL: f64 = 96.0;
const MARK_ROWS: usize = 5;

const STYLE: &str = "\
.bar { fill: #38bdf8 } \
.cumulative { stroke: #0f766e; stroke-width: 2; fill: none } \
.cumulative-text { fill: #0f766e } \
.mark { stroke: #be123c; stroke-dasharray: 4 3; fill: none } \
.mark-text { fill: #be123c; stroke: #ffffff; stroke-width: 4px; paint-order: stroke }";

/// Draws the report.
pub(super) fn svg(report: &Report) -> String {
    let buckets = buckets(&report.totals.lateness, MOST_BUCKETS, FIRST_BAR);
    let title = format!("Lateness of {} tasks", grouped(report.tasks()));
    let mut plot = Plot {
        sheet: Sheet::new(HEIGHT, &title, &report.settings, STYLE),
        low_ns: 1e5,
        high_ns: 1e7,
    };
    if let (Some(first), Some(last)) = (buckets.first(), buckets.last()) {
        // The first bucket starts at 0, which a logarithmic axis does not have: it is drawn
        // with about the width that a bucket of this series has.
        plot.low_ns = first.to_ns as f64 / 1.25;
        plot.high_ns = last.to_ns as f64;
    }
    plot.share_axis(&buckets, report.totals.fired);
    plot.lateness_axis();
    plot.cumulative(&buckets, report.totals.fired);
    if !buckets.is_empty() {
        plot.marks(report);
    }
    plot.sheet.finish()
}

/// A picture in the making, and its logarithmic axis.
struct Plot {
    sheet: Sheet,
    low_ns: f64,
    high_ns: f64,
}

impl Plot {
    /// The horizontal place of a lateness; what lies outside the axis goes to its ends.
    fn x(&self, ns: f64) -> f64 {
        let part = (ns.max(1.0) / self.low_ns).ln() / (self.high_ns / self.low_ns).ln();
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// The left axis with its grid, and the bars.
    fn share_axis(&mut self, buckets: &[Bucket], fired: u64) {
        let percent = |count: u64| 100.0 * count as f64 / fired.max(1) as f64;
        let most = buckets
            .iter()
            .map(|bucket| percent(bucket.count))
            .fold(0.0, f64::max);
        let (step, top) = nice_axis(most);
        let y = |percent: f64| BOTTOM - percent / top * (BOTTOM - TOP);
        let mut at = 0.0;
        while at <= top + step / 2.0 {
            let line = y(at);
            let label = (at * 1000.0).round() / 1000.0;
            self.sheet.grid_line(line, format_args!("{label} %"));
            at += step;
        }
        for bucket in buckets {
            let (from, to) = (self.x(bucket.from_ns as f64), self.x(bucket.to_ns as f64));
            let share = percent(bucket.count);
            self.sheet.put(format_args!(
                r#"<rect class="bar" x="{from:.2}" y="{:.2}" width="{:.2}" height="{:.2}"><title>{} – {}: {} tasks, {share:.2} %</title></rect>"#,
                y(share),
                (to - from - 1.0).max(0.5),
                BOTTOM - y(share),
                human_ns(bucket.from_ns),
                human_ns(bucket.to_ns),
                bucket.count,
            ));
        }
        self.sheet
            .left_title(f64::midpoint(TOP, BOTTOM), "share of tasks in a bar");
    }

    /// The bottom axis: ticks at 1, 2 and 5 of each decade, labelled where there is room.
    fn lateness_axis(&mut self) {
        self.sheet.bottom_axis(BOTTOM);
        let mut free = 0.0;
        for ns in (0..14).flat_map(|decade| [1, 2, 5].map(|step| step * 10_u64.pow(decade))) {
            if !(self.low_ns..=self.high_ns).contains(&(ns as f64)) {
                continue;
            }
            let x = self.x(ns as f64);
            self.sheet.tick(x, BOTTOM);
            if x >= free {
                let label = human_ns(ns);
                let y = BOTTOM + 22.0;
                self.sheet.put(format_args!(
                    r#"<text class="middle" x="{x:.1}" y="{y}">{label}</text>"#
                ));
                free = x + TICK_LABEL;
            }
        }
        self.sheet.bottom_title(
            BOTTOM + 50.0,
            "lateness (callback start − due), logarithmic",
        );
    }

    /// The cumulative line and the right axis.
    fn cumulative(&mut self, buckets: &[Bucket], fired: u64) {
        let y = |part: f64| BOTTOM - part * (BOTTOM - TOP);
        for percent in [0, 25, 50, 75, 100] {
            self.sheet.put(format_args!(
                r#"<text class="cumulative-text" x="{}" y="{:.1}">{percent} %</text>"#,
                RIGHT + 8.0,
                y(f64::from(percent) / 100.0) + 4.5,
            ));
        }
        let middle = f64::midpoint(TOP, BOTTOM);
        self.sheet.put(format_args!(
            r#"<text class="middle cumulative-text" transform="translate({} {middle}) rotate(90)">cumulative share</text>"#,
            WIDTH - 20.0,
        ));
        let mut path = format!("M{LEFT} {BOTTOM}");
        let mut sum = 0;
        for bucket in buckets {
            sum += bucket.count;
            let part = sum as f64 / fired.max(1) as f64;
            let _ = write!(path, "L{:.1} {:.1}", self.x(bucket.to_ns as f64), y(part));
        }
        self.sheet
            .put(format_args!(r#"<path class="cumulative" d="{path}"/>"#));
    }

    /// The percentile lines, their labels in rows so that neighbours do not overlap.
    fn marks(&mut self, report: &Report) {
        let mut free = [LEFT - MARK_LABEL; MARK_ROWS];
        let mut labels = Vec::new();
        for (name, ns) in report.percentiles() {
            let x = self.x(ns as f64);
            // There are as many rows as labels, so one of them has room.
            let row = free
                .iter()
                .position(|end| x - MARK_LABEL / 2.0 >= *end)
                .unwrap_or(MARK_ROWS - 1);
            free[row] = x + MARK_LABEL / 2.0;
            let y = TOP - 10.0 - 18.0 * row as f64;
            self.sheet.put(format_args!(
                r#"<path class="mark" d="M{x:.1} {:.1}V{BOTTOM}"/>"#,
                y + 4.0
            ));
            labels.push((x, y, format!("{name} {}", human_ns(ns))));
        }
        // After all lines, so that a label's halo hides the lines of others behind it.
        for (x, y, label) in labels {
            self.sheet.put(format_args!(
                r#"<text class="mark-text middle" x="{x:.1}" y="{y:.1}">{label}</text>"#
            ));
        }
    }
}
