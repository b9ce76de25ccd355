//! WIRE.md against the code: every table, every example, and every place that cites it.
//!
//! A table or an example of the document that nothing here checks fails, as does a check that finds nothing in the document.

mod wire_document;
mod wire_examples;
mod wire_tables;

use std::path::{Path, PathBuf};

use wire_document::Document;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn text() -> String {
    std::fs::read_to_string(root().join("WIRE.md")).expect("WIRE.md stands at the root of the workspace")
}

fn problems(text: &str) -> Vec<String> {
    let document = Document::parse(text);
    let mut problems = wire_tables::problems(&document);
    problems.extend(wire_examples::problems(&document));
    problems
}

#[test]
fn the_document_says_what_the_code_does() {
    let problems = problems(&text());
    assert!(problems.is_empty(), "WIRE.md:\n{}", problems.join("\n"));
}

#[test]
fn every_kind_of_mistake_in_the_document_is_noticed() {
    let text = text();
    let change = |from: &str, to: &str| {
        assert!(text.contains(from), "{from:?} is gone: choose another victim");
        problems(&text.replacen(from, to, 1))
    };
    let row = "| 136 | 8 | state | u64, 0 open, 1 closed in order |\n";
    for (from, to, named) in [
        (row, "", "Shared memory/Ring state"),
        (row, "| 136 | 8 | state | u64 |\n| 144 | 8 | more | u64 |\n", "Shared memory/Ring state"),
        (row, "| 140 | 8 | state | u64 |\n", "Shared memory/Ring state"),
        (row, "| 136 | 4 | state | u32 |\n", "Shared memory/Ring state"),
        (row, "| 136 | 8 | status | u64 |\n", "Shared memory/Ring state"),
        (row, "| 136 | 8 | state | u32 |\n", "Shared memory/Ring state"),
        ("### Ring state", "### Ring status", "Shared memory/Ring state"),
        ("| 10 | Heartbeat |", "| 12 | Heartbeat |", "Link/Header"),
        ("| 0x0010 | Tick |", "| 0x0011 | Tick |", "Frame"),
        ("## Codec\n", "## Codec\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "Codec"),
        ("bytes `TKTC`", "bytes `TKTD`", "Journal/Commit"),
        ("```hex epoch change\n03", "```hex epoch change\n04", "epoch change"),
        ("```hex epoch change\n", "```hex another\n", "another"),
        ("```hex anchor\n", "```hex\n", "anchor"),
    ] {
        let problems = change(from, to);
        assert!(problems.iter().any(|problem| problem.contains(named)), "{from:?} to {to:?}: {problems:?}");
    }
}

/// The section names of `WIRE.md, "Name", "Name"` and `"Name" and "Name"` in one line.
fn cited(line: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for mut rest in line.split("WIRE.md, ").skip(1) {
        while let Some((name, after)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            names.push(name);
            let next = [", ", " and WIRE.md, ", " and "].iter().find_map(|between| after.strip_prefix(between));
            rest = next.unwrap_or_default();
        }
    }
    names
}

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_section_that_the_code_cites_is_there() {
    assert_eq!(cited(r#"//! WIRE.md, "Link", "Event"; WIRE.md, "A" and "B"."#), ["Link", "Event", "A", "B"]);
    let text = text();
    let document = Document::parse(&text);
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let (mut citations, mut missing) = (0, Vec::new());
    for file in files.iter().filter(|file| !file.ends_with("tests/wire.rs")) {
        // A file that is being replaced at this moment has nothing to say.
        let Ok(source) = std::fs::read_to_string(file) else { continue };
        for (index, line) in source.lines().enumerate() {
            for name in cited(line) {
                citations += 1;
                if !document.has_heading(name) {
                    missing.push(format!("{}:{}: no section {name:?}", file.display(), index + 1));
                }
            }
        }
    }
    assert!(citations > 10, "only {citations} citations: has their form changed?");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
