//! How it ends: faults stop, and everything has to come to rest.

use ticktape::{Invariants, Seq, Service};

use super::{World, surroundings};
use crate::disk::DiskFaults;
use crate::history::check_histories;
use crate::ledger::{Wrong, check_effects};
use crate::replica::WorldView;
use crate::rng::Rng;
use crate::trace::{What, Who};

/// How long everything may take once faults have stopped, in virtual nanoseconds.
const PROGRESS_NS_MAX: u64 = 120_000_000_000;

/// Polls between two looks whether everything has come to rest.
const POLLS_AT_REST: u64 = 32;

impl<S, G> World<'_, S, G>
where
    S: Service + Invariants,
    G: FnMut(&mut Rng) -> S::Input,
{
    /// No more faults.
    pub(crate) fn calm(&mut self) {
        self.begin_streams(u64::MAX);
        self.network.heal();
        self.medium.set_faults(DiskFaults::NONE);
        self.medium.set_capacity(1 << 30);
        self.stalled_until = Default::default();
        self.fleet.calm();
        self.has_bad_disk = false;
        self.trace.tell(Who::World, || What::Calm);
    }

    pub(crate) fn finish(&mut self) -> Result<(), Wrong> {
        self.come_to_rest()?;
        self.check_all()?;
        // Once more from the disk.
        self.lose_power()?;
        self.start(true)?;
        self.come_to_rest()?;
        // And all of the log once more in one go.
        self.replay.forget_after(Seq::ZERO, self.service);
        self.fleet.forget_after(Seq::ZERO, self.service);
        self.check_all()?;
        with_fleet!(self, end())?;
        self.kill("ended")
    }

    fn check_bounded(&self) -> Result<(), Wrong> {
        let Some(host) = &self.host else { return Ok(()) };
        self.retention.check_bounded(host, &surroundings(&self.appliance, self.service, &self.medium, self.rotten))
    }

    pub(crate) fn come_to_rest(&mut self) -> Result<(), Wrong> {
        let until = self.time.now() + PROGRESS_NS_MAX;
        self.is_coming_to_rest = true;
        (self.idle, self.had_turns) = (0, 0);
        while !self.is_at_rest() {
            if self.time.now() > until {
                self.check_bounded()?;
                let waiting = self.customers.iter().filter(|customer| !customer.is_drained()).count();
                let what = format!(
                    "after {} s without faults {waiting} clients wait, committed {} of {}{}",
                    PROGRESS_NS_MAX / 1_000_000_000,
                    self.ledger.committed,
                    self.ledger.last(),
                    self.fleet.laggards(self.ledger.last())
                );
                return Err(("there is progress once faults stop", what));
            }
            if self.host.is_none() {
                self.start(true)?;
            }
            with_fleet!(self, begin_all())?;
            self.polls(POLLS_AT_REST)?;
        }
        self.is_coming_to_rest = false;
        Ok(())
    }

    fn is_at_rest(&self) -> bool {
        let Some(host) = &self.host else { return false };
        let sessions = host.machine().sessions();
        host.machine().applied() == self.ledger.last()
            && host.committed() == self.ledger.last()
            && host.is_kept_in_order()
            && self.fleet.is_at_rest(self.ledger.last())
            && self.customers.iter().all(|customer| {
                let events = sessions.get(ticktape::SessionId(customer.session)).map_or(0, |state| state.event_seq);
                customer.is_drained() && customer.next_event() == events + 1
            })
            && self.check_bounded().is_ok()
    }

    pub(crate) fn check_all(&mut self) -> Result<(), Wrong> {
        check_effects(&self.ledger, &self.customers)?;
        self.replay.go_to(self.ledger.frames(), self.ledger.last(), self.service)?;
        self.customers.iter().try_for_each(|customer| self.replay.check_told(&self.ledger, customer))?;
        check_histories(&self.ledger, &self.customers)?;
        if let Some(host) = &self.host {
            let digest = self.replay.check_equals(host.machine())?;
            self.fold(digest);
        }
        with_fleet!(self, check_all())
    }
}
