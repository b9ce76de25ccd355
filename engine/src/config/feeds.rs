//! Where the sequenced stream and the public events go out.

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::Deserialize;

use super::ConfigError;
use crate::feed::mold;
use crate::link::{DATA_OVERHEAD_BYTES, event};

/// Memory that the latest public events may take, in bytes.
const EVENTS_RECENT_BYTES_MAX: usize = 1 << 30;

// What fits a datagram to a client fits one of the events' feed, so that there is one limit on outputs.
const _: () = assert!(DATA_OVERHEAD_BYTES + event::OUTPUT >= mold::OVERHEAD_BYTES);

/// Where the sequenced stream goes out as MoldUDP64.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [feed] with a = \"239.1.1.1:7100\"")]
pub struct FeedConfig {
    /// Group (or unicast address) and port of feed A.
    pub a: SocketAddrV4,
    /// The same of feed B, if there is one.
    pub b: Option<SocketAddrV4>,
    /// Where replicas ask for what they missed: single messages and the commit watermark over UDP, bulk over TCP, on one port number.
    #[serde(default)]
    pub repair: Option<SocketAddrV4>,
    /// Address of the interface that the feeds leave by.
    #[serde(default = "loopback")]
    pub interface: Ipv4Addr,
    /// Four characters of 0-9 and A-Z that name the stream.
    #[serde(default = "stream_name")]
    pub stream: String,
}

impl FeedConfig {
    /// One feed to `a`, leaving by the loopback interface.
    pub fn on_loopback(a: SocketAddrV4) -> Self {
        FeedConfig { a, b: None, repair: None, interface: loopback(), stream: stream_name() }
    }

    /// The stream's name as a number, in base 36.
    pub fn stream(&self) -> u32 {
        u32::from_str_radix(&self.stream, 36).unwrap_or(0)
    }

    /// Why `stream` can't be a stream's name, if it can't.
    ///
    /// # Errors
    /// One line that names it.
    pub fn check_stream(stream: &str) -> Result<(), String> {
        let fits = stream.len() == 4 && stream.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        if fits { Ok(()) } else { Err(format!("{stream:?} is not four characters of 0-9 and A-Z")) }
    }
}

/// Where public events go out as MoldUDP64: what the service emits to everybody, once it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as [events] with a = \"239.1.1.2:7200\"")]
pub struct EventsConfig {
    /// Group (or unicast address) and port of feed A.
    pub a: SocketAddrV4,
    /// The same of feed B, if there is one.
    pub b: Option<SocketAddrV4>,
    /// Address of the interface that the feeds leave by.
    #[serde(default = "loopback")]
    pub interface: Ipv4Addr,
    /// Four characters of 0-9 and A-Z that name the stream.
    #[serde(default = "events_name")]
    pub stream: String,
    /// Where receivers ask, by UDP, for events that they missed; nowhere where not given.
    pub repair: Option<SocketAddrV4>,
    /// Bytes of the latest events that they can still be given.
    #[serde(default = "recent_bytes")]
    pub recent_bytes: usize,
}

impl EventsConfig {
    /// One feed to `a`, leaving by the loopback interface, without repairs.
    pub fn on_loopback(a: SocketAddrV4) -> Self {
        let (interface, stream) = (loopback(), events_name());
        EventsConfig { a, b: None, interface, stream, repair: None, recent_bytes: recent_bytes() }
    }

    /// The stream's name as a number, in base 36.
    pub fn stream(&self) -> u32 {
        u32::from_str_radix(&self.stream, 36).unwrap_or(0)
    }

    /// Checks what can be checked without touching anything.
    pub(super) fn validate(&self, feed: Option<&FeedConfig>, datagram_bytes_max: usize) -> Result<(), ConfigError> {
        let bad = |key: &str, message: String| Err(ConfigError { place: format!("events.{key}"), message });
        FeedConfig::check_stream(&self.stream).or_else(|message| bad("stream", message))?;
        if feed.is_some_and(|feed| feed.stream == self.stream) {
            return bad("stream", format!("{:?} is that of [feed], too: receivers tell the two by it", self.stream));
        }
        if !(datagram_bytes_max..=EVENTS_RECENT_BYTES_MAX).contains(&self.recent_bytes) {
            let (bytes, max) = (self.recent_bytes, EVENTS_RECENT_BYTES_MAX);
            return bad("recent_bytes", format!("{bytes} is outside {datagram_bytes_max}..={max}"));
        }
        Ok(())
    }
}

/// What this appliance listens on are sockets of its own: no two can be bound to one place.
pub(super) fn check_bound(
    listen: SocketAddrV4,
    feed: Option<&FeedConfig>,
    events: Option<&EventsConfig>,
) -> Result<(), ConfigError> {
    let bound = [
        ("listen", Some(listen)),
        ("feed.repair", feed.and_then(|feed| feed.repair)),
        ("events.repair", events.and_then(|events| events.repair)),
    ];
    let bound: Vec<_> = bound.into_iter().filter_map(|(key, at)| Some((key, at?))).collect();
    for (index, &(key, at)) in bound.iter().enumerate() {
        let is_same = |other: SocketAddrV4| {
            let is_everywhere = other.ip().is_unspecified() || at.ip().is_unspecified();
            other.port() == at.port() && at.port() != 0 && (other.ip() == at.ip() || is_everywhere)
        };
        if let Some((other, _)) = bound[..index].iter().find(|(_, other)| is_same(*other)) {
            let message = format!("{at} is where {other} is bound, too: give it a port of its own");
            return Err(ConfigError { place: key.to_string(), message });
        }
    }
    Ok(())
}

/// Each side of each feed needs an address of its own that can be sent to.
pub(super) fn check_sides(
    listen: SocketAddrV4,
    feed: Option<&FeedConfig>,
    events: Option<&EventsConfig>,
) -> Result<(), ConfigError> {
    let sides = [
        ("feed.a", feed.map(|feed| feed.a)),
        ("feed.b", feed.and_then(|feed| feed.b)),
        ("events.a", events.map(|events| events.a)),
        ("events.b", events.and_then(|events| events.b)),
    ];
    let bound = [
        ("listen", Some(listen)),
        ("feed.repair", feed.and_then(|feed| feed.repair)),
        ("events.repair", events.and_then(|events| events.repair)),
    ];
    for (at, &(key, side)) in sides.iter().enumerate() {
        let Some(side) = side else { continue };
        let bad = |message: String| Err(ConfigError { place: key.to_string(), message });
        if side.port() == 0 {
            return bad(format!("{side} can't be sent to: give the port that receivers are bound to"));
        }
        if let Some((other, _)) = sides[..at].iter().find(|(_, other)| *other == Some(side)) {
            return bad(format!(
                "{side} is {other}, too: each side of each feed needs an address or a port of its own"
            ));
        }
        if let Some((other, at)) =
            bound.iter().find_map(|&(other, at)| Some((other, at.filter(|&at| takes(at, side))?)))
        {
            return bad(format!(
                "{side} is where this appliance itself is bound ({other} = {at}), and no receiver can be: give it an address or a port \
                 of its own"
            ));
        }
    }
    Ok(())
}

/// Whether what is sent to `side` comes to a socket of this process that is bound to `bound`, as far as addresses alone tell.
fn takes(bound: SocketAddrV4, side: SocketAddrV4) -> bool {
    let is_here = bound.ip() == side.ip() || bound.ip().is_unspecified() && side.ip().is_loopback();
    is_here && bound.port() == side.port()
}

fn events_name() -> String {
    "EVNT".to_string()
}

/// Some 100 000 events of 40 bytes: what a busy exchange says in a second.
fn recent_bytes() -> usize {
    4 << 20
}

fn loopback() -> Ipv4Addr {
    Ipv4Addr::LOCALHOST
}

fn stream_name() -> String {
    "TAPE".to_string()
}
