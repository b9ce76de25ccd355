//! The io_uring backend by itself: a queue filled to its depth, completions in any order, errors one by one, drops with
//! writes under way, other threads, and limits that forbid registration. Skipped loudly where the file system or the kernel
//! has no direct I/O through io_uring.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use ticktape_journal::disk::{BufferId, Completion, DiskError, FileId, Op, OpenMode, Outcome};
use ticktape_journal::limits::{DISK_DEPTH, FILES_REGISTERED_MAX};
use ticktape_journal::{Binding, Disk, NativeDisk, UringDisk};

/// Whole blocks on every device that direct I/O is done on.
const BLOCK: usize = 4096;

/// In a child whose limits are tight: the directory to work in.
const TIGHT: &str = "TICKTAPE_TIGHT_LIMITS_DIR";

fn disk(dir: &Path, binding: Binding) -> Option<UringDisk> {
    match UringDisk::new(dir, binding) {
        Ok(disk) => Some(disk),
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "skipped: {reason}");
            None
        }
    }
}

fn open(disk: &mut UringDisk, path: &Path, mode: OpenMode) -> FileId {
    let Outcome::Opened(file) = disk.run(Op::Open { path, mode }).unwrap() else { panic!("open opens") };
    file
}

fn filled(disk: &mut UringDisk, byte: u8) -> BufferId {
    let buffer = disk.allocate(BLOCK).unwrap();
    disk.bytes_mut(buffer).fill(byte);
    buffer
}

fn write(file: FileId, buffer: BufferId, block: usize) -> Op<'static> {
    Op::Write { file, buffer, start: 0, len: BLOCK, offset: (block * BLOCK) as u64, durable: false }
}

fn completions(disk: &mut UringDisk, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    while all.len() < count {
        match disk.poll() {
            Some(completion) => all.push(completion),
            None => disk.wait(),
        }
    }
    assert!(disk.poll().is_none(), "each operation completes once");
    all
}

/// Block `n` of the file holds the byte `n`.
fn holds(path: &Path, blocks: usize) {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len(), blocks * BLOCK);
    for (n, block) in bytes.chunks(BLOCK).enumerate() {
        assert!(block.iter().all(|&byte| byte == n as u8), "block {n}");
    }
}

#[test]
fn a_queue_filled_to_its_depth_loses_nothing_and_takes_no_more() {
    for binding in [Binding::AnyThread, Binding::OneThread] {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut disk) = disk(dir.path(), binding) else { return };
        let path = dir.path().join("file");
        let file = open(&mut disk, &path, OpenMode::Create);
        for round in 0..3 {
            let buffers: Vec<_> = (0..DISK_DEPTH).map(|n| filled(&mut disk, n as u8)).collect();
            for (n, &buffer) in buffers.iter().enumerate() {
                disk.submit(n as u64, write(file, buffer, n));
            }
            let more = std::panic::AssertUnwindSafe(|| disk.submit(0, Op::Sync { file }));
            let refused = std::panic::catch_unwind(more).unwrap_err();
            assert!(refused.downcast_ref::<String>().is_some_and(|said| said.contains("polls before it submits")));
            let done = completions(&mut disk, DISK_DEPTH);
            let tokens: BTreeSet<u64> = done.iter().map(|completion| completion.token).collect();
            assert_eq!(tokens, (0..DISK_DEPTH as u64).collect(), "round {round}");
            for completion in done {
                assert_eq!(completion.result, Ok(Outcome::Transferred(BLOCK)));
            }
            buffers.into_iter().for_each(|buffer| disk.release(buffer));
        }
        holds(&path, DISK_DEPTH);
    }
}

#[test]
fn operations_of_all_kinds_complete_in_any_order_each_with_its_own_result() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut disk) = disk(dir.path(), Binding::OneThread) else { return };
    let path = dir.path().join("file");
    let file = open(&mut disk, &path, OpenMode::Create);
    let read_only = open(&mut disk, &path, OpenMode::ReadDirect);
    let buffers: Vec<_> = (0..24).map(|n| filled(&mut disk, n as u8)).collect();
    let spoilt = filled(&mut disk, 0xee);
    let unaligned = filled(&mut disk, 0xee);
    for (n, &buffer) in buffers.iter().enumerate() {
        disk.submit(n as u64, write(file, buffer, n));
        match n {
            // Errors between what succeeds: a file that takes no writes, and an offset within a block.
            7 => disk.submit(100, write(read_only, spoilt, 0)),
            11 => {
                let op = Op::Write { file, buffer: unaligned, start: 0, len: BLOCK, offset: 1, durable: false };
                disk.submit(101, op);
            }
            5 | 13 | 20 => disk.submit(200 + n as u64, Op::Sync { file }),
            17 => disk.submit(300, Op::SyncDir { path: dir.path() }),
            _ => {}
        }
    }
    let done = completions(&mut disk, 24 + 6);
    assert_eq!(done.iter().map(|completion| completion.token).collect::<BTreeSet<_>>().len(), 30);
    for Completion { token, result } in done {
        let expected = match token {
            100 => Err(DiskError { op: "write", errno: libc::EBADF }),
            101 => Err(DiskError { op: "write", errno: libc::EINVAL }),
            200.. => Ok(Outcome::Done),
            _ => Ok(Outcome::Transferred(BLOCK)),
        };
        assert_eq!(result, expected, "operation {token}");
    }
    holds(&path, 24);
    // Read back through the ring, into buffers that held something else.
    for (n, &buffer) in buffers.iter().enumerate() {
        let offset = ((23 - n) * BLOCK) as u64;
        disk.submit(n as u64, Op::Read { file, buffer, start: 0, len: BLOCK, offset });
    }
    completions(&mut disk, 24);
    for (n, &buffer) in buffers.iter().enumerate() {
        assert!(disk.bytes(buffer).iter().all(|&byte| byte == 23 - n as u8));
    }
}

#[test]
fn a_disk_that_is_dropped_first_drains() {
    for binding in [Binding::AnyThread, Binding::OneThread] {
        let dir = tempfile::tempdir().unwrap();
        for count in [1, 2, 60, DISK_DEPTH] {
            let Some(mut disk) = disk(dir.path(), binding) else { return };
            let path = dir.path().join(format!("{count}"));
            let file = open(&mut disk, &path, OpenMode::Create);
            for n in 0..count {
                let buffer = filled(&mut disk, n as u8);
                disk.submit(n as u64, write(file, buffer, n));
            }
            drop(disk);
            holds(&path, count);
        }
    }
}

#[test]
fn a_drop_on_a_foreign_thread_gives_no_memory_back_that_the_kernel_reads() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut disk) = disk(dir.path(), Binding::OneThread) else { return };
    let path = dir.path().join("file");
    let file = open(&mut disk, &path, OpenMode::Create);
    for n in 0..40 {
        let buffer = filled(&mut disk, n as u8);
        disk.submit(n as u64, write(file, buffer, n));
    }
    std::thread::spawn(move || drop(disk)).join().unwrap();
    // What was under way is completed or cancelled; whatever reached the file is what was lent.
    let bytes = std::fs::read(&path).unwrap();
    for (n, block) in bytes.chunks(BLOCK).enumerate() {
        assert!(block.iter().all(|&byte| byte == n as u8 || byte == 0), "block {n}");
    }
}

#[test]
fn a_ring_on_another_thread_knows_the_files_and_buffers_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut disk) = disk(dir.path(), Binding::OneThread) else { return };
    let described = disk.describe();
    let path = dir.path().join("file");
    let file = open(&mut disk, &path, OpenMode::Create);
    let gone = open(&mut disk, &dir.path().join("gone"), OpenMode::Create);
    disk.run(Op::Close { file: gone }).unwrap();
    let buffers = [filled(&mut disk, 0), filled(&mut disk, 1)];
    disk.run(write(file, buffers[0], 0)).unwrap();
    let disk = std::thread::spawn(move || {
        disk.run(write(file, buffers[1], 1)).unwrap();
        disk.release(buffers[0]);
        disk.run(Op::Sync { file }).unwrap();
        disk
    });
    let mut disk = disk.join().unwrap();
    disk.release(buffers[1]);
    let third = filled(&mut disk, 2);
    disk.run(write(file, third, 2)).unwrap();
    disk.run(Op::Close { file }).unwrap();
    holds(&path, 3);
    assert_eq!(disk.describe(), described);
    assert!(described.contains("registered files and buffers"), "{described}");
}

#[test]
fn more_files_than_are_registered_work_too_and_closed_ones_are_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut disk) = disk(dir.path(), Binding::OneThread) else { return };
    let path = |n: usize| dir.path().join(n.to_string());
    let count = FILES_REGISTERED_MAX as usize + 3;
    let files: Vec<_> = (0..count).map(|n| open(&mut disk, &path(n), OpenMode::Create)).collect();
    for (n, &file) in files.iter().enumerate() {
        let buffer = filled(&mut disk, 0);
        disk.run(write(file, buffer, 0)).unwrap();
        disk.release(buffer);
        disk.run(Op::Sync { file }).unwrap();
        holds(&path(n), 1);
    }
    // A number that is used again means the new file, and nothing keeps the old one open.
    disk.run(Op::Close { file: files[3] }).unwrap();
    let open_to: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    assert!(open_to.iter().filter_map(|fd| std::fs::read_link(fd.path()).ok()).all(|to| to != path(3)));
    let again = open(&mut disk, &path(count), OpenMode::Create);
    assert_eq!(again, files[3], "numbers are reused");
    let buffer = filled(&mut disk, 0);
    disk.run(write(again, buffer, 0)).unwrap();
    holds(&path(count), 1);
}

#[test]
fn workers_are_kept_off_the_cores_named_or_it_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut disk) = disk(dir.path(), Binding::OneThread) else { return };
    assert!(!disk.describe().contains("workers"), "nothing was asked for: {}", disk.describe());
    let cores = std::thread::available_parallelism().unwrap().get();
    disk.keep_workers_off(&[0], &[0, 1]);
    // What the process may use counts, and not what this thread is kept to; the kernel may still refuse a core that isn't there.
    let expected = if cores > 1 { "kernel workers on cores [1]" } else { "kernel workers" };
    assert!(disk.describe().contains(expected), "{}", disk.describe());
    // Syncs are run by the workers.
    let path = dir.path().join("file");
    let file = open(&mut disk, &path, OpenMode::Create);
    let buffer = filled(&mut disk, 0);
    disk.run(write(file, buffer, 0)).unwrap();
    disk.run(Op::Sync { file }).unwrap();
    disk.keep_workers_off(&[0, 1, 2], &[0, 1]);
    assert!(disk.describe().contains("no core to spare"), "{}", disk.describe());
    disk.run(Op::Sync { file }).unwrap();
}

/// What the child does whose limits forbid registration.
fn under_tight_limits(dir: &Path) {
    let mut disk = UringDisk::new(dir, Binding::OneThread).unwrap();
    let path = dir.join("file");
    let file = open(&mut disk, &path, OpenMode::Create);
    let buffers: Vec<_> = (0..20).map(|n| filled(&mut disk, n as u8)).collect();
    for (n, &buffer) in buffers.iter().enumerate() {
        disk.submit(n as u64, write(file, buffer, n));
    }
    for completion in completions(&mut disk, 20) {
        assert_eq!(completion.result, Ok(Outcome::Transferred(BLOCK)));
    }
    disk.run(Op::Sync { file }).unwrap();
    // Another thread takes over, with a second ring while the first is still there.
    let mut disk = std::thread::spawn(move || disk.run(Op::Sync { file }).map(|_| disk)).join().unwrap().unwrap();
    buffers.into_iter().for_each(|buffer| disk.release(buffer));
    disk.run(Op::Close { file }).unwrap();
    holds(&path, 20);
    let described = disk.describe();
    assert!(described.contains("plain files (") && described.contains("plain buffers (locked memory"), "{described}");
}

#[test]
fn limits_that_forbid_registration_cost_speed_and_nothing_else() {
    if let Some(dir) = std::env::var_os(TIGHT) {
        return under_tight_limits(Path::new(&dir));
    }
    in_a_child("limits_that_forbid_registration_cost_speed_and_nothing_else", 64 << 10);
}

#[test]
fn a_limit_that_forbids_the_ring_itself_leaves_plain_files_and_is_named() {
    if let Some(dir) = std::env::var_os(TIGHT) {
        let mut disk = NativeDisk::new(Path::new(&dir), Binding::OneThread);
        // Kernels differ in whether a ring counts as locked memory.
        let described = disk.describe();
        assert!(described.starts_with("plain files (io_uring is refused") || described.contains("plain buffers"));
        let path = Path::new(&dir).join("file");
        disk.run(Op::Open { path: &path, mode: OpenMode::Create }).unwrap();
        return;
    }
    in_a_child("a_limit_that_forbids_the_ring_itself_leaves_plain_files_and_is_named", 4 << 10);
}

/// Runs this test again in a child of so much locked memory, without the capability that the limit does not apply to, and of
/// fewer files than would be registered.
fn in_a_child(test: &str, locked_bytes: usize) {
    let dir = tempfile::tempdir().unwrap();
    if disk(dir.path(), Binding::OneThread).is_none() {
        return;
    }
    let memlock = format!("--memlock={locked_bytes}:{locked_bytes}");
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit", &memlock, "--nofile=40:40"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(TIGHT, dir.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the child ran this test");
        }
        Ok(output) if String::from_utf8_lossy(&output.stderr).starts_with("setpriv:") => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let _ = writeln!(std::io::stderr(), "skipped: limits can't be tightened here ({said})");
        }
        Ok(output) => panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: setpriv: {error}");
        }
    }
}

#[test]
fn names_and_sizes_are_changed_beside_the_caller_and_each_failure_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut disk) = disk(dir.path(), Binding::OneThread) else { return };
    let path = |name: &str| dir.path().join(name);
    let (old, new, missing) = (path("old"), path("new"), path("missing"));
    let mut done_later = |op: Op<'_>| {
        disk.submit(7, op);
        // Whoever reaps first would find it done: it was not done in the caller's time.
        assert!(format!("{disk:?}").contains("in_flight: 1"), "{} is under way: {disk:?}", op.name());
        let completion = completions(&mut disk, 1).remove(0);
        assert_eq!(completion.token, 7);
        completion.result
    };
    let errno = |result: Result<Outcome, DiskError>| result.unwrap_err().errno;
    let create = Op::Open { path: &old, mode: OpenMode::Create };
    let Ok(Outcome::Opened(file)) = done_later(create) else { panic!("open opens") };
    assert_eq!(errno(done_later(create)), libc::EEXIST);
    assert_eq!(done_later(Op::Preallocate { file, bytes: 1 << 20 }), Ok(Outcome::Done));
    assert_eq!(std::fs::metadata(&old).unwrap().len(), 1 << 20);
    assert_eq!(done_later(Op::Rename { from: &old, to: &new }), Ok(Outcome::Done));
    assert!(!old.exists() && new.exists());
    assert_eq!(errno(done_later(Op::Rename { from: &old, to: &missing })), libc::ENOENT);
    assert_eq!(errno(done_later(Op::Delete { path: &missing })), libc::ENOENT);
    assert_eq!(errno(done_later(Op::Preallocate { file, bytes: i64::MAX as u64 })), libc::EFBIG);
    assert_eq!(done_later(Op::Delete { path: &new }), Ok(Outcome::Done));
    assert!(!new.exists());
    let zero = path("zero\0zero");
    assert!(disk.run(Op::Delete { path: &zero }).is_err(), "no file has a zero in its name");
}
