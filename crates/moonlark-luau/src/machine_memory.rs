//! The memory of this machine or container.

use std::path::Path;

/// What is assumed where the system does not say.
const ASSUMED_MACHINE_BYTES: u64 = 8 << 30;

/// The memory of the machine, or less where a control group sets a limit.
pub(crate) fn machine_memory_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let physical = read(Path::new("/proc/meminfo")).and_then(|text| meminfo_total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limit = cgroup_limit_bytes(&groups, read);
    physical.into_iter().chain(limit).min().unwrap_or(ASSUMED_MACHINE_BYTES)
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest limit of the process's groups and of those above them. `groups` is the
/// text of `/proc/self/cgroup`: `0::/path` for version 2, `4:memory:/path` for version 1.
fn cgroup_limit_bytes(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or("-"), parts.next().unwrap_or("/"));
        let (root, file) = if controllers.is_empty() {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        } else if controllers.split(',').any(|it| it == "memory") {
            (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")
        } else {
            return Vec::new();
        };
        // In a container the path may be the host's, which is not there: what is at the
        // root holds then.
        let folder = Path::new(path.trim_start_matches('/'));
        let limit = |folder: &Path| read(&root.join(folder).join(file))?.trim().parse::<u64>().ok();
        folder.ancestors().filter_map(limit).collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(groups: &str, files: &[(&str, &str)], expected: Option<u64>) {
        let read = |path: &Path| {
            let path = path.strip_prefix("/sys/fs/cgroup").unwrap();
            files
                .iter()
                .find(|(name, _)| path == Path::new(name))
                .map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(cgroup_limit_bytes(groups, read), expected, "{groups:?}");
    }

    #[test]
    fn the_lowest_limit_of_the_groups_above_a_process_holds() {
        check("0::/a/b\n", &[], None);
        check("0::/a/b\n", &[("a/b/memory.max", "max\n")], None);
        let two =
            [("a/b/memory.max", "max\n"), ("a/memory.max", "1000\n"), ("memory.max", "2000\n")];
        check("0::/a/b\n", &two, Some(1000));
        check("0::/\n", &two, Some(2000));
        check("0::/of/the/host\n", &two, Some(2000));
        let one = [
            ("memory/x/memory.limit_in_bytes", "700\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        check("5:cpu:/x\n4:hugetlb,memory:/x\n", &one, Some(700));
        check("4:memory:/of/the/host\n0::/\n", &one, Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn the_memory_of_the_machine_is_read_in_kilobytes() {
        assert_eq!(meminfo_total("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 * 1024));
        assert_eq!(meminfo_total(""), None);
        assert!(machine_memory_bytes() > 1 << 20);
    }
}
