//! A real device with sectors of 4096 bytes, and a file system in memory. The first needs root and a free loop device;
//! without them it says that it was skipped.

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{append, payload, read, small};
use ticktape_core::Seq;
use ticktape_journal::format::segment::{SegmentHeader, Version};
use ticktape_journal::{Binding, Disk, Journal, JournalConfig, NativeDisk, Strategy, names};

/// Runs a command; its output, or why not.
fn run(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(command).args(arguments).output().map_err(|error| format!("{command}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A mounted loop device with sectors of 4096 bytes; taken down when dropped, however the test ends.
struct Mounted {
    device: Option<String>,
    mounted: bool,
    // Declared last: the image goes after the mount.
    dir: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Result<Mounted, String> {
        let mut mounted = Mounted { device: None, mounted: false, dir: tempfile::tempdir().unwrap() };
        let image = mounted.dir.path().join("image");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(64 << 20).unwrap();
        let image = image.to_str().unwrap();
        let device = run("losetup", &["--find", "--show", "--sector-size", "4096", "--direct-io=on", image])
            .or_else(|_| run("losetup", &["--find", "--show", "--sector-size", "4096", image]))?;
        mounted.device = Some(device.clone());
        run("mkfs.ext4", &["-q", "-b", "4096", &device])?;
        std::fs::create_dir(mounted.path()).unwrap();
        run("mount", &[&device, mounted.path().to_str().unwrap()])?;
        mounted.mounted = true;
        Ok(mounted)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", &[self.path().to_str().unwrap()]);
        }
        if let Some(device) = &self.device {
            let _ = run("losetup", &["--detach", device]);
        }
    }
}

/// Two openings that roll, with each strategy; returns the block size of the first segment.
fn goes_round(dir: &Path) -> u32 {
    let mut alignment = 0;
    for strategy in Strategy::ALL {
        let dir = dir.join(strategy.to_string());
        let mut written = Vec::new();
        for _ in 0..2 {
            let disk = NativeDisk::new(&dir, Binding::OneThread);
            println!("{}: {}", dir.display(), disk.describe());
            let config = JournalConfig { strategy: strategy.into(), segment_bytes: 64 << 10, ..small() };
            let (mut journal, recovered) = Journal::open(disk, &dir, config).unwrap();
            assert_eq!((recovered.next_seq, recovered.cut), (Seq(written.len() as u64 + 1), None));
            for _ in 0..60 {
                written.push(append(&mut journal, &payload(written.len() as u64)));
                journal.sync_blocking(|| 0).unwrap();
                journal.housekeeping(0);
            }
            journal.close().unwrap();
            assert_eq!(read(&dir, 1).unwrap(), written);
        }
        let first = std::fs::read(names::segment(&dir, Seq(1))).unwrap();
        let Version::Two { alignment: blocks, .. } = SegmentHeader::decode(&first).unwrap().version else {
            panic!("version 2 is written")
        };
        alignment = blocks;
    }
    alignment
}

#[test]
fn sectors_of_4096_bytes() {
    match Mounted::new() {
        Ok(mounted) => {
            let blocks = goes_round(&mounted.path());
            assert_eq!(blocks, 4096, "what the open file asks for");
        }
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "skipped: no loop device with 4096-byte sectors here ({reason})");
        }
    }
}

#[test]
fn a_file_system_in_memory_works_or_says_why_it_is_second_choice() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        let _ = writeln!(std::io::stderr(), "skipped: no /dev/shm here");
        return;
    };
    goes_round(dir.path());
    let described = NativeDisk::new(dir.path(), Binding::AnyThread).describe();
    assert!(described.contains("O_DIRECT in") || described.contains("direct I/O") || described.contains("refused"));
}
