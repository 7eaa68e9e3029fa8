//! How the outcome of a load is printed.

use std::io::{self, Write};

use super::model::Outcome;

pub(super) fn heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>6} {:>10} {:>10} {:>8} {:>9} {:>9} {:>14} {:>13}",
        "load",
        "offered",
        "admitted",
        "goodput",
        "p50_ms",
        "p99_ms",
        "first_shed_ms",
        "last_shed_ms"
    )
}

pub(super) fn row(out: &mut impl Write, load: f64, outcome: &Outcome) -> io::Result<()> {
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    writeln!(
        out,
        "{load:>6} {:>10} {:>10} {:>8.3} {:>9} {:>9} {:>14} {:>13}",
        outcome.offered,
        outcome.admitted,
        outcome.goodput,
        shown(outcome.p50_ms),
        shown(outcome.p99_ms),
        shown(outcome.first_shed_ms),
        shown(outcome.last_shed_ms),
    )
}

pub(super) fn json(out: &mut impl Write, load: f64, outcome: &Outcome) -> io::Result<()> {
    let shown = |value: Option<f64>| value.map_or("null".to_owned(), |value| format!("{value:.3}"));
    writeln!(
        out,
        r#"{{"load":{load},"offered":{},"admitted":{},"goodput":{:.3},"p50_ms":{},"p99_ms":{},"first_shed_ms":{},"last_shed_ms":{}}}"#,
        outcome.offered,
        outcome.admitted,
        outcome.goodput,
        shown(outcome.p50_ms),
        shown(outcome.p99_ms),
        shown(outcome.first_shed_ms),
        shown(outcome.last_shed_ms),
    )
}
