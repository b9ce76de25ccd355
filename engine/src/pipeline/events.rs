//! The wiring of the public events: their sockets, and the egress that feeds them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;

use ticktape_nic::capture::{Tap, Tapped, channel, monotonic_now};
use ticktape_nic::{Nic, NicError, Tx, UdpConfig, UdpNic};

use super::stage::{Lifecycle, Stage};
use super::stages::EgressStage;
use crate::config::{ApplianceConfig, EventsConfig};
use crate::egress::Egress;
use crate::events::{EventFeed, EventRepair};
use crate::feed::{EndedSessions, FeedConfig, FeedSession, HEARTBEAT_NS, Publisher, Recent, Rewinder, RewinderConfig};
use crate::payload::Reign;

/// The sockets of the event feed.
pub(super) struct Ports {
    feed: UdpNic,
    repair: Option<UdpNic>,
}

impl Ports {
    /// Opens them.
    pub(super) fn open(events: &EventsConfig, config: &ApplianceConfig) -> Result<Ports, NicError> {
        let open = |bind: SocketAddrV4, interface: Option<Ipv4Addr>| {
            let datagram_bytes_max = config.datagram_bytes_max;
            UdpNic::open(&UdpConfig { interface, datagram_bytes_max, ..UdpConfig::new(bind) })
        };
        let feed = open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), Some(events.interface))?;
        Ok(Ports { feed, repair: events.repair.map(|address| open(address, None)).transpose()? })
    }

    /// Where repairs are asked for, if anywhere.
    pub(super) fn repair_addr(&self) -> Option<SocketAddrV4> {
        self.repair.as_ref().map(Nic::local_addr)
    }
}

/// What is to be published.
pub(super) struct Events<'a> {
    pub(super) settings: &'a EventsConfig,
    pub(super) ports: Ports,
    /// The latest ones of history.
    pub(super) recent: Recent,
    pub(super) epoch: u32,
    /// How the sessions of the reigns before ended.
    pub(super) ended: EndedSessions,
    /// Which log this is; 0 where it has no identity yet.
    pub(super) log_id: u64,
    /// Its reigns, the present one too.
    pub(super) reigns: Box<[Reign]>,
    pub(super) datagram_bytes_max: usize,
    pub(super) tap: Option<Tap>,
}

impl Events<'_> {
    /// Where they go, for people.
    pub(super) fn describe(&self) -> String {
        let EventsConfig { a, b, stream, recent_bytes, .. } = self.settings;
        let also = b.map_or_else(String::new, |b| format!(" and {b}"));
        let repair = self.ports.repair_addr().map_or_else(
            || "no repairs".to_string(),
            |address| format!("repairs on UDP {address} from the latest {recent_bytes} bytes"),
        );
        format!("MoldUDP64 on {a}{also}, stream {stream} from event {}, {repair}", self.recent.next())
    }

    fn session(&self) -> FeedSession {
        FeedSession::new(self.settings.stream(), self.epoch).expect("checked at the start")
    }

    fn publisher(&self) -> Publisher {
        Publisher::new(&FeedConfig {
            session: self.session(),
            first_seq: self.recent.next(),
            a: self.settings.a,
            b: self.settings.b,
            datagram_bytes_max: self.datagram_bytes_max,
            heartbeat_interval_ns: HEARTBEAT_NS,
        })
    }
}

/// The egress, with public events or without, tapped or not.
pub(super) fn egress_stage<T: Tx + Send + 'static>(
    egress: Egress<T>,
    events: Option<Events<'_>>,
    lifecycle: Lifecycle,
) -> Box<dyn Stage> {
    let Some(events) = events else { return Box::new(EgressStage::new(egress, lifecycle)) };
    let (publisher, session, interface) = (events.publisher(), events.session(), events.settings.interface);
    let Events { ports: Ports { feed, repair }, recent, ended, log_id, reigns, datagram_bytes_max, tap, .. } = events;
    let repair = repair.map(|nic| {
        let (rx, tx) = nic.split();
        let mut rewinder = Rewinder::new(&RewinderConfig { datagram_bytes_max, ..RewinderConfig::new(session) });
        rewinder.tell_ends(ended);
        if let Some(log_id) = NonZeroU64::new(log_id) {
            rewinder.tell_log(log_id, reigns);
        }
        EventRepair::new(rx, tx, rewinder)
    });
    match tap {
        Some(tap) => {
            // Nothing is ever received there.
            let (unused, _) = channel(1, 1);
            let (_, tx) = Tapped::new(feed, unused, tap, interface, monotonic_now).split();
            let events = EventFeed::new(publisher, tx, recent, repair);
            Box::new(EgressStage::new(egress.with_events(events), lifecycle))
        }
        None => {
            let events = EventFeed::new(publisher, feed.split().1, recent, repair);
            Box::new(EgressStage::new(egress.with_events(events), lifecycle))
        }
    }
}
