//! The simulator's home: simulated queues for NIC, disk and clock belong here.
//!
//! So far it holds what feeds hostile bytes to every parser: the fuzz targets in `fuzz/`, a package of its own, and
//! `tests/corpus.rs`, which runs their corpus and seeded mutations of it with the ordinary tests.

#![forbid(unsafe_code)]
