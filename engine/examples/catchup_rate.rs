//! How fast a follower catches up: a million frames of 64 bytes over TCP on loopback, beside what a journal reader alone and a bare
//! connection do with the same bytes in the same run. `cargo run --release -p ticktape --example catchup_rate [frames]`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ticktape::catchup::{EpochTable, FetchConfig, ServeConfig};
use ticktape::pipeline::{
    CatchupClient, CatchupClientConfig, CatchupItem, CatchupServer, CatchupServerConfig, CatchupStep, ServedRing,
};
use ticktape::{Frame, Kind, Seq, Timestamp};
use ticktape_journal::{FileDisk, Journal, JournalConfig, JournalReader};
use ticktape_shm::{Ring, RingBuilder, RingConfig};
use ticktape_tuning::clock;

const PAYLOAD: [u8; 64] = [7; 64];
const ROUNDS: usize = 5;

fn main() {
    let frames: u64 = std::env::args().nth(1).map_or(1_000_000, |count| count.parse().expect("a number of frames"));
    let dir = tempfile::tempdir().expect("a directory for the journal");
    write_journal(dir.path(), frames);
    let ring = ring_after(frames);
    let bytes = frames as usize * 96;
    println!("{frames} frames of 64 B of payload, {} MB on the wire, {ROUNDS} rounds, M frames/s", bytes / 1_000_000);
    for _ in 0..ROUNDS {
        let read = seconds(|| read_journal(dir.path(), frames));
        let bare = seconds(|| bare_connection(bytes));
        let caught_up = seconds(|| catch_up(dir.path(), &ring, frames));
        let rate = |seconds: f64| frames as f64 / seconds / 1e6;
        println!(
            "journal read alone {:6.2}   bare TCP {:6.2}   catch-up {:6.2} ({:.3} s)",
            rate(read),
            rate(bare),
            rate(caught_up),
            caught_up
        );
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

fn write_journal(dir: &Path, frames: u64) {
    let opened = Journal::open(FileDisk::new(), dir, JournalConfig::default());
    let (mut journal, _) = opened.expect("an empty directory");
    journal.set_epoch(1);
    let mut bytes = Vec::new();
    for seq in 1..=frames {
        bytes.clear();
        let (seq, timestamp) = (Seq(seq), Timestamp(seq));
        Frame { seq, timestamp, stream_id: 2, kind: Kind::Input, payload: &PAYLOAD }.append_to(&mut bytes);
        while !journal.room(bytes.len()) {
            journal.poll(clock::monotonic_ns());
            assert!(journal.failed().is_none() && journal.starved().is_none(), "the disk takes it");
        }
        journal.append(seq, &bytes);
    }
    journal.sync_blocking(clock::monotonic_ns).expect("the disk takes it");
    journal.close().expect("the disk takes it");
}

fn ring_after(last: u64) -> Ring {
    let config = RingConfig { commit_is_sequenced: true, ..RingConfig::default() };
    let mut ring = RingBuilder::new(config).heap().build(Seq(last + 1)).expect("memory");
    ring.durable.set(Seq(last));
    ring
}

fn read_journal(dir: &Path, frames: u64) {
    let mut reader = JournalReader::open(dir, Seq(1)).expect("the journal");
    let mut got = 0;
    while let Some(bytes) = reader.next().expect("a sound journal") {
        got += u64::from(Frame::decode(bytes).is_ok());
    }
    assert_eq!(got, frames);
}

fn bare_connection(bytes: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let sender = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let chunk = vec![7; 256 << 10];
        let mut left = bytes;
        while left > 0 {
            left -= stream.write(&chunk[..chunk.len().min(left)]).expect("a reader");
        }
    });
    let (mut stream, mut chunk) = (TcpStream::connect(address).expect("a server"), vec![0; 256 << 10]);
    let mut got = 0;
    while got < bytes {
        got += stream.read(&mut chunk).expect("a writer");
    }
    sender.join().expect("it has sent all");
}

fn catch_up(dir: &Path, ring: &Ring, frames: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let config = CatchupServerConfig::new(ServeConfig::new(1, "", 0), dir, ServedRing::Here(ring.tap.clone()));
    let server = CatchupServer::start(listener, config, EpochTable::default(), || Seq::MAX).expect("a thread");
    let fetch = FetchConfig::new(1, "", 0, Seq(1));
    let spool = dir.join("catchup.part");
    let mut client = CatchupClient::new(CatchupClientConfig { fetch, spool, connect_timeout: Duration::from_secs(1) });
    client.connect(server.local_addr());
    let (mut got, mut bytes_got) = (0, 0);
    let take = |item: CatchupItem<'_>, got: &mut u64, bytes_got: &mut usize| {
        if let CatchupItem::Frame { bytes, .. } = item {
            *got += 1;
            *bytes_got += bytes.len();
        }
        true
    };
    loop {
        let step = client.next(Duration::from_millis(100), |item| take(item, &mut got, &mut bytes_got));
        if let CatchupStep::UpTo(_) = step.expect("a sound server") {
            break;
        }
    }
    assert_eq!((got, bytes_got), (frames, frames as usize * 96));
}
