//! An appliance's TOML file, and core plans: what is accepted is usable, what is refused is refused in one line.

use std::fmt::Display;
use std::fs;
use std::str;

use ticktape::config::ApplianceConfig;
use ticktape::pipeline::{CorePlan, IdleStrategy};

use super::Seeds;
use super::scratch::scratch;

pub fn run(data: &[u8]) -> bool {
    let dir = scratch();
    let path = dir.path().join("appliance.toml");
    fs::write(&path, data).expect("room for a small file");
    let is_config = one_line(ApplianceConfig::from_toml(&path)).is_some_and(|config| check_config(&config));
    let Ok(text) = str::from_utf8(data) else { return is_config };
    let _ = one_line(text.parse::<IdleStrategy>());
    is_config | one_line(text.parse::<CorePlan>()).is_some_and(|plan| check_plan(&plan))
}

fn one_line<T, E: Display>(result: Result<T, E>) -> Option<T> {
    result.inspect_err(|error| assert_eq!(error.to_string().lines().count(), 1, "one line: {error}")).ok()
}

fn check_config(config: &ApplianceConfig) -> bool {
    if one_line(config.validate()).is_none() {
        return false;
    }
    let command = config.command_bytes_max();
    assert!(command > 0 && command < config.datagram_bytes_max);
    assert!(config.payload_bytes_max() < config.frame_bytes_max());
    assert!(config.frame_bytes_max() <= config.batch_bytes_max());
    if let Some(feed) = &config.feed {
        assert!(ticktape::feed::FeedSession::new(feed.stream(), 0).is_ok());
    }
    let _ = one_line(config.journal.validate());
    config.cores.as_ref().is_none_or(check_plan)
}

fn check_plan(plan: &CorePlan) -> bool {
    assert_eq!(plan.to_string().parse().as_ref(), Ok(plan));
    if let Some(cores) = one_line(plan.assign(&[0, 3])) {
        assert_eq!(cores.len(), plan.slots().len());
        assert!(cores.iter().all(|core| [0, 3].contains(core)));
    }
    true
}

pub fn seeds() -> Seeds {
    let smallest = "dir = \"journal\"\nlisten = \"127.0.0.1:7001\"\n";
    let full = format!(
        "{smallest}tier = \"memory\"\nnic = \"udp\"\nbusy_poll_us = 50\ncores = [[\"sequencer\", \"egress\"], \
         [\"journaler\"], [\"executor\", \"publisher\"]]\nidle = \"spin\"\ndatagram_bytes_max = 1400\nwindow = 100\n\
         sessions_max = 4\nsession_bytes = 65536\n[ring]\nname = \"r\"\nbytes = 1048576\n[feed]\na = \"239.1.1.1:7100\"\n\
         interface = \"127.0.0.1\"\nstream = \"AB12\"\n[journal]\nsegment_bytes = 1048576\nprefill_bytes = 4096\n\
         strategy = \"dsync\"\n"
    );
    let plan = "sequencer,egress@3|journaler|executor,publisher";
    vec![("smallest", smallest.into()), ("full", full.into()), ("plan", plan.into()), ("idle", "backoff".into())]
}
