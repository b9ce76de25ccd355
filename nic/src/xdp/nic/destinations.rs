//! The headers of each destination, ready to be written: a small table that the sending core owns.

use std::net::SocketAddrV4;

use super::super::config::{NextHops, XdpConfig};
use super::super::error::XdpError;
use super::super::limits::{DESTINATION_WAYS, DESTINATIONS_MAX};
use super::hops::{self, Hops, NOTHING};
use crate::packet::{Headers, InterfaceInfo, MacAddr, Template};

const SETS: usize = DESTINATIONS_MAX / DESTINATION_WAYS;

/// Who sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) mac: MacAddr,
    pub(super) address: SocketAddrV4,
}

/// How a destination is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// At an address that never changes: a group, or the configured one.
    Settled,
    /// Where the kernel's neighbours say.
    Asked,
    /// Never on this wire.
    KernelOnly,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Address and port; `None` where nobody has been.
    to: Option<SocketAddrV4>,
    way: Way,
    generation: u16,
    /// The answer that the template was made of.
    seen: u64,
    template: Template,
}

/// The table: sets of a few entries each.
#[derive(Debug)]
pub(super) struct Destinations {
    entries: Box<[Entry]>,
    /// Which of a set's entries goes next, where all are taken.
    victims: Box<[u8]>,
    hops: Option<Hops>,
    fixed: Option<MacAddr>,
    origin: Origin,
    vlan: Option<u16>,
    multicast_ttl: u8,
    /// The last hit: bursts go to one destination.
    last: usize,
    pub(super) made: u64,
    pub(super) displaced: u64,
}

impl Destinations {
    pub(super) fn open(
        config: &XdpConfig,
        interface: &InterfaceInfo,
        origin: Origin,
    ) -> Result<Destinations, XdpError> {
        let (hops, fixed) = match config.next_hops {
            NextHops::Kernel => (Some(Hops::start(DESTINATIONS_MAX, interface)?), None),
            NextHops::Fixed(mac) => (None, Some(mac)),
        };
        Ok(Destinations::new(hops, fixed, origin, config.vlan, config.multicast_ttl))
    }

    fn new(
        hops: Option<Hops>,
        fixed: Option<MacAddr>,
        origin: Origin,
        vlan: Option<u16>,
        multicast_ttl: u8,
    ) -> Destinations {
        let template = Template::new(&Headers::new(origin.mac, origin.address, MacAddr::ZERO, origin.address));
        let empty = Entry { to: None, way: Way::KernelOnly, generation: 0, seen: NOTHING, template };
        Destinations {
            entries: vec![empty; DESTINATIONS_MAX].into(),
            victims: vec![0; SETS].into(),
            hops,
            fixed,
            origin,
            vlan,
            multicast_ttl,
            last: 0,
            made: 0,
            displaced: 0,
        }
    }

    /// The headers for a destination; `None` while its next hop is not known: then it is being looked up.
    #[inline]
    pub(super) fn template(&mut self, to: SocketAddrV4) -> Option<&Template> {
        let at = if self.entries[self.last].to == Some(to) { self.last } else { self.find(to) };
        self.last = at;
        let entry = &self.entries[at];
        match entry.way {
            Way::Settled => {}
            Way::KernelOnly => return None,
            Way::Asked => {
                let answer = self.hops.as_ref().map_or(NOTHING, |hops| hops.answer(at));
                if answer != entry.seen {
                    self.renew(at, to, answer);
                }
                if self.entries[at].seen == NOTHING {
                    return None;
                }
            }
        }
        Some(&self.entries[at].template)
    }

    /// The place of a destination, made where it had none.
    fn find(&mut self, to: SocketAddrV4) -> usize {
        let set = set_of(to);
        let first = set * DESTINATION_WAYS;
        let ways = &self.entries[first..first + DESTINATION_WAYS];
        if let Some(way) = ways.iter().position(|entry| entry.to == Some(to)) {
            return first + way;
        }
        let way = ways.iter().position(|entry| entry.to.is_none()).unwrap_or_else(|| {
            let victim = &mut self.victims[set];
            *victim = (*victim + 1) % DESTINATION_WAYS as u8;
            self.displaced += 1;
            usize::from(*victim)
        });
        self.made += 1;
        self.place(first + way, to);
        first + way
    }

    fn place(&mut self, at: usize, to: SocketAddrV4) {
        let ip = *to.ip();
        let generation = self.entries[at].generation.wrapping_add(1).max(1);
        let settled = if ip.is_multicast() { Some(MacAddr::multicast(ip)) } else { self.fixed };
        let way = if ip.is_broadcast() || ip.is_loopback() || ip.is_unspecified() {
            Way::KernelOnly
        } else if settled.is_some() {
            Way::Settled
        } else {
            Way::Asked
        };
        if let Some(hops) = &self.hops {
            match way {
                Way::Asked => hops.ask(at, ip, generation),
                Way::Settled | Way::KernelOnly => hops.forget(at),
            }
        }
        let template = self.headers(to, settled.unwrap_or(MacAddr::ZERO));
        self.entries[at] = Entry { to: Some(to), way, generation, seen: NOTHING, template };
    }

    /// Takes a new answer, or the loss of one.
    #[cold]
    fn renew(&mut self, at: usize, to: SocketAddrV4, answer: u64) {
        let (mac, generation) = hops::parts(answer);
        if answer != NOTHING && generation == self.entries[at].generation {
            self.entries[at].template = self.headers(to, mac);
            self.entries[at].seen = answer;
        } else {
            self.entries[at].seen = NOTHING;
        }
    }

    fn headers(&self, to: SocketAddrV4, mac: MacAddr) -> Template {
        let mut headers = Headers::new(self.origin.mac, self.origin.address, mac, to);
        headers.vlan = self.vlan;
        if to.ip().is_multicast() {
            headers.ttl = self.multicast_ttl;
        }
        Template::new(&headers)
    }
}

/// Spreads addresses and ports alike (Knuth's multiplicative hash).
#[inline]
fn set_of(to: SocketAddrV4) -> usize {
    let key = u64::from(u32::from(*to.ip())) << 16 | u64::from(to.port());
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SETS
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ORIGIN: Origin =
        Origin { mac: MacAddr([2, 0, 0, 0, 0, 1]), address: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7) };

    fn table(fixed: Option<MacAddr>) -> Destinations {
        Destinations::new(None, fixed, ORIGIN, None, 3)
    }

    fn to(number: u32) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from(0x0a00_0000 + number / 100), 1_000 + (number % 100) as u16)
    }

    #[test]
    fn groups_need_nobody_to_be_asked() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 9);
        let headers =
            Headers { ttl: 3, ..Headers::new(ORIGIN.mac, ORIGIN.address, MacAddr::multicast(*group.ip()), group) };
        assert_eq!(table(None).template(group), Some(&Template::new(&headers)));
    }

    #[test]
    fn a_fixed_address_serves_all_but_what_never_leaves_by_wire() {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let mut table = table(Some(mac));
        let expected = Template::new(&Headers::new(ORIGIN.mac, ORIGIN.address, mac, to(5)));
        assert_eq!(table.template(to(5)), Some(&expected));
        for ip in [Ipv4Addr::BROADCAST, Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            assert_eq!(table.template(SocketAddrV4::new(ip, 7)), None, "{ip}");
        }
    }

    #[test]
    fn an_unanswered_destination_has_no_headers() {
        let mut table = table(None);
        assert_eq!(table.template(to(1)), None);
        let at = table.find(to(1));
        let generation = table.entries[at].generation;
        let mac = MacAddr([2, 0, 0, 0, 0, 3]);
        table.renew(at, to(1), hops::answer(mac, generation.wrapping_add(1)));
        assert_eq!(table.entries[at].seen, NOTHING, "an answer to another question");
        table.renew(at, to(1), hops::answer(mac, generation));
        assert_eq!(table.entries[at].template, Template::new(&Headers::new(ORIGIN.mac, ORIGIN.address, mac, to(1))));
        table.renew(at, to(1), NOTHING);
        assert_eq!(table.entries[at].seen, NOTHING, "the neighbour is gone");
    }

    #[test]
    fn any_number_of_destinations_share_a_bounded_table() {
        let mut table = table(Some(ORIGIN.mac));
        for number in 0..10 * DESTINATIONS_MAX as u32 {
            assert!(table.template(to(number)).is_some());
            assert!(table.template(to(number)).is_some());
        }
        assert_eq!(table.made, 10 * DESTINATIONS_MAX as u64);
        assert_eq!(table.made - table.displaced, DESTINATIONS_MAX as u64, "every place is used");
    }
}
