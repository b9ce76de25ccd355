//! `ticktape jitter`: what the machine takes away from its cores.
//!
//! ```text
//!   one thread a core, pinned ─► tuning::jitter ─► Watched ─► CoreReport ─► table, JSON, files, beside an earlier run
//! ```

mod compare;
mod report;
mod table;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use ticktape_tuning::jitter::watch::{Asked, Watched};
use ticktape_tuning::{clock, jitter, pin, standing};

use crate::Failure;
use crate::args::JitterArgs;
use crate::hdr::write_pair;
use crate::load::{empty_dir, interrupt_flag};
use crate::out::say;
use report::{CoreReport, Report};

/// What a core's thread is called, before the core.
const NAME: &str = "jitter-";

pub fn run(args: &JitterArgs) -> Result<(), Failure> {
    let cores = cores(args)?;
    args.json.as_deref().map(crate::json::check).transpose()?;
    let earlier = args.compare.as_deref().map(Report::load).transpose()?;
    args.out.as_deref().map(empty_dir).transpose()?;
    if let Some(priority) = args.fifo {
        try_fifo(priority)?;
    }
    let _awake = args.hold_cpu_latency_us.map(hold).transpose()?;
    let is_over = interrupt_flag()?;
    let mut report = Report::new(args, together(args, &cores));
    say!("{}", report.head(&cores))?;
    let groups: Vec<&[usize]> = if report.together { vec![&cores] } else { cores.chunks(1).collect() };
    let mut failed = Ok(());
    for group in groups {
        for (core, found, started_ns) in watch(group, args, &is_over)? {
            let core = CoreReport::new(core, started_ns, &found);
            table::print(&core)?;
            if let Some(dir) = &args.out {
                failed = failed.and(write_files(dir, &core, &found));
            }
            report.cores.push(core);
        }
    }
    if let Some(earlier) = &earlier {
        compare::print(earlier, &report)?;
    }
    if let Some(path) = &args.json {
        failed = failed.and(crate::json::write(path, &report));
    }
    failed
}

/// The cores that are looked at, all of them usable.
fn cores(args: &JitterArgs) -> Result<Vec<usize>, Failure> {
    let usable = pin::usable_cores();
    let Some(asked) = &args.cores else { return Ok(usable) };
    match asked.0.iter().find(|core| !usable.contains(core)) {
        Some(core) => Err(Failure::usage(format!(
            "--cores: core {core} is not among those that this process may use: {}",
            pin::list(&usable)
        ))),
        None => Ok(asked.0.clone()),
    }
}

/// Whether all are looked at at the same time.
fn together(args: &JitterArgs, cores: &[usize]) -> bool {
    args.together || (!args.one_by_one && cores.len() < pin::usable_cores().len())
}

/// Figures of another policy than the one asked for would be of no use.
fn try_fifo(priority: u8) -> Result<(), Failure> {
    let tried = thread::spawn(move || pin::go_first_at(priority).map(drop)).join().expect("it does not panic");
    tried.map_err(|error| {
        Failure::usage(format!(
            "--fifo {priority}: {error}: it needs root, CAP_SYS_NICE (setcap cap_sys_nice+ep on this program), or an rtprio limit of {priority}"
        ))
    })
}

/// As with the policy.
fn hold(us: u32) -> Result<standing::WakeupLatency, Failure> {
    standing::hold_wakeup_latency(us).map_err(|error| {
        Failure::usage(format!(
            "--hold-cpu-latency-us {us}: {error}: it needs root, or a udev rule that gives /dev/cpu_dma_latency to its group"
        ))
    })
}

/// Watches these cores at the same time: each with when it began, since the Unix epoch.
fn watch(cores: &[usize], args: &JitterArgs, is_over: &AtomicBool) -> Result<Vec<(usize, Watched, u64)>, Failure> {
    let asked = Asked {
        duration_ns: args.seconds * 1_000_000_000,
        threshold_ns: args.threshold,
        causes_above_ns: args.causes_above,
    };
    let wake_ns = args.wake.map(|us| us * 1_000);
    let look = |core: usize| -> Result<(usize, Watched, u64), Failure> {
        pin::pin_current_thread(core).map_err(Failure::failed)?;
        pin::sleep_precisely().map_err(Failure::failed)?;
        let first = args.fifo.map(pin::go_first_at).transpose().map_err(Failure::failed)?;
        let started_ns = clock::realtime_ns();
        let found = jitter::watch_core(core, &asked, wake_ns, is_over);
        drop(first);
        Ok((core, found, started_ns))
    };
    thread::scope(|scope| {
        let thread =
            |&core| thread::Builder::new().name(format!("{NAME}{core}")).spawn_scoped(scope, move || look(core));
        let threads: Vec<_> = cores.iter().map(thread).collect::<Result<_, _>>().map_err(Failure::failed)?;
        threads.into_iter().map(|thread| thread.join().expect("a clock can be read")).collect()
    })
}

/// A core's histograms, for other programs.
fn write_files(dir: &Path, core: &CoreReport, found: &Watched) -> Result<(), Failure> {
    let waits = (if core.gaps.is_some() { "waits" } else { "late" }, &found.waits);
    for (what, histogram) in [waits].into_iter().chain(found.gaps.as_ref().map(|gaps| ("gaps", gaps))) {
        let path = dir.join(format!("core-{}-{what}", core.core));
        let failed = |error| Failure::failed(format!("{}: {error}", path.display()));
        let comment = format!("jitter, core {}, nanoseconds", core.core);
        let (start, length) = (core.started_unix_ns, core.watched_ns + core.looking_ns);
        write_pair(&path, &comment, Duration::from_nanos(start), Duration::from_nanos(length), histogram)
            .map_err(failed)?;
    }
    Ok(())
}
