//! What became of the frames that the program saw, by reason.

/// Declares the reasons that have one slot each in the program's map, and the counters that users see.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $field:ident,)*) => {
        /// Why a frame went where it went. The number is its slot in the program's map of counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(super) enum Reason { $($variant,)* }

        impl Reason {
            pub(super) const ALL: &[Reason] = &[$(Reason::$variant),*];
        }

        /// What became of the frames that the program saw, since it was loaded. Each frame is counted once.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct FilterCounters {
            $($(#[$doc])* pub $field: u64,)*
            /// Passed to the kernel: it met a rule, but its receive queue has no socket. See
            /// [`super::XdpProgram::unserved_queues`].
            pub no_socket: u64,
        }

        impl FilterCounters {
            /// Every counter with its name.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)* ("no_socket", self.no_socket)].into_iter()
            }

            pub(super) fn of(&mut self, reason: Reason) -> &mut u64 {
                match reason { $(Reason::$variant => &mut self.$field,)* }
            }
        }
    };
}

reasons! {
    /// Redirected to the socket of their queue. A full receive ring may still lose them; the socket's statistics say so.
    Redirected redirected,
    /// Passed to the kernel: neither IPv4 nor VLAN-tagged.
    NotIpv4 not_ipv4,
    /// Passed to the kernel: VLAN-tagged, where tags are not allowed or one only.
    Vlan vlan,
    /// Passed to the kernel: IPv4, but not UDP.
    NotUdp not_udp,
    /// Passed to the kernel: a UDP datagram with IP options.
    IpOptions ip_options,
    /// Passed to the kernel: a fragment of a UDP datagram.
    Fragment fragment,
    /// Passed to the kernel: the frame ends within its headers or before its IP length, or the lengths contradict each other.
    Short short,
    /// Passed to the kernel: to a port that no rule names.
    OtherPort other_port,
    /// Passed to the kernel: to a port that a rule names, at an address that none names.
    OtherAddress other_address,
}

impl FilterCounters {
    /// Frames seen.
    pub fn frames(&self) -> u64 {
        self.rows().map(|(_, count)| count).sum()
    }
}

/// Frames that met a rule on a receive queue that has no socket. They went to the kernel; steer them to a served queue
/// (`ethtool -N`, `ethtool -L`), or open a socket on this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnservedQueue {
    /// The receive queue; `None` for all that lie beyond those the program was loaded for.
    pub queue: Option<u32>,
    /// Frames since the program was loaded.
    pub frames: u64,
}

/// The slots of the map: one a reason, one a queue without socket, one for the queues beyond.
pub(super) fn slots(queues: u32) -> u32 {
    unserved_slot(queues) + 1
}

/// The slot of a queue without socket; `queue == queues` stands for those beyond.
pub(super) fn unserved_slot(queue: u32) -> u32 {
    Reason::ALL.len() as u32 + queue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_slot_and_its_row() {
        let mut counters = FilterCounters::default();
        for (slot, &reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason as usize, slot);
            *counters.of(reason) = slot as u64 + 1;
        }
        counters.no_socket = 100;
        let rows: Vec<_> = counters.rows().collect();
        assert_eq!(rows.len(), Reason::ALL.len() + 1);
        assert!(rows[..9].iter().map(|row| row.1).eq(1..=9));
        assert_eq!(rows[0].0, "redirected");
        assert_eq!(rows[9], ("no_socket", 100));
        assert_eq!(counters.frames(), 145);
        assert_eq!((unserved_slot(0), slots(4)), (9, 14));
    }
}
