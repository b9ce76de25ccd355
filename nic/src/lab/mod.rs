//! Two network namespaces joined by a veth pair: a network of one's own, for tests, benches and demonstrations.
//!
//! ```text
//!   namespace a                       namespace b
//!   veth-a 10.77.n.1/24 ◄──────────► veth-b 10.77.n.2/24
//!   lo                                lo
//! ```
//!
//! Neither interface is ever seen by the host: the pair is made inside the namespaces. A [`Lab`] removes both when it is
//! dropped, a panic included. What a killed process left behind carries its process id and start time in its name, and
//! goes with the next [`Lab::new`], or a [`sweep`].
//!
//! Needs root, network namespaces and the program `ip` (iproute2); [`available`] tells what is missing.
//!
//! ```no_run
//! use ticktape_nic::lab::{A, B, Lab};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lab = Lab::new("echo")?;
//! let socket = lab.run(B, || std::net::UdpSocket::bind("0.0.0.0:7"))?;
//! let reached = lab.command(A, "ping", ["-c", "1", &lab.side(B).ip.to_string()])?;
//! # Ok(()) }
//! ```

mod error;
mod ip;
mod name;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, panic};

use nix::sched::{CloneFlags, setns};

pub use error::LabError;
pub use ip::Link;
pub use name::sweep;

use crate::packet::MacAddr;

/// One end of the pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first: .1
    A,
    /// The second: .2
    B,
}

pub use End::{A, B};

impl End {
    /// The other one.
    pub const fn other(self) -> End {
        match self {
            A => B,
            B => A,
        }
    }
}

/// What becomes of the interfaces' checksum and segmentation offloads, GRO included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// As veth has them: frames from a kernel sender carry partial checksums.
    #[default]
    Keep,
    /// All off: every frame is complete. Needs the program `ethtool`.
    Off,
}

/// The shape of a lab.
#[derive(Clone, Debug)]
pub struct LabConfig {
    /// Both interfaces' MTU, in bytes, 68 to 65535.
    pub mtu: u32,
    /// Receive and transmit queues of each interface, 1 to 64.
    pub queues: u32,
    /// A VLAN (1 to 4094) on both interfaces. Its devices carry the addresses then; the veth pair itself has none.
    pub vlan: Option<u16>,
    /// The interfaces' offloads.
    pub offloads: Offloads,
}

impl Default for LabConfig {
    fn default() -> Self {
        LabConfig { mtu: 1_500, queues: 1, vlan: None, offloads: Offloads::Keep }
    }
}

/// One end, as it was found after its set-up.
#[derive(Clone, Debug)]
pub struct Side {
    /// The veth interface, in its own namespace. Also the one to attach to where there is a VLAN.
    pub interface: String,
    /// Its index there.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The address, of the VLAN's device where there is one; the prefix has 24 bits.
    pub ip: Ipv4Addr,
    /// The namespace's name, as `ip netns` lists it.
    pub namespace: String,
    /// The namespace's file.
    pub path: PathBuf,
}

/// Two namespaces and the pair between them. Dropping it removes all of it.
#[derive(Debug)]
pub struct Lab {
    sides: [Side; 2],
    _namespaces: [Namespace; 2],
}

/// How long an interface may take until it is up: it takes the kernel's link watch, mostly a millisecond.
const UP_WAIT: Duration = Duration::from_secs(10);

/// What tells this process's labs apart.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Whether labs can be made here; if not, why not, in one line.
///
/// # Errors
/// What is missing, and the remedy.
pub fn available() -> Result<(), String> {
    static ANSWER: std::sync::OnceLock<Result<(), String>> = std::sync::OnceLock::new();
    ANSWER.get_or_init(|| probe().map_err(|error| error.to_string())).clone()
}

/// A namespace made and removed is the one test that means something: capabilities alone don't tell about containers.
fn probe() -> Result<(), LabError> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Namespace::new(&name::namespace(number, "probe", "a")).map(drop)
}

impl Lab {
    /// A lab of the default shape. `hint` shows up in the namespaces' names.
    ///
    /// # Errors
    /// [`LabError`]; nothing is left behind then.
    pub fn new(hint: &str) -> Result<Lab, LabError> {
        Lab::with(hint, &LabConfig::default())
    }

    /// A lab of a given shape, ready for use: links up, addresses usable.
    ///
    /// # Errors
    /// [`LabError`]; nothing is left behind then.
    pub fn with(hint: &str, config: &LabConfig) -> Result<Lab, LabError> {
        config.validate()?;
        sweep()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let spaces = [
            Namespace::new(&name::namespace(number, hint, "a"))?,
            Namespace::new(&name::namespace(number, hint, "b"))?,
        ];
        for space in &spaces {
            within(&space.path, quieten)??;
        }
        let names = ["veth-a", "veth-b"];
        let queues = format!("numrxqueues {0} numtxqueues {0}", config.queues);
        let pair = format!(
            "link add name {} mtu {} {queues} type veth peer name {} mtu {} {queues} netns {}",
            names[0], config.mtu, names[1], config.mtu, spaces[1].name
        );
        ip::batch(&spaces[0].name, &[pair])?;
        let addresses = [1, 2].map(|host| Ipv4Addr::new(10, 77, number as u8, host));
        for ((space, interface), address) in spaces.iter().zip(names).zip(addresses) {
            set_up(space, interface, address, config)?;
        }
        let links = [await_up(&spaces[0], names[0])?, await_up(&spaces[1], names[1])?];
        let side = |at: usize| Side {
            interface: names[at].to_owned(),
            index: links[at].index,
            mac: links[at].mac,
            ip: addresses[at],
            namespace: spaces[at].name.clone(),
            path: spaces[at].path.clone(),
        };
        Ok(Lab { sides: [side(0), side(1)], _namespaces: spaces })
    }

    /// One end.
    pub fn side(&self, end: End) -> &Side {
        &self.sides[end as usize]
    }

    /// Runs `work` inside an end's namespace, on a thread of its own. Threads and processes that it starts are in there
    /// too, and so is every socket that it opens, wherever it goes later. `/proc/thread-self/net` is the namespace's; `/sys`
    /// still shows the host's interfaces.
    ///
    /// # Panics
    /// With the panic of `work`; and when the namespace can't be entered, which a live lab's can.
    pub fn run<T: Send>(&self, end: End, work: impl FnOnce() -> T + Send) -> T {
        within(&self.side(end).path, work).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a thread inside an end's namespace.
    ///
    /// # Panics
    /// On join, when the namespace can't be entered, which a live lab's can.
    pub fn spawn<T: Send + 'static>(&self, end: End, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let path = self.side(end).path.clone();
        thread::spawn(move || {
            enter(&path).unwrap_or_else(|error| panic!("{error}"));
            work()
        })
    }

    /// Runs a program inside an end's namespace, and waits for it.
    ///
    /// # Errors
    /// [`LabError::Program`] when it can't be started; its own failure is in the output.
    pub fn command<S: AsRef<std::ffi::OsStr>>(
        &self,
        end: End,
        program: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Output, LabError> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.run(end, || command.output()).map_err(|error| LabError::Program { program: program.to_owned(), error })
    }

    /// Starts a prepared program inside an end's namespace. Whoever starts it ends it, before the lab goes.
    ///
    /// # Errors
    /// [`LabError::Program`] when it can't be started.
    pub fn spawn_command(&self, end: End, command: &mut Command) -> Result<Child, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run(end, || command.spawn()).map_err(|error| LabError::Program { program, error })
    }

    /// Sets an end's interface up or down, and waits until that has taken effect: on both ends, as neither has a carrier
    /// without the other.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn set_link(&self, end: End, up: bool) -> Result<(), LabError> {
        let side = self.side(end);
        ip::batch(&side.namespace, &[format!("link set {} {}", side.interface, if up { "up" } else { "down" })])?;
        for side in &self.sides {
            await_link(&side.namespace, &side.interface, |link| link.running == up || (up && !link.up))?;
        }
        Ok(())
    }

    /// An end's link as it is now.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn link(&self, end: End) -> Result<Link, LabError> {
        ip::link(&self.side(end).namespace, &self.side(end).interface)
    }
}

impl LabConfig {
    fn validate(&self) -> Result<(), LabError> {
        let bounds = [("mtu", self.mtu, 68, 65_535), ("queues", self.queues, 1, 64)];
        let vlan = self.vlan.map(|vlan| ("vlan", u32::from(vlan), 1, 4_094));
        match bounds.into_iter().chain(vlan).find(|(_, value, min, max)| !(min..=max).contains(&value)) {
            Some((name, value, min, max)) => Err(LabError::Setting { name, value, min, max }),
            None => Ok(()),
        }
    }
}

/// No IPv6: its router solicitations and duplicate detection would be noise among what is measured and counted. A kernel
/// without it has no such files.
fn quieten() -> Result<(), LabError> {
    for scope in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
        match fs::write(&path, "1") {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(LabError::File { path: path.into(), error });
            }
            _ => {}
        }
    }
    Ok(())
}

fn set_up(space: &Namespace, interface: &str, address: Ipv4Addr, config: &LabConfig) -> Result<(), LabError> {
    if config.offloads == Offloads::Off {
        ip::ethtool(&space.path, interface, &["rx", "off", "tx", "off", "tso", "off", "gso", "off", "gro", "off"])?;
    }
    let mut script = vec!["link set lo up".to_owned(), format!("link set {interface} up")];
    let addressed = match config.vlan {
        None => interface.to_owned(),
        Some(vlan) => {
            // Tags of a kernel sender otherwise travel beside the frame, where no XDP program sees them.
            ip::ethtool(&space.path, interface, &["txvlan", "off", "rxvlan", "off"])?;
            let name = format!("{interface}.{vlan}");
            script.push(format!("link add link {interface} name {name} type vlan id {vlan}"));
            script.push(format!("link set {name} up"));
            name
        }
    };
    script.push(format!("addr add {address}/24 broadcast + dev {addressed}"));
    ip::batch(&space.name, &script).map_err(|error| match error {
        LabError::Refused { reason, .. } if config.vlan.is_some() && reason.contains("Unknown device type") => {
            LabError::NoVlan
        }
        other => other,
    })
}

fn await_up(space: &Namespace, interface: &str) -> Result<Link, LabError> {
    await_link(&space.name, interface, |link| link.running)
}

/// Looks until the link is as wanted: between "up" and the kernel's link watch nothing is sent, and nothing says so.
fn await_link(namespace: &str, interface: &str, wanted: impl Fn(&Link) -> bool) -> Result<Link, LabError> {
    let begin = Instant::now();
    loop {
        let link = ip::link(namespace, interface)?;
        if wanted(&link) {
            return Ok(link);
        }
        if begin.elapsed() > UP_WAIT {
            return Err(LabError::Carrier { interface: interface.to_owned(), waited: UP_WAIT });
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// One named namespace, and its removal.
#[derive(Debug)]
struct Namespace {
    name: String,
    path: PathBuf,
}

impl Namespace {
    fn new(name: &str) -> Result<Namespace, LabError> {
        ip::run(&["netns", "add", name])?;
        Ok(Namespace { name: name.to_owned(), path: name::path(name) })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nobody is left to tell about a failure; the next sweep tries again.
        _ = name::remove(&self.name);
    }
}

/// Moves the calling thread, for good.
fn enter(path: &Path) -> Result<(), LabError> {
    let file = fs::File::open(path).map_err(|error| LabError::File { path: path.to_owned(), error })?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .map_err(|error| LabError::Enter { path: path.to_owned(), error: error.into() })
}

fn within<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| enter(path).map(|()| work()));
        inside.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    })
}
