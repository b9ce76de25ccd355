//! No line of a stage is compiled differently for the simulator: the crates that it runs have no switch that it could set.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that run live and simulated.
const CRATES: [&str; 7] = ["engine", "engine/core", "engine/crc", "engine/macros", "shm", "journal", "nic"];

/// What a line may depend on: none of it is set for the simulator.
const CONDITIONS: [&str; 6] = ["test", "doc", "debug_assertions", "target_os", "target_arch", "target_endian"];

/// The ring's model checking, and an interpreter's, which knows no assembly.
const CONDITIONS_IN_SHM: [&str; 2] = ["loom", "miri"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_path_buf()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The text without comments and the content of strings.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with('"') {
            end_of_string(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'/'") {
            3
        } else {
            code.push_str(&rest[..1]);
            1
        };
        rest = &rest[skipped..];
    }
    code + rest
}

fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The predicates of every `cfg(…)`, `cfg!(…)` and `cfg_attr(…, …)`.
fn predicates(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for start in ["cfg(", "cfg!(", "cfg_attr("] {
        for (at, _) in code.match_indices(start) {
            let is_word = code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
            if is_word {
                continue;
            }
            let inside = &code[at + start.len()..];
            let mut depth = 0;
            let end = inside.find(|letter: char| {
                depth += i32::from(letter == '(') - i32::from(letter == ')');
                depth < 0 || (depth == 0 && letter == ',' && start == "cfg_attr(")
            });
            found.push(&inside[..end.expect("it ends")]);
        }
    }
    found
}

fn conditions(predicate: &str) -> impl Iterator<Item = &str> {
    let words = predicate.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    words.filter(|word| !word.is_empty() && !["not", "all", "any"].contains(word))
}

#[test]
fn no_line_of_a_stage_depends_on_the_simulator() {
    let mut seen = 0;
    for name in CRATES {
        let mut files = Vec::new();
        sources(&root().join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "{name} has sources");
        for file in files {
            let code = code(&fs::read_to_string(&file).unwrap());
            for condition in predicates(&code).into_iter().flat_map(conditions) {
                seen += 1;
                let is_allowed =
                    CONDITIONS.contains(&condition) || name == "shm" && CONDITIONS_IN_SHM.contains(&condition);
                assert!(is_allowed, "{}: what is compiled depends on {condition:?}", file.display());
            }
            for word in ["ticktape_sim", "option_env!"] {
                assert!(!code.contains(word), "{}: {word}", file.display());
            }
        }
    }
    assert!(seen > 50, "{seen} conditions were looked at");
}

#[test]
fn no_crate_of_a_stage_has_a_feature_or_the_simulator_among_its_dependencies() {
    for name in CRATES {
        let text = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line.trim();
            }
            let is_for_tests = section == "[dev-dependencies]";
            assert!(is_for_tests || !line.contains("ticktape-sim"), "{name}/Cargo.toml: {line}");
            assert!(section != "[features]" && !line.contains("build ="), "{name}/Cargo.toml: {line}");
        }
        assert!(!root().join(name).join("build.rs").exists(), "{name} has a build script");
    }
}

#[test]
fn a_condition_that_is_not_allowed_would_be_seen() {
    let text = "#[cfg(all(test, not(feature = \"sim\")))]\nlet x = cfg!(simulated); // cfg(comment)\n\
                #[cfg_attr(loom, allow(dead_code))] fn my_cfg(none: u8) {}";
    let code = code(text);
    let found: Vec<&str> = predicates(&code).into_iter().flat_map(conditions).collect();
    assert_eq!(found, ["test", "feature", "simulated", "loom"]);
}
