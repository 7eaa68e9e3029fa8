//! What the plots have in common: the sheet with its title, the grid, and the file they go to. Text
//! and shapes only, so any viewer shows them.

mod file;

use std::fmt::{self, Write};

pub(crate) use file::PlotFile;

pub(crate) const WIDTH: f64 = 960.0;
/// The plot area; axis labels are around it.
pub(crate) const LEFT: f64 = 80.0;
pub(crate) const RIGHT: f64 = WIDTH - 80.0;

const STYLE: &str = "\
text { font: 13px system-ui, Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #334155 } \
.title { font-size: 20px; font-weight: 600; fill: #0f172a } \
.axis { stroke: #64748b; fill: none } \
.grid { stroke: #e2e8f0; fill: none } \
.middle { text-anchor: middle } \
.end { text-anchor: end }";

/// An SVG in the making.
#[derive(Debug)]
pub(crate) struct Sheet {
    text: String,
}

impl Sheet {
    /// A white sheet with a title, a line below it, and `style` for its own classes.
    pub(crate) fn new(height: f64, title: &str, subtitle: &str, style: &str) -> Self {
        let mut sheet = Self {
            text: String::new(),
        };
        let (title, subtitle) = (escaped(title), escaped(subtitle));
        sheet.put(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">"#
        ));
        sheet.put(format_args!("<title>{title}</title>"));
        sheet.put(format_args!("<style>{STYLE} {style}</style>"));
        sheet.put(format_args!(
            r##"<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>"##
        ));
        sheet.put(format_args!(
            r#"<text class="title" x="{LEFT}" y="36">{title}</text>"#
        ));
        sheet.put(format_args!(r#"<text x="{LEFT}" y="58">{subtitle}</text>"#));
        sheet
    }

    /// One element of SVG on a line of its own.
    pub(crate) fn put(&mut self, element: fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{element}");
    }

    /// A line across the plot area at the height `y`, with its label at the left axis.
    pub(crate) fn grid_line(&mut self, y: f64, label: fmt::Arguments<'_>) {
        self.put(format_args!(
            r#"<path class="grid" d="M{LEFT} {y:.1}H{RIGHT}"/><text class="end" x="{:.1}" y="{:.1}">{label}</text>"#,
            LEFT - 8.0,
            y + 4.5,
        ));
    }

    /// What the left axis shows, along it.
    pub(crate) fn left_title(&mut self, middle: f64, title: &str) {
        self.put(format_args!(
            r#"<text class="middle" transform="translate(24 {middle}) rotate(-90)">{title}</text>"#
        ));
    }

    /// The line of the bottom axis.
    pub(crate) fn bottom_axis(&mut self, y: f64) {
        self.put(format_args!(
            r#"<path class="axis" d="M{LEFT} {y}H{RIGHT}"/>"#
        ));
    }

    /// A mark on the bottom axis.
    pub(crate) fn tick(&mut self, x: f64, y: f64) {
        self.put(format_args!(r#"<path class="axis" d="M{x:.1} {y}v6"/>"#));
    }

    /// What the bottom axis shows, below it.
    pub(crate) fn bottom_title(&mut self, y: f64, title: &str) {
        let middle = f64::midpoint(LEFT, RIGHT);
        self.put(format_args!(
            r#"<text class="middle" x="{middle}" y="{y}">{title}</text>"#
        ));
    }

    /// The whole SVG.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides an axis up to `most` into four to ten
/// parts, and the end of the axis.
pub(crate) fn nice_axis(most: f64) -> (f64, f64) {
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

/// Text that may have come from a user, such as the name of a file.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        // Characters that XML does not have in any form.
        .replace(|character: char| character.is_control(), "\u{fffd}")
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

    #[test]
    fn names_of_files_stay_text() {
        assert_eq!(escaped("a<b>&\u{1}.json"), "a&lt;b&gt;&amp;\u{fffd}.json");
    }
}
