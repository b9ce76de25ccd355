//! What a snapshot of a large state does to those who are served meanwhile.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ticktape::Encode;
use ticktape::client::Client;
use ticktape::config::{ApplianceConfig, SnapshotConfig};
use ticktape::link::{ClientConfig, Event, SendError, Tier};
use ticktape::pipeline::{Appliance, CorePlan, IdleStrategy, Idler};
use ticktape_nic::Nic;
use ticktape_nic::udp::{UdpRx, UdpTx};
use ticktape_tuning::clock::monotonic_ns;
use ticktape_tuning::jitter;
use ticktape_tuning::pin::{go_first, pin_current_thread, sleep_precisely};

use super::ballast::{Ballast, Looks, Pace, Touch, count_looks, entries_of, looks, needs, pause};
use super::{Measured, SUITE};
use crate::args::Options;
use crate::hop::Cores;
use crate::latency::Percentiles;
use crate::rounds::Rounds;
use crate::row::{Budget, Row};
use crate::suites::Outcome;
use crate::suites::e2e::{ANY_PORT, open};

/// How long commands are sent as fast as they are taken, to know what a part of that is.
const CAPACITY_SECONDS: f64 = 1.0;
/// What part of that is sent.
const LOAD_DIVISOR: f64 = 2.0;
/// The client stands for other machines: it sends at even intervals, whoever else wants its core.
const CLIENT_NAP: Duration = Duration::from_micros(20);
/// A client that its own core made later than this, at once or little by little, does not make up for it: those it stands for would have gone
/// on, evenly, and a burst of what it is late with would be a stall of its own making. What it naps and sends in one round is far less.
const CLIENT_LATE: Duration = Duration::from_millis(1);
/// Commands sent before the client looks what has come.
const SENDS_PER_ROUND: usize = 64;
/// All of them on one core: two that share the other one with the shadow would wait for it.
const STAGES: &str = "sequencer,executor,egress,journaler,publisher";
/// The log ring: two seconds of part load. What a tier that does not wait for the disk can ride out of it is what the ring holds: the disk of a
/// virtual machine may stop for half a second, and a snapshot goes to the same one.
const RING_BYTES: usize = 64 << 20;
/// What the executor is kept from its work for, to see how long it takes to make up for that; so often, and the median counts.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES: usize = 5;
/// One is made up for by then, or not at all.
const PAUSE_OVER_SECONDS: f64 = 0.1;
/// From the first command to the mark at which the snapshot is taken.
const MARK_AFTER_MS: u64 = 3_000;
/// A snapshot that takes longer is not taken at all.
const PATIENCE: Duration = Duration::from_secs(900);
/// What a stall may last beyond the machine's own, in ms.
const BEYOND_MS: f64 = 1.0;
/// The run without a snapshot, and the look at each core's own gaps, last as long as the run with one; this long at most.
const COMPARED_SECONDS_MAX: f64 = 90.0;
/// Rounds, at most: each takes the time of a whole snapshot three times.
const ROUNDS_MAX: usize = 5;
/// The same at tier local, where a snapshot takes three times as long.
const LOCAL_ROUNDS_MAX: usize = 2;

/// What one run came to.
struct Run {
    /// Wire to applied, at part load.
    applied: Histogram<u64>,
    /// Wire to released, at part load.
    released: Histogram<u64>,
    seconds: f64,
    rate: f64,
    /// What the host took of all cores' time meanwhile.
    stolen_ms: u64,
    /// What the client's core made it late by.
    away: Duration,
    /// The longest that the client's core kept it from a look at the clock.
    longest_round: Duration,
    /// What a look into the state took while as much was sent as was taken, and what part of its time the executor needed at part load.
    pace: Pace,
    /// The looks at part load.
    looks: Looks,
    /// The client went before all others on its core.
    is_first: bool,
}

struct Load {
    client: Client<UdpRx, UdpTx>,
    encoded: Vec<u8>,
    sent: u64,
    is_open: bool,
    /// What its own core made it late by, and was not made up for.
    away: Duration,
    /// The longest from one look at the clock to the next, at a rate: its core was away for nearly as long, maybe with a datagram that the kernel
    /// had stamped and not delivered yet.
    longest_round: Duration,
}

impl Load {
    fn new(appliance: &Appliance) -> Measured<Self> {
        let (rx, tx) = open()?.split();
        let config = ClientConfig { session: 1, ..ClientConfig::default() };
        let client = Client::new(rx, tx, appliance.local_addr(), &config);
        Ok(Load {
            client,
            encoded: Vec::new(),
            sent: 0,
            is_open: false,
            away: Duration::ZERO,
            longest_round: Duration::ZERO,
        })
    }

    fn poll(&mut self) -> usize {
        let is_open = &mut self.is_open;
        self.client.poll(monotonic_ns(), |event| *is_open |= matches!(event, Event::Opened { .. }))
    }

    /// Sends one command, if there is room.
    fn send(&mut self) -> Measured<bool> {
        self.encoded.clear();
        // A walk over all of the state, so that neither replica has it in its caches.
        Touch { key: self.sent.wrapping_mul(0x9e37_79b9_7f4a_7c15), by: 1 }.encode(&mut self.encoded);
        match self.client.send(&self.encoded) {
            Ok(_) => self.sent += 1,
            Err(SendError::Full) => return Ok(false),
            Err(error) => return Err(format!("the client can't send: {error}")),
        }
        Ok(true)
    }

    /// Sends `rate` commands a second, or as many as are taken, until `done`; returns the seconds that took.
    /// At a rate it naps between its sends.
    fn run(&mut self, rate: f64, appliance: &Appliance, mut done: impl FnMut(f64) -> bool) -> Measured<f64> {
        let (begun, before) = (Instant::now(), self.sent);
        let mut idler = Idler::new(IdleStrategy::Backoff);
        let away_before = self.away;
        let late_max = (CLIENT_LATE.as_secs_f64() * rate) as u64;
        // Where the appliance took no more, the client goes on with all that it is late with, as any client would.
        let (mut was_full, mut looked_at) = (false, Duration::ZERO);
        loop {
            let elapsed = begun.elapsed();
            self.longest_round = self.longest_round.max(elapsed - looked_at);
            looked_at = elapsed;
            if done(elapsed.as_secs_f64()) {
                return Ok(elapsed.as_secs_f64());
            }
            if let Some(fault) = appliance.fault() {
                return Err(format!("the appliance stopped: {fault}"));
            }
            if elapsed > PATIENCE {
                return Err(format!("not done within {PATIENCE:?}"));
            }
            let mut due = ((elapsed - (self.away - away_before)).as_secs_f64() * rate) as u64;
            let too_late = due.saturating_sub(self.sent - before).saturating_sub(late_max);
            if too_late > 0 && !was_full {
                self.away += Duration::from_secs_f64(too_late as f64 / rate);
                due -= too_late;
            }
            let mut work = 0;
            while self.sent - before < due && work < SENDS_PER_ROUND {
                if !self.send()? {
                    was_full = true;
                    break;
                }
                work += 1;
            }
            was_full &= self.sent - before < due;
            work += self.poll();
            if rate.is_infinite() {
                idler.after_round(work);
            } else if work < SENDS_PER_ROUND {
                std::thread::sleep(CLIENT_NAP);
            }
        }
    }
}

/// What is measured: how large a state, at which tier.
#[derive(Clone, Copy)]
struct Case {
    state_bytes: u64,
    tier: Tier,
}

impl Case {
    fn new(state_mib: u64, tier: Tier) -> Self {
        Case { state_bytes: state_mib << 20, tier }
    }

    fn name(&self) -> String {
        let tier = if self.tier == Tier::Memory { "memory" } else { "local" };
        format!("tier {tier}, {} MiB, 1/{LOAD_DIVISOR:.0} load", self.state_bytes >> 20)
    }
}

/// Part load, with a snapshot in the middle of it or, at its rate, without.
fn part_load(options: &Options, cores: Cores, case: Case, without: Option<&Run>) -> Measured<Run> {
    let dir = tempfile::tempdir_in(&options.dir).map_err(|error| error.to_string())?;
    let mut config = ApplianceConfig::new(dir.path(), ANY_PORT);
    // Whom orders wait for is never kept waiting by the shadow, which goes where no stage is.
    let plan: CorePlan = format!("{STAGES}@{}:spin", cores.here).parse().expect("a plan in due form");
    (config.tier, config.cores) = (case.tier, Some(plan));
    config.ring.bytes = RING_BYTES;
    config.journal.prefill_bytes = config.journal.segment_bytes;
    let never = SnapshotConfig { every_frames: u64::MAX, every_bytes: u64::MAX, ..SnapshotConfig::default() };
    config.snapshots = without.is_none().then_some(SnapshotConfig { every_ms: MARK_AFTER_MS, ..never });
    let entries = entries_of(case.state_bytes);
    let appliance = Appliance::start::<Ballast>(&config, &entries).map_err(|error| error.to_string())?;
    let _ = pin_current_thread(cores.there);
    let mut load = Load::new(&appliance)?;
    let open_by = Instant::now() + PATIENCE;
    while !load.is_open && Instant::now() < open_by {
        load.poll();
    }
    count_looks(Pace::UNKNOWN);
    let seconds = load.run(f64::INFINITY, &appliance, |elapsed| elapsed >= CAPACITY_SECONDS)?;
    let capacity = load.sent as f64 / seconds;
    let rate = without.map_or(capacity / LOAD_DIVISOR, |with| with.rate);
    let whole = looks();
    let look = Duration::from_nanos(whole.total_ns / whole.count.max(1));
    let first = go_first();
    let is_first = first.is_ok();
    let _ = sleep_precisely();
    // What is still under way counts to the first part, which is thrown away.
    load.run(rate, &appliance, |elapsed| elapsed >= 0.2)?;
    let mut shares = [1.0_f64; PAUSES];
    for share in &mut shares {
        pause(PAUSE, rate);
        load.run(rate, &appliance, |elapsed| elapsed >= PAUSE_OVER_SECONDS)?;
        *share = needs().unwrap_or(1.0);
    }
    shares.sort_unstable_by(f64::total_cmp);
    let pace = Pace { look, share: shares[PAUSES / 2] };
    appliance.part().next();
    (load.away, load.longest_round) = (Duration::ZERO, Duration::ZERO);
    let stolen_before = jitter::stolen_ms(None);
    count_looks(pace);
    let seconds = match without {
        Some(with) => load.run(rate, &appliance, |elapsed| elapsed >= with.seconds.min(COMPARED_SECONDS_MAX))?,
        None => load.run(rate, &appliance, |_| appliance.covered().0 > 0)?,
    };
    let (stolen_ms, away, longest_round) = (stolen_since(stolen_before), load.away, load.longest_round);
    let looks = looks();
    load.client.close(monotonic_ns());
    drop(first);
    let report = appliance.stop();
    report.fault.into_iter().chain(report.errors).next().map_or(Ok(()), Err)?;
    let latencies = report.stages.into_iter().flat_map(|(_, stage)| stage.latencies);
    let (mut applied, mut released) = (None, None);
    for (name, [_, part_load]) in latencies {
        match name {
            "applied" => applied = Some(part_load),
            "released" => released = Some(part_load),
            _ => {}
        }
    }
    let (Some(applied), Some(released)) = (applied, released) else { return Err("no latencies came back".to_owned()) };
    Ok(Run { applied, released, seconds, rate, stolen_ms, away, longest_round, pace, looks, is_first })
}

/// A run's longest, in ms, and what of it is the machine's own.
#[derive(Clone, Copy)]
struct Longest {
    ms: f64,
    /// The longest of what the appliance's thread fell behind by, through what was taken from it and looks into its state that took longer than
    /// at full load, of what the client's core was away for, on which datagrams are stamped and delivered, and of the gaps of spinning cores beside it.
    machine_ms: f64,
    behind_ms: f64,
    client_ms: f64,
    /// What a look took in the mean, and at full load.
    looks_us: (f64, f64),
    stolen_ms: u64,
}

impl Longest {
    fn beyond_ms(&self) -> f64 {
        self.ms - self.machine_ms
    }
}

fn stolen_since(before: Option<u64>) -> u64 {
    jitter::stolen_ms(None).zip(before).map_or(0, |(after, before)| after - before)
}

/// The longest gap that the machine itself makes in as many seconds, at most: the worse of the two cores.
fn longest_gap_ms(cores: Cores, seconds: f64) -> f64 {
    let on = |core| {
        let _ = pin_current_thread(core);
        jitter::baseline((seconds.min(COMPARED_SECONDS_MAX) * 1e3) as u64).max()
    };
    std::thread::scope(|scope| {
        let there = scope.spawn(|| on(cores.there));
        let here = on(cores.here);
        here.max(there.join().expect("a clock can be read")) as f64 / 1e6
    })
}

/// The round that is furthest beyond what the machine took in it.
fn worst(rounds: &[Longest]) -> Longest {
    let worst = rounds.iter().max_by(|one, other| one.beyond_ms().total_cmp(&other.beyond_ms()));
    *worst.expect("one round at least")
}

fn one(ms: f64) -> Rounds {
    [ms].into_iter().collect()
}

fn rows_of(options: &Options, cores: Cores, case: Case, rounds: usize) -> Measured<Outcome> {
    let (mut with, mut without, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let run = part_load(options, cores, case, None)?;
        gaps.push(longest_gap_ms(cores, run.seconds));
        without.push(part_load(options, cores, case, Some(&run))?);
        with.push(run);
    }
    let of = |runs: &[Run], which: fn(&Run) -> &Histogram<u64>| -> Vec<Longest> {
        let longest = |(run, &gap_ms): (&Run, &f64)| {
            let behind_ms = run.looks.behind_max_ns / 1e6;
            let client_ms = run.longest_round.as_secs_f64() * 1e3;
            let look_us = run.looks.total_ns as f64 / run.looks.count.max(1) as f64 / 1e3;
            Longest {
                ms: which(run).max() as f64 / 1e6,
                machine_ms: behind_ms.max(client_ms).max(gap_ms),
                behind_ms,
                client_ms,
                looks_us: (look_us, run.pace.look.as_secs_f64() * 1e6),
                stolen_ms: run.stolen_ms,
            }
        };
        runs.iter().zip(&gaps).map(longest).collect()
    };
    let row = |what: &str, with: &[Longest], without: &[Longest]| {
        let (with, without) = (worst(with), worst(without));
        Row::lower(SUITE, format!("snapshot, {}: longest {what}", case.name()), "ms", one(with.ms))
            .floor(one(with.machine_ms))
            .peer("without a snapshot", Some(one(without.ms)))
    };
    let (applied, without_applied) = (of(&with, |run| &run.applied), of(&without, |run| &run.applied));
    let spends = "the note says of each round how far the appliance's thread fell behind through what the machine took from it, of its time and by \
                  looks into the state that took longer than at full load, what the client's core was away for, and what was taken from \
                  cores that only spin; what is beyond these \
                  is the appliance's own: perf sched timehist over a run tells what it waits for";
    let rows = vec![
        row("wire to applied", &applied, &without_applied).budget(Budget::FloorPlus(BEYOND_MS)).spends(spends),
        row("wire to released", &of(&with, |run| &run.released), &of(&without, |run| &run.released)),
    ];
    let of = |whose, runs: &[Run], which: fn(&Run) -> &Histogram<u64>, what: &str| {
        let histograms: Vec<&Histogram<u64>> = runs.iter().map(which).collect();
        Percentiles::of_ns(format!("{what}, {}", case.name()), whose, &histograms)
    };
    let percentiles = vec![
        of("with a snapshot", &with, |run| &run.applied, "applied"),
        of("without", &without, |run| &run.applied, "applied"),
        of("with a snapshot", &with, |run| &run.released, "released"),
        of("without", &without, |run| &run.released, "released"),
    ];
    let each = |rounds: &[Longest]| {
        let rounds = rounds.iter().map(|Longest { ms, behind_ms, client_ms, looks_us, stolen_ms, .. }| {
            let (look_us, at_full_load_us) = looks_us;
            format!("{ms:.1} ({behind_ms:.1}; {client_ms:.1}; {look_us:.2} us for {at_full_load_us:.2}; {stolen_ms})")
        });
        rounds.collect::<Vec<_>>().join(", ")
    };
    let gaps = gaps.iter().map(|ms| format!("{ms:.1}")).collect::<Vec<_>>().join(", ");
    let last = with.last().expect("one round at least");
    let notes = vec![
        format!(
            "snapshot, {}: {:.1} s from the part load's start to the verified file, {:.0} commands/s, the client {}, made later than 1 ms by its core for {} ms of it, which it does not make up for; {STAGES} on core \
             {}, which spins, a log ring of {} MiB; client and shadow on core {}; kernel.sched_autogroup_enabled = {}",
            case.name(),
            last.seconds,
            last.rate,
            if last.is_first { "before all others" } else { "among others (no right to lower its niceness)" },
            last.away.as_millis(),
            cores.here,
            RING_BYTES >> 20,
            cores.there,
            u8::from(ticktape_tuning::pin::groups_sessions()),
        ),
        format!(
            "snapshot, {}: longest wire to applied of each round, in ms (and what the appliance's thread fell behind by, needing {:.2} of its \
             time, through what was taken of that and through looks into its state; what the client's core was away for; what looks took \
             in the mean for what they took at full load, before; what the host took of all cores in all): {}; without a snapshot {}; longest gap of spinning cores {gaps}; the rows \
             show the round that is furthest beyond its own",
            case.name(),
            last.pace.share,
            each(&applied),
            each(&without_applied),
        ),
    ];
    Ok(Outcome { rows, percentiles, notes })
}

pub(super) fn rows(options: &Options) -> Measured<Outcome> {
    let Some(cores) = Cores::pair() else {
        let notes = vec!["snapshots under load skipped: they need two cores, and this process may use one".to_owned()];
        return Ok(Outcome { notes, ..Outcome::default() });
    };
    let rounds = if options.is_brief { 1 } else { options.rounds.min(ROUNDS_MAX) };
    let mut outcome = rows_of(options, cores, Case::new(100, Tier::Memory), rounds)?;
    outcome.append(rows_of(options, cores, Case::new(100, Tier::Local), rounds.min(LOCAL_ROUNDS_MAX))?);
    if options.is_brief {
        outcome.notes.push("snapshot of 1 GiB: not part of `all`, it takes minutes; ticktape-bench recover".to_owned());
    } else {
        outcome.append(rows_of(options, cores, Case::new(1024, Tier::Memory), 1)?);
    }
    Ok(outcome)
}
