//! Bugs planted into a copy of the tree, each of which the simulator has to find; without any it finds nothing in the copy.
//!
//! All of them are planted into one build, which asks the environment which one is on: the stages of the real tree know nothing of them.
//! `TICKTAPE_MUTANTS` says which are run: `all`, a third of them such as `2/3`, or those whose names contain it; without it a third by
//! the day.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;

/// In this time each has to be found, on one core.
const FOUND_WITHIN_S: u64 = 60;

/// A hunt that has not ended in this time hangs; others may want the core, too.
const PATIENCE: Duration = Duration::from_secs(5 * FOUND_WITHIN_S);

/// Seeds of the copy without a mutant, at least, for each way in which mutants are hunted.
const CLEAN_SEEDS_MIN: u64 = 100;

/// Stands for "this mutant is on" in what is planted.
const ON: &str = "@on";

/// Says which mutant is on, by its number in the table, from 1.
const SWITCH: &str = "TICKTAPE_MUTANT";

const MODULE: &str = r#"//! Which mutant is on.

use std::sync::OnceLock;

/// Whether it is this one.
pub fn is_on(number: u32) -> bool {
    static ON: OnceLock<u32> = OnceLock::new();
    *ON.get_or_init(|| std::env::var("TICKTAPE_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)) == number
}
"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mutant: Vec<Mutant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    /// The checks that may find it.
    checks: BTreeSet<String>,
    /// Why it is not found yet, where it is not.
    open: Option<String>,
    /// The service that meets it; all by turns where nothing is said.
    service: Option<String>,
    /// Whether boxes take snapshots; by chance where nothing is said.
    snapshots: Option<bool>,
    /// How many replicas there are; none where nothing is said.
    replicas: Option<usize>,
    /// What may strike; everything where nothing is said.
    faults: Option<String>,
    /// How long a run is; as usual where nothing is said.
    steps: Option<u32>,
    edit: Vec<Edit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    find: String,
    plant: String,
}

/// What a hunt came to.
#[derive(Debug, Deserialize)]
struct Hunt {
    runs: u64,
    seconds: f64,
    found: Option<Found>,
    too_shallow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Found {
    service: String,
    seed: u64,
    check: String,
    detail: String,
}

impl Mutant {
    /// What the hunt is told.
    fn args(&self) -> Vec<String> {
        let service = self.service.iter().flat_map(|name| ["--service".to_string(), name.clone()]);
        let snapshots = self.snapshots.iter().flat_map(|taken| ["--snapshots".to_string(), taken.to_string()]);
        let replicas = self.replicas.iter().flat_map(|count| ["--replicas".to_string(), count.to_string()]);
        let faults = self.faults.iter().flat_map(|kinds| ["--faults".to_string(), kinds.clone()]);
        let steps = self.steps.iter().flat_map(|steps| ["--steps".to_string(), steps.to_string()]);
        service.chain(snapshots).chain(replicas).chain(faults).chain(steps).collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate of the workspace")
}

fn table() -> Vec<Mutant> {
    let path = root().join("sim/mutants/table.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str::<Table>(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())).mutant
}

/// Replaces what `edit` is about in `text`.
fn plant(text: &str, edit: &Edit, number: usize, name: &str) -> String {
    let times = text.matches(&edit.find).count();
    assert_eq!(times, 1, "{name:?}: this stands {times} times in {}:\n{}\n", edit.file, edit.find);
    assert!(edit.plant.contains(ON), "{name:?} would always be on");
    text.replacen(&edit.find, &edit.plant.replace(ON, &format!("ticktape_core::mutants::is_on({number})")), 1)
}

#[test]
fn what_is_planted_has_its_place() {
    let table = table();
    assert!(table.len() >= 25, "{} mutants", table.len());
    let names: BTreeSet<_> = table.iter().map(|mutant| &mutant.name).collect();
    assert_eq!(names.len(), table.len(), "names are used once");
    for (index, mutant) in table.iter().enumerate() {
        assert!(!mutant.checks.is_empty() && !mutant.edit.is_empty(), "{}", mutant.name);
        for edit in &mutant.edit {
            let text =
                fs::read_to_string(root().join(&edit.file)).unwrap_or_else(|error| panic!("{}: {error}", edit.file));
            plant(&text, edit, index + 1, &mutant.name);
        }
    }
}

/// The tree's sources, as they are now.
fn sources() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the sources");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("paths are text");
    names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|path| root().join(path).is_file())
        .collect()
}

/// Makes `copy` a copy of the tree with everything planted. Files that are as they should be are left alone, so that a build after few
/// changes is short.
fn copy_and_plant(copy: &Path, table: &[Mutant]) {
    let sources = sources();
    let mut wanted: BTreeSet<PathBuf> = BTreeSet::new();
    let mut put = |path: PathBuf, bytes: Vec<u8>| {
        let to = copy.join(&path);
        fs::create_dir_all(to.parent().expect("it has a name")).expect("the copy can be made");
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::write(&to, bytes).expect("the copy can be made");
        }
        wanted.insert(path);
    };
    for path in sources {
        let mut bytes = fs::read(root().join(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (index, mutant) in table.iter().enumerate() {
            for edit in mutant.edit.iter().filter(|edit| Path::new(&edit.file) == path) {
                let text = String::from_utf8(bytes).expect("sources are text");
                bytes = plant(&text, edit, index + 1, &mutant.name).into_bytes();
            }
        }
        if path == Path::new("engine/core/src/lib.rs") {
            bytes.extend_from_slice(b"\npub mod mutants;\n");
        }
        put(path, bytes);
    }
    put(PathBuf::from("engine/core/src/mutants.rs"), MODULE.as_bytes().to_vec());
    remove_others(copy, copy, &wanted);
}

fn remove_others(copy: &Path, dir: &Path, wanted: &BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the copy can be read") {
        let path = entry.expect("the copy can be read").path();
        if path.is_dir() {
            remove_others(copy, &path, wanted);
        } else if !wanted.contains(path.strip_prefix(copy).expect("it is in the copy")) {
            fs::remove_file(&path).expect("the copy can be changed");
        }
    }
}

/// Builds the hunt in the copy; the path of its executable.
fn build(copy: &Path, target: &Path) -> PathBuf {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "-p", "ticktape-sim", "--example", "hunt", "--target-dir"])
        .arg(target)
        .env_remove("RUSTFLAGS")
        .current_dir(copy)
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "the copy does not build:\n{}", String::from_utf8_lossy(&built.stderr));
    target.join("release/examples/hunt")
}

/// Hunts with this mutant on, 0 for none. `None` where it hangs.
fn hunt(executable: &Path, number: usize, args: &[String]) -> Option<Hunt> {
    let mut child = Command::new(executable)
        .args(args)
        .env(SWITCH, number.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it was just built");
    let begun = Instant::now();
    while child.try_wait().expect("it is ours").is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let mut line = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut line).expect("it is text");
    let hunt = serde_json::from_str(&line);
    Some(hunt.unwrap_or_else(|error| panic!("mutant {number}, {args:?}: {error}: {line:?}")))
}

/// Whether a mutant is among those that are asked for.
fn is_selected(asked: &str, index: usize, name: &str) -> bool {
    match asked.split_once('/') {
        Some((part, of)) => {
            let (part, of): (usize, usize) = (part.parse().expect("as 1/3"), of.parse().expect("as 1/3"));
            index % of == part % of
        }
        None => asked == "all" || name.contains(asked),
    }
}

fn third_of_the_day() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    format!("{}/3", days % 3 + 1)
}

#[test]
#[ignore = "builds the tree once more, and hunts for minutes"]
fn each_is_found_and_the_copy_without_one_is_clean() {
    let asked = env::var("TICKTAPE_MUTANTS").unwrap_or_else(|_| third_of_the_day());
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    let (copy, table) = (home.join("tree"), table());
    copy_and_plant(&copy, &table);
    let executable = build(&copy, &home.join("target"));
    let mut ways: Vec<(Vec<String>, u64)> = Vec::new();
    let (mut lost, mut hunted) = (Vec::new(), 0);
    println!("mutants {asked}:\n{:<68} {:>6} {:>6}  found by", "mutant", "seeds", "s");
    for (index, mutant) in table.iter().enumerate().filter(|(index, mutant)| is_selected(&asked, *index, &mutant.name))
    {
        hunted += 1;
        let args = mutant.args();
        let hunt = hunt(&executable, index + 1, &args);
        let runs = hunt.as_ref().map_or(0, |hunt| hunt.runs);
        match ways.iter_mut().find(|(way, _)| *way == args) {
            Some((_, seeds)) => *seeds = runs.max(*seeds),
            None => ways.push((args, runs.max(CLEAN_SEEDS_MIN))),
        }
        let found = tell(mutant, hunt);
        if !found && mutant.open.is_none() {
            lost.push(mutant.name.as_str());
        }
    }
    assert!(hunted > 0, "no mutant is called {asked:?}");
    for (args, seeds) in ways {
        let bounded = args.iter().cloned().chain(["--seeds".to_string(), seeds.to_string()]).collect::<Vec<_>>();
        let clean = hunt(&executable, 0, &bounded).unwrap_or_else(|| panic!("hangs without a mutant: {args:?}"));
        println!("{:<68} {:>6} {:>6.1}  nothing", format!("(none; {})", args.join(" ")), clean.runs, clean.seconds);
        let is_shallow = |check: &String| clean.too_shallow.iter().any(|name| *check == format!("too shallow: {name}"));
        let alike = |mutant: &Mutant| mutant.args() == args && mutant.open.is_none();
        let hunted = table.iter().enumerate().filter(|(index, mutant)| is_selected(&asked, *index, &mutant.name));
        for (_, mutant) in hunted.filter(|(_, mutant)| alike(mutant)) {
            let shared = mutant.checks.iter().find(|check| is_shallow(check));
            assert_eq!(shared, None, "{:?}: so it is without it, too", mutant.name);
        }
        if let Some(Found { service, seed, check, detail }) = clean.found {
            panic!("without a mutant, {service}, seed {seed}: it does not hold that {check}: {detail}");
        }
    }
    assert!(lost.is_empty(), "not found within {FOUND_WITHIN_S} s: {lost:?}");
}

/// A line of the table; whether it was found.
fn tell(mutant: &Mutant, hunt: Option<Hunt>) -> bool {
    let Some(hunt) = hunt else {
        println!("{:<68} {:>6} {:>6}  HANGS", mutant.name, "", "");
        return false;
    };
    let Hunt { runs, seconds, found, too_shallow } = hunt;
    let shallow = too_shallow.into_iter().map(|name| format!("too shallow: {name}"));
    let check =
        found.map(|found| found.check).or_else(|| shallow.into_iter().find(|check| mutant.checks.contains(check)));
    let (said, is_foreseen) = match &check {
        Some(check) => (check.as_str(), mutant.checks.contains(check)),
        None => (mutant.open.as_deref().unwrap_or("NOTHING"), true),
    };
    let remark = if is_foreseen { "" } else { " (unforeseen)" };
    println!("{:<68} {runs:>6} {seconds:>6.1}  {said}{remark}", mutant.name);
    check.is_some()
}
