//! Readiness and watchdog, as systemd's sd_notify(3) has them: datagrams to a socket that the environment names.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Tells this often while the watchdog waits: half of it is advised, and one may get lost.
const TELLS_A_WATCHDOG: u32 = 3;

/// What the service manager asked for, by way of the environment.
#[derive(Debug, Default)]
pub struct Asked {
    /// `NOTIFY_SOCKET`.
    pub socket: Option<OsString>,
    /// `WATCHDOG_USEC`.
    pub watchdog_us: Option<OsString>,
    /// `WATCHDOG_PID`: whom the watchdog is for.
    pub watchdog_pid: Option<OsString>,
}

impl Asked {
    /// Of this process.
    pub fn of_environment() -> Self {
        let [socket, watchdog_us, watchdog_pid] =
            ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"].map(std::env::var_os);
        Asked { socket, watchdog_us, watchdog_pid }
    }
}

/// Who is told.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    watchdog: Option<Watchdog>,
}

#[derive(Debug)]
struct Watchdog {
    every: Duration,
    told_at: Instant,
    /// How far each thread was then.
    beats: Vec<u64>,
}

impl Notifier {
    /// `None` where nobody asked.
    ///
    /// # Errors
    /// The socket is not there, or an address is none.
    pub fn new(asked: &Asked, now: Instant) -> io::Result<Option<Self>> {
        let Some(path) = asked.socket.as_deref().filter(|path| !path.is_empty()) else { return Ok(None) };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address(path)?)?;
        // Who does not read must not hold up an appliance.
        socket.set_nonblocking(true)?;
        let number =
            |text: &Option<OsString>| text.as_ref().map(|text| text.to_str().and_then(|text| text.parse().ok()));
        let is_mine = number(&asked.watchdog_pid).is_none_or(|pid| pid == Some(u64::from(std::process::id())));
        let every = number(&asked.watchdog_us).flatten().filter(|us| *us > 0 && is_mine);
        let every = every.map(|us| Duration::from_micros(us) / TELLS_A_WATCHDOG);
        let watchdog = every.map(|every| Watchdog { every, told_at: now, beats: Vec::new() });
        Ok(Some(Notifier { socket, watchdog }))
    }

    /// It serves.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// It stops because it was asked to.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// All threads are alive, if each has moved on since that was last said. `beats` is asked only where it is time to say so.
    pub fn watch(&mut self, now: Instant, beats: impl FnOnce() -> Vec<u64>) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|dog| now.duration_since(dog.told_at) >= dog.every) else {
            return;
        };
        let beats = beats();
        let stands = |(before, now): (&u64, &u64)| before == now;
        if beats.len() == watchdog.beats.len() && watchdog.beats.iter().zip(&beats).any(stands) {
            return;
        }
        (watchdog.told_at, watchdog.beats) = (now, beats);
        self.tell("WATCHDOG=1");
    }

    /// Whoever is not listening any more has given up on this process; it serves on.
    fn tell(&self, state: &str) {
        let _ = self.socket.send(state.as_bytes());
    }
}

/// A path, or, with `@` first, a name in the abstract namespace.
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(path),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path from / nor a name from @")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service manager's socket, and what was asked through it.
    fn manager(name: &str, watchdog_us: Option<&str>, pid: Option<&str>) -> (UnixDatagram, Asked) {
        let name = format!("ticktape-notify-{}-{name}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let asked = Asked {
            socket: Some(format!("@{name}").into()),
            watchdog_us: watchdog_us.map(Into::into),
            watchdog_pid: pid.map(Into::into),
        };
        (socket, asked)
    }

    fn told(socket: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 64];
        std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| String::from_utf8_lossy(&buffer[..n]).into_owned()))
            .collect()
    }

    #[test]
    fn it_is_told_of_readiness_progress_and_the_end() {
        let (socket, asked) = manager("all", Some("3000000"), None);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut notifier = Notifier::new(&asked, start).unwrap().unwrap();
        notifier.ready();
        notifier.watch(after(0), || unreachable!("it is not time yet"));
        notifier.watch(after(1), || vec![5, 9]);
        notifier.stopping();
        assert_eq!(told(&socket), ["READY=1", "WATCHDOG=1", "STOPPING=1"]);
    }

    #[test]
    fn one_thread_that_stands_still_is_not_kept_quiet() {
        let (socket, asked) = manager("stands", Some("3000000"), None);
        let start = Instant::now();
        let mut notifier = Notifier::new(&asked, start).unwrap().unwrap();
        for (second, beats) in [(1, [5, 9]), (2, [6, 9]), (3, [7, 9]), (4, [8, 10])] {
            notifier.watch(start + Duration::from_secs(second), || beats.to_vec());
            let expected: &[&str] = if second == 1 || second == 4 { &["WATCHDOG=1"] } else { &[] };
            assert_eq!(told(&socket), expected, "{second}");
        }
    }

    #[test]
    fn a_watchdog_for_somebody_else_is_not_fed() {
        let start = Instant::now();
        for (at, (us, pid)) in
            [(Some("1"), Some("1")), (Some("x"), None), (Some("0"), None), (None, None)].iter().enumerate()
        {
            let (socket, asked) = manager(&format!("else-{at}"), *us, *pid);
            let mut notifier = Notifier::new(&asked, start).unwrap().unwrap();
            notifier.watch(start + Duration::from_secs(9), || unreachable!("nobody asked"));
            assert_eq!(told(&socket), [""; 0]);
        }
        let (socket, asked) = manager("mine", Some("1"), Some(&std::process::id().to_string()));
        Notifier::new(&asked, start).unwrap().unwrap().watch(start + Duration::from_secs(9), || vec![1]);
        assert_eq!(told(&socket), ["WATCHDOG=1"]);
    }

    #[test]
    fn a_path_is_an_address_too_and_garbage_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let asked = |socket: &OsStr| Asked { socket: Some(socket.to_owned()), ..Asked::default() };
        assert!(Notifier::new(&asked(path.as_os_str()), Instant::now()).is_err(), "nobody is there");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Notifier::new(&asked(path.as_os_str()), Instant::now()).unwrap().unwrap().ready();
        assert_eq!(told(&socket), ["READY=1"]);
        assert!(Notifier::new(&asked(OsStr::new("relative")), Instant::now()).is_err());
        assert!(Notifier::new(&asked(OsStr::new("")), Instant::now()).unwrap().is_none());
        assert!(Notifier::new(&Asked::default(), Instant::now()).unwrap().is_none());
    }
}
