//! What an intake needs of whoever brings history in bulk.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use ticktape_core::{Nanos, Seq};

use super::door::{Admission, Refusal};
use crate::catchup::{Fault, RefuseReason};
use crate::payload::Reign;

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkEnd {
    /// Everything that the other side had committed has come.
    Complete {
        /// The other side's reign.
        reign: Reign,
        /// What it has committed.
        commit: Seq,
    },
    /// It did not come to that: the reason, in a line with the other side's address. Another may do better.
    Failed(String),
    /// What was missed has come as a snapshot, to begin again from.
    Snapshot(SnapshotAt),
    /// The log here is no prefix of the other side's: frames that were not committed were taken back.
    TakenBack {
        /// Who says so, in a line.
        why: String,
        /// The first frame that has to be given up.
        from: Seq,
    },
    /// The other side's log is none that can be followed here.
    Foreign(String),
    /// Nor is it the one that is here, of the same service: another log, or another history of it, which went on by itself in the same
    /// epoch.
    OtherLog(String),
}

impl BulkEnd {
    /// A frame that `server` sent is not let in.
    pub fn of_frame(server: SocketAddrV4, seq: Seq, admission: Admission) -> BulkEnd {
        match admission {
            Admission::Refused(Refusal::OtherHistory) => BulkEnd::OtherLog(format!(
                "catch-up from {server}: what begins with its frame {seq} goes on after another reign than the log here: an older copy \
                 of the journal was started beside the other; keep one of the two, and move the other's directory away"
            )),
            _ => BulkEnd::Failed(format!("catch-up from {server}: frame {seq} is not let in: {admission:?}")),
        }
    }

    /// What a server's fault means for the log here; `why` says it in a line.
    pub fn of_fault(fault: &Fault, why: String) -> BulkEnd {
        match fault {
            Fault::Refused(refuse) => match refuse.reason {
                RefuseReason::Diverged => BulkEnd::TakenBack { why, from: Seq(refuse.detail) },
                RefuseReason::OtherStream | RefuseReason::OtherService | RefuseReason::SchemaMismatch => {
                    BulkEnd::Foreign(why)
                }
                RefuseReason::OtherLog | RefuseReason::OtherHistory => BulkEnd::OtherLog(why),
                _ => BulkEnd::Failed(why),
            },
            Fault::OtherLog { .. } | Fault::OtherHistory { .. } => BulkEnd::OtherLog(why),
            _ => BulkEnd::Failed(why),
        }
    }
}

/// A snapshot that has come, checked and synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotAt {
    /// Its file, in the log's directory and not under a snapshot's name.
    pub path: PathBuf,
    /// The last frame that it contains.
    pub seq: Seq,
    /// Which log it is of; 0 where it does not say.
    pub log_id: u64,
}

/// What one cycle of a transfer came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkProgress {
    /// So much was done; 0 while waiting.
    Working(usize),
    /// It is over.
    Ended(BulkEnd),
}

/// Brings what was missed, from one of those who may have it. Nothing here waits.
pub trait Bulk {
    /// Begins a transfer of the log from `from` on, which is in `reign` here. Asks another than the last time, but for one that
    /// told to begin anew: that goes on with whoever told it.
    fn begin(&mut self, now: Nanos, from: Seq, reign: Reign);

    /// One duty cycle of it: hands frames to `admit`, in order; one that was [`Admission::Full`] comes again.
    fn poll(&mut self, now: Nanos, admit: &mut dyn FnMut(u64, &[u8]) -> Admission) -> BulkProgress;

    /// Who is asked, where that has an address worth telling.
    fn asked(&self) -> Option<SocketAddrV4> {
        None
    }

    /// How many may be asked.
    fn peers(&self) -> usize;
}
