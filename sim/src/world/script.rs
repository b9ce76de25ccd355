//! What a script does to a world: see [`Scenario`](crate::scenario::Scenario).

use std::net::Ipv4Addr;

use ticktape::replica::Figure;
use ticktape::{Encode, Invariants, Nanos, Service};

use super::{SERVER, World};
use crate::disk::{Loss, Medium};
use crate::host::Pollable;
use crate::ledger::{Ledger, Wrong};
use crate::replica::{LEADER, Place, WorldView};
use crate::rng::Rng;
use crate::scenario::{Host, Way};
use crate::trace::Event;

impl<S, G> World<'_, S, G>
where
    S: Service + Invariants,
    G: FnMut(&mut Rng) -> S::Input,
{
    pub(crate) fn now(&self) -> Nanos {
        self.time.now()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn told(&self) -> Vec<Event> {
        self.trace.take_tail()
    }

    pub(crate) fn laggards(&self) -> String {
        self.fleet.laggards(self.ledger.last())
    }

    pub(crate) fn script_begin(&mut self, host: Host) -> Result<(), Wrong> {
        match host {
            Host::Leader if self.host.is_some() => Ok(()),
            Host::Leader => self.start(false),
            Host::Replica(index) => with_fleet!(
                self,
                with(index, |member, around| { if member.is_off() { member.start(around) } else { Ok(()) } })
            ),
        }
    }

    pub(crate) fn script_ask(&mut self) -> bool {
        let index = self.inputs_asked as usize % self.customers.len();
        let input = (self.gen_input)(&mut self.inputs).to_bytes();
        let is_taken = self.customers[index].ask(self.time.now(), &input);
        self.inputs_asked += u64::from(is_taken);
        is_taken
    }

    pub(crate) fn script_kill(&mut self, host: Host) -> Result<(), Wrong> {
        match host {
            Host::Leader => self.kill("process killed"),
            Host::Replica(index) => {
                with_fleet!(self, with(index, |member, around| member.kill("replica killed", around)))
            }
        }
    }

    /// Stops the leader in good order.
    pub(crate) fn script_stop(&mut self) {
        self.stop();
    }

    /// The leader begins, and its power is lost after so many of its disk's operations; false where they were enough to come up.
    pub(crate) fn script_begin_in_vain(&mut self, operations: u64) -> Result<bool, Wrong> {
        self.script_fuse = Some(operations);
        self.start(false)?;
        Ok(self.host.is_none())
    }

    pub(crate) fn script_lose_power(&mut self, host: Host) -> Result<(), Wrong> {
        match host {
            Host::Leader => self.lose_power(),
            Host::Replica(index) => {
                let loss = Loss::any(&mut self.fate);
                with_fleet!(self, with(index, |member, around| member.lose_power(loss, around)))
            }
        }
    }

    pub(crate) fn script_pause(&mut self, replica: usize, ns: u64) {
        let until = self.time.now() + ns;
        with_fleet!(self, with(replica, |member, _| member.paused_until = until));
    }

    pub(crate) fn script_stall(&mut self, host: Host, part: Option<&str>) {
        match host {
            Host::Leader => {
                let named = |name| Pollable::ALL.iter().position(|part| format!("{part:?}") == name);
                self.stalled_until = Default::default();
                if let Some(name) = part {
                    self.stalled_until[named(name).expect("a stage of that name")] = u32::MAX;
                }
            }
            Host::Replica(index) => {
                let stalled =
                    part.map(|name| (crate::replica::part_named(name).expect("a part of that name"), u32::MAX));
                with_fleet!(self, with(index, |member, _| member.stalled = stalled));
            }
        }
    }

    pub(crate) fn script_cut(&mut self, way: Way) {
        let of = |host| match host {
            Host::Leader => LEADER,
            Host::Replica(index) => Place::of(index).own,
        };
        let client = |index: usize| Ipv4Addr::new(10, 0, 1, index as u8 + 1);
        let (from, to) = match way {
            Way::FeedA(index) => (LEADER, Place::of(index).a),
            Way::FeedB(index) => (LEADER, Place::of(index).b),
            Way::Hosts(from, to) => (of(from), of(to)),
            Way::ToLeader(index) => (client(index), *SERVER.ip()),
            Way::FromLeader(index) => (*SERVER.ip(), client(index)),
        };
        self.network.cut(from, to);
    }

    pub(crate) fn script_heal(&mut self) {
        self.network.heal();
    }

    pub(crate) fn script_medium(&self, host: Host) -> &Medium {
        match host {
            Host::Leader => &self.medium,
            Host::Replica(index) => &self.fleet.members()[index].medium,
        }
    }

    pub(crate) fn script_wipe(&mut self, replica: usize) {
        with_fleet!(self, with(replica, |member, around| member.wipe(around)));
    }

    pub(crate) fn script_clock(&mut self, ns: i64) {
        self.clock.jump_realtime(ns);
    }

    pub(crate) fn script_applied(&self, host: Host) -> u64 {
        match host {
            Host::Leader => self.host.as_ref().map_or(0, |host| host.machine().applied().0),
            Host::Replica(index) => self.fleet.members()[index].applied().0,
        }
    }

    pub(crate) fn script_is_up(&self, host: Host) -> bool {
        match host {
            Host::Leader => self.host.is_some(),
            Host::Replica(index) => !self.fleet.members()[index].is_off(),
        }
    }

    pub(crate) fn script_figure(&self, replica: usize, figure: Figure) -> u64 {
        self.fleet.members()[replica].figure(figure)
    }

    pub(crate) fn script_met(&self, name: &str) -> u64 {
        self.coverage.get(name).copied().unwrap_or(0)
    }
}
