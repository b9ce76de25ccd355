//! The stages as a runner sees them: the plain structs, with their part in a stop.

use std::time::Duration;

use ticktape_core::{Nanos, Seq, Service, Timestamp};
use ticktape_journal::Disk;
use ticktape_nic::{Rx, Tx};
use ticktape_shm::Consumer;
use ticktape_shm::metrics::Kind;
use ticktape_tuning::clock;

use super::exporter::{COUNTER, LEVEL};
use super::plan::StageName;
use super::stage::{Lifecycle, Stage, StageReport};
use crate::egress::Egress;
use crate::events::{EventSink, LINGER_MAX_NS};
use crate::executor::Executor;
use crate::feed::{LogPublisher, Publisher};
use crate::journaler::Journaler;
use crate::sequencer::Sequencer;
use crate::shadow::Covered;

/// How long a stop waits for datagrams that the network does not take. Their contents are safe in the journal.
const FLUSH_PATIENCE_NS: u64 = 200_000_000;

/// How long frames may wait for space on the disk before the appliance gives up: long enough for an operator's or a
/// housekeeper's deletion that is under way, short enough that clients learn of it.
const SPACE_PATIENCE_NS: u64 = 2_000_000_000;

/// The sequencer, and the end of its input.
pub struct SequencerStage<R: Rx> {
    sequencer: Sequencer<R>,
    lifecycle: Lifecycle,
}

impl<R: Rx> SequencerStage<R> {
    /// A stage that takes datagrams until the lifecycle drains.
    pub fn new(sequencer: Sequencer<R>, lifecycle: Lifecycle) -> Self {
        SequencerStage { sequencer, lifecycle }
    }
}

impl<R: Rx + Send> Stage for SequencerStage<R> {
    fn name(&self) -> StageName {
        StageName::Sequencer
    }

    #[inline]
    fn poll(&mut self, now: Nanos) -> usize {
        if self.lifecycle.draining() {
            if self.lifecycle.final_seq().is_none() {
                self.lifecycle.set_final_seq(Seq(self.sequencer.next_seq().0 - 1));
            }
            return 0;
        }
        self.sequencer.poll(now)
    }

    fn housekeeping(&mut self, now: Nanos) {
        self.sequencer.housekeeping(Timestamp(clock::realtime_ns()), now);
        if !self.lifecycle.draining() {
            self.sequencer.mark(now);
        }
    }

    fn drained(&mut self, _now: Nanos) -> bool {
        self.lifecycle.final_seq().is_some()
    }

    fn close(self: Box<Self>) -> Result<StageReport, String> {
        let mut report = StageReport::of(&*self);
        report.counters.extend(self.sequencer.rx_details());
        report.push_latencies("sequenced", "wire_in", self.sequencer.latency());
        Ok(report)
    }

    fn figures(&self, tell: &mut dyn FnMut(&'static str, Kind, u64)) {
        let counters = self.sequencer.counters();
        tell("seq", LEVEL, self.sequencer.next_seq().0 - 1);
        for (name, value) in [
            ("commands", counters.commands),
            ("ticks", counters.ticks),
            ("marks", counters.marks),
            ("stamped_by_kernel", counters.stamped_by_kernel),
            ("clock_jumps", self.sequencer.clock_jumps()),
            ("commands_too_long", counters.commands_too_long),
            ("control_full", counters.control_full),
        ] {
            tell(name, COUNTER, value);
        }
        counters.link.all().for_each(|(reason, times)| tell(reason.name(), COUNTER, times));
        self.sequencer.rx_counters().rows().for_each(|(name, times)| tell(name, COUNTER, times));
    }
}

/// The journaler.
pub struct JournalerStage<D: Disk> {
    journaler: Journaler<D>,
    lifecycle: Lifecycle,
    starved_since: Option<Nanos>,
    /// What snapshots make dispensable, where that is to be given up.
    covered: Option<Covered>,
}

impl<D: Disk> JournalerStage<D> {
    /// A stage that journals until the last seq is durable.
    pub fn new(journaler: Journaler<D>, lifecycle: Lifecycle) -> Self {
        JournalerStage { journaler, lifecycle, starved_since: None, covered: None }
    }

    /// Gives up the log up to what is `covered`.
    pub fn compact_to(&mut self, covered: Covered) {
        self.covered = Some(covered);
    }
}

impl<D: Disk + Send> Stage for JournalerStage<D> {
    fn name(&self) -> StageName {
        StageName::Journaler
    }

    #[inline]
    fn poll(&mut self, now: Nanos) -> usize {
        let work = self.journaler.poll(now);
        if let Some(error) = self.journaler.failed()
            && !self.lifecycle.failed()
        {
            self.lifecycle.fail(format!("journal: {error}"));
        }
        work
    }

    fn housekeeping(&mut self, now: Nanos) {
        if let Some(covered) = &self.covered {
            self.journaler.release_before(covered.get().next());
        }
        self.journaler.housekeeping(now);
        let Some(error) = self.journaler.starved() else {
            self.starved_since = None;
            return;
        };
        let since = *self.starved_since.get_or_insert(now);
        if now.saturating_sub(since) >= SPACE_PATIENCE_NS && !self.lifecycle.failed() {
            self.lifecycle.fail(format!("journal: {error}"));
        }
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.journaler.wait_at_most(timeout)
    }

    fn drained(&mut self, _now: Nanos) -> bool {
        self.lifecycle.final_seq().is_some_and(|last| self.journaler.durable() >= last)
    }

    fn close(self: Box<Self>) -> Result<StageReport, String> {
        let mut report = StageReport::of(&*self);
        let journal = self.journaler.journal();
        if let Some(calibration) = journal.calibration() {
            report.counters.extend(calibration.figures());
        }
        report.facts.push(("journal_strategy", journal.strategy().to_string()));
        report.facts.push(("journal", journal.describe()));
        let latency = self.journaler.close().map_err(|error| format!("journal: {error}"))?;
        report.push_latencies("durable", "", &latency);
        Ok(report)
    }

    fn figures(&self, tell: &mut dyn FnMut(&'static str, Kind, u64)) {
        let stats = self.journaler.journal().stats();
        tell("durable_seq", LEVEL, self.journaler.durable().0);
        tell("journal_bytes", COUNTER, stats.bytes);
        tell("journal_commits", COUNTER, stats.commits);
        tell("journal_demotions", COUNTER, stats.demotions);
    }
}

/// The executor.
pub struct ExecutorStage<S: Service> {
    executor: Executor<S>,
    lifecycle: Lifecycle,
}

impl<S: Service> ExecutorStage<S> {
    /// A stage that applies until the last seq is applied.
    pub fn new(executor: Executor<S>, lifecycle: Lifecycle) -> Self {
        ExecutorStage { executor, lifecycle }
    }
}

impl<S: Service> Stage for ExecutorStage<S>
where
    S: Send,
    S::Output: Send,
{
    fn name(&self) -> StageName {
        StageName::Executor
    }

    #[inline]
    fn poll(&mut self, now: Nanos) -> usize {
        let applied = self.executor.poll(now);
        if let Some(error) = self.executor.failed()
            && !self.lifecycle.failed()
        {
            self.lifecycle.fail(error.to_string());
        }
        applied
    }

    fn housekeeping(&mut self, _now: Nanos) {}

    fn drained(&mut self, _now: Nanos) -> bool {
        let has_applied = self.lifecycle.final_seq().is_some_and(|last| self.executor.machine().applied() >= last);
        let done = has_applied && self.executor.has_told_progress();
        if done {
            self.lifecycle.set_final_record(Seq(self.executor.next_record().0 - 1));
        }
        done
    }

    fn close(self: Box<Self>) -> Result<StageReport, String> {
        let mut report = StageReport::of(&*self);
        let (machine, latency) = self.executor.into_parts();
        report.facts.push(("digest", machine.digest()));
        report.push_latencies("applied", "", &latency);
        Ok(report)
    }

    fn figures(&self, tell: &mut dyn FnMut(&'static str, Kind, u64)) {
        let machine = self.executor.machine();
        tell("applied_seq", LEVEL, machine.applied().0);
        tell("malformed_commands", COUNTER, machine.malformed());
    }
}

/// The multicast publisher: log frames as MoldUDP64. Without a feed it only keeps up.
pub struct PublisherStage<T: Tx> {
    publisher: LogPublisher<T>,
    lifecycle: Lifecycle,
    give_up_at: Option<Nanos>,
}

impl<T: Tx> PublisherStage<T> {
    /// A stage that publishes what `frames` delivers.
    pub fn new(frames: Consumer, feed: Option<(Publisher, T)>, lifecycle: Lifecycle) -> Self {
        PublisherStage { publisher: LogPublisher::new(frames, feed), lifecycle, give_up_at: None }
    }

    fn has_passed_all(&self) -> bool {
        self.lifecycle.final_seq().is_some_and(|last| self.publisher.next_seq() > last)
    }
}

impl<T: Tx + Send> Stage for PublisherStage<T> {
    fn name(&self) -> StageName {
        StageName::Publisher
    }

    #[inline]
    fn poll(&mut self, now: Nanos) -> usize {
        self.publisher.poll(now)
    }

    fn housekeeping(&mut self, now: Nanos) {
        if self.has_passed_all() {
            self.publisher.end(now);
        } else {
            self.publisher.housekeeping(now);
        }
    }

    fn drained(&mut self, now: Nanos) -> bool {
        if !self.has_passed_all() {
            return false;
        }
        let give_up_at = *self.give_up_at.get_or_insert(now + FLUSH_PATIENCE_NS);
        self.publisher.has_ended() || now >= give_up_at
    }

    fn close(self: Box<Self>) -> Result<StageReport, String> {
        Ok(StageReport::of(&*self))
    }

    fn figures(&self, tell: &mut dyn FnMut(&'static str, Kind, u64)) {
        tell("published_seq", LEVEL, self.publisher.next_seq().0 - 1);
        if let Some((publisher, tx)) = self.publisher.feed() {
            let counters = publisher.counters();
            tell("feed_packets", COUNTER, counters.packets);
            tell("feed_messages", COUNTER, counters.messages);
            tell("feed_blocked", COUNTER, counters.blocked);
            tx.counters().rows().for_each(|(name, times)| tell(name, COUNTER, times));
        }
    }
}

/// The egress.
pub struct EgressStage<T: Tx, E: EventSink> {
    egress: Egress<T, E>,
    lifecycle: Lifecycle,
    give_up_at: Option<Nanos>,
}

impl<T: Tx, E: EventSink> EgressStage<T, E> {
    /// A stage that releases until the last record is released.
    pub fn new(egress: Egress<T, E>, lifecycle: Lifecycle) -> Self {
        EgressStage { egress, lifecycle, give_up_at: None }
    }
}

impl<T: Tx + Send, E: EventSink + Send> Stage for EgressStage<T, E> {
    fn name(&self) -> StageName {
        StageName::Egress
    }

    #[inline]
    fn poll(&mut self, now: Nanos) -> usize {
        self.egress.poll(now)
    }

    fn housekeeping(&mut self, now: Nanos) {
        self.egress.housekeeping(now);
    }

    fn drained(&mut self, now: Nanos) -> bool {
        if !self.lifecycle.final_record().is_some_and(|last| self.egress.released(last)) {
            return false;
        }
        if self.give_up_at.is_none() {
            // Clients need not wait for those who may ask for events.
            self.egress.bye();
        }
        let give_up_at = *self.give_up_at.get_or_insert(now + FLUSH_PATIENCE_NS + LINGER_MAX_NS);
        self.egress.end_events(now) || now >= give_up_at
    }

    fn close(mut self: Box<Self>) -> Result<StageReport, String> {
        self.egress.bye();
        let mut report = StageReport::of(&*self);
        report.counters.extend(self.egress.event_counters());
        report.counters.push(("resent_messages", self.egress.counters().resent));
        report.counters.extend(self.egress.tx_details());
        report.push_latencies("released", "wire_out", self.egress.latency());
        Ok(report)
    }

    fn figures(&self, tell: &mut dyn FnMut(&'static str, Kind, u64)) {
        let counters = self.egress.own_counters();
        tell("released_seq", LEVEL, self.egress.released_seq().0);
        tell("released_outputs", COUNTER, counters.released);
        tell("slow_sessions", COUNTER, counters.slow);
        counters.link.all().for_each(|(reason, times)| tell(reason.name(), COUNTER, times));
        self.egress.tx_counters().rows().for_each(|(name, times)| tell(name, COUNTER, times));
    }
}
