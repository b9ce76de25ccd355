//! What an appliance or a replica asked the kernel for, and what it got.

use std::io;

use ticktape_tuning::{pin, standing};

use crate::config::{RuntimeConfig, Scheduler};

/// What is held while it runs, and what is told of it.
#[derive(Debug, Default)]
pub(super) struct Runtime {
    scheduler: Scheduler,
    wakeup: Option<standing::WakeupLatency>,
    told: Vec<String>,
}

impl Runtime {
    /// Asks for what is wished, with `threads` as the ones that a scheduler is for. Before memory is taken and threads are started: locked
    /// memory is in place from then on.
    pub(super) fn ask(wished: &RuntimeConfig, threads: &str) -> Self {
        let mut runtime = Runtime::default();
        if wished.lock_memory {
            let got = standing::lock_memory();
            let help = "LimitMEMLOCK=infinity in its unit, or CAP_IPC_LOCK";
            runtime.told.push(tell("memory locked, and in place before its first use", "memory not locked", got, help));
        }
        if let Scheduler::Fifo(priority) = wished.scheduler {
            // Whatever this thread may do, those that it starts may.
            let got =
                std::thread::spawn(move || pin::go_first_at(priority).map(drop)).join().expect("it does not panic");
            if got.is_ok() {
                runtime.scheduler = wished.scheduler;
            }
            let help = format!("LimitRTPRIO={priority} in its unit, or CAP_SYS_NICE");
            let good = format!("{threads} under SCHED_FIFO {priority}");
            runtime.told.push(tell(&good, &format!("not under SCHED_FIFO {priority}"), got, &help));
        }
        if let Some(us) = wished.hold_cpu_latency_us {
            let got = standing::hold_wakeup_latency(us).map(|held| runtime.wakeup = Some(held));
            let good = format!("cores held awake to within {us} µs");
            let help = "root, or a udev rule that gives /dev/cpu_dma_latency to its group";
            runtime.told.push(tell(&good, "cores not held awake", got, help));
        }
        runtime
    }

    /// In a line; none where nothing was asked for.
    pub(super) fn describe(&self) -> Option<String> {
        (!self.told.is_empty()).then(|| self.told.join("; "))
    }

    /// What each thread of a stage does for itself.
    pub(super) fn take_place(scheduler: Scheduler) -> Option<pin::GoesFirst> {
        match scheduler {
            Scheduler::Other => None,
            // It was tried at the start.
            Scheduler::Fifo(priority) => pin::go_first_at(priority).ok(),
        }
    }

    /// The scheduler that is to be had.
    pub(super) fn scheduler(&self) -> Scheduler {
        self.scheduler
    }
}

fn tell(good: &str, bad: &str, got: io::Result<()>, help: &str) -> String {
    match got {
        Ok(()) => good.to_string(),
        Err(error) => format!("{bad} ({error}): it takes {help}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_neither_taken_nor_told() {
        let runtime = Runtime::ask(&RuntimeConfig::default(), "stages");
        assert_eq!((runtime.describe(), runtime.scheduler()), (None, Scheduler::Other));
        assert!(Runtime::take_place(Scheduler::Other).is_none());
    }

    #[test]
    fn what_is_not_to_be_had_is_told_with_what_would_help() {
        let refused = Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(tell("good", "bad", refused, "a key"), "bad (permission denied): it takes a key");
        assert_eq!(tell("good", "bad", Ok(()), "a key"), "good");
    }
}
