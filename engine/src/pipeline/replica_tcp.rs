//! A replica's side of catch-up: frames for a log that goes on, or a snapshot to begin again from, from one of several servers.

use std::io;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ticktape_core::{Nanos, Seq};

use super::catchup_client::{CatchupClient, CatchupClientConfig, CatchupError, CatchupItem, CatchupStep};
use crate::catchup::{Fault, FetchConfig, UpTo};
use crate::payload::Reign;
use crate::replica::{Admission, Bulk, BulkEnd, BulkProgress, Identity, ReplicaConfig, SnapshotAt};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Steps of one poll: a megabyte or so, then the feed is looked at again.
const STEPS_PER_POLL_MAX: usize = 4;

/// So much may have been committed while a catch-up ran, and be left to the feed: what the arbiter repairs with ease.
const LEFT_TO_FEED_MAX: u64 = 1024;

/// How long a search for a server waits for what comes, before it looks whether it is to stop.
const WAIT: Duration = Duration::from_millis(20);

/// A snapshot while it comes, in the log's directory. What a kill leaves of it is gone on with.
const SPOOL: &str = "catchup.spool";

fn client(config: &ReplicaConfig, service: Identity, log_id: u64) -> CatchupClient {
    let fetch = FetchConfig::new(config.stream(), service.name, service.schema_version, Seq::FIRST);
    let message_bytes_max = fetch.message_bytes_max.max(config.frame_bytes_max() + 64);
    CatchupClient::new(CatchupClientConfig {
        fetch: FetchConfig {
            log_id,
            replay_max: config.snapshot_gap_frames,
            snapshot_max: config.last_wanted(),
            message_bytes_max,
            ..fetch
        },
        spool: config.dir.join(SPOOL),
        connect_timeout: CONNECT_TIMEOUT,
    })
}

/// Whose turn is next of those who may be asked: kept while a replica begins anew, so that it goes on with whoever had what it needed.
///
/// Who was asked and said nothing is left out for as long as the others answer: each turn of it would take as long as its answer is waited for. Whatever else
/// an answer is than all there is, it has its turn again: nobody is judged by who was never asked.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<TurnsInner>);

#[derive(Default)]
struct TurnsInner {
    next: AtomicUsize,
    /// Who is left out, a bit each.
    mute: AtomicU64,
}

impl Turns {
    /// The next of so many, by its place. Relaxed, as below: one thread at a time takes turns.
    fn next(&self, peers: usize) -> usize {
        let (first, mute) = (self.0.next.load(Ordering::Relaxed), self.0.mute.load(Ordering::Relaxed));
        let in_turn = (0..peers).map(|step| (first + step) % peers);
        let at = in_turn.into_iter().find(|&at| mute & bit(at) == 0).unwrap_or(first % peers);
        self.0.next.store(at + 1, Ordering::Relaxed);
        at
    }

    /// Whoever is at this place is the next.
    fn stay(&self, at: usize) {
        self.0.next.store(at, Ordering::Relaxed);
    }

    /// How it ended with whoever is at this place.
    fn ended(&self, at: usize, how: Ended) {
        let mute = self.0.mute.load(Ordering::Relaxed);
        let mute = match how {
            Ended::Mute => mute | bit(at),
            Ended::Complete => mute,
            Ended::Otherwise => 0,
        };
        self.0.mute.store(mute, Ordering::Relaxed);
    }
}

/// A place's bit; those beyond have none, and always their turn.
fn bit(at: usize) -> u64 {
    u32::try_from(at).ok().and_then(|at| 1_u64.checked_shl(at)).unwrap_or(0)
}

/// How a transfer ended, for whose turn is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It brought all there is.
    Complete,
    /// No answer came.
    Mute,
    Otherwise,
}

/// Brings frames from one of several servers.
pub(super) struct TcpBulk {
    client: CatchupClient,
    peers: Vec<SocketAddrV4>,
    turns: Turns,
    /// Who is asked, by its place.
    asked: usize,
}

impl TcpBulk {
    /// For a log of this identity, 0 where it has none yet, of a service.
    pub(super) fn new(config: &ReplicaConfig, service: Identity, log_id: u64, turns: Turns) -> Self {
        TcpBulk { client: client(config, service, log_id), peers: config.repair.clone(), turns, asked: 0 }
    }

    /// The transfer is over. Whoever says that the log has to begin anew, here or from a snapshot, knows how it goes on, and is asked for that:
    /// another may have just what has to go.
    fn end(&self, end: BulkEnd, how: Ended) -> BulkProgress {
        self.turns.ended(self.asked, how);
        if matches!(end, BulkEnd::Snapshot(_) | BulkEnd::TakenBack { .. }) {
            self.turns.stay(self.asked);
        }
        BulkProgress::Ended(end)
    }
}

impl Bulk for TcpBulk {
    fn begin(&mut self, _now: Nanos, from: Seq, reign: Reign) {
        self.client.want(from, reign);
        self.asked = self.turns.next(self.peers.len());
        self.client.connect(self.peers[self.asked]);
    }

    fn poll(&mut self, _now: Nanos, admit: &mut dyn FnMut(u64, &[u8]) -> Admission) -> BulkProgress {
        let (mut work, mut snapshot, mut refused) = (0, None, None);
        for _ in 0..STEPS_PER_POLL_MAX {
            let step = self.client.next(Duration::ZERO, |item| match item {
                CatchupItem::Frame { seq, bytes } => match admit(seq.0, bytes) {
                    Admission::Taken | Admission::Known => true,
                    Admission::Full => false,
                    admission => {
                        refused.get_or_insert((seq, admission));
                        false
                    }
                },
                CatchupItem::Snapshot { path, header } => {
                    snapshot = Some(snapshot_at(path, header.meta.seq, header.meta.log_id));
                    false
                }
            });
            if let Some(snapshot) = snapshot {
                self.client.hang_up();
                return self.end(BulkEnd::Snapshot(snapshot), Ended::Otherwise);
            }
            if let Some((seq, admission)) = refused {
                self.client.hang_up();
                return self.end(BulkEnd::of_frame(self.peers[self.asked], seq, admission), Ended::Otherwise);
            }
            match step {
                Ok(CatchupStep::Working(done)) => work += done,
                Ok(CatchupStep::Idle | CatchupStep::Full) => break,
                Ok(CatchupStep::UpTo(UpTo { next, commit, .. })) if commit.0 >= next.0 + LEFT_TO_FEED_MAX => {
                    self.client.ask_again();
                }
                Ok(CatchupStep::UpTo(UpTo { commit, reign, .. })) => {
                    self.client.hang_up();
                    return self.end(BulkEnd::Complete { reign, commit }, Ended::Complete);
                }
                Err(error) => {
                    return self.end(end_of(&error), if is_mute(&error) { Ended::Mute } else { Ended::Otherwise });
                }
            }
        }
        BulkProgress::Working(work)
    }

    fn asked(&self) -> Option<SocketAddrV4> {
        Some(self.peers[self.asked])
    }

    fn peers(&self) -> usize {
        self.peers.len()
    }
}

fn snapshot_at(path: &Path, seq: Seq, log_id: u64) -> SnapshotAt {
    SnapshotAt { path: path.to_owned(), seq, log_id }
}

/// Whether nothing came of it but time.
fn is_mute(error: &CatchupError) -> bool {
    match error {
        CatchupError::Connection { error, .. } => error.kind() == io::ErrorKind::TimedOut,
        error => error.fault() == Some(&Fault::Silent),
    }
}

/// What a server's failure means for the log here.
fn end_of(error: &CatchupError) -> BulkEnd {
    let why = error.to_string();
    match error.fault() {
        Some(fault) => BulkEnd::of_fault(fault, why),
        None => BulkEnd::Failed(why),
    }
}

/// What a replica without a log can begin with.
pub(super) enum Begun {
    /// A snapshot has come.
    Snapshot(SnapshotAt),
    /// Frames are to be had from where it wanted them.
    Frames {
        /// The log's identity.
        log_id: u64,
    },
}

/// Finds a server for a log that goes on with `wanted`, after a frame of `epoch`, and takes its snapshot where it has one for that.
/// Each is asked once, and `asked` told who is; whoever has it has the next turn, too. `None`: it was told to stop.
///
/// # Errors
/// [`BulkEnd`]: why none does; of the last that was asked, or of one whose reason decides.
pub(super) fn begin(
    config: &ReplicaConfig,
    service: Identity,
    (wanted, epoch): (Seq, u64),
    turns: &Turns,
    stop: &AtomicBool,
    mut asked: impl FnMut(SocketAddrV4),
) -> Result<Option<Begun>, BulkEnd> {
    let mut client = client(config, service, 0);
    let mut last = BulkEnd::Failed("nobody was asked".to_string());
    for _ in 0..config.repair.len() {
        let at = turns.next(config.repair.len());
        let peer = config.repair[at];
        client.want(wanted, Reign::unnamed(epoch));
        asked(peer);
        client.connect(peer);
        match begin_from(&mut client, stop) {
            Err(error) => match end_of(&error) {
                end @ BulkEnd::Failed(_) => last = end,
                end => return Err(end),
            },
            Ok(begun) => {
                turns.stay(at);
                return Ok(begun);
            }
        }
    }
    Err(last)
}

fn begin_from(client: &mut CatchupClient, stop: &AtomicBool) -> Result<Option<Begun>, CatchupError> {
    while !stop.load(Ordering::Relaxed) {
        let (mut frames, mut snapshot) = (false, None);
        let step = client.next(WAIT, |item| {
            match item {
                CatchupItem::Frame { .. } => frames = true,
                CatchupItem::Snapshot { path, header } => {
                    snapshot = Some(snapshot_at(path, header.meta.seq, header.meta.log_id));
                }
            }
            false
        })?;
        if let Some(snapshot) = snapshot {
            return Ok(Some(Begun::Snapshot(snapshot)));
        }
        if frames || matches!(step, CatchupStep::UpTo(_)) {
            return Ok(Some(Begun::Frames { log_id: client.fetch().log_id() }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_mute_is_left_out_while_the_others_have_all_there_is() {
        let turns = Turns::default();
        let asked = |peers, how| {
            let at = turns.next(peers);
            turns.ended(at, how);
            at
        };
        assert_eq!([asked(3, Ended::Complete), asked(3, Ended::Mute), asked(3, Ended::Complete)], [0, 1, 2]);
        assert_eq!([asked(3, Ended::Complete), asked(3, Ended::Complete), asked(3, Ended::Complete)], [0, 2, 0]);
        // One of those who answer has not what is wanted: the one that was mute may.
        assert_eq!([asked(3, Ended::Otherwise), asked(3, Ended::Complete), asked(3, Ended::Complete)], [2, 0, 1]);
    }

    #[test]
    fn where_all_are_mute_each_has_its_turn() {
        let turns = Turns::default();
        for round in 0..4 {
            for at in 0..2 {
                assert_eq!(turns.next(2), at, "{round}");
                turns.ended(at, Ended::Mute);
            }
        }
        assert_eq!((bit(63), bit(64), bit(1_000)), (1 << 63, 0, 0));
    }
}
