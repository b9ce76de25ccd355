//! Drains taps into a pcapng file, off the hot path.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::error::CaptureError;
use super::pcapng::{self, Interface, Packet, Totals};
use super::record::Record;
use super::tap::{Direction, TapEnd};
use crate::packet::{HEADERS_BYTES_MAX, Headers, MacAddr, Template};

/// Packets per poll, so that one poll is bounded.
const POLL_PACKETS_MAX: usize = 1_024;
/// As much is gathered before it is written, unless there is nothing else to do. Fewer, larger writes: each costs the same
/// microseconds.
const BUFFER_BYTES: usize = 256 << 10;
/// How long the recorder's thread rests when all taps are empty. A tap must hold what comes in meanwhile.
const IDLE: Duration = Duration::from_millis(1);

/// How a tap's times become times of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeline {
    /// They are CLOCK_MONOTONIC; the distance to CLOCK_REALTIME is measured as packets are written.
    Monotonic,
    /// They begin so many nanoseconds after 1970.
    Since(u64),
}

/// What to record, and where to.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// The file. Replaced if it exists.
    pub path: PathBuf,
    /// Its interfaces.
    pub interfaces: Vec<Interface>,
    /// Where the capture ends, in bytes.
    pub bytes_max: u64,
    /// The taps' clock.
    pub timeline: Timeline,
}

impl RecorderConfig {
    /// One interface, up to 1 TiB, times on CLOCK_MONOTONIC.
    pub fn new(path: impl Into<PathBuf>, interface: Interface) -> RecorderConfig {
        RecorderConfig {
            path: path.into(),
            interfaces: vec![interface],
            bytes_max: 1 << 40,
            timeline: Timeline::Monotonic,
        }
    }
}

/// What became of a capture.
#[derive(Debug)]
pub struct Summary {
    /// The file.
    pub path: PathBuf,
    /// Packets in it.
    pub packets: u64,
    /// Packets that came by and are not in it.
    pub lost: u64,
    /// Its size.
    pub bytes: u64,
    /// Why it ended early.
    pub error: Option<CaptureError>,
}

#[derive(Debug)]
struct Input {
    interface: usize,
    end: TapEnd,
    /// The tap's losses that are in the file already, with the packet that followed.
    lost_shown: u64,
    /// Packets in the file or on their way into it.
    taken: u64,
    /// Packets that were taken, and did not get into the file.
    discarded: u64,
    /// Packets in the buffer.
    buffered: u64,
}

/// Writes what comes out of some taps to one file.
#[derive(Debug)]
pub struct Recorder {
    config: RecorderConfig,
    file: File,
    inputs: Vec<Input>,
    /// Whole blocks that are not written yet.
    buffer: Vec<u8>,
    frame: Vec<u8>,
    written: u64,
    begin_ns: u64,
    last_ns: u64,
    /// What the totals at the end will take.
    statistics_bytes: u64,
    error: Option<CaptureError>,
}

impl Recorder {
    /// Creates the file, and writes its beginning. Each tap belongs to one of the interfaces, by its number.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn create(config: RecorderConfig, taps: Vec<(usize, TapEnd)>) -> Result<Recorder, CaptureError> {
        let count = config.interfaces.len();
        if let Some(&(interface, _)) = taps.iter().find(|tap| tap.0 >= count) {
            return Err(CaptureError::Interface { interface, count });
        }
        let file =
            File::create(&config.path).map_err(|error| CaptureError::Create { path: config.path.clone(), error })?;
        let inputs: Vec<Input> = taps
            .into_iter()
            .map(|(interface, end)| Input { interface, end, lost_shown: 0, taken: 0, discarded: 0, buffered: 0 })
            .collect();
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + (64 << 10));
        pcapng::section(&mut buffer, concat!("ticktape ", env!("CARGO_PKG_VERSION")));
        for (number, interface) in config.interfaces.iter().enumerate() {
            let snap =
                inputs.iter().filter(|input| input.interface == number).map(|input| input.end.snap_bytes()).max();
            pcapng::interface(&mut buffer, interface, snap.map_or(0, |snap| (snap + HEADERS_BYTES_MAX) as u32));
        }
        let begin_ns = config.timeline.now_ns().unwrap_or(config.timeline.offset_ns());
        let mut one = Vec::new();
        pcapng::statistics(&mut one, 0, &Totals::default());
        let statistics_bytes = (one.len() * count) as u64;
        let mut recorder = Recorder {
            config,
            file,
            inputs,
            buffer,
            frame: Vec::new(),
            written: 0,
            begin_ns,
            last_ns: begin_ns,
            statistics_bytes,
            error: None,
        };
        recorder.write_buffer();
        match recorder.error.take() {
            Some(error) => Err(error),
            None => Ok(recorder),
        }
    }

    /// Takes packets out of the taps, the earliest first among those that are there, and writes them; how many. After a
    /// failure nothing more is taken, and the taps count as lost what they find no room for.
    pub fn poll(&mut self) -> usize {
        if self.error.is_some() {
            return 0;
        }
        let offset_ns = self.config.timeline.offset_ns();
        let mut taken = 0;
        while taken < POLL_PACKETS_MAX && self.error.is_none() {
            let heads = self.inputs.iter_mut().enumerate();
            let earliest = heads.filter_map(|(at, input)| Some((input.end.head()?.time, at))).min();
            let Some((_, at)) = earliest else { break };
            self.take(at, offset_ns);
            taken += 1;
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_buffer();
            }
        }
        if taken == 0 {
            self.write_buffer();
        }
        taken
    }

    /// Takes what is left, ends the file, and tells what became of it.
    pub fn finish(mut self) -> Summary {
        while self.poll() > 0 {}
        self.write_buffer();
        for input in &mut self.inputs {
            // Left behind by a failure.
            while input.end.head().is_some() {
                self.frame.clear();
                input.end.take(&mut self.frame);
                input.discarded += 1;
            }
        }
        self.write_statistics();
        let packets: u64 = self.inputs.iter().map(|input| input.taken).sum();
        let lost = self.inputs.iter().map(Input::lost).sum();
        Summary { path: self.config.path, packets, lost, bytes: self.written, error: self.error }
    }

    /// Gives it a thread of its own, in the background of whatever else runs there.
    ///
    /// # Errors
    /// When there are no more threads to be had.
    pub fn spawn(mut self) -> io::Result<RecorderThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = thread::Builder::new().name("capture".to_owned()).spawn(move || {
            // Pairs with the Release store in RecorderThread::end: what was tapped before the stop is taken.
            while !seen.load(Ordering::Acquire) {
                if self.poll() == 0 {
                    thread::park_timeout(IDLE);
                }
            }
            self.finish()
        })?;
        Ok(RecorderThread { stop, thread: Some(thread) })
    }

    fn take(&mut self, at: usize, offset_ns: u64) {
        let input = &mut self.inputs[at];
        let Some(record) = input.end.head() else { return };
        self.frame.clear();
        let own = self.config.interfaces[input.interface].mac;
        let template = record.addresses.map(|addresses| headers(&record, addresses, own));
        let headers_bytes = template.map_or(0, |template| template.headers_bytes());
        let is_whole = record.captured == record.original;
        match template {
            Some(template) if !is_whole => template.append_without_checksum(&mut self.frame, record.original as usize),
            _ => self.frame.resize(headers_bytes, 0),
        }
        input.end.take(&mut self.frame);
        if let Some(template) = template.filter(|_| is_whole) {
            template.write(&mut self.frame, record.captured as usize, 0);
        }
        let packet = Packet {
            interface: input.interface as u32,
            time_ns: record.time.wrapping_add(offset_ns),
            original_bytes: record.original + headers_bytes as u32,
            direction: record.direction,
            lost: record.lost - input.lost_shown,
        };
        let start = self.buffer.len();
        pcapng::packet(&mut self.buffer, &packet, &self.frame);
        let after = self.written + self.buffer.len() as u64 + self.statistics_bytes;
        if after > self.config.bytes_max {
            self.buffer.truncate(start);
            input.discarded += 1;
            self.write_buffer();
            let (path, bytes_max) = (self.config.path.clone(), self.config.bytes_max);
            self.error.get_or_insert(CaptureError::SizeLimit { path, bytes_max });
            return;
        }
        self.last_ns = self.last_ns.max(packet.time_ns);
        input.lost_shown = record.lost;
        input.taken += 1;
        input.buffered += 1;
    }

    /// Writes the buffer. Where that fails, the file is cut back to the blocks before it, and the capture ends.
    fn write_buffer(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let result = self.file.write_all(&self.buffer);
        match &result {
            Ok(()) => self.written += self.buffer.len() as u64,
            // Best effort: what can't be cut back either is no regular file.
            Err(_) => _ = self.file.set_len(self.written),
        }
        self.buffer.clear();
        for input in &mut self.inputs {
            let buffered = std::mem::take(&mut input.buffered);
            if result.is_err() {
                input.taken -= buffered;
                input.discarded += buffered;
            }
        }
        if let Err(error) = result {
            let path = self.config.path.clone();
            self.error.get_or_insert(CaptureError::Write { path, error });
        }
    }

    /// The totals at the end; also after a failure, if there is room for them.
    fn write_statistics(&mut self) {
        let end_ns = self.config.timeline.now_ns().unwrap_or(self.last_ns);
        let none = Totals { times_ns: (self.begin_ns, end_ns), ..Totals::default() };
        let mut totals = vec![none; self.config.interfaces.len()];
        for input in &self.inputs {
            let total = &mut totals[input.interface];
            total.lost += input.lost();
            total.seen += input.taken + input.lost();
        }
        for (number, totals) in totals.iter().enumerate() {
            pcapng::statistics(&mut self.buffer, number as u32, totals);
        }
        // A failed write may have moved the position.
        _ = self.file.seek(SeekFrom::Start(self.written));
        self.write_buffer();
    }
}

impl Input {
    fn lost(&self) -> u64 {
        self.end.lost() + self.discarded
    }
}

impl Timeline {
    /// What is to be added to a tap's time.
    fn offset_ns(self) -> u64 {
        match self {
            // The tightest of three looks: a preemption in the midst of one shifts it, hardly all of them.
            Timeline::Monotonic => std::iter::repeat_with(look).take(3).min().map_or(0, |(_, offset_ns)| offset_ns),
            Timeline::Since(begin_ns) => begin_ns,
        }
    }

    /// The time of day, where it is a real one.
    fn now_ns(self) -> Option<u64> {
        (self == Timeline::Monotonic).then(|| read(ClockId::CLOCK_REALTIME))
    }
}

/// The headers that a datagram had or would have had. The peer's Ethernet address is not known here, and left zero.
fn headers(record: &Record, (source, destination): (SocketAddrV4, SocketAddrV4), own: MacAddr) -> Template {
    let of_destination = |otherwise| match destination.ip() {
        ip if ip.is_multicast() => MacAddr::multicast(*ip),
        ip if ip.is_broadcast() => MacAddr::BROADCAST,
        _ => otherwise,
    };
    let (source_mac, destination_mac) = match record.direction {
        Direction::Inbound => (MacAddr::ZERO, of_destination(own)),
        Direction::Outbound => (own, of_destination(MacAddr::ZERO)),
    };
    Template::new(&Headers::new(source_mac, source, destination_mac, destination))
}

/// How long a look at both clocks took, and realtime minus monotonic, modulo 2^64.
fn look() -> (u64, u64) {
    let before = read(ClockId::CLOCK_MONOTONIC);
    let realtime = read(ClockId::CLOCK_REALTIME);
    let width = read(ClockId::CLOCK_MONOTONIC).saturating_sub(before);
    (width, realtime.wrapping_sub(before + width / 2))
}

pub(super) fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("both clocks exist on every Linux");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// A recorder at work. Ends, and completes its file, when it is stopped or dropped.
#[derive(Debug)]
pub struct RecorderThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Summary>>,
}

impl RecorderThread {
    /// Whether it still runs; it does after a failure, too, until it is stopped.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Takes what was tapped until now, ends the file, and tells what became of it.
    ///
    /// # Panics
    /// With the panic of the recorder, which would be a bug.
    pub fn stop(mut self) -> Summary {
        let ended = self.end().expect("stopped once only");
        ended.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
    }

    fn end(&mut self) -> Option<thread::Result<Summary>> {
        let thread = self.thread.take()?;
        // Pairs with the Acquire load in Recorder::spawn.
        self.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        Some(thread.join())
    }
}

impl Drop for RecorderThread {
    fn drop(&mut self) {
        // The file is complete now; nobody asked what became of it.
        _ = self.end();
    }
}
