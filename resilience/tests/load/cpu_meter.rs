//! `CpuMeter` on trees of files as systemd, containers and bare machines have them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use wheelhouse_resilience::{CpuMeter, CpuSource};

/// A folder that stands for `/` and is gone at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wheelhouse-cpu-{}-{number}", std::process::id());
        let tree = Tree(std::env::temp_dir().join(name));
        fs::create_dir_all(&tree.0).unwrap();
        for (path, content) in files {
            tree.write(path, content);
        }
        tree
    }

    fn write(&self, path: &str, content: &str) {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    fn remove(&self, folder: &str) {
        fs::remove_dir_all(self.0.join(folder)).unwrap();
    }

    fn meter(&self) -> CpuMeter {
        CpuMeter::at_root(&self.0)
    }

    /// The usage over `wall`, within which the file `account` goes from `before` to `after`.
    #[track_caller]
    fn measures(&self, account: &str, before: &str, after: &str, wall: Duration, usage: f64) {
        let mut meter = self.meter();
        let start = Instant::now();
        self.write(account, before);
        assert_eq!(meter.usage_at(start), None);
        self.write(account, after);
        let measured = meter.usage_at(start + wall).expect("there is an interval");
        assert!(
            (measured - usage).abs() <= usage / 1000.0,
            "{measured} for {usage}, {meter:?}"
        );
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SECOND: Duration = Duration::from_secs(1);
const QUARTER: Duration = Duration::from_millis(250);
const UNIFIED: &str =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const FOUR: &str = "Name:\tapp\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n";

#[test]
fn r47_service_of_systemd() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/system.slice/app.service\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
        ("sys/fs/cgroup/cpu.stat", "usage_usec 999999999\n"),
        ("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n"),
        (
            "sys/fs/cgroup/system.slice/app.service/cpu.max",
            "150000 100000\n",
        ),
        (
            "sys/fs/cgroup/system.slice/app.service/cpu.stat",
            "usage_usec 0\n",
        ),
    ]);
    assert_eq!(tree.meter().limit(), 1.5);
    tree.measures(
        "sys/fs/cgroup/system.slice/app.service/cpu.stat",
        "usage_usec 1000000\nuser_usec 1\n",
        "usage_usec 1123456\nuser_usec 2\n",
        QUARTER,
        0.123456 / (0.25 * 1.5),
    );
}

/// Inside, its own group is the root of what it sees.
#[test]
fn r47_container_with_a_namespace() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/cpuset.cpus.effective", "0-1\n"),
        ("sys/fs/cgroup/cpu.stat", "usage_usec 0\n"),
    ]);
    assert_eq!(tree.meter().limit(), 0.5);
    let (before, after) = ("usage_usec 7\n", "usage_usec 500007\n");
    tree.measures("sys/fs/cgroup/cpu.stat", before, after, SECOND, 1.0);
}

/// The path is that outside, and what is mounted is the own group.
#[test]
fn r47_container_of_the_older_kind() {
    let tree = Tree::new(&[
        (
            "proc/self/cgroup",
            "5:cpuset:/docker/4f\n4:cpu,cpuacct:/docker/4f\n1:name=systemd:/docker/4f\n",
        ),
        (
            "proc/self/mountinfo",
            "33 31 0:29 /docker/4f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
             34 31 0:30 /docker/4f /sys/fs/cgroup/cpuset ro master:3 - cgroup cgroup rw,cpuset\n",
        ),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "0\n"),
        ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-2\n"),
    ]);
    assert_eq!(tree.meter().limit(), 2.0);
    let account = "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage";
    tree.measures(account, "5000000000\n", "5250000001\n", QUARTER, 0.5);
}

/// The older hierarchies have the controllers, the unified one only counts.
#[test]
fn r47_both_generations_mounted() {
    let tree = Tree::new(&[
        (
            "proc/self/cgroup",
            "9:name=systemd:/app\n3:cpuset:/\n2:cpuacct:/app\n1:cpu:/app\n0::/app\n",
        ),
        (
            "proc/self/mountinfo",
            "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
             33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
             34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        ),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "75000\n"),
        ("sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "50000\n"),
        ("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0,2\n"),
        ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-63\n"),
        ("sys/fs/cgroup/cpuacct/app/cpuacct.usage", "1\n"),
        ("sys/fs/cgroup/unified/app/cpu.stat", "usage_usec 5\n"),
    ]);
    assert_eq!(tree.meter().limit(), 1.5);
    tree.measures(
        "sys/fs/cgroup/cpuacct/app/cpuacct.usage",
        "0",
        "1500000000",
        SECOND,
        1.0,
    );
    // Where only the unified one counts, it does.
    tree.remove("sys/fs/cgroup/cpuacct");
    let account = "sys/fs/cgroup/unified/app/cpu.stat";
    tree.measures(account, "usage_usec 0", "usage_usec 750000", SECOND, 0.5);
}

/// The limit of a group holds for all below it.
#[test]
fn r47_nested_groups() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/kubepods/pod7/c1/worker\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/kubepods/cpu.max", "700000 100000\n"),
        ("sys/fs/cgroup/kubepods/pod7/cpu.max", "250000 1000000\n"),
        ("sys/fs/cgroup/kubepods/pod7/c1/cpu.max", "300000 100000\n"),
        (
            "sys/fs/cgroup/kubepods/pod7/c1/cpuset.cpus.effective",
            "1\n",
        ),
        (
            "sys/fs/cgroup/kubepods/pod7/c1/worker/cpu.stat",
            "usage_usec 0\n",
        ),
    ]);
    assert_eq!(tree.meter().limit(), 0.25);
    let account = "sys/fs/cgroup/kubepods/pod7/c1/worker/cpu.stat";
    tree.measures(account, "usage_usec 0\n", "usage_usec 50000\n", SECOND, 0.2);
    // The older kind, without a mount table.
    let tree = Tree::new(&[
        ("proc/self/cgroup", "4:cpu,cpuacct:/a/b\n"),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n"),
        (
            "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us",
            "100000\n",
        ),
        ("sys/fs/cgroup/cpu,cpuacct/a/b/cpuacct.usage", "0\n"),
    ]);
    assert_eq!(tree.meter().limit(), 1.0);
    let account = "sys/fs/cgroup/cpu,cpuacct/a/b/cpuacct.usage";
    tree.measures(account, "0\n", "333000000\n", SECOND, 0.333);
}

/// Without a quota, and with one of "max", the processors are the limit: of the set or those that the
/// process may run on, whichever are fewer.
#[test]
fn r47_no_quota() {
    let group = "sys/fs/cgroup/user.slice/session-1.scope";
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/user.slice/session-1.scope\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        (&format!("{group}/cpu.stat"), "usage_usec 0\n"),
    ]);
    assert_eq!(tree.meter().limit(), 4.0);
    tree.measures(
        &format!("{group}/cpu.stat"),
        "usage_usec 0",
        "usage_usec 3000000",
        SECOND,
        0.75,
    );
    for content in ["max 100000\n", "max\n", "", "0 0\n", "\u{0}", "100000\n"] {
        tree.write(&format!("{group}/cpu.max"), content);
        assert_eq!(tree.meter().limit(), 4.0, "{content:?}");
    }
    tree.write("sys/fs/cgroup/cpuset.cpus.effective", "4-5,7\n");
    assert_eq!(tree.meter().limit(), 3.0);
    tree.write("proc/self/status", "Cpus_allowed_list:\t5\n");
    assert_eq!(tree.meter().limit(), 1.0);
}

#[test]
fn r47_bare_machine_without_groups_of_its_own() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/cpu.stat", "usage_usec 0\n"),
    ]);
    tree.measures(
        "sys/fs/cgroup/cpu.stat",
        "usage_usec 10",
        "usage_usec 1000010",
        QUARTER,
        1.0,
    );
}

/// A program, a group and a mount point have names of any bytes, which are no text: what else is in the
/// same files counts all the same.
#[cfg(unix)]
#[test]
fn names_that_are_no_text_do_not_hide_the_rest() {
    let tree = Tree::new(&[("sys/fs/cgroup/app/cpu.max", "150000 100000\n")]);
    let write = |path: &str, content: &[u8]| {
        tree.write(path, "");
        fs::write(tree.0.join(path), content).unwrap();
    };
    write("proc/self/cgroup", b"1:name=\xff:/\xfe\n0::/app\n");
    let disk = b"29 23 8:1 / /media/\xe9t\xe9 rw - ext4 /dev/sdb1 rw\n".as_slice();
    write("proc/self/mountinfo", &[disk, UNIFIED.as_bytes()].concat());
    write(
        "proc/self/status",
        b"Name:\t\xff\xfe\nCpus_allowed_list:\t0-3\n",
    );
    assert_eq!(tree.meter().limit(), 1.5);
    // Without a quota the processors that it may run on, and without an account its own time.
    tree.write("sys/fs/cgroup/app/cpu.max", "max 100000\n");
    assert_eq!(tree.meter().limit(), 4.0);
    let stat = |ticks: u64| {
        [
            b"7 (\xff) S 1 7 7 0 -1 4194304 1 0 0 0 ".as_slice(),
            format!("{ticks} 0 0 0").as_bytes(),
        ]
        .concat()
    };
    write("proc/self/stat", &stat(0));
    let (mut meter, start) = (tree.meter(), Instant::now());
    assert_eq!(meter.usage_at(start), None);
    write("proc/self/stat", &stat(200));
    assert!(
        meter
            .usage_at(start + SECOND)
            .is_some_and(|usage| (0.1..1.1).contains(&usage))
    );
}

/// The account of a group that comes and goes, turns to garbage, and goes back: unknown while it is, and
/// exact again once two readings of it follow each other.
#[test]
fn an_account_that_vanishes_or_lies_is_unknown_and_comes_back() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/app\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/app/cpu.stat", "usage_usec 0\n"),
    ]);
    let account = "sys/fs/cgroup/app/cpu.stat";
    let mut meter = tree.meter();
    let mut now = Instant::now();
    let mut used = 1_000_000_000_u64;
    meter.usage_at(now);
    let garbage = [
        "",
        "usage_usec",
        "usage_usec -1\n",
        "usage_usec 1e9\n",
        "usage_usec 99999999999999999999\n",
        "\0\0\0",
    ];
    for round in 0..3 * garbage.len() {
        now += SECOND;
        match round % 3 {
            0 => tree.write(account, garbage[round / 3]),
            1 => fs::remove_file(tree.0.join(account)).unwrap(),
            // Set back, as that of a new group with the old name is.
            _ => tree.write(account, "usage_usec 5\n"),
        }
        let usage = meter.usage_at(now);
        assert!(
            usage.is_none_or(|usage| (0.0..=4.0).contains(&usage)),
            "{usage:?}"
        );
        // Two seconds of each second, of four processors.
        for reading in 0..3 {
            now += SECOND;
            used += 2_000_000;
            tree.write(account, &format!("usage_usec {used}\n"));
            let usage = meter.usage_at(now);
            // The first of them may be the beginning, or compared with what lied.
            assert!(reading < 2 || usage == Some(0.5), "{round}: {usage:?}");
        }
        used += 1_000_000_000;
    }
}

/// Of several mounts that one counts which shows the own group; a group that none shows is looked
/// for no further than the mount point.
#[test]
fn mounts_that_hide_the_group() {
    let other = "29 23 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw\n";
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/app\n"),
        ("proc/self/mountinfo", &format!("{other}{UNIFIED}")),
        ("proc/self/status", FOUR),
        ("mnt/other/cpu.max", "10000 100000\n"),
        ("sys/fs/cgroup/app/cpu.max", "20000 100000\n"),
    ]);
    assert_eq!(tree.meter().limit(), 0.2);
    tree.write("proc/self/mountinfo", other);
    assert_eq!(tree.meter().limit(), 0.1);
    // Outside of the own namespace: never out of the folder.
    tree.write("proc/self/mountinfo", UNIFIED);
    tree.write("proc/self/cgroup", "0::/../../mnt/other\n");
    assert_eq!(tree.meter().limit(), 4.0);
}

#[test]
fn the_limit_is_read_again() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ("sys/fs/cgroup/cpu.stat", "usage_usec 0\n"),
    ]);
    let mut meter = tree.meter();
    let start = Instant::now();
    assert_eq!(meter.usage_at(start), None);
    tree.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
    tree.write("sys/fs/cgroup/cpu.stat", "usage_usec 4000000\n");
    assert_eq!(meter.usage_at(start + 4 * SECOND), Some(0.5));
    tree.write("sys/fs/cgroup/cpu.stat", "usage_usec 5000000\n");
    assert_eq!(meter.usage_at(start + 6 * SECOND), Some(0.5));
    assert_eq!(meter.limit(), 1.0);
    // A limit that the user has set stays.
    let mut fixed = tree.meter().with_limit(8.0).unwrap();
    assert_eq!(fixed.usage_at(start), None);
    tree.write("sys/fs/cgroup/cpu.stat", "usage_usec 45000000\n");
    assert_eq!(fixed.usage_at(start + 10 * SECOND), Some(0.5));
    assert_eq!(fixed.limit(), 8.0);
}

/// Moved to another group, the counts of the old one say nothing; and counts never go back.
#[test]
fn a_change_of_groups_begins_anew() {
    let tree = Tree::new(&[
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", UNIFIED),
        ("proc/self/status", FOUR),
        (
            "proc/self/stat",
            "1 (a) S 1 1 1 0 -1 0 0 0 0 0 100 0 0 0 20 0 1 0 1 1 1",
        ),
        ("sys/fs/cgroup/a/cpu.stat", "usage_usec 1000000\n"),
        ("sys/fs/cgroup/b/cpu.stat", "usage_usec 90000000\n"),
    ]);
    let mut meter = tree.meter();
    let start = Instant::now();
    let mut at = |seconds| meter.usage_at(start + seconds * SECOND);
    assert_eq!(at(0), None);
    tree.write("proc/self/cgroup", "0::/b\n");
    assert_eq!(at(6), None);
    tree.write("sys/fs/cgroup/b/cpu.stat", "usage_usec 94000000\n");
    assert_eq!(at(7), Some(1.0));
    tree.write("sys/fs/cgroup/b/cpu.stat", "usage_usec 1\n");
    assert_eq!(at(8), None);
    tree.write("sys/fs/cgroup/b/cpu.stat", "usage_usec 2000001\n");
    assert_eq!(at(9), Some(0.5));
    // Time that stands still or steps back changes nothing.
    assert_eq!(at(9), None);
    assert_eq!(at(3), None);
    tree.write("sys/fs/cgroup/b/cpu.stat", "usage_usec 4000001\n");
    assert_eq!(at(10), Some(0.5));
    // The group is removed: then the process's own time it is.
    tree.remove("sys/fs/cgroup");
    let process = |ticks: u32| {
        let stat = format!("1 (a) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 100 0 0 20 0 1 0 1 1 1");
        tree.write("proc/self/stat", &stat);
    };
    process(100);
    assert_eq!(at(11), None);
    process(300);
    assert_eq!(at(12), Some(0.5));

    // Also when that comes between two looks at where the process is.
    tree.write("sys/fs/cgroup/b/cpu.stat", "usage_usec 1\n");
    let mut meter = tree.meter();
    let mut at = |seconds| meter.usage_at(start + seconds * SECOND);
    assert_eq!((at(0), at(1)), (None, Some(0.0)));
    tree.remove("sys/fs/cgroup");
    assert_eq!((at(2), at(3)), (None, None));
    process(500);
    assert_eq!(at(4), Some(0.5));
}

#[test]
fn r48_no_groups() {
    let stat = |user: u32, system: u32| {
        format!("7 (a b) (c) R 1 7 7 0 -1 4194304 9 0 0 0 {user} {system} 0 0 20 0 4 0 100 1 1\n")
    };
    let tree = Tree::new(&[("proc/self/stat", &stat(0, 0)), ("proc/self/status", FOUR)]);
    assert_eq!(tree.meter().limit(), 4.0);
    tree.measures(
        "proc/self/stat",
        &stat(100, 50),
        &stat(180, 70),
        SECOND,
        0.25,
    );
    // In a group that there is nothing to read of.
    tree.write("proc/self/cgroup", "0::/app\n4:cpu,cpuacct:/app\n");
    tree.write("proc/self/mountinfo", UNIFIED);
    tree.measures(
        "proc/self/stat",
        &stat(100, 50),
        &stat(180, 70),
        SECOND,
        0.25,
    );

    // The user's limit works all the same.
    let mut meter = tree.meter().with_limit(0.5).unwrap();
    let start = Instant::now();
    assert_eq!(meter.usage_at(start), None);
    tree.write("proc/self/stat", &stat(200, 100));
    assert_eq!(meter.usage_at(start + SECOND), Some(1.0));
    for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = tree.meter().with_limit(limit).unwrap_err();
        assert_eq!(refused.argument(), "processors");
    }
}

/// Without any file the system says how much time the process has had.
#[cfg(unix)]
#[test]
fn r48_no_files_at_all() {
    let tree = Tree::new(&[]);
    let mut meter = tree.meter();
    assert!(meter.limit() >= 1.0);
    let start = Instant::now();
    assert_eq!(meter.usage_at(start), None);
    let mut rounds = 0_u64;
    while start.elapsed() < Duration::from_millis(50) {
        rounds = std::hint::black_box(rounds + 1);
    }
    let usage = meter
        .usage_at(Instant::now())
        .expect("there is an interval");
    assert!(usage > 0.0, "{usage} after {rounds} rounds");
}

/// On the machine at hand, whatever that is.
#[test]
fn the_real_files_do_no_harm() {
    let mut meter = CpuMeter::new();
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(
        meter.limit() > 0.0 && meter.limit() <= processors + 1.0,
        "{meter:?}"
    );
    let start = Instant::now();
    assert_eq!(meter.usage_at(start), None);
    assert!(
        meter
            .usage_at(start + SECOND)
            .is_none_or(|usage| usage >= 0.0)
    );
    assert!(Path::new("/").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is in the files, a meter is built, its limit can be divided by, and its usage is a
    /// number.
    #[test]
    fn no_content_does_harm(
        contents in prop::collection::vec(
            prop_oneof![
                any::<String>(),
                "[0-9]{1,20}( [0-9]{1,20})?\n?",
                "(usage_usec|Cpus_allowed_list:|0::/|1:cpu:/) ?[0-9a-z,./-]{0,30}\n",
                "1 2 3 /[a-z./]{0,9} /[a-z./]{0,9} rw - cgroup2? x (cpu|cpuset|rw),cpuacct\n",
            ],
            16,
        ),
    ) {
        let tree = Tree::new(&[]);
        let names = [
            "proc/self/cgroup", "proc/self/mountinfo", "proc/self/status", "proc/self/stat",
            "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu.stat",
            "sys/fs/cgroup/cpuset.cpus.effective", "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
        ];
        for (name, content) in names.iter().zip(&contents) {
            tree.write(name, content);
        }
        let mut meter = tree.meter();
        prop_assert!(meter.limit().is_finite() && meter.limit() > 0.0);
        let start = Instant::now();
        meter.usage_at(start);
        for (name, content) in names.iter().zip(&contents[8..]) {
            tree.write(name, content);
        }
        for wall in [SECOND, 10 * SECOND] {
            let usage = meter.usage_at(start + wall).unwrap_or(0.0);
            prop_assert!(usage.is_finite() && usage >= 0.0);
        }
    }
}
