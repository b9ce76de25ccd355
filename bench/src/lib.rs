//! The bench: this project's numbers beside the floor under them and the peers beside them, in one run, against the budgets.
//!
//! ```text
//!   main ─► args ─► suites::run ─► rounds (contestants take turns) ─► Row ─► table | JSON | markdown
//!                    jitter core node ring shm book journal             hop: a cache line's cost beside each row that crosses cores
//!                    recover nic feed link e2e sim                      budgets: what the design asks for, and what came of it
//!                                                                       meanwhile: what else had the cores
//!                                                                       huge_pages: as a box in service has them
//! ```
//!
//! Invariant: contestants of one row are measured in the same rounds, on the same cores.
//! Invariant: a row that falls short is printed as such, and the run still succeeds: numbers are for reading.

#![forbid(unsafe_code)]

pub mod args;
pub mod budgets;
pub mod header;
pub mod hop;
pub mod huge_pages;
pub mod latency;
pub mod markdown;
pub mod meanwhile;
pub mod raw_disk;
pub mod rounds;
pub mod row;
pub mod suites;
pub mod table;
pub mod tally;
