//! [`Place`]: the files that say what this process may use of the processors and has used.
//!
//! A hierarchy of groups is mounted somewhere, with one of its groups at the mount point, and the
//! process is in one at or below that. Containers may see their own group at the mount point while
//! `/proc/self/cgroup` tells its path outside, which is why the two are compared. What cannot be
//! found or read is left out.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::parse::{self, Groups, Mount};
use super::platform;

/// Where the older hierarchies and the unified one are when no file says so, under the root.
const USUAL_FOLDER: &str = "sys/fs/cgroup";

#[derive(Debug)]
pub(super) struct Place {
    /// Folders from the own group up to the mount point, of the unified hierarchy and of two older
    /// ones.
    unified: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
    cpuset: Vec<PathBuf>,
    status: PathBuf,
    account: Account,
}

/// Who keeps count of the processor time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Account {
    /// `cpu.stat` of the own group in the unified hierarchy.
    Unified(PathBuf),
    /// `cpuacct.usage` of the own group in an older one.
    Split(PathBuf),
    /// `/proc/self/stat`, for this process alone.
    Process(PathBuf),
    /// The system, asked by a call, for this process alone.
    System,
}

impl Place {
    /// Looks for the files below `root`, which is `/` outside of tests.
    pub(super) fn find(root: &Path) -> Self {
        let own = root.join("proc/self");
        let groups = read(&own.join("cgroup")).unwrap_or_default();
        let groups = Groups::parse(&groups);
        let mounts = read(&own.join("mountinfo")).unwrap_or_default();
        let mounts = Mount::parse_all(&mounts);
        let folders = |group: Option<&str>, is_it: &dyn Fn(&Mount) -> bool, usual: &[&str]| {
            let Some(group) = group else {
                return Vec::new();
            };
            let mounted = || mounts.iter().filter(|mount| is_it(mount));
            let visible = mounted().find_map(|mount| {
                let (point, rest) = (below(root, &mount.point), below_mount(group, mount)?);
                point.join(&rest).is_dir().then_some((point, rest))
            });
            // The own group may be hidden, and what is mounted is then the nearest to it.
            let nearest = || {
                let mut points = mounted().map(|mount| below(root, &mount.point));
                points
                    .find(|point| point.is_dir())
                    .map(|point| (point, PathBuf::new()))
            };
            let by_custom = || {
                let mut points = usual.iter().map(|name| root.join(USUAL_FOLDER).join(name));
                points
                    .find(|point| point.is_dir())
                    .map(|point| (point, relative(group)))
            };
            let found = visible.or_else(nearest).or_else(by_custom);
            found.map_or_else(Vec::new, |(point, rest)| upwards(&point, &rest))
        };
        let split = |controller: &str, usual: &[&str]| {
            folders(groups.of(controller), &|mount| mount.has(controller), usual)
        };

        let unified = folders(groups.unified, &Mount::is_unified, &["unified", ""]);
        let cpu = split("cpu", &["cpu", "cpu,cpuacct"]);
        let cpuset = split("cpuset", &["cpuset"]);
        let cpuacct = split("cpuacct", &["cpuacct", "cpu,cpuacct"]);
        // Where both generations are mounted, the older one has the controllers.
        let accounts = [
            cpuacct
                .first()
                .map(|own| Account::Split(own.join("cpuacct.usage"))),
            unified
                .first()
                .map(|own| Account::Unified(own.join("cpu.stat"))),
            Some(Account::Process(own.join("stat"))),
        ];
        let account = accounts
            .into_iter()
            .flatten()
            .find(|account| account.time().is_some());
        Place {
            unified,
            cpu,
            cpuset,
            status: own.join("status"),
            account: account.unwrap_or(Account::System),
        }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// How many processors this process may use: the least of all quotas and sets on the way up
    /// from its group, and of the processors it may run on.
    pub(super) fn limit(&self) -> f64 {
        let quotas = self
            .unified
            .iter()
            .filter_map(|folder| parse::quota(&read(&folder.join("cpu.max"))?));
        let cfs_quotas = self.cpu.iter().filter_map(|folder| {
            let quota = read(&folder.join("cpu.cfs_quota_us"))?;
            parse::cfs_quota(&quota, &read(&folder.join("cpu.cfs_period_us"))?)
        });
        let sets = self
            .unified
            .iter()
            .map(|folder| folder.join("cpuset.cpus.effective"));
        let older_sets = self.cpuset.iter().map(|folder| {
            let effective = folder.join("cpuset.effective_cpus");
            if effective.exists() {
                effective
            } else {
                folder.join("cpuset.cpus")
            }
        });
        let sets = sets
            .chain(older_sets)
            .filter_map(|file| parse::listed(&read(&file)?));
        let allowed = read(&self.status).and_then(|status| parse::allowed(&status));
        let processors = sets.chain(allowed).min();
        let processors = processors.unwrap_or_else(platform::processors) as f64;
        quotas.chain(cfs_quotas).fold(processors, f64::min)
    }
}

impl Account {
    /// The processor time up to now.
    pub(super) fn time(&self) -> Option<Duration> {
        match self {
            Account::Unified(file) => parse::unified_time(&read(file)?),
            Account::Split(file) => parse::accounted_time(&read(file)?),
            Account::Process(file) => {
                let ticks = parse::process_ticks(&read(file)?)?;
                let seconds = ticks as f64 / platform::ticks_per_second() as f64;
                Duration::try_from_secs_f64(seconds).ok()
            }
            Account::System => platform::process_time(),
        }
    }
}

/// The content of a file. Names in it (of programs, of mount points) may be any bytes, and must not keep
/// the rest from being read.
fn read(file: &Path) -> Option<String> {
    let content = fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// A path of the system's, below the root.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(relative(path))
}

/// Without what would lead out of the folder that it is joined to.
fn relative(path: &str) -> PathBuf {
    let components = Path::new(path).components();
    components
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// The way from the mount point to the group; `None` when the group is not below what is mounted
/// there, as one outside of the own namespace is.
fn below_mount(group: &str, mount: &Mount) -> Option<PathBuf> {
    let rest = Path::new(group).strip_prefix(&mount.root).ok()?;
    let stays_inside = rest
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    stays_inside.then(|| rest.to_owned())
}

/// The folder at `rest` below `point` and those above it, down to `point` itself.
fn upwards(point: &Path, rest: &Path) -> Vec<PathBuf> {
    rest.ancestors().map(|rest| point.join(rest)).collect()
}
