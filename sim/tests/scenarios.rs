//! One box and its clients, in scripts that read like what happens.

use feed::{Bank, BankConfig};
use ticktape_sim::disk::DiskFaults;
use ticktape_sim::scenario::{Host, Scenario};
use ticktape_sim::services::gen_transfer;
use ticktape_sim::{Ppm, Rng};

type World<'a> = Scenario<'a, Bank, fn(&mut Rng) -> feed::Command>;

const BANK: BankConfig = BankConfig { accounts: 8, opening_balance: 1000 };

const DAY_NS: i64 = 86_400_000_000_000;

/// Each script is told in several worlds, which differ in their journals, tiers and rings.
const SEEDS: std::ops::Range<u64> = 0..8;

fn worlds() -> impl Iterator<Item = World<'static>> {
    SEEDS.map(|seed| Scenario::new(seed, 0, &BANK, gen_transfer as fn(&mut Rng) -> feed::Command))
}

#[test]
fn a_torn_tail_is_cut_and_nothing_acknowledged_with_it() {
    let mut cut = 0;
    for mut world in worlds() {
        for _ in 0..24 {
            world.ask(10);
            world.lose_power(Host::Leader);
            world.begin(Host::Leader);
        }
        world.settle();
        cut += world.met("recoveries that cut a torn tail");
        world.end();
    }
    assert!(cut > 0, "no tail was torn");
}

#[test]
fn a_full_disk_stops_the_box_and_room_lets_it_go_on() {
    for mut world in worlds() {
        world.ask(20);
        world.settle();
        world.leave_room(Host::Leader, 0);
        // Until all that was prepared is full.
        for _ in 0..1000 {
            if !world.is_up(Host::Leader) {
                break;
            }
            world.ask(1);
            world.run_ms(10);
        }
        world.until("the box has stopped", |world| !world.is_up(Host::Leader));
        assert!(!world.is_up(Host::Leader));
        world.leave_room(Host::Leader, 1 << 30);
        world.begin(Host::Leader);
        world.settle();
        assert_eq!(world.applied(Host::Leader), world.sequenced(), "what waited was taken");
        world.end();
    }
}

#[test]
fn a_sync_that_fails_stops_the_box_for_good_and_a_restart_believes_only_the_disk() {
    for mut world in worlds() {
        world.ask(20);
        world.settle();
        world.disk(Host::Leader, DiskFaults { sync_error: Ppm::ALWAYS, ..DiskFaults::NONE });
        world.ask(5);
        world.until("the box has stopped", |world| !world.is_up(Host::Leader));
        world.disk(Host::Leader, DiskFaults::NONE);
        world.begin(Host::Leader);
        world.settle();
        world.end();
    }
}

#[test]
fn a_journaler_that_stalls_holds_everybody_back_and_loses_nothing() {
    let mut held_back = 0;
    for mut world in worlds() {
        world.ask(20);
        world.settle();
        world.stall(Host::Leader, "Journaler");
        world.ask(300);
        world.run_ms(200);
        let (sequenced, committed) = (world.sequenced(), world.committed());
        world.run_ms(200);
        assert_eq!(world.sequenced(), sequenced, "nothing has room to be sequenced");
        world.resume(Host::Leader);
        world.settle();
        assert_eq!(world.committed(), world.sequenced());
        // At tier memory nobody waits for the disk, until the ring is full.
        if committed < sequenced {
            held_back += 1;
            assert!(world.sequenced() > sequenced, "what waited was taken");
        }
        world.end();
    }
    assert!(held_back > 0, "no world waits for its disk");
}

#[test]
fn a_clock_that_is_set_back_a_day_holds_nobody_up() {
    for mut world in worlds() {
        world.ask(20);
        world.settle();
        for ns in [-DAY_NS, 2 * DAY_NS, -DAY_NS] {
            let before = world.sequenced();
            world.set_clock_ahead(ns);
            world.ask(10);
            world.settle();
            assert!(world.sequenced() >= before + 10);
        }
        world.kill(Host::Leader);
        world.set_clock_ahead(-DAY_NS);
        world.begin(Host::Leader);
        world.ask(10);
        world.settle();
        world.end();
    }
}

#[test]
fn a_storm_of_restarts_ends_with_everything_in_its_place() {
    for mut world in worlds() {
        for round in 0..12 {
            world.ask(5);
            if round % 3 == 0 {
                world.lose_power(Host::Leader);
            } else {
                world.kill(Host::Leader);
            }
            world.begin(Host::Leader);
        }
        assert_eq!(world.met("recoveries"), 13);
        world.settle();
        world.end();
    }
}

#[test]
fn recovery_that_is_cut_off_anywhere_can_be_begun_again() {
    for mut world in worlds() {
        let mut cut_off = 0;
        for operations in (0..80).step_by(2) {
            world.ask(4);
            world.run_ms(1);
            world.lose_power(Host::Leader);
            cut_off += u32::from(world.begin_in_vain(operations));
            world.begin(Host::Leader);
        }
        assert!(cut_off > 5, "recovery was cut off {cut_off} times");
        world.settle();
        world.end();
    }
}

#[test]
fn a_box_that_is_asked_to_stop_leaves_nothing_undone() {
    for mut world in worlds() {
        world.ask(30);
        world.stop();
        let stopped_after = world.sequenced();
        world.lose_power(Host::Leader);
        world.begin(Host::Leader);
        assert!(world.sequenced() > stopped_after, "a new reign goes on behind all that was sequenced");
        world.settle();
        assert_eq!(world.met("graceful stops"), 1);
        world.end();
    }
}
