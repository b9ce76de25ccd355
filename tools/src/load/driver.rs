//! The measuring thread: all clients by turns, an interval a second, and how it ends.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use hdrhistogram::Histogram;
use ticktape::pipeline::{IdleStrategy, Idler};
use ticktape_nic::{Rx, Tx};
use ticktape_tuning::clock::SpinClock;
use ticktape_tuning::pin;

use super::empty_histogram;
use super::schedule::Plan;
use super::session::{Clock, PartTally, Session, Tally};

/// Without any answer for so long, while some are due, a run gives up.
const PATIENCE_NS: u64 = 10_000_000_000;
/// The same once the user wants no more.
const PATIENCE_INTERRUPTED_NS: u64 = 1_000_000_000;
/// How long an interval is.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Between the handshakes and the first message: what it takes to get going is no latency.
const LEAD_NS: u64 = 10_000_000;

/// An interval, for whoever tells of it. Times are since the begin.
pub struct Second {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Which part it lies in, or begins in.
    pub part: usize,
    pub is_measured: bool,
    pub latency: Histogram<u64>,
    pub sent: u64,
    pub answered: u64,
    pub acked: u64,
    pub in_flight: u64,
}

/// How a run went.
pub struct Ended {
    pub by_part: Vec<PartTally>,
    pub end: End,
    /// When the last message that counts was answered, after the begin.
    pub last_answer_ns: u64,
    /// When it was over.
    pub ended_ns: u64,
    pub acked: u64,
    pub resent: u64,
    pub resyncs: u64,
    pub stray: u64,
    pub late_sends: u64,
    pub late_max_ns: u64,
}

/// Why it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All was sent and answered, or was given up waiting for.
    Complete,
    /// The user wanted no more.
    Interrupted,
    /// No answer for too long.
    Silence,
    /// A link is over: why.
    Over(String),
    /// Not all clients were let in, so nothing was measured: why.
    NotOpened(String),
}

/// What the measuring thread is told.
pub struct Setup {
    pub plan: Arc<Plan>,
    pub idle: IdleStrategy,
    pub core: Option<usize>,
    pub interrupted: Arc<AtomicBool>,
    /// Where intervals go, and empty histograms come back from.
    pub seconds: Sender<Second>,
    pub spare: Receiver<Histogram<u64>>,
}

/// All clients.
pub struct Driver<R: Rx, T: Tx> {
    setup: Setup,
    sessions: Vec<Session<R, T>>,
    clock: Clock,
    idler: Idler,
    tally: Tally,
    cut: Cut,
    is_interrupted: bool,
}

/// Where the current interval began.
#[derive(Clone, Copy, Default)]
struct Cut {
    at_ns: u64,
    next_ns: u64,
    sent: u64,
    answered: u64,
    acked: u64,
}

impl<R: Rx, T: Tx> Driver<R, T> {
    /// Over clients that have not said anything yet. Make it on the thread that runs it.
    pub fn new(setup: Setup, sessions: Vec<Session<R, T>>) -> Self {
        // Refused, both cost precision, nothing else.
        let _ = pin::sleep_precisely();
        let _ = setup.core.map(pin::pin_current_thread);
        let clock = if setup.idle == IdleStrategy::Spin { SpinClock::new() } else { SpinClock::system() };
        let tally = Tally::new(&setup.plan.parts);
        Driver {
            idler: Idler::new(setup.idle),
            setup,
            sessions,
            clock: Clock { clock, begun_ns: 0 },
            tally,
            cut: Cut::default(),
            is_interrupted: false,
        }
    }

    /// From the handshakes to the last answer.
    pub fn run(mut self) -> Ended {
        if let Err(end) = self.connect() {
            return self.ended(end);
        }
        self.clock.begun_ns = self.clock.now().0 + LEAD_NS;
        self.cut.next_ns = self.interval_end(0);
        let end = self.measure();
        let (now, now_ns) = self.clock.now();
        for session in &mut self.sessions {
            session.finish(now, now_ns, &mut self.tally);
        }
        self.cut_interval(now_ns);
        self.ended(end)
    }

    fn connect(&mut self) -> Result<(), End> {
        let give_up_at = self.clock.now().0 + PATIENCE_NS;
        while !self.sessions.iter().all(Session::is_open) {
            let work = self.turn();
            if let Some(reason) = self.sessions.iter().find_map(Session::over) {
                return Err(End::NotOpened(reason.to_string()));
            }
            if self.setup.interrupted.load(Ordering::Relaxed) {
                return Err(End::NotOpened("interrupted before the appliance answered".to_string()));
            }
            if self.clock.now().0 > give_up_at {
                let open = self.sessions.iter().filter(|session| session.is_open()).count();
                let all = self.sessions.len();
                let seconds = PATIENCE_NS / 1_000_000_000;
                return Err(End::NotOpened(format!(
                    "nobody answers: {open} of {all} clients were let in within {seconds} s"
                )));
            }
            self.idler.after_round(work);
        }
        Ok(())
    }

    fn turn(&mut self) -> usize {
        let (clock, tally) = (&mut self.clock, &mut self.tally);
        self.sessions.iter_mut().map(|session| session.turn(clock, tally)).sum()
    }

    fn measure(&mut self) -> End {
        let mut heard = (self.tally.answered, self.clock.now().1);
        loop {
            let work = self.turn();
            let (_, now_ns) = self.clock.now();
            if now_ns >= self.cut.next_ns {
                self.cut_interval(now_ns);
            }
            if self.tally.answered > heard.0 {
                heard = (self.tally.answered, now_ns);
            } else if work == 0
                && let Some(end) = self.look(now_ns, &mut heard)
            {
                return end;
            }
            if !self.is_interrupted && self.setup.interrupted.load(Ordering::Relaxed) {
                self.is_interrupted = true;
                self.sessions.iter_mut().for_each(|session| session.cut(now_ns));
            }
            self.idler.after_round(work);
        }
    }

    /// Nothing happened in this round: whether that is the end.
    fn look(&mut self, now_ns: u64, heard: &mut (u64, u64)) -> Option<End> {
        if let Some(reason) = self.sessions.iter().find_map(Session::over) {
            return Some(End::Over(reason.to_string()));
        }
        if self.sessions.iter().all(Session::is_done) {
            return Some(if self.is_interrupted { End::Interrupted } else { End::Complete });
        }
        if !self.sessions.iter().any(|session| session.is_behind(now_ns)) {
            heard.1 = now_ns;
        }
        let patience = if self.is_interrupted { PATIENCE_INTERRUPTED_NS } else { PATIENCE_NS };
        if now_ns.saturating_sub(heard.1) <= patience {
            return None;
        }
        Some(if self.is_interrupted { End::Interrupted } else { End::Silence })
    }

    /// Where the interval that begins at `from_ns` ends: after a second, or where what counts begins.
    fn interval_end(&self, from_ns: u64) -> u64 {
        let (end, begin) = (from_ns + INTERVAL_NS, self.setup.plan.measured_from_ns());
        if from_ns < begin { end.min(begin) } else { end }
    }

    fn cut_interval(&mut self, now_ns: u64) {
        let next = self.setup.spare.try_recv().unwrap_or_else(|_| empty_histogram());
        let acked = self.sessions.iter().map(Session::acked).sum();
        let from = self.cut;
        let is_measured = from.at_ns >= self.setup.plan.measured_from_ns();
        let told = if is_measured { &mut self.tally.interval } else { &mut self.tally.warm };
        let latency = mem::replace(told, next);
        // An interval that is cut late ends where it is cut; the next one ends on the grid again.
        let mut next_ns = from.next_ns;
        while next_ns <= now_ns {
            next_ns = self.interval_end(next_ns);
        }
        let second = Second {
            from_ns: from.at_ns,
            to_ns: now_ns,
            part: self.setup.plan.parts.iter().rposition(|part| part.from_ns <= from.at_ns).unwrap_or(0),
            is_measured,
            latency,
            sent: self.tally.sent - from.sent,
            answered: self.tally.answered - from.answered,
            acked: acked - from.acked,
            in_flight: self.sessions.iter().map(Session::in_flight).sum(),
        };
        self.cut = Cut { at_ns: now_ns, next_ns, sent: self.tally.sent, answered: self.tally.answered, acked };
        // Whoever tells of it may have gone; the run goes on to its end.
        let _ = self.setup.seconds.send(second);
    }

    fn ended(self, end: End) -> Ended {
        let sum = |of: fn(&Session<R, T>) -> u64| self.sessions.iter().map(of).sum();
        Ended {
            end,
            last_answer_ns: self.tally.last_answer_ns,
            ended_ns: self.cut.at_ns,
            acked: sum(Session::acked),
            resent: sum(Session::resent),
            resyncs: sum(Session::resyncs),
            stray: self.tally.stray,
            late_sends: self.tally.late_sends,
            late_max_ns: self.tally.late_max_ns,
            by_part: self.tally.by_part,
        }
    }
}
