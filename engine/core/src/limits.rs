//! Every bound that the format itself sets, with its reason.

/// The largest payload the frame format allows, in bytes. A length above it is corruption, not data: the bound keeps a
/// reader from trusting a damaged length with gigabytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// The default bound on a payload where nothing else bounds it. Large enough for any sensible command, small enough that a
/// 1 MiB ring holds several.
pub const PAYLOAD_BYTES_DEFAULT: usize = 64 << 10;

/// The longest service name that an epoch carries, in bytes: names for people, in a frame that must fit any datagram.
pub const SERVICE_NAME_BYTES_MAX: usize = 64;

/// How deep values may nest (boxes and collections within each other) before decoding refuses. Recursive types would
/// otherwise let a few kilobytes of input overflow the stack.
pub const DECODE_DEPTH_MAX: u32 = 64;

/// How many elements that encode to nothing (such as `()`) a collection may declare. No byte of input pays for them, so
/// only a fixed bound keeps a count from costing time.
pub const ZERO_WIDTH_COUNT_MAX: usize = 1 << 16;

/// Encoded bytes that one output may have, by default. Part of the replicated configuration.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Outputs that one step may produce, by default. Part of the replicated configuration.
pub const OUTPUTS_PER_STEP_COUNT_MAX: usize = 16 << 10;

/// Encoded bytes of outputs that one step may produce, by default. Part of the replicated configuration.
pub const OUTPUTS_PER_STEP_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(PAYLOAD_BYTES_DEFAULT <= PAYLOAD_BYTES_MAX);
const _: () = assert!(PAYLOAD_BYTES_MAX < u32::MAX as usize);
