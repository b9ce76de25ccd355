//! Reaching a seq within a segment by probing it, not by reading it from its start.

use ticktape_core::Seq;

use crate::disk::{Disk, DiskError, Op, Outcome};
use crate::format::commit::CommitHeader;
use crate::scan::{Chain, Found, has_salt};
use crate::window::Window;

/// Where the search gives way to reading on: a read of so many bytes takes as long as a probe.
const STOP_BYTES: u64 = 64 << 10;

/// How far a probe looks for the next commit, several times the largest of most configurations. Within a larger commit, or over what
/// is blank, it gives up, and the search goes on to the left: it only ends further from the mark.
const WALK_BYTES: u64 = 1 << 20;

/// The place in the segment to read on from to reach `from`, and what the commits that were met prove to have been durable.
/// `begin` is the segment's chain at its start, which is the answer where there is no better one; `known` is known to be durable.
///
/// A binary search for the last sound commit with the segment's salt that begins at or before `from`; no payload can pass for one.
/// From there on the chain has to be unbroken as ever. What is skipped is not verified, so only a commit will do before which all
/// is known to have been durable: then a log that breaks off earlier is damaged, and not one that ends there, and whoever reads
/// that part is told so. A commit that stands behind a hole, which no one acknowledged, is never begun with.
pub(crate) fn seek<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    begin: &Chain,
    from: Seq,
    known: Seq,
) -> Result<(Chain, Seq), DiskError> {
    let Outcome::Stat(stat) = disk.run(Op::Stat { file: begin.file })? else { unreachable!("stat stats") };
    let (mut low, mut high, mut durable) = (begin.at, stat.bytes, known);
    // Found from left to right; each halves what is left, so there are few.
    let mut found_before: Vec<Found> = Vec::new();
    while high.saturating_sub(low) > STOP_BYTES {
        let middle = (low + (high - low) / 2) & !(begin.alignment as u64 - 1);
        window.forget();
        match next_commit(disk, window, begin, middle, high.min(middle + WALK_BYTES))? {
            Some(found) => {
                durable = durable.max(found.header.durable);
                if found.header.base_seq <= from {
                    low = found.at;
                    found_before.push(found);
                } else {
                    high = middle;
                }
            }
            None => high = middle,
        }
    }
    let start = found_before.iter().rev().find(|found| found.header.base_seq.0 - 1 <= durable.0);
    let chain = start.map_or(*begin, |found| Chain {
        at: found.at,
        previous: None,
        next_seq: found.header.base_seq,
        epoch: found.header.epoch,
        ..*begin
    });
    Ok((chain, durable))
}

/// The first sound commit of this use of the segment that starts at `at` or behind it and before `end`.
fn next_commit<D: Disk>(
    disk: &mut D,
    window: &mut Window,
    begin: &Chain,
    mut at: u64,
    end: u64,
) -> Result<Option<Found>, DiskError> {
    while at < end {
        let head = window.view(disk, begin.file, at, begin.alignment)?;
        if has_salt(head, begin.salt)
            && let Ok(declared) = CommitHeader::declared_bytes(head, begin.alignment)
        {
            let bytes = window.view(disk, begin.file, at, declared)?;
            if let Ok((header, _)) = CommitHeader::decode(bytes, begin.alignment)
                && header.base_seq >= begin.next_seq
                && header.epoch >= begin.epoch
            {
                return Ok(Some(Found { at, bytes: declared, header }));
            }
        }
        at += begin.alignment as u64;
    }
    Ok(None)
}
