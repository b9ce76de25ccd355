//! What is fuzzed: every parser, and every machine that strangers drive, each as a function of bytes.
//!
//! `sim/fuzz/run` feeds them to libFuzzer; `sim/tests/corpus.rs` includes this file as a module, and feeds each the committed
//! corpus and seeded mutations of it. So paths here are relative.
//!
//! A target panics where a promise is broken. It answers whether the bytes were accepted by what it tests, so that a corpus
//! that reaches nothing is noticed.

#![forbid(unsafe_code)]

mod capture;
mod catchup;
mod codec;
mod config;
mod feed_arbiter;
mod feed_rewinder;
mod frame;
mod histogram_log;
mod input;
mod journal_damage;
mod journal_files;
mod link_client;
mod link_packet;
mod link_pipe;
mod link_receiver;
mod machine;
mod mold;
mod orders;
mod packet;
mod replay;
mod ring;
mod scratch;
mod snapshot;
mod status;

/// Named seeds: valid input that a target accepts.
pub type Seeds = Vec<(&'static str, Vec<u8>)>;

/// One function of bytes.
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// Tests one input; whether it was accepted.
    pub run: fn(&[u8]) -> bool,
    /// Makes valid inputs.
    pub seeds: fn() -> Seeds,
    /// How many mutations the plain test tries: fewer where one touches files.
    pub mutations: u32,
}

/// All of them.
pub static TARGETS: [Target; 22] = [
    Target { name: "frame", run: frame::run, seeds: frame::seeds, mutations: 20_000 },
    Target { name: "codec", run: codec::run, seeds: codec::seeds, mutations: 20_000 },
    Target { name: "link_packet", run: link_packet::run, seeds: link_packet::seeds, mutations: 20_000 },
    Target { name: "link_client", run: link_client::run, seeds: link_client::seeds, mutations: 5_000 },
    Target { name: "link_receiver", run: link_receiver::run, seeds: link_receiver::seeds, mutations: 5_000 },
    Target { name: "link_pipe", run: link_pipe::run, seeds: link_pipe::seeds, mutations: 3_000 },
    Target { name: "mold", run: mold::run, seeds: mold::seeds, mutations: 20_000 },
    Target { name: "feed_arbiter", run: feed_arbiter::run, seeds: feed_arbiter::seeds, mutations: 10_000 },
    Target { name: "feed_rewinder", run: feed_rewinder::run, seeds: feed_rewinder::seeds, mutations: 10_000 },
    Target { name: "catchup", run: catchup::run, seeds: catchup::seeds, mutations: 5_000 },
    Target { name: "status", run: status::run, seeds: status::seeds, mutations: 5_000 },
    Target { name: "packet", run: packet::run, seeds: packet::seeds, mutations: 20_000 },
    Target { name: "capture", run: capture::run, seeds: capture::seeds, mutations: 20_000 },
    Target { name: "replay", run: replay::run, seeds: replay::seeds, mutations: 1_000 },
    Target { name: "histogram_log", run: histogram_log::run, seeds: histogram_log::seeds, mutations: 5_000 },
    Target { name: "journal_files", run: journal_files::run, seeds: journal_files::seeds, mutations: 1_000 },
    Target { name: "journal_damage", run: journal_damage::run, seeds: journal_damage::seeds, mutations: 1_000 },
    Target { name: "snapshot", run: snapshot::run, seeds: snapshot::seeds, mutations: 2_000 },
    Target { name: "orders", run: orders::run, seeds: orders::seeds, mutations: 3_000 },
    Target { name: "ring", run: ring::run, seeds: ring::seeds, mutations: 3_000 },
    Target { name: "config", run: config::run, seeds: config::seeds, mutations: 3_000 },
    Target { name: "machine", run: machine::run, seeds: machine::seeds, mutations: 5_000 },
];
