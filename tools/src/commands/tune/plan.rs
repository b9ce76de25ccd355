//! What is to be done for which plan.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use ticktape::config::ApplianceConfig;
use ticktape::pipeline::{CorePlan, CoreSlot, IdleStrategy, StageName};
use ticktape_tuning::doctor::{Outcome, Plan, Report, Verdict, examine};
use ticktape_tuning::facts::Facts;
use ticktape_tuning::root::{Root, Unread};
use ticktape_tuning::tune::changes::{self, Selection};
use ticktape_tuning::tune::review::{self, ReviewFile, Subject};
use ticktape_tuning::tune::{Change, Form, Store, cores};

use super::shown;
use crate::Failure;
use crate::args::TunePlanArgs;
use crate::commands::doctor::plan as boxes;
use crate::out::{plain, say};
use crate::service::AnyService;

/// Where an appliance's file is expected, where none was named.
const CONFIG: &str = "/etc/ticktape/appliance.toml";

/// A box, the plan that it is looked at for, and what is to be done.
pub struct Planned {
    facts: Facts,
    pub plan: Plan,
    report: Report,
    selection: Selection,
    /// The line that an appliance's file takes, and why; `None` where the plan was given.
    pub cores: Option<(CorePlan, Vec<String>)>,
    changes: Vec<Change>,
    unread: Vec<Unread>,
    /// Ids of what is left to a reboot or a person.
    by_hand: Vec<&'static str>,
}

impl Planned {
    pub fn of(args: &TunePlanArgs, services: &[Box<dyn AnyService>]) -> Result<Planned, Failure> {
        let selection = Selection::new(&args.only, &args.skip).map_err(Failure::usage)?;
        let root = Root::open(&args.state.root).map_err(Failure::usage)?;
        let config = args.config.as_deref().map(ApplianceConfig::from_toml).transpose().map_err(Failure::usage)?;
        let dir = config.as_ref().map(|config| config.dir.clone()).or_else(|| args.dir.clone());
        if let Some(dir) = dir.filter(|dir| root.is_live() && !dir.is_dir()) {
            return Err(Failure::usage(format!(
                "there is no directory {}: make it first, on the disk that it is to be on",
                dir.display()
            )));
        }
        let (plan, cores) = match config {
            Some(config) => (boxes::of(&root, Some(&config), args.interface.as_deref(), services)?, None),
            None => proposed(&root, args, services)?,
        };
        let facts = plan.look(&root);
        plan.check(&facts).map_err(Failure::usage)?;
        let report = examine(&facts, &plan);
        let found = changes::propose(&root, &facts, &plan, &report, &selection);
        let by_hand = found.by_hand.iter().map(|outcome| outcome.check.id).collect();
        let (changes, unread) = (found.changes, found.unread);
        Ok(Planned { facts, plan, report, selection, cores, changes, unread, by_hand })
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Settings that would be changed, but can't be read.
    pub fn unread(&self) -> Vec<Unread> {
        self.unread.clone()
    }

    /// What is left to a reboot or a person, the costliest first.
    pub fn by_hand(&self) -> Vec<&Outcome> {
        self.report.worst_first().into_iter().filter(|outcome| self.by_hand.contains(&outcome.check.id)).collect()
    }

    /// The files to review. What an apply has set already is in them, too: it is still to outlive a reboot.
    pub fn review(&self, args: &TunePlanArgs) -> Result<Vec<ReviewFile>, Failure> {
        let applied = Store::new(&args.state.undo).load().ok().flatten();
        let answered: Vec<String> =
            applied.map_or(Vec::new(), |file| file.entries.into_iter().map(|entry| entry.check).collect());
        let program = std::env::current_exe().map_err(Failure::failed)?.display().to_string();
        let config = args.config.as_ref().map_or(PathBuf::from(CONFIG), |path| path.clone());
        let config = std::path::absolute(config).map_err(Failure::failed)?.display().to_string();
        let working_directory = std::env::current_dir().map_err(Failure::failed)?.display().to_string();
        Ok(review::files(&Subject {
            facts: &self.facts,
            plan: &self.plan,
            report: &self.report,
            selection: &self.selection,
            answered: &answered,
            program: &program,
            config: &config,
            working_directory: &working_directory,
        }))
    }

    pub fn print(&self, args: &TunePlanArgs, files: &[ReviewFile]) -> Result<(), Failure> {
        say!("{}", plain(&self.plan.to_string()))?;
        if let Some((cores, why)) = &self.cores {
            say!("\nfor the appliance's file\n  cores = \"{cores}\"")?;
            why.iter().try_for_each(|why| say!("  # {why}"))?;
        }
        let (kept, changed): (Vec<&Change>, Vec<&Change>) =
            self.changes.iter().partition(|change| change.form == Form::Kept);
        say!("\n{} settings that apply would change", changed.len())?;
        for Change { path, check, old, new, why, .. } in changed {
            say!("  {check:24} /{path}: {} => {new:?}\n  {:24} {why}", shown(old), "")?;
        }
        for Change { path, check, old, .. } in kept {
            say!("  {check:24} /{path}: {}, which that may move; undo puts it back", shown(old))?;
        }
        for unread in &self.unread {
            say!("  {:24} {unread}: it could not be given back, so it is left alone", "")?;
        }
        let by_hand = self.by_hand();
        if !by_hand.is_empty() {
            say!("\nleft to a reboot or a person, the costliest first")?;
        }
        for Outcome { check, finding } in by_hand {
            say!(
                "  {:5} {:24} {}\n  {:30} > {}",
                finding.verdict,
                check.id,
                plain(&finding.read),
                "",
                plain(&finding.fix)
            )?;
        }
        match &args.out {
            Some(dir) => say!("\nto review, in {}", dir.display())?,
            None => say!("\nfiles to review that --out writes")?,
        }
        files.iter().try_for_each(|file| say!("  {}", file.name))
    }

    /// How many checks find something.
    pub fn wrong(&self) -> usize {
        self.report.outcomes().iter().filter(|outcome| outcome.finding.verdict >= Verdict::Warn).count()
    }
}

type Cores = Option<(CorePlan, Vec<String>)>;

/// The plan for the cores that the box's topology offers.
fn proposed(root: &Root, args: &TunePlanArgs, services: &[Box<dyn AnyService>]) -> Result<(Plan, Cores), Failure> {
    let interface = args.interface.clone().or_else(|| boxes::card(root));
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut config = ApplianceConfig::new(dir, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    let own = boxes::of(root, Some(&config), None, services)?;
    let facts = Facts::read(root, interface.as_deref(), &own.directory);
    let choice = cores::choose(&facts).map_err(Failure::usage)?;
    let built_in = CorePlan::for_cores(if choice.stages.is_empty() { own.critical.len() } else { choice.stages.len() });
    let idle = if choice.may_spin { IdleStrategy::Spin } else { IdleStrategy::Backoff };
    let slots = built_in.slots().iter().enumerate().map(|(at, slot)| match choice.stages.get(at) {
        Some(&core) => {
            let is_struck = slot.stages.contains(&StageName::Journaler) && choice.own_queue.contains(&core);
            let idle = if is_struck { IdleStrategy::Backoff } else { idle };
            CoreSlot { core: Some(core), idle: Some(idle), ..slot.clone() }
        }
        // Where nothing is given away nothing spins, however many cores an appliance would find.
        None => CoreSlot { idle: Some(IdleStrategy::Backoff), ..slot.clone() },
    });
    let cores = CorePlan::new(slots.collect()).map_err(Failure::failed)?;
    config.cores = Some(cores.clone());
    let plan = Plan { interface, ..boxes::of(root, Some(&config), None, services)? };
    Ok((plan, Some((cores, choice.why))))
}
