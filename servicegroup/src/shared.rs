//! What a group, its handles, its services and its watchdog share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::board::Board;
use crate::completion::Completion;
use crate::report::{HookReport, Parts, Reason, Report};

/// The first request to stop.
#[derive(Debug)]
pub(crate) struct StopRequest {
    pub(crate) reason: Reason,
    pub(crate) at: std::time::Instant,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: u64,
    /// Set once, by the first who wants the group to stop.
    pub(crate) asked: Completion<StopRequest>,
    /// Who may end the group: the run, the watchdog at the deadline, or the drop of the run.
    end_claimed: AtomicBool,
    /// Set by whoever has claimed the end, once the last line is written.
    pub(crate) ended: Completion<Report>,
    /// When the stop was asked for, on the runtime's clock.
    begun: OnceLock<Instant>,
    /// Whether all levels are up. Never lowered: a stop request does that for everybody at once.
    up: AtomicBool,
    pub(crate) board: Board,
    /// Cancelled with the stop request.
    pub(crate) draining: Mutex<CancellationToken>,
    /// What is being served, for a drain that may end when there is nothing.
    pub(crate) busy: TaskTracker,
    /// Reloads asked for; as many as come while one runs are one.
    pub(crate) reload: Notify,
    pub(crate) hooks: Mutex<Vec<HookReport>>,
    pub(crate) problem: Mutex<Option<String>>,
    pub(crate) deadline_exit_code: i32,
}

/// Less than this the runtime's timers do not tell apart.
const GRAIN: Duration = Duration::from_millis(1);

/// Groups of this process. Relaxed: the numbers only have to differ.
static GROUPS: AtomicU64 = AtomicU64::new(0);

impl Shared {
    pub(crate) fn new(log_to_stderr: bool, deadline_exit_code: i32) -> Arc<Self> {
        let busy = TaskTracker::new();
        // A closed tracker still hands out tokens, and can be waited for.
        busy.close();
        Arc::new(Shared {
            id: GROUPS.fetch_add(1, Ordering::Relaxed),
            asked: Completion::new(),
            end_claimed: AtomicBool::new(false),
            ended: Completion::new(),
            begun: OnceLock::new(),
            up: AtomicBool::new(false),
            board: Board::new(log_to_stderr),
            draining: Mutex::new(CancellationToken::new()),
            busy,
            reload: Notify::new(),
            hooks: Mutex::new(Vec::new()),
            problem: Mutex::new(None),
            deadline_exit_code,
        })
    }

    /// Asks the group to stop: true for the one whose reason counts.
    pub(crate) fn ask(&self, reason: Reason) -> bool {
        let request = StopRequest {
            reason,
            at: std::time::Instant::now(),
        };
        let first = self.asked.set(request).is_ok();
        if first {
            let draining = self.draining.lock().clone();
            draining.cancel();
        }
        first
    }

    pub(crate) fn set_up(&self) {
        // Release: what the services did until they were ready happens before what is done by those
        // who see the group ready (Acquire in `is_ready`).
        self.up.store(true, Ordering::Release);
    }

    /// Whether all levels are up and nobody has asked to stop.
    pub(crate) fn is_ready(&self) -> bool {
        // Acquire: pairs with `set_up`.
        self.up.load(Ordering::Acquire)
            && !self.asked.is_set()
            && !self.draining.lock().is_cancelled()
    }

    /// When the stop was asked for, on the runtime's clock, which a test may have paused; `None` before.
    pub(crate) fn begun(&self) -> Option<Instant> {
        let asked = self.asked.value()?;
        let begun = self.begun.get_or_init(|| {
            let (now, late) = (Instant::now(), asked.at.elapsed());
            match late < GRAIN {
                true => now,
                false => now.checked_sub(late).unwrap_or(now),
            }
        });
        Some(*begun)
    }

    /// True for the one who is to make the report, write it and set `ended`.
    pub(crate) fn claim_end(&self) -> bool {
        // Relaxed: the winner reads nothing that the losers have written.
        !self.end_claimed.swap(true, Ordering::Relaxed)
    }

    /// The report as of now, for the one who ends the group.
    pub(crate) fn report(&self, missed: bool, before_start: bool) -> Report {
        let begun = self.begun();
        Report::new(Parts {
            reason: self
                .asked
                .value()
                .map_or(Reason::Dropped, |it| it.reason.clone()),
            services: self.board.services(begun),
            hooks: self.hooks.lock().clone(),
            problem: self.problem.lock().clone(),
            total: begun.map_or(Duration::ZERO, |it| it.elapsed()),
            missed,
            before_start,
            deadline_exit_code: self.deadline_exit_code,
        })
    }
}
