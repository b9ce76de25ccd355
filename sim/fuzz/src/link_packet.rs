//! Link packets: what decodes encodes to the same bytes, and never lies about what is in it.

use ticktape::link::layout::{self, header};
use ticktape::link::{
    Ack, Answer, ByeReason, EventMessage, Hello, Identity, Packet, Range, Ranges, Refuse, RefuseReason, ResyncReason,
    Sender, SenderConfig, Standing, Terms, Tier, Welcome, answer_hello,
};
use ticktape_core::crc32c;

use super::Seeds;

const TERMS: Terms = Terms { schema: 1, tier: Tier::Local, window: 64, datagram_bytes_max: 1472 };
const STANDING: Standing = Standing {
    client_epoch: 2,
    opened_by: Some((4, 10)),
    committed_next: 11,
    received_next: 12,
    first_event: 15,
    next_event: 30,
};

pub fn run(data: &[u8]) -> bool {
    let mut sound = data.to_vec();
    repair(&mut sound);
    check(data) | check(&sound)
}

/// Makes magic and checksum right: no fuzzer guesses them.
pub fn repair(packet: &mut [u8]) {
    if packet.len() < header::BYTES {
        return;
    }
    packet[header::MAGIC..header::MAGIC + 4].copy_from_slice(&layout::MAGIC.to_le_bytes());
    let crc = crc32c(&packet[header::CRC_FROM..]);
    packet[header::CRC..header::CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

fn check(bytes: &[u8]) -> bool {
    let Ok((identity, packet)) = Packet::decode(bytes) else { return false };
    let mut again = vec![0xaa; bytes.len()];
    assert_eq!(packet.encode(&identity, &mut again), Some(bytes.len()));
    assert_eq!(again, bytes);
    assert_eq!(packet.encode(&identity, &mut again[1..]), None, "room is asked after first");
    match packet {
        Packet::Data(data) => {
            assert_eq!(data.messages().count(), usize::from(data.count()));
            data.messages().for_each(check_event);
        }
        Packet::Nack(ranges) | Packet::SelectiveAck(_, ranges) => {
            assert_eq!(ranges.iter().count(), usize::from(ranges.count()));
        }
        Packet::Hello(hello) => {
            for standing in [None, Some(&STANDING)] {
                check_answer(&identity, &hello, standing);
            }
        }
        _ => {}
    }
    true
}

fn check_event(bytes: &[u8]) {
    if let Some(message) = EventMessage::decode(bytes) {
        let mut again = vec![0; bytes.len()];
        assert_eq!(message.encode(&mut again), Some(bytes.len()));
        assert_eq!(again, bytes);
    }
}

fn check_answer(identity: &Identity, hello: &Hello, standing: Option<&Standing>) {
    let answer = match answer_hello(&TERMS, standing, identity, hello) {
        Answer::Open { welcome, send_from } => {
            assert!((welcome.first_event..=welcome.next_event).contains(&send_from));
            Packet::Welcome(welcome)
        }
        Answer::Repeat(welcome) => Packet::Welcome(welcome),
        Answer::Refuse(refuse) => Packet::Refuse(refuse),
    };
    let mut out = [0; 256];
    let bytes = answer.encode(identity, &mut out).expect("an answer fits any datagram");
    assert_eq!(Packet::decode(&out[..bytes]), Ok((*identity, answer)));
}

pub const IDENTITY: Identity = Identity { session: 1, client_epoch: 1, appliance_epoch: 1 };

/// The packet's bytes.
pub fn encoded(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = vec![0; packet.bytes()];
    packet.encode(&IDENTITY, &mut out).expect("as many as it takes");
    out
}

pub fn hello() -> Hello {
    Hello { nonce: 1, resume_next: 1, first_seq: 1, window: 64, datagram_bytes_max: 1472, schema: 1, is_resumed: false }
}

pub fn welcome() -> Welcome {
    Welcome {
        nonce: 1,
        committed_next: 1,
        received_next: 1,
        first_event: 1,
        next_event: 1,
        window: 64,
        datagram_bytes_max: 1472,
        schema: 1,
        tier: Tier::Local,
    }
}

/// A Data packet with these messages, from seq 1 on.
pub fn data(messages: &[&[u8]]) -> Vec<u8> {
    let mut sender = Sender::new(IDENTITY, 1, &SenderConfig::default());
    sender.set_window(messages.len() as u32);
    for message in messages {
        sender.push(message).expect("room");
    }
    let mut out = [0; 1472];
    let bytes = sender.poll_transmit(0, &mut out).expect("something to send");
    out[..bytes].to_vec()
}

pub fn seeds() -> Seeds {
    let ack = Ack { acked_next: 3, received_next: 5, window: 64 };
    let mut room = [0; 64];
    let ranges = Ranges::write(&[Range { from: 6, count: 2 }, Range { from: 9, count: 1 }], &mut room).expect("ranges");
    let event = [&EventMessage::head(7, 3)[..], b"done"].concat();
    vec![
        ("hello", encoded(&Packet::Hello(hello()))),
        ("welcome", encoded(&Packet::Welcome(welcome()))),
        ("refuse", encoded(&Packet::Refuse(Refuse { nonce: 1, reason: RefuseReason::BadHello, detail: 0 }))),
        ("data", data(&[b"one", b"", &event])),
        ("ack", encoded(&Packet::Ack(ack))),
        ("nack", encoded(&Packet::Nack(ranges))),
        ("selective_ack", encoded(&Packet::SelectiveAck(ack, ranges))),
        ("gap_fill", encoded(&Packet::GapFill { from: 3, count: 2 })),
        ("resync", encoded(&Packet::Resync(ResyncReason::Overflow))),
        ("bye", encoded(&Packet::Bye(ByeReason::Done))),
    ]
}
