//! What happens in a step: an input, or a stroke of fate.

use std::net::Ipv4Addr;

use ticktape::{Encode, Invariants, Service};

use super::{SERVER, World};
use crate::damage::Damage;
use crate::disk::DiskFaults;
use crate::host::{Pollable, may_rot};
use crate::ledger::Wrong;
use crate::nic::LinkFaults;
use crate::rng::{Ppm, Rng};
use crate::trace::{What, Who, describe_input};

impl<S, G> World<'_, S, G>
where
    S: Service + Invariants,
    G: FnMut(&mut Rng) -> S::Input,
{
    pub(super) fn take_a_step(&mut self) -> Result<(), Wrong> {
        let faults = &self.sim.faults;
        // A whole number of thousandths each; what is left is inputs.
        let chances = [
            (faults.power, 12),
            (faults.kill, 8),
            (faults.network, 30),
            (faults.disk, 30),
            (faults.clock, 10),
            (faults.stall, 30),
            (faults.clients, 10),
            (faults.full, 8),
            (faults.rot, 6),
            (faults.stop, 6),
            (faults.damage, 4),
        ];
        let mut draw = self.fate.below(1000);
        let mut stroke = None;
        for (index, (is_on, thousandths)) in chances.into_iter().enumerate() {
            if draw < thousandths {
                stroke = Some((index, is_on));
                break;
            }
            draw -= thousandths;
        }
        match stroke {
            None => self.ask(),
            // A stroke that is off leaves its place empty.
            Some((_, false)) => {}
            Some((0, _)) => self.lose_power()?,
            Some((1, _)) => self.kill("process killed")?,
            Some((2, _)) => self.change_network(),
            Some((3, _)) => self.change_disk(),
            Some((4, _)) => self.disturb_clock(),
            Some((5, _)) => self.stall(),
            Some((6, _)) => self.restart_a_client(),
            Some((7, _)) => self.fill_disk(),
            Some((8, _)) => self.rot(),
            Some((9, _)) => self.stop(),
            Some(_) => self.damage()?,
        }
        let polls = self.choose.between(1, 40);
        self.polls(polls)
    }

    fn ask(&mut self) {
        let index = self.inputs.index(self.customers.len());
        for _ in 0..self.inputs.between(1, 4) {
            let input = (self.gen_input)(&mut self.inputs).to_bytes();
            self.trace
                .tell(Who::Client(self.customers[index].session), || What::Asked { input: describe_input(&input) });
            if !self.customers[index].ask(self.time.now(), &input) {
                self.meet("client told to wait", 1);
                break;
            }
            self.inputs_asked += 1;
        }
    }

    fn change_network(&mut self) {
        let fate = &mut self.fate;
        let rate = |fate: &mut Rng| Ppm(*fate.pick(&[0, 0, 1_000, 20_000, 200_000]));
        let faults = LinkFaults {
            loss: rate(fate),
            duplicate: rate(fate),
            reorder: rate(fate),
            corrupt: rate(fate),
            delay_ns: *fate.pick(&[1_000, 10_000, 1_000_000]),
            jitter_ns: *fate.pick(&[0, 2_000, 500_000]),
            straggle: rate(fate),
        };
        let client = Ipv4Addr::new(10, 0, 1, fate.below(self.customers.len() as u64) as u8 + 1);
        let what = match fate.below(6) {
            0 => {
                self.network.heal();
                "network healed".to_string()
            }
            1 => {
                self.network.cut(client, *SERVER.ip());
                format!("cut {client} to box")
            }
            2 => {
                self.network.cut(*SERVER.ip(), client);
                format!("cut box to {client}")
            }
            _ => {
                self.network.set_default_faults(faults);
                format!("network: {faults:?}")
            }
        };
        self.tell_fault("network", || what);
    }

    fn change_disk(&mut self) {
        let fate = &mut self.fate;
        let errors = if self.has_bad_disk { [0, 0, 2_000] } else { [0; 3] };
        let faults = DiskFaults {
            latency_ns: *fate.pick(&[1_000, 15_000, 300_000]),
            jitter_ns: *fate.pick(&[0, 20_000, 1_000_000]),
            straggle: Ppm(*fate.pick(&[0, 1_000, 20_000])),
            short_write: Ppm(*fate.pick(&[0, 0, 50_000])),
            write_error: Ppm(*fate.pick(&errors)),
            read_error: Ppm(*fate.pick(&errors)),
            sync_error: Ppm(*fate.pick(&errors)),
            ..DiskFaults::NONE
        };
        self.medium.set_faults(faults);
        if fate.chance(Ppm::percent(10)) {
            self.medium.stall(fate.scaled(200_000_000));
            self.meet("disk stalled", 1);
        }
        self.tell_fault("disk", || format!("{faults:?}"));
    }

    fn disturb_clock(&mut self) {
        const DAY_NS: i64 = 86_400_000_000_000;
        let what = match self.fate.below(3) {
            0 => {
                let ppm = self.fate.between(0, 1000) as i32 - 500;
                self.clock.skew(ppm);
                format!("clock runs {ppm} ppm too fast")
            }
            1 => {
                let ns = self.fate.scaled(5_000_000_000);
                self.clock.jump_ahead(ns);
                format!("clock jumps {ns} ns ahead")
            }
            _ => {
                let ns = *self.fate.pick(&[-DAY_NS, -1_500_000_000, -1_000, 1_000, 1_500_000_000, DAY_NS]);
                self.clock.jump_realtime(ns);
                format!("realtime set {ns} ns ahead")
            }
        };
        self.meet("clock disturbed", 1);
        self.tell_fault("clock", || what);
    }

    fn stall(&mut self) {
        let part = self.fate.index(Pollable::ALL.len());
        // Nothing waits for the shadow: only in a longer while does the ring go past it.
        let longest = if Pollable::ALL[part] == Pollable::Shadow { 400 } else { 20 };
        let steps = self.fate.between(1, longest) as u32;
        self.stalled_until[part] = self.step + steps;
        self.meet("stage stalled", 1);
        self.tell_fault("stall", || format!("{:?} stalled for {steps} steps", Pollable::ALL[part]));
    }

    fn restart_a_client(&mut self) {
        let index = self.fate.index(self.customers.len());
        self.customers[index].restart(&self.network);
        self.meet("client restarted", 1);
        self.tell_fault("clients", || format!("client {} restarted", index + 1));
    }

    fn fill_disk(&mut self) {
        let capacity = if self.fate.flip() { 1 << 30 } else { self.medium.used() + self.fate.scaled(100 << 10) };
        self.medium.set_capacity(capacity);
        self.tell_fault("full", || format!("disk of {capacity} bytes"));
    }

    fn rot(&mut self) {
        let Some(path) = may_rot(&self.medium, &self.appliance, &mut self.fate) else { return };
        let name = path.to_string_lossy();
        if self.medium.rot(&name) {
            self.rotten += 1;
            self.meet("snapshots rotten", 1);
            self.tell_fault("rot", || name.to_string());
        }
    }

    fn damage(&mut self) -> Result<(), Wrong> {
        let damage = Damage { config: &self.appliance, service: self.service, medium: &self.medium };
        let Some(done) = damage.strike::<S>(&mut self.fate)? else { return Ok(()) };
        self.meet("damage refused", u64::from(done.refused.is_some()));
        self.meet("damage harmless", u64::from(done.refused.is_none()));
        self.meet("sectors rotten", done.sectors_rotten);
        self.meet("writes lost silently", done.writes_lost);
        self.meet("writes misdirected", done.writes_misdirected);
        self.tell_fault("damage", || format!("of a copy of the disk: {done:?}"));
        Ok(())
    }
}
