//! What rewinders answer is what they were asked for. A catch-up mends whatever repairs leave open, so nothing else would show it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;

use ticktape::feed::{MoldPacket, MoldRequest, SessionName};

/// Messages of a session: the first, and the one after the last.
type Range = (SessionName, u64, u64);

/// Every request that has reached a rewinder, damaged or not, and the first answer that was to none of them.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    rewinders: BTreeSet<SocketAddrV4>,
    /// By rewinder and asker.
    asked: BTreeMap<(SocketAddrV4, SocketAddrV4), BTreeSet<Range>>,
    odd: Option<String>,
}

impl Repairs {
    /// Whoever has a port there is a rewinder.
    pub(super) fn add_rewinder(&mut self, address: SocketAddrV4) {
        self.rewinders.insert(address);
    }

    /// A datagram is put into the ring of the port at `destination`.
    pub(super) fn arrives(&mut self, source: SocketAddrV4, destination: SocketAddrV4, bytes: &[u8]) {
        if !self.rewinders.contains(&destination) {
            return;
        }
        if let Ok(MoldRequest { session, sequence, count }) = MoldRequest::parse(bytes) {
            let range = (session, sequence, sequence + u64::from(count));
            self.asked.entry((destination, source)).or_default().insert(range);
        }
    }

    /// A datagram leaves the port at `source`.
    pub(super) fn leaves(&mut self, source: SocketAddrV4, destination: SocketAddrV4, bytes: &[u8]) {
        if self.odd.is_some() || !self.rewinders.contains(&source) {
            return;
        }
        let Ok(MoldPacket::Messages { session, sequence, count, .. }) = MoldPacket::parse(bytes) else { return };
        let end = sequence + u64::from(count);
        let fits = |(name, from, to): &Range| name == session && *from <= sequence && end <= *to;
        if !self.asked.get(&(source, destination)).is_some_and(|ranges| ranges.iter().any(fits)) {
            self.odd = Some(format!("{source} sent {sequence} to {} to {destination}, unasked", end - 1));
        }
    }

    /// The first such answer, if there was one.
    pub(super) fn odd(&self) -> Option<&str> {
        self.odd.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use ticktape::feed::Packer;

    const NAME: SessionName = *b"FEED000001";

    fn at(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    /// What is found odd where `asked` (first, count) reached the rewinder, and `answered` (first, count) goes back.
    fn odd_after(asked: (u64, u16), answered: (u64, u16)) -> Option<String> {
        let mut repairs = Repairs::default();
        repairs.add_rewinder(at(1));
        let request = MoldRequest { session: NAME, sequence: asked.0, count: asked.1 };
        repairs.arrives(at(2), at(1), &request.encode());
        let mut packer = Packer::new(NAME, answered.0, 512);
        (0..answered.1).for_each(|_| assert!(packer.push(b"message")));
        repairs.leaves(at(1), at(2), packer.packet());
        repairs.odd().map(str::to_string)
    }

    #[test]
    fn answers_lie_within_what_was_asked_for() {
        assert_eq!(odd_after((5, 3), (5, 3)), None);
        assert_eq!(odd_after((5, 3), (7, 1)), None);
        for answered in [(4, 3), (5, 4), (8, 1), (1, 1)] {
            let odd = odd_after((5, 3), answered).unwrap_or_else(|| panic!("{answered:?} is fine"));
            assert!(odd.ends_with("unasked"), "{odd}");
        }
    }
}
