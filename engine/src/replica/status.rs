//! Where a replica stands, for people and for other threads.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ticktape_core::Seq;

/// What a replica is doing. Each state ends by itself: by what comes, or by its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReplicaState {
    /// Looking for somebody who has the log, since it started. Asked again each second.
    Joining,
    /// Taking a snapshot, as the log it would go on with is no longer to be had.
    FetchingSnapshot,
    /// Taking what it missed in bulk.
    CatchingUp,
    /// It has all that the feed has sent, and hears what is committed; its state is close behind.
    Live,
    /// It has frames that nobody says are committed. Whoever has the log is asked each second.
    AwaitingCommit,
    /// Messages are missing, and asked for.
    Repairing,
    /// The feed says nothing. Whoever has the log is asked each second.
    Silent,
    /// The feed went over to another epoch, whose beginning is being fetched.
    ChangingEpoch,
    /// It has all that the feed has sent, and its state is far behind what of it is committed.
    Applying,
    /// It has ended, by request or by a fault.
    Stopped,
}

impl ReplicaState {
    /// Every state, by number.
    pub const ALL: [ReplicaState; 10] = [
        ReplicaState::Joining,
        ReplicaState::FetchingSnapshot,
        ReplicaState::CatchingUp,
        ReplicaState::Live,
        ReplicaState::AwaitingCommit,
        ReplicaState::Repairing,
        ReplicaState::Silent,
        ReplicaState::ChangingEpoch,
        ReplicaState::Applying,
        ReplicaState::Stopped,
    ];

    /// A word for lines and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            ReplicaState::Joining => "joining",
            ReplicaState::FetchingSnapshot => "fetching-snapshot",
            ReplicaState::CatchingUp => "catching-up",
            ReplicaState::Live => "live",
            ReplicaState::AwaitingCommit => "awaiting-commit",
            ReplicaState::Repairing => "repairing",
            ReplicaState::Silent => "silent",
            ReplicaState::ChangingEpoch => "changing-epoch",
            ReplicaState::Applying => "applying",
            ReplicaState::Stopped => "stopped",
        }
    }
}

impl fmt::Display for ReplicaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Numbers that a [`Board`] shows: each with its name.
macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident = $name:literal,)*) => {
        /// A number on a [`Board`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Figure { $($(#[$doc])* $figure,)* }

        impl Figure {
            /// Every one.
            pub const ALL: &'static [Figure] = &[$(Figure::$figure,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Figure::$figure => $name,)* }
            }
        }
    };
}

figures! {
    /// The epoch that the log is in.
    Epoch = "epoch",
    /// The last frame that is in the log here.
    Received = "received",
    /// The last that is durable here.
    Durable = "durable",
    /// The last that the leader says is committed.
    LeaderCommit = "leader_commit",
    /// The last that may be applied here.
    Committed = "committed",
    /// The last that the state contains.
    Applied = "applied",
    /// Frames that came by the feed or a repair.
    FeedFrames = "feed_frames",
    /// Frames that came in bulk.
    BulkFrames = "bulk_frames",
    /// Bulk transfers that came to an end.
    CatchUps = "catch_ups",
    /// Bulk transfers that failed.
    CatchUpsFailed = "catch_ups_failed",
    /// Snapshots of others that were begun from.
    SnapshotsTaken = "snapshots_taken",
    /// Repair requests that were sent.
    Requests = "repair_requests",
    /// Packets of the feed that brought nothing new, as each does that the other side brought first.
    Duplicates = "feed_duplicates",
    /// Gaps in what both sides brought.
    Gaps = "feed_gaps",
    /// Ranges that nobody had in time.
    GivenUp = "repairs_given_up",
    /// Frames that were refused at the door.
    Refused = "frames_refused",
    /// Requests of others that were served.
    Served = "repairs_served",
    /// How often it was begun anew from the disk: after a snapshot, or where the leader took back what was not committed.
    Restarts = "restarts",
    /// Snapshots that it wrote.
    Snapshots = "snapshots_written",
    /// Frames here that a leader took back, and that were given up.
    TakenBack = "frames_taken_back",
    /// What datagrams alone said there was, and whoever has the log did not have: forged, or not committed yet.
    Unfounded = "claims_unfounded",
    /// Files with a segment's name that are none, and were set aside as `.damaged`.
    SetAside = "files_set_aside",
    /// The lower epoch in which another leader goes on beside ours on the feed; 0 where none does.
    LowerEpoch = "lower_epoch",
}

/// One word a number, written by the threads that know them.
#[derive(Clone, Debug)]
pub struct Board(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: AtomicU8,
    figures: Box<[AtomicU64]>,
    word: Mutex<String>,
    /// Who waits for something to move.
    waiting: AtomicUsize,
    gate: Mutex<()>,
    moved: Condvar,
}

impl Default for Board {
    fn default() -> Self {
        Board(Arc::new(Inner {
            state: AtomicU8::new(ReplicaState::Joining as u8),
            figures: Figure::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            word: Mutex::default(),
            waiting: AtomicUsize::new(0),
            gate: Mutex::default(),
            moved: Condvar::new(),
        }))
    }
}

impl Board {
    /// Shows another state.
    pub fn set_state(&self, state: ReplicaState) {
        // Relaxed here and below: figures for people, on the strength of which nothing is read.
        if self.0.state.swap(state as u8, Ordering::Relaxed) != state as u8 {
            self.tell_waiting();
        }
    }

    /// The state.
    pub fn state(&self) -> ReplicaState {
        ReplicaState::ALL[usize::from(self.0.state.load(Ordering::Relaxed))]
    }

    /// Shows a number.
    pub fn set(&self, figure: Figure, value: u64) {
        let word = &self.0.figures[figure as usize];
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Relaxed);
            self.tell_waiting();
        }
    }

    /// Adds to a number.
    pub fn add(&self, figure: Figure, by: u64) {
        self.0.figures[figure as usize].fetch_add(by, Ordering::Relaxed);
        self.tell_waiting();
    }

    /// A number.
    pub fn get(&self, figure: Figure) -> u64 {
        self.0.figures[figure as usize].load(Ordering::Relaxed)
    }

    /// Says what was last met that an operator may want to know, in a line.
    pub fn say(&self, word: impl fmt::Display) {
        let text = word.to_string();
        *self.0.word.lock().unwrap_or_else(PoisonError::into_inner) = text;
        self.tell_waiting();
    }

    /// Wakes those who wait. Costs a fence where nobody does.
    fn tell_waiting(&self) {
        // Pairs with the fence in `wait_until`: either this sees that somebody waits, or that one sees what has just moved.
        fence(Ordering::SeqCst);
        if self.0.waiting.load(Ordering::Relaxed) > 0 {
            let _gate = self.0.gate.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.moved.notify_all();
        }
    }

    /// Waits until `holds` says so of where it stands, and looks again whenever something has moved. `None` where that takes longer
    /// than `timeout`.
    pub fn wait_until(
        &self,
        timeout: Duration,
        mut holds: impl FnMut(&ReplicaStatus) -> bool,
    ) -> Option<ReplicaStatus> {
        let (inner, begun) = (&*self.0, Instant::now());
        inner.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut gate = inner.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let met = loop {
            let status = self.read();
            if holds(&status) {
                break Some(status);
            }
            let Some(left) = timeout.checked_sub(begun.elapsed()) else { break None };
            gate = inner.moved.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(gate);
        inner.waiting.fetch_sub(1, Ordering::Relaxed);
        met
    }

    /// Everything, as it is now.
    pub fn read(&self) -> ReplicaStatus {
        ReplicaStatus {
            state: self.state(),
            figures: Figure::ALL.iter().map(|&figure| (figure.name(), self.get(figure))).collect(),
            word: self.0.word.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// A replica's standing at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// What it is doing.
    pub state: ReplicaState,
    /// Its numbers, by name.
    pub figures: Vec<(&'static str, u64)>,
    /// What was last met that an operator may want to know; empty where nothing was.
    pub word: String,
}

impl ReplicaStatus {
    /// One of the numbers.
    pub fn get(&self, figure: Figure) -> u64 {
        self.figures[figure as usize].1
    }

    /// The last seq that the state contains.
    pub fn applied(&self) -> Seq {
        Seq(self.get(Figure::Applied))
    }

    /// Frames that are known of, whether committed or not, and that the state does not contain yet. `None` before anybody has said how many
    /// there are.
    pub fn behind(&self) -> Option<u64> {
        let known = [Figure::LeaderCommit, Figure::Committed, Figure::Received].map(|figure| self.get(figure));
        let known = known.into_iter().max().filter(|&known| known > 0)?;
        Some(known.saturating_sub(self.get(Figure::Applied)))
    }
}

impl fmt::Display for ReplicaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} epoch {} applied {} committed {} durable {} received {} behind ",
            self.state,
            self.get(Figure::Epoch),
            self.get(Figure::Applied),
            self.get(Figure::Committed),
            self.get(Figure::Durable),
            self.get(Figure::Received),
        )?;
        match self.behind() {
            Some(behind) => write!(f, "{behind}")?,
            None => f.write_str("?")?,
        }
        if self.word.is_empty() { Ok(()) } else { write!(f, " ({})", self.word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_shows_what_was_set_under_each_name_once() {
        let board = Board::default();
        for (at, &figure) in Figure::ALL.iter().enumerate() {
            board.set(figure, at as u64 + 1);
        }
        let status = board.read();
        assert_eq!(status.figures.len(), Figure::ALL.len());
        for (at, &figure) in Figure::ALL.iter().enumerate() {
            assert_eq!((status.figures[at].0, status.get(figure)), (figure.name(), at as u64 + 1));
        }
        let mut names: Vec<_> = status.figures.iter().map(|&(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Figure::ALL.len());
    }

    #[test]
    fn who_waits_is_woken_by_what_moves_and_not_kept_for_ever() {
        let board = Board::default();
        assert_eq!(board.wait_until(Duration::ZERO, |status| status.applied() >= Seq(1)), None);
        let (other, (asked, asks)) = (board.clone(), std::sync::mpsc::channel());
        let waiting = std::thread::spawn(move || {
            other.wait_until(Duration::from_secs(60), |status| {
                // Nobody listens once it was seen to wait.
                let _ = asked.send(());
                status.applied() >= Seq(3) && status.state == ReplicaState::Live && !status.word.is_empty()
            })
        });
        asks.recv().unwrap();
        board.set(Figure::Applied, 3);
        board.set_state(ReplicaState::Live);
        board.say("here");
        let status = waiting.join().unwrap().expect("it was woken");
        assert_eq!((status.applied(), &status.word[..]), (Seq(3), "here"));
    }

    #[test]
    fn a_line_names_the_state_and_what_was_said() {
        let board = Board::default();
        assert!(ReplicaState::ALL.into_iter().enumerate().all(|(at, state)| state as usize == at));
        let line = board.read().to_string();
        assert!(
            line.starts_with("joining ") && line.ends_with("behind ?"),
            "nobody has said how many there are: {line}"
        );
        board.set_state(ReplicaState::CatchingUp);
        board.set(Figure::LeaderCommit, 10);
        board.set(Figure::Applied, 4);
        board.say("nobody answers");
        let line = board.read().to_string();
        assert!(line.starts_with("catching-up ") && line.contains("behind 6"), "{line}");
        assert!(line.ends_with("(nobody answers)"), "{line}");
    }
}
