//! A client's link in the hands of a hostile peer: any datagrams at any times, between its own sends.

use ticktape::link::{
    Ack, ClientConfig, ClientLink, ClientState, Event, EventMessage, Packet, SenderConfig, layout::header,
};

use super::Seeds;
use super::input::{Input, Script};
use super::link_packet::{IDENTITY, data, encoded, repair, welcome};

const MESSAGES_MAX: usize = 16;
/// What one instant may bring forth: every message once, an acknowledgement, a heartbeat or Hello, and a Bye.
const BURST_MAX: usize = MESSAGES_MAX + 3;
/// Where clocks end, far beyond any that counts nanoseconds since the epoch.
const NOW_MAX: u64 = 1 << 62;

struct Driver {
    link: ClientLink,
    now: u64,
    /// Events before it were delivered or given up.
    event_next: u64,
    opened: bool,
}

/// Runs a script; whether the link was ever open.
pub fn run(data: &[u8]) -> bool {
    let sender = SenderConfig {
        ring_bytes: 4096,
        messages_max: MESSAGES_MAX,
        in_flight_messages_max: MESSAGES_MAX as u32,
        ..SenderConfig::default()
    };
    let link = ClientLink::new(&ClientConfig { sender, ..ClientConfig::default() });
    let mut driver = Driver { link, now: 0, event_next: 1, opened: false };
    let mut input = Input::new(data);
    while !input.is_empty() {
        driver.step(&mut input);
        driver.check();
    }
    driver.opened
}

impl Driver {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 8 {
            0 => {
                let datagram = input.short_bytes();
                self.receive(datagram);
            }
            1 => self.receive(&crafted(input)),
            2 => self.now = self.now.saturating_add(input.wide()).min(NOW_MAX),
            3 => {
                let message = [7; 255];
                let _ = self.link.send(&message[..input.u8().into()]);
            }
            4 => self.transmit(),
            6 => drop(self.link.withdraw(u64::from(input.u8()))),
            7 => drop(self.link.withdraw_unsent()),
            _ => {
                if input.u8() == 0xff {
                    self.link.close();
                }
            }
        }
    }

    fn receive(&mut self, datagram: &[u8]) {
        let (now, event_next, opened) = (self.now, &mut self.event_next, &mut self.opened);
        self.link.on_datagram(now, datagram, |event| match event {
            Event::Output { event_seq, .. } => {
                assert!(event_seq >= *event_next, "event {event_seq} comes twice, or too late");
                *event_next = event_seq + 1;
            }
            Event::Resync { next, .. } => *event_next = next,
            Event::Opened { .. } => *opened = true,
            Event::Acked { .. } | Event::Disconnected | Event::Closed(_) => {}
        });
    }

    fn transmit(&mut self) {
        let mut out = [0; 1472];
        for _ in 0..BURST_MAX {
            let Some(bytes) = self.link.poll_transmit(self.now, &mut out) else { return };
            let decoded = Packet::decode(&out[..bytes]);
            let (identity, _) = decoded.unwrap_or_else(|error| panic!("sends what no peer takes: {error}"));
            assert_eq!((identity.session, identity.client_epoch), (1, 1));
        }
        assert_eq!(self.link.poll_transmit(self.now, &mut out), None, "one instant has an end");
    }

    fn check(&self) {
        let link = &self.link;
        assert!(link.acked_next() <= link.end_next() && link.end_next() - link.acked_next() <= MESSAGES_MAX as u64);
        assert!(link.resume_next() >= 1);
        assert_eq!(link.is_drained(), link.acked_next() == link.end_next());
        assert_eq!(link.poll_timeout().is_none(), matches!(link.state(), ClientState::Closed(_)));
    }
}

/// A packet with a sound header, of the link's own identity, and any type and body.
fn crafted(input: &mut Input<'_>) -> Vec<u8> {
    let (kind, appliance_epoch, body) = (input.u8(), input.u8(), input.short_bytes());
    let mut packet = encoded(&Packet::Heartbeat { next_seq: 0 });
    packet.truncate(header::BYTES);
    packet[header::TYPE] = kind;
    packet[header::APPLIANCE_EPOCH] = appliance_epoch;
    packet.extend_from_slice(body);
    repair(&mut packet);
    packet
}

fn receive(script: Script, packet: &[u8]) -> Script {
    script.bytes(&[0]).short_bytes(packet)
}

pub fn seeds() -> Seeds {
    assert_eq!(IDENTITY.session, ClientConfig::default().session);
    let connected = || receive(Script::default().bytes(&[4]), &encoded(&Packet::Welcome(welcome())));
    let event = [&EventMessage::head(7, 1)[..], b"done"].concat();
    let ack = |acked_next, received_next| encoded(&Packet::Ack(Ack { acked_next, received_next, window: 64 }));
    let sent = connected().bytes(&[3, 10, 3, 20, 4]);
    let answered = receive(receive(receive(sent, &ack(1, 3)), &data(&[&event, &event])), &ack(3, 3));
    let lost = receive(connected().bytes(&[3, 10, 4]), &encoded(&Packet::Heartbeat { next_seq: 9 }));
    let timed_out = lost.bytes(&[2, 30, 0xff, 0xff, 4, 2, 40, 0xff, 0xff, 4]);
    let again = receive(timed_out, &encoded(&Packet::Welcome(ticktape::link::Welcome { nonce: 2, ..welcome() })));
    vec![("answered", answered.bytes(&[4, 5, 0xff, 4]).0), ("timed_out", again.bytes(&[4]).0)]
}
