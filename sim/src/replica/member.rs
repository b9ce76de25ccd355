//! One replica's box over all its lives: what it is started from, and what becomes of it.

use ticktape::config::ApplianceConfig;
use ticktape::pipeline::{replica_cut, replica_reset as reset};
use ticktape::replica::{Board, BulkEnd, Figure, Identity, ReplicaConfig, ReplicaState, Verdict};
use ticktape::snapshot::Found;
use ticktape::{Invariants, Seq, Service};
use ticktape_journal::{JournalConfig, JournalError, JournalReader, Salts};

use super::check::check_prefix;
use super::fleet::Surroundings;
use super::place::{Place, config};
use super::running::{Boot, Part, Running, Turn, make_dir};
use crate::bulk::{Begun, Joiner};
use crate::clock::SimClock;
use crate::disk::{DiskConfig, DiskFaults, Loss, Medium};
use crate::host::DATAGRAM_BYTES;
use crate::ledger::{Frames, Replay, Wrong};
use crate::nic::QueueConfig;
use crate::rng::{Ppm, Rng, Seed};
use crate::trace::{What, Who};

enum State<S: Service> {
    /// Nothing runs.
    Off,
    /// It looks for somebody to begin from.
    Joining(Box<Joiner>),
    Up(Box<Running<S>>),
}

pub(crate) struct Member<S: Service> {
    index: usize,
    pub(crate) place: Place,
    config: ReplicaConfig,
    queues: QueueConfig,
    pub(crate) medium: Medium,
    pub(crate) clock: SimClock,
    board: Board,
    state: State<S>,
    seed: Seed,
    /// Which log it is, where nothing on its disk says so yet.
    log_id: u64,
    starts: u64,
    pub(crate) speeds: [u64; Part::ALL.len()],
    /// A part that is not polled before a step.
    pub(crate) stalled: Option<(usize, u32)>,
    /// The whole process stands still until then, in the world's time.
    pub(crate) paused_until: u64,
    /// Nobody has begun it before this step.
    pub(crate) begins_at: u32,
    /// What the log comes to, as far as its state was held against that.
    pub(crate) replay: Replay<S>,
}

impl<S: Service + Invariants> Member<S> {
    pub(crate) fn new(
        index: usize,
        all: usize,
        seed: Seed,
        leader: &ApplianceConfig,
        around: &Surroundings<'_, S>,
    ) -> Self {
        let seed = seed.child("replica", index as u64);
        let mut shape = seed.stream("shape");
        let disk = DiskConfig { alignment: *shape.pick(&[512, 4096]), ..DiskConfig::default() };
        let medium = Medium::new(seed, around.time, disk);
        medium.set_trace(around.trace, Who::Disk(index as u8 + 1));
        let config = config(index, all, leader, &mut shape);
        Member {
            index,
            place: Place::of(index),
            replay: Replay::begin(around.service, config.limits),
            config,
            queues: QueueConfig {
                rx_slots: *shape.pick(&[8, 64]),
                tx_slots: *shape.pick(&[4, 16]),
                datagram_bytes_max: DATAGRAM_BYTES,
                block: Ppm::percent(*shape.pick(&[0, 0, 20])),
            },
            medium,
            clock: SimClock::new(around.time),
            board: Board::default(),
            state: State::Off,
            seed,
            log_id: 0,
            starts: 0,
            speeds: std::array::from_fn(|_| shape.between(1, 12)),
            stalled: None,
            paused_until: 0,
            begins_at: if shape.flip() { 0 } else { shape.scaled(300) as u32 },
        }
    }

    fn who(&self) -> Who {
        Who::Host(self.index as u8 + 1)
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(self.state, State::Off)
    }

    /// What it is doing, as an operator would read it.
    pub(crate) fn describe(&self) -> String {
        match &self.state {
            State::Off => format!("replica {} is off", self.index),
            State::Joining(_) => format!("replica {} looks for somebody to begin from", self.index),
            State::Up(_) => format!("replica {}: {}", self.index, self.board.read()),
        }
    }

    /// Its state contains everything up to `last`, and it says that it is fine.
    pub(crate) fn has_all(&self, last: Seq) -> bool {
        let State::Up(running) = &self.state else { return false };
        running.machine().applied() == last && running.last() == last && self.board.state() == ReplicaState::Live
    }

    /// The last frame that its state contains.
    pub(crate) fn applied(&self) -> Seq {
        if let State::Up(running) = &self.state { running.machine().applied() } else { Seq::ZERO }
    }

    fn epoch_began_at(&self) -> Option<Seq> {
        if let State::Up(running) = &self.state { running.epoch_began_at() } else { None }
    }

    /// Its journal, where it is written to outside its stages.
    fn journal(&self) -> JournalConfig {
        let salts = Salts::Seeded(self.seed.child("cut", self.starts).0);
        JournalConfig { salts, ..self.config.journal.clone() }
    }

    /// A number of its own board.
    pub(crate) fn figure(&self, figure: Figure) -> u64 {
        self.board.get(figure)
    }

    fn identity() -> Identity {
        Identity { name: S::NAME, schema_version: S::SCHEMA_VERSION }
    }

    /// Begins its process: it goes on from its disk, or looks for somebody to begin from.
    pub(crate) fn start(&mut self, around: &mut Surroundings<'_, S>) -> Result<(), Wrong> {
        self.starts += 1;
        let mut disk = self.medium.open();
        let dir = &self.config.dir;
        let prepared = make_dir(&mut disk, &self.config).and_then(|()| reset::finish(&mut disk, dir));
        if let Err(error) = prepared {
            return self.failed_start(&error.to_string(), true, around);
        }
        if let Err(error) = replica_cut::finish(|| self.medium.open(), dir, &self.journal()) {
            return self.failed_start(&error.to_string(), is_disk(&error), around);
        }
        let found = match Found::newest_on(&mut disk, dir, Seq::MAX) {
            Ok(found) => found,
            Err(error) => return self.failed_start(&error.to_string(), is_disk(&error), around),
        };
        if found.log_id() == 0 && self.log_id == 0 {
            let wanted = (found.covered().next(), found.epoch());
            let (own, identity) = (self.place.own, Self::identity());
            let joiner = Joiner::new(around.wires, own, &self.medium, &self.config, identity, wanted);
            self.board.set_state(ReplicaState::Joining);
            self.state = State::Joining(Box::new(joiner));
            return Ok(());
        }
        drop(disk);
        self.open(around)
    }

    fn open(&mut self, around: &mut Surroundings<'_, S>) -> Result<(), Wrong> {
        let boot = Boot {
            config: &self.config,
            service: around.service,
            identity: Self::identity(),
            place: self.place,
            network: around.network,
            wires: around.wires,
            medium: &self.medium,
            clock: &self.clock,
            queues: self.queues,
            board: &self.board,
            number: self.index as u64 + 1,
            log_id: self.log_id,
            seed: self.seed.child("start", self.starts),
        };
        match Running::<S>::start(&boot) {
            Ok(running) => {
                let (recovered, epoch) = (running.last().0, running.machine().epoch() as u32);
                self.state = State::Up(Box::new(running));
                around.trace.tell(self.who(), || What::Start { recovered, epoch, cut: false });
                around.meet("replica starts", 1);
                Ok(())
            }
            Err(error) => self.failed_start(&error.to_string(), error.is_disk(), around),
        }
    }

    fn failed_start(&mut self, why: &str, is_disk: bool, around: &mut Surroundings<'_, S>) -> Result<(), Wrong> {
        around.trace.tell(self.who(), || What::StartFailed { why: why.to_string() });
        self.close(around);
        if !is_disk || around.is_calm {
            return Err(("a replica can always begin", format!("replica {}: {why}", self.index)));
        }
        around.meet("replica start failed for the disk", 1);
        // Whoever runs it sees to the disk before the next try.
        self.medium.set_faults(DiskFaults::NONE);
        self.medium.set_capacity(1 << 30);
        Ok(())
    }

    fn close(&mut self, around: &Surroundings<'_, S>) {
        self.state = State::Off;
        self.place.ports().into_iter().for_each(|port| around.network.close(port));
    }

    /// Its process ends, whatever it was doing.
    pub(crate) fn kill(&mut self, why: &'static str, around: &mut Surroundings<'_, S>) -> Result<(), Wrong> {
        if self.is_off() {
            return Ok(());
        }
        self.leave(around)?;
        self.close(around);
        self.paused_until = 0;
        self.board = Board::default();
        around.trace.tell(self.who(), || What::Stop { why: why.to_string() });
        around.meet(why, 1);
        Ok(())
    }

    /// The power of its box is lost: nobody is told.
    pub(crate) fn lose_power(&mut self, loss: Loss, around: &mut Surroundings<'_, S>) -> Result<(), Wrong> {
        if self.is_off() {
            return Ok(());
        }
        around.wires.silence(self.place.own);
        self.kill("replica lost power", around)?;
        self.medium.lose_power(loss);
        self.clock.reboot();
        Ok(())
    }

    /// It is about to go: what it has computed must be what the log comes to.
    fn leave(&mut self, around: &mut Surroundings<'_, S>) -> Result<(), Wrong> {
        self.check_state(around)?;
        if let State::Up(running) = &self.state {
            running.count(&mut |name, times| around.meet(name, times));
        }
        for (name, figure) in [
            ("catch-ups", Figure::CatchUps),
            ("catch-ups failed", Figure::CatchUpsFailed),
            ("feed packets duplicated", Figure::Duplicates),
        ] {
            around.meet(name, self.board.get(figure));
            self.board.set(figure, 0);
        }
        Ok(())
    }

    /// Its state is what the one order comes to.
    pub(crate) fn check_state(&mut self, around: &Surroundings<'_, S>) -> Result<(), Wrong> {
        let State::Up(running) = &self.state else { return Ok(()) };
        let live = running.machine();
        self.replay.go_to(around.ledger.frames(), live.applied(), around.service)?;
        self.replay
            .check_equals(live)
            .map(|_| ())
            .map_err(|(_, what)| ("a replica's state is the leader's", format!("replica {}: {what}", self.index)))
    }

    /// Its log, as it stands on its disk, is the one order's beginning: all of it, once everything is at rest.
    pub(crate) fn check_log(&self, around: &Surroundings<'_, S>, to: Seq) -> Result<(), Wrong> {
        let faults = self.medium.replace_faults(DiskFaults::NONE);
        let wrong = |error: JournalError| ("a replica's log can be read", format!("replica {}: {error}", self.index));
        let dir = &self.config.dir;
        let mut first = Seq::FIRST;
        let mut reader = match JournalReader::open_on(self.medium.open(), dir, first) {
            Err(JournalError::TooOld { first: kept, .. }) => {
                first = kept;
                JournalReader::open_on(self.medium.open(), dir, first).map_err(wrong)?
            }
            opened => opened.map_err(wrong)?,
        };
        let mut found = Frames::default();
        while let Some(frame) = reader.next().map_err(wrong)? {
            found.push(frame);
        }
        drop(reader);
        self.medium.replace_faults(faults);
        check_prefix(around.ledger, first, &found, to)
    }

    /// One poll of one of its parts; returns the work done.
    pub(crate) fn poll(&mut self, part: usize, around: &mut Surroundings<'_, S>) -> Result<usize, Wrong> {
        let is_stalled = self.stalled.is_some_and(|(stalled, until)| stalled == part && around.step < until);
        if is_stalled || around.time.now() < self.paused_until {
            return Ok(0);
        }
        let now = self.clock.monotonic();
        let turn = match &mut self.state {
            State::Off => return Ok(0),
            State::Joining(joiner) => match joiner.poll(now) {
                Ok(None) => return Ok(0),
                begun => return self.begin(begun, around),
            },
            State::Up(running) => {
                let before = around.trace.is_on().then(|| running.standing());
                let turn = running.poll(Part::ALL[part], now, around.ever, around.ledger.committed);
                if let Some(before) = before {
                    running.standing().tell_since(&before, self.index as u8 + 1, around.trace);
                }
                turn?
            }
        };
        match turn {
            Turn::Work(work) => Ok(work),
            Turn::Stops(why) => {
                around.trace.tell(self.who(), || What::Note { text: why });
                self.kill("replica stopped by itself", around)?;
                Ok(1)
            }
            Turn::Verdict(verdict) => self.begin_anew(verdict, around).map(|()| 1),
        }
    }

    fn begin(
        &mut self,
        begun: Result<Option<Begun>, BulkEnd>,
        around: &mut Surroundings<'_, S>,
    ) -> Result<usize, Wrong> {
        match begun {
            Ok(None) => return Ok(0),
            Ok(Some(Begun::Frames { log_id })) => {
                around.meet("replicas began from frames", 1);
                self.log_id = log_id;
                self.open(around)?;
            }
            Ok(Some(Begun::Snapshot(snapshot))) => self.begin_anew(Verdict::Snapshot(snapshot), around)?,
            Err(end) => return Err(("a replica is never turned away", format!("replica {}: {end:?}", self.index))),
        }
        Ok(1)
    }

    /// What a verdict asks for, then a beginning from the disk, as live.
    fn begin_anew(&mut self, verdict: Verdict, around: &mut Surroundings<'_, S>) -> Result<(), Wrong> {
        self.leave(around)?;
        let (applied, epoch_began_at) = (self.applied(), self.epoch_began_at());
        self.close(around);
        let dir = &self.config.dir;
        let done = match verdict {
            Verdict::Fault(why) => {
                return Err(("a replica goes on", format!("replica {}: {why}", self.index)));
            }
            Verdict::Snapshot(at) => {
                around.meet("replica snapshots fetched", 1);
                around.trace.tell(self.who(), || What::Snapshot { seq: at.seq.0, how: "begun from".to_string() });
                self.log_id = at.log_id;
                let begun = reset::begin_from(&mut self.medium.open(), dir, &at.path, at.seq);
                begun.map_err(|error| JournalError::Disk { path: dir.clone(), error })
            }
            Verdict::TakenBack { why, from } => {
                around.meet("replica truncations", 1);
                // All of an epoch that nobody else has heard of.
                let from = if from == Seq::ZERO { epoch_began_at.unwrap_or(Seq::FIRST) } else { from };
                let text = format!("gives up its log from {from} on: {why}");
                around.trace.tell(self.who(), || What::Note { text });
                if from <= applied {
                    let what = format!("replica {}: from {from}, applied up to {applied}", self.index);
                    return Err(("nothing committed is taken back", what));
                }
                let cut = replica_cut::cut(|| self.medium.open(), dir, &self.journal(), Seq(from.0 - 1));
                cut.map(|kept| around.meet("replica logs cut and gone on from", u64::from(kept > Seq::ZERO)))
            }
        };
        match done {
            // Its marker stands: the next start goes on with it.
            Err(error) => self.failed_start(&error.to_string(), is_disk(&error), around),
            Ok(()) => self.start(around),
        }
    }

    /// Its disk is another, empty one.
    pub(crate) fn wipe(&mut self, around: &Surroundings<'_, S>) {
        assert!(self.is_off(), "a running replica keeps its disk");
        self.medium = Medium::new(self.seed.child("disk", self.starts), around.time, DiskConfig::default());
        self.medium.set_trace(around.trace, Who::Disk(self.index as u8 + 1));
        self.log_id = 0;
    }

    /// Nothing holds it up any more.
    pub(crate) fn calm(&mut self) {
        (self.stalled, self.paused_until, self.begins_at) = (None, 0, 0);
        self.medium.set_faults(DiskFaults::NONE);
        self.medium.set_capacity(1 << 30);
    }

    /// Other disk faults than before.
    pub(crate) fn change_disk(&mut self, fate: &mut Rng) -> DiskFaults {
        let faults = DiskFaults {
            latency_ns: *fate.pick(&[1_000, 15_000, 300_000]),
            jitter_ns: *fate.pick(&[0, 20_000, 1_000_000]),
            straggle: Ppm(*fate.pick(&[0, 1_000, 20_000])),
            short_write: Ppm(*fate.pick(&[0, 0, 50_000])),
            write_error: Ppm(*fate.pick(&[0, 0, 0, 2_000])),
            read_error: Ppm(*fate.pick(&[0, 0, 0, 2_000])),
            sync_error: Ppm(*fate.pick(&[0, 0, 0, 2_000])),
            ..DiskFaults::NONE
        };
        self.medium.set_faults(faults);
        faults
    }
}

fn is_disk(error: &JournalError) -> bool {
    matches!(error, JournalError::Disk { .. } | JournalError::NoSpace { .. } | JournalError::WriteZero { .. })
}
