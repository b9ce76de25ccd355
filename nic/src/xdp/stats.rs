//! What is counted beyond the ports' own counters.

use crate::counters::counters;

counters! {
    /// What the kernel counted on the sockets, all queues together.
    SocketStatistics {
        /// Packets lost for want of a frame in the fill ring, or larger than a frame.
        rx_dropped,
        /// Fill entries that were no frame.
        rx_invalid_descs,
        /// Transmit entries that were no frame.
        tx_invalid_descs,
        /// Packets lost because the receive ring was full.
        rx_ring_full,
        /// Times that the fill ring was found empty.
        rx_fill_ring_empty_descs,
        /// Times that the transmit ring was found empty.
        tx_ring_empty_descs,
    }
}

impl SocketStatistics {
    /// Adds another socket's.
    pub(super) fn add(&mut self, other: &super::abi::xdp_statistics) {
        self.rx_dropped += other.rx_dropped;
        self.rx_invalid_descs += other.rx_invalid_descs;
        self.tx_invalid_descs += other.tx_invalid_descs;
        self.rx_ring_full += other.rx_ring_full;
        self.rx_fill_ring_empty_descs += other.rx_fill_ring_empty_descs;
        self.tx_ring_empty_descs += other.tx_ring_empty_descs;
    }
}

counters! {
    /// What the receive half counted beside the port's own counters.
    XdpRxStatistics {
        /// Descriptors dropped because their packet is spread over several frames, which is not supported.
        multi_buffer,
        /// Descriptors with an address that is no frame's of the kernel.
        strays,
        /// Descriptors that reach beyond their frame.
        outside_frame,
        /// Packets with another VLAN's tag.
        other_vlan,
        /// System calls to wake or poll the driver.
        kicks,
        /// Those that failed, other than for having nothing to do.
        kicks_failed,
        /// Frames that are neither with the kernel nor free. Anything but 0 is a bug.
        frames_lost,
        /// Rings whose indices made no sense once, and that are left alone since.
        rings_broken,
    }
}

counters! {
    /// What the transmit half counted beside the port's own counters.
    XdpTxStatistics {
        /// Datagrams that went through the kernel, for want of a next hop.
        through_kernel,
        /// Headers made for a new destination.
        destinations,
        /// Destinations displaced by others.
        destinations_displaced,
        /// System calls to start sending.
        kicks,
        /// Those that left frames for the next, having taken their share, or found no room in the device (EAGAIN).
        kicks_again,
        /// Those that found the device busy, or gone without a carrier, at the price of a frame (EBUSY).
        kicks_busy,
        /// Those that found no memory (ENOBUFS).
        kicks_no_buffers,
        /// Those that found the interface down (ENETDOWN).
        kicks_down,
        /// Those that failed otherwise: the interface is gone.
        kicks_failed,
        /// Completions with an address that is no frame's of the kernel.
        strays,
        /// Frames that are neither with the kernel nor queued nor free. Anything but 0 is a bug.
        frames_lost,
        /// Rings whose indices made no sense once, and that are left alone since.
        rings_broken,
    }
}
