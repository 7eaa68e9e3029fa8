//! The progress bar, on standard error and only when that is a terminal.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How many tasks are scheduled, pending and fired.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(tasks: u64) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(tasks), ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template(
                "{elapsed:>4} {wide_bar:.cyan/black.bright} {percent:>3}%  {msg}",
            );
            bar.set_style(
                style
                    .expect("the template is a valid constant")
                    .progress_chars("━╸━"),
            );
            bar
        });
        Self { bar }
    }

    /// How often it is worth telling the bar.
    pub(super) fn period(&self) -> Duration {
        // Without a bar nobody looks; the wait is then only cut at a few seconds.
        Duration::from_millis(if self.bar.is_some() { 100 } else { 2000 })
    }

    pub(super) fn show(&self, scheduled: u64, fired: u64) {
        if let Some(bar) = &self.bar {
            let pending = scheduled.saturating_sub(fired);
            bar.set_message(format!(
                "scheduled {scheduled}  pending {pending}  fired {fired}"
            ));
            bar.set_position(fired);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // The report takes the bar's place; also when the run ends with an error.
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
