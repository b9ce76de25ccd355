//! What is wrong with a packet, or keeps it from being a datagram: counted by reason, and passed over.

use std::fmt;

/// Declares the reasons with their names and texts, so that none can be missing from a list.
macro_rules! flaws {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $text:literal;)*) => {
        /// What is wrong with a packet, or why there is no UDP datagram of IPv4 in it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Flaw { $($(#[$doc])* $variant,)* }

        impl Flaw {
            /// All of them, in the order of [`Flaws::rows`].
            pub const ALL: [Flaw; [$($name),*].len()] = [$(Flaw::$variant),*];

            /// The reason's name in tables and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Flaw::$variant => $name,)* }
            }
        }

        impl fmt::Display for Flaw {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Flaw::$variant => $text,)* })
            }
        }
    };
}

flaws! {
    /// Of an interface that its section has not declared. The packet is skipped.
    UnknownInterface = "unknown_interface", "of an interface that was not declared";
    /// A packet's block without the fields that it must have. Skipped.
    PacketShort = "packet_short", "a packet's block that lacks fields";
    /// A packet of more bytes than its block. Skipped.
    PacketBeyondBlock = "packet_beyond_block", "a packet of more bytes than its block has";
    /// More bytes captured than the packet had. Skipped.
    CapturedBeyondOriginal = "captured_beyond_original", "more bytes captured than the packet had";
    /// More bytes captured than the interface keeps of a packet. Skipped.
    BeyondSnap = "beyond_snap", "more bytes captured than its interface keeps";
    /// Options that exceed their block. Those before them count, and so does the packet.
    BadOptions = "bad_options", "options that exceed their block";
    /// A time that is none since 1970 in 64 bits of nanoseconds. The packet counts, without one.
    TimeOutOfRange = "time_out_of_range", "a time before 1970 or beyond 2554";
    /// A link type that is not known here.
    LinkType = "link_type", "a link type that is not known";
    /// Only its beginning was kept, and the datagram ends beyond that.
    Cut = "cut", "only its beginning was kept";
    /// It ends before its headers do, though all of it was kept.
    Short = "short", "ends within its headers";
    /// More VLAN tags than [`super::TAGS_MAX`].
    TooManyTags = "too_many_tags", "more than two VLAN tags";
    /// Not IPv4: ARP, IPv6 and everything else.
    NotIpv4 = "not_ipv4", "not IPv4";
    /// Says IPv4 and is not version 4.
    Version = "version", "says IPv4 and is of another version";
    /// An IPv4 header that claims less than the five words that every header has.
    HeaderLength = "header_length", "an IPv4 header of less than 20 bytes";
    /// Part of a datagram: parts are not put together.
    Fragment = "fragment", "a fragment";
    /// Not UDP.
    NotUdp = "not_udp", "not UDP";
    /// An IPv4 datagram that claims to be shorter than its header, as those do that a network card was still to cut up.
    TotalLengthShort = "total_length_short", "an IPv4 datagram shorter than its header";
    /// An IPv4 datagram that claims to be longer than its packet, though all of it was kept.
    TotalLengthLong = "total_length_long", "an IPv4 datagram longer than its packet";
    /// A UDP length below 8, or beyond its IPv4 datagram.
    UdpLength = "udp_length", "a UDP length that can't be";
}

impl Flaw {
    /// Whether it may be that a packet merely was not kept whole.
    pub(super) const fn is_lack(self) -> bool {
        matches!(self, Flaw::Short | Flaw::TotalLengthLong)
    }
}

impl std::error::Error for Flaw {}

/// How many there were, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaws([u64; Flaw::ALL.len()]);

impl Flaws {
    /// Counts one.
    pub const fn count(&mut self, flaw: Flaw) {
        self.0[flaw as usize] += 1;
    }

    /// Counts those of another, too.
    pub fn add(&mut self, other: &Flaws) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// How many there were for that reason.
    pub const fn get(&self, flaw: Flaw) -> u64 {
        self.0[flaw as usize]
    }

    /// How many there were at all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Every counter with its reason.
    pub fn rows(&self) -> impl Iterator<Item = (Flaw, u64)> + use<> {
        let counts = self.0;
        Flaw::ALL.into_iter().map(move |flaw| (flaw, counts[flaw as usize]))
    }
}
