//! What a replica consists of, on whichever ports: opened from its disk, and wired together. Every runner does it here.

use ticktape_core::frame::padded;
use ticktape_core::{Seq, Service};
use ticktape_journal::{Disk, Journal, JournalConfig, JournalReader};
use ticktape_nic::{Rx, Tx};
use ticktape_shm::{Follower, Horizon, Ring, RingBuilder, RingConfig, Tap, Watermarks};

use super::start_error::StartError;
use crate::catchup::EpochTable;
use crate::feed::Role;
use crate::journaler::Journaler;
use crate::metrics::{Arrivals, Part, StageLatency};
use crate::payload::{EpochChange, Reign};
use crate::replica::{
    Board, Bulk, Committed, Door, Figure, Identity, Intake, IntakeConfig, Ports, ReplicaConfig, RingSide,
};
use crate::snapshot::{Found, Restored};
use crate::{Frame, Kind};

/// What the disk holds, opened for more.
pub struct Opened<S: Service, D: Disk> {
    journal: Journal<D>,
    restored: Restored<S>,
    next_seq: Seq,
    /// Each reign with its first frame, up to the log's end.
    reigns: Vec<(Reign, Seq)>,
    /// What an operator should hear of what was found.
    warnings: Vec<String>,
}

impl<S: Service, D: Disk> Opened<S, D> {
    /// Which log it is; 0 where nobody has said yet.
    pub fn log_id(&self) -> u64 {
        self.journal.log_id()
    }

    /// What an operator should hear of what was found, each in a line.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The frame that comes next.
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }
}

/// Opens the log in the directory for more, with the state of its newest snapshot: `writing` is the journal's disk, and `reading`
/// opens one for everybody else. `log_id` is the log's, where nothing on the disk says so.
///
/// # Errors
/// [`StartError`]: the disk, or what is on it.
pub fn open_log<S: Service, D: Disk, R: Disk>(
    config: &ReplicaConfig,
    service: &S::Config,
    log_id: u64,
    writing: D,
    reading: impl Fn() -> R,
) -> Result<Opened<S, D>, StartError> {
    let mut disk = reading();
    let found = Found::newest_on(&mut disk, &config.dir, config.last_wanted())?;
    let log_id = if found.log_id() == 0 { log_id } else { found.log_id() };
    let covered = found.covered();
    let of_this_log = JournalConfig { log_id, ..config.journal.clone() };
    let (mut journal, recovered) = Journal::open_covered(writing, &config.dir, of_this_log, covered)?;
    let tail_bytes = config.snapshots.unwrap_or_default().tail_bytes;
    let mut restored = found.restore_on::<S, R>(&mut disk, &config.dir, service, config.limits, tail_bytes)?;
    restored.check_goes_on(&config.dir, recovered.first_seq)?;
    let mut reigns = restored.machine.reigns();
    let from = restored.machine.applied().next();
    if from < recovered.next_seq {
        let mut reader = JournalReader::open_on(disk, &config.dir, from)?;
        while let Some(bytes) = reader.next()? {
            let frame = Frame::view(bytes).expect("the reader has checked it");
            if frame.kind == Kind::EpochChange
                && let Some(change) = EpochChange::decode(frame.payload)
            {
                reigns.push((change.begins(), frame.seq));
            }
        }
    }
    let epoch = reigns.last().map_or(0, |(reign, _)| reign.epoch);
    journal.set_epoch(epoch.max(recovered.last_epoch));
    restored.machine.set_log_id(journal.log_id());
    let warnings = recovered.warnings().collect();
    Ok(Opened { journal, restored, next_seq: recovered.next_seq, reigns, warnings })
}

/// Who a replica is.
#[derive(Clone, Copy, Debug)]
pub struct Me {
    /// Its own number.
    pub number: u64,
    /// Its statuses are numbered from here on: above all that it has sent before.
    pub first_status: u64,
    /// Whose log it takes.
    pub service: Identity,
}

/// What an executor begins with: see [`Shadow::open_replica`](crate::shadow::Shadow::open_replica).
pub struct ExecutorBegin<S: Service> {
    /// The state to go on from.
    pub restored: Restored<S>,
    /// The ring, with the horizon of what is durable.
    pub ring: Follower,
    /// Where it stops.
    pub committed: Committed,
}

/// The parts, for whoever polls them.
pub struct Parts<S: Service, R: Rx, T: Tx, B: Bulk, D: Disk> {
    /// Takes what comes.
    pub intake: Intake<R, T, B>,
    /// Takes it to the disk.
    pub journaler: Journaler<D>,
    /// Applies what is committed.
    pub executor: ExecutorBegin<S>,
    /// The ring between them, for whoever serves others.
    pub tap: Tap,
    /// How far it is durable and committed.
    pub watermarks: Watermarks,
    /// As whom others are served.
    pub role: Role,
    /// The log's epochs; the intake adds to them.
    pub epochs: EpochTable,
}

/// Wires a replica that goes on from what was opened.
///
/// # Errors
/// [`StartError`]: its ring can't be had.
pub fn assemble<S: Service, R: Rx, T: Tx, B: Bulk, D: Disk>(
    config: &ReplicaConfig,
    me: Me,
    opened: Opened<S, D>,
    ports: Ports<R, T>,
    bulk: B,
    board: &Board,
) -> Result<Parts<S, R, T, B, D>, StartError> {
    let log_id = opened.log_id();
    let Opened { journal, restored, next_seq, reigns, warnings: _ } = opened;
    let applied = restored.machine.applied();
    let epochs = EpochTable::new(&reigns);
    let reign = epochs.last_reign();
    let epoch = reign.epoch;
    // After frames were taken back the log may be in an earlier epoch than it was.
    board.set(Figure::Epoch, epoch);
    let ring = build_ring(config, epoch, next_seq)?;
    let committed = Committed::new(applied);
    let executor = ExecutorBegin {
        restored,
        ring: ring.tap.follow(next_seq, Horizon::Durable).expect("the ring begins there"),
        committed: committed.clone(),
    };
    let mut consumers = ring.consumers;
    let frames = consumers.pop().expect("one consumer was asked for");
    let latency = StageLatency::private(Arrivals::new(64, Part::default()), Seq(next_seq.0 - 1));
    let intake_config = IntakeConfig {
        stream: config.stream(),
        peers: config.repair.clone(),
        window_messages: config.window_messages,
        frame_bytes_max: config.frame_bytes_max(),
        wait_ns: config.wait_ns,
        repair: config.repairs,
        replica: me.number,
        first_status: me.first_status,
        log_id,
        committed: applied,
        last_wanted: config.last_wanted(),
    };
    let side = RingSide {
        door: Door::new(ring.producer, config.frame_bytes_max(), me.service, reign),
        watermarks: ring.watermarks.clone(),
        commit_mark: ring.commit,
        committed: committed.clone(),
        epochs: epochs.clone(),
    };
    Ok(Parts {
        intake: Intake::new(&intake_config, ports, side, bulk, board.clone()),
        journaler: Journaler::new(frames, journal, ring.durable, latency),
        executor,
        tap: ring.tap,
        watermarks: ring.watermarks,
        role: Role::Replica { committed, epochs: epochs.clone(), board: board.clone() },
        epochs,
    })
}

fn build_ring(config: &ReplicaConfig, epoch: u64, first_seq: Seq) -> Result<Ring, StartError> {
    let ring_config = RingConfig {
        capacity_bytes: config.ring.bytes,
        frame_bytes_max: padded(config.frame_bytes_max()),
        batch_bytes_max: config.batch_bytes_max(),
        epoch,
        commit_is_sequenced: false,
    };
    let mut builder = match &config.ring.name {
        Some(name) => RingBuilder::new(ring_config).named(&config.ring.dir, name),
        None => RingBuilder::new(ring_config).heap(),
    };
    let journaler = builder.consumer("journaler");
    builder.hold_bytes_max(journaler, config.ring.bytes as u64 / 2);
    Ok(builder.build(first_seq)?)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::path::Path;

    use ticktape_core::{Ctx, Nanos, Timestamp};
    use ticktape_journal::FileDisk;
    use ticktape_nic::{Nic, mem};

    use super::*;
    use crate::replica::{Admission, BulkProgress};

    struct Nothing;

    impl Service for Nothing {
        type Input = u64;
        type Output = u64;
        type Snapshot = u64;
        type Config = ();

        const NAME: &'static str = "nothing";

        fn genesis((): &()) -> Self {
            Nothing
        }

        fn apply(&mut self, _: Seq, _: &u64, _: &mut Ctx<'_, u64>) {}

        fn snapshot(&self) -> u64 {
            0
        }

        fn restore(_: u64, (): &()) -> Self {
            Nothing
        }
    }

    /// Brings nothing.
    struct NoBulk;

    impl Bulk for NoBulk {
        fn begin(&mut self, _: Nanos, _: Seq, _: Reign) {}

        fn poll(&mut self, _: Nanos, _: &mut dyn FnMut(u64, &[u8]) -> Admission) -> BulkProgress {
            BulkProgress::Working(0)
        }

        fn peers(&self) -> usize {
            1
        }
    }

    /// A log whose epochs begin at these frames, and one frame behind the last.
    fn log(config: &ReplicaConfig, dir: &Path, epochs: &[(u64, u64)]) {
        let (mut journal, _) = Journal::open_covered(FileDisk::new(), dir, config.journal.clone(), Seq::ZERO).unwrap();
        let changes = epochs.iter().map(|&(epoch, seq)| {
            let change = EpochChange {
                epoch,
                schema_version: Nothing::SCHEMA_VERSION,
                service_name: Nothing::NAME,
                ..EpochChange::default()
            };
            (seq, Kind::EpochChange, change.encode().to_vec())
        });
        let last = epochs.last().unwrap().1 + 1;
        for (seq, kind, payload) in changes.chain([(last, Kind::Tick, Vec::new())]) {
            let mut bytes = Vec::new();
            let (seq, timestamp) = (Seq(seq), Timestamp(seq));
            Frame { seq, timestamp, stream_id: 1, kind, payload: &payload }.append_to(&mut bytes);
            bytes.resize(padded(bytes.len()), 0);
            assert!(journal.room(bytes.len()));
            journal.append(seq, &bytes);
        }
        journal.close().unwrap();
    }

    #[test]
    fn others_are_served_in_the_epoch_that_the_log_is_in_from_the_first_poll_on() {
        let dir = tempfile::tempdir().unwrap();
        let peer = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 2);
        let config = ReplicaConfig::new(dir.path(), SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 1), 7001), vec![peer]);
        log(&config, dir.path(), &[(2, 1), (5, 2)]);
        let opened = open_log::<Nothing, _, _>(&config, &(), 7, FileDisk::new(), FileDisk::new).unwrap();
        assert_eq!(opened.next_seq(), Seq(4));
        let (feed, repair) = (mem::pair().0.split().0, mem::pair().0.split());
        let ports = Ports { feeds: vec![feed], repair_rx: repair.0, repair_tx: repair.1 };
        let identity = Identity { name: Nothing::NAME, schema_version: Nothing::SCHEMA_VERSION };
        let me = Me { number: 1, first_status: 1, service: identity };
        // As it stands after a reign of which all was taken back.
        let board = Board::default();
        board.set(Figure::Epoch, 9);
        let parts = assemble(&config, me, opened, ports, NoBulk, &board).unwrap();
        assert_eq!((board.get(Figure::Epoch), parts.epochs.last(), parts.epochs.last_began()), (5, 5, Some(Seq(2))));
        assert_eq!(parts.epochs.check(Seq(2), Reign::unnamed(2)), Ok(()));
        assert_eq!(parts.epochs.check(Seq(4), Reign::unnamed(5)), Ok(()));
    }
}
