//! Status and Commit: what is accepted is written back as it came; neither end believes more than it may.

use std::net::{Ipv4Addr, SocketAddrV4};

use ticktape::Seq;
use ticktape::feed::{Commit, CommitTracker, Reporter, ReporterConfig, Status, TrackerConfig};
use ticktape::payload::Reign;

use super::Seeds;

const VERIFIED: Seq = Seq(100);
const LOG_ID: u64 = 5;
const HERE: Reign = Reign { epoch: 3, id: 30 };

/// The bytes are a datagram, or several, each behind its length.
pub fn run(data: &[u8]) -> bool {
    let mut reporter =
        Reporter::new(&ReporterConfig { replicas_max: 2, log_id: LOG_ID, ..ReporterConfig::new(1, HERE) });
    let mut tracker = CommitTracker::new(&TrackerConfig { reign: HERE, log_id: LOG_ID, ..TrackerConfig::new(1, 7, 1) });
    tracker.set_verified(0, VERIFIED);
    reporter.set_commit(VERIFIED);
    let (mut rest, mut now, mut accepted) = (data, 0, false);
    while let Some((&length, more)) = rest.split_first() {
        let (datagram, more) = more.split_at(more.len().min(length.into()));
        rest = more;
        now += 1_000_000;
        accepted |= check(datagram);
        let source = SocketAddrV4::new(Ipv4Addr::LOCALHOST, u16::from(length) + 1);
        let _ = reporter.on_status(now, source, datagram);
        let before = tracker.committed();
        let _ = tracker.on_commit(now, datagram);
        assert!(tracker.committed() >= before && tracker.committed() <= VERIFIED);
        assert!(reporter.followed().len() <= 2);
        for _ in 0..3 {
            if let Some((_, commit)) = reporter.poll_transmit(now) {
                assert_eq!(
                    Commit::decode(&commit),
                    Ok(Commit { stream: 1, reign: HERE, log_id: LOG_ID, age_ms: 0, commit: VERIFIED })
                );
            }
        }
        assert_eq!(reporter.poll_transmit(now), None, "nobody is told twice at one time");
    }
    accepted
}

fn check(datagram: &[u8]) -> bool {
    let status = Status::decode(datagram).is_ok_and(|status| {
        assert_eq!(status.encode(), datagram);
        true
    });
    status
        | Commit::decode(datagram).is_ok_and(|commit| {
            assert_eq!(commit.encode(), datagram);
            true
        })
}

pub fn seeds() -> Seeds {
    let behind_length = |datagram: &[u8]| [&[datagram.len() as u8], datagram].concat();
    let status =
        Status { stream: 1, reign: HERE, log_id: LOG_ID, replica: 7, number: 9, durable: Seq(90), applied: Seq(80) };
    let word = |reign, log_id, commit| {
        behind_length(&Commit { stream: 1, reign, log_id, age_ms: 3, commit: Seq(commit) }.encode())
    };
    let commit = |epoch, commit| word(Reign { epoch, ..HERE }, LOG_ID, commit);
    let copy = Reign { id: 31, ..HERE };
    let stranger = Status { log_id: 6, replica: 9, ..status };
    let of_a_copy = Status { reign: copy, replica: 9, ..status };
    let statuses = [status, Status { replica: 8, ..status }, Status { number: 10, ..status }, stranger, of_a_copy];
    vec![
        ("statuses", statuses.iter().flat_map(|status| behind_length(&status.encode())).collect()),
        (
            "commits",
            [
                commit(3, 50),
                commit(3, 40),
                commit(4, 60),
                commit(3, 120),
                word(HERE, 6, 90),
                word(HERE, 0, 95),
                word(copy, LOG_ID, 99),
            ]
            .concat(),
        ),
    ]
}
