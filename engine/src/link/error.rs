//! Why a datagram was dropped: one variant and one counter a reason.

use std::fmt;

/// Why bytes are not a link packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum PacketError {
    /// Fewer bytes than a header, or than its type needs.
    Short,
    /// It does not begin with the magic.
    BadMagic,
    /// Its checksum does not fit its bytes.
    BadCrc,
    /// A version that is not spoken here.
    BadVersion,
    /// A type that this version does not know.
    UnknownType,
    /// A reserved byte is not zero.
    ReservedNotZero,
    /// Bytes are left after the last field.
    Trailing,
    /// A count of zero where there must be something.
    EmptyCount,
    /// The count or a length promises more bytes than there are.
    LyingLength,
    /// Ranges that are empty, overlap, touch, or are not ascending.
    BadRange,
    /// A cursor of 2^63 or above, or cursors that contradict each other.
    BadCursor,
    /// A reason or tier that this version does not know.
    UnknownCode,
}

impl PacketError {
    /// Every reason, in index order.
    pub const ALL: [PacketError; 12] = [
        PacketError::Short,
        PacketError::BadMagic,
        PacketError::BadCrc,
        PacketError::BadVersion,
        PacketError::UnknownType,
        PacketError::ReservedNotZero,
        PacketError::Trailing,
        PacketError::EmptyCount,
        PacketError::LyingLength,
        PacketError::BadRange,
        PacketError::BadCursor,
        PacketError::UnknownCode,
    ];

    /// Its place in [`PacketError::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            PacketError::Short => "short",
            PacketError::BadMagic => "bad_magic",
            PacketError::BadCrc => "bad_crc",
            PacketError::BadVersion => "bad_version",
            PacketError::UnknownType => "unknown_type",
            PacketError::ReservedNotZero => "reserved_not_zero",
            PacketError::Trailing => "trailing_bytes",
            PacketError::EmptyCount => "empty_count",
            PacketError::LyingLength => "lying_length",
            PacketError::BadRange => "bad_range",
            PacketError::BadCursor => "bad_cursor",
            PacketError::UnknownCode => "unknown_code",
        }
    }
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PacketError::Short => "link packet is cut",
            PacketError::BadMagic => "not a link packet: it does not begin with TTLK",
            PacketError::BadCrc => "link packet's checksum does not fit its bytes",
            PacketError::BadVersion => "link packet of another version",
            PacketError::UnknownType => "link packet of an unknown type",
            PacketError::ReservedNotZero => "link packet with a reserved byte that is not zero",
            PacketError::Trailing => "link packet with bytes after its last field",
            PacketError::EmptyCount => "link packet with a count of zero",
            PacketError::LyingLength => "link packet whose count or length exceeds its bytes",
            PacketError::BadRange => "link packet whose ranges are empty, overlap or are out of order",
            PacketError::BadCursor => "link packet with an impossible cursor",
            PacketError::UnknownCode => "link packet with an unknown reason or tier",
        })
    }
}

impl std::error::Error for PacketError {}

/// Why a datagram, or part of it, had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// It is not a link packet.
    Malformed(PacketError),
    /// Of a session that is not this one, or that is not open here.
    ForeignSession,
    /// Of an incarnation of the client, or a reign of the appliance, that is over.
    StaleEpoch,
    /// Of an epoch that this end has not yet been told of in a handshake.
    UnknownEpoch,
    /// An answer to an earlier Hello.
    StaleHandshake,
    /// A type that makes no sense in this direction or state.
    Unexpected,
    /// All its messages had arrived before.
    Duplicate,
    /// Messages before it are missing.
    Gap,
    /// Its messages lie beyond anything that the window allowed.
    BeyondWindow,
    /// It acknowledges what was never sent, or contradicts itself.
    BadAck,
    /// There was no room for some of its messages.
    NoRoom,
    /// A message shorter than an event's fixed part.
    BadEvent,
}

impl DropReason {
    /// How many reasons there are.
    pub const COUNT: usize = PacketError::ALL.len() + DropReason::OTHERS.len();

    const OTHERS: [DropReason; 11] = [
        DropReason::ForeignSession,
        DropReason::StaleEpoch,
        DropReason::UnknownEpoch,
        DropReason::StaleHandshake,
        DropReason::Unexpected,
        DropReason::Duplicate,
        DropReason::Gap,
        DropReason::BeyondWindow,
        DropReason::BadAck,
        DropReason::NoRoom,
        DropReason::BadEvent,
    ];

    /// Every reason, in index order.
    pub fn all() -> impl Iterator<Item = DropReason> {
        PacketError::ALL.into_iter().map(DropReason::Malformed).chain(DropReason::OTHERS)
    }

    /// Its place in [`DropReason::all`].
    #[inline]
    pub const fn index(self) -> usize {
        let other = match self {
            DropReason::Malformed(error) => return error.index(),
            DropReason::ForeignSession => 0,
            DropReason::StaleEpoch => 1,
            DropReason::UnknownEpoch => 2,
            DropReason::StaleHandshake => 3,
            DropReason::Unexpected => 4,
            DropReason::Duplicate => 5,
            DropReason::Gap => 6,
            DropReason::BeyondWindow => 7,
            DropReason::BadAck => 8,
            DropReason::NoRoom => 9,
            DropReason::BadEvent => 10,
        };
        PacketError::ALL.len() + other
    }

    /// A short name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Malformed(error) => error.name(),
            DropReason::ForeignSession => "foreign_session",
            DropReason::StaleEpoch => "stale_epoch",
            DropReason::UnknownEpoch => "unknown_epoch",
            DropReason::StaleHandshake => "stale_handshake",
            DropReason::Unexpected => "unexpected",
            DropReason::Duplicate => "duplicate",
            DropReason::Gap => "gap",
            DropReason::BeyondWindow => "beyond_window",
            DropReason::BadAck => "bad_ack",
            DropReason::NoRoom => "no_room",
            DropReason::BadEvent => "bad_event",
        }
    }
}

/// How often each reason was met. Single-threaded: each end of a link owns one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCounters {
    drops: [u64; DropReason::COUNT],
}

impl Default for LinkCounters {
    fn default() -> Self {
        LinkCounters { drops: [0; DropReason::COUNT] }
    }
}

impl LinkCounters {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        self.drops[reason.index()] += 1;
    }

    /// How often `reason` was met.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()]
    }

    /// How often any reason was met.
    pub fn total(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Every reason, with how often it was met.
    pub fn all(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::all().zip(self.drops)
    }

    /// The reasons that were met, with how often.
    pub fn met(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        self.all().filter(|&(_, times)| times != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_reason_has_its_own_counter_and_name() {
        let mut counters = LinkCounters::default();
        for (i, reason) in DropReason::all().enumerate() {
            assert_eq!(reason.index(), i);
            counters.count(reason);
            assert_eq!(counters.get(reason), 1);
        }
        assert_eq!(counters.total(), DropReason::COUNT as u64);
        assert_eq!(counters.met().count(), DropReason::COUNT);
        assert_eq!(DropReason::all().map(DropReason::name).collect::<BTreeSet<_>>().len(), DropReason::COUNT);
        assert!(PacketError::ALL.iter().enumerate().all(|(i, error)| error.index() == i));
    }
}
