//! How much of its processors this process uses: [`CpuSource`], and [`CpuMeter`] that reads it from
//! the system.

mod parse;
mod place;
mod platform;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::BuildError;

use place::{Account, Place};

/// Where a [`Shedder`](crate::Shedder) learns how busy the processors are.
///
/// Closures are sources too, for tests and simulators, or for a figure that is known otherwise:
///
/// ```
/// use std::time::Instant;
/// use wheelhouse_resilience::Shedder;
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let always_half = |_now: Instant| Some(0.5);
/// let shedder = Shedder::builder().cpu(always_half).build()?;
/// # Ok(()) }
/// ```
pub trait CpuSource: Send + 'static {
    /// What was used since the call before, up to `now`, as a share of what may be used: 1.0 is all
    /// of it. `None` when it is not known, as at the first call.
    ///
    /// A shedder calls this when it is built, so that the next call has an interval to report on,
    /// and then at most once every sample period, on one thread at a time.
    fn usage_at(&mut self, now: Instant) -> Option<f64>;
}

impl<F: FnMut(Instant) -> Option<f64> + Send + 'static> CpuSource for F {
    fn usage_at(&mut self, now: Instant) -> Option<f64> {
        self(now)
    }
}

/// The processor usage of this process's control group, read from the system's files.
///
/// Usage is processor time divided by wall time and by the *real limit*: the least of the quotas and
/// processor sets of the own group and of those above it, and of the processors that the process may
/// run on. Both generations of control groups are read, also mounted together, and groups within
/// groups, whether or not a container hides the outer ones. The limit is read anew every five
/// seconds, since quotas change under a running process.
///
/// The time is that of the whole group: all of a container, or a service of systemd. What neighbours
/// in other groups use is not counted; a process that is in the outermost group shares it with the
/// whole machine. Where there are no groups it is the time of this process, and
/// where the system does not tell that either (Windows) the usage is unknown.
///
/// ```
/// use wheelhouse_resilience::CpuMeter;
///
/// let meter = CpuMeter::new();
/// assert!(meter.limit() > 0.0);
/// ```
pub struct CpuMeter {
    root: PathBuf,
    /// Set by the user.
    fixed_limit: Option<f64>,
    place: Place,
    limit: f64,
    /// When the place is looked for and the limit read again.
    recheck_at: Option<Instant>,
    /// When the processor time was read last, and what it was.
    last: Option<(Instant, Duration)>,
}

/// How long a limit that was read is taken to be true.
const RECHECK: Duration = Duration::from_secs(5);

impl CpuMeter {
    /// A meter of this process.
    ///
    /// ```
    /// use std::time::Instant;
    /// use wheelhouse_resilience::{CpuMeter, CpuSource};
    ///
    /// let mut meter = CpuMeter::new();
    /// // There is no interval yet that it could report on.
    /// assert_eq!(meter.usage_at(Instant::now()), None);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::at_root("/")
    }

    /// The same with another folder for `/`: of a test, or where a container has the host's files.
    ///
    /// It reads `proc/self/{cgroup,mountinfo,status,stat}` below `root`, and the files of the groups
    /// where these say or, without them, below `sys/fs/cgroup`.
    ///
    /// ```
    /// use wheelhouse_resilience::CpuMeter;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let root = std::env::temp_dir().join(format!("meter-{}", std::process::id()));
    /// let group = root.join("sys/fs/cgroup/app");
    /// std::fs::create_dir_all(&group)?;
    /// std::fs::create_dir_all(root.join("proc/self"))?;
    /// std::fs::write(root.join("proc/self/cgroup"), "0::/app\n")?;
    /// std::fs::write(group.join("cpu.max"), "50000 100000\n")?;
    /// assert_eq!(CpuMeter::at_root(&root).limit(), 0.5);
    /// std::fs::remove_dir_all(&root)
    /// # }
    /// ```
    #[must_use]
    pub fn at_root(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let place = Place::find(&root);
        let limit = place.limit();
        CpuMeter {
            root,
            fixed_limit: None,
            place,
            limit,
            recheck_at: None,
            last: None,
        }
    }

    /// The same meter with a limit of its own, in processors, instead of the one that it reads: 0.5
    /// is half of one.
    ///
    /// ```
    /// use wheelhouse_resilience::CpuMeter;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// assert_eq!(CpuMeter::new().with_limit(0.5)?.limit(), 0.5);
    /// assert!(CpuMeter::new().with_limit(0.0).is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] unless `processors` is a finite number above 0.
    pub fn with_limit(mut self, processors: f64) -> Result<Self, BuildError> {
        if !processors.is_finite() || processors <= 0.0 {
            let value = processors.to_string();
            return Err(BuildError::new(
                "processors",
                value,
                "finite numbers above 0",
            ));
        }
        self.fixed_limit = Some(processors);
        self.limit = processors;
        Ok(self)
    }

    /// The processors that may be used, as they were read last.
    #[must_use]
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Looks again for where the process is, which may have been moved, and for what it may use.
    fn recheck(&mut self, now: Instant) {
        let due = self.recheck_at.unwrap_or(now);
        if now < due {
            return;
        }
        let is_new = self.recheck_at.is_none();
        self.recheck_at = now.checked_add(RECHECK);
        if is_new {
            return;
        }
        let place = Place::find(&self.root);
        if place.account() != self.place.account() {
            // Another count, of which the last reading says nothing.
            self.last = None;
        }
        self.place = place;
        self.limit = self.fixed_limit.unwrap_or_else(|| self.place.limit());
    }
}

impl CpuSource for CpuMeter {
    fn usage_at(&mut self, now: Instant) -> Option<f64> {
        self.recheck(now);
        let Some(time) = self.place.account().time() else {
            // The group may be gone: look at the next call, and begin anew.
            (self.recheck_at, self.last) = (Some(now), None);
            return None;
        };
        let Some((then, before)) = self.last else {
            self.last = Some((now, time));
            return None;
        };
        let wall = now
            .checked_duration_since(then)
            .filter(|wall| !wall.is_zero())?;
        self.last = Some((now, time));
        // A count that went back is another group's.
        let used = time.checked_sub(before)?;
        Some(used.as_secs_f64() / (wall.as_secs_f64() * self.limit))
    }
}

impl Default for CpuMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CpuMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.place.account() {
            Account::Unified(file) | Account::Split(file) | Account::Process(file) => {
                file.display().to_string()
            }
            Account::System => "the system".to_owned(),
        };
        f.debug_struct("CpuMeter")
            .field("source", &source)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
