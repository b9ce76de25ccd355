//! The client's machine against an appliance that says one thing at a time.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const WELCOME: Welcome = Welcome {
    nonce: 1,
    committed_next: 1,
    received_next: 1,
    first_event: 1,
    next_event: 1,
    window: 64,
    datagram_bytes_max: 1472,
    schema: 1,
    tier: Tier::Local,
};

fn client() -> ClientLink {
    ClientLink::new(&ClientConfig { session: 7, client_epoch: 2, ..ClientConfig::default() })
}

fn identity(appliance_epoch: u32) -> Identity {
    Identity { session: 7, client_epoch: 2, appliance_epoch }
}

/// Hands over a packet and returns what the client says of it.
fn tell(client: &mut ClientLink, now: u64, identity: Identity, packet: Packet<'_>) -> Vec<String> {
    let mut bytes = vec![0; packet.bytes()];
    packet.encode(&identity, &mut bytes).unwrap();
    let mut events = Vec::new();
    client.on_datagram(now, &bytes, |event| events.push(format!("{event:?}")));
    events
}

/// Everything the client has to send, by type.
fn types(client: &mut ClientLink, now: u64) -> Vec<Type> {
    let mut out = [0; 1500];
    let mut types = Vec::new();
    while let Some(bytes) = client.poll_transmit(now, &mut out) {
        types.push(Packet::decode(&out[..bytes]).unwrap().1.packet_type());
    }
    types
}

/// The one Hello that is due.
fn hello(client: &mut ClientLink, now: u64) -> (Identity, Hello) {
    let mut out = [0; 1500];
    let bytes = client.poll_transmit(now, &mut out).expect("a Hello is due");
    let Ok((identity, Packet::Hello(hello))) = Packet::decode(&out[..bytes]) else { panic!("a Hello") };
    assert_eq!(client.poll_transmit(now, &mut out), None);
    (identity, hello)
}

fn open_client(welcome: Welcome) -> ClientLink {
    let mut client = client();
    hello(&mut client, 0);
    tell(&mut client, 0, identity(3), Packet::Welcome(welcome));
    assert_eq!(client.state(), ClientState::Open);
    client
}

#[test]
fn hello_is_repeated_with_patience_until_it_is_answered() {
    let mut client = client();
    client.send(b"waits").unwrap();
    let mut now = 0;
    for wait in [50, 100, 200, 400, 800, 1000, 1000] {
        let (sender, said) = hello(&mut client, now);
        assert_eq!(sender, identity(0));
        assert_eq!((said.nonce, said.resume_next, said.first_seq, said.schema), (1, 1, 1, 1));
        assert_eq!(client.poll_timeout(), Some(now + wait * MS));
        assert_eq!(types(&mut client, now + wait * MS - 1), []);
        now += wait * MS;
    }
    let events = tell(&mut client, now, identity(3), Packet::Welcome(WELCOME));
    assert_eq!(events, ["Opened { appliance_epoch: 3, tier: Local, committed_next: 1 }"]);
    assert_eq!(types(&mut client, now), [Type::Ack, Type::Data]);
}

#[test]
fn silence_bye_and_a_forgotten_session_lead_to_another_hello() {
    let mut client = open_client(WELCOME);
    assert_eq!(types(&mut client, 99 * MS), [Type::Ack]);
    assert_eq!(types(&mut client, 199 * MS), [Type::Heartbeat]);
    let (sender, said) = hello(&mut client, 500 * MS);
    assert_eq!((sender, said.nonce), (identity(3), 2), "an appliance that says nothing");

    let mut client = open_client(WELCOME);
    assert_eq!(tell(&mut client, MS, identity(3), Packet::Bye(ByeReason::Stopping)), ["Disconnected"]);
    assert_eq!(hello(&mut client, MS).1.nonce, 2);

    for &reason in ResyncReason::ALL {
        let mut client = open_client(WELCOME);
        let resync = Packet::Resync(reason);
        assert_eq!(tell(&mut client, MS, identity(2), resync), [""; 0], "a reign that is over");
        assert_eq!(tell(&mut client, MS, identity(4), resync), ["Disconnected"]);
        assert_eq!(tell(&mut client, MS, identity(4), resync), [""; 0], "once is enough");
        assert_eq!(hello(&mut client, MS).1.nonce, 2);
    }
}

#[test]
fn each_way_to_end() {
    let mut client = client();
    hello(&mut client, 0);
    let refuse = |nonce| Packet::Refuse(Refuse { nonce, reason: RefuseReason::StaleEpoch, detail: 9 });
    assert_eq!(tell(&mut client, 0, identity(3), refuse(0)), [""; 0], "an answer to something else");
    assert_eq!(tell(&mut client, 0, identity(3), refuse(1)), ["Closed(Refused { reason: StaleEpoch, detail: 9 })"]);
    assert_eq!(client.send(b"x"), Err(SendError::Closed));
    assert_eq!((types(&mut client, 0), client.poll_timeout()), (vec![], None));
    let ClientState::Closed(reason) = client.state() else { panic!("closed") };
    assert_eq!(reason.to_string(), "appliance refused: client epoch 9 of this session is known, use a higher one");

    let mut client = self::client();
    hello(&mut client, 0);
    let events = tell(&mut client, 0, identity(3), Packet::Welcome(Welcome { schema: 2, ..WELCOME }));
    assert_eq!(events, ["Closed(Refused { reason: SchemaMismatch, detail: 2 })"]);

    let mut client = self::client();
    hello(&mut client, 0);
    let welcome = Welcome { committed_next: 5, received_next: 5, ..WELCOME };
    assert_eq!(tell(&mut client, 0, identity(3), Packet::Welcome(welcome)), ["Closed(EpochReused { expected: 5 })"]);

    let mut client = open_client(WELCOME);
    client.close();
    assert_eq!(types(&mut client, 0), [Type::Bye]);
    assert_eq!(client.state(), ClientState::Closed(CloseReason::Done));
}

#[test]
fn inputs_that_were_acknowledged_and_lost_are_named() {
    let mut client = open_client(WELCOME);
    for _ in 0..4 {
        client.send(b"x").unwrap();
    }
    types(&mut client, 0);
    let ack = Packet::Ack(Ack { acked_next: 4, received_next: 5, window: 64 });
    assert_eq!(tell(&mut client, 0, identity(3), ack), ["Acked { next: 4 }"]);
    hello(&mut client, 600 * MS);
    let welcome = Welcome { nonce: 2, committed_next: 2, received_next: 2, ..WELCOME };
    let events = tell(&mut client, 600 * MS, identity(4), Packet::Welcome(welcome));
    assert_eq!(events, ["Closed(InputsLost { from: 2, to: 4 })"]);
}

#[test]
fn inputs_that_were_lost_with_all_that_was_known_of_their_session_are_named() {
    let mut client = open_client(WELCOME);
    for _ in 0..4 {
        client.send(b"x").unwrap();
    }
    types(&mut client, 0);
    let ack = |acked_next| Packet::Ack(Ack { acked_next, received_next: 5, window: 64 });
    let (_, said) = hello(&mut client, 600 * MS);
    assert!(!said.is_resumed, "nothing was acknowledged, so nothing can be lost");
    tell(&mut client, 600 * MS, identity(3), Packet::Welcome(Welcome { nonce: 2, ..WELCOME }));
    tell(&mut client, 600 * MS, identity(3), ack(4));
    let (_, said) = hello(&mut client, 1_200 * MS);
    assert_eq!((said.first_seq, said.is_resumed), (4, true));
    let refuse = Refuse { nonce: 3, reason: RefuseReason::InputsLost, detail: 0 };
    let events = tell(&mut client, 1_200 * MS, identity(4), Packet::Refuse(refuse));
    assert_eq!(events, ["Closed(InputsLost { from: 1, to: 4 })"]);
}

#[test]
fn after_a_restart_of_the_appliance_what_it_lacks_is_sent_again() {
    let mut client = open_client(WELCOME);
    for _ in 0..4 {
        client.send(b"x").unwrap();
    }
    types(&mut client, 0);
    tell(&mut client, 0, identity(3), Packet::Ack(Ack { acked_next: 2, received_next: 5, window: 64 }));
    let (_, said) = hello(&mut client, 600 * MS);
    assert_eq!((said.nonce, said.first_seq), (2, 2));
    let welcome = Welcome { nonce: 2, committed_next: 3, received_next: 3, ..WELCOME };
    assert_eq!(tell(&mut client, 600 * MS, identity(2), Packet::Welcome(welcome)), [""; 0], "a zombie");
    let events = tell(&mut client, 600 * MS, identity(4), Packet::Welcome(welcome));
    assert_eq!(events, ["Opened { appliance_epoch: 4, tier: Local, committed_next: 3 }", "Acked { next: 3 }"]);
    let mut out = [0; 1500];
    client.poll_transmit(600 * MS, &mut out).expect("an Ack");
    let bytes = client.poll_transmit(600 * MS, &mut out).expect("what was received and not committed");
    let Ok((sender, Packet::Data(data))) = Packet::decode(&out[..bytes]) else { panic!("Data") };
    assert_eq!((sender, data.base_seq(), data.count()), (identity(4), 3, 2));
    assert_eq!(client.connects(), 2);
}

#[test]
fn what_the_appliance_can_not_take_is_refused_at_the_door() {
    let mut client = open_client(Welcome { datagram_bytes_max: 600, ..WELCOME });
    assert_eq!(client.message_bytes_max(), 562);
    assert_eq!(client.send(&[0; 563]), Err(SendError::TooLong { bytes: 563, bytes_max: 562 }));
    assert_eq!(client.send(&[0; 562]), Ok(1));
}

#[test]
fn history_that_is_not_there_is_named() {
    let config = ClientConfig { session: 7, client_epoch: 2, resume_next: 20, ..ClientConfig::default() };
    let mut old = ClientLink::new(&config);
    assert_eq!(hello(&mut old, 0).1.resume_next, 20);
    let events =
        tell(&mut old, 0, identity(3), Packet::Welcome(Welcome { first_event: 25, next_event: 40, ..WELCOME }));
    assert_eq!(events[1], "Resync { gap: TooOld, from: 20, next: 25 }");
    let resync = Packet::Resync(ResyncReason::Overflow);
    assert_eq!(tell(&mut old, 0, identity(3), resync), ["Disconnected"]);
    let (_, again) = hello(&mut old, 0);
    assert_eq!(again.resume_next, 25);
    let welcome = Welcome { nonce: again.nonce, first_event: 30, next_event: 40, ..WELCOME };
    let events = tell(&mut old, 0, identity(3), Packet::Welcome(welcome));
    assert_eq!(events[1], "Resync { gap: Overflow, from: 25, next: 30 }");
    // It is the one handshake's reason, not the next one's.
    assert_eq!(tell(&mut old, 0, identity(3), Packet::Bye(ByeReason::Stopping)), ["Disconnected"]);
    let welcome = Welcome { nonce: hello(&mut old, 0).1.nonce, first_event: 31, next_event: 40, ..WELCOME };
    let events = tell(&mut old, 0, identity(3), Packet::Welcome(welcome));
    assert_eq!(events[1], "Resync { gap: TooOld, from: 30, next: 31 }");

    let mut ahead = ClientLink::new(&config);
    hello(&mut ahead, 0);
    let events = tell(&mut ahead, 0, identity(3), Packet::Welcome(Welcome { next_event: 10, ..WELCOME }));
    assert_eq!(events[1], "Resync { gap: Rewound, from: 20, next: 10 }");
}

#[test]
fn what_is_not_for_this_link_is_counted_by_reason() {
    let mut client = open_client(WELCOME);
    let beat = Packet::Heartbeat { next_seq: 1 };
    let right = identity(3);
    for (identity, packet, reason) in [
        (Identity { session: 8, ..right }, beat, DropReason::ForeignSession),
        (Identity { client_epoch: 1, ..right }, beat, DropReason::StaleEpoch),
        (Identity { client_epoch: 3, ..right }, beat, DropReason::UnknownEpoch),
        (Identity { appliance_epoch: 2, ..right }, beat, DropReason::StaleEpoch),
        (Identity { appliance_epoch: 4, ..right }, beat, DropReason::UnknownEpoch),
        (right, Packet::Welcome(WELCOME), DropReason::StaleHandshake),
        (
            right,
            Packet::Refuse(Refuse { nonce: 1, reason: RefuseReason::Stopping, detail: 0 }),
            DropReason::StaleHandshake,
        ),
        (right, Packet::Ack(Ack { acked_next: 9, received_next: 9, window: 1 }), DropReason::BadAck),
        (right, Packet::GapFill { from: 1, count: 1 }, DropReason::Unexpected),
        (Identity { appliance_epoch: 2, ..right }, Packet::Resync(ResyncReason::Overflow), DropReason::StaleEpoch),
    ] {
        let before = client.counters().get(reason);
        assert_eq!(tell(&mut client, 0, identity, packet), [""; 0]);
        assert_eq!(client.counters().get(reason), before + 1, "{packet:?}");
    }
    client.on_datagram(0, b"noise", |_| panic!("noise says nothing"));
    assert_eq!(client.counters().get(DropReason::Malformed(PacketError::Short)), 1);
    assert_eq!((client.counters().total(), client.state()), (11, ClientState::Open));

    let mut connecting = self::client();
    assert_eq!(tell(&mut connecting, 0, identity(0), beat), [""; 0]);
    assert_eq!(connecting.counters().get(DropReason::Unexpected), 1);
}

#[test]
fn an_event_too_short_to_be_one_is_counted_and_does_not_stop_the_next() {
    let mut client = open_client(WELCOME);
    let mut sender = Sender::new(identity(3), 1, &SenderConfig::default());
    sender.set_window(8);
    sender.push(&[1; 15]).unwrap();
    sender.push_parts(&EventMessage::head(40, 0), b"out").unwrap();
    let mut out = [0; 1500];
    let bytes = sender.poll_transmit(0, &mut out).unwrap();
    let mut events = Vec::new();
    client.on_datagram(0, &out[..bytes], |event| events.push(format!("{event:?}")));
    let said =
        r#"Output { event_seq: 2, message: EventMessage { log_seq: 40, client_seq: 0, output: [111, 117, 116] } }"#;
    assert_eq!(events, [said]);
    assert_eq!((client.counters().get(DropReason::BadEvent), client.resume_next()), (1, 3));
}

fn any_packet() -> impl Strategy<Value = Packet<'static>> {
    let small = || prop_oneof![0u64..8, any::<u64>().prop_map(|cursor| cursor % SEQ_LIMIT)];
    prop_oneof![
        (1u64..4, small(), small(), small(), small(), any::<u32>(), any::<u32>(), 1u32..3).prop_map(
            |(nonce, a, b, c, d, window, datagram_bytes_max, schema)| Packet::Welcome(Welcome {
                nonce,
                committed_next: a.min(b),
                received_next: a.max(b),
                first_event: c.min(d),
                next_event: c.max(d),
                window,
                datagram_bytes_max,
                schema,
                tier: Tier::Memory,
            })
        ),
        (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(acked_next, received_next, window)| Packet::Ack(Ack {
            acked_next,
            received_next,
            window
        })),
        (0u32..8, 0u32..8, 0u32..8).prop_map(|(acked_next, received_next, window)| Packet::Ack(Ack {
            acked_next,
            received_next,
            window
        })),
        (any::<u32>(), 1u32..1 << 31).prop_map(|(from, count)| Packet::GapFill { from, count }),
        (0usize..3).prop_map(|reason| Packet::Resync(ResyncReason::ALL[reason])),
        any::<u32>().prop_map(|next_seq| Packet::Heartbeat { next_seq }),
        (1u64..4).prop_map(|nonce| Packet::Refuse(Refuse { nonce, reason: RefuseReason::Stopping, detail: 0 })),
        Just(Packet::Bye(ByeReason::TooLong)),
    ]
}

proptest! {
    /// An appliance that says anything at all in well-formed packets.
    #[test]
    fn a_hostile_appliance_can_end_a_link_but_not_break_it(
        packets in prop::collection::vec((any_packet(), 0u32..4, 0u64..400), 0..60)
    ) {
        let mut client = client();
        let mut now = 0;
        for (packet, appliance_epoch, wait) in packets {
            now += wait * MS;
            let _ = client.send(&[1; 40]);
            let mut sent = 0;
            let mut out = [0; 1500];
            while client.poll_transmit(now, &mut out).is_some() {
                sent += 1;
                prop_assert!(sent < 1000, "a poll always comes to an end");
            }
            tell(&mut client, now, identity(appliance_epoch), packet);
            prop_assert!(client.acked_next() <= client.end_next());
            prop_assert!(client.resume_next() < SEQ_LIMIT);
        }
    }
}
