//! What a configuration means for the rings, and for the buffers behind them. Every runner sizes them alike.

use ticktape_shm::{RingBuilder, RingConfig};

use crate::config::ApplianceConfig;
use crate::egress::EgressConfig;
use crate::executor::step_room_bytes;
use crate::link::{DATA_OVERHEAD_BYTES, SenderConfig, Tier};
use crate::outputs::record_bytes;

/// The log ring and its consumers, in this order: journaler, executor, publisher.
pub fn ring_builder(config: &ApplianceConfig, epoch: u32) -> RingBuilder {
    let ring_config = RingConfig {
        capacity_bytes: config.ring.bytes,
        frame_bytes_max: config.frame_bytes_max(),
        batch_bytes_max: config.batch_bytes_max(),
        epoch: u64::from(epoch),
        commit_is_sequenced: config.tier == Tier::Memory,
    };
    let mut builder = match &config.ring.name {
        Some(name) => RingBuilder::new(ring_config).named(&config.ring.dir, name),
        None => RingBuilder::new(ring_config).heap(),
    };
    let journaler = builder.consumer("journaler");
    // What is not yet durable stays within half the ring, so that the other half is there for whoever reads behind.
    builder.hold_bytes_max(journaler, config.ring.bytes as u64 / 2);
    builder.consumer("executor");
    builder.consumer("publisher");
    builder
}

/// The ring between executor and egress: room for two steps' outputs, and for progress.
pub fn output_ring_config(config: &ApplianceConfig) -> RingConfig {
    let frame_bytes_max = record_bytes(config.limits.output_bytes_max);
    let step = step_room_bytes(&config.limits);
    RingConfig {
        capacity_bytes: (2 * step + 8 * frame_bytes_max).next_power_of_two(),
        frame_bytes_max,
        batch_bytes_max: frame_bytes_max + 8,
        epoch: 0,
        commit_is_sequenced: true,
    }
}

/// How the egress keeps what it sends.
pub fn egress_config(config: &ApplianceConfig, epoch: u32, schema_version: u32) -> EgressConfig {
    let sender = SenderConfig {
        ring_bytes: config.session_bytes,
        messages_max: (config.session_bytes / 64).clamp(1024, 1 << 20),
        in_flight_messages_max: config.window * 2,
        datagram_bytes_max: config.datagram_bytes_max,
        ..SenderConfig::default()
    };
    EgressConfig {
        epoch,
        schema_version,
        tier: config.tier,
        window: config.window,
        client_datagram_bytes_max: config.command_bytes_max() + DATA_OVERHEAD_BYTES,
        sender,
    }
}
