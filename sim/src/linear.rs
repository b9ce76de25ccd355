//! Whether what clients saw could come from one service that does one thing at a time.
//!
//! A history is linearizable where its operations have an order in which each has the effect and the answer that it had, and in which none
//! stands before another that was answered before it was asked for (Herlihy and Wing, TOPLAS 1990). There are two ways to tell:
//! [`check_order`], in n log n, for whoever knows the order, as everybody does who reads the log; and [`search`], for a short history of which
//! only questions and answers are known, by Wing and Gong's search with Lowe's memory of what was tried (CCPE 2017).
//!
//! Invariant: both are pure, and bounded by limits with names; a history that is too much is said to be so, never called good.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use ticktape_core::Nanos;

/// Operations in a history that is searched: what was done is a set of so many bits, and longer ones are rarely decided anyway.
pub const OPERATIONS_MAX: usize = 256;

/// Steps that one search may take: some seconds.
pub const STEPS_MAX: u64 = 2_000_000;

/// Sets and states that one search remembers: some tens of megabytes with a state that is small.
pub const MEMORIES_MAX: usize = 400_000;

/// An operation, where the order is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When its client sent it first.
    pub called_ns: Nanos,
    /// When anybody saw its effect: its answer, its acknowledgement, whatever was first.
    pub returned_ns: Option<Nanos>,
    /// Where it stands, if it does.
    pub place: Option<u64>,
}

/// Why an order is no linearization. Operations go by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// It was answered, and stands nowhere.
    Lost(usize),
    /// It was answered before it was asked for.
    Foreseen(usize),
    /// Two stand in one place.
    Shared(usize, usize),
    /// The first was answered before the second was asked for, and stands behind it.
    Overtaken(usize, usize),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderError::Lost(it) => write!(f, "operation {it} was answered and stands nowhere"),
            OrderError::Foreseen(it) => write!(f, "operation {it} was answered before it was asked for"),
            OrderError::Shared(one, other) => write!(f, "operations {one} and {other} stand in one place"),
            OrderError::Overtaken(first, second) => {
                write!(f, "operation {first} was answered before {second} was asked for, and stands behind it")
            }
        }
    }
}

/// Whether the order in which operations stand respects the time in which they were asked for and answered. Those without an answer may stand
/// anywhere after they were asked for, or nowhere. What happens at the same nanosecond happens at once.
///
/// # Errors
/// The operations that don't fit.
pub fn check_order(spans: &[Span]) -> Result<(), OrderError> {
    let is_foreseen = |span: &Span| span.returned_ns.is_some_and(|returned_ns| returned_ns < span.called_ns);
    if let Some(index) = spans.iter().position(is_foreseen) {
        return Err(OrderError::Foreseen(index));
    }
    if let Some(index) = spans.iter().position(|span| span.returned_ns.is_some() && span.place.is_none()) {
        return Err(OrderError::Lost(index));
    }
    let placed = || spans.iter().enumerate().filter_map(|(index, span)| Some((span.place?, index)));
    // Who reads them off a log has them in order.
    if placed().is_sorted_by(|(before, _), (place, _)| before < place) {
        return check_overtaken(spans, placed().rev().map(|(_, index)| index));
    }
    let mut placed: Vec<(u64, usize)> = placed().collect();
    placed.sort_unstable();
    if let Some(pair) = placed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(OrderError::Shared(pair[0].1, pair[1].1));
    }
    check_overtaken(spans, placed.iter().rev().map(|&(_, index)| index))
}

/// The same of those that have a place, each in one of its own, from the last to the first.
fn check_overtaken(spans: &[Span], from_the_end: impl Iterator<Item = usize>) -> Result<(), OrderError> {
    // Of all that stand behind, the one that was answered first.
    let mut earliest: Option<(Nanos, usize)> = None;
    for index in from_the_end {
        if let Some((returned_ns, behind)) = earliest
            && returned_ns < spans[index].called_ns
        {
            return Err(OrderError::Overtaken(behind, index));
        }
        let own = spans[index].returned_ns.map(|returned_ns| (returned_ns, index));
        earliest = [earliest, own].into_iter().flatten().min();
    }
    Ok(())
}

/// What one service does that does one thing at a time.
pub trait Model {
    /// What it is in.
    type State: Clone + Eq + Hash;
    /// What it is asked.
    type Input;
    /// What it answers.
    type Output;

    /// Where it begins.
    fn begin(&self) -> Self::State;

    /// The state after `input`; none where it would not answer so. Without an answer any would do.
    fn step(&self, state: &Self::State, input: &Self::Input, output: Option<&Self::Output>) -> Option<Self::State>;
}

/// An operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<I, O> {
    /// When its client sent it.
    pub called_ns: Nanos,
    /// When the answer came, and what it was. Without one it may have been done or not.
    pub returned: Option<(Nanos, O)>,
    /// What was asked.
    pub input: I,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One order in which all of it could have been done, by index.
    Linearizable(Vec<usize>),
    /// There is none; this is as far as one comes.
    Violated(Vec<usize>),
    /// It was too much, and nothing is known.
    Undecided(TooMuch),
}

/// What was too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// More operations than [`OPERATIONS_MAX`].
    Operations(usize),
    /// More steps than [`STEPS_MAX`].
    Steps,
    /// More to remember than [`MEMORIES_MAX`].
    Memories,
}

/// Searches for an order of the operations in which `model` answers as they were answered.
pub fn search<M: Model>(model: &M, history: &[Operation<M::Input, M::Output>]) -> Verdict {
    if history.len() > OPERATIONS_MAX {
        return Verdict::Undecided(TooMuch::Operations(history.len()));
    }
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|&index| history[index].called_ns);
    let is_answered = |index: &&usize| history[**index].returned.is_some();
    let answered = order.iter().filter(is_answered).count();
    let mut search = Search { model, history, order, answered, tried: HashSet::new(), longest: Vec::new(), steps: 0 };
    search.run()
}

/// Which operations are done.
type Done = [u64; OPERATIONS_MAX / 64];

struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [Operation<M::Input, M::Output>],
    /// The operations by when they were asked for.
    order: Vec<usize>,
    answered: usize,
    tried: HashSet<(Done, M::State)>,
    longest: Vec<usize>,
    steps: u64,
}

/// A place in the search: a state, and the next operation to try from it.
struct Level<S> {
    state: S,
    next: usize,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self) -> Verdict {
        let (mut done, mut path, mut answered): (Done, Vec<usize>, usize) = ([0; OPERATIONS_MAX / 64], Vec::new(), 0);
        let mut levels = vec![Level { state: self.model.begin(), next: 0 }];
        while let Some(level) = levels.last_mut() {
            if answered == self.answered {
                return Verdict::Linearizable(path);
            }
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Verdict::Undecided(TooMuch::Steps);
            }
            match self.next_step(&done, level) {
                None => {
                    levels.pop();
                    let Some(last) = path.pop() else { break };
                    done[last / 64] ^= 1 << (last % 64);
                    answered -= usize::from(self.history[last].returned.is_some());
                }
                Some((index, state)) => {
                    let mut with = done;
                    with[index / 64] |= 1 << (index % 64);
                    if !self.tried.insert((with, state.clone())) {
                        continue;
                    }
                    if self.tried.len() > MEMORIES_MAX {
                        return Verdict::Undecided(TooMuch::Memories);
                    }
                    done = with;
                    path.push(index);
                    answered += usize::from(self.history[index].returned.is_some());
                    if path.len() > self.longest.len() {
                        self.longest.clone_from(&path);
                    }
                    levels.push(Level { state, next: 0 });
                }
            }
        }
        Verdict::Violated(std::mem::take(&mut self.longest))
    }

    /// The next operation that may come now: it is not done, none that is not done was answered before it was asked for, and the model answers so.
    fn next_step(&self, done: &Done, level: &mut Level<M::State>) -> Option<(usize, M::State)> {
        let is_done = |index: usize| done[index / 64] >> (index % 64) & 1 == 1;
        let waiting = self.order.iter().filter(|&&index| !is_done(index));
        let first_answer = waiting.filter_map(|&index| self.history[index].returned.as_ref().map(|(at, _)| *at)).min();
        while level.next < self.order.len() {
            let index = self.order[level.next];
            let operation = &self.history[index];
            if first_answer.is_some_and(|at| at < operation.called_ns) {
                // So were all that were asked for later.
                return None;
            }
            level.next += 1;
            if is_done(index) {
                continue;
            }
            let output = operation.returned.as_ref().map(|(_, output)| output);
            if let Some(state) = self.model.step(&level.state, &operation.input, output) {
                return Some((index, state));
            }
        }
        None
    }
}
