//! `ticktape follow --events` when the log behind the same names becomes another, and when nothing is where it looks.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use feed::{Answer, Bank};
use ticktape::Service;
use ticktape::client::blocking::{BlockingClient, Options};
use ticktape::feed::{FeedSession, Packer};

/// Reached only where something does not come that must.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process whose lines are read, killed at the latest when this goes.
struct Reading {
    child: Child,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Reading {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ticktape"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        Reading { child, output, errors }
    }

    /// The next line that begins so.
    fn line(&mut self, begins: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(begins) {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                let mut errors = String::new();
                self.errors.read_to_string(&mut errors).unwrap();
                panic!("it ended before {begins:?}: {errors}");
            }
        }
        line
    }

    /// All that is left of its output and its errors, and its exit code.
    fn end(mut self) -> (String, String, Option<i32>) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).unwrap();
        self.errors.read_to_string(&mut errors).unwrap();
        (output, errors, self.child.wait().unwrap().code())
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nobody has at the moment.
fn free_address() -> SocketAddrV4 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port())
}

/// Where a bank and who listens to it meet.
struct Meeting {
    events: String,
    repair: String,
    /// Of clients: each bank has one of its own.
    sessions: Cell<u64>,
}

impl Meeting {
    fn new() -> Self {
        let [events, repair] = [free_address(), free_address()].map(|address| address.to_string());
        Meeting { events, repair, sessions: Cell::new(1) }
    }

    /// A bank that has made so many payments, and who pays.
    fn bank(&self, journal: &Path, payments: u32) -> (Reading, BlockingClient) {
        let args = ["run", "--service", "bank", "--listen", "127.0.0.1:0", "--nic", "udp"];
        let more = ["--events", &self.events, "--events-repair", &self.repair, "--dir", journal.to_str().unwrap()];
        let mut run = Reading::start(&[&args[..], &more].concat());
        let line = run.line("bank on ");
        let server = line.trim_start_matches("bank on ").split([' ', ',', '\n']).next().unwrap().parse().unwrap();
        let session = self.sessions.replace(self.sessions.get() + 1);
        let options = Options { session, schema: Bank::SCHEMA_VERSION, ..Options::default() };
        let mut client = BlockingClient::connect(server, &options, PATIENCE).unwrap();
        pay(&mut client, payments);
        (run, client)
    }

    fn follow(&self, more: &[&str]) -> Reading {
        let args = ["follow", "--service", "bank", "--events", &self.events, "--events-repair", &self.repair];
        Reading::start(&[&args[..], more].concat())
    }
}

fn pay(client: &mut BlockingClient, times: u32) {
    for _ in 0..times {
        let transfer = feed::Command::Transfer { from: 1, to: 2, amount: 1 };
        client.submit_and_wait::<Answer>(&transfer, PATIENCE).unwrap();
    }
}

/// What stands between two words of a line.
fn between<'a>(line: &'a str, before: &str, after: &str) -> &'a str {
    line.split_once(before).and_then(|(_, rest)| rest.split_once(after)).unwrap_or_else(|| panic!("{line}")).0
}

#[test]
fn a_journal_that_was_removed_and_begun_anew_is_another_log_and_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let (meeting, journal) = (Meeting::new(), dir.path().join("journal"));
    let (run, _client) = meeting.bank(&journal, 10);
    let mut first = meeting.follow(&["--from", "1", "--count", "10"]);
    let last = first.line("10 events: ");
    let ours = between(&last, "next is 11 of epoch 1 of log ", " and reign ").to_string();
    assert_eq!(ours.len(), 16, "{last}");
    assert_eq!(first.end(), (String::new(), format!("ticktape: listening on {}\n", meeting.events), Some(0)));
    let mut live = meeting.follow(&["--from", "1"]);
    (1..=10).for_each(|number| assert!(live.line("event ").starts_with(&format!("event {number} "))));
    run.kill();
    std::fs::remove_dir_all(&journal).unwrap();

    // The same epoch, the same session, the same numbers.
    let (_run, mut client) = meeting.bank(&journal, 15);
    let (output, errors, code) = live.end();
    assert!(!output.contains("event 11 ") && output.contains(&format!(" of log {ours} and reign ")), "{output}");
    assert!(
        errors.contains(&format!("log {ours}, up to event 10: ")) && errors.contains("--from 1, without"),
        "{errors}"
    );
    assert_eq!((code, errors.lines().count()), (Some(1), 2), "{errors}");

    // Of one that begins with the other's number: with the log it is refused, without it nobody notices.
    let after = |log: Option<&str>, more: &[&str]| {
        let log = log.map_or_else(Vec::new, |log| vec!["--from-log", log]);
        meeting.follow(&[&["--from", "11", "--from-epoch", "1", "--count", "2"], &log[..], more].concat())
    };
    let (output, errors, code) = after(Some(&ours), &[]).end();
    let theirs = between(&errors, "serves log ", ":").to_string();
    assert!(errors.contains(&format!("--from 11 of log {ours}: CursorUnproven")) && theirs != ours, "{errors}");
    assert!(code == Some(1) && !output.contains("event 11"), "{output}");
    let (output, _, code) = after(None, &["--json"]).end();
    let last: serde_json::Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!((code, &last["log"], &last["next"]), (Some(0), &theirs[..].into(), &13.into()), "{output}");
    let mut again = after(Some(&theirs), &[]);
    again.line("event 12 ");
    assert_eq!(again.end().2, Some(0));

    // Who has printed nothing goes on with whatever is there.
    let mut late = meeting.follow(&["--from", "16"]);
    pay(&mut client, 1);
    late.line("event 16 ");
    late.signal("-INT");
    assert_eq!(late.end().2, Some(0));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        std::fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn an_older_copy_of_a_journal_is_the_same_log_in_the_same_epoch_and_said_to_be_another_history() {
    let dir = tempfile::tempdir().unwrap();
    let (meeting, journals) = (Meeting::new(), ["journal", "copy"].map(|name| dir.path().join(name)));
    let (run, _client) = meeting.bank(&journals[0], 10);
    run.kill();
    copy(&journals[0], &journals[1]);
    let (run, mut client) = meeting.bank(&journals[0], 5);
    let mut first = meeting.follow(&["--from", "11", "--count", "5"]);
    let last = first.line("5 events: ");
    let log = between(&last, "next is 16 of epoch 2 of log ", " and reign ").to_string();
    let reign = between(&last, " and reign ", ";").to_string();
    assert_eq!((log.len(), reign.len()), (16, 16), "{last}");
    // Where the history is the one of before, it is gone on with.
    let after = |reign: Option<&str>, more: &[&str]| {
        let reign = reign.map_or_else(Vec::new, |reign| vec!["--from-reign", reign]);
        let cursor = ["--from", "16", "--from-epoch", "2", "--from-log", &log, "--count", "1"];
        meeting.follow(&[&cursor[..], &reign, more].concat())
    };
    let mut own = after(Some(&reign), &[]);
    pay(&mut client, 1);
    own.line("event 16 ");
    assert_eq!(own.end().2, Some(0));
    let mut live = meeting.follow(&["--from", "11"]);
    (11..=16).for_each(|number| assert!(live.line("event ").starts_with(&format!("event {number} "))));
    run.kill();

    // The same log, the same epoch, the same numbers.
    let (run, _client) = meeting.bank(&journals[1], 12);
    let (output, errors, code) = live.end();
    assert!(!output.contains("event 17 ") && output.contains(&format!(" and reign {reign}; ")), "{output}");
    for word in
        ["of epoch 2", &reign, "up to event 16: an older copy of the journal was started", "keep one of the two"]
    {
        assert!(errors.contains(word), "{word}: {errors}");
    }
    assert_eq!((code, errors.lines().count()), (Some(1), 2), "{errors}");
    let (output, errors, code) = after(Some(&reign), &[]).end();
    assert!(errors.contains(&format!("--from 16 of reign {reign}: CursorUnproven")), "{errors}");
    assert!(code == Some(1) && !output.contains("event 16"), "{output}");
    assert!(errors.contains("an older copy of the journal was started"), "{errors}");
    // Without it nobody notices.
    let (output, _, code) = after(None, &["--json"]).end();
    let last: serde_json::Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!((code, &last["log"], &last["next"]), (Some(0), &log[..].into(), &17.into()), "{output}");
    let theirs = last["reign"].as_str().unwrap();
    assert!(theirs.len() == 16 && theirs != reign, "{output}");
    run.kill();

    // Nor does it help it to be started once more.
    let (_run, _client) = meeting.bank(&journals[1], 1);
    let (output, errors, code) = after(Some(&reign), &[]).end();
    assert!(errors.contains("CursorUnproven") && errors.contains(theirs), "{errors}");
    assert!(code == Some(1) && !output.contains("event "), "{output}");
    let mut again = after(Some(theirs), &[]);
    again.line("event 16 ");
    assert_eq!(again.end().2, Some(0));
    // The reign of an epoch, and another epoch's number: that is no other copy.
    let cursor = ["--from", "16", "--from-epoch", "1", "--from-log", &log, "--from-reign", theirs];
    let (output, errors, code) = meeting.follow(&cursor).end();
    assert!(errors.contains("that is the reign of epoch 2 ") && !errors.contains("older copy"), "{errors}");
    assert!(code == Some(1) && !output.contains("event "), "{output}");
}

#[test]
fn who_begins_beyond_the_end_of_the_log_is_told_once_where_it_ends_and_gets_what_comes() {
    let dir = tempfile::tempdir().unwrap();
    let meeting = Meeting::new();
    let (_run, mut client) = meeting.bank(&dir.path().join("journal"), 5);
    let mut beyond = meeting.follow(&["--from", "9", "--count", "1"]);
    let mut line = String::new();
    while !line.contains("waiting for event 9,") {
        line.clear();
        assert!(beyond.errors.read_line(&mut line).unwrap() > 0, "it ended");
    }
    assert!(line.contains("the log ends with event 5"), "{line}");
    pay(&mut client, 4);
    beyond.line("event 9 ");
    let (_, errors, code) = beyond.end();
    assert_eq!((&errors[..], code), ("", Some(0)));
}

/// What a follower says first, and that it says it once before it is ended.
fn first_word(args: &[&str], before: impl FnOnce(&str)) -> String {
    let events = free_address().to_string();
    let args = ["follow", "--events", &events].into_iter().chain(args.iter().copied()).collect::<Vec<_>>();
    let mut follow = Reading::start(&args);
    let mut line = String::new();
    follow.errors.read_line(&mut line).unwrap();
    follow.line("events of ");
    before(&events);
    line.clear();
    follow.output.read_line(&mut line).unwrap();
    follow.signal("-INT");
    let (rest, _, code) = follow.end();
    assert_eq!((rest.lines().count(), code), (1, Some(0)), "{line}{rest}");
    line.replace(&events, "HERE")
}

#[test]
fn who_listens_where_nothing_comes_is_told_so() {
    let word = first_word(&[], |_| {});
    assert!(word.starts_with("nothing was heard on HERE: is that where the appliance's --events go"), "{word}");
    let send = |stream: &str, to: &str| {
        let session = FeedSession::new(u32::from_str_radix(stream, 36).unwrap(), 1).unwrap();
        let heartbeat = Packer::new(session.encode(), 5, 100).packet().to_vec();
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().send_to(&heartbeat, to).unwrap();
    };
    let word = first_word(&[], |events| send("TAPE", events));
    assert!(word.starts_with("stream TAPE is heard on HERE, and EVNT is waited for: "), "{word}");
    let word = first_word(&[], |events| send("EVNT", events));
    assert!(word.starts_with("one packet of epoch 1 was heard on HERE: "), "{word}");
}
