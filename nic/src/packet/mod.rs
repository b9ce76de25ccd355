//! Ethernet, IPv4 and UDP headers: built around a payload that stands at its place, and parsed in place.

mod mac;

pub use mac::{MacAddr, MacAddrError};
