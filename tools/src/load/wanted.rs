//! What was asked for, as a plan and its sources.

use std::sync::Arc;

use ticktape::pipeline::IdleStrategy;
use ticktape_nic::Nic;

use super::recorded::Recorded;
use super::schedule::{Pattern, Plan, Schedule};
use super::session::Session;
use super::source::Source;
use super::summary::Options;
use super::{commit, open_client};
use crate::Failure;
use crate::args::LoadArgs;
use crate::service::{AnyService, LoadClient};

/// Where it is not said how long.
const SECONDS_DEFAULT: u32 = 10;
const SECOND_NS: u64 = 1_000_000_000;

/// A client over one backend.
pub type SessionOf<N> = Session<<N as Nic>::Rx, <N as Nic>::Tx>;

/// A run before it has clients.
pub struct Wanted {
    plan: Arc<Plan>,
    flow: Option<(Arc<Recorded>, Vec<Vec<u32>>)>,
    /// In words.
    load: String,
}

/// What is left of it once they have their parts.
pub struct Load {
    pub plan: Arc<Plan>,
    load: String,
}

impl Wanted {
    /// Reads the flow, where there is one.
    ///
    /// # Errors
    /// Usage: the flow can't be read, there is none and the service makes none up, or nothing says how fast.
    pub fn new(args: &LoadArgs, service: &dyn AnyService) -> Result<Self, Failure> {
        let clients = usize::from(args.clients);
        let flow = args.flow.as_deref().map(Recorded::load).transpose()?.map(|flow| {
            let dealt = flow.deal(clients);
            (Arc::new(flow), dealt)
        });
        if flow.is_none() && service.inputs(LoadClient { number: 0, of: 1, seed: 0 }).is_none() {
            let name = service.name();
            return Err(Failure::usage(format!("service {name} makes no load up: send a file with --flow FILE")));
        }
        let named = args.flow.as_ref().map_or_else(String::new, |path| format!(", of {}", path.display()));
        let warmup_ns = u64::from(args.warmup) * SECOND_NS;
        let (rates, pattern, load) = match (args.rate, &args.steps, args.bursts, args.poisson) {
            (Some(rate), ..) => (vec![rate], Pattern::Even { burst: 1 }, format!("{rate} messages/s")),
            (_, Some(steps), ..) => {
                let list = steps.0.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
                (steps.0.clone(), Pattern::Even { burst: 1 }, format!("steps of {list} messages/s"))
            }
            (_, _, Some(bursts), _) => {
                let words = format!("bursts of {} messages, {} times a second", bursts.size, bursts.per_second);
                (vec![bursts.size * bursts.per_second], Pattern::Even { burst: bursts.size }, words)
            }
            (.., Some(rate)) => {
                (vec![rate], Pattern::Poisson { seed: args.seed }, format!("Poisson, {rate} messages/s on average"))
            }
            _ => return Wanted::timed(args, flow, named, warmup_ns),
        };
        let part_ns = u64::from(args.seconds.unwrap_or(SECONDS_DEFAULT)) * SECOND_NS;
        let plan = Plan::of_rates(&rates, warmup_ns, part_ns, pattern, clients as u64);
        Ok(Wanted { plan: Arc::new(plan), flow, load: load + &named })
    }

    /// By the flow's own times.
    fn timed(
        args: &LoadArgs,
        flow: Option<(Arc<Recorded>, Vec<Vec<u32>>)>,
        named: String,
        warmup_ns: u64,
    ) -> Result<Self, Failure> {
        let ways = "--rate N, --steps A,B,C, --bursts SIZExTIMES or --poisson N";
        let Some((recorded, dealt)) = flow else { return Err(Failure::usage(format!("how fast? give {ways}"))) };
        if !recorded.has_times() {
            let what = "an orders file has no times: how fast?";
            return Err(Failure::usage(format!("{}: {what} give {ways}", named.trim_start_matches(", of "))));
        }
        let time = |&at: &u32| (recorded.time_ns(at as usize) as f64 / args.speed) as u64;
        let times = dealt.iter().map(|mine| mine.iter().map(time).collect()).collect();
        let length_ns = args.seconds.map(|seconds| u64::from(seconds) * SECOND_NS);
        let plan = Plan::of_times(times, warmup_ns, length_ns);
        if plan.measured_from_ns() >= plan.end_ns() {
            let (all, name) = (recorded.time_ns(recorded.len() - 1) as f64 / 1e9, named.trim_start_matches(", of "));
            return Err(Failure::usage(format!(
                "{name}: lasts {all:.3} s, no longer than the warm-up: take --warmup 0"
            )));
        }
        let load = format!("its own times at speed {}{named}", args.speed);
        Ok(Wanted { plan: Arc::new(plan), flow: Some((recorded, dealt)), load })
    }

    /// Makes the clients, one for each of `nics`.
    pub fn open<N: Nic>(self, args: &LoadArgs, service: &dyn AnyService, nics: Vec<N>) -> (Load, Vec<SessionOf<N>>) {
        let Wanted { plan, flow, load } = self;
        let open = |(number, nic)| {
            let client = open_client(args, service.schema(), number, nic);
            let source = match &flow {
                Some((flow, dealt)) => {
                    Source::Recorded { flow: flow.clone(), mine: dealt[number as usize].clone(), next: 0 }
                }
                None => {
                    let client = LoadClient { number, of: args.clients.into(), seed: args.seed };
                    Source::Made(service.inputs(client).expect("it was asked before"))
                }
            };
            Session::new(client, Schedule::new(plan.clone(), number), source)
        };
        let sessions = (0..).zip(nics).map(open).collect();
        (Load { plan: plan.clone(), load }, sessions)
    }
}

impl Load {
    /// For the summary.
    pub fn options(self, args: &LoadArgs, service: &str, idle: IdleStrategy, nic: String) -> Options {
        let from_ns = self.plan.measured_from_ns();
        Options {
            to: args.to.to_string(),
            service: service.to_string(),
            load: self.load,
            clients: args.clients.into(),
            warmup_seconds: from_ns as f64 / 1e9,
            seconds: (self.plan.end_ns() - from_ns) as f64 / 1e9,
            idle: idle.to_string(),
            core: args.core,
            nic,
            version: env!("CARGO_PKG_VERSION").to_string(),
            commit: commit(),
        }
    }
}
