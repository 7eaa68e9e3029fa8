//! What the kernel's text files about processors say.
//!
//! Pure functions of a file's content. What is not in the form that the kernel writes is `None`, or
//! a line that is passed over; nothing here panics or takes memory beyond the size of the text.

use std::time::Duration;

/// The groups that a process is in, of `/proc/<pid>/cgroup`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Groups<'a> {
    /// Its path in the unified hierarchy.
    pub(super) unified: Option<&'a str>,
    /// Of each older hierarchy the controllers, between commas, and its path there.
    pub(super) split: Vec<(&'a str, &'a str)>,
}

impl<'a> Groups<'a> {
    /// Lines are `number:controllers:path`; without controllers it is the unified hierarchy.
    pub(super) fn parse(text: &'a str) -> Self {
        let mut groups = Groups::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            // A group that was removed with the process still in it.
            let path = path.strip_suffix(" (deleted)").unwrap_or(path);
            match controllers {
                _ if !path.starts_with('/') => {}
                "" => groups.unified = Some(path),
                _ => groups.split.push((controllers, path)),
            }
        }
        groups
    }

    /// The path in the older hierarchy of this controller.
    pub(super) fn of(&self, controller: &str) -> Option<&'a str> {
        let mut split = self.split.iter();
        split.find_map(|(names, path)| has_word(names, controller).then_some(*path))
    }
}

/// Where a hierarchy of groups can be seen, of `/proc/<pid>/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The group that is at the mount point.
    pub(super) root: String,
    pub(super) point: String,
    /// The options of an older hierarchy, its controllers among them; `None` for the unified one.
    controllers: Option<String>,
}

impl Mount {
    /// Lines are `id parent device root point options [fields…] - type source options`.
    pub(super) fn parse_all(text: &str) -> Vec<Mount> {
        text.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Mount> {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let controllers = match system.next()? {
            "cgroup2" => None,
            "cgroup" => Some(system.nth(1)?.to_owned()),
            _ => return None,
        };
        let mut mount = mount.split(' ').skip(3);
        Some(Mount {
            root: unescape(mount.next()?)?,
            point: unescape(mount.next()?)?,
            controllers,
        })
    }

    /// Whether it is the unified hierarchy.
    pub(super) fn is_unified(&self) -> bool {
        self.controllers.is_none()
    }

    /// Whether it is the older hierarchy of this controller.
    pub(super) fn has(&self, controller: &str) -> bool {
        let controllers = self.controllers.as_deref();
        controllers.is_some_and(|names| has_word(names, controller))
    }
}

fn has_word(list: &str, word: &str) -> bool {
    list.split(',').any(|one| one == word)
}

/// The kernel writes blanks and backslashes of paths as `\` and three octal digits.
fn unescape(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        (bytes, rest) = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                (bytes, tail)
            }
            _ => {
                bytes.push(*first);
                (bytes, tail)
            }
        };
    }
    String::from_utf8(bytes).ok()
}

/// Processors that the quota in `cpu.max` is worth, as in `150000 100000`; `None` for `max`.
pub(super) fn quota(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    worth(quota, period)
}

/// Processors that `cpu.cfs_quota_us` and `cpu.cfs_period_us` are worth; `None` for a quota of -1.
pub(super) fn cfs_quota(quota: &str, period: &str) -> Option<f64> {
    worth(quota, period)
}

fn worth(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (number(quota)?, number(period)?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// How many processors a list such as `0-3,8` names.
pub(super) fn listed(list: &str) -> Option<u64> {
    let mut count = 0_u64;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let beyond_first = number(last)?.checked_sub(number(first)?)?;
        count = count.saturating_add(beyond_first).saturating_add(1);
    }
    Some(count)
}

/// How many processors the process may run on, by `/proc/<pid>/status`.
pub(super) fn allowed(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    lines.find_map(|line| listed(line.strip_prefix("Cpus_allowed_list:")?))
}

/// Processor time by `cpu.stat`.
pub(super) fn unified_time(cpu_stat: &str) -> Option<Duration> {
    let mut lines = cpu_stat.lines();
    let micros = lines.find_map(|line| line.strip_prefix("usage_usec "));
    micros.and_then(number).map(Duration::from_micros)
}

/// Processor time by `cpuacct.usage`.
pub(super) fn accounted_time(usage: &str) -> Option<Duration> {
    number(usage).map(Duration::from_nanos)
}

/// Ticks that the process has run, by `/proc/<pid>/stat`: in its own code and in the kernel's, its
/// children left out.
pub(super) fn process_ticks(stat: &str) -> Option<u64> {
    // The second field is a name in brackets, which may itself have blanks and brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    // The first of these is the third, the state; the two wanted are the 14th and the 15th.
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system) = (number(fields.next()?)?, number(fields.next()?)?);
    Some(user.saturating_add(system))
}

/// Digits only: `+5` is a number to Rust, but not to the kernel.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn groups_of_both_generations() {
        let groups = Groups::parse(
            "12:cpu,cpuacct:/docker/4f\n3:cpuset:/\n1:name=systemd:/a:b\n0::/app.service (deleted)\nx\n7:pids:nowhere\n",
        );
        assert_eq!(groups.unified, Some("/app.service"));
        assert_eq!(groups.of("cpu"), Some("/docker/4f"));
        assert_eq!(groups.of("cpuacct"), Some("/docker/4f"));
        assert_eq!(groups.of("cpuset"), Some("/"));
        assert_eq!(groups.of("name=systemd"), Some("/a:b"));
        assert_eq!((groups.of("pids"), groups.of("acct")), (None, None));
    }

    #[test]
    fn mounts_of_both_generations() {
        let mounts = Mount::parse_all(
            "24 1 0:22 / /proc rw - proc proc rw\n\
             30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n\
             31 23 0:27 /docker/4f /a\\040b\\134 rw - cgroup cgroup rw,cpu,cpuacct\n\
             broken - cgroup\n",
        );
        assert_eq!(mounts.len(), 2);
        assert!(mounts[0].is_unified() && !mounts[0].has("cpu"));
        assert_eq!(
            (&*mounts[0].root, &*mounts[0].point),
            ("/", "/sys/fs/cgroup")
        );
        assert!(mounts[1].has("cpuacct") && mounts[1].has("cpu") && !mounts[1].has("cpuset"));
        assert_eq!(
            (&*mounts[1].root, &*mounts[1].point),
            ("/docker/4f", "/a b\\")
        );
    }

    #[test]
    fn quotas() {
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!(quota("max 100000\n"), None);
        for text in ["", "max", "1", "1 0", "0 1", "-1 100000", "1 2 3", "+1 2"] {
            assert_eq!(quota(text), None, "{text}");
        }
        assert_eq!(cfs_quota("50000\n", "100000\n"), Some(0.5));
        assert_eq!(cfs_quota("-1\n", "100000\n"), None);
    }

    #[test]
    fn lists_of_processors() {
        for (text, count) in [("0\n", 1), ("0-3", 4), ("0,2-3,8-15\n", 11), ("5-5", 1)] {
            assert_eq!(listed(text), Some(count), "{text}");
        }
        for text in ["", "\n", "3-1", "1-", "-1", "a", "1,,2", "0-3,"] {
            assert_eq!(listed(text), None, "{text}");
        }
        assert_eq!(listed("0-18446744073709551615,7"), Some(u64::MAX));
        assert_eq!(
            allowed("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1\n"),
            Some(2)
        );
    }

    #[test]
    fn times() {
        let stat = "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n";
        assert_eq!(unified_time(stat), Some(Duration::from_millis(2500)));
        assert_eq!(unified_time("user_usec 1\n"), None);
        assert_eq!(accounted_time("123\n"), Some(Duration::from_nanos(123)));
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 9 9 20 0 4 0 100 1 1";
        assert_eq!(process_ticks(stat), Some(300));
        assert_eq!(process_ticks("7 (a) S 1 7 7 0 -1"), None);
    }

    /// Lines that look like the real ones, and any others.
    fn content() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("max 100000".to_owned()),
            Just("0::/".to_owned()),
            Just("usage_usec ".to_owned()),
            Just("Cpus_allowed_list:\t".to_owned()),
            Just("1 2 3 / /sys rw - cgroup2 ".to_owned()),
            Just("1 2 3 / /sys rw - cgroup a cpu,".to_owned()),
            Just("\\".to_owned()),
            Just("0-".to_owned()),
            Just(")".to_owned()),
            Just("\n".to_owned()),
            any::<u64>().prop_map(|number| format!("{number}")),
            any::<u64>().prop_map(|number| format!("-{number},")),
            any::<String>(),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// No content makes a parser panic, and what comes out can be divided by.
        #[test]
        fn no_content_does_harm(text in content(), other in content()) {
            let groups = Groups::parse(&text);
            let paths = groups.split.iter().map(|(_, path)| *path).chain(groups.unified);
            prop_assert!(paths.into_iter().all(|path| path.starts_with('/')));
            Mount::parse_all(&text);
            for processors in [quota(&text), cfs_quota(&text, &other)].into_iter().flatten() {
                prop_assert!(processors.is_finite() && processors > 0.0);
            }
            prop_assert!(listed(&text) != Some(0) && allowed(&text) != Some(0));
            unified_time(&text);
            accounted_time(&text);
            process_ticks(&text);
        }

        #[test]
        fn lists_count_what_they_name(
            ranges in prop::collection::vec((1_u64..9, 0_u64..9), 1..20),
        ) {
            let (mut next, mut count) = (0, 0);
            let mut words = Vec::new();
            for (gap, beyond_first) in ranges {
                let (first, last) = (next + gap, next + gap + beyond_first);
                words.push(match beyond_first {
                    0 => format!("{first}"),
                    _ => format!("{first}-{last}"),
                });
                (next, count) = (last + 1, count + beyond_first + 1);
            }
            prop_assert_eq!(listed(&words.join(",")), Some(count));
        }
    }
}
