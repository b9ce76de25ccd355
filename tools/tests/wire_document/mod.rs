//! The tables, examples and headings of a Markdown document.

/// One table, by where it stands and what its header says.
#[derive(Debug)]
pub struct Table {
    /// The headings above it, of the second and third level, joined by a slash.
    pub path: String,
    /// The cells of its header.
    pub head: Vec<String>,
    /// The cells of its rows.
    pub rows: Vec<Vec<String>>,
}

/// One fenced block of hexadecimal bytes.
#[derive(Debug)]
pub struct Example {
    /// What the fence says after `hex`.
    pub name: String,
    /// The bytes; `None` where they are no hexadecimal.
    pub bytes: Option<Vec<u8>>,
}

/// What can be checked of a document.
#[derive(Debug, Default)]
pub struct Document {
    pub tables: Vec<Table>,
    pub examples: Vec<Example>,
    headings: Vec<String>,
    /// All of it, on one line.
    prose: String,
}

impl Document {
    pub fn parse(text: &str) -> Document {
        let prose = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut document = Document { prose, ..Document::default() };
        let (mut second, mut third) = (String::new(), String::new());
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let body: String = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
                let name = language.strip_prefix("hex").unwrap_or(language).trim().to_owned();
                document.examples.push(Example { name, bytes: bytes(&body) });
            } else if let Some(heading) = line.strip_prefix("### ") {
                third = format!("/{heading}");
                document.headings.push(heading.to_owned());
            } else if let Some(heading) = line.strip_prefix("## ") {
                (second, third) = (heading.to_owned(), String::new());
                document.headings.push(heading.to_owned());
            } else if line.starts_with('|') {
                let mut rows = Vec::new();
                while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                    rows.push(cells(row));
                }
                assert!(!rows.is_empty() && rows.remove(0).iter().all(|cell| cell == "---"), "no table: {line}");
                document.tables.push(Table { path: format!("{second}{third}"), head: cells(line), rows });
            }
        }
        document
    }

    /// Whether these words stand somewhere, whatever the line breaks.
    pub fn says(&self, words: &str) -> bool {
        self.prose.contains(words)
    }

    pub fn has_heading(&self, name: &str) -> bool {
        self.headings.iter().any(|heading| heading == name)
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: String = text.split_whitespace().collect();
    let pair = |at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..digits.len()).step_by(2).map(pair).collect()
}
