//! Replicas of an appliance, in one process: joining, following, losing, falling behind, and being begun anew.

mod support;

use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::{Answer, Command, Mailbox, TestClient, config};
use ticktape::config::{ApplianceConfig, FeedConfig, SnapshotConfig};
use ticktape::feed::FeedSession;
use ticktape::feed::status::{Commit, Status};
use ticktape::link::Tier;
use ticktape::pipeline::{Appliance, Replica, Report, StageName};
use ticktape::replica::{Figure, ReplicaConfig, ReplicaState, ReplicaStatus};
use ticktape::{Ctx, Seq, Service};
use ticktape_journal::{FileDisk, JournalConfig, JournalReader, give_up, names};

/// Reached only where what is waited for does not happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port that nobody has at the moment.
fn free_address() -> SocketAddrV4 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port())
}

/// An appliance that feeds `a`, and repairs.
fn leader(dir: &Path, a: SocketAddrV4) -> ApplianceConfig {
    let mut config = config(dir);
    let repair = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    config.feed = Some(FeedConfig { repair, ..FeedConfig::on_loopback(a) });
    config
}

fn start(config: &ApplianceConfig) -> Appliance {
    Appliance::start::<Mailbox>(config, &()).unwrap()
}

fn follower(dir: &Path, a: SocketAddrV4, appliance: &Appliance) -> ReplicaConfig {
    let mut config = ReplicaConfig::new(dir, a, vec![appliance.repair_addr().unwrap()]);
    config.ring.bytes = 1 << 20;
    config
}

fn follow(config: &ReplicaConfig) -> Replica<Mailbox> {
    Replica::start(config, &(), None).unwrap()
}

fn until(replica: &Replica<Mailbox>, what: &str, done: impl Fn(&ReplicaStatus) -> bool) -> ReplicaStatus {
    let met = replica.wait_until(PATIENCE, done);
    met.unwrap_or_else(|| panic!("{what} did not happen: {}; {:?}", replica.status(), replica.fault()))
}

fn until_level(replica: &Replica<Mailbox>, appliance: &Appliance) -> ReplicaStatus {
    let commit = appliance.watermarks().durable();
    until(replica, "being level", |status| status.applied() >= commit)
}

fn stop(appliance: Appliance) -> Report {
    let report = appliance.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    report
}

fn digest(report: &Report, stage: StageName) -> String {
    report.fact(stage, "digest").unwrap().to_string()
}

#[test]
fn a_replica_joins_late_and_comes_to_the_leaders_state() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    for _ in 0..500 {
        client.send(&Command::Add(2));
    }
    client.until_acked();
    let replica = follow(&follower(own.path(), a, &appliance));
    until_level(&replica, &appliance);
    until(&replica, "having come in bulk", |status| status.get(Figure::BulkFrames) >= 500);
    until(&replica, "being live", |status| status.state == ReplicaState::Live);
    for _ in 0..500 {
        client.send(&Command::Add(3));
    }
    client.until_acked();
    until_level(&replica, &appliance);
    until(&replica, "having the rest from the feed", |status| status.get(Figure::FeedFrames) >= 500);
    let digest_live = replica.inspect(|machine| machine.digest()).unwrap();
    let report = stop(appliance);
    assert_eq!(digest_live, digest(&report, StageName::Executor));
    let report = replica.stop();
    assert_eq!((&report.fault, &report.errors[..]), (&None, &[][..]));
    assert_eq!(digest_live, digest(&report, StageName::Replica));
}

/// A peer that takes each connection and says nothing on it; it hangs up. How often it was asked is what the answer gives.
fn useless_peer() -> (SocketAddrV4, impl FnOnce() -> usize) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!("it was bound to one") };
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let asked = listener.incoming().take_while(|_| stopped.try_recv().is_err());
        asked.map_while(Result::ok).count()
    });
    let asked = move || {
        stop.send(()).unwrap();
        // It looks at that once somebody connects.
        TcpStream::connect(address).unwrap();
        thread.join().unwrap()
    };
    (address, asked)
}

#[test]
fn a_replica_without_a_log_goes_on_with_whoever_it_found_one_at() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 100);
    let (useless, asked) = useless_peer();
    let mut config = follower(own.path(), a, &appliance);
    config.repair.insert(0, useless);
    let replica = follow(&config);
    until_level(&replica, &appliance);
    until(&replica, "being live", |status| status.state == ReplicaState::Live);
    assert_eq!(asked(), 1, "one that is mute costs 2 s each time");
    same_in_the_end(appliance, replica);
}

/// Sends so many additions, and waits until they are acknowledged.
fn add(client: &mut TestClient, times: usize) {
    for _ in 0..times {
        client.send(&Command::Add(1));
    }
    client.until_acked();
}

/// Stops both, the replica once it has all: they have come to the same state.
fn same_in_the_end(appliance: Appliance, replica: Replica<Mailbox>) {
    let report = stop(appliance);
    let last = Seq(report.counter(StageName::Executor, "applied_seq"));
    until(&replica, "the last frame", |status| status.applied() >= last);
    assert_eq!(digest(&report, StageName::Executor), digest(&replica.stop(), StageName::Replica));
}

fn frames(dir: &Path) -> Vec<Vec<u8>> {
    let (mut reader, mut frames) = (JournalReader::open(dir, Seq(1)).unwrap(), Vec::new());
    while let Some(frame) = reader.next().unwrap() {
        frames.push(frame.to_vec());
    }
    frames
}

/// A leader that loses what it had not made durable begins its next reign there.
#[test]
fn what_a_leader_takes_back_is_cut_off_and_the_replica_goes_on_from_the_rest_of_its_own_log() {
    let often = SnapshotConfig { every_frames: 40, bytes_per_ms: 1 << 20, compact: false, ..SnapshotConfig::default() };
    for snapshots in [None, Some(often)] {
        let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
        let config = ApplianceConfig { snapshots, ..leader(dir.path(), a) };
        let appliance = start(&config);
        let mut client = TestClient::new(appliance.local_addr(), 1);
        let mut following = ReplicaConfig { snapshots, ..follower(own.path(), a, &appliance) };
        following.journal =
            JournalConfig { segment_bytes: 64 << 10, commit_bytes_max: 16 << 10, ..following.journal.clone() };
        let replica = follow(&following);
        (0..4).for_each(|_| add(&mut client, 100));
        until_level(&replica, &appliance);
        replica.stop();
        stop(appliance);
        let followed = Seq(frames(own.path()).len() as u64);
        assert!(followed > Seq(390));
        let first = |dir: &Path| std::fs::metadata(names::segment(dir, Seq(1))).unwrap().ino();
        let segment = first(own.path());

        let from = Seq(350);
        give_up(FileDisk::new, dir.path(), &config.journal, from).unwrap();
        let beyond = ticktape_journal::snapshot::list(dir.path()).unwrap();
        beyond.iter().filter(|(seq, _)| *seq >= from).for_each(|(_, path)| std::fs::remove_file(path).unwrap());
        let appliance = start(&config);
        let mut client = TestClient::new(appliance.local_addr(), 2);
        add(&mut client, 50);
        following.repair = vec![appliance.repair_addr().unwrap()];
        let replica = follow(&following);
        let level = until_level(&replica, &appliance);
        assert_eq!(level.get(Figure::Restarts), 1, "{level}");
        assert_eq!(level.get(Figure::TakenBack), followed.0 + 1 - from.0, "{level}");
        let came = level.get(Figure::BulkFrames) + level.get(Figure::FeedFrames);
        assert!(came <= level.applied().0 + 20 - from.0, "{came} frames came: only what is new; {level}");
        assert_eq!(first(own.path()), segment, "its own segment stays");
        same_in_the_end(appliance, replica);
        assert!(frames(own.path()) == frames(dir.path()), "the same log");
    }
}

#[test]
fn a_replica_of_whose_log_the_first_frame_alone_is_left_goes_on_from_that() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let config = leader(dir.path(), a);
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    let following = follower(own.path(), a, &appliance);
    add(&mut client, 20);
    let replica = follow(&following);
    until_level(&replica, &appliance);
    replica.stop();
    stop(appliance);
    // The first reign's own beginning stays, as it is made durable before anything is sent.
    give_up(FileDisk::new, dir.path(), &config.journal, Seq(2)).unwrap();
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 2);
    add(&mut client, 30);
    let replica = follow(&ReplicaConfig { repair: vec![appliance.repair_addr().unwrap()], ..following });
    let level = until_level(&replica, &appliance);
    assert!(level.get(Figure::TakenBack) >= 20, "{level}");
    same_in_the_end(appliance, replica);
    assert!(frames(own.path()) == frames(dir.path()), "the same log");
}

#[test]
fn a_state_stops_at_the_seq_that_is_wanted_and_not_a_frame_later() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 300);
    let wanted = Seq(123);
    let following = ReplicaConfig { until: Some(wanted), ..follower(own.path(), a, &appliance) };
    let replica = follow(&following);
    let durable = appliance.watermarks().durable();
    let status = until(&replica, "having all", |status| status.get(Figure::Committed) >= durable.0);
    assert!(status.applied() <= wanted, "{status}");
    until(&replica, "the wanted one", |status| status.applied() >= wanted);
    let report = replica.stop();
    assert_eq!(report.counter(StageName::Replica, "applied_seq"), wanted.0);
    // From its own log it comes to the same again, and then to the end.
    let replica = follow(&following);
    until(&replica, "the wanted one", |status| status.applied() >= wanted);
    assert_eq!(digest(&replica.stop(), StageName::Replica), digest(&report, StageName::Replica));
    let replica = follow(&ReplicaConfig { until: None, ..following });
    until_level(&replica, &appliance);
    stop(appliance);
}

#[test]
fn what_is_no_segment_is_set_aside_counted_and_said() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    std::fs::write(names::segment(own.path(), Seq(1)), "somebody else's").unwrap();
    let replica = follow(&follower(own.path(), a, &appliance));
    let level = until_level(&replica, &appliance);
    assert_eq!(level.get(Figure::SetAside), 1, "{level}");
    let report = replica.stop();
    assert!(report.warnings[0].contains("00000000000000000001.seg.damaged"), "{:?}", report.warnings);
    stop(appliance);
}

/// The next Status that a replica sends to `peer`, and from where.
fn status_at(peer: &UdpSocket) -> (Status, SocketAddr) {
    let mut datagram = [0; 2048];
    loop {
        let (bytes, replica) = peer.recv_from(&mut datagram).unwrap();
        if let Ok(status) = Status::decode(&datagram[..bytes]) {
            return (status, replica);
        }
    }
}

#[test]
fn numbers_that_datagrams_alone_name_cost_a_catch_up_each_and_are_named() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 50);
    let peer = tcp_alone(appliance.repair_addr().unwrap());
    let liar = UdpSocket::bind(peer).unwrap();
    let mut config = follower(own.path(), a, &appliance);
    config.repair.push(peer);
    let replica = follow(&config);
    until(&replica, "being live", |status| status.state == ReplicaState::Live);

    let (status, to) = status_at(&liar);
    let mut heartbeat = FeedSession::new(status.stream, status.reign.epoch as u32).unwrap().encode().to_vec();
    heartbeat.extend_from_slice(&(1u64 << 40).to_be_bytes());
    heartbeat.extend_from_slice(&0u16.to_be_bytes());
    liar.send_to(&heartbeat, a).unwrap();
    let named = until(&replica, "a claim of the feed", |status| status.get(Figure::Unfounded) == 1);
    assert!(named.word.contains("the log has no more"), "{named}");

    let lie = Seq(1 << 50);
    let commit = Commit { stream: status.stream, reign: status.reign, log_id: status.log_id, age_ms: 0, commit: lie };
    liar.send_to(&commit.encode(), to).unwrap();
    until(&replica, "a Commit's claim", |status| status.get(Figure::LeaderCommit) == lie.0);
    until(&replica, "the truth", |status| {
        status.get(Figure::LeaderCommit) < lie.0 && status.get(Figure::Unfounded) == 2
    });
    until(&replica, "being live", |status| status.state == ReplicaState::Live);
    add(&mut client, 50);
    let level = until_level(&replica, &appliance);
    assert_eq!((level.get(Figure::Unfounded), level.get(Figure::Restarts)), (2, 0), "{level}");
    same_in_the_end(appliance, replica);
}

#[test]
fn another_log_is_refused_by_name_and_nothing_is_given_up() {
    let (dir, other, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = free_address();
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 50);
    let replica = follow(&follower(own.path(), a, &appliance));
    let before = until_level(&replica, &appliance).applied();
    replica.stop();
    stop(appliance);

    let appliance = start(&leader(other.path(), a));
    let replica = follow(&follower(own.path(), a, &appliance));
    assert!(replica.wait_fault(PATIENCE).is_some(), "no fault: {}", replica.status());
    let report = replica.stop();
    assert!(report.fault.as_ref().unwrap().contains("log"), "{report:?}");
    let names = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
    assert!(names(own.path()) > 1);
    stop(appliance);
    let appliance = start(&leader(dir.path(), a));
    let replica = follow(&follower(own.path(), a, &appliance));
    assert!(until_level(&replica, &appliance).applied() > before);
    stop(appliance);
}

/// Whose journal was removed, and which began anew: epoch, stream and ports are those of before.
#[test]
fn a_leader_that_begins_another_log_under_the_same_names_stops_a_running_replica_and_nothing_of_it_stays() {
    for others in [5, 40, 300] {
        let (dir, other, own) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (a, repair) = (free_address(), free_address());
        let at = |dir: &Path| {
            let mut config = leader(dir, a);
            config.feed.as_mut().unwrap().repair = Some(repair);
            config
        };
        let appliance = start(&at(dir.path()));
        let mut client = TestClient::new(appliance.local_addr(), 1);
        add(&mut client, 50);
        let replica = follow(&follower(own.path(), a, &appliance));
        until_level(&replica, &appliance);
        stop(appliance);

        let appliance = start(&at(other.path()));
        let mut client = TestClient::new(appliance.local_addr(), 2);
        add(&mut client, others);
        let fault = replica.wait_fault(PATIENCE);
        let fault = fault.unwrap_or_else(|| panic!("no fault: {}", replica.status()));
        assert!(fault.contains("it serves log "), "{fault}");
        replica.stop();
        stop(appliance);
        let (followed, true_ones) = (frames(own.path()), frames(dir.path()));
        assert!(followed.len() > 50 && true_ones.starts_with(&followed), "{} frames", followed.len());
    }
}

/// Nobody can be asked where the replica asks: it can't know whose frames these are.
#[test]
fn nothing_is_let_in_of_a_feed_whose_leader_does_not_speak_to_the_replica() {
    let (dir, other, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = free_address();
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 50);
    let replica = follow(&follower(own.path(), a, &appliance));
    until_level(&replica, &appliance);
    stop(appliance);
    let failed = replica.status().get(Figure::CatchUpsFailed);

    let appliance = start(&leader(other.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 2);
    for round in 1..4 {
        add(&mut client, 300);
        until(&replica, "asking in vain", |status| status.get(Figure::CatchUpsFailed) >= failed + round);
    }
    replica.stop();
    stop(appliance);
    let (followed, true_ones) = (frames(own.path()), frames(dir.path()));
    assert!(followed.len() > 50 && true_ones.starts_with(&followed), "{} frames", followed.len());
}

/// Hands every packet of `from` on to `to`, but for one in three.
fn lossy(from: SocketAddrV4, to: SocketAddrV4) {
    let (near, mut packet) = (UdpSocket::bind(from).unwrap(), [0; 2048]);
    std::thread::spawn(move || {
        for turn in 0u32.. {
            let bytes = near.recv(&mut packet).unwrap_or(0);
            if !turn.is_multiple_of(3) {
                let _ = near.send_to(&packet[..bytes], to);
            }
        }
    });
}

#[test]
fn a_repair_of_another_log_is_not_taken_whatever_is_missing() {
    let (dir, other, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (a, b) = (free_address(), free_address());
    lossy(a, b);
    let (appliance, foreign) = (start(&leader(dir.path(), a)), start(&leader(other.path(), free_address())));
    let mut others = TestClient::new(foreign.local_addr(), 2);
    add(&mut others, 400);
    let mut config = follower(own.path(), b, &appliance);
    config.repair.push(foreign.repair_addr().unwrap());
    let replica = follow(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    for _ in 0..300 {
        add(&mut client, 1);
    }
    let level = until_level(&replica, &appliance);
    assert!(level.get(Figure::Requests) > 0, "something was missing: {level}");
    same_in_the_end(appliance, replica);
    let (followed, true_ones) = (frames(own.path()), frames(dir.path()));
    assert!(true_ones.starts_with(&followed), "{} frames", followed.len());
    stop(foreign);
}

#[test]
fn a_peer_of_another_log_is_passed_over_for_one_that_has_ours() {
    let (dir, other, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = free_address();
    let (appliance, foreign) = (start(&leader(dir.path(), a)), start(&leader(other.path(), free_address())));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 50);
    let replica = follow(&follower(own.path(), a, &appliance));
    until_level(&replica, &appliance);
    replica.stop();
    let mut config = follower(own.path(), a, &appliance);
    config.repair.insert(0, foreign.repair_addr().unwrap());
    let replica = follow(&config);
    add(&mut client, 50);
    until_level(&replica, &appliance);
    stop(appliance);
    stop(foreign);
}

/// Forwards TCP connections to `to`, and no datagrams: the address to connect to.
fn tcp_alone(to: SocketAddrV4) -> SocketAddrV4 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
            for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Write);
                });
            }
        }
    });
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

#[test]
fn commits_that_no_datagram_tells_are_asked_for_in_bulk() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 50);
    let replica = follow(&ReplicaConfig::new(own.path(), a, vec![tcp_alone(appliance.repair_addr().unwrap())]));
    until_level(&replica, &appliance);
    for _ in 0..2 {
        add(&mut client, 50);
        until_level(&replica, &appliance);
    }
    stop(appliance);
}

/// The mailbox, in its next version.
struct Newer(Mailbox);

impl Service for Newer {
    type Input = Command;
    type Output = Answer;
    type Snapshot = (i64, Vec<u64>);
    type Config = ();

    const SCHEMA_VERSION: u32 = Mailbox::SCHEMA_VERSION + 1;

    fn genesis((): &()) -> Self {
        Newer(Mailbox::default())
    }

    fn apply(&mut self, seq: Seq, input: &Command, ctx: &mut Ctx<'_, Answer>) {
        self.0.apply(seq, input, ctx);
    }

    fn snapshot(&self) -> (i64, Vec<u64>) {
        self.0.snapshot()
    }

    fn restore(state: (i64, Vec<u64>), (): &()) -> Self {
        Newer(Mailbox::restore(state, &()))
    }
}

#[test]
fn another_schema_version_is_refused_by_name() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let replica = Replica::<Newer>::start(&follower(own.path(), a, &appliance), &(), None).unwrap();
    assert!(replica.wait_fault(PATIENCE).is_some(), "no fault: {}", replica.status());
    let fault = replica.stop().fault.unwrap();
    assert!(fault.contains(&format!("schema version {}", Mailbox::SCHEMA_VERSION)), "{fault}");
    stop(appliance);
}

#[test]
fn nobody_to_ask_is_a_state_with_a_word_and_ends_when_somebody_comes() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let repair = free_address();
    let mut config = leader(dir.path(), a);
    config.feed.as_mut().unwrap().repair = Some(repair);
    let replica = follow(&ReplicaConfig::new(own.path(), a, vec![repair]));
    let alone = until(&replica, "a word", |status| !status.word.is_empty());
    assert!(alone.state == ReplicaState::Joining && alone.word.contains(&repair.to_string()), "{alone}");
    let appliance = start(&config);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 10);
    until_level(&replica, &appliance);
    until(&replica, "being live", |status| status.state == ReplicaState::Live && status.word.is_empty());
    stop(appliance);
}

/// The cores that each thread of this process with that name may run on.
fn allowed(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of = |task: PathBuf| {
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let (_, list) = status.split_once("Cpus_allowed_list:").filter(|_| comm.trim_end() == name)?;
        list.lines().next().map(|list| list.trim().to_string())
    };
    tasks.filter_map(of).collect()
}

#[test]
fn a_core_plan_pins_the_threads_that_it_names() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let core = *ticktape_tuning::pin::usable_cores().last().unwrap();
    let mut config = follower(own.path(), a, &appliance);
    config.cores = format!("intake@{core}|journaler@{core}|executor@{core}|feed-server@{core}").parse().unwrap();
    config.serve = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    let replica = follow(&config);
    until(&replica, "being live", |status| status.state == ReplicaState::Live);
    for name in ["tt-intake", "tt-journaler", "tt-executor", "tt-feed-server"] {
        assert!(allowed(name).contains(&core.to_string()), "{name}: {:?}", allowed(name));
    }
    same_in_the_end(appliance, replica);
}

#[test]
fn a_peer_that_says_nothing_is_named_while_it_is_waited_for() {
    let (own, a) = (tempfile::tempdir().unwrap(), free_address());
    // The kernel takes the connection, and nobody the Hello.
    let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = SocketAddrV4::new(Ipv4Addr::LOCALHOST, mute.local_addr().unwrap().port());
    let replica = follow(&ReplicaConfig::new(own.path(), a, vec![peer]));
    let waits = until(&replica, "a word", |status| !status.word.is_empty());
    let word = format!("asking {peer} for the log, which has not answered yet");
    assert_eq!((waits.state, waits.word), (ReplicaState::Joining, word));
    drop(mute);
    assert_eq!(replica.stop().fault, None);
}

/// Numbers without a pattern, the same in every run.
fn scattered(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 24
}

#[test]
fn what_strangers_send_is_counted_and_changes_nothing() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let appliance = start(&leader(dir.path(), a));
    let repair = appliance.repair_addr().unwrap();
    let replica = follow(&follower(own.path(), a, &appliance));
    until(&replica, "being live", |status| status.state == ReplicaState::Live);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    let (stranger, mut state) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), 7);
    let mut connected = Vec::new();
    for round in 0..20 {
        for _ in 0..100 {
            let mut bytes: Vec<u8> = (0..scattered(&mut state) % 200).map(|_| scattered(&mut state) as u8).collect();
            // Half of them are of a stream, in epochs that are, were, may be or never will be, and of any number.
            if bytes.len() >= 20 && scattered(&mut state).is_multiple_of(2) {
                let epoch = ["000000", "000001", "000002", "ZZZZZZ"][scattered(&mut state) as usize % 4];
                let stream = ["TAPE", "OTHR"][scattered(&mut state) as usize % 2];
                bytes[..10].copy_from_slice(format!("{stream}{epoch}").as_bytes());
                bytes[10..18].copy_from_slice(&(scattered(&mut state) % 1_000_000).to_be_bytes());
                let count = [0, 0xFFFF, 1, 300][scattered(&mut state) as usize % 4];
                bytes[18..20].copy_from_slice(&u16::to_be_bytes(count));
                bytes.truncate(20);
            }
            for to in [a, repair] {
                stranger.send_to(&bytes, to).unwrap();
            }
        }
        if round < 4 {
            let mut stream = std::net::TcpStream::connect(repair).unwrap();
            std::io::Write::write_all(&mut stream, &[round; 64]).unwrap();
            connected.push(stream);
        }
        add(&mut client, 20);
    }
    until_level(&replica, &appliance);
    drop(connected);
    let live = until(&replica, "being live", |status| status.state == ReplicaState::Live);
    assert_eq!((live.get(Figure::Epoch), live.get(Figure::Restarts)), (1, 0), "{live}");
    add(&mut client, 20);
    until_level(&replica, &appliance);
    until(&replica, "having the rest from the feed", |status| status.get(Figure::FeedFrames) > 0);
    let report = stop(appliance);
    assert!(report.counter(StageName::FeedServer, "repairs_malformed") > 0);
    let stopped = replica.stop();
    assert_eq!(digest(&report, StageName::Executor), digest(&stopped, StageName::Replica));
    for counter in ["feed_malformed", "feed_new_epoch", "feed_foreign"] {
        assert!(stopped.counter(StageName::Intake, counter) > 0, "{counter}");
    }
}

#[test]
fn outputs_are_told_in_order_and_at_tier_memory_what_is_sequenced_is_committed() {
    let (dir, own, a) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), free_address());
    let mut config = leader(dir.path(), a);
    config.tier = Tier::Memory;
    let appliance = start(&config);
    let (tell, told) = std::sync::mpsc::channel();
    let on_output = Box::new(move |seq: Seq, output: Answer| {
        let _ = tell.send((seq, output));
    });
    let replica = Replica::<Mailbox>::start(&follower(own.path(), a, &appliance), &(), Some(on_output)).unwrap();
    until(&replica, "being live", |status| status.state == ReplicaState::Live);
    let mut client = TestClient::new(appliance.local_addr(), 1);
    add(&mut client, 200);
    let totals: Vec<(Seq, Answer)> = (0..200).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
    for (at, (_, answer)) in totals.iter().enumerate() {
        assert!(*answer == Answer::Total(at as i64 + 1));
    }
    assert!(totals.windows(2).all(|two| two[0].0 < two[1].0));
    let report = stop(appliance);
    let seq = Seq(report.counter(StageName::Executor, "applied_seq"));
    until(&replica, "the last frame", |status| status.applied() >= seq);
    assert_eq!(digest(&report, StageName::Executor), digest(&replica.stop(), StageName::Replica));
}
