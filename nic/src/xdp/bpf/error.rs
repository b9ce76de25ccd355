//! Why a program can't be loaded or attached, in a line for its operator.

use std::{fmt, io};

use super::attach::AttachMode;
use super::filter::{RULES_MAX, Rule};
use super::program::QUEUES_MAX;

/// Why the XDP program could not be made, loaded, attached or asked. Its text names what was wanted and what would be right.
#[derive(Debug)]
#[non_exhaustive]
pub enum BpfError {
    /// A filter with no rule, or too many.
    RuleCount {
        /// How many it has.
        count: usize,
    },
    /// A rule that no datagram can meet.
    Rule {
        /// The rule.
        rule: Rule,
    },
    /// A number of queues outside 1 to [`QUEUES_MAX`].
    QueueCount {
        /// What was asked for.
        queues: u32,
    },
    /// A queue that the program was not loaded for.
    Queue {
        /// The queue.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// The process may not do this.
    Permission {
        /// What it wanted.
        action: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel lacks something.
    Unsupported {
        /// What.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// A map can't be made.
    Map {
        /// Which.
        name: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel refuses the program.
    Load {
        /// What the kernel said.
        error: io::Error,
        /// The verifier's log; empty where it left none.
        log: String,
        /// The program.
        listing: String,
    },
    /// No such interface in this network namespace.
    Interface {
        /// Its index.
        ifindex: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// The interface can't be asked about.
    Query {
        /// Its index.
        ifindex: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// Another XDP program is attached. It is never replaced.
    Occupied {
        /// The interface.
        interface: String,
        /// The program's id.
        program: u32,
        /// The program's name, where the kernel tells it to this process.
        name: Option<String>,
    },
    /// The kernel does not attach the program.
    Attach {
        /// The interface.
        interface: String,
        /// The mode that was asked for.
        mode: AttachMode,
        /// Why.
        refusal: Refusal,
    },
    /// A socket does not go into its slot.
    Socket {
        /// The queue whose slot it is.
        queue: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// The program's counters, or what the kernel knows of it, can't be read.
    Read {
        /// What the kernel said.
        error: io::Error,
    },
    /// The program can't be run on a test frame.
    TestRun {
        /// What the kernel said.
        error: io::Error,
    },
}

/// Why the kernel does not attach a program.
#[derive(Debug)]
pub struct Refusal {
    /// The error's number.
    pub error: io::Error,
    /// The driver's or kernel's own words, where it has any.
    pub reason: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "{}: {reason}", self.error),
            None => write!(f, "{}", self.error),
        }
    }
}

/// So many receive queues, as people number them.
#[derive(Clone, Copy, Debug)]
pub(in crate::xdp) struct Queues(pub(in crate::xdp) u32);

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Every interface has one, whatever it tells.
            0 | 1 => write!(f, "queue 0 alone"),
            count => write!(f, "queues 0 to {}", count - 1),
        }
    }
}

impl BpfError {
    /// Whether the kernel refuses for want of privilege.
    pub fn is_permission(&self) -> bool {
        matches!(self, BpfError::Permission { .. })
    }

    /// The verifier's log, where the kernel refused the program.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            BpfError::Load { log, .. } => Some(log),
            _ => None,
        }
    }
}

impl fmt::Display for BpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BpfError::RuleCount { count } => {
                write!(f, "an XDP filter with {count} rules: give 1 to {RULES_MAX} (address, port) pairs")
            }
            BpfError::Rule { rule } => write!(
                f,
                "XDP filter rule {rule} can't match: give a port from 1 to 65535, and an address or none (not 0.0.0.0)"
            ),
            BpfError::QueueCount { queues } => {
                write!(f, "an XDP program for {queues} receive queues: give 1 to {QUEUES_MAX}")
            }
            BpfError::Queue { queue, queues } => {
                write!(f, "receive queue {queue}: the XDP program was loaded for {}", Queues(*queues))
            }
            BpfError::Permission { action, error } => write!(
                f,
                "cannot {action}: {error}: run as root, or grant CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON \
                 (before Linux 5.11 also raise RLIMIT_MEMLOCK: ulimit -l unlimited)"
            ),
            BpfError::Unsupported { what, error } => write!(f, "this kernel has no {what}: {error}"),
            BpfError::Map { name, error } => write!(f, "cannot create the BPF map {name}: {error}"),
            BpfError::Load { error, .. } if is_out_of_files(error) => {
                write!(f, "cannot load the XDP program: {error}: raise the limit on open files (ulimit -n)")
            }
            BpfError::Load { error, log, listing } => {
                write!(f, "the kernel refuses the XDP program: {error}; please report this with what follows")?;
                write!(f, "\nverifier log:\n{log}\nprogram:\n{listing}")
            }
            BpfError::Interface { ifindex, error } => {
                write!(f, "no interface with index {ifindex} in this network namespace: {error}: see ip link")
            }
            BpfError::Query { ifindex, error } => write!(f, "cannot ask about interface {ifindex}: {error}"),
            BpfError::Occupied { interface, program, name } => {
                let name = name.as_deref().unwrap_or("name unknown");
                write!(
                    f,
                    "{interface} has an XDP program attached already: id {program} ({name}); stop its owner \
                     (bpftool net, ip link show {interface}), or use another interface"
                )
            }
            BpfError::Attach { interface, mode, refusal } => {
                write!(f, "cannot attach in {mode} XDP mode to {interface}: {refusal}")?;
                match mode {
                    AttachMode::Native => write!(f, ": allow generic mode, or use a driver and MTU that XDP supports"),
                    AttachMode::Generic => Ok(()),
                }
            }
            BpfError::Socket { queue, error } => {
                write!(f, "cannot steer receive queue {queue} to its socket: {error}: it takes an open AF_XDP socket")
            }
            BpfError::Read { error } => write!(f, "cannot read the XDP program's state: {error}"),
            BpfError::TestRun { error } => write!(f, "cannot run the XDP program on a test frame: {error}"),
        }
    }
}

/// Whether there are no descriptors left, which is nothing that the program is to blame for.
fn is_out_of_files(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl std::error::Error for BpfError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BpfError::Permission { error, .. }
            | BpfError::Unsupported { error, .. }
            | BpfError::Map { error, .. }
            | BpfError::Load { error, .. }
            | BpfError::Interface { error, .. }
            | BpfError::Query { error, .. }
            | BpfError::Socket { error, .. }
            | BpfError::Read { error }
            | BpfError::TestRun { error } => Some(error),
            BpfError::Attach { refusal, .. } => Some(&refusal.error),
            BpfError::RuleCount { .. }
            | BpfError::Rule { .. }
            | BpfError::QueueCount { .. }
            | BpfError::Queue { .. }
            | BpfError::Occupied { .. } => None,
        }
    }
}
