//! The capture of an appliance's datagrams: taps around its backends, and the thread that writes what they take.
//!
//! The stages never wait for it: a datagram that finds no room in a tap goes on its way, and is counted as lost.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ticktape_nic::capture::pcapng::Interface;
use ticktape_nic::capture::{CaptureError, Recorder, RecorderConfig, Summary, Tap, Tapped, channel, monotonic_now};
use ticktape_nic::packet::{InterfaceInfo, MacAddr};
use ticktape_nic::{Nic, UdpNic};
use ticktape_shm::Consumer;
use ticktape_tuning::pin;

use super::stage::{Lifecycle, Stage};
use super::stages::PublisherStage;
use crate::config::{ApplianceConfig, CAPTURE_EVENTS, CAPTURE_FEED, CAPTURE_LINK, CaptureConfig};
use crate::feed::Publisher;

/// How long the recorder rests when all taps are empty. They hold what comes meanwhile.
const REST: Duration = Duration::from_millis(1);

/// The hot ends: what the backends are wrapped with.
pub(super) struct Taps {
    /// Of the link's receive half.
    pub(super) rx: Tap,
    /// Of its transmit half.
    pub(super) tx: Tap,
    /// Of what is published.
    pub(super) feeds: FeedTaps,
    /// What the link sends as, where it listens on all addresses.
    pub(super) ip: Ipv4Addr,
}

/// Those of the transmit halves of feeds, where there are such.
#[derive(Default)]
pub(super) struct FeedTaps {
    /// Of the sequenced stream.
    pub(super) feed: Option<Tap>,
    /// Of the public events.
    pub(super) events: Option<Tap>,
}

/// Makes the taps, and the file with its beginning.
pub(super) fn open(
    capture: &CaptureConfig,
    config: &ApplianceConfig,
    nic: &impl Nic,
) -> Result<(Taps, Recorder), CaptureError> {
    let tap = || channel(capture.slots, capture.snap_bytes.unwrap_or(config.datagram_bytes_max));
    let ((rx, rx_end), (tx, tx_end)) = (tap(), tap());
    // Only for the names in the file: without them it is a capture all the same.
    let present = InterfaceInfo::all().unwrap_or_default();
    let link = link_interface(config, &present);
    let ip = link.and_then(InterfaceInfo::ip).unwrap_or(Ipv4Addr::LOCALHOST);
    let mut interfaces = vec![interface(link, format!("{CAPTURE_LINK}: {}", nic.describe()))];
    let mut ends = vec![(0, rx_end), (0, tx_end)];
    let mut tapped = |on: Ipv4Addr, description: String| {
        let (tap, end) = tap();
        ends.push((interfaces.len(), end));
        interfaces.push(interface(owner(&present, on), description));
        tap
    };
    let describe = |what: &str, a: SocketAddrV4, b: Option<SocketAddrV4>| {
        format!("{what}: MoldUDP64 to {a}{}", b.map_or_else(String::new, |b| format!(" and {b}")))
    };
    let feed = config.feed.as_ref().map(|feed| tapped(feed.interface, describe(CAPTURE_FEED, feed.a, feed.b)));
    let events = config.events.as_ref();
    let events = events.map(|events| tapped(events.interface, describe(CAPTURE_EVENTS, events.a, events.b)));
    let recorder_config = RecorderConfig {
        interfaces: interfaces.clone(),
        bytes_max: capture.bytes_max,
        ..RecorderConfig::new(&capture.file, interfaces.swap_remove(0))
    };
    Ok((Taps { rx, tx, feeds: FeedTaps { feed, events }, ip }, Recorder::create(recorder_config, ends)?))
}

/// The interface that clients come in by.
fn link_interface<'a>(config: &ApplianceConfig, present: &'a [InterfaceInfo]) -> Option<&'a InterfaceInfo> {
    let listen = *config.listen.ip();
    let named = config.xdp.as_ref().map(|xdp| xdp.interface.as_str());
    let of_name = || present.iter().find(|info| Some(info.name.as_str()) == named);
    let any = || present.iter().find(|info| info.up && !info.is_loopback && info.ip().is_some());
    if listen.is_unspecified() { of_name().or_else(any) } else { owner(present, listen).or_else(of_name) }
}

fn owner(present: &[InterfaceInfo], ip: Ipv4Addr) -> Option<&InterfaceInfo> {
    present.iter().find(|info| info.addresses.iter().any(|address| address.ip == ip))
}

fn interface(info: Option<&InterfaceInfo>, description: String) -> Interface {
    Interface {
        name: info.map_or_else(|| "unknown".to_string(), |info| info.name.clone()),
        description,
        mac: info.map_or(MacAddr::ZERO, |info| info.mac),
        address: info.and_then(|info| info.addresses.first()).map(|address| (address.ip, address.prefix)),
    }
}

/// The publisher, tapped or not.
pub(super) fn publisher_stage(
    frames: Consumer,
    feed: Option<(Publisher, UdpNic, Ipv4Addr)>,
    tap: Option<Tap>,
    lifecycle: Lifecycle,
) -> Box<dyn Stage> {
    match (feed, tap) {
        (Some((publisher, nic, ip)), Some(tap)) => {
            // Nothing is ever received there.
            let (unused, _) = channel(1, 1);
            let (_, tx) = Tapped::new(nic, unused, tap, ip, monotonic_now).split();
            Box::new(PublisherStage::new(frames, Some((publisher, tx)), lifecycle))
        }
        (feed, _) => {
            let feed = feed.map(|(publisher, nic, _)| (publisher, nic.split().1));
            Box::new(PublisherStage::new(frames, feed, lifecycle))
        }
    }
}

/// A recorder at work.
pub(super) struct CaptureThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Summary>,
}

impl CaptureThread {
    /// Starts it on `cores`, behind whoever else wants them.
    pub(super) fn start(mut recorder: Recorder, cores: Vec<usize>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = thread::Builder::new().name("tt-capture".to_string()).spawn(move || {
            // Without them it is only less considerate.
            let _ = pin::keep_to(&cores);
            let _ = pin::stay_behind();
            // Pairs with the Release store in `finish`: what was tapped before it is taken.
            while !seen.load(Ordering::Acquire) {
                if recorder.poll() == 0 {
                    thread::park_timeout(REST);
                }
            }
            recorder.finish()
        })?;
        Ok(CaptureThread { stop, thread })
    }

    /// Takes what is left, ends the file, and tells what became of it. `Err` where the recorder panicked.
    pub(super) fn finish(self) -> thread::Result<Summary> {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join()
    }
}

/// The taps and their place, in words.
pub(super) struct Described<'a>(pub(super) &'a CaptureConfig, pub(super) &'a ApplianceConfig, pub(super) &'a [usize]);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Described(capture, config, cores) = self;
        write!(
            f,
            "to {}: {} taps with room for {} datagrams of {} bytes each, recorder on cores {}",
            capture.file.display(),
            2 + usize::from(config.feed.is_some()) + usize::from(config.events.is_some()),
            capture.slots,
            capture.snap_bytes.unwrap_or(config.datagram_bytes_max),
            pin::list(cores)
        )
    }
}
