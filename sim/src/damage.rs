//! Damage of which a disk says nothing: bits that rot, writes that are lost or go elsewhere although they were reported done.
//!
//! It befalls a copy of the box's disk, on which the log goes on for a while and which is then started from. Either all that was acknowledged
//! is there, or the start, or whoever reads the log, is refused in a line that names what is not. The world itself goes on with the disk that was
//! spared, as a box does that gets its log from a replica.
//!
//! What was under way when a box went down is not in question: nothing tells damage there from a tail that was never written. So the log ends
//! with something that bears witness to the rest: a clean stop, or one commit more.

use ticktape::config::ApplianceConfig;
use ticktape::machine::{Machine, Progress};
use ticktape::pipeline::StartError;
use ticktape::pipeline::recovery::{Start, start_on};
use ticktape::pipeline::rings::egress_config;
use ticktape::{Frame, Kind, Seq, Service, Timestamp};
use ticktape_core::frame;
use ticktape_journal::{Journal, JournalError, Salts};

use crate::disk::{DiskFaults, Loss, Medium, SimDisk};
use crate::host::{NOTHING, read_log};
use crate::ledger::{Frames, Wrong};
use crate::rng::{Ppm, Rng};

/// The name of what is promised.
const LOUD: &str = "damage is loud";

/// Batches that are written to the copy, each a commit.
const BATCHES_MAX: u64 = 8;

/// Frames in one of them, and bytes in one of those: some of them fill a sector, and some batches a segment.
const FRAMES_MAX: u64 = 6;
const PAYLOAD_BYTES_MAX: u64 = 300;

/// Time between two looks at whether there is room, and how many.
const ROOM_POLL_NS: u64 = 1_000_000;
const ROOM_POLLS_MAX: u64 = 10_000;

/// Bits that flip in one sector.
const BITS_MAX: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// Bits of one sector flip.
    Rot,
    /// The writes of one batch are not done.
    Lost,
    /// They are done elsewhere in the file.
    Misdirected,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Why the box, or a reader of its log, was refused; nothing was missed where it was not.
    pub(crate) refused: Option<String>,
    pub(crate) sectors_rotten: u64,
    pub(crate) writes_lost: u64,
    pub(crate) writes_misdirected: u64,
}

/// A box whose disk is copied and damaged.
pub(crate) struct Damage<'a, C> {
    pub(crate) config: &'a ApplianceConfig,
    pub(crate) service: &'a C,
    pub(crate) medium: &'a Medium,
}

/// What has to be there afterwards.
struct Truth<S: Service> {
    /// The log from `first` on, as far as it was written.
    first: Seq,
    frames: Frames,
    /// The last frame that was acknowledged.
    acknowledged: Seq,
    /// The state where it began to go on.
    machine: Machine<S>,
}

impl<C> Damage<'_, C> {
    /// Does it. `None` where there is no log yet to be damaged.
    pub(crate) fn strike<S: Service<Config = C>>(&self, rng: &mut Rng) -> Result<Option<Done>, Wrong> {
        let copy = self.medium.after_power_loss(Loss::any(rng));
        copy.set_capacity(1 << 30);
        let harm = *rng.pick(&[Harm::Rot, Harm::Lost, Harm::Misdirected]);
        let started = self.start::<S>(&copy, rng.next_u64());
        let Start { journal, machine, .. } = started.map_err(|error| ("recovery is possible", error.to_string()))?;
        if machine.applied() == Seq::ZERO {
            return Ok(None);
        }
        let (first, frames) = read_log(&copy, &self.config.dir)?;
        let mut truth = Truth { first, frames, acknowledged: machine.applied(), machine };
        self.go_on(&copy, journal, &mut truth, harm, rng)?;
        copy.lose_power(NOTHING);
        let sectors_rotten = u64::from(harm == Harm::Rot && self.rot(&copy, rng));
        let counters = copy.counters();
        let refused = self.judge(&copy, &mut truth, rng.next_u64()).map_err(|(check, what)| {
            (check, format!("{what}, after {harm:?} ({sectors_rotten} sectors, {counters:?})"))
        })?;
        let (writes_lost, writes_misdirected) = (counters.lost_writes, counters.misdirected_writes);
        Ok(Some(Done { refused, sectors_rotten, writes_lost, writes_misdirected }))
    }

    fn start<S: Service<Config = C>>(&self, disk: &Medium, salts: u64) -> Result<Start<S, SimDisk>, StartError> {
        let mut config = self.config.clone();
        config.journal.salts = Salts::Seeded(salts);
        let egress = egress_config(&config, 0, S::SCHEMA_VERSION);
        start_on::<S, _, _>(&config, self.service, egress, || disk.open(), || disk.open())
    }

    /// The log goes on, and one batch of it, if any, comes to harm.
    fn go_on<S: Service>(
        &self,
        disk: &Medium,
        mut journal: Journal<SimDisk>,
        truth: &mut Truth<S>,
        harm: Harm,
        rng: &mut Rng,
    ) -> Result<(), Wrong> {
        let batches = rng.between(1, BATCHES_MAX);
        let struck = rng.below(batches);
        for batch in 0..batches {
            let is_struck = batch == struck;
            disk.set_faults(DiskFaults {
                lost_write: if is_struck && harm == Harm::Lost { Ppm::ALWAYS } else { Ppm::NEVER },
                misdirected_write: if is_struck && harm == Harm::Misdirected { Ppm::ALWAYS } else { Ppm::NEVER },
                ..DiskFaults::NONE
            });
            truth.append_batch(disk, &mut journal, rng)?;
        }
        disk.set_faults(DiskFaults::NONE);
        truth.acknowledged = journal.durable();
        if rng.flip() {
            return journal.close().map_err(broke);
        }
        truth.append_batch(disk, &mut journal, rng)
    }

    /// Flips bits of a sector that holds something; false where none does.
    fn rot(&self, disk: &Medium, rng: &mut Rng) -> bool {
        const SECTOR_BYTES: usize = crate::disk::SECTOR_BYTES;
        let files = disk.files().into_iter().filter(|path| path.starts_with(&self.config.dir));
        let contents = files.filter_map(|path| Some((disk.contents(&path)?, path)));
        let full: Vec<_> = contents.filter(|(bytes, _)| bytes.iter().any(|&byte| byte != 0)).collect();
        if full.is_empty() {
            return false;
        }
        let (bytes, path) = rng.pick(&full);
        let sectors = bytes.chunks(SECTOR_BYTES).enumerate();
        let sectors: Vec<_> = sectors.filter(|(_, sector)| sector.iter().any(|&byte| byte != 0)).collect();
        let &(index, sector) = rng.pick(&sectors);
        let mut bits: Vec<usize> = (0..rng.between(1, BITS_MAX)).map(|_| rng.index(8 * sector.len())).collect();
        bits.sort_unstable();
        bits.dedup();
        bits.iter().for_each(|bit| disk.rot_bit(path, 8 * SECTOR_BYTES * index + bit));
        true
    }

    /// Starts from it: why that, or reading the log, is refused, or everything is there.
    fn judge<S: Service<Config = C>>(
        &self,
        disk: &Medium,
        truth: &mut Truth<S>,
        salts: u64,
    ) -> Result<Option<String>, Wrong> {
        let machine = match self.start::<S>(disk, salts) {
            Ok(start) => start.machine,
            Err(StartError::Journal(error)) if names_a_place(&error) => return Ok(Some(error.to_string())),
            Err(error) => return Err((LOUD, format!("nobody knows where to look: {error}"))),
        };
        let recovered = machine.applied();
        if recovered < truth.acknowledged {
            return Err((LOUD, format!("recovered up to {recovered} of {} that were durable", truth.acknowledged)));
        }
        truth.check_state(&machine)?;
        match read_log(disk, &self.config.dir) {
            Ok((first, frames)) => truth.check_frames(first, &frames, recovered).map(|()| None),
            Err((_, refused)) => Ok(Some(refused)),
        }
    }
}

/// What is wrong with the disk of a copy, and must not be.
fn broke(error: JournalError) -> Wrong {
    ("a good disk takes what it is given", error.to_string())
}

/// Whether somebody who reads this knows what is damaged: a file and where in it, or the seqs that are gone.
fn names_a_place(error: &JournalError) -> bool {
    matches!(
        error,
        JournalError::Corrupt { .. }
            | JournalError::MissingSegment { .. }
            | JournalError::OtherLog { .. }
            | JournalError::Duplicate { .. }
            | JournalError::Version { .. }
            | JournalError::JournalBehindSnapshot { .. }
            | JournalError::SnapshotGap { .. }
            | JournalError::NoBeginning { .. }
    )
}

impl<S: Service> Truth<S> {
    /// Some frames more, as one commit, durable as far as the disk says.
    fn append_batch(&mut self, disk: &Medium, journal: &mut Journal<SimDisk>, rng: &mut Rng) -> Result<(), Wrong> {
        for _ in 0..rng.between(1, FRAMES_MAX) {
            let payload: Vec<u8> = (0..rng.below(PAYLOAD_BYTES_MAX)).map(|_| rng.next_u64() as u8).collect();
            let (seq, timestamp) = (journal.appended().next(), self.now());
            let frame = Frame { seq, timestamp, stream_id: 0, kind: Kind::Input, payload: &payload };
            let mut bytes = Vec::new();
            frame.append_to(&mut bytes);
            self.frames.push(&bytes);
            bytes.resize(frame::padded(bytes.len()), 0);
            let mut now = 0;
            while !journal.room(bytes.len()) {
                journal.poll(now);
                journal.housekeeping(now);
                disk.pass_time(ROOM_POLL_NS);
                now += ROOM_POLL_NS;
                if now >= ROOM_POLLS_MAX * ROOM_POLL_NS {
                    return Err(("a good disk takes what it is given", format!("there is never room for seq {seq}")));
                }
            }
            journal.append(seq, &bytes);
        }
        journal.sync_blocking(|| 0).map_err(broke)
    }

    fn now(&self) -> Timestamp {
        self.machine.now()
    }

    fn at(&self, seq: Seq) -> Option<&[u8]> {
        let index = seq.0.checked_sub(self.first.0)?;
        self.frames.get(usize::try_from(index).ok()?)
    }

    /// A state is what the log comes to there.
    fn check_state(&mut self, found: &Machine<S>) -> Result<(), Wrong> {
        while self.machine.applied() < found.applied() {
            let seq = self.machine.applied().next();
            let made_up = || (LOUD, format!("recovered up to {}, and seq {seq} was never written", found.applied()));
            let bytes = self.at(seq).ok_or_else(made_up)?.to_vec();
            let frame = Frame::view(&bytes).expect("it was just sealed");
            while self.machine.step(&frame).map_err(|error| ("the log can be replayed", error.to_string()))?
                != Progress::Applied
            {}
        }
        let same =
            found.state_digest() == self.machine.state_digest() && found.output_hash() == self.machine.output_hash();
        if same { Ok(()) } else { Err((LOUD, format!("after seq {} the state is another", found.applied()))) }
    }

    /// What can be read of the log is what was written.
    fn check_frames(&self, first: Seq, found: &Frames, recovered: Seq) -> Result<(), Wrong> {
        let reached = first.0 - 1 + found.len() as u64;
        if reached < recovered.0 {
            return Err((LOUD, format!("recovered up to {recovered}, and the log can be read up to {reached}")));
        }
        let seqs = (first.0..).map(Seq).zip(found.iter());
        match seqs
            .take_while(|(seq, _)| *seq <= recovered)
            .find(|(seq, bytes)| *seq >= self.first && self.at(*seq) != Some(*bytes))
        {
            None => Ok(()),
            Some((seq, _)) => Err((LOUD, format!("seq {seq} reads as another frame"))),
        }
    }
}
