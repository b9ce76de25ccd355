//! What every table of the document has to say, by the code's own constants.

mod codec;
mod layouts;
mod lists;

use super::wire_document::{Document, Table};

/// The rows that a table has to have: its first cells, as far as the code knows them.
#[derive(Debug)]
pub struct Expected {
    /// Where the table stands.
    pub path: String,
    /// The first cells of its header.
    pub head: Vec<&'static str>,
    /// The first cells of its rows.
    pub rows: Vec<Vec<String>>,
}

/// What is wrong with the document's tables.
pub fn problems(document: &Document) -> Vec<String> {
    let mut expected = layouts::expected();
    expected.extend(lists::expected());
    expected.push(codec::expected());
    let mut problems = Vec::new();
    for table in &document.tables {
        let name = name_of(table);
        match expected.iter().find(|expected| is_for(expected, table)) {
            None if table.head[0] == "part" => problems.extend(contents(document, table)),
            None => problems.push(format!("{name}: nothing checks it")),
            Some(expected) => problems.extend(compare(&name, expected, table)),
        }
    }
    for expected in &expected {
        let times = document.tables.iter().filter(|table| is_for(expected, table)).count();
        if times != 1 {
            problems.push(format!("{}, {}: is there {times} times", expected.path, expected.head.join(" | ")));
        }
    }
    problems.extend(layouts::unsaid(document));
    problems
}

fn name_of(table: &Table) -> String {
    format!("{}, {}", table.path, table.head.join(" | "))
}

fn is_for(expected: &Expected, table: &Table) -> bool {
    expected.path == table.path && expected.head[..] == table.head[..expected.head.len().min(table.head.len())]
}

fn compare(name: &str, expected: &Expected, table: &Table) -> Vec<String> {
    let mut problems = Vec::new();
    if table.rows.len() != expected.rows.len() {
        problems.push(format!("{name}: {} rows, the code has {}", table.rows.len(), expected.rows.len()));
    }
    for (row, expected) in table.rows.iter().zip(&expected.rows) {
        if row.len() != table.head.len() {
            problems.push(format!("{name}: {} cells in {row:?}", row.len()));
        }
        let agrees = |(cell, expected): (&String, &String)| cell == expected || short(cell) == *expected;
        if row.len() < expected.len() || !row.iter().zip(expected).all(agrees) {
            problems.push(format!("{name}: {row:?}, the code has {expected:?}"));
        }
    }
    if table.head == ["offset", "size", "field", "type"] {
        let wrong = table.rows.iter().filter(|row| row.len() == 4 && !type_has_size(&row[3], &row[1]));
        problems.extend(wrong.map(|row| format!("{name}: a {} is not {} bytes", row[3], row[1])));
    }
    problems
}

/// The name in a cell such as `stale epoch: this client epoch was used before`.
fn short(cell: &str) -> String {
    cell.split([':', ',']).next().unwrap_or_default().to_lowercase()
}

/// Whether a type, such as `u32, n`, takes so many bytes.
fn type_has_size(text: &str, size: &str) -> bool {
    let name = text.split([',', ' ', ':']).next().unwrap_or_default();
    match name {
        "u8" | "u16" | "u32" | "u64" => name[1..].parse::<usize>().is_ok_and(|bits| size == (bits / 8).to_string()),
        "bytes" | "base" => !size.is_empty(),
        "messages" | "ranges" => size == "n",
        count => count == size && text.contains("characters"),
    }
}

/// The table of contents: every link leads to a heading.
fn contents(document: &Document, table: &Table) -> Vec<String> {
    let leads = |row: &&Vec<String>| {
        let link = row[0].strip_prefix('[').and_then(|link| link.split_once("](#"));
        link.is_some_and(|(name, anchor)| {
            document.has_heading(name) && anchor.trim_end_matches(')') == name.to_lowercase().replace(' ', "-")
        })
    };
    table.rows.iter().filter(|row| !leads(row)).map(|row| format!("contents: {} leads nowhere", row[0])).collect()
}
