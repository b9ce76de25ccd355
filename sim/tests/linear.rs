//! The history checkers, on histories made by hand and on all small ones that chance makes.

use ticktape_sim::Rng;
use ticktape_sim::linear::{
    MEMORIES_MAX, Model, OPERATIONS_MAX, Operation, OrderError, Span, TooMuch, Verdict, check_order, search,
};

/// One number that is written and read.
struct Register;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Write(u8),
    Read,
}

impl Model for Register {
    type State = u8;
    type Input = Do;
    type Output = u8;

    fn begin(&self) -> u8 {
        0
    }

    fn step(&self, state: &u8, input: &Do, output: Option<&u8>) -> Option<u8> {
        match *input {
            Do::Write(value) => Some(value),
            Do::Read => output.is_none_or(|read| read == state).then_some(*state),
        }
    }
}

/// A log that answers with the place an entry got.
struct Places;

impl Model for Places {
    type State = u64;
    type Input = ();
    type Output = u64;

    fn begin(&self) -> u64 {
        0
    }

    fn step(&self, state: &u64, (): &(), output: Option<&u64>) -> Option<u64> {
        output.is_none_or(|place| place == state).then_some(state + 1)
    }
}

fn write(value: u8, called_ns: u64, returned_ns: u64) -> Operation<Do, u8> {
    Operation { called_ns, returned: Some((returned_ns, value)), input: Do::Write(value) }
}

fn read(value: u8, called_ns: u64, returned_ns: u64) -> Operation<Do, u8> {
    Operation { called_ns, returned: Some((returned_ns, value)), input: Do::Read }
}

fn unanswered(input: Do, called_ns: u64) -> Operation<Do, u8> {
    Operation { called_ns, returned: None, input }
}

fn span(called_ns: u64, returned_ns: u64, place: u64) -> Span {
    Span { called_ns, returned_ns: Some(returned_ns), place: Some(place) }
}

#[test]
fn a_stale_read_is_found() {
    let history = [write(1, 0, 10), write(2, 20, 30), read(1, 40, 50)];
    assert_eq!(search(&Register, &history), Verdict::Violated(vec![0, 1]));
    // While the second write is under way, both are right.
    for value in [1, 2] {
        let history = [write(1, 0, 10), write(2, 20, 60), read(value, 40, 50)];
        assert!(matches!(search(&Register, &history), Verdict::Linearizable(_)), "{value}");
    }
}

#[test]
fn reads_that_go_back_are_found() {
    let history = [write(1, 0, 100), read(1, 10, 20), read(0, 30, 40)];
    assert!(matches!(search(&Register, &history), Verdict::Violated(_)));
    let history = [write(1, 0, 100), read(0, 10, 20), read(1, 30, 40)];
    assert_eq!(search(&Register, &history), Verdict::Linearizable(vec![1, 0, 2]));
}

#[test]
fn a_write_that_was_answered_and_is_lost_is_found() {
    let history = [write(1, 0, 10), read(0, 20, 30)];
    assert!(matches!(search(&Register, &history), Verdict::Violated(_)));
    // One that was not answered may be lost, or come late.
    let history = [unanswered(Do::Write(1), 0), read(0, 20, 30), read(1, 40, 50)];
    assert_eq!(search(&Register, &history), Verdict::Linearizable(vec![1, 0, 2]));
    let history = [unanswered(Do::Write(1), 0), read(0, 20, 30)];
    assert!(matches!(search(&Register, &history), Verdict::Linearizable(_)));
    // It does not come before it is asked for.
    let history = [unanswered(Do::Write(1), 35), read(1, 20, 30)];
    assert!(matches!(search(&Register, &history), Verdict::Violated(_)));
}

#[test]
fn nothing_is_linearizable() {
    assert_eq!(search(&Register, &[]), Verdict::Linearizable(Vec::new()));
    assert_eq!(check_order(&[]), Ok(()));
}

#[test]
fn an_order_that_keeps_to_real_time_is_good() {
    assert_eq!(check_order(&[span(0, 10, 7), span(11, 20, 8), span(5, 30, 9)]), Ok(()));
    assert_eq!(check_order(&[span(0, 10, 9), span(5, 20, 8)]), Ok(()), "they overlap");
    assert_eq!(check_order(&[span(0, 10, 9), span(10, 20, 8)]), Ok(()), "at once");
    let nowhere = Span { called_ns: 3, returned_ns: None, place: None };
    let late = Span { place: Some(4), ..nowhere };
    assert_eq!(check_order(&[nowhere, late, span(11, 20, 3)]), Ok(()));
}

#[test]
fn an_order_across_real_time_is_found() {
    assert_eq!(check_order(&[span(11, 20, 7), span(0, 10, 8)]), Err(OrderError::Overtaken(1, 0)));
    // Far apart, and through one that nobody answered.
    let open = Span { called_ns: 50, returned_ns: None, place: Some(1) };
    assert_eq!(check_order(&[open, span(0, 60, 2), span(0, 40, 3)]), Err(OrderError::Overtaken(2, 0)));
}

#[test]
fn an_answer_without_a_place_or_before_its_question_is_found() {
    let lost = Span { called_ns: 0, returned_ns: Some(5), place: None };
    assert_eq!(check_order(&[span(0, 1, 1), lost]), Err(OrderError::Lost(1)));
    assert_eq!(check_order(&[span(6, 5, 1)]), Err(OrderError::Foreseen(0)));
    assert_eq!(check_order(&[span(0, 9, 4), span(0, 9, 4)]), Err(OrderError::Shared(0, 1)));
    assert!(OrderError::Overtaken(3, 4).to_string().contains("answered before 4"));
}

#[test]
fn a_history_that_is_too_much_is_not_called_good() {
    let long: Vec<_> = (0..=OPERATIONS_MAX as u64).map(|at| write(1, at, at)).collect();
    assert_eq!(search(&Register, &long), Verdict::Undecided(TooMuch::Operations(OPERATIONS_MAX + 1)));
    // Everything at once, each write another value, and a read of what nobody wrote: every set of them would have to be tried.
    let mut wide: Vec<_> = (0..64).map(|value| write(value, 0, 1000)).collect();
    wide.push(read(200, 0, 1000));
    assert!(matches!(search(&Register, &wide), Verdict::Undecided(TooMuch::Steps | TooMuch::Memories)));
    const { assert!(MEMORIES_MAX < 1 << 20) };
}

#[test]
fn a_long_history_of_few_at_a_time_is_decided() {
    let mut rng = Rng::new(5);
    let mut value = 0;
    let history: Vec<_> = (0..OPERATIONS_MAX as u64)
        .map(|step| {
            // Each takes effect at its own moment, and four are under way at once.
            let (called_ns, returned_ns) = (step * 10 - rng.below(20).min(step * 10), step * 10 + rng.below(20));
            if rng.flip() {
                value = rng.below(5) as u8;
                write(value, called_ns, returned_ns)
            } else {
                read(value, called_ns, returned_ns)
            }
        })
        .collect();
    assert!(matches!(search(&Register, &history), Verdict::Linearizable(_)));
}

/// Whether any order of any set that has all answered operations would do, tried one by one.
fn by_force(history: &[Operation<Do, u8>]) -> bool {
    fn go(history: &[Operation<Do, u8>], done: u32, state: u8) -> bool {
        let is_waiting = |index: usize| done >> index & 1 == 0;
        let waits = |index: &usize| is_waiting(*index);
        if (0..history.len()).filter(waits).all(|index| history[index].returned.is_none()) {
            return true;
        }
        (0..history.len()).filter(waits).any(|index| {
            let operation = &history[index];
            let is_next = (0..history.len()).filter(waits).all(|other| {
                history[other].returned.as_ref().is_none_or(|&(returned_ns, _)| returned_ns >= operation.called_ns)
            });
            let output = operation.returned.as_ref().map(|(_, output)| output);
            let after = Register.step(&state, &operation.input, output).filter(|_| is_next);
            after.is_some_and(|state| go(history, done | 1 << index, state))
        })
    }
    go(history, 0, 0)
}

#[test]
fn the_search_finds_what_trying_everything_finds() {
    let mut rng = Rng::new(1);
    let mut found = [0; 2];
    for _ in 0..4000 {
        let history: Vec<_> = (0..rng.between(1, 6))
            .map(|_| {
                let called_ns = rng.below(12);
                let returned = rng.below(5) > 0;
                let input = if rng.flip() { Do::Write(rng.below(3) as u8) } else { Do::Read };
                let output = if let Do::Write(value) = input { value } else { rng.below(3) as u8 };
                Operation { called_ns, returned: returned.then_some((called_ns + rng.below(6), output)), input }
            })
            .collect();
        let verdict = search(&Register, &history);
        let is_fine = by_force(&history);
        assert_eq!(matches!(verdict, Verdict::Linearizable(_)), is_fine, "{history:?}: {verdict:?}");
        assert_eq!(matches!(verdict, Verdict::Violated(_)), !is_fine, "{history:?}: {verdict:?}");
        found[usize::from(is_fine)] += 1;
    }
    assert!(found.iter().all(|&times| times > 500), "{found:?}");
}

#[test]
fn the_known_order_is_judged_as_the_search_for_it() {
    let mut rng = Rng::new(2);
    let mut found = [0; 2];
    for _ in 0..4000 {
        let mut places: Vec<u64> = (0..rng.between(1, 6)).collect();
        if rng.flip() {
            rng.shuffle(&mut places);
        }
        let spans: Vec<Span> = (0u64..)
            .zip(&places)
            .map(|(at, &place)| {
                let called_ns = 3 * at + rng.below(6);
                Span { called_ns, returned_ns: Some(called_ns + rng.below(9)), place: Some(place) }
            })
            .collect();
        let operation = |span: &Span| {
            let returned = span.returned_ns.zip(span.place);
            Operation { called_ns: span.called_ns, returned, input: () }
        };
        let history: Vec<_> = spans.iter().map(operation).collect();
        let is_fine = check_order(&spans).is_ok();
        assert_eq!(matches!(search(&Places, &history), Verdict::Linearizable(_)), is_fine, "{spans:?}");
        found[usize::from(is_fine)] += 1;
    }
    assert!(found.iter().all(|&times| times > 500), "{found:?}");
}
