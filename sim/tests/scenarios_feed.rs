//! What befalls the streams between a leader and its replicas, each told as it happens.

use feed::{Bank, BankConfig};
use ticktape::replica::Figure;
use ticktape_sim::scenario::{Host, Scenario, Way};
use ticktape_sim::services::gen_transfer;

const LEADER: Host = Host::Leader;
const FIRST: Host = Host::Replica(0);
const SECOND: Host = Host::Replica(1);

macro_rules! world {
    ($replicas:expr, $world:ident => $script:block) => {
        // What holds for one order of polls has to hold for others.
        for seed in 1..=5 {
            let config = BankConfig::default();
            #[allow(unused_mut)]
            let mut $world = Scenario::<Bank, _>::new(seed, $replicas, &config, gen_transfer);
            $script
            $world.end();
        }
    };
}

#[test]
fn replicas_have_what_the_leader_has() {
    world!(2, world => {
        world.begin(FIRST);
        world.begin(SECOND);
        world.ask(100);
        world.settle();
        for replica in [FIRST, SECOND] {
            assert_eq!(world.applied(replica), world.sequenced());
        }
    });
}

#[test]
fn both_feeds_lose_the_same_packet_and_a_rewinder_has_it() {
    world!(1, world => {
        world.begin(FIRST);
        world.ask(10);
        world.settle();
        let asked = world.figure(0, Figure::Requests);
        world.cut(Way::FeedA(0));
        world.cut(Way::FeedB(0));
        let before = world.sequenced();
        world.ask(3);
        world.until("is what is lost committed", |world| {
            world.sequenced() > before && world.committed() == world.sequenced()
        });
        // Sent, and lost.
        world.run_ms(5);
        world.heal();
        world.ask(10);
        world.settle();
        assert!(world.figure(0, Figure::Gaps) > 0 || world.figure(0, Figure::CatchUps) > 1, "it was missed");
        assert!(world.figure(0, Figure::Requests) > asked || world.figure(0, Figure::CatchUps) > 1, "it was asked for");
    });
}

#[test]
fn one_feed_alone_is_enough() {
    world!(1, world => {
        world.begin(FIRST);
        world.ask(10);
        world.settle();
        let (asked, in_bulk) = (world.figure(0, Figure::Requests), world.figure(0, Figure::BulkFrames));
        world.cut(Way::FeedB(0));
        world.ask(50);
        world.settle();
        assert_eq!(world.figure(0, Figure::Requests), asked, "nothing was missed");
        assert_eq!(world.figure(0, Figure::BulkFrames), in_bulk);
    });
}

#[test]
fn a_rewinder_that_dies_in_mid_repair_is_replaced_by_another() {
    world!(2, world => {
        world.begin(FIRST);
        world.begin(SECOND);
        world.ask(20);
        world.settle();
        // The second misses something, and can ask only the first.
        world.cut(Way::Hosts(SECOND, LEADER));
        world.cut(Way::FeedA(1));
        world.cut(Way::FeedB(1));
        world.ask(20);
        world.kill(FIRST);
        world.run_ms(100);
        assert!(world.applied(SECOND) < world.sequenced());
        world.heal();
        world.ask(5);
        world.settle();
        assert_eq!(world.applied(SECOND), world.sequenced());
        world.begin(FIRST);
        world.settle();
        assert_eq!(world.applied(FIRST), world.sequenced());
    });
}

#[test]
fn a_replica_joins_late_and_begins_from_nothing() {
    world!(1, world => {
        world.ask(300);
        world.settle();
        assert_eq!(world.applied(FIRST), 0);
        world.begin(FIRST);
        world.ask(10);
        world.settle();
        assert_eq!(world.applied(FIRST), world.sequenced());
        assert!(world.met("replicas began from frames") + world.met("replica snapshots fetched") > 0);
    });
}

#[test]
fn a_replica_that_joins_while_nobody_is_there_waits_for_somebody() {
    world!(1, world => {
        world.ask(10);
        world.settle();
        world.kill(LEADER);
        world.begin(FIRST);
        world.run_ms(3_000);
        assert_eq!(world.applied(FIRST), 0);
        world.begin(LEADER);
        world.until("has the replica all", |world| world.applied(FIRST) == world.sequenced());
    });
}

#[test]
fn a_replica_stopped_for_ten_seconds_goes_on() {
    world!(1, world => {
        world.begin(FIRST);
        world.ask(20);
        world.settle();
        let before = world.applied(FIRST);
        world.pause_ms(0, 10_000);
        world.ask(200);
        world.run_ms(5_000);
        assert_eq!(world.applied(FIRST), before, "it stands still");
        world.settle();
        assert_eq!(world.applied(FIRST), world.sequenced());
    });
}

#[test]
fn a_replicas_stalled_journaler_holds_back_what_it_applies() {
    world!(1, world => {
        world.begin(FIRST);
        world.ask(20);
        world.settle();
        let before = world.applied(FIRST);
        world.stall(FIRST, "journaler");
        world.ask(200);
        world.run_ms(2_000);
        assert_eq!(world.applied(FIRST), before, "what is not durable there is not applied");
        world.resume(FIRST);
        world.settle();
    });
}

#[test]
fn the_leader_loses_power_with_replicas_ahead_of_its_disk() {
    world!(2, world => {
        world.begin(FIRST);
        world.begin(SECOND);
        world.ask(50);
        world.settle();
        // What is sequenced now is on the feed, and never gets to the leader's disk.
        world.stall(LEADER, "Journaler");
        world.ask(5);
        world.run_ms(20);
        let ahead = world.sequenced();
        assert!(ahead > world.committed());
        assert!(world.applied(FIRST) <= world.committed() && world.applied(SECOND) <= world.committed());
        world.lose_power(LEADER);
        world.run_ms(1_000);
        world.resume(LEADER);
        world.begin(LEADER);
        world.ask(20);
        world.settle();
        for replica in [FIRST, SECOND] {
            assert_eq!(world.applied(replica), world.sequenced());
        }
        assert!(world.met("replica truncations") > 0, "they gave up what they had beyond");
    });
}

#[test]
fn a_replica_loses_power_and_goes_on_from_its_disk() {
    world!(1, world => {
        world.begin(FIRST);
        world.ask(100);
        world.lose_power(FIRST);
        world.ask(100);
        world.begin(FIRST);
        world.settle();
        assert_eq!(world.applied(FIRST), world.sequenced());
    });
}

#[test]
fn a_replica_whose_disk_was_replaced_begins_from_another_replica() {
    world!(2, world => {
        world.begin(FIRST);
        world.begin(SECOND);
        world.ask(100);
        world.settle();
        world.kill(SECOND);
        world.wipe(1);
        world.cut(Way::Hosts(SECOND, LEADER));
        world.begin(SECOND);
        world.until("has it what the other has", |world| world.applied(SECOND) >= world.applied(FIRST));
        world.heal();
        world.settle();
    });
}

#[test]
fn a_cut_off_replica_says_so_and_comes_back() {
    world!(1, world => {
        world.begin(FIRST);
        world.ask(20);
        world.settle();
        for way in [Way::FeedA(0), Way::FeedB(0), Way::Hosts(LEADER, FIRST), Way::Hosts(FIRST, LEADER)] {
            world.cut(way);
        }
        world.ask(100);
        world.run_ms(5_000);
        assert!(world.applied(FIRST) < world.sequenced());
        world.heal();
        world.settle();
        assert_eq!(world.applied(FIRST), world.sequenced());
    });
}

#[test]
fn rot_on_a_replica_is_named_or_without_effect_and_a_new_disk_helps() {
    let mut named = 0;
    world!(1, world => {
        world.begin(FIRST);
        world.ask(200);
        world.settle();
        world.kill(FIRST);
        assert!(world.rot(FIRST, ".seg"));
        if let Err(why) = world.try_begin(FIRST) {
            assert!(why.contains(".seg"), "{why}");
            named += 1;
            world.wipe(0);
            world.begin(FIRST);
        }
        world.ask(20);
        world.settle();
        assert_eq!(world.applied(FIRST), world.sequenced());
    });
    assert!(named > 0, "some of it was in what the replica had said to be durable");
}
