//! Alarms that are set, moved and put off: a service that keeps its own account of what is due, and so notices a timer that fires twice,
//! early, late or not at all.

use std::collections::BTreeMap;

use ticktape::{Ctx, Decode, Encode, InvariantViolation, Invariants, Seq, Service, TimerId, Timestamp};
use ticktape_sim::Rng;

/// What is asked for.
#[derive(Clone, Encode, Decode)]
pub enum Command {
    /// An alarm after so many nanoseconds, instead of the one of this number, if there is one.
    Set(u8, u64),
    /// None of this number after all.
    PutOff(u8),
}

/// What is told.
#[derive(Clone, Encode, Decode)]
pub enum Told {
    /// So many are set.
    Set(u32),
    /// This one went off.
    Rang(u8),
}

/// Which are set and for when, and what was wrong so far.
#[derive(Clone, Default, Encode, Decode)]
pub struct Alarms {
    due: BTreeMap<u8, Timestamp>,
    /// Alarms that went off and were not set.
    strays: u32,
    /// Those that went off at another time than they were due.
    untimely: u32,
    /// Commands that found one that was due before.
    overtaken: u32,
}

impl Service for Alarms {
    type Input = Command;
    type Output = Told;
    type Snapshot = Alarms;
    type Config = ();
    const NAME: &'static str = "alarms";

    fn genesis((): &()) -> Self {
        Alarms::default()
    }

    fn apply(&mut self, _: Seq, input: &Command, ctx: &mut Ctx<'_, Told>) {
        self.overtaken += u32::from(self.due.values().any(|&due| due <= ctx.now()));
        match *input {
            Command::Set(number, after_ns) => {
                let due = Timestamp(ctx.now().0 + after_ns);
                self.due.insert(number, due);
                ctx.set_timer(TimerId(number.into()), due);
            }
            Command::PutOff(number) => {
                self.due.remove(&number);
                ctx.cancel_timer(TimerId(number.into()));
            }
        }
        ctx.reply(Told::Set(self.due.len() as u32));
    }

    fn on_timer(&mut self, id: TimerId, ctx: &mut Ctx<'_, Told>) {
        match self.due.remove(&(id.0 as u8)) {
            None => self.strays += 1,
            Some(due) => self.untimely += u32::from(due != ctx.now()),
        }
        ctx.emit(Told::Rang(id.0 as u8));
    }

    fn snapshot(&self) -> Alarms {
        self.clone()
    }

    fn restore(snapshot: Alarms, (): &()) -> Self {
        snapshot
    }
}

impl Invariants for Alarms {
    fn check(&self) -> Result<(), InvariantViolation> {
        let Alarms { strays, untimely, overtaken, .. } = *self;
        if (strays, untimely, overtaken) == (0, 0, 0) {
            return Ok(());
        }
        let what = format!("{strays} were not set, {untimely} not due, {overtaken} overtaken");
        Err(InvariantViolation::new("an alarm goes off once, when it is due", what))
    }
}

/// One of a few alarms, soon.
pub fn gen_alarm(rng: &mut Rng) -> Command {
    let number = rng.below(24) as u8;
    if rng.below(5) == 0 { Command::PutOff(number) } else { Command::Set(number, 1 + rng.scaled(200_000_000)) }
}
