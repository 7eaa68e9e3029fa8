//! What the policies do over time as an SVG: above, the share of calls that each admits; below, the
//! failures that it lets through. Sick phases are shaded.

use std::fmt::Write;

use super::{
    output,
    scenario::{Phase, Scenario},
    series::{Series, Slice, View},
};
use crate::plot::{LEFT, RIGHT, Sheet, escaped, nice_axis};

const LEGEND: f64 = 84.0;
const LEGEND_ROW: f64 = 20.0;
/// Entries of the legend in a row.
const LEGEND_COLUMNS: usize = 4;
/// Of each panel.
const PANEL: f64 = 200.0;
const GAP: f64 = 36.0;
const BELOW: f64 = 70.0;

/// Colours that are told apart also by people who see fewer (Okabe and Ito), without the yellow,
/// which is too light for a line.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000",
];
/// Lines beyond the number of colours begin with the first colour again, dashed.
const DASHES: [&str; 3] = ["none", "6 3", "2 3"];

const STYLE: &str = "\
.sick { fill: #fee2e2 } \
.line { stroke-width: 1.6; fill: none; stroke-linejoin: round }";

/// Draws the series, each with the name of its policy.
pub(super) fn svg(
    scenario: &Scenario,
    seed: u64,
    view: View,
    lines: &[(String, Series)],
) -> String {
    let legend_rows = lines.len().div_ceil(LEGEND_COLUMNS) as f64;
    let top = LEGEND + legend_rows * LEGEND_ROW + 6.0;
    let height = top + 2.0 * PANEL + GAP + BELOW;
    let title = match lines {
        [(only, _)] => only.clone(),
        _ => format!("{} policies compared", lines.len()),
    };
    let subtitle = format!("{}, seed {seed}", output::settings(scenario));
    let mut plot = Plot {
        sheet: Sheet::new(height, &title, &subtitle, STYLE),
        view,
    };
    plot.legend(lines);
    let below = top + PANEL + GAP;
    plot.sick(scenario, top, below + PANEL);

    let share = |slice: &Slice, _: f64| {
        (slice.offered > 0).then(|| 100.0 * slice.admitted as f64 / slice.offered as f64)
    };
    plot.panel(top, (25.0, 100.0), "calls admitted", " %", lines, share);

    let per_second = |slice: &Slice, seconds: f64| Some(slice.failed as f64 / seconds);
    let most = lines.iter().flat_map(|(_, series)| {
        let seconds = seconds(series);
        let slices = series.slices.iter();
        slices.filter_map(move |slice| per_second(slice, seconds))
    });
    let axis = nice_axis(most.fold(0.0, f64::max));
    plot.panel(below, axis, "failures a second", "", lines, per_second);
    let shaded = scenario.phases.iter().any(Phase::is_sick);
    plot.time_axis(below + PANEL, shaded);
    plot.sheet.finish()
}

/// A picture in the making, and its axis of time.
struct Plot {
    sheet: Sheet,
    view: View,
}

impl Plot {
    /// The horizontal place of an instant; what lies outside the view goes to its ends.
    fn x(&self, at: u64) -> f64 {
        let since = at.clamp(self.view.begin, self.view.end) - self.view.begin;
        let part = since as f64 / (self.view.end - self.view.begin) as f64;
        LEFT + part * (RIGHT - LEFT)
    }

    fn legend(&mut self, lines: &[(String, Series)]) {
        let width = (RIGHT - LEFT) / LEGEND_COLUMNS as f64;
        for (place, (name, _)) in lines.iter().enumerate() {
            let x = LEFT + (place % LEGEND_COLUMNS) as f64 * width;
            let y = LEGEND + (place / LEGEND_COLUMNS) as f64 * LEGEND_ROW;
            self.sheet.put(format_args!(
                r#"<path class="line" {} d="M{x:.1} {:.1}h24"/><text x="{:.1}" y="{y:.1}">{}</text>"#,
                stroke(place),
                y - 4.5,
                x + 30.0,
                escaped(name),
            ));
        }
    }

    fn sick(&mut self, scenario: &Scenario, top: f64, bottom: f64) {
        for phase in scenario.phases.iter().filter(|phase| phase.is_sick()) {
            let (from, to) = (self.x(phase.begin), self.x(phase.end));
            if to > from {
                self.sheet.put(format_args!(
                    r#"<rect class="sick" x="{from:.2}" y="{top}" width="{:.2}" height="{}"/>"#,
                    to - from,
                    bottom - top,
                ));
            }
        }
    }

    /// The grid from 0 to the end of `axis` in its steps, and a line for each policy.
    fn panel(
        &mut self,
        top: f64,
        (step, end): (f64, f64),
        title: &str,
        unit: &str,
        lines: &[(String, Series)],
        value: impl Fn(&Slice, f64) -> Option<f64>,
    ) {
        let y = |value: f64| top + PANEL - value / end * PANEL;
        let mut at = 0.0;
        while at <= end + step / 2.0 {
            let label = (at * 1000.0).round() / 1000.0;
            self.sheet.grid_line(y(at), format_args!("{label}{unit}"));
            at += step;
        }
        self.sheet.left_title(top + PANEL / 2.0, title);
        for (place, (name, series)) in lines.iter().enumerate() {
            let seconds = seconds(series);
            let mut path = String::new();
            let mut pen_down = false;
            for (number, slice) in (0..).zip(&series.slices) {
                let Some(value) = value(slice, seconds) else {
                    // No call came: there is nothing to tell, and no line.
                    pen_down = false;
                    continue;
                };
                let x = self.x(self.view.begin + number * series.slice_length());
                let command = if pen_down { 'L' } else { 'M' };
                // A number of steps: what holds for a slice holds up to the next.
                let end = self.x(self.view.begin + (number + 1) * series.slice_length());
                let _ = write!(path, "{command}{x:.1} {:.1}H{end:.1}", y(value));
                pen_down = true;
            }
            self.sheet.put(format_args!(
                r#"<path class="line" {} d="{path}"><title>{}</title></path>"#,
                stroke(place),
                escaped(name),
            ));
        }
    }

    fn time_axis(&mut self, bottom: f64, shaded: bool) {
        self.sheet.bottom_axis(bottom);
        let span = (self.view.end - self.view.begin) as f64 / 1e9;
        let (unit, name) = match span {
            0.0..0.5 => (1e6, "ms"),
            0.5..600.0 => (1e9, "s"),
            600.0..36_000.0 => (60e9, "min"),
            _ => (3600e9, "h"),
        };
        let (step, _) = nice_axis(span * 1e9 / unit);
        let first = (self.view.begin as f64 / unit / step).ceil();
        let mut at = first * step;
        while at * unit <= self.view.end as f64 * (1.0 + 1e-9) {
            let x = self.x((at * unit).round() as u64);
            self.sheet.tick(x, bottom);
            self.sheet.put(format_args!(
                r#"<text class="middle" x="{x:.1}" y="{}">{}</text>"#,
                bottom + 22.0,
                (at * 1000.0).round() / 1000.0,
            ));
            at += step;
        }
        let shading = if shaded { ", sick phases shaded" } else { "" };
        let title = format!("{name} since the start{shading}");
        self.sheet.bottom_title(bottom + 50.0, &title);
    }
}

fn seconds(series: &Series) -> f64 {
    series.slice_length() as f64 / 1e9
}

/// The colour and dashes of a line.
fn stroke(place: usize) -> String {
    format!(
        r#"stroke="{}" stroke-dasharray="{}""#,
        COLOURS[place % COLOURS.len()],
        DASHES[place / COLOURS.len() % DASHES.len()],
    )
}
