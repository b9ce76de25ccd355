//! Order flow: the orders file, and flow that is made up.
//!
//! | offset | size | header | type |
//! |---|---|---|---|
//! | 0 | 8 | magic | u64 |
//! | 8 | 4 | version | u32 |
//! | 12 | 4 | count | u32 |
//!
//! | offset | size | record | type |
//! |---|---|---|---|
//! | 0 | 1 | type: 0 new, 1 cancel, 2 modify | u8 |
//! | 1 | 1 | side: 0 buy, 1 sell | u8 |
//! | 2 | 1 | ioc | bool |
//! | 3 | 1 | zero | u8 |
//! | 4 | 4 | qty | u32 |
//! | 8 | 8 | seq | u64 |
//! | 16 | 8 | id | u64 |
//! | 24 | 8 | price | i64 |
//! | 32 | 8 | zero | i64 |
//!
//! Little-endian, records back to back, nothing after them; plain or gzip. The side and price of a cancel and the side of a
//! modify are checked but play no part: the name says which order is meant.

mod error;
mod generate;
mod read;
mod shaped;
mod write;

pub use error::{FlowError, Reason};
pub use generate::{Generator, generate};
pub use read::{FlowReader, load, read};
pub use shaped::{PRICE_LIMIT, RESTING_MAX, Shape, ShapeError, ShapedFlow, Tally, WHOLE_PPM};
pub use write::{FlowFile, FlowWriter, is_gzip, save, write};

/// The magic, as its bytes stand in the file.
pub const MAGIC: [u8; 8] = *b"100_WBEM";
/// The version there is.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 40;
