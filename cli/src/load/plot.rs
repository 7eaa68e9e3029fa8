//! The lateness distribution as an SVG: bars for the share of each bucket, a line for the
//! cumulative share, and the percentiles. Text and shapes only, so any viewer shows it.

use std::fmt::Write;

use super::{
    buckets::{Bucket, buckets},
    report::{Report, grouped, human_ns},
};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 540.0;
/// The plot area; percentile labels stand above it, axis labels around it.
const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 80.0;
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
text { font: 13px system-ui, Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #334155 } \
.title { font-size: 20px; font-weight: 600; fill: #0f172a } \
.axis { stroke: #64748b; fill: none } \
.grid { stroke: #e2e8f0; fill: none } \
.bar { fill: #38bdf8 } \
.cumulative { stroke: #0f766e; stroke-width: 2; fill: none } \
.cumulative-text { fill: #0f766e } \
.mark { stroke: #be123c; stroke-dasharray: 4 3; fill: none } \
.mark-text { fill: #be123c; stroke: #ffffff; stroke-width: 4px; paint-order: stroke } \
.middle { text-anchor: middle } \
.end { text-anchor: end }";

/// Draws the report.
pub(super) fn svg(report: &Report) -> String {
    let buckets = buckets(&report.totals.lateness, MOST_BUCKETS, FIRST_BAR);
    let mut plot = Plot {
        text: String::new(),
        low_ns: 1e5,
        high_ns: 1e7,
    };
    if let (Some(first), Some(last)) = (buckets.first(), buckets.last()) {
        // The first bucket starts at 0, which a logarithmic axis does not have: it is drawn
        // with about the width that a bucket of this series has.
        plot.low_ns = first.to_ns as f64 / 1.25;
        plot.high_ns = last.to_ns as f64;
    }
    plot.head(report);
    plot.share_axis(&buckets, report.totals.fired);
    plot.lateness_axis();
    plot.cumulative(&buckets, report.totals.fired);
    if !buckets.is_empty() {
        plot.marks(report);
    }
    plot.text.push_str("</svg>\n");
    plot.text
}

/// A picture in the making, and its logarithmic axis.
struct Plot {
    text: String,
    low_ns: f64,
    high_ns: f64,
}

impl Plot {
    /// The horizontal place of a lateness; what lies outside the axis goes to its ends.
    fn x(&self, ns: f64) -> f64 {
        let part = (ns.max(1.0) / self.low_ns).ln() / (self.high_ns / self.low_ns).ln();
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// One element of SVG on a line of its own.
    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{element}");
    }

    fn head(&mut self, report: &Report) {
        let title = format!("Lateness of {} tasks", grouped(report.tasks()));
        self.put(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">"#
        ));
        self.put(format_args!("<title>{title}</title>"));
        self.put(format_args!("<style>{STYLE}</style>"));
        self.put(format_args!(
            r##"<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>"##
        ));
        self.put(format_args!(
            r#"<text class="title" x="{LEFT}" y="36">{title}</text>"#
        ));
        self.put(format_args!(
            r#"<text x="{LEFT}" y="58">{}</text>"#,
            report.settings
        ));
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
            self.put(format_args!(
                r#"<path class="grid" d="M{LEFT} {line:.1}H{RIGHT}"/><text class="end" x="{:.1}" y="{:.1}">{} %</text>"#,
                LEFT - 8.0,
                line + 4.5,
                (at * 1000.0).round() / 1000.0,
            ));
            at += step;
        }
        for bucket in buckets {
            let (from, to) = (self.x(bucket.from_ns as f64), self.x(bucket.to_ns as f64));
            let share = percent(bucket.count);
            self.put(format_args!(
                r#"<rect class="bar" x="{from:.2}" y="{:.2}" width="{:.2}" height="{:.2}"><title>{} – {}: {} tasks, {share:.2} %</title></rect>"#,
                y(share),
                (to - from - 1.0).max(0.5),
                BOTTOM - y(share),
                human_ns(bucket.from_ns),
                human_ns(bucket.to_ns),
                bucket.count,
            ));
        }
        let middle = f64::midpoint(TOP, BOTTOM);
        self.put(format_args!(
            r#"<text class="middle" transform="translate(24 {middle}) rotate(-90)">share of tasks in a bar</text>"#
        ));
    }

    /// The bottom axis: ticks at 1, 2 and 5 of each decade, labelled where there is room.
    fn lateness_axis(&mut self) {
        self.put(format_args!(
            r#"<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>"#
        ));
        let mut free = 0.0;
        for ns in (0..14).flat_map(|decade| [1, 2, 5].map(|step| step * 10_u64.pow(decade))) {
            if !(self.low_ns..=self.high_ns).contains(&(ns as f64)) {
                continue;
            }
            let x = self.x(ns as f64);
            self.put(format_args!(
                r#"<path class="axis" d="M{x:.1} {BOTTOM}v6"/>"#
            ));
            if x >= free {
                let label = human_ns(ns);
                let y = BOTTOM + 22.0;
                self.put(format_args!(
                    r#"<text class="middle" x="{x:.1}" y="{y}">{label}</text>"#
                ));
                free = x + TICK_LABEL;
            }
        }
        let (middle, y) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 50.0);
        self.put(format_args!(
            r#"<text class="middle" x="{middle}" y="{y}">lateness (callback start − due), logarithmic</text>"#
        ));
    }

    /// The cumulative line and the right axis.
    fn cumulative(&mut self, buckets: &[Bucket], fired: u64) {
        let y = |part: f64| BOTTOM - part * (BOTTOM - TOP);
        for percent in [0, 25, 50, 75, 100] {
            self.put(format_args!(
                r#"<text class="cumulative-text" x="{}" y="{:.1}">{percent} %</text>"#,
                RIGHT + 8.0,
                y(f64::from(percent) / 100.0) + 4.5,
            ));
        }
        let middle = f64::midpoint(TOP, BOTTOM);
        self.put(format_args!(
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
        self.put(format_args!(r#"<path class="cumulative" d="{path}"/>"#));
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
            self.put(format_args!(
                r#"<path class="mark" d="M{x:.1} {:.1}V{BOTTOM}"/>"#,
                y + 4.0
            ));
            labels.push((x, y, format!("{name} {}", human_ns(ns))));
        }
        // After all lines, so that a label's halo hides the lines of others behind it.
        for (x, y, label) in labels {
            self.put(format_args!(
                r#"<text class="mark-text middle" x="{x:.1}" y="{y:.1}">{label}</text>"#
            ));
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides an axis up to `most` into four to ten
/// parts, and the end of the axis.
fn nice_axis(most: f64) -> (f64, f64) {
    if most <= 0.0 {
        return (25.0, 100.0);
    }
    let power = 10_f64.powf((most / 10.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| most / step <= 8.0)
        .unwrap_or(10.0 * power);
    (step, (most / step).ceil() * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_above_the_highest_bar_at_a_round_number() {
        assert_eq!(nice_axis(0.0), (25.0, 100.0));
        assert_eq!(nice_axis(7.3), (1.0, 8.0));
        assert_eq!(nice_axis(13.0), (2.0, 14.0));
        assert_eq!(nice_axis(100.0), (20.0, 100.0));
        for most in [0.001, 0.09, 0.5, 1.0, 3.3, 42.0, 99.9] {
            let (step, top) = nice_axis(most);
            assert!(top >= most && top / step <= 10.5, "{most}: {step} {top}");
        }
    }
}
