//! Captures, whoever made them: pcap and pcapng, read packet by packet in bounded memory, and the UDP datagrams in them.
//!
//! ```text
//!   file ─► Reader: records, blocks ─► packets ─► find: link, VLAN tags, IPv4, UDP ─► Datagrams: payloads with their addresses
//!              │ ReadError: the file can't be followed        │
//!              └ Flaw: counted, reading goes on ◄─────────────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `reader` | a file as a sequence of [`Item`]s, in either format |
//! | `pcapng`, `pcap` | the two formats: draft-ietf-opsawg-pcapng, draft-ietf-opsawg-pcap |
//! | `interface` | where packets were captured, and what their times mean |
//! | `link` | what stands before IPv4, by link type |
//! | `datagram` | IPv4 and UDP |
//! | `flaw`, `error` | what is wrong with a packet; why a file can't be followed |
//!
//! What is wrong within a sound block is a [`Flaw`]: counted by reason and passed over. What makes the next block's place
//! unknown is a [`ReadError`]: it says where, and nothing follows it.
//!
//! Invariant: whatever a file holds, each step consumes some of it, panics never, and allocates no more than the limits say.

mod bytes;
mod datagram;
mod error;
mod flaw;
mod interface;
mod limits;
mod link;
mod pcap;
mod pcapng;
mod reader;
#[cfg(test)]
mod tests;

pub use datagram::{Datagram, Datagrams, Found, find};
pub use error::{ReadError, Reason};
pub use flaw::{Flaw, Flaws};
pub use interface::{Interface, Resolution};
pub use limits::{BLOCK_BYTES_MAX, INTERFACES_MAX, TAGS_MAX, TEXT_BYTES_MAX};
pub use pcapng::Block;
pub use reader::{Item, Packet, Reader};
