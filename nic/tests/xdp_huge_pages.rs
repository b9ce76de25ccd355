//! Frames on huge pages, which the box is asked for and gets back. A program of its own: it changes a setting of the whole system,
//! and a lock sees to it that one does at a time.

#[path = "xdp/ends.rs"]
mod ends;

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};

use ends::{address, can_run, config, eventually, flush_all, open_in, receive, send};
use ticktape_nic::Nic;
use ticktape_nic::lab::{A, B, End, Lab};
use ticktape_nic::xdp::{NextHops, XdpConfig};

/// More than the ends below take, since other processes may use some of them: 64 MiB.
const PAGES: usize = 32;
const CYCLES: usize = 12;

const SETTING: &str = "/proc/sys/vm/nr_hugepages";
/// Holds the old setting while it is changed, so that what a killed test leaves is put right by the next.
const LOCK: &str = "/run/lock/ticktape-test-huge-pages";

/// More huge pages than there were, until dropped.
struct HugePages {
    lock: File,
    before: usize,
}

impl HugePages {
    /// Gets them, or says why not.
    fn reserve() -> Result<HugePages, String> {
        let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let mut lock = File::options().read(true).write(true).create(true).truncate(false).open(LOCK);
        let lock = lock.as_mut().map_err(|error| format!("{LOCK}: {error}"))?;
        let mut lock = lock.try_clone().map_err(|error| failed(LOCK, error))?;
        lock.lock().map_err(|error| failed(LOCK, error))?;
        let mut left_over = String::new();
        lock.read_to_string(&mut left_over).map_err(|error| failed(LOCK, error))?;
        let before = left_over.trim().parse().unwrap_or_else(|_| setting());
        let mut pages = HugePages { lock, before };
        pages.note(&before.to_string()).map_err(|error| failed(LOCK, error))?;
        fs::write(SETTING, (before + PAGES).to_string()).map_err(|error| failed(SETTING, error))?;
        let (got, free) = (setting(), free());
        // Dropped, it puts back what it took.
        if got < before + PAGES || free < PAGES {
            return Err(format!(
                "{got} huge pages are to be had, {free} of them free, of {} asked for",
                before + PAGES
            ));
        }
        Ok(pages)
    }

    fn note(&mut self, text: &str) -> std::io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(text.as_bytes())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Forgotten only once it is done; the lock goes with the file.
        if fs::write(SETTING, self.before.to_string()).is_ok() {
            _ = self.note("");
        }
    }
}

fn setting() -> usize {
    fs::read_to_string(SETTING).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn meminfo(name: &str) -> usize {
    let text = fs::read_to_string("/proc/meminfo").expect("procfs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim_start_matches(':').trim().parse().expect("a number")
}

fn free() -> usize {
    meminfo("HugePages_Free")
}

/// Huge pages that this process maps, by its mappings.
fn mapped() -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").expect("procfs");
    let kib: usize = maps
        .lines()
        .filter_map(|line| line.strip_prefix("Private_Hugetlb:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok())
        .sum();
    kib / 2_048
}

#[test]
fn frames_lie_on_huge_pages_and_give_them_back() {
    if !can_run() {
        return;
    }
    let pages = match HugePages::reserve() {
        Ok(pages) => pages,
        Err(why) => {
            writeln!(std::io::stderr(), "skipped: {why}").expect("stderr");
            return;
        }
    };
    let lab = Lab::new("huge").expect("a lab");
    let one = |end: End| {
        let next_hops = NextHops::Fixed(lab.side(end.other()).mac);
        open_in(&lab, end, &XdpConfig { next_hops, ..config(&lab, end) })
    };
    let (free_before, mapped_before) = (free(), mapped());
    for cycle in 0..CYCLES {
        let (a, b) = (one(A), one(B));
        for nic in [&a, &b] {
            assert!(nic.describe().contains("frames of 2048 bytes on huge pages"), "{}", nic.describe());
        }
        // 2560 frames of 2 KiB each: three pages of 2 MiB.
        assert_eq!(mapped() - mapped_before, 6, "in cycle {cycle}");
        let ((_rx, mut tx), (mut rx, _tx)) = (a.split(), b.split());
        send(&mut tx, &[cycle as u8; 1_000], address(&lab, B));
        flush_all(&mut tx);
        assert_eq!(receive(&mut rx, 1), [[cycle as u8; 1_000]]);
    }
    assert_eq!(mapped(), mapped_before, "nothing stays mapped");
    // The kernel lets go of what sockets had a grace period later, and others may use some for a while.
    eventually("every page is free again", || free() >= free_before);
    let before = pages.before;
    drop(pages);
    eventually("the setting is as it was", || setting() <= before.max(meminfo("HugePages_Total") - free()));
}
