//! The engine, stepped with any frames: nothing but a [`StepError`] stops it, no service panics, two of them never differ,
//! though one begins anew from a snapshot of itself each time that time passes, and a service's promises hold after every step.

use feed::BankConfig;
use orderbook::{BookConfig, Command, OrderBook, Side, TimeInForce};
use ticktape::machine::{Machine, Progress, StepError, StepLimits};
use ticktape::payload::{self, Origin};
use ticktape::tails::Tails;
use ticktape::{Encode, Frame, Invariants, Kind, Seq, Service, SessionId, Timestamp};

use super::Seeds;
use super::input::{Input, Script};

/// Timers that one frame may fire, with room to spare: no script arms more.
const STEPS_PER_FRAME_MAX: usize = 100_000;

/// Small, so that its limits are met.
pub fn book_config() -> BookConfig {
    BookConfig { orders_max: 32, trades_per_order_max: 4, orders_reserved: 4, ..BookConfig::default() }
}

/// The first byte picks the service. Whether a command was applied.
pub fn run(data: &[u8]) -> bool {
    let Some((&which, script)) = data.split_first() else { return false };
    match which % 4 {
        0 => drive::<counter::Counter>(&(), script),
        1 => drive::<kv::Kv>(&(), script),
        2 => drive::<feed::Bank>(&BankConfig::default(), script),
        _ => drive::<OrderBook>(&book_config(), script),
    }
}

fn drive<S: Service + Invariants>(config: &S::Config, script: &[u8]) -> bool {
    let mut machines = [(); 2].map(|()| Machine::<S>::genesis(config, StepLimits::default()));
    let mut input = Input::new(script);
    let (mut seq, mut now, mut has_output) = (0, 0u64, false);
    while !input.is_empty() {
        let (kind, payload) = frame(&mut input);
        let (misplaced, back) = (input.u8() == 0xff, input.u8());
        seq += 1 + u64::from(misplaced);
        now = if back == 0xff { now.wrapping_sub(1) } else { now.saturating_add(u64::from(back)) };
        let frame = Frame { seq: Seq(seq), timestamp: Timestamp(now), stream_id: 1, kind, payload: &payload };
        if !apply(&mut machines, &frame, &mut has_output) {
            return has_output;
        }
        assert_eq!(machines[0].service().check(), Ok(()));
        if kind == Kind::Tick {
            let snapshot = machines[1].to_snapshot(&Tails::new(0));
            machines[1] = Machine::restore(&snapshot, config, StepLimits::default(), 0).expect("its own snapshot").0;
        }
    }
    let [one, other] = machines;
    assert_eq!(one.digest(), other.digest());
    let restored = S::restore(one.service().snapshot(), config);
    assert_eq!(restored.snapshot().to_bytes(), one.service().snapshot().to_bytes());
    assert_eq!(restored.check(), Ok(()));
    has_output
}

/// Steps both until the frame is applied; false where they stop for good.
fn apply<S: Service>(machines: &mut [Machine<S>; 2], frame: &Frame<'_>, has_output: &mut bool) -> bool {
    for _ in 0..STEPS_PER_FRAME_MAX {
        let [result, other] = machines.each_mut().map(|machine| machine.step(frame));
        if matches!(other, Err(StepError::Diverged { .. })) {
            // A made-up mark of the point at which this one began: only it remembers the state there.
            return false;
        }
        assert_eq!(result, other);
        let [one, other] = &*machines;
        assert!(one.outputs(frame.seq).eq(other.outputs(frame.seq)), "outputs differ at seq {}", frame.seq);
        *has_output |= one.outputs(frame.seq).next().is_some();
        match result {
            Ok(Progress::Applied) => return true,
            Ok(Progress::TimerFired) => {}
            Err(StepError::ServicePanicked { seq, message }) => panic!("service panicked at seq {seq}: {message}"),
            Err(error) => {
                assert_eq!(error.to_string().lines().count(), 1, "one line: {error}");
                assert_eq!(machines[0].step(frame), Err(error), "a failed machine stays failed");
                return false;
            }
        }
    }
    panic!("timers without end at seq {}", frame.seq)
}

/// A frame's kind and payload: any bytes, or well made.
fn frame(input: &mut Input<'_>) -> (Kind, Vec<u8>) {
    let session = SessionId(u64::from(input.u8() % 3));
    let client_epoch = u32::from(input.u8() % 3);
    match input.u8() % 8 {
        0 => (Kind::ALL[usize::from(input.u8()) % Kind::ALL.len()], input.short_bytes().to_vec()),
        1 => (Kind::Input, input.short_bytes().to_vec()),
        2 => {
            let first_seq = input.u8().into();
            (Kind::SessionOpen, payload::encode_session_open(session, client_epoch, first_seq).to_vec())
        }
        3 => (Kind::SessionClose, payload::encode_session(session, client_epoch).to_vec()),
        4 => (Kind::EpochChange, epoch_change(input)),
        5 => (Kind::Tick, Vec::new()),
        6 => (Kind::Input, order(input).to_bytes()),
        _ => {
            let origin = Origin { session, client_epoch, client_seq: input.u8().into() };
            let mut payload = origin.encode().to_vec();
            order(input).encode(&mut payload);
            (Kind::SessionInput, payload)
        }
    }
}

/// An order among few names and prices, so that they meet.
fn order(input: &mut Input<'_>) -> Command {
    let (kind, seq, id) = (input.u8(), input.u8().into(), u64::from(input.u8() % 64));
    let price = match input.u8() {
        0xff => i64::MAX,
        0xfe => i64::MIN,
        price => i64::from(price % 16),
    };
    let qty = if kind & 0x80 == 0 { u32::from(input.u8() % 32) } else { u32::MAX };
    match kind % 8 {
        0 => Command::Cancel { seq, id },
        1 => Command::Modify { seq, id, price, qty },
        kind => {
            let side = if kind % 2 == 0 { Side::Buy } else { Side::Sell };
            let time_in_force = match kind {
                2 | 3 => TimeInForce::ImmediateOrCancel,
                4 | 5 => TimeInForce::GoodTill(Timestamp(u64::from(input.u8()) * 4)),
                _ => TimeInForce::GoodTillCancel,
            };
            Command::New { seq, id, side, price, qty, time_in_force }
        }
    }
}

fn commands<T: Encode>(which: u8, commands: &[T]) -> Vec<u8> {
    let script = Script::default().bytes(&[which]);
    commands
        .iter()
        .fold(script, |script, command| script.bytes(&[0, 0, 1]).short_bytes(&command.to_bytes()).bytes(&[0, 1]))
        .0
}

pub fn seeds() -> Seeds {
    use feed::Command::Transfer;
    let transfers = [Transfer { from: 0, to: 1, amount: 10 }, Transfer { from: 1, to: 9, amount: 2000 }];
    let put = kv::Command::Put { key: "name".into(), value: "ada".into() };
    let resting = [1, 1, 2, 1, 0, 1, 1, 1, 7, 1, 6, 1, 1, 5, 10, 0, 1]; // opens a session, bids
    let orders = Script::default()
        .bytes(&[3])
        .bytes(&resting)
        .bytes(&[0, 0, 6, 4, 2, 2, 5, 9, 10, 0, 1]) // bids until 40
        .bytes(&[0, 0, 6, 7, 3, 3, 7, 9, 0, 1]) // sells at 7
        .bytes(&[0, 0, 6, 3, 4, 4, 5, 20, 0, 1]) // sells at once at 5
        .bytes(&[0, 0, 6, 1, 5, 3, 6, 4, 0, 1]) // modifies
        .bytes(&[0, 0, 5, 0, 200]) // time passes
        .bytes(&[0, 0, 6, 0, 6, 3, 0, 0, 0, 1]); // cancels
    // Reign 1, then 2 after it, then 3 that says it goes on after 1.
    let reigns = Script::default().bytes(&[0]).bytes(&[0, 0, 4, 1, 1, 0, 1]).bytes(&[0, 0, 4, 2, 6, 0, 1]);
    let reigns = reigns.bytes(&[0, 0, 4, 3, 7, 0, 1]).0;
    vec![
        ("counter", commands(0, &[counter::Command::Add(5), counter::Command::Reset])),
        ("kv", commands(1, &[put, kv::Command::Get { key: "name".into() }])),
        ("bank", commands(2, &transfers)),
        ("orders", orders.0),
        ("reigns", reigns),
    ]
}

/// Of few reigns, so that they go on after each other now and then.
fn epoch_change(input: &mut Input<'_>) -> Vec<u8> {
    let (epoch, reigns) = (input.u8().into(), input.u8());
    let reign = u64::from(reigns & 3);
    let previous_reign = if reign == 0 { 0 } else { u64::from(reigns >> 2 & 3) };
    payload::EpochChange { epoch, schema_version: 1, service_name: "", reign, previous_reign }.encode()
}
