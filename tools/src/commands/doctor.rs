//! `ticktape doctor`: what stands between this box and an even latency.

pub mod plan;

use serde::Serialize;
use ticktape::config::ApplianceConfig;
use ticktape_tuning::doctor::{Finding, Outcome, Plan, Report, Verdict, examine};
use ticktape_tuning::root::Root;

use crate::args::DoctorArgs;
use crate::out::{plain, printed_then, say};
use crate::service::AnyService;
use crate::{Failure, out_file};

#[derive(Serialize)]
struct Json<'a> {
    plan: PlanJson<'a>,
    worst: &'static str,
    bad: usize,
    warn: usize,
    cant_tell: usize,
    ok: usize,
    not_applicable: usize,
    /// Ids of what is wrong, the costliest first.
    worst_first: Vec<&'static str>,
    checks: Vec<CheckJson<'a>>,
}

#[derive(Serialize)]
struct PlanJson<'a> {
    cores: &'a [usize],
    spinning: &'a [usize],
    interface: Option<&'a str>,
    xdp_queue: Option<u32>,
    directory: String,
}

#[derive(Serialize)]
struct CheckJson<'a> {
    id: &'static str,
    group: &'static str,
    verdict: &'static str,
    read: &'a str,
    wants: &'static str,
    why: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    fix: &'a str,
    cost: &'static str,
    source: &'static str,
}

pub fn run(args: &DoctorArgs, services: &[Box<dyn AnyService>]) -> Result<(), Failure> {
    let root = Root::open(&args.root).map_err(Failure::usage)?;
    let config = args.config.as_deref().map(ApplianceConfig::from_toml).transpose().map_err(Failure::usage)?;
    let mut plan = plan::of(&root, config.as_ref(), args.interface.as_deref(), services)?;
    if let Some(dir) = &args.dir {
        plan.directory = plan::absolute(dir);
    }
    let facts = plan.look(&root);
    plan.check(&facts).map_err(Failure::usage)?;
    let report = examine(&facts, &plan);
    if let Some(file) = &args.record {
        out_file::write(file, root.seen().to_string())
            .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))?;
    }
    let printed =
        if args.json { say!("{}", crate::json::line(&json(&plan, &report))?) } else { print(&plan, &report, args.all) };
    printed_then(printed, verdict(&report))
}

/// What the exit code says: 1 where anything is bad.
fn verdict(report: &Report) -> Result<(), Failure> {
    match report.worst() {
        Verdict::Bad => Err(Failure::failed(format!(
            "{} of {} checks {} bad",
            report.count(Verdict::Bad),
            report.outcomes().len(),
            if report.count(Verdict::Bad) == 1 { "is" } else { "are" }
        ))),
        _ => Ok(()),
    }
}

fn print(plan: &Plan, report: &Report, all: bool) -> Result<(), Failure> {
    say!("{}", plain(&plan.to_string()))?;
    let mut group = None;
    for Outcome { check, finding } in report.outcomes() {
        if group != Some(check.group) {
            group = Some(check.group);
            say!("\n{}", check.group.name())?;
        }
        say!("  {:14} {:23} {}", finding.verdict, check.id, plain(&finding.read))?;
        if all {
            say!("  {:14} wants {}; {}", "", check.wants, check.why)?;
            say!("  {:14} costs {} ({})", "", check.cost.name(), check.source)?;
        }
    }
    let count = |verdict| report.count(verdict);
    say!(
        "\n{} checks: {} bad, {} warn, {} can't tell, {} ok, {} not applicable",
        report.outcomes().len(),
        count(Verdict::Bad),
        count(Verdict::Warn),
        count(Verdict::CantTell),
        count(Verdict::Ok),
        count(Verdict::NotApplicable)
    )?;
    worst_first(report)
}

/// What is wrong, the costliest first, with why and what to do.
fn worst_first(report: &Report) -> Result<(), Failure> {
    let wrong = report.worst_first();
    if !wrong.is_empty() {
        say!("\nthe costliest first")?;
    }
    for Outcome { check, finding: Finding { verdict, read, fix } } in wrong {
        say!("\n  {verdict:5} {}: {}", check.id, plain(read))?;
        say!("        wants {}", check.wants)?;
        say!("        as {}", check.why)?;
        say!("        costs {} ({})", check.cost.name(), check.source)?;
        say!("        > {}", plain(fix))?;
    }
    Ok(())
}

fn json<'a>(plan: &'a Plan, report: &'a Report) -> Json<'a> {
    let check = |outcome: &'a Outcome| CheckJson {
        id: outcome.check.id,
        group: outcome.check.group.name(),
        verdict: outcome.finding.verdict.name(),
        read: &outcome.finding.read,
        wants: outcome.check.wants,
        why: outcome.check.why,
        fix: &outcome.finding.fix,
        cost: outcome.check.cost.name(),
        source: outcome.check.source,
    };
    Json {
        plan: PlanJson {
            cores: &plan.critical,
            spinning: &plan.spinning,
            interface: plan.interface.as_deref(),
            xdp_queue: plan.bypass_queue,
            directory: plan.directory.display().to_string(),
        },
        worst: report.worst().name(),
        bad: report.count(Verdict::Bad),
        warn: report.count(Verdict::Warn),
        cant_tell: report.count(Verdict::CantTell),
        ok: report.count(Verdict::Ok),
        not_applicable: report.count(Verdict::NotApplicable),
        worst_first: report.worst_first().iter().map(|outcome| outcome.check.id).collect(),
        checks: report.outcomes().iter().map(check).collect(),
    }
}
