//! The log ring: one writer, frames back to back, any number of readers in this process and in others.
//!
//! A sequencer appliance hands each frame from the one writer to a journaler, an executor, a publisher and to processes it
//! does not know. It must do so in about the time that a cache line takes from core to core, without a lock, a system
//! call or an allocation, and no reader in another process may be able to stop or damage it.
//!
//! ```text
//!                released by all consumers        published        open batch
//!                          ▼                          ▼                 ▼
//!  ────┬─────────┬─────────┬────────┬────────┬────────┬────────┬────────┬─0─┬─────────┬────
//!      │ frame 7 │ frame 8 │ frame 9│ 10     │ 11     │ 12     │ 13     │   │ older   │
//!  ────┴─────────┴─────────┴────────┴────────┴────────┴────────┴────────┴───┴─────────┴────
//!      ▲ a follower reads here as well: copies, then         ▲ the word there is 0           ▲
//!        looks whether the claim had come so far               until `publish`               claim
//! ```
//!
//! A frame's first word is its seq, and its publish flag: zero until the frame is there. Positions count bytes and only grow; the
//! low bits are the offset. A frame never straddles the end; a *skip* word leads to the next lap.
//!
//! **Who owns what.** [`Producer`] owns every word of the frame area, the claim, the anchors and the heartbeat; each
//! [`Consumer`] its cursor; [`DurableMark`] and [`CommitMark`] one word each. Nobody writes another's word. A [`Follower`]
//! writes nothing at all: it maps the memory read-only.
//!
//! **What holds.**
//! - Whoever sees a frame's seq sees all of the frame, its batch, and a zero or the next seq behind it.
//! - The writer writes nothing that a consumer has not released, nor anything it has not claimed.
//! - A follower acts on nothing before it has seen that the claim was not within a lap of it.
//! - A named ring is complete before it has its name, and is replaced by a new file, never rewound: kill -9 at any
//!   instruction leaves a ring that can be read to its end, and a name that the next writer can take.
//! - No call blocks, sleeps or makes a system call, but for building, attaching and asking after the writer.
//!
//! What a follower can't be protected from is its own user shrinking the file (SIGBUS); a memfd is sealed against it.
//!
//! ```
//! use ticktape_core::{Frame, Kind, Seq, Timestamp};
//! use ticktape_shm::{Horizon, RingBuilder, RingConfig};
//!
//! let mut builder = RingBuilder::new(RingConfig { commit_is_sequenced: true, ..RingConfig::default() });
//! let executor = builder.consumer("executor");
//! let mut ring = builder.build(Seq::FIRST)?;
//! let mut follower = ring.tap.follow(Seq::FIRST, Horizon::Committed)?;
//!
//! let mut sealed = Vec::new();
//! Frame { seq: Seq(1), timestamp: Timestamp(5), stream_id: 0, kind: Kind::Input, payload: b"buy" }.append_to(&mut sealed);
//! ring.producer.push(&sealed)?;
//! ring.producer.publish();
//!
//! let seen = ring.consumers[executor.index()].poll(64, |frame| assert_eq!(Frame::view(frame).unwrap().payload, b"buy"));
//! assert_eq!(seen, 1);
//! assert_eq!(follower.poll()?, Some(&sealed[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod anchor;
mod attach;
mod config;
mod consumer;
mod copy;
mod follower;
pub mod layout;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
pub mod metrics;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
mod place;
mod producer;
mod region;
mod ring;
mod sync;
mod watermark;
mod words;

pub use attach::{AttachError, Corruption};
pub use config::{NAME_BYTES_MAX, RingConfig, RingError};
pub use consumer::{Consumer, RELEASE_CADENCE_FRAMES, Run};
pub use follower::{FollowError, Follower, Horizon, Tap};
#[cfg(not(loom))]
pub use place::DEFAULT_DIR;
pub use producer::{Full, Producer, ZERO_AHEAD_BYTES_MAX};
pub use ring::{ConsumerId, Ring, RingBuilder};
pub use watermark::{CommitMark, DurableMark, Watermarks};
