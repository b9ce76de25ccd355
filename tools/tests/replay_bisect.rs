//! `ticktape replay --bisect`, with this very program as the other build: its counter goes wrong at 20.

mod journals;

use std::path::Path;
use std::process::ExitCode;

use counter::{Answer, Command, Counter};
use journals::{Ran, three_segments, ticktape};
use serde_json::Value;
use ticktape::{Ctx, Seq, Service};

struct Mutant(i64);

impl Service for Mutant {
    type Input = Command;
    type Output = Answer;
    type Snapshot = i64;
    type Config = ();

    const NAME: &'static str = Counter::NAME;
    const SCHEMA_VERSION: u32 = Counter::SCHEMA_VERSION;

    fn genesis((): &()) -> Self {
        Mutant(0)
    }

    fn apply(&mut self, _: Seq, input: &Command, ctx: &mut Ctx<'_, Answer>) {
        match input {
            Command::Add(by) if self.0 == 20 => self.0 += by + 1,
            Command::Add(by) => self.0 += by,
            Command::Reset => self.0 = 0,
        }
        ctx.reply(Answer::Value(self.0));
    }

    fn snapshot(&self) -> i64 {
        self.0
    }

    fn restore(value: i64, (): &()) -> Self {
        Mutant(value)
    }
}

fn bisect(dir: &Path, other: &str, extra: &[&str]) -> (Ran, Value) {
    let json = dir.with_extension("json");
    let (dir, json_arg) = (dir.to_str().unwrap(), json.to_str().unwrap());
    let ran = ticktape(&[&["replay", "--journal", dir, "--bisect", other, "--json", json_arg][..], extra].concat());
    let text = std::fs::read_to_string(&json).unwrap_or("null".to_string());
    let _ = std::fs::remove_file(json);
    (ran, serde_json::from_str(&text).unwrap())
}

fn the_first_input_that_differs_is_named_whatever_snapshots_say() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    // At frame 23 it adds 1 to 20; the snapshot after frame 24 has it right.
    three_segments(&journal);
    let this = std::env::current_exe().unwrap();
    let (ran, json) = bisect(&journal, this.to_str().unwrap(), &[]);
    assert_eq!(ran.complaint(1), "the builds differ from frame 23 on");
    assert!(ran.out.contains("DIFFERS        frame 23: Add(1)"), "{}", ran.out);
    assert_eq!((&json["differs_at"], &json["ok"]), (&23.into(), &false.into()));
    assert_ne!(json["ours"]["output_hash"], json["theirs"]["output_hash"]);
    assert!(json["probes"].as_u64().unwrap() < 10);

    let (ran, json) = bisect(&journal, this.to_str().unwrap(), &["--until", "22"]);
    assert!(ran.good().contains("both builds come to the same"), "{}", ran.out);
    assert_eq!((&json["differs_at"], &json["last"]), (&Value::Null, &22.into()));
    let (ran, _) = bisect(&journal, env!("CARGO_BIN_EXE_ticktape"), &[]);
    ran.good();
    let (ran, _) = bisect(&journal, "/no/such/program", &[]);
    assert!(ran.complaint(2).starts_with("/no/such/program: can't be run"), "{}", ran.errors);
    let (ran, _) = bisect(&journal, "/bin/true", &[]);
    assert!(ran.complaint(1).starts_with("/bin/true: what its state --json prints can't be read"), "{}", ran.errors);
    // What fails without a word is no build whose result differs.
    let (ran, json) = bisect(&journal, "/bin/false", &[]);
    assert!(ran.complaint(1).starts_with("/bin/false: is no build of this program"), "{}", ran.errors);
    assert_eq!(json, Value::Null);
    let (ran, _) = bisect(&journal, env!("CARGO_BIN_EXE_ticktape"), &["--until", "37"]);
    assert!(
        ran.complaint(2).ends_with("there is no frame 37 to end with: --until takes 0 to 36 here"),
        "{}",
        ran.errors
    );
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy() == format!("ticktape-bisect-{}", std::process::id())));
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("state") {
        return ticktape_tools::Tools::new("mutant").service::<Mutant>("counter", ()).main();
    }
    // A filter that names another test is for none of these.
    let name = "the_first_input_that_differs_is_named_whatever_snapshots_say";
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    if filter.is_none_or(|filter| name.contains(&filter)) && !std::env::args().any(|argument| argument == "--list") {
        the_first_input_that_differs_is_named_whatever_snapshots_say();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}
