//! The events: for people as a line, for programs as JSON.

use std::fmt;
use std::net::SocketAddrV4;

use serde::{Serialize, Serializer};

/// Who something happened to. Hosts and clients count from 0 and 1, as their addresses and sessions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All of it.
    World,
    /// A host, its process or its clocks.
    Host(u8),
    /// A stage of a host.
    Stage(u8, &'static str),
    /// A host's disk.
    Disk(u8),
    /// A client, by its session.
    Client(u64),
    /// What is between them.
    Net,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::World => f.pad("world"),
            Who::Host(host) => f.pad(&format!("host{host}")),
            Who::Stage(host, stage) => f.pad(&format!("host{host}.{stage}")),
            Who::Disk(host) => f.pad(&format!("host{host}.disk")),
            Who::Client(session) => f.pad(&format!("client{session}")),
            Who::Net => f.pad("net"),
        }
    }
}

impl Serialize for Who {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        serializer.collect_str(self)
    }
}

/// What happened.
#[allow(missing_docs)] // Of the fields: their names say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    // The world.
    /// A stroke of fate, by its kind in a list of faults.
    Fault { kind: &'static str, detail: String },
    /// No fault strikes from now on.
    Calm,
    /// A host is up.
    Start { recovered: u64, epoch: u32, cut: bool },
    /// A host could not start.
    StartFailed { why: String },
    /// A host is gone.
    Stop { why: String },
    /// A host takes another reign for the current one.
    Epoch { epoch: u32, first: u64 },
    // Packets.
    /// On its way.
    Sent { from: SocketAddrV4, to: SocketAddrV4, bytes: usize, packet: String },
    /// It will not arrive.
    Lost { from: SocketAddrV4, to: SocketAddrV4, why: &'static str, packet: String },
    /// Something happened to it on its way.
    Disturbed { from: SocketAddrV4, to: SocketAddrV4, how: &'static str },
    /// In the receiver's ring.
    Delivered { from: SocketAddrV4, to: SocketAddrV4, packet: String },
    // The disk.
    /// Written, and durable only if it says so.
    Stored { file: String, offset: u64, bytes: u64, durable: bool },
    /// A file, or a directory's names, are durable.
    Synced { file: String },
    /// A file is there, or goes by another name, or is gone.
    Named { file: String, how: String },
    /// An operation did not do what it was asked for.
    Failed { op: &'static str, why: String },
    /// What a power loss made of a file's sectors.
    Torn { file: String, survived: u64, torn: u64, lost: u64 },
    /// Changes of names that a power loss undid.
    NamesLost { names: u64 },
    // The log.
    /// A client wants something.
    Asked { input: String },
    /// In the order.
    Sequenced { seq: u64, frame: String },
    /// On this host's disk for good.
    Durable { seq: u64 },
    /// Never taken back.
    Committed { seq: u64 },
    /// Part of the state.
    Applied { seq: u64 },
    /// A client has an output.
    Told { event_seq: u64, log_seq: u64 },
    /// A client knows that what it sent before this number is committed.
    Acked { next: u64 },
    /// A client can't go on from where it was.
    Resync { from: u64, next: u64 },
    /// A snapshot was taken, taken over, or given up.
    Snapshot { seq: u64, how: String },
    /// Somebody asked for, or answered with, what was missed.
    Repair { from: u64, to: u64, how: String },
    /// Anything else, in a word.
    Note { text: String },
}

impl What {
    /// Whether the story turns here. Such events are rare, and a failure is told with those that came long before it, too.
    pub fn is_turn(&self) -> bool {
        match self {
            What::Fault { .. }
            | What::Calm
            | What::Start { .. }
            | What::StartFailed { .. }
            | What::Stop { .. }
            | What::Epoch { .. }
            | What::Torn { .. }
            | What::NamesLost { .. }
            | What::Snapshot { .. } => true,
            What::Sent { .. }
            | What::Lost { .. }
            | What::Disturbed { .. }
            | What::Delivered { .. }
            | What::Stored { .. }
            | What::Synced { .. }
            | What::Named { .. }
            | What::Failed { .. }
            | What::Asked { .. }
            | What::Sequenced { .. }
            | What::Durable { .. }
            | What::Committed { .. }
            | What::Applied { .. }
            | What::Told { .. }
            | What::Acked { .. }
            | What::Resync { .. }
            | What::Repair { .. }
            | What::Note { .. } => false,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Fault { kind, detail } => write!(f, "FAULT {kind}: {detail}"),
            What::Calm => write!(f, "no more faults"),
            What::Start { recovered, epoch, cut } => {
                let tail = if *cut { ", a torn tail cut" } else { "" };
                write!(f, "START recovered up to {recovered}{tail}; epoch {epoch}")
            }
            What::StartFailed { why } => write!(f, "START FAILED {why}"),
            What::Stop { why } => write!(f, "STOP {why}"),
            What::Epoch { epoch, first } => write!(f, "epoch {epoch} from {first}"),
            What::Sent { to, bytes, packet, .. } => write!(f, "sent to {to}, {bytes} B: {packet}"),
            What::Lost { from, to, why, packet } => write!(f, "lost ({why}) {from} to {to}: {packet}"),
            What::Disturbed { from, to, how } => write!(f, "{how} {from} to {to}"),
            What::Delivered { from, to, packet } => write!(f, "delivered {from} to {to}: {packet}"),
            What::Stored { file, offset, bytes, durable } => {
                write!(f, "stored {file} {offset}+{bytes}{}", if *durable { ", durably" } else { "" })
            }
            What::Synced { file } => write!(f, "synced {file}"),
            What::Named { file, how } => write!(f, "{how} {file}"),
            What::Failed { op, why } => write!(f, "{op} failed: {why}"),
            What::Torn { file, survived, torn, lost } => {
                write!(f, "TORN {file}: of unsynced sectors {survived} survived, {torn} half, {lost} lost")
            }
            What::NamesLost { names } => write!(f, "{names} changes of names undone"),
            What::Asked { input } => write!(f, "asks {input}"),
            What::Sequenced { seq, frame } => write!(f, "sequenced {seq}: {frame}"),
            What::Durable { seq } => write!(f, "durable up to {seq}"),
            What::Committed { seq } => write!(f, "committed up to {seq}"),
            What::Applied { seq } => write!(f, "applied up to {seq}"),
            What::Told { event_seq, log_seq } => write!(f, "told event {event_seq}, of seq {log_seq}"),
            What::Acked { next } => write!(f, "knows inputs before #{next} committed"),
            What::Resync { from, next } => write!(f, "resynced from event {from} to {next}"),
            What::Snapshot { seq, how } => write!(f, "snapshot at {seq} {how}"),
            What::Repair { from, to, how } => write!(f, "{how} {from} to {to}"),
            What::Note { text } => f.write_str(text),
        }
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its place in the run, from 1.
    pub number: u64,
    /// The world's time, in nanoseconds from its beginning.
    pub ns: u64,
    /// The step it happened in.
    pub step: u32,
    /// Who it happened to.
    pub who: Who,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// As one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings")
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.ns / 1000;
        let (seconds, micros, nanos) = (micros / 1_000_000, micros % 1_000_000, self.ns % 1000);
        write!(f, "{:5} {seconds:4}.{micros:06}_{nanos:03}  {:<18} {}", self.step, self.who, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(who: Who, what: What) -> Event {
        Event { number: 7, ns: 1_002_003_004, step: 12, who, what }
    }

    #[test]
    fn a_line_says_step_time_who_and_what() {
        let what = What::Start { recovered: 41, epoch: 3, cut: true };
        let line = event(Who::Host(0), what).to_string();
        assert_eq!(
            line,
            "   12    1.002003_004  host0              START recovered up to 41, a torn tail cut; epoch 3"
        );
    }

    #[test]
    fn json_is_flat_and_on_one_line() {
        let what = What::Stored { file: "a\n\"b\"".to_string(), offset: 512, bytes: 1024, durable: false };
        assert_eq!(
            event(Who::Disk(2), what).to_json(),
            r#"{"number":7,"ns":1002003004,"step":12,"who":"host2.disk","what":"stored","file":"a\n\"b\"","offset":512,"bytes":1024,"durable":false}"#
        );
    }
}
