//! Packets, frames and inputs in a few words.

use std::fmt::Write as _;

use ticktape::feed::{Commit, MoldPacket, Status};
use ticktape::link::Packet;
use ticktape::payload::{EpochChange, Origin, decode_session_open};
use ticktape::{Frame, Kind};

/// Bytes of an input that are told.
const INPUT_BYTES_TOLD: usize = 24;

/// What a datagram says, whichever of the protocols it is of.
pub(crate) fn packet(bytes: &[u8]) -> String {
    if let Ok((identity, packet)) = Packet::decode(bytes) {
        return format!("session {} {}", identity.session, link(&packet));
    }
    if let Ok(status) = Status::decode(bytes) {
        return format!("{status:?}");
    }
    if let Ok(commit) = Commit::decode(bytes) {
        return format!("{commit:?}");
    }
    match MoldPacket::parse(bytes) {
        Ok(packet) => mold(&packet),
        Err(_) => format!("{} bytes that are no packet", bytes.len()),
    }
}

fn link(packet: &Packet<'_>) -> String {
    match packet {
        Packet::Hello(hello) => format!("hello: from #{}, events from {}", hello.first_seq, hello.resume_next),
        Packet::Welcome(welcome) => {
            format!("welcome: committed before #{}, next event {}", welcome.committed_next, welcome.next_event)
        }
        Packet::Refuse(refuse) => format!("refused: {:?}", refuse.reason),
        Packet::Data(data) => format!("data {}", range(u64::from(data.base_seq()), u64::from(data.count()))),
        Packet::Ack(ack) => format!("ack before {}, received before {}", ack.acked_next, ack.received_next),
        Packet::Nack(ranges) => format!("nack {ranges:?}"),
        Packet::SelectiveAck(ack, ranges) => format!("ack before {} and {ranges:?}", ack.acked_next),
        Packet::GapFill { from, count } => format!("never comes: {}", range(u64::from(*from), u64::from(*count))),
        Packet::Resync(reason) => format!("resync: {reason:?}"),
        Packet::Heartbeat { next_seq } => format!("heartbeat, next {next_seq}"),
        Packet::Bye(reason) => format!("bye: {reason:?}"),
    }
}

fn mold(packet: &MoldPacket<'_>) -> String {
    let session = String::from_utf8_lossy(packet.session()).into_owned();
    match packet {
        MoldPacket::Messages { sequence, count, .. } => {
            format!("feed {session} {}", range(*sequence, u64::from(*count)))
        }
        MoldPacket::Heartbeat { sequence, .. } => format!("feed {session} at or asked from {sequence}"),
        MoldPacket::EndOfSession { sequence, .. } => format!("feed {session} ends before {sequence}"),
    }
}

fn range(first: u64, count: u64) -> String {
    if count == 1 { first.to_string() } else { format!("{first}..{}", first + count - 1) }
}

/// An input's bytes, the first of them in hexadecimal: a service's inputs need have no text.
pub(crate) fn input(bytes: &[u8]) -> String {
    let mut text = format!("{} B ", bytes.len());
    for byte in bytes.iter().take(INPUT_BYTES_TOLD) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > INPUT_BYTES_TOLD {
        text.push('…');
    }
    text
}

/// What a frame is.
pub(crate) fn frame(bytes: &[u8]) -> String {
    let Ok(frame) = Frame::decode(bytes) else { return "no frame".to_string() };
    let detail = match frame.kind {
        Kind::SessionInput => Origin::split(frame.payload).map(|(origin, command)| {
            format!(
                " session {} epoch {} #{}, {} B",
                origin.session,
                origin.client_epoch,
                origin.client_seq,
                command.len()
            )
        }),
        Kind::SessionOpen => decode_session_open(frame.payload).map(|origin| {
            format!(" session {} epoch {} from #{}", origin.session, origin.client_epoch, origin.client_seq)
        }),
        Kind::EpochChange => EpochChange::decode(frame.payload).map(|change| format!(" to {}", change.epoch)),
        _ => None,
    };
    format!("{:?}{} at {}", frame.kind, detail.unwrap_or_default(), frame.timestamp.0)
}
