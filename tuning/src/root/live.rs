//! Facts of the running box that stand in no file, as texts that a recording can hold.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Unread, Why, napi};

/// The kernel's own mark of its threads, in the flags of `/proc/PID/stat`: `PF_KTHREAD`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Where programs for root live, which others may run, but do not find.
const PLACES: [&str; 3] = ["", "/usr/sbin/", "/sbin/"];

/// What a program prints, if it ends well. Without a shell, without input.
pub(super) fn program(name: &str, arguments: &[&str]) -> Result<String, Unread> {
    let line = format!("{name} {}", arguments.join(" "));
    let unread = |why| Unread { path: line.clone(), why };
    for place in PLACES {
        let run =
            Command::new(format!("{place}{name}")).args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
        match run {
            Ok(output) if output.status.success() => {
                return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(unread(Why::Failed(said.lines().next().unwrap_or("failed").trim().to_owned())));
            }
            // So it is told, too, where a directory on the way may not be looked into.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(unread(Why::Failed(error.to_string()))),
        }
    }
    Err(unread(Why::Failed(format!("there is no program {name} here: install it"))))
}

pub(super) fn ethtool(option: char, interface: &str) -> Result<String, Unread> {
    // The program takes no `--`, so a name must not look like an option.
    if interface.starts_with('-') {
        return Err(Unread::malformed(interface, "no name for a program's argument"));
    }
    program("ethtool", &[&format!("-{option}"), interface])
}

pub(super) fn napis(interface: &str) -> Result<String, Unread> {
    let path = format!("sys/class/net/{interface}/ifindex");
    let index = fs::read_to_string(format!("/{path}")).map_err(|error| Unread::of(&path, &error))?;
    let index = index.trim().parse().map_err(|_| Unread::malformed(&path, "no number"))?;
    let found = napi::napis(index).map(|text| text.trim().to_owned());
    found.map_err(|error| Unread::of(&format!("netdev napi-get {interface}"), &error))
}

pub(super) fn space(directory: &Path) -> Result<String, Unread> {
    let name = directory.display().to_string();
    // A journal's directory is made at the start: what is above it tells.
    let above = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let stat = rustix::fs::statvfs(above).map_err(|error| Unread::of(&name, &error.into()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(format!("{} {}", bytes(stat.f_bavail), bytes(stat.f_blocks)))
}

pub(super) fn dma_latency() -> Result<String, Unread> {
    let path = "dev/cpu_dma_latency";
    let mut bytes = [0; 4];
    let read = fs::File::open("/dev/cpu_dma_latency").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| i32::from_ne_bytes(bytes).to_string()).map_err(|error| Unread::of(path, &error))
}

pub(super) fn may_hold_awake() -> Result<String, Unread> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    use rustix::io::Errno;
    match accessat(CWD, "/dev/cpu_dma_latency", Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => Ok("yes".to_owned()),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok("no".to_owned()),
        Err(error) => Err(Unread::of("dev/cpu_dma_latency", &error.into())),
    }
}

pub(super) fn first_devices() -> Result<String, Unread> {
    // devtmpfs has a node as soon as there is its device, and this one at the very start; writing to it leaves its time alone.
    let path = "dev/null";
    let unread = |error: std::io::Error| Unread::of(path, &error);
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(unread)?;
    let is_kernels = |line: &str| line.split(' ').nth(4) == Some("/dev") && line.contains(" - devtmpfs ");
    if !mounts.lines().any(is_kernels) {
        return Err(Unread::malformed(
            "dev",
            "not made by the kernel, so it does not tell when the kernel was started",
        ));
    }
    fs::metadata("/dev/null").map(|node| node.mtime().to_string()).map_err(unread)
}

/// `MSR_SMI_COUNT` of Intel's processors since Nehalem (SDM volume 4); others refuse it.
const SMI_COUNT: u64 = 0x34;

pub(super) fn firmware_interrupts(core: usize) -> Result<String, Unread> {
    let path = format!("dev/cpu/{core}/msr");
    let mut bytes = [0; 8];
    let read = fs::File::open(format!("/{path}")).and_then(|file| file.read_exact_at(&mut bytes, SMI_COUNT));
    // The count is the lower half.
    let count = u64::from_le_bytes(bytes) & u64::from(u32::MAX);
    read.map(|()| count.to_string()).map_err(|error| Unread::of(&path, &error))
}

pub(super) fn threads(names: &[&str]) -> Result<String, Unread> {
    let all = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default().trim().to_owned();
    let processes = fs::read_dir("/proc").map_err(|error| Unread::of("proc", &error))?;
    let mut lines = Vec::new();
    for process in processes.flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let leader = comm(&process.path());
        // Whoever ends meanwhile is of no interest any more.
        let Ok(tasks) = fs::read_dir(process.path().join("task")) else { continue };
        for task in tasks.flatten() {
            let Some((is_kernel, policy, cores)) = standing(&task.path()) else { continue };
            let name = comm(&task.path());
            let is_one = !cores.contains([',', '-']);
            if is_kernel {
                // A pool's workers come and go; rescuers wait for a day on which memory is short.
                let pool = name.split(':').next().unwrap_or(&name);
                if !is_one && !pool.starts_with("kworker/R-") {
                    lines.push(format!("0 kernel {policy} {cores} {pool} {pool}"));
                }
            } else if cores != all || names.contains(&name.as_str()) {
                lines.push(format!("{number} user {policy} {cores} {leader} {name}"));
            }
        }
    }
    lines.sort_unstable();
    lines.dedup();
    Ok(lines.join("\n"))
}

fn comm(path: &Path) -> String {
    let name = fs::read(path.join("comm")).unwrap_or_default();
    let name: String =
        String::from_utf8_lossy(&name).trim().chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
    if name.is_empty() { "?".to_owned() } else { name }
}

/// Whether a thread is the kernel's, its policy, and the cores it may run on.
fn standing(task: &Path) -> Option<(bool, &'static str, String)> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // Fields after the name in parentheses begin with the third; flags and policy are the 9th and the 41st.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let flags: u64 = fields.nth(9 - 3)?.parse().ok()?;
    let policy = match fields.nth(41 - 9 - 1)? {
        "0" => "other",
        "1" => "fifo",
        "2" => "rr",
        "3" => "batch",
        "5" => "idle",
        "6" => "deadline",
        _ => "unknown",
    };
    let status = fs::read_to_string(task.join("status")).ok()?;
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
    Some((flags & KERNEL_THREAD != 0, policy, cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_or_may_not_be_run_is_to_be_installed() {
        for name in ["no-such-program", "/etc/passwd"] {
            let unread = program(name, &["-x"]).unwrap_err();
            assert!(unread.to_string().ends_with(&format!("there is no program {name} here: install it")), "{unread}");
        }
        assert_eq!(program("true", &[]), Ok(String::new()));
        assert!(program("false", &[]).is_err());
    }
}
