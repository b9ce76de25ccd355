//! In order, the link allocates nothing: neither end, nor the client as a whole, nor the slots once something is lost.

use ticktape::link::{
    ClientConfig, ClientLink, Identity, Packet, Range, Receiver, ReceiverConfig, Sender, SenderConfig, Tier, Welcome,
};
use ticktape_alloc::{Counts, count_thread, is_counting};

#[global_allocator]
static HEAP: ticktape_alloc::CountingAllocator = ticktape_alloc::CountingAllocator;

const IDENTITY: Identity = Identity { session: 1, client_epoch: 1, appliance_epoch: 1 };
const PACKETS: u64 = 10_000;

fn ends() -> (Sender, Receiver) {
    let mut sender = Sender::new(IDENTITY, 1, &SenderConfig::default());
    sender.set_window(8192);
    (sender, Receiver::new(1, 1, &ReceiverConfig::default()))
}

/// Sends packets of sixteen, of which `is_lost` never arrive the first time; returns how many messages were handed on.
fn exchange(sender: &mut Sender, receiver: &mut Receiver, mut is_lost: impl FnMut(u64) -> bool) -> u64 {
    let (mut out, mut delivered) = ([0; 1472], 0);
    for packet in 0..PACKETS {
        let now = packet * 50_000;
        // Full while a loss is made good: then the next ones wait.
        let _ = (0..16).all(|_| sender.push(&[7; 64]).is_ok());
        while let Some(bytes) = sender.poll_transmit(now, &mut out) {
            let Ok((_, Packet::Data(data))) = Packet::decode(&out[..bytes]) else { panic!("a sender sends Data") };
            if !is_lost(packet) {
                receiver.on_data(now, 1, &data, |seq, _| {
                    delivered += 1;
                    assert_eq!(seq, delivered);
                    true
                });
            }
        }
        receiver.set_committed_next(receiver.received_next());
        let mut ranges = [Range { from: 0, count: 0 }; 16];
        let missing = receiver.poll_nack(now, &mut ranges);
        sender.on_nack(now, ranges[..missing].iter().copied());
        if let Some(ack) = receiver.poll_ack(now) {
            let held = receiver.held_ranges(&mut ranges);
            sender.on_selective_ack(now, &ack, ranges[..held].iter().copied());
        }
    }
    delivered
}

#[test]
fn neither_end_allocates_in_order() {
    assert!(is_counting());
    let (mut sender, mut receiver) = ends();
    let (counts, delivered) = count_thread(|| exchange(&mut sender, &mut receiver, |_| false));
    assert_eq!((counts, delivered, receiver.gaps()), (Counts::default(), PACKETS * 16, 0));
}

#[test]
fn nor_after_a_loss() {
    assert!(is_counting());
    let (mut sender, mut receiver) = ends();
    let mut dice = 1_u64;
    let lossy = |_| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        dice >> 33 & 15 == 0
    };
    let (counts, delivered) = count_thread(|| exchange(&mut sender, &mut receiver, lossy));
    assert_eq!(counts, Counts::default());
    assert!(delivered > PACKETS && receiver.gaps() > PACKETS / 100 && sender.resent_messages() > 0, "{delivered}");
}

#[test]
fn a_whole_client_allocates_nothing_once_it_is_open() {
    assert!(is_counting());
    let mut client = ClientLink::new(&ClientConfig::default());
    let mut out = [0; 1472];
    client.poll_transmit(0, &mut out).expect("a Hello");
    let welcome = Welcome {
        nonce: 1,
        committed_next: 1,
        received_next: 1,
        first_event: 1,
        next_event: 1,
        window: 1024,
        datagram_bytes_max: 1472,
        schema: 1,
        tier: Tier::Memory,
    };
    let bytes = Packet::Welcome(welcome).encode(&IDENTITY, &mut out).unwrap();
    client.on_datagram(0, &out[..bytes], |_| {});
    let (mut events, mut commands) = ends();
    let (counts, (heard, taken)) = count_thread(|| {
        let (mut heard, mut taken) = (0, 0);
        for now in (0..PACKETS).map(|packet| packet * 50_000) {
            client.send(&[7; 64]).unwrap();
            events.push(&[9; 64]).unwrap();
            while let Some(bytes) = client.poll_transmit(now, &mut out) {
                match Packet::decode(&out[..bytes]) {
                    Ok((_, Packet::Data(data))) => {
                        commands.on_data(now, 1, &data, |_, _| {
                            taken += 1;
                            true
                        });
                    }
                    Ok((_, Packet::Ack(ack))) => {
                        events.on_ack(now, &ack);
                    }
                    other => panic!("an undisturbed client does not send {other:?}"),
                }
            }
            commands.set_committed_next(commands.received_next());
            if let Some(ack) = commands.poll_ack(now) {
                let bytes = Packet::Ack(ack).encode(&IDENTITY, &mut out).unwrap();
                client.on_datagram(now, &out[..bytes], |_| {});
            }
            while let Some(bytes) = events.poll_transmit(now, &mut out) {
                client.on_datagram(now, &out[..bytes], |_| heard += 1);
            }
        }
        (heard, taken)
    });
    assert_eq!((counts, heard, taken), (Counts::default(), PACKETS, PACKETS));
}
