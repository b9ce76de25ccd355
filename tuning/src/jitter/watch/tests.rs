use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const ASKED: Asked = Asked { duration_ns: 1_000_000, threshold_ns: 1_000, causes_above_ns: 50_000 };

/// A clock that goes on by `steps`, then by a millisecond each time.
fn script(steps: &[u64]) -> impl Fn() -> u64 {
    let (time, steps) = (Cell::new(5_000_000), RefCell::new(VecDeque::from(steps.to_owned())));
    move || {
        time.set(time.get() + steps.borrow_mut().pop_front().unwrap_or(1_000_000));
        time.get()
    }
}

fn values(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
}

/// Counters of which the n-th look says that n came.
fn looks(taken: &Cell<u64>) -> impl FnMut() -> Counts + '_ {
    || {
        taken.set(taken.get() + 1);
        Counts::of(&[("interrupt X", taken.get())])
    }
}

#[test]
fn only_gaps_above_the_threshold_are_lost_time() {
    // The start, readings, and the last gap, which ends it.
    let clock = script(&[0, 25, 1_000, 1_001, 25, 40_000, 957_949]);
    let found = spin(&Asked { causes_above_ns: u64::MAX, ..ASKED }, &clock, Counts::default, || false);
    let gaps = found.gaps.as_ref().unwrap();
    assert_eq!((gaps.len(), found.readings, found.watched_ns), (3, 6, 1_000_000));
    assert_eq!((found.lost_ns, found.looking_ns, found.step_ns), (998_950, 0, (25 + 1_000 + 25) / 3));
    assert!((found.lost_ppm() - 998_950.0).abs() < 1e-6);
    let worst: Vec<_> = found.worst.iter().map(|worst| (worst.at_ns, worst.length_ns)).collect();
    assert_eq!(worst, [(42_051, 957_949), (2_051, 40_000), (1_025, 1_001)]);
    assert!(found.worst.iter().all(|worst| worst.seen.is_none()));
}

#[test]
fn counters_are_read_after_a_long_gap_and_what_that_takes_is_no_gap() {
    // A gap of 60 µs, a look of 300 µs, a step, a gap of 70 µs, a look of 100 µs, and the end.
    let clock = script(&[0, 60_000, 300_000, 25, 70_000, 100_000, 500_000]);
    let taken = Cell::new(0);
    let found = spin(&Asked { duration_ns: 1_030_000, ..ASKED }, &clock, looks(&taken), || false);
    assert_eq!(found.looking_ns, 300_000 + 100_000 + 1_000_000, "the last gap's look, too, which nothing came after");
    assert_eq!(found.watched_ns, 60_000 + 25 + 70_000 + 500_000);
    assert_eq!(values(found.gaps.as_ref().unwrap()).len(), 3);
    let seen = |length_ns| found.worst.iter().find(|worst| worst.length_ns == length_ns).unwrap().seen.clone().unwrap();
    let once = vec![Cause { what: "interrupt X".to_owned(), count: 1 }];
    assert_eq!(seen(60_000), Seen { causes: once.clone(), over_ns: 60_000 });
    assert_eq!(seen(70_000), Seen { causes: once, over_ns: 70_025 });
    // At the beginning, after each of three gaps, at the end.
    assert_eq!((taken.get(), found.totals[0].count), (5, 4));
}

#[test]
fn a_gap_that_is_not_among_the_worst_costs_no_look() {
    let mut steps = vec![0];
    // The first twenty are each followed by a look of 10 ns.
    steps.extend([200_000, 10].repeat(WORST_MAX));
    steps.extend([60_000, 200_000, 25]);
    let clock = script(&steps);
    let taken = Cell::new(0);
    let found = spin(&Asked { duration_ns: 4_260_225, ..ASKED }, &clock, looks(&taken), || false);
    assert_eq!((taken.get(), found.looking_ns), (2 + WORST_MAX as u64, 200));
    assert_eq!((found.gaps.unwrap().len(), found.worst.len()), (WORST_MAX as u64 + 2, WORST_MAX));
    assert!(found.worst.iter().all(|worst| worst.length_ns == 200_000));
}

#[test]
fn a_watch_ends_when_told_to() {
    let clock = script(&[0, 25, 25, 25, 25]);
    let mut left = 3;
    let found = spin(&ASKED, &clock, Counts::default, || {
        left -= 1;
        left == 0
    });
    assert_eq!((found.readings, found.watched_ns, found.lost_ns), (3, 75, 0));
}

#[test]
fn what_comes_at_any_instant_waits_for_the_rest_of_its_gap() {
    // A tenth of the time is lost, in gaps of 200 µs: of all that comes, one in ten waits, evenly from 0 to 200 µs.
    let mut gaps = empty();
    gaps.record_n(200_000, 50).unwrap();
    let waits = waits(&gaps, 90_000_000, 25);
    assert_eq!(waits.len(), 100_000);
    let at = |quantile| waits.value_at_quantile(quantile);
    assert_eq!((at(0.5), at(0.9)), (25, 25));
    for (quantile, expected) in [(0.95, 100_000_u64), (0.99, 180_000), (0.999, 198_000)] {
        assert!(at(quantile).abs_diff(expected) <= expected / 100, "{quantile}: {}", at(quantile));
    }
    assert!(at(1.0).abs_diff(200_000) < 200);
}

#[test]
fn a_gap_of_a_minute_is_reckoned_in_a_thousand_waits() {
    let mut gaps = empty();
    gaps.record(GAP_NS_MAX).unwrap();
    let waits = waits(&gaps, 0, 0);
    assert!(waits.len().abs_diff(60_000_000) <= 60_000, "{}", waits.len());
    assert!(waits.iter_recorded().count() <= 1_001);
    assert!(waits.value_at_quantile(0.5).abs_diff(30_000_000_000) < 100_000_000);
}

#[test]
fn each_wake_up_is_late_by_what_it_is() {
    let time = Cell::new(0_u64);
    let lateness = RefCell::new([5_000, 7_000, 250_000, 3_000].into_iter());
    let sleeps = RefCell::new(Vec::new());
    let sleep = |until: u64| {
        sleeps.borrow_mut().push(until);
        time.set(until.max(time.get()) + lateness.borrow_mut().next().unwrap_or(1_000));
    };
    let asked = Asked { causes_above_ns: u64::MAX, ..ASKED };
    let found = wake(&asked, 100_000, || time.get(), sleep, Counts::default, || false);
    // It slept until 300 µs, woke up at 550, and went on at 600: 400 and 500 are missed.
    let woken: Vec<u64> =
        (1..=10).filter(|hundred| ![4, 5].contains(hundred)).map(|hundred| hundred * 100_000).collect();
    assert_eq!((sleeps.into_inner(), found.missed, found.readings), (woken, 2, 8));
    let worst: Vec<_> = found.worst.iter().map(|worst| (worst.at_ns, worst.length_ns)).collect();
    assert_eq!(worst, [(300_000, 250_000), (200_000, 7_000), (100_000, 5_000), (400_000 + 200_000, 3_000)]);
    assert!(found.gaps.is_none() && found.waits.min() >= 1_000 && found.waits.max().abs_diff(250_000) < 250);
}

#[test]
fn times_that_pass_while_counters_are_read_are_not_missed() {
    let time = Cell::new(0_u64);
    let mut late = Some(60_000);
    let sleep = |until: u64| time.set(until.max(time.get()) + late.take().unwrap_or(1));
    let look = || {
        // A look takes two and a half intervals.
        time.set(time.get() + 250_000);
        Counts::default()
    };
    let found = wake(&ASKED, 100_000, || time.get(), sleep, look, || false);
    assert_eq!((found.missed, found.looking_ns), (0, 250_000));
    assert_eq!(values(&found.waits), [(1, found.readings - 1), (found.waits.max(), 1)], "no other was late");
}

proptest! {
    #[test]
    fn time_is_lost_looked_or_free(steps in prop::collection::vec(0..200_000_u64, 1..200), threshold_ns in 0..100_000_u64) {
        let clock = script(&steps);
        let asked = Asked { threshold_ns, ..ASKED };
        let found = spin(&asked, &clock, Counts::default, || false);
        prop_assert!(found.lost_ns <= found.watched_ns);
        prop_assert!(found.watched_ns + found.looking_ns >= asked.duration_ns);
        prop_assert!(found.worst.is_sorted_by(|a, b| a.length_ns >= b.length_ns));
        prop_assert!(found.worst.iter().all(|worst| worst.length_ns > threshold_ns));
        prop_assert!(found.waits.max() <= found.gaps.unwrap().max().max(found.step_ns).max(1));
    }
}
