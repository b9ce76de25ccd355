//! The loaded program with its maps: what it redirects, where to, and what it counted.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::counters::{self, FilterCounters, Reason, UnservedQueue};
use super::emit::{MapFds, emit};
use super::instruction::{Instruction, listing};
use super::registry::{self, ProgramInfo};
use super::{AttachPreference, BpfError, Filter, XdpLink, abi, attach, sys};

/// Receive queues that a program serves, at most: more than cards have.
pub const QUEUES_MAX: u32 = 1024;

/// The name that the kernel shows for the program.
pub const PROGRAM_NAME: &str = "ticktape_rx";

const SOCKETS_MAP: &str = "ticktape_socks";
const COUNTERS_MAP: &str = "ticktape_counts";

/// It calls no function that is for GPL programs only.
const LICENSE: &CStr = c"MIT OR Apache-2.0";

/// Bytes of the verifier's log that are kept. The program is some hundred instructions; the kernel keeps the log's end where
/// it is longer.
const LOG_BYTES: usize = 256 * 1024;

/// What the verifier writes where a process without CAP_PERFMON lacks just that.
const NEEDS_PERFMON: &str = "prohibited for !root";

/// Frames that one test run may repeat, so that the call ends.
const TEST_REPEAT_MAX: u32 = 100_000_000;

/// What the program does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// An error of the program; the frame is dropped.
    Aborted,
    /// Dropped.
    Drop,
    /// To the kernel's network stack.
    Pass,
    /// Sent back.
    Tx,
    /// To the socket of its receive queue.
    Redirect,
    /// Another number; the kernel drops the frame.
    Unknown(u32),
}

/// What a test run told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// What became of the frame.
    pub verdict: Verdict,
    /// The program's mean time a frame, in nanoseconds.
    pub duration_ns: u32,
}

/// An XDP program in the kernel, with its map of sockets and its counters.
///
/// Dropping it empties its slots and closes it; where it is attached, it goes on passing all frames to the kernel until the
/// [`XdpLink`] is dropped too.
pub struct XdpProgram {
    fd: OwnedFd,
    sockets: sys::Map,
    counters: sys::Map,
    filter: Filter,
    queues: u32,
    instructions: Vec<Instruction>,
}

impl XdpProgram {
    /// Emits and loads the program for receive queues 0 to `queues - 1` of an interface. Until a socket is set, all frames pass
    /// to the kernel.
    ///
    /// # Errors
    /// A filter or number of queues outside its bounds; a process without privilege; a kernel without XDP sockets; a program that
    /// the verifier refuses, with its log.
    pub fn load(filter: &Filter, queues: u32) -> Result<XdpProgram, BpfError> {
        let rules = filter.by_port()?;
        if queues == 0 || queues > QUEUES_MAX {
            return Err(BpfError::QueueCount { queues });
        }
        let sockets = sys::Map::sockets(SOCKETS_MAP, queues).map_err(|error| map_error(SOCKETS_MAP, error))?;
        let counters = sys::Map::counters(COUNTERS_MAP, counters::slots(queues))
            .map_err(|error| map_error(COUNTERS_MAP, error))?;
        let maps = MapFds { sockets: sockets.raw_fd(), counters: counters.raw_fd() };
        let instructions = emit(&rules, filter.allow_vlan, queues, maps);
        let fd = load_instructions(&instructions)?;
        Ok(XdpProgram { fd, sockets, counters, filter: filter.clone(), queues, instructions })
    }

    /// Attaches the program to an interface of the calling thread's network namespace, until the link is dropped.
    ///
    /// # Errors
    /// No such interface; another program there, which is named and left alone; a mode that was asked for and is refused, with
    /// the kernel's reason; a process without privilege.
    pub fn attach(&self, ifindex: u32, preference: AttachPreference) -> Result<XdpLink, BpfError> {
        attach::attach(self.fd.as_fd(), ifindex, preference)
    }

    /// Sends what matches on receive queue `queue` to an AF_XDP socket, which must be bound to that queue of that interface, or
    /// the kernel drops the frames. A socket that is closed leaves its slot by itself.
    ///
    /// # Errors
    /// A queue that the program was not loaded for; a descriptor that is no AF_XDP socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        self.check_queue(queue)?;
        self.sockets.set_socket(queue, socket).map_err(|error| BpfError::Socket { queue, error })
    }

    /// Empties the queue's slot: its frames pass to the kernel. An empty slot is fine.
    ///
    /// # Errors
    /// A queue that the program was not loaded for.
    pub fn clear_socket(&self, queue: u32) -> Result<(), BpfError> {
        self.check_queue(queue)?;
        match self.sockets.remove(queue) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(BpfError::Socket { queue, error }),
            _ => Ok(()),
        }
    }

    fn check_queue(&self, queue: u32) -> Result<(), BpfError> {
        if queue < self.queues { Ok(()) } else { Err(BpfError::Queue { queue, queues: self.queues }) }
    }

    /// What became of the frames so far, summed over all cores. One system call a reason and queue; allocates nothing.
    ///
    /// # Errors
    /// [`BpfError::Read`], should the kernel refuse.
    pub fn counters(&self) -> Result<FilterCounters, BpfError> {
        let mut counters = FilterCounters::default();
        for &reason in Reason::ALL {
            *counters.of(reason) = self.count(reason as u32)?;
        }
        for queue in 0..=self.queues {
            counters.no_socket += self.count(counters::unserved_slot(queue))?;
        }
        Ok(counters)
    }

    /// The receive queues on which frames met a rule and no socket.
    ///
    /// # Errors
    /// As for [`XdpProgram::counters`].
    pub fn unserved_queues(&self) -> Result<Vec<UnservedQueue>, BpfError> {
        let mut unserved = Vec::new();
        for queue in 0..=self.queues {
            let frames = self.count(counters::unserved_slot(queue))?;
            if frames > 0 {
                unserved.push(UnservedQueue { queue: (queue < self.queues).then_some(queue), frames });
            }
        }
        Ok(unserved)
    }

    fn count(&self, slot: u32) -> Result<u64, BpfError> {
        self.counters.sum(slot).map_err(|error| BpfError::Read { error })
    }

    /// Runs the program over a copy of `frame` as if it had come on receive queue 0, without an interface: nothing is delivered,
    /// but counted it is. `repeat` is at least 1.
    ///
    /// # Errors
    /// [`BpfError::TestRun`]: a frame below 14 or above some 3500 bytes, or a kernel that refuses.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> Result<TestRun, BpfError> {
        let (verdict, duration_ns) = sys::program_test_run(self.fd.as_fd(), frame, repeat.clamp(1, TEST_REPEAT_MAX))
            .map_err(|error| BpfError::TestRun { error })?;
        let verdict = match verdict {
            abi::XDP_ABORTED => Verdict::Aborted,
            abi::XDP_DROP => Verdict::Drop,
            abi::XDP_PASS => Verdict::Pass,
            abi::XDP_TX => Verdict::Tx,
            abi::XDP_REDIRECT => Verdict::Redirect,
            other => Verdict::Unknown(other),
        };
        Ok(TestRun { verdict, duration_ns })
    }

    /// What the kernel says about the program.
    ///
    /// # Errors
    /// [`BpfError::Read`], should the kernel refuse.
    pub fn info(&self) -> Result<ProgramInfo, BpfError> {
        registry::info_of(self.fd.as_fd())
    }

    /// The filter it was loaded with.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// How many receive queues it serves.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// The program's length, as the kernel counts it.
    pub fn instruction_count(&self) -> usize {
        self.instructions.len()
    }

    /// The program as text, one line an instruction.
    pub fn listing(&self) -> String {
        listing(&self.instructions)
    }

    /// One line: what it redirects, over how many queues, in how many instructions.
    pub fn describe(&self) -> String {
        let (queues, instructions) = (self.queues, self.instructions.len());
        format!("{PROGRAM_NAME} redirects {} of {queues} queues in {instructions} instructions", self.filter)
    }
}

impl Drop for XdpProgram {
    fn drop(&mut self) {
        // A socket in a slot keeps the map in the kernel until the socket itself is closed. An empty slot is an error here, and
        // there is no other.
        for queue in 0..self.queues {
            let _ = self.sockets.remove(queue);
        }
    }
}

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for XdpProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpProgram").field("filter", &self.filter).field("queues", &self.queues).finish_non_exhaustive()
    }
}

/// Whether this process may load XDP programs for sockets here, found out by loading one. It is attached to nothing.
///
/// # Errors
/// Why not, as from [`XdpProgram::load`].
pub fn supported() -> Result<(), BpfError> {
    XdpProgram::load(&Filter::one(None, 1), 1).map(drop)
}

/// Without a log first: writing one makes the verifier many times slower.
fn load_instructions(instructions: &[Instruction]) -> Result<OwnedFd, BpfError> {
    let error = match sys::program_load(instructions, LICENSE, PROGRAM_NAME, None) {
        Ok(fd) => return Ok(fd),
        Err(error) => error,
    };
    let mut log = vec![0; LOG_BYTES];
    match sys::program_load(instructions, LICENSE, PROGRAM_NAME, Some(&mut log)) {
        Ok(fd) => Ok(fd),
        Err(_) => {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]).trim_end().to_owned();
            Err(load_error(error, log, instructions))
        }
    }
}

fn load_error(error: io::Error, log: String, instructions: &[Instruction]) -> BpfError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => BpfError::Unsupported { what: "bpf(2) (CONFIG_BPF_SYSCALL)", error },
        // The verifier explains itself; without a word it is the process that is refused.
        Some(libc::EPERM) if log.is_empty() => BpfError::Permission { action: "load an XDP program", error },
        // The check of the IP length adds a loaded number to a packet pointer, which takes CAP_PERFMON.
        Some(libc::EACCES) if log.contains(NEEDS_PERFMON) => {
            BpfError::Permission { action: "load an XDP program", error }
        }
        _ => BpfError::Load { error, log, listing: listing(instructions) },
    }
}

fn map_error(name: &'static str, error: io::Error) -> BpfError {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => BpfError::Unsupported { what: "bpf(2) (CONFIG_BPF_SYSCALL)", error },
        Some(libc::EPERM) => BpfError::Permission { action: "create a BPF map", error },
        Some(libc::EINVAL) if name == SOCKETS_MAP => {
            BpfError::Unsupported { what: "XDP sockets (CONFIG_XDP_SOCKETS, Linux 5.9 or later)", error }
        }
        _ => BpfError::Map { name, error },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::instruction::{Register, Width};
    use super::*;

    #[test]
    fn a_program_that_the_verifier_refuses_comes_back_with_its_log() {
        if let Err(error) = supported() {
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            assert!(error.is_permission(), "with every privilege, {error}");
            return;
        }
        // Reads the frame without a look at where it ends.
        let program = [
            Instruction::load(Width::Word, Register::R2, Register::R1, abi::XDP_MD_DATA),
            Instruction::load(Width::Word, Register::R0, Register::R2, 0),
            Instruction::exit(),
        ];
        let error = load_instructions(&program).unwrap_err();
        let text = error.to_string();
        assert!(error.verifier_log().unwrap().contains("invalid access to packet"), "{text}");
        assert!(text.contains("1: r0 = u32 [r2+0]"), "{text}");
        assert!(text.starts_with("the kernel refuses the XDP program: Permission denied"), "{text}");
    }
}
