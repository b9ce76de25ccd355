//! The stages between the networks, on two cores, built from the public parts: what the appliance's own stages do per input,
//! without sessions.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ticktape::feed::{FeedConfig, FeedSession, Publisher};
use ticktape::machine::{Machine, Progress, StepLimits};
use ticktape::{Encode, Frame, Kind, Seq, Timestamp};
use ticktape_core::frame::{PAYLOAD, frame_bytes, padded, payload_len, seal};
use ticktape_journal::{Binding, Journal, JournalConfig, NativeDisk};
use ticktape_nic::udp::UdpTx;
use ticktape_nic::{Nic, Tx};
use ticktape_shm::{Consumer, Producer, RingBuilder, RingConfig};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::pin::pin_current_thread;

use super::Measured;
use super::echo::open;
use crate::args::Options;
use crate::hop::Cores;
use crate::tally::{Entry, Tally};

/// Inputs of a round.
const INPUTS: u64 = 1_000_000;
/// The appliance's default ring.
const RING_BYTES: usize = 4 << 20;
/// Bounds of one poll, as the appliance's stages have them.
const SEQUENCED_PER_POLL: usize = 32;
const APPLIED_PER_POLL: usize = 32;
const JOURNALED_PER_POLL: usize = 1024;
const PUBLISHED_PER_POLL: usize = 256;
/// One segment takes all of a round, and is zero-filled before it.
const SEGMENT_BYTES: usize = 160 << 20;
/// Frames between two rounds of housekeeping.
const HOUSEKEEPING_NS: u64 = 1_000_000;

const FRAME_BYTES: usize = frame_bytes(Entry::BYTES);

/// Numbers, stamps and seals inputs into the ring.
struct Sequence {
    producer: Producer,
    entry: Vec<u8>,
}

impl Sequence {
    fn poll(&mut self, now: u64) {
        let mut frame = [0; FRAME_BYTES];
        for _ in 0..SEQUENCED_PER_POLL {
            let seq = self.producer.next_seq();
            if seq.0 > INPUTS || !self.producer.room(padded(FRAME_BYTES)) {
                break;
            }
            frame[PAYLOAD..PAYLOAD + Entry::BYTES].copy_from_slice(&self.entry);
            let bytes = seal(&mut frame, seq, Timestamp(now), 1, Kind::Input, Entry::BYTES);
            self.producer.push(&frame[..bytes]).expect("there is room");
        }
        self.producer.publish();
    }
}

/// Applies them.
struct Apply {
    frames: Consumer,
    machine: Machine<Tally>,
}

impl Apply {
    fn poll(&mut self) {
        let machine = &mut self.machine;
        self.frames.poll(APPLIED_PER_POLL, |bytes| {
            let frame = Frame::view(bytes).expect("a frame of this ring");
            while machine.step(&frame).expect("a tally applies everything") != Progress::Applied {}
            machine.outputs(frame.seq).for_each(|output| {
                std::hint::black_box(output);
            });
        });
    }

    fn is_done(&self) -> bool {
        self.machine.applied().0 == INPUTS
    }
}

/// Makes them durable, and gives ring space back for those that are.
struct Durable {
    frames: Consumer,
    journal: Journal<NativeDisk>,
    held: VecDeque<(Seq, u64)>,
}

impl Durable {
    fn open(dir: &Path, frames: Consumer) -> Measured<Self> {
        let config =
            JournalConfig { segment_bytes: SEGMENT_BYTES, prefill_bytes: SEGMENT_BYTES, ..JournalConfig::default() };
        let disk = NativeDisk::new(dir, Binding::OneThread);
        let (journal, _) = Journal::open(disk, dir, config).map_err(|error| error.to_string())?;
        Ok(Durable { frames, journal, held: VecDeque::new() })
    }

    fn poll(&mut self, now: u64) -> Measured<()> {
        let mut taken = 0;
        while taken < JOURNALED_PER_POLL {
            let seq = self.frames.next_seq();
            let Some(frame) = self.frames.peek() else { break };
            if !self.journal.room(frame.len()) {
                break;
            }
            self.journal.append(seq, frame);
            self.frames.advance();
            taken += 1;
        }
        if taken > 0 {
            self.held.push_back((self.journal.appended(), self.frames.position()));
        }
        self.journal.poll(now);
        while let Some(&(last, position)) = self.held.front().filter(|(last, _)| *last <= self.journal.durable()) {
            debug_assert!(last <= self.journal.durable());
            self.frames.release_to(position);
            self.held.pop_front();
        }
        self.journal.failed().map_or(Ok(()), |error| Err(error.to_string()))
    }

    fn is_done(&self) -> bool {
        self.journal.durable().0 == INPUTS
    }
}

/// Publishes them, or only keeps up where no feed is wanted.
struct Publish {
    frames: Consumer,
    publisher: Publisher,
    tx: UdpTx,
    is_wanted: bool,
}

impl Publish {
    fn poll(&mut self, now: u64) {
        if !self.is_wanted {
            self.frames.poll(PUBLISHED_PER_POLL, |_| {});
            return;
        }
        let mut taken = 0;
        while taken < PUBLISHED_PER_POLL {
            let seq = self.frames.next_seq();
            let Some(frame) = self.frames.peek() else { break };
            if !self.publisher.push(now, seq.0, &frame[..frame_bytes(payload_len(frame))], &mut self.tx) {
                break;
            }
            self.frames.advance();
            taken += 1;
        }
        if taken > 0 {
            self.frames.release();
        }
        if taken < PUBLISHED_PER_POLL {
            self.publisher.flush(now, &mut self.tx);
        }
        if self.tx.queued() > 0 {
            self.tx.flush();
        }
    }

    fn is_done(&self) -> bool {
        self.frames.next_seq().0 > INPUTS && self.tx.queued() == 0
    }
}

/// Inputs a second, until all are durable, applied and, where it is wanted, published.
pub(super) fn inputs_per_s(options: &Options, cores: Cores, publishes: bool) -> Measured<f64> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let mut builder = RingBuilder::new(RingConfig { capacity_bytes: RING_BYTES, ..RingConfig::default() });
    let journaler = builder.consumer("journaler");
    builder.hold_bytes_max(journaler, RING_BYTES as u64 / 2);
    builder.consumer("executor");
    builder.consumer("publisher");
    let ring = builder.build(Seq::FIRST).map_err(|error| error.to_string())?;
    let [journaled, applied, published]: [Consumer; 3] =
        ring.consumers.try_into().unwrap_or_else(|_| unreachable!("three consumers were asked for"));
    let mut sequence = Sequence { producer: ring.producer, entry: Entry::numbered(7).to_bytes() };
    let mut apply = Apply { frames: applied, machine: Machine::genesis(&(), StepLimits::default()) };
    // Somebody has to be there, or each datagram would also cost an ICMP answer.
    let listener = open()?;
    let feed = FeedConfig {
        session: FeedSession::new(1, 1).expect("both are in range"),
        first_seq: 1,
        a: listener.local_addr(),
        b: None,
        datagram_bytes_max: 1472,
        heartbeat_interval_ns: 1_000_000_000,
    };
    let mut publish =
        Publish { frames: published, publisher: Publisher::new(&feed), tx: open()?.split().1, is_wanted: publishes };

    let (ready, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (ready, failed) = (&ready, &failed);
        let there = scope.spawn(move || {
            let _ = pin_current_thread(cores.there);
            let run = || -> Measured<Instant> {
                let mut durable = Durable::open(dir.path(), journaled)?;
                ready.store(true, Ordering::Release); // pairs with the Acquire load of the near side
                let mut housekeeping_at = 0;
                while !durable.is_done() || !publish.is_done() {
                    let now = monotonic_ns();
                    durable.poll(now)?;
                    publish.poll(now);
                    if now >= housekeeping_at {
                        durable.journal.housekeeping(now);
                        housekeeping_at = now + HOUSEKEEPING_NS;
                    }
                }
                let end = Instant::now();
                durable.journal.close().map_err(|error| error.to_string())?;
                Ok(end)
            };
            run().inspect_err(|_| failed.store(true, Ordering::Release))
        });
        let _ = pin_current_thread(cores.here);
        // Acquire, both: pair with the Release stores of the far side.
        while !ready.load(Ordering::Acquire) && !failed.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let begin = Instant::now();
        while !apply.is_done() && !failed.load(Ordering::Relaxed) {
            sequence.poll(monotonic_ns());
            apply.poll();
        }
        let applied = Instant::now();
        let end = there.join().expect("a stage")?.max(applied);
        Ok(INPUTS as f64 / (end - begin).as_secs_f64())
    })
}
