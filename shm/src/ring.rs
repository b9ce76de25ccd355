//! Building a ring, and what its parts share.

use std::sync::Arc;

#[cfg(not(loom))]
use std::path::{Path, PathBuf};
#[cfg(not(loom))]
use std::sync::OnceLock;

use crossbeam_utils::CachePadded;
use ticktape_core::Seq;

#[cfg(not(loom))]
use crate::config::name_is_valid;
use crate::config::{RingConfig, RingError};
use crate::consumer::Consumer;
use crate::follower::Tap;
use crate::layout::{COMMIT_SEQ, DATA, DURABLE_SEQ, Header, STATE, STATE_CLOSED};
#[cfg(not(loom))]
use crate::place::{Files, Memfd, NamedFile};
use crate::producer::{Gate, Producer};
use crate::region::Region;
use crate::sync::{AtomicU64, Ordering};
use crate::watermark::{CommitMark, DurableMark, Watermarks};
use crate::words::{Data, Words};

/// The released positions, by consumer, each on its own lines.
pub(crate) type Cursors = [CachePadded<AtomicU64>];

/// What ends when the last of producer and marks is gone: only then can nothing change any more.
pub(crate) struct Ownership {
    pub(crate) words: Words,
    /// Set once the file has its name.
    #[cfg(not(loom))]
    named: OnceLock<NamedFile>,
    #[cfg(not(loom))]
    pub(crate) memfd: Option<Arc<Memfd>>,
}

impl Ownership {
    fn new(words: Words) -> Self {
        Ownership {
            words,
            #[cfg(not(loom))]
            named: OnceLock::new(),
            #[cfg(not(loom))]
            memfd: None,
        }
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        // Pairs with the Acquire fence in `Follower`: who sees it has everything else to see.
        self.words.at(STATE).store(STATE_CLOSED, Ordering::Release);
        #[cfg(not(loom))]
        {
            if let Some(named) = self.named.take() {
                named.remove();
            }
            if let Some(memfd) = self.memfd.take() {
                memfd.unlock();
            }
        }
    }
}

/// Names a consumer of the ring being built; its index in [`Ring::consumers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerId(usize);

impl ConsumerId {
    /// Its index in [`Ring::consumers`].
    pub fn index(self) -> usize {
        self.0
    }
}

struct ConsumerPlan {
    name: &'static str,
    after: Box<[usize]>,
    hold_bytes_max: u64,
}

enum Place {
    Heap,
    #[cfg(not(loom))]
    Memfd,
    #[cfg(not(loom))]
    Named(PathBuf, String),
}

/// Describes a ring, then builds it.
pub struct RingBuilder {
    config: RingConfig,
    place: Place,
    consumers: Vec<ConsumerPlan>,
}

/// A new ring, in parts, each to be given to its owner.
pub struct Ring {
    /// The one writer.
    pub producer: Producer,
    /// The gated readers, by [`ConsumerId`].
    pub consumers: Vec<Consumer>,
    /// Says what is durable.
    pub durable: DurableMark,
    /// Says what is committed.
    pub commit: CommitMark,
    /// Reads both.
    pub watermarks: Watermarks,
    /// Makes followers.
    pub tap: Tap,
    /// What memory it got, in words for people: such as `memfd, huge pages`.
    pub memory: String,
}

impl RingBuilder {
    /// A ring on the heap, unless told otherwise.
    pub fn new(config: RingConfig) -> Self {
        RingBuilder { config, place: Place::Heap, consumers: Vec::new() }
    }

    /// In memory of this process alone.
    #[must_use]
    pub fn heap(mut self) -> Self {
        self.place = Place::Heap;
        self
    }

    /// In a sealed memfd, which [`Tap::share`] hands out.
    #[cfg(not(loom))]
    #[must_use]
    pub fn memfd(mut self) -> Self {
        self.place = Place::Memfd;
        self
    }

    /// In the file `name`.ring of the directory `dir`, for followers to find. [`DEFAULT_DIR`](crate::DEFAULT_DIR) is the usual place.
    #[cfg(not(loom))]
    #[must_use]
    pub fn named(mut self, dir: &Path, name: &str) -> Self {
        self.place = Place::Named(dir.to_owned(), name.to_owned());
        self
    }

    /// Adds a consumer that the writer waits for.
    pub fn consumer(&mut self, name: &'static str) -> ConsumerId {
        self.consumer_after(name, &[])
    }

    /// Adds a consumer that sees only what all of `after` have released.
    ///
    /// # Panics
    /// Where one of them is of another builder.
    pub fn consumer_after(&mut self, name: &'static str, after: &[ConsumerId]) -> ConsumerId {
        assert!(after.iter().all(|id| id.0 < self.consumers.len()), "a consumer of another ring");
        let after = after.iter().map(|id| id.0).collect();
        self.consumers.push(ConsumerPlan { name, after, hold_bytes_max: self.config.capacity_bytes as u64 });
        ConsumerId(self.consumers.len() - 1)
    }

    /// Keeps the writer within `bytes` of what this consumer has released. The capacity where not set.
    ///
    /// # Panics
    /// Where it is of another builder.
    pub fn hold_bytes_max(&mut self, consumer: ConsumerId, bytes: u64) {
        self.consumers[consumer.0].hold_bytes_max = bytes;
    }

    /// Checks what can be checked without making anything: sizes, and the name where it is to have one.
    ///
    /// # Errors
    /// [`RingError`], one variant a reason.
    pub fn check(&self) -> Result<(), RingError> {
        self.config.validate()?;
        let (min, max) = (self.config.hold_bytes_min(), self.config.capacity_bytes as u64);
        for plan in &self.consumers {
            if !(min..=max).contains(&plan.hold_bytes_max) {
                return Err(RingError::HoldBytesMax { consumer: plan.name, got: plan.hold_bytes_max, min, max });
            }
        }
        #[cfg(not(loom))]
        if let Place::Named(_, name) = &self.place
            && !name_is_valid(name)
        {
            return Err(RingError::Name(name.clone()));
        }
        Ok(())
    }

    /// Builds the ring, empty, its first frame to be `first_seq`. Everything before it counts as durable and committed.
    ///
    /// # Errors
    /// [`RingError`], one variant a reason. Nothing is left behind, and a ring that stood under the name stands as before.
    pub fn build(self, first_seq: Seq) -> Result<Ring, RingError> {
        self.check()?;
        if first_seq == Seq::ZERO || first_seq > Seq::MAX {
            return Err(RingError::FirstSeq(first_seq));
        }
        let header = |file_bytes| Header {
            file_bytes,
            capacity_bytes: self.config.capacity_bytes,
            frame_bytes_max: self.config.frame_bytes_max,
            batch_bytes_max: self.config.batch_bytes_max,
            epoch: self.config.epoch,
            first_seq,
            commit_is_sequenced: self.config.commit_is_sequenced,
            writer_pid: u64::from(std::process::id()),
            created_ns: created_ns(),
        };
        match &self.place {
            Place::Heap => self.heap_ring(header),
            #[cfg(not(loom))]
            Place::Memfd => self.memfd_ring(header),
            #[cfg(not(loom))]
            Place::Named(dir, name) => self.named_ring(dir, name, header),
        }
    }

    fn heap_ring(&self, header: impl Fn(usize) -> Header) -> Result<Ring, RingError> {
        let bytes = DATA + self.config.capacity_bytes;
        let region =
            Region::anonymous(bytes).map_err(|_| RingError::NoSpace { place: "heap".into(), needed_bytes: bytes })?;
        let region = Arc::new(region);
        let header = header(bytes);
        let owner = Ownership::new(init(&region, &header));
        Ok(self.assemble(region, header, owner, "heap".to_owned()))
    }

    #[cfg(not(loom))]
    fn memfd_ring(&self, header: impl Fn(usize) -> Header) -> Result<Ring, RingError> {
        let memfd = Memfd::create(DATA + self.config.capacity_bytes)?;
        let memory = memfd.describe();
        let region = Arc::new(memfd.map()?);
        let header = header(region.bytes());
        let words = init(&region, &header);
        memfd.seal()?;
        memfd.lock()?;
        let mut owner = Ownership::new(words);
        owner.memfd = Some(Arc::new(memfd));
        Ok(self.assemble(region, header, owner, memory))
    }

    #[cfg(not(loom))]
    fn named_ring(&self, dir: &Path, name: &str, header: impl Fn(usize) -> Header) -> Result<Ring, RingError> {
        let pending = NamedFile::create(Files::Ring, dir, name, DATA + self.config.capacity_bytes)?;
        let memory = pending.describe();
        let region = Arc::new(pending.map()?);
        let header = header(region.bytes());
        let words = init(&region, &header);
        // The parts first: their first words belong to the file before it gets its name.
        let ring = self.assemble(region, header, Ownership::new(words), memory);
        let named = pending.publish()?;
        assert!(ring.durable.owner.named.set(named).is_ok(), "a new ring has no name yet");
        Ok(ring)
    }

    fn assemble(&self, region: Arc<Region>, header: Header, owner: Ownership, memory: String) -> Ring {
        let (first_seq, owner) = (header.first_seq, Arc::new(owner));
        let data = Data::new(Arc::clone(&region), header.capacity_bytes);
        let cursors: Arc<Cursors> = self.consumers.iter().map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let gate = |(cursor, plan): (usize, &ConsumerPlan)| Gate { cursor, hold_bytes_max: plan.hold_bytes_max };
        let gates = self.consumers.iter().enumerate().map(gate).collect();
        let consumer = |(cursor, plan): (usize, &ConsumerPlan)| {
            Consumer::new(plan.name, cursor, plan.after.clone(), first_seq, data.clone(), Arc::clone(&cursors))
        };
        let consumers = self.consumers.iter().enumerate().map(consumer).collect();
        let before = Seq(first_seq.0 - 1);
        let words = owner.words.clone();
        words.at(DURABLE_SEQ).store(before.0, Ordering::Relaxed);
        words.at(COMMIT_SEQ).store(before.0, Ordering::Relaxed);
        Ring {
            consumers,
            durable: DurableMark { owner: Arc::clone(&owner), newest: before },
            commit: CommitMark { owner: Arc::clone(&owner), newest: before },
            watermarks: Watermarks { words, commit_is_sequenced: header.commit_is_sequenced },
            tap: Tap::new(region, header, &owner),
            memory,
            producer: Producer::new(&self.config, first_seq, data, gates, cursors, owner),
        }
    }
}

fn init(region: &Arc<Region>, header: &Header) -> Words {
    let words = Words::new(Arc::clone(region));
    for (index, word) in header.encode().into_iter().enumerate() {
        words.at(8 * index).store(word, Ordering::Relaxed);
    }
    words
}

fn created_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}
