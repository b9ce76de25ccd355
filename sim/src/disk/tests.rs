use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ticktape_journal::Disk;
use ticktape_journal::disk::{BufferId, FileId, Op, OpenMode, Outcome};

use super::*;
use crate::clock::WorldTime;
use crate::rng::{Ppm, Seed};

const DIR: &str = "/box/journal";

struct Rig {
    time: WorldTime,
    medium: Medium,
    disk: SimDisk,
    buffer: BufferId,
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

impl Rig {
    fn new(seed: u64) -> Rig {
        Rig::with(seed, DiskConfig::default())
    }

    fn with(seed: u64, config: DiskConfig) -> Rig {
        let time = WorldTime::new();
        let medium = Medium::new(Seed(seed), &time, config);
        let mut disk = medium.open();
        disk.run(Op::CreateDir { path: Path::new(DIR) }).unwrap();
        let buffer = disk.allocate(64 << 10).unwrap();
        Rig { time, medium, disk, buffer }
    }

    fn open(&mut self, name: &str, mode: OpenMode) -> FileId {
        match self.disk.run(Op::Open { path: &path(name), mode }) {
            Ok(Outcome::Opened(file)) => file,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, file: FileId, sector: u64, bytes: &[u8], durable: bool) -> Result<Outcome, i32> {
        self.disk.bytes_mut(self.buffer)[..bytes.len()].copy_from_slice(bytes);
        let offset = sector * SECTOR_BYTES as u64;
        let op = Op::Write { file, buffer: self.buffer, start: 0, len: bytes.len(), offset, durable };
        self.disk.run(op).map_err(|error| error.errno)
    }

    fn sync(&mut self, file: FileId) -> Result<Outcome, i32> {
        self.disk.run(Op::Sync { file }).map_err(|error| error.errno)
    }

    fn sync_dir(&mut self) {
        self.disk.run(Op::SyncDir { path: Path::new(DIR) }).unwrap();
    }

    /// Loses the power and starts again with a new port.
    fn lose_power(&mut self, loss: Loss) {
        self.disk = self.medium.open();
        self.medium.lose_power(loss);
        self.disk = self.medium.open();
        self.buffer = self.disk.allocate(64 << 10).unwrap();
    }

    fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.medium.contents(&path(name))
    }
}

const NOTHING: Loss = Loss { survives: Ppm::NEVER, torn: Ppm::NEVER, names_in_order: true };

/// The file `a` holds this, and zeros beyond: how long it is is another question after a power loss.
#[track_caller]
fn assert_reads(rig: &Rig, expected: &[u8]) {
    let found = rig.contents("a").expect("it has kept its name");
    assert!(found.starts_with(expected) && found[expected.len()..].iter().all(|&byte| byte == 0), "{found:?}");
}

fn sector(byte: u8) -> Vec<u8> {
    vec![byte; SECTOR_BYTES]
}

#[test]
fn what_was_synced_survives_and_what_was_not_does_not_have_to() {
    let mut rig = Rig::new(1);
    let file = rig.open("a", OpenMode::Create);
    rig.write(file, 0, &sector(1), false).unwrap();
    rig.sync(file).unwrap();
    rig.sync_dir();
    rig.write(file, 0, &sector(2), false).unwrap();
    rig.write(file, 1, &sector(3), false).unwrap();
    assert_eq!(rig.contents("a"), Some([sector(2), sector(3)].concat()));
    rig.lose_power(NOTHING);
    assert_reads(&rig, &sector(1));
    let counters = rig.medium.counters();
    assert_eq!((counters.sectors_lost, counters.sectors_torn, counters.sectors_survived), (2, 0, 0));
}

#[test]
fn a_durable_write_is_durable_and_nothing_beside_it() {
    let mut rig = Rig::new(2);
    let file = rig.open("a", OpenMode::Create);
    rig.sync_dir();
    rig.write(file, 0, &sector(1), false).unwrap();
    rig.write(file, 1, &sector(2), true).unwrap();
    rig.lose_power(NOTHING);
    assert_eq!(rig.contents("a"), Some([sector(0), sector(2)].concat()));
}

#[test]
fn a_torn_sector_is_half_old_and_half_new() {
    let mut rig = Rig::new(3);
    let file = rig.open("a", OpenMode::Create);
    rig.write(file, 0, &sector(1), false).unwrap();
    rig.sync(file).unwrap();
    rig.sync_dir();
    rig.write(file, 0, &sector(2), false).unwrap();
    rig.lose_power(Loss { torn: Ppm::ALWAYS, ..NOTHING });
    let found = rig.contents("a").unwrap();
    let halves = [&found[..SECTOR_BYTES / 2], &found[SECTOR_BYTES / 2..]]
        .map(|half| (half[0], half.iter().all(|b| *b == half[0])));
    assert!(halves == [(1, true), (2, true)] || halves == [(2, true), (1, true)], "{halves:?}");
    assert_eq!(rig.medium.counters().sectors_torn, 1);
}

#[test]
fn names_are_lost_without_a_synced_directory() {
    let mut rig = Rig::new(4);
    let file = rig.open("a", OpenMode::Create);
    rig.write(file, 0, &sector(1), true).unwrap();
    rig.lose_power(NOTHING);
    assert_eq!(rig.medium.files(), Vec::<PathBuf>::new(), "a synced file without a name is lost");

    rig.open("b", OpenMode::Create);
    rig.sync_dir();
    rig.disk.run(Op::Rename { from: &path("b"), to: &path("c") }).unwrap();
    assert_eq!(rig.medium.files(), [path("c")]);
    rig.lose_power(NOTHING);
    assert_eq!(rig.medium.files(), [path("b")]);
    rig.disk.run(Op::Rename { from: &path("b"), to: &path("c") }).unwrap();
    rig.sync_dir();
    rig.disk.run(Op::Delete { path: &path("c") }).unwrap();
    rig.lose_power(NOTHING);
    assert_eq!(rig.medium.files(), [path("c")]);
    assert_eq!(rig.medium.counters().names_lost, 3);
}

#[test]
fn a_sync_covers_what_had_completed_before_it_began() {
    let mut rig = Rig::new(5);
    let file = rig.open("a", OpenMode::Create);
    rig.sync_dir();
    rig.write(file, 0, &sector(1), false).unwrap();
    rig.medium.set_faults(DiskFaults { latency_ns: 1000, jitter_ns: 0, ..DiskFaults::NONE });
    rig.disk.submit(1, Op::Sync { file });
    rig.medium.set_faults(DiskFaults { latency_ns: 10, jitter_ns: 0, ..DiskFaults::NONE });
    rig.disk.bytes_mut(rig.buffer)[..SECTOR_BYTES].fill(2);
    let write = Op::Write { file, buffer: rig.buffer, start: 0, len: SECTOR_BYTES, offset: 512, durable: false };
    rig.disk.submit(2, write);
    assert!(rig.disk.poll().is_none(), "nothing completes at once");
    rig.disk.wait();
    assert_eq!(rig.disk.poll().map(|completion| completion.token), Some(2), "in any order");
    rig.disk.wait();
    assert_eq!(rig.disk.poll().map(|completion| completion.token), Some(1));
    rig.lose_power(NOTHING);
    assert_reads(&rig, &sector(1));
}

#[test]
fn pages_count_as_clean_after_a_failed_sync() {
    let mut rig = Rig::with(6, DiskConfig { direct: false, ..DiskConfig::default() });
    let file = rig.open("a", OpenMode::Create);
    rig.sync_dir();
    rig.write(file, 0, &sector(1), false).unwrap();
    rig.medium.set_faults(DiskFaults { sync_error: Ppm::ALWAYS, ..DiskFaults::NONE });
    assert_eq!(rig.sync(file), Err(libc::EIO));
    rig.medium.set_faults(DiskFaults::NONE);
    assert_eq!(rig.sync(file), Ok(Outcome::Done), "the second one believes that there is nothing to do");
    assert_eq!(rig.contents("a"), Some(sector(1)), "as long as the power stays");
    rig.write(file, 1, &sector(2), false).unwrap();
    rig.sync(file).unwrap();
    rig.lose_power(NOTHING);
    assert_eq!(rig.contents("a"), Some([sector(0), sector(2)].concat()));
}

#[test]
fn a_failed_flush_may_take_what_the_device_had_not_written() {
    let mut rig = Rig::new(13);
    let file = rig.open("a", OpenMode::Create);
    rig.write(file, 0, &[1; 32 << 10], false).unwrap();
    rig.sync(file).unwrap();
    rig.write(file, 0, &[2; 32 << 10], false).unwrap();
    rig.medium.set_faults(DiskFaults { sync_error: Ppm::ALWAYS, ..DiskFaults::NONE });
    assert_eq!(rig.sync(file), Err(libc::EIO));
    rig.medium.set_faults(DiskFaults::NONE);
    let found = rig.contents("a").unwrap();
    assert!(found.contains(&1) && found.contains(&2), "some are gone and some are not");
    rig.sync(file).unwrap();
    rig.sync_dir();
    rig.lose_power(NOTHING);
    assert_eq!(rig.contents("a"), Some(found), "what a later flush takes is what was read");
}

#[test]
fn a_blown_fuse_ends_everything() {
    let mut rig = Rig::new(14);
    rig.medium.set_fuse(Some(1));
    let file = rig.open("a", OpenMode::Create);
    assert!(rig.medium.is_fuse_blown());
    assert_eq!(rig.write(file, 0, &sector(1), true), Err(libc::EIO));
    rig.medium.set_fuse(None);
    assert_eq!(rig.contents("a"), Some(Vec::new()));
    rig.write(file, 0, &sector(1), true).unwrap();
}

#[test]
fn each_kind_of_fault_strikes() {
    let mut rig = Rig::new(7);
    let file = rig.open("a", OpenMode::Create);
    let four = [sector(1), sector(2), sector(3), sector(4)].concat();
    let always = Ppm::ALWAYS;
    rig.medium.set_faults(DiskFaults { short_write: always, ..DiskFaults::NONE });
    let Ok(Outcome::Transferred(done)) = rig.write(file, 0, &four, false) else { panic!("it says how much") };
    assert!(done > 0 && done < four.len() && done.is_multiple_of(SECTOR_BYTES));
    assert_eq!(rig.contents("a").unwrap(), four[..done]);
    rig.medium.set_faults(DiskFaults { write_error: always, ..DiskFaults::NONE });
    assert_eq!(rig.write(file, 0, &four, false), Err(libc::EIO));
    rig.medium.set_faults(DiskFaults { lost_write: always, ..DiskFaults::NONE });
    assert_eq!(rig.write(file, 8, &four, true), Ok(Outcome::Transferred(four.len())));
    assert!(rig.contents("a").unwrap().len() <= four.len());
    rig.medium.set_faults(DiskFaults::NONE);
    rig.write(file, 0, &[0; 32 << 10], false).unwrap();
    rig.medium.set_faults(DiskFaults { misdirected_write: always, ..DiskFaults::NONE });
    rig.write(file, 0, &four, false).unwrap();
    let found = rig.contents("a").unwrap();
    assert!(found.windows(four.len()).any(|window| window == four) && !found.starts_with(&four));
    rig.medium.set_faults(DiskFaults { read_error: always, ..DiskFaults::NONE });
    let read = Op::Read { file, buffer: rig.buffer, start: 0, len: SECTOR_BYTES, offset: 0 };
    assert_eq!(rig.disk.run(read).map_err(|error| error.errno), Err(libc::EIO));
    rig.sync(file).unwrap();
    assert!(rig.medium.rot("a") && !rig.medium.rot("b"));
    let flipped = found.iter().zip(rig.contents("a").unwrap()).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    assert_eq!(flipped, 1);
    let counters = rig.medium.counters();
    assert_eq!(
        (counters.errors, counters.lost_writes, counters.misdirected_writes, counters.rotten_bits),
        (2, 1, 1, 1)
    );
}

#[test]
fn direct_io_wants_whole_blocks() {
    let mut rig = Rig::with(8, DiskConfig { alignment: 4096, ..DiskConfig::default() });
    let file = rig.open("a", OpenMode::Create);
    assert_eq!(rig.write(file, 0, &sector(1), false), Err(libc::EINVAL));
    assert_eq!(rig.write(file, 1, &[1; 4096], false), Err(libc::EINVAL));
    rig.write(file, 0, &[1; 4096], false).unwrap();
    let buffered = rig.open("a", OpenMode::Read);
    let read = |file, len| Op::Read { file, buffer: BufferId(0), start: 0, len, offset: 0 };
    assert_eq!(rig.disk.run(read(buffered, 100)), Ok(Outcome::Transferred(100)));
    assert_eq!(rig.disk.run(read(file, 100)).map_err(|error| error.errno), Err(libc::EINVAL));
    assert_eq!(rig.disk.run(read(file, 8192)), Ok(Outcome::Transferred(4096)), "as far as the file goes");
}

#[test]
fn a_full_disk_says_so_until_something_is_deleted_and_closed() {
    let mut rig = Rig::with(9, DiskConfig { capacity: 8192, ..DiskConfig::default() });
    let file = rig.open("a", OpenMode::Create);
    rig.disk.run(Op::Preallocate { file, bytes: 8192 }).unwrap();
    let other = rig.open("b", OpenMode::Create);
    assert_eq!(rig.write(other, 0, &sector(1), false), Err(libc::ENOSPC));
    rig.disk.run(Op::Delete { path: &path("a") }).unwrap();
    assert_eq!(rig.disk.run(Op::FreeSpace { path: Path::new(DIR) }), Ok(Outcome::Free(0)));
    rig.disk.run(Op::Close { file }).unwrap();
    rig.write(other, 0, &sector(1), false).unwrap();
    assert_eq!((rig.medium.used(), rig.medium.counters().full), (512, 1));
}

#[test]
fn ports_from_before_a_power_loss_are_fenced_and_locks_go_with_their_holder() {
    let mut rig = Rig::new(10);
    let lock = path("lock");
    rig.disk.run(Op::Lock { path: &lock }).unwrap();
    let mut other = rig.medium.open();
    assert!(other.run(Op::Lock { path: &lock }).unwrap_err().is_held());
    let file = rig.open("a", OpenMode::Create);
    rig.sync_dir();
    rig.medium.lose_power(NOTHING);
    assert_eq!(rig.write(file, 0, &sector(1), true), Err(libc::EBADF));
    assert_eq!(rig.contents("a"), Some(Vec::new()));
    let mut third = rig.medium.open();
    third.run(Op::Lock { path: &lock }).unwrap();
    drop(third);
    rig.medium.open().run(Op::Lock { path: &lock }).unwrap();
}

#[test]
fn a_stalled_disk_completes_nothing_before_its_time() {
    let mut rig = Rig::new(11);
    let before = rig.time.now();
    rig.medium.stall(1_000_000);
    rig.disk.run(Op::List { path: Path::new(DIR) }).unwrap();
    assert!(rig.time.now() >= before + 1_000_000);
}

#[test]
fn what_is_cut_off_reads_as_zeros_when_the_file_grows_again() {
    let mut rig = Rig::new(12);
    let file = rig.open("a", OpenMode::Create);
    rig.write(file, 0, &[7; 2048], true).unwrap();
    rig.sync_dir();
    rig.disk.run(Op::Truncate { file, bytes: 700 }).unwrap();
    rig.disk.run(Op::Truncate { file, bytes: 2048 }).unwrap();
    let mut expected = vec![7; 700];
    expected.resize(2048, 0);
    assert_eq!(rig.contents("a"), Some(expected.clone()));
    rig.sync(file).unwrap();
    rig.lose_power(NOTHING);
    assert_eq!(rig.contents("a"), Some(expected));
}

/// What may be in one sector after a power loss: by the writes to it since the last sync.
#[derive(Clone, Debug)]
struct Oracle {
    possible: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: u8, durable: bool },
    Sync,
    Lose,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..8u8, any::<bool>()).prop_map(|(at, durable)| Step::Write { at, durable: durable && at % 2 == 0 }),
        2 => Just(Step::Sync),
        1 => Just(Step::Lose),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_sector_is_as_some_write_left_it_and_never_older_than_the_last_sync(seed: u64, steps in steps()) {
        let mut rig = Rig::new(seed);
        let mut file = rig.open("a", OpenMode::Create);
        rig.disk.run(Op::Preallocate { file, bytes: 4096 }).unwrap();
        rig.sync(file).unwrap();
        rig.sync_dir();
        let mut oracle = vec![Oracle { possible: vec![sector(0)] }; 8];
        let mut rng = Seed(seed).stream("losses");
        for (number, step) in (1u8..).zip(steps) {
            match step {
                Step::Write { at, durable } => {
                    rig.write(file, u64::from(at), &sector(number), durable).unwrap();
                    let possible = &mut oracle[usize::from(at)].possible;
                    if durable {
                        possible.clear();
                    }
                    possible.push(sector(number));
                }
                Step::Sync => {
                    rig.sync(file).unwrap();
                    for Oracle { possible } in &mut oracle {
                        possible.drain(..possible.len() - 1);
                    }
                }
                Step::Lose => {
                    rig.lose_power(Loss::any(&mut rng));
                    file = rig.open("a", OpenMode::Write);
                    let found = rig.contents("a").unwrap();
                    for (found, Oracle { possible }) in found.chunks(SECTOR_BYTES).zip(&mut oracle) {
                        let halves_are_possible = possible.iter().any(|it| it[..256] == found[..256])
                            && possible.iter().any(|it| it[256..] == found[256..]);
                        prop_assert!(halves_are_possible, "{:?} is none of {possible:?}", found);
                        *possible = vec![found.to_vec()];
                    }
                }
                Step::Kill => {
                    rig.disk = rig.medium.open();
                    rig.buffer = rig.disk.allocate(64 << 10).unwrap();
                    file = rig.open("a", OpenMode::Write);
                }
            }
            let found = rig.contents("a").unwrap();
            for (found, Oracle { possible }) in found.chunks(SECTOR_BYTES).zip(&oracle) {
                prop_assert_eq!(found, &possible[possible.len() - 1][..], "reads see the newest");
            }
        }
    }
}

#[test]
fn a_bit_that_rots_among_zeros_rots_nowhere_else() {
    let zeros = [0; 3 * SECTOR_BYTES];
    let mut file = inode::Inode::default();
    file.write(1, 0, &zeros);
    file.sync(1);
    // Not durable again: what rots is what is kept of each sector for a power loss.
    file.write(2, 0, &zeros);
    file.rot(8 * SECTOR_BYTES + 3);
    let read = |file: &inode::Inode| {
        let (stored, behind) = file.read(0, zeros.len());
        [stored, &vec![0; behind]].concat()
    };
    assert_eq!(read(&file), zeros, "what is read is what was written last");
    let nothing = Loss { survives: Ppm::NEVER, torn: Ppm::NEVER, names_in_order: true };
    file.lose_power(&mut Seed(1).stream("rot"), nothing, &mut MediumCounters::default());
    let mut rotten = zeros;
    rotten[SECTOR_BYTES] = 1 << 3;
    assert_eq!(read(&file), rotten);
    // Cut and lengthened again, it is zeros behind the cut.
    file.resize(3, SECTOR_BYTES + 1);
    file.resize(4, zeros.len());
    assert_eq!(read(&file), rotten);
    file.resize(5, SECTOR_BYTES);
    file.resize(6, zeros.len());
    assert_eq!((file.len(), read(&file)), (zeros.len(), zeros.to_vec()));
}
