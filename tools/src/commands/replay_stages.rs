//! The second half of `ticktape replay --pcap`: what the capture holds, through an appliance's stages, and what came of it beside
//! what was captured.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use ticktape::Seq;

use super::replay_pace::{Kept, Pace};
use crate::Failure;
use crate::args::{Place, ReplayArgs};
use crate::links::Links;
use crate::log::on_log;
use crate::out::say;
use crate::replay::{AnyRig, Driver, Figures, Halt, Summary};
use crate::service::{AnyService, find};

/// What a replay says that had nothing to compare with.
const UNPROVEN: &str = "no message of it is in the capture, so nothing was compared";

#[derive(Debug, Serialize)]
struct Reports {
    reports: u64,
    sha256: String,
}

#[derive(Debug, Serialize)]
struct EgressJson {
    compared: u64,
    different: u64,
    not_captured: u64,
    outside_replay: u64,
    given_up: u64,
    out_of_order: u64,
}

/// What a replay of a capture came to.
#[derive(Debug, Serialize)]
pub struct Replayed {
    service: &'static str,
    /// `feed` or `packets`: what told the order.
    order: &'static str,
    /// The last frame applied.
    seq: u64,
    commands: u64,
    commands_from_feed: u64,
    commands_not_sequenced: u64,
    /// Without a feed: those that a restart of the appliance lost, and that were sent again.
    commands_lost: u64,
    /// Marks in the feed whose hash of the outputs, and whose digest of the state, agree.
    marks_outputs: u64,
    marks_states: u64,
    /// As `run` and `replay --journal` print it; none where the service failed.
    digest: Option<String>,
    replayed: Reports,
    captured: Reports,
    egress: EgressJson,
    /// Without a feed: what can't be known, each in a line; a difference may come of it.
    unknown: Vec<String>,
    /// Why it ended before the capture did.
    ended: Option<String>,
    first_difference: Option<String>,
    /// For people: the same capture comes to the same JSON.
    #[serde(skip)]
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pace: Option<Kept>,
}

/// Replays what a first look at the capture found, whose first and last packets are of these `times`, in nanoseconds since 1970.
pub fn replay(
    args: &ReplayArgs,
    path: &Path,
    known: &Links,
    times: (u64, u64),
    services: &[Box<dyn AnyService>],
) -> Result<Replayed, Failure> {
    let service = service(args, known, services)?;
    let mut driver = Driver::new(known, service, rig(args, known, service)?);
    if let Some(Place::Seq(last)) = args.to {
        driver.set_last(Seq(last));
    }
    let mut datagrams = super::replay_capture::open(path)?;
    let mut links = Links::again(known);
    let mut pace = Pace::new(args.speed, times.0, times.1);
    let (started, mut last_index) = (Instant::now(), 0);
    // Where it can't be read any further, the first look has said so.
    while let Ok(Some(datagram)) = datagrams.next() {
        last_index = datagram.index;
        let after_ns = datagram.time_ns.map(|time_ns| time_ns.saturating_sub(times.0));
        if matches!((args.to, after_ns), (Some(Place::After(to)), Some(after_ns)) if after_ns > to) {
            driver.stop();
        }
        let is_begun = match args.from {
            None => true,
            Some(Place::Seq(from)) => driver.seq().next() >= Seq(from),
            Some(Place::After(from)) => after_ns >= Some(from),
        };
        let is_for_stages = known.listen().is_none_or(|listen| listen == datagram.destination);
        if let (Some(pace), Some(time_ns)) = (&mut pace, datagram.time_ns)
            && is_begun
            && is_for_stages
            && !driver.is_over()
        {
            pace.wait(time_ns);
        }
        driver.on_time(datagram.time_ns);
        links.on_datagram(&datagram, |handed| driver.on_handed(&handed));
    }
    links.finish(last_index, |handed| driver.on_handed(&handed));
    let replayed = Replayed::new(service, known, driver.finish(), started.elapsed().as_secs_f64());
    Ok(Replayed { pace: pace.map(Pace::finish), ..replayed })
}

/// The service asked for, else the one that the feed names, else the first.
fn service<'a>(
    args: &ReplayArgs,
    known: &Links,
    services: &'a [Box<dyn AnyService>],
) -> Result<&'a dyn AnyService, Failure> {
    let named = known.log_feeds().find_map(|(_, feed)| feed.begun.as_ref().map(|(name, _)| name.as_str()));
    match named.filter(|name| !name.is_empty() && args.service.is_none()) {
        None => find(services, args.service.as_deref()),
        Some(name) => {
            let known = services.iter().find(|service| service.log_name() == name);
            known.map(|service| &**service).ok_or_else(|| {
                Failure::usage(format!("the feed is of service {name:?}, which this command does not know"))
            })
        }
    }
}

/// The stages, with the state that the capture goes on from.
fn rig<'a>(args: &ReplayArgs, known: &Links, service: &'a dyn AnyService) -> Result<Box<dyn AnyRig + 'a>, Failure> {
    let Some(base) = &args.base else { return Ok(service.rig()) };
    let firsts = known.log_feeds().filter_map(|(_, feed)| feed.stream.figures().first);
    let first = firsts.min().ok_or_else(|| {
        Failure::usage("--base DIR is for a capture with a feed: nothing else tells where in the log it begins")
    })?;
    on_log(base, |log| service.rig_from(log, base, Seq(first.saturating_sub(1))))
}

/// What a replay without a feed can't know, the weightiest first.
fn unknown(known: &Links, summary: &Summary) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some((session, events)) = known.begun_before() {
        unknown.push(format!(
            "session {session} had {events} events before the capture: without a feed, nothing tells the state that it begins with"
        ));
    }
    if summary.egress.out_of_order > 0 {
        let sessions = known.events().len();
        unknown
            .push(format!("the appliance took inputs of its {sessions} sessions in another order than the packets'"));
    }
    if let Some(log_seq) = known.first_unheard() {
        unknown.push(format!("results from frame {log_seq} of the log on are of inputs that are not in the capture"));
    }
    let late: u64 = known.inputs().values().map(|stream| stream.figures().late).sum();
    if late > 0 {
        unknown.push(format!("{late} inputs come so late in it that their place among the others is lost"));
    }
    if let (Some(first), Some(last)) = (known.reigns().first(), known.reigns().last())
        && first < last
    {
        let reigns = known.reigns().len();
        unknown.push(format!(
            "the appliance began anew in it, {reigns} reigns from {first} to {last}: it is replayed as one, without what they lost"
        ));
    }
    unknown
}

impl Replayed {
    fn new(service: &dyn AnyService, known: &Links, summary: Summary, seconds: f64) -> Self {
        let unknown = if summary.has_feed { Vec::new() } else { unknown(known, &summary) };
        let Figures { compared, different, not_captured, outside, given_up, out_of_order } = summary.egress;
        let [replayed, captured] = summary.reports.map(|(reports, sha256)| Reports { reports, sha256 });
        let is_different = summary.halt.as_ref().is_some_and(Halt::is_difference);
        let halt = summary.halt.map(|halt| halt.to_string());
        // What stops the stages comes after all that they let out.
        let first = summary.first_difference.map(|difference| difference.to_string());
        Replayed {
            service: service.name(),
            order: if summary.has_feed { "feed" } else { "packets" },
            seq: summary.seq.0,
            commands: summary.commands,
            commands_from_feed: summary.commands_from_feed,
            commands_not_sequenced: summary.not_sequenced,
            commands_lost: summary.lost,
            marks_outputs: summary.facts.compared.outputs,
            marks_states: summary.facts.compared.states,
            digest: summary.digest,
            replayed,
            captured,
            egress: EgressJson { compared, different, not_captured, outside_replay: outside, given_up, out_of_order },
            unknown,
            first_difference: first.or_else(|| halt.clone().filter(|_| is_different)),
            ended: halt,
            seconds,
            pace: None,
        }
    }

    /// A failure that names the first difference, or else why not all was replayed.
    pub fn verdict(&self, name: &str) -> Result<(), Failure> {
        match (&self.first_difference, &self.ended) {
            (Some(difference), _) => {
                let why = self.unknown.first().map_or_else(String::new, |unknown| format!("; but {unknown}"));
                Err(Failure::failed(format!("{name}: {difference}{why}")))
            }
            (None, Some(ended)) => {
                Err(Failure::failed(format!("{name}: replayed up to frame {} only: {ended}", self.seq)))
            }
            // A capture of the feed alone holds nothing to compare; one that does was cut so short that none of it was.
            (None, None) if self.is_unproven() && self.egress.outside_replay > 0 => {
                Err(Failure::failed(format!("{name}: replayed up to frame {}, and {UNPROVEN}", self.seq)))
            }
            (None, None) => Ok(()),
        }
    }

    /// There were messages to compare, and none that is on both sides; nor did a mark's digest stand for them.
    fn is_unproven(&self) -> bool {
        let EgressJson { compared, not_captured, outside_replay, .. } = self.egress;
        compared + self.marks_outputs == 0 && not_captured + outside_replay > 0
    }

    /// For people.
    pub fn print(&self) -> Result<(), Failure> {
        let order = match self.order {
            "feed" => "in the feed's order",
            _ => "in the packets' order: without a feed only the events can be compared, but for log seqs",
        };
        say!("replayed       {} up to frame {}, {order} ({:.3} s)", self.service, self.seq, self.seconds)?;
        let (commands, from_feed) = (self.commands, self.commands_from_feed);
        let not_sequenced = self.commands_not_sequenced;
        say!(
            "commands       {commands}, {from_feed} of them from the feed alone; {not_sequenced} captured ones not sequenced"
        )?;
        if self.order == "feed" {
            say!(
                "marks          {} agree with the outputs, {} of them with the state",
                self.marks_outputs,
                self.marks_states
            )?;
        }
        if self.commands_lost > 0 {
            say!(
                "commands       {} more that a restart of the appliance lost, and that were sent again",
                self.commands_lost
            )?;
        }
        self.unknown.iter().try_for_each(|unknown| say!("unknown        {unknown}"))?;
        self.digest.as_ref().map_or(Ok(()), |digest| say!("digest         {digest}"))?;
        for (title, reports) in [("replayed", &self.replayed), ("captured", &self.captured)] {
            say!("{title:14} {} reports, sha256 {}", reports.reports, reports.sha256)?;
        }
        let EgressJson { compared, different, not_captured, outside_replay, given_up, out_of_order } = &self.egress;
        say!("egress         {compared} messages compared, {different} differ; {not_captured} not captured")?;
        for (count, what) in [
            (outside_replay, "captured of frames that were not replayed"),
            (given_up, "too far apart to be compared"),
            (out_of_order, "that the appliance made earlier than the order of the packets has them"),
        ] {
            if *count > 0 {
                say!("egress         {count} {what}")?;
            }
        }
        self.pace.as_ref().map_or(Ok(()), Kept::print)?;
        match (&self.first_difference, &self.ended) {
            (Some(difference), _) => say!("DIFFERENCE     {difference}"),
            (None, Some(ended)) => say!("ENDED          {ended}"),
            (None, None) if self.is_unproven() => say!("verdict        none: {UNPROVEN}"),
            (None, None) => say!("verdict        the same, byte for byte"),
        }
    }
}
