//! What the box is to be judged for.

use std::fmt;
use std::path::PathBuf;

use crate::facts::Facts;
use crate::facts::network::Network;
use crate::pin;
use crate::root::Root;

/// Which cores, interface and directory an appliance uses, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Cores with a stage, in the plan's order.
    pub critical: Vec<usize>,
    /// Those of them that never give their core away.
    pub spinning: Vec<usize>,
    /// Those whose thread writes to the disk: the journaler's.
    pub writing: Vec<usize>,
    /// The interface, where there is one.
    pub interface: Option<String>,
    /// The port where clients connect; 0 is whichever is free.
    pub port: u16,
    /// The queue of it that an AF_XDP socket takes; `None` where the kernel's stack is used.
    pub bypass_queue: Option<u32>,
    /// The interface that an AF_XDP socket was to be on, where the box has none of that name and the kernel's stack is used instead.
    pub bypass_lacking: Option<String>,
    /// Whether the kernel polls the interface within calls.
    pub is_busy_polling: bool,
    /// Whether groups are joined or sent to.
    pub is_multicast: bool,
    /// The largest datagram, in bytes of UDP payload.
    pub datagram_bytes_max: u64,
    /// What each socket asks for as its buffers.
    pub socket_buffer_bytes: u64,
    /// The journal's directory, absolute.
    pub directory: PathBuf,
    /// Free space that the journal wants at least.
    pub disk_bytes_min: u64,
    /// The log ring.
    pub ring_bytes: u64,
    /// Where its file is; `None` where it is in the process's own memory.
    pub ring_dir: Option<PathBuf>,
    /// Where what it captures goes; `None` where it captures nothing.
    pub capture_dir: Option<PathBuf>,
    /// Memory that a card reads and writes.
    pub umem_bytes: u64,
    /// What the kernel is asked for while it runs.
    pub runtime: Wishes,
    /// The interfaces that its feeds leave by, but for loopback; `None` where that is not known, as of another box: then the clients' stands for them.
    pub feed_interfaces: Option<Vec<String>>,
}

/// What an appliance asks the kernel for, as its `[runtime]` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The priority of the stages' threads under SCHED_FIFO.
    pub fifo: Option<u8>,
    /// Whether all memory is to stay in place.
    pub locks_memory: bool,
    /// The time that a core may take to wake up, in µs.
    pub hold_cpu_latency_us: Option<u32>,
}

/// Why a plan can't be judged: nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanFlaw {
    /// Such a core is not in the box.
    NoSuchCore(usize),
    /// It is, but does not run.
    Offline(usize),
    /// A core that stands twice.
    Twice(usize),
    /// There is no such interface.
    NoSuchInterface(String),
}

impl fmt::Display for PlanFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanFlaw::NoSuchCore(core) => write!(f, "the plan's core {core} is not in this box"),
            PlanFlaw::Offline(core) => {
                write!(f, "the plan's core {core} is offline: write 1 to its online file, or plan another")
            }
            PlanFlaw::Twice(core) => write!(f, "the plan names core {core} twice: one thread each"),
            PlanFlaw::NoSuchInterface(name) => write!(f, "there is no interface {name} in this box"),
        }
    }
}

impl std::error::Error for PlanFlaw {}

impl Plan {
    /// All that there is to know about a box for this plan.
    pub fn look(&self, root: &Root) -> Facts {
        let others = self.feed_interfaces.iter().flatten().filter(|name| Some(*name) != self.interface.as_ref());
        Facts {
            feeds: others.map(|name| Network::read(root, name)).collect(),
            ..Facts::read(root, self.interface.as_deref(), &self.directory)
        }
    }

    /// Whether this box can have that plan at all.
    ///
    /// # Errors
    /// The first flaw.
    pub fn check(&self, facts: &Facts) -> Result<(), PlanFlaw> {
        for (at, &core) in self.critical.iter().enumerate() {
            if self.critical[..at].contains(&core) {
                return Err(PlanFlaw::Twice(core));
            }
            let is_in =
                |cores: &Result<Vec<usize>, _>| cores.as_ref().is_ok_and(|cores: &Vec<usize>| !cores.contains(&core));
            if is_in(&facts.cores.present) {
                return Err(PlanFlaw::NoSuchCore(core));
            }
            if is_in(&facts.cores.online) {
                return Err(PlanFlaw::Offline(core));
            }
        }
        let lacks = |network: &&Network| network.state.as_ref().is_err_and(|unread| unread.is_missing());
        match facts.network.iter().chain(&facts.feeds).find(lacks) {
            Some(network) => Err(PlanFlaw::NoSuchInterface(network.name.clone())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stages on cores {}", pin::list(&crate::facts::cpu_list::sorted(self.critical.clone())))?;
        match self.spinning.len() {
            0 => write!(f, ", none of which spins")?,
            _ if self.spinning.len() == self.critical.len() => write!(f, ", all spinning")?,
            _ => write!(f, ", of which {} spin", pin::list(&self.spinning))?,
        }
        match (&self.interface, self.bypass_queue) {
            (Some(name), Some(queue)) => write!(f, "; AF_XDP on {name}, queue {queue}")?,
            (Some(name), None) => write!(f, "; kernel UDP on {name}")?,
            (None, _) => write!(f, "; no interface")?,
        }
        write!(f, "; journal in {}", self.directory.display())
    }
}
