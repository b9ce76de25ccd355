//! Threads on cores.

use std::ffi::CString;
use std::sync::OnceLock;
use std::{fmt, io};

use core_affinity::CoreId;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl;
use nix::unistd::Pid;
use thread_priority::{
    NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue,
    ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// What the kernel keeps of a thread's name, in bytes.
pub const NAME_BYTES_MAX: usize = 15;

/// Why a thread can't be pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinError {
    /// This process may not run there, or there is no such core.
    NotUsable {
        /// The core asked for.
        core: usize,
        /// The cores there are to choose from.
        usable: Vec<usize>,
    },
    /// The kernel refused all the same; the set of allowed cores has changed since the start.
    Refused(usize),
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PinError::NotUsable { core, usable } => {
                write!(f, "core {core} can't be used: this process may run on cores {}", list(usable))
            }
            PinError::Refused(core) => {
                write!(f, "the kernel refused core {core}: check the cpuset that this process runs in")
            }
        }
    }
}

impl std::error::Error for PinError {}

/// Cores in short form, as in `0-3,6`.
pub fn list(cores: &[usize]) -> String {
    let mut out = String::new();
    for run in cores.chunk_by(|a, b| a + 1 == *b) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let comma = if out.is_empty() { "" } else { "," };
        out += &if first == last { format!("{comma}{first}") } else { format!("{comma}{first}-{last}") };
    }
    out
}

/// The cores that this process may run on, ascending: what affinity and cpuset leave. Read once, at the first use of this
/// crate and before any thread is pinned through it, since a pinned thread sees but its own core.
pub fn usable_cores() -> Vec<usize> {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(read_usable_cores).clone()
}

fn read_usable_cores() -> Vec<usize> {
    let own = core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id);
    // A spawned thread may have been narrowed by somebody else; the main thread, as a rule, has not.
    let main = sched_getaffinity(Pid::this()).map(|set| members(&set)).unwrap_or_default();
    let mut cores: Vec<usize> = own.chain(main).collect();
    cores.sort_unstable();
    cores.dedup();
    // The kernel runs this very thread somewhere.
    if cores.is_empty() { vec![0] } else { cores }
}

fn members(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect()
}

/// Keeps the calling thread on `core` from now on.
///
/// # Errors
/// [`PinError`] when the core is not among [`usable_cores`], or the kernel refuses.
pub fn pin_current_thread(core: usize) -> Result<(), PinError> {
    let usable = usable_cores();
    if !usable.contains(&core) {
        return Err(PinError::NotUsable { core, usable });
    }
    if core_affinity::set_for_current(CoreId { id: core }) { Ok(()) } else { Err(PinError::Refused(core)) }
}

/// Lets the calling thread run on any of `cores`, and on no other, from now on.
///
/// # Errors
/// What the kernel says, where none of them may be used.
pub fn keep_to(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|&core| set.set(core))?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(io::Error::from)
}

/// While this lives, the thread that made it runs on a few cores only; after that, where it might before.
#[derive(Debug)]
pub struct KeptTo(CpuSet);

impl Drop for KeptTo {
    fn drop(&mut self) {
        // A core of before that has gone since is no loss.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.0);
    }
}

/// As [`keep_to`], as long as what is returned lives.
///
/// # Errors
/// What the kernel says, where none of them may be used.
pub fn keep_to_for_now(cores: &[usize]) -> io::Result<KeptTo> {
    // Where all may run is read before anybody is kept anywhere.
    usable_cores();
    let before = sched_getaffinity(Pid::from_raw(0))?;
    keep_to(cores)?;
    Ok(KeptTo(before))
}

/// How nice a thread is that stays behind: it gets about a quarter of a core that somebody else never leaves. Not less, as it holds
/// locks that others need now and then: of a directory, of the process's memory. `SCHED_IDLE` would keep them waiting for seconds.
/// It keeps ordinary time slices: a shorter one is an earlier deadline in the eyes of the scheduler, and brought nothing that could be
/// measured.
const BEHIND_NICE: i32 = 5;

/// Lets others go first wherever the calling thread and they want one core: they get most of it.
///
/// # Errors
/// What the kernel says.
pub fn stay_behind() -> io::Result<()> {
    set_nice(BEHIND_NICE)
}

/// Ends [`stay_behind`]: the calling thread gets its fair share again. Needs the right to lower a niceness.
///
/// # Errors
/// What the kernel says.
pub fn stand_level() -> io::Result<()> {
    set_nice(0)
}

/// While this lives its thread goes before every other of ordinary standing.
#[derive(Debug)]
pub struct GoesFirst {
    nice_before: i32,
}

impl Drop for GoesFirst {
    fn drop(&mut self) {
        // Who was let go first may always stand back. The crate sets a niceness along with the policy.
        let _ = set_policy(ThreadPriority::Min, ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other));
        let _ = set_nice(self.nice_before);
    }
}

/// The calling thread gets its core as soon as it wants it: `SCHED_FIFO`, the lowest of its priorities. For one that sleeps as soon as its
/// work is done: nothing else runs there until then, not even the kernel's workers that complete what a disk was asked. A low niceness is
/// no substitute: where sessions share cores out as groups (see [`groups_sessions`]), one thread that wakes every few microseconds with a
/// niceness of -20 was seen to keep all that is outside its group waiting for 50 ms at a time.
///
/// # Errors
/// What the kernel says: it needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of 1.
pub fn go_first() -> io::Result<GoesFirst> {
    set_fifo(ThreadPriority::Min)
}

/// The same at a priority of its own, from 1 to 99: it also goes before those of a lower one. The kernel's own threads for softirqs and
/// interrupts run at 50 where it has such.
///
/// # Errors
/// What the kernel says, as for [`go_first`], or that there is no such priority.
pub fn go_first_at(priority: u8) -> io::Result<GoesFirst> {
    let value = ThreadPriorityValue::try_from(priority).map_err(io::Error::other)?;
    set_fifo(ThreadPriority::Crossplatform(value))
}

fn set_fifo(priority: ThreadPriority) -> io::Result<GoesFirst> {
    // Of this thread alone, as everything about niceness here.
    let nice_before = rustix::process::getpriority_process(None)?;
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_policy(priority, fifo).map(|()| GoesFirst { nice_before })
}

fn set_policy(priority: ThreadPriority, policy: ThreadSchedulePolicy) -> io::Result<()> {
    set_thread_priority_and_policy(thread_native_id(), priority, policy).map_err(|error| match error {
        thread_priority::Error::OS(number) => io::Error::from_raw_os_error(number),
        other => io::Error::other(other),
    })
}

/// Whether the kernel shares cores out among sessions, whatever the number of their threads: `kernel.sched_autogroup_enabled`.
pub fn groups_sessions() -> bool {
    std::fs::read("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text.starts_with(b"1"))
}

/// On Linux the niceness is each thread's own.
fn set_nice(nice: i32) -> io::Result<()> {
    rustix::process::setpriority_process(None, nice).map_err(io::Error::from)
}

/// Names the calling thread, as `top -H` and `/proc` show it. Cut to [`NAME_BYTES_MAX`] bytes, and at a zero byte.
///
/// # Errors
/// What the kernel says.
pub fn name_current_thread(name: &str) -> io::Result<()> {
    let name = name.split('\0').next().unwrap_or_default();
    let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
    let name = CString::new(name).map_err(io::Error::other)?;
    prctl::set_name(&name).map_err(io::Error::from)
}

/// Lets others go first wherever the calling thread and they want one core; its children inherit it. 0 to 19, the higher the nicer.
///
/// # Errors
/// What the kernel says.
pub fn be_nice(by: i32) -> io::Result<()> {
    rustix::process::nice(by).map(|_| ()).map_err(io::Error::from)
}

/// Lets the calling thread's sleeps end on time: the kernel otherwise adds up to 50 µs to gather wakeups.
///
/// # Errors
/// What the kernel says.
pub fn sleep_precisely() -> io::Result<()> {
    prctl::set_timerslack(1).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn own_cores() -> Vec<usize> {
        members(&sched_getaffinity(Pid::from_raw(0)).unwrap())
    }

    #[test]
    fn a_pinned_thread_stays_on_its_core_and_the_usable_ones_remain() {
        let before = usable_cores();
        assert!(before.is_sorted() && !before.is_empty());
        for &core in &before {
            let (own, usable) = thread::spawn(move || {
                pin_current_thread(core).unwrap();
                (own_cores(), usable_cores())
            })
            .join()
            .unwrap();
            assert_eq!(own, [core]);
            assert_eq!(usable, before);
        }
    }

    #[test]
    fn a_thread_goes_first_until_it_stands_back() {
        // Fields after the name in parentheses begin with the third; priority, niceness and policy are the 18th, 19th and 41st.
        let standing = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields: Vec<String> = stat.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
            [fields[18 - 3].clone(), fields[19 - 3].clone(), fields[41 - 3].clone()]
        };
        thread::spawn(move || {
            // Whatever its niceness is by then.
            be_nice(3).unwrap();
            let before = standing();
            match go_first() {
                Ok(first) => {
                    assert_eq!(standing()[2], "1", "SCHED_FIFO");
                    drop(first);
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
            }
            assert_eq!(standing(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_priority_is_one_of_the_kernels() {
        thread::spawn(|| {
            for none in [0, 100] {
                assert!(go_first_at(none).is_err());
            }
            match go_first_at(7) {
                Ok(_first) => {
                    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
                    // Below zero by the priority and one more.
                    assert_eq!(stat.rsplit(')').next().unwrap().split_whitespace().nth(18 - 3), Some("-8"));
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_is_kept_to_its_cores_and_stays_behind_there() {
        let last = *usable_cores().last().unwrap();
        thread::spawn(move || {
            keep_to(&[last]).unwrap();
            assert_eq!(own_cores(), [last]);
            assert!(keep_to(&[]).is_err());
            stay_behind().unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The fields after the name in parentheses begin with the third; the niceness is the 19th.
            let (_, after) = stat.rsplit_once(')').unwrap();
            assert_eq!(after.split_whitespace().nth(19 - 3), Some("5"));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_was_kept_for_now_runs_where_it_might_before() {
        let last = *usable_cores().last().unwrap();
        thread::spawn(move || {
            let before = own_cores();
            let kept = keep_to_for_now(&[last]).unwrap();
            assert_eq!(own_cores(), [last]);
            drop(kept);
            assert_eq!(own_cores(), before);
            assert!(keep_to_for_now(&[]).is_err());
            assert_eq!(own_cores(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_core_that_is_not_there_is_named_and_nothing_is_touched() {
        thread::spawn(|| {
            let before = own_cores();
            let error = pin_current_thread(1_000_000).unwrap_err();
            assert_eq!(error, PinError::NotUsable { core: 1_000_000, usable: usable_cores() });
            assert!(error.to_string().contains("core 1000000"), "{error}");
            assert!(error.to_string().ends_with(&list(&usable_cores())), "{error}");
            assert_eq!(own_cores(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn cores_are_listed_in_runs() {
        for (cores, text) in [(&[][..], ""), (&[3], "3"), (&[0, 1], "0-1"), (&[0, 1, 2, 5, 7, 8], "0-2,5,7-8")] {
            assert_eq!(list(cores), text);
        }
    }

    #[test]
    fn names_are_cut_to_what_the_kernel_keeps() {
        let cases = [
            ("sequencer", "sequencer"),
            ("exactly-fifteen", "exactly-fifteen"),
            ("longer-than-fifteen-bytes", "longer-than-fif"),
            ("fourteen-bytesé", "fourteen-bytes"),
            ("cut\0here", "cut"),
            ("", ""),
        ];
        for (asked, kept) in cases {
            let found = thread::spawn(move || {
                name_current_thread(asked).unwrap();
                std::fs::read_to_string("/proc/thread-self/comm").unwrap()
            });
            assert_eq!(found.join().unwrap().trim_end_matches('\n'), kept);
        }
    }
}
