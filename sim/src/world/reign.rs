//! The box comes and goes: its starts, what is checked of each, and its ends.

use ticktape::link::Tier;
use ticktape::pipeline::StartError;
use ticktape::{Invariants, Seq, Service};
use ticktape_journal::JournalError;

use super::{BOX, SERVER, World};
use crate::disk::{DiskFaults, Loss};
use crate::history::check_histories;
use crate::host::{Boot, Host, STOP_LOSES_NOTHING, check_sealed, read_log_from};
use crate::ledger::Wrong;
use crate::rng::{Ppm, Rng, Seed};
use crate::trace::{What, Who};

/// Starts that may fail, one after the other, while faults go on.
const STARTS_MAX: u32 = 3;

/// The last frames of the order, among which are those that a start adds.
const NOTED_AGAIN: usize = 64;

impl<S, G> World<'_, S, G>
where
    S: Service + Invariants,
    G: FnMut(&mut Rng) -> S::Input,
{
    pub(super) fn start(&mut self, is_calm: bool) -> Result<(), Wrong> {
        self.starts += 1;
        let fuse = self.fate.chance(Ppm::percent(20)).then(|| self.fate.scaled(200));
        self.medium.set_fuse(self.script_fuse.take().or(fuse.filter(|_| !is_calm && self.sim.faults.power)));
        let boot = Boot {
            config: &self.appliance,
            service: self.service,
            network: &self.network,
            medium: &self.medium,
            clock: &self.clock,
            time: &self.time,
            queues: self.queues,
            seed: Seed(self.sim.seed).child("start", self.starts),
        };
        let errors = self.medium.counters().errors;
        let started = Host::<S>::start(&boot);
        let met_errors = self.medium.counters().errors > errors;
        let was_cut_off = self.medium.is_fuse_blown();
        self.medium.set_fuse(None);
        self.has_cut_off_starts |= started.is_err();
        match started {
            Ok(host) => {
                self.failed_starts = 0;
                self.begin(host)
            }
            Err(_) if was_cut_off => {
                self.network.close(SERVER);
                let loss = Loss::any(&mut self.fate);
                self.tell_fault("power", || format!("in recovery, {loss:?}"));
                self.medium.lose_power(loss);
                self.clock.reboot();
                self.meet("power lost in recovery", 1);
                Ok(())
            }
            Err(error) => self.failed_start(&error, met_errors, is_calm),
        }
    }

    /// A disk that fails or is full may keep a box from starting, for as long as it does.
    fn failed_start(&mut self, error: &StartError, met_errors: bool, is_calm: bool) -> Result<(), Wrong> {
        let is_disk = matches!(
            error,
            StartError::Journal(
                JournalError::Disk { .. } | JournalError::NoSpace { .. } | JournalError::WriteZero { .. }
            )
        );
        // So does one from which the snapshots can't be read now.
        let has_no_beginning =
            matches!(error, StartError::Journal(JournalError::SnapshotGap { .. } | JournalError::NoBeginning { .. }));
        let is_disk = is_disk || met_errors && has_no_beginning;
        let text = error.to_string();
        self.trace.tell(Who::Host(BOX), || What::StartFailed { why: text.clone() });
        if is_calm || !is_disk {
            return Err(("recovery is possible", text));
        }
        self.meet("start failed for the disk", 1);
        self.failed_starts += 1;
        if self.failed_starts >= STARTS_MAX {
            self.failed_starts = 0;
            self.medium.set_faults(DiskFaults::NONE);
            self.medium.set_capacity(1 << 30);
        }
        Ok(())
    }

    fn begin(&mut self, mut host: Host<S>) -> Result<(), Wrong> {
        let first = host.first;
        let mut found = std::mem::take(&mut self.read_back);
        read_log_from(&self.medium, &self.appliance.dir, first, host.recovered, &mut found)?;
        self.meet("recoveries", 1);
        self.meet("recoveries from a snapshot", u64::from(host.snapshot > Seq::ZERO));
        self.meet("snapshot fallbacks", u64::from(host.passed_over > 0));
        self.meet("recoveries that cut a torn tail", u64::from(host.cut));
        let (recovered, epoch, cut) = (host.recovered, host.epoch, host.cut);
        if let Some(stopped_at) = self.stopped_at.take()
            && (recovered < stopped_at || cut && !self.has_cut_off_starts)
        {
            let what = format!("stopped after {stopped_at}, recovered up to {recovered}, cut: {cut}");
            return Err((STOP_LOSES_NOTHING, what));
        }
        self.trace.tell(Who::Host(BOX), || What::Start { recovered: recovered.0, epoch, cut });
        let before = self.ledger.last();
        let left = self.ledger.recover(recovered, first, &found, self.has_cut_off_starts)?;
        self.read_back = found;
        let lost = before.0 - left.0;
        self.meet("frames lost, none of them acknowledged", lost);
        if lost > 0 && self.appliance.tier == Tier::Memory {
            self.meet("frames lost, as tier memory may", lost);
            self.ledger.lose(self.reign, left);
        }
        self.reign = epoch;
        self.retention.forget_after(left, self.service);
        self.replay.forget_after(left, self.service);
        self.fleet.forget_after(left, self.service);
        self.has_cut_off_starts = false;
        for customer in &self.customers {
            let told = customer.told.iter().find(|event| event.says.log_seq > recovered.0);
            if let Some(event) = told.filter(|event| !self.ledger.is_void(event)) {
                let what = format!(
                    "session {} was told of seq {}, recovered up to {recovered}",
                    customer.session, event.says.log_seq
                );
                return Err(("nothing leaves before it is committed", what));
            }
        }
        check_histories(&self.ledger, &self.customers)?;
        self.replay.go_to(self.ledger.frames(), recovered, self.service)?;
        let digest = self.replay.check_equals(host.machine())?;
        self.fold(digest);
        self.with_retention(|retention, frames, world| retention.check_start(world, frames, first))?;
        self.observe(&mut host)?;
        // Beginnings of reigns that nobody saw.
        self.ledger.frames().iter().rev().take(NOTED_AGAIN).for_each(|bytes| self.fleet.note(bytes));
        self.fleet.lead(host.led(&self.appliance.dir, &self.medium), &self.network);
        self.fold(recovered.0 ^ u64::from(epoch) << 32);
        self.host = Some(Box::new(host));
        Ok(())
    }

    pub(super) fn lose_power(&mut self) -> Result<(), Wrong> {
        let Some(host) = self.host.take() else { return Ok(()) };
        self.leave(&host)?;
        self.fleet.lose_leader(true, &self.network, &mut self.coverage);
        drop(host);
        self.network.close(SERVER);
        let loss = Loss::any(&mut self.fate);
        self.tell_fault("power", || format!("{loss:?}"));
        self.medium.lose_power(loss);
        self.clock.reboot();
        self.meet("power lost", 1);
        Ok(())
    }

    pub(super) fn kill(&mut self, why: &'static str) -> Result<(), Wrong> {
        let Some(host) = self.host.take() else { return Ok(()) };
        self.leave(&host)?;
        self.fleet.lose_leader(false, &self.network, &mut self.coverage);
        drop(host);
        self.network.close(SERVER);
        self.meet(why, 1);
        self.trace.tell(Who::Host(BOX), || What::Stop { why: why.to_string() });
        Ok(())
    }

    /// Asks the box to stop, which takes its time; whatever comes in between comes.
    pub(super) fn stop(&mut self) {
        if let Some(host) = &mut self.host {
            host.stop();
            self.tell_fault("stop", || "asked to stop".to_string());
        }
    }

    /// Ends a stop that has come to its end.
    pub(super) fn finish_stop(&mut self) -> Result<(), Wrong> {
        let Some(host) = self.host.take_if(|host| host.is_drained()) else { return Ok(()) };
        self.leave(&host)?;
        self.fleet.lose_leader(false, &self.network, &mut self.coverage);
        let last = self.ledger.last();
        let closed = host.close();
        self.network.close(SERVER);
        let why = match closed {
            Ok(()) => {
                check_sealed(&self.medium, &self.appliance.dir, last)?;
                self.stopped_at = Some(last);
                self.ledger.durable = last;
                self.meet("graceful stops", 1);
                "stopped and sealed".to_string()
            }
            Err(JournalError::Disk { .. } | JournalError::NoSpace { .. } | JournalError::WriteZero { .. }) => {
                self.meet("graceful stops that the disk failed", 1);
                "stopped, and could not be sealed".to_string()
            }
            Err(error) => return Err((STOP_LOSES_NOTHING, error.to_string())),
        };
        self.trace.tell(Who::Host(BOX), || What::Stop { why });
        Ok(())
    }

    /// The box is about to go: what it has computed must be what the log comes to.
    fn leave(&mut self, host: &Host<S>) -> Result<(), Wrong> {
        let live = host.machine();
        self.replay.go_to(self.ledger.frames(), live.applied(), self.service)?;
        let digest = self.replay.check_equals(live)?;
        self.fold(digest);
        let coverage = &mut self.coverage;
        host.count(&mut |name, times| *coverage.entry(name).or_insert(0) += times);
        Ok(())
    }
}
