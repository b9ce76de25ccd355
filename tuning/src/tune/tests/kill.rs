//! kill -9 at any change: what was remembered is given back by whoever comes next.

use std::env;
use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Command, Stdio};

use super::*;

const DIR: &str = "TICKTAPE_TEST_TUNE_DIR";
const STEP: &str = "TICKTAPE_TEST_TUNE_STEP";
const WRITES: &str = "TICKTAPE_TEST_TUNE_WRITES";
const WAITING: &str = "waiting to be killed";

/// Where a child waits for SIGKILL.
pub(super) fn wait_for_the_end() -> ! {
    let mut out = stdout();
    out.write_all(format!("\n{WAITING}\n").as_bytes()).unwrap();
    out.flush().unwrap();
    loop {
        std::thread::park();
    }
}

/// What the others run as a process of its own.
#[test]
#[ignore = "the child of the tests beside it"]
fn child() {
    let Some(dir) = env::var_os(DIR).map(PathBuf::from) else { return };
    let kernel = Kernel::at(&dir.join("box"));
    kernel.writes_left.set(env::var(WRITES).unwrap().parse().ok());
    let store = Store::new(dir.join("state/tune.undo"));
    match env::var(STEP).unwrap().as_str() {
        "apply" => drop(apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap()),
        _ => drop(undo(&kernel, &store, &kernel.place(), false).unwrap()),
    }
    panic!("it came to its end");
}

/// Runs one step in a process that is killed when it is about to make change number `writes`.
fn killed(dir: &Path, step: &str, writes: u64) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "tune::tests::kill::child", "--ignored", "--nocapture"])
        .envs([(DIR, dir.as_os_str()), (STEP, step.as_ref()), (WRITES, writes.to_string().as_ref())])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_waiting = lines.any(|line| line.is_ok_and(|line| line == WAITING));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_waiting, "{step} did not come to change {writes}");
}

#[test]
fn killed_at_any_change_of_an_apply_everything_is_given_back() {
    for writes in 0..SETTINGS.len() {
        let (kernel, store, dir) = fresh();
        let before = tree(&kernel.dir);
        killed(dir.path(), "apply", writes as u64);
        let changed = SETTINGS.iter().filter(|(path, _, old, _)| kernel.read(path).unwrap() != old.as_bytes()).count();
        assert_eq!(changed, writes);
        let standing = check(&kernel, &store, &kernel.place()).unwrap();
        assert_eq!((standing.state, standing.is_whole(), standing.standing), (State::Applying, false, writes));
        let again = apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap_err();
        assert_eq!(again, TuneError::Standing(store.path().to_owned()), "the first old values win");
        let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
        assert!(undone.is_done && undone.restored.len() == writes, "{undone:?}");
        assert_eq!(tree(&kernel.dir), before);
    }
}

#[test]
fn killed_at_any_change_of_an_undo_the_next_one_ends_it() {
    for writes in 0..SETTINGS.len() {
        let (kernel, store, dir) = fresh();
        let before = tree(&kernel.dir);
        apply(&kernel, &store, &kernel.place(), &changes(), false).unwrap();
        killed(dir.path(), "undo", writes as u64);
        let undone = undo(&kernel, &store, &kernel.place(), false).unwrap();
        assert!(undone.is_done && undone.untouched.len() == writes, "{undone:?}");
        assert_eq!(tree(&kernel.dir), before);
    }
}
