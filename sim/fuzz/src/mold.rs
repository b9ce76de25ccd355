//! MoldUDP64 packets and requests, and the feed's session names.

use ticktape::feed::FeedSession;
use ticktape::feed::mold::{COUNT, MESSAGES, MoldPacket, MoldRequest, OVERHEAD_BYTES, Packer, SEQUENCE, SESSION};

use super::Seeds;

const NAME_BYTES: usize = SEQUENCE - SESSION;

pub fn run(data: &[u8]) -> bool {
    if let Some(name) = data.first_chunk::<NAME_BYTES>()
        && let Ok(session) = FeedSession::parse(name)
    {
        assert_eq!(session.encode(), *name);
        assert_eq!(FeedSession::new(session.stream(), session.epoch()), Ok(session));
    }
    let is_request = MoldRequest::parse(data).is_ok_and(|request| {
        assert_eq!(request.encode(), data);
        true
    });
    is_request | check_packet(data)
}

fn check_packet(data: &[u8]) -> bool {
    let Ok(packet) = MoldPacket::parse(data) else { return false };
    assert_eq!(packet.session()[..], data[SESSION..SESSION + NAME_BYTES]);
    match packet {
        MoldPacket::Messages { session, sequence, count, messages } => {
            let mut packer = Packer::new(*session, sequence, data.len().max(OVERHEAD_BYTES + 1));
            let mut messages = messages;
            assert!(messages.all(|message| packer.push(message)));
            assert_eq!((packer.count(), packer.next_sequence()), (count, sequence + u64::from(count)));
            assert_eq!(packer.packet(), data);
        }
        MoldPacket::Heartbeat { session, sequence } => {
            assert_eq!(Packer::new(*session, sequence, OVERHEAD_BYTES + 1).packet(), data);
        }
        MoldPacket::EndOfSession { session, sequence } => {
            assert_eq!(Packer::new(*session, sequence, OVERHEAD_BYTES + 1).end_of_session(), data);
        }
    }
    true
}

pub fn seeds() -> Seeds {
    let session = FeedSession::new(1, 2).expect("small numbers").encode();
    let mut packer = Packer::new(session, 7, 1472);
    let heartbeat = packer.packet().to_vec();
    let end = packer.end_of_session().to_vec();
    assert!(packer.push(b"one") && packer.push(b"") && packer.push(b"three"));
    let messages = packer.packet().to_vec();
    let request = MoldRequest { session, sequence: 7, count: 300 }.encode().to_vec();
    assert_eq!(request[COUNT..MESSAGES], [1, 44]);
    vec![("messages", messages), ("heartbeat", heartbeat), ("end", end), ("request", request)]
}
