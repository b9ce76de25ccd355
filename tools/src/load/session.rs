//! One client: sends what is due, times what is answered.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use ticktape::client::Client;
use ticktape::link::{Event, SendError};
use ticktape_nic::{Rx, Tx};
use ticktape_tuning::clock::SpinClock;

use super::empty_histogram;
use super::schedule::{Due, Part, Schedule};
use super::source::Source;

/// Sends between two looks at the socket, so that answers are not left lying.
const SENDS_PER_TURN_MAX: usize = 64;

/// Messages of a client that may be sent and not yet answered. More than a link keeps until they are acknowledged: answers come behind
/// acknowledgements.
const WAITING_MAX: usize = 64 << 10;

/// A message sent so much later than it was meant to be counts as late.
pub const LATE_NS: u64 = 1_000_000;

/// What happened to one part's messages.
#[derive(Clone, Debug, Default)]
pub struct PartTally {
    pub sent: u64,
    pub answered: u64,
    /// Those of them that were answered before the part was over.
    pub in_time: u64,
    /// Answers to later ones came first: the service does not answer these.
    pub silent: u64,
    /// Never answered, or never even sent.
    pub lost: u64,
    /// Where there are several parts.
    pub latency: Option<Histogram<u64>>,
}

/// What all clients have come to.
pub struct Tally {
    parts: Vec<Part>,
    pub by_part: Vec<PartTally>,
    /// Answers since the last cut, of messages that count.
    pub interval: Histogram<u64>,
    /// The same of the warm-up's.
    pub warm: Histogram<u64>,
    pub sent: u64,
    pub answered: u64,
    pub late_sends: u64,
    pub late_max_ns: u64,
    /// Answers that fit no message that was sent.
    pub stray: u64,
    /// When the last message that counts was answered.
    pub last_answer_ns: u64,
}

impl Tally {
    /// Nothing yet.
    pub fn new(parts: &[Part]) -> Self {
        let several = parts.iter().filter(|part| part.is_measured).count() > 1;
        let tally = |part: &Part| PartTally {
            latency: (several && part.is_measured).then(empty_histogram),
            ..PartTally::default()
        };
        Tally {
            parts: parts.to_vec(),
            by_part: parts.iter().map(tally).collect(),
            interval: empty_histogram(),
            warm: empty_histogram(),
            sent: 0,
            answered: 0,
            late_sends: 0,
            late_max_ns: 0,
            stray: 0,
            last_answer_ns: 0,
        }
    }

    fn send(&mut self, due: Due, now_ns: u64) {
        self.sent += 1;
        self.by_part[due.part].sent += 1;
        let late_ns = now_ns.saturating_sub(due.at_ns);
        if self.parts[due.part].is_measured {
            self.late_sends += u64::from(late_ns >= LATE_NS);
            self.late_max_ns = self.late_max_ns.max(late_ns);
        }
    }

    fn answer(&mut self, due: Due, now_ns: u64) {
        self.answered += 1;
        self.by_part[due.part].answered += 1;
        self.by_part[due.part].in_time += u64::from(now_ns < self.parts[due.part].to_ns);
        self.record(due, now_ns);
    }

    /// Never answered: counts as the time that it has waited so far, so that losing messages does not better the tail.
    pub fn lose(&mut self, due: Due, now_ns: u64) {
        self.by_part[due.part].lost += 1;
        self.record(due, now_ns);
    }

    fn record(&mut self, due: Due, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(due.at_ns).max(1);
        if self.parts[due.part].is_measured {
            self.last_answer_ns = now_ns;
            self.interval.saturating_record(latency_ns);
        } else {
            self.warm.saturating_record(latency_ns);
        }
        if let Some(latency) = &mut self.by_part[due.part].latency {
            latency.saturating_record(latency_ns);
        }
    }
}

/// The time since the run's begin.
pub struct Clock {
    pub clock: SpinClock,
    /// 0 before it has begun.
    pub begun_ns: u64,
}

impl Clock {
    /// Now, on the system's clock, and since the begin.
    pub fn now(&mut self) -> (u64, u64) {
        let now = self.clock.now_ns();
        (now, now.saturating_sub(self.begun_ns))
    }
}

/// One client.
pub struct Session<R: Rx, T: Tx> {
    client: Client<R, T>,
    schedule: Schedule,
    source: Source,
    /// The next message, once it is due.
    encoded: Vec<u8>,
    answers: Answers,
}

/// What events change.
struct Answers {
    is_open: bool,
    over: Option<String>,
    /// Sent and not answered, in order.
    waiting: VecDeque<Due>,
    /// The number of the first of them.
    first: u64,
    resyncs: u64,
}

impl<R: Rx, T: Tx> Session<R, T> {
    /// A client that has not said anything yet.
    pub fn new(client: Client<R, T>, schedule: Schedule, source: Source) -> Self {
        let waiting = VecDeque::with_capacity(WAITING_MAX);
        let answers = Answers { is_open: false, over: None, waiting, first: 1, resyncs: 0 };
        Session { client, schedule, source, encoded: Vec::with_capacity(4096), answers }
    }

    /// Whether the appliance has let it in.
    pub fn is_open(&self) -> bool {
        self.answers.is_open
    }

    /// Why it is over, if it is.
    pub fn over(&self) -> Option<&str> {
        self.answers.over.as_deref()
    }

    /// Whether there is nothing left to send, no answer to wait for, and no acknowledgement.
    pub fn is_done(&self) -> bool {
        self.schedule.due().is_none() && self.answers.waiting.is_empty() && self.client.link().is_drained()
    }

    /// Whether anything is due, or waits for its answer.
    pub fn is_behind(&self, now_ns: u64) -> bool {
        let is_due = self.schedule.due().is_some_and(|due| due.at_ns <= now_ns);
        is_due || !self.answers.waiting.is_empty() || !self.client.link().is_drained()
    }

    /// Messages sent and not answered.
    pub fn in_flight(&self) -> u64 {
        self.answers.waiting.len() as u64
    }

    /// Messages that are committed.
    pub fn acked(&self) -> u64 {
        self.client.link().acked_next() - 1
    }

    /// Messages sent again.
    pub fn resent(&self) -> u64 {
        self.client.link().resent_messages()
    }

    /// Times that events were lost.
    pub fn resyncs(&self) -> u64 {
        self.answers.resyncs
    }

    /// One duty cycle. Returns the work done.
    pub fn turn(&mut self, clock: &mut Clock, tally: &mut Tally) -> usize {
        let sent = if clock.begun_ns > 0 { self.send_due(clock, tally) } else { 0 };
        let (now, _) = clock.now();
        let answers = &mut self.answers;
        if sent > 0 {
            self.client.transmit(now);
        }
        sent + self.client.poll(now, |event| answers.on_event(&event, clock, tally))
    }

    /// Hands what is due to the link, which takes it or does not.
    fn send_due(&mut self, clock: &mut Clock, tally: &mut Tally) -> usize {
        let mut sent = 0;
        let (_, now_ns) = clock.now();
        while sent < SENDS_PER_TURN_MAX && self.answers.waiting.len() < WAITING_MAX {
            let Some(due) = self.schedule.due().filter(|due| due.at_ns <= now_ns) else { break };
            if self.encoded.is_empty() && !self.source.next(&mut self.encoded) {
                self.schedule.end();
                break;
            }
            match self.client.send(&self.encoded) {
                Ok(_) => {}
                Err(SendError::Full) => break,
                Err(error) => {
                    self.answers.over.get_or_insert_with(|| error.to_string());
                    break;
                }
            }
            self.encoded.clear();
            self.answers.waiting.push_back(due);
            tally.send(due, now_ns);
            self.schedule.advance();
            sent += 1;
        }
        sent
    }

    /// Nothing that is due from now on is sent any more.
    pub fn cut(&mut self, now_ns: u64) {
        self.schedule.cut(now_ns);
    }

    /// Says good-bye, and counts what is not answered, and what was due and never sent, as lost.
    pub fn finish(&mut self, now: u64, now_ns: u64, tally: &mut Tally) {
        self.client.close(now);
        self.answers.waiting.drain(..).for_each(|due| tally.lose(due, now_ns));
        while let Some(due) = self.schedule.due().filter(|due| due.at_ns <= now_ns) {
            tally.lose(due, now_ns);
            self.schedule.advance();
        }
    }
}

impl Answers {
    fn on_event(&mut self, event: &Event<'_>, clock: &mut Clock, tally: &mut Tally) {
        match event {
            Event::Output { message, .. } => self.on_output(message.client_seq, clock, tally),
            Event::Opened { .. } => self.is_open = true,
            Event::Closed(reason) => self.over = Some(reason.to_string()),
            // Before the first message it is the session's past, which nobody here has seen.
            Event::Resync { .. } => self.resyncs += u64::from(tally.sent > 0),
            Event::Acked { .. } | Event::Disconnected => {}
        }
    }

    /// The first output for a message is its answer.
    fn on_output(&mut self, client_seq: u64, clock: &mut Clock, tally: &mut Tally) {
        // Others' doing, or more of what was answered.
        let Some(ahead) = client_seq.checked_sub(self.first) else { return };
        if ahead >= self.waiting.len() as u64 {
            tally.stray += 1;
            return;
        }
        for due in self.waiting.drain(..ahead as usize) {
            tally.by_part[due.part].silent += 1;
        }
        let due = self.waiting.pop_front().expect("it is among those that wait");
        self.first = client_seq + 1;
        let (_, now_ns) = clock.now();
        tally.answer(due, now_ns);
    }
}
