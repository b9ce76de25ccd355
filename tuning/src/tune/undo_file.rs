//! The undo file: what every setting was before it was changed, as a text that people can read.
//!
//! ```text
//!   ticktape undo file, version 1. Not to be edited: `ticktape tune undo` gives back what stands here
//!   root "/"
//!   boot "b9b3adaa-1555-492c-91a7-b0dbee16c5dd"
//!   state applied
//!
//!   == proc/sys/vm/stat_interval
//!   check memory-statistics
//!   form word
//!   old "1\n"
//!   new "120"
//!   stands "120\n"
//!
//!   == proc/irq/36/smp_affinity_list
//!   check interrupts-other
//!   form list
//!   old "0-3\n"
//!   went "2\n"
//!   new "0"
//!   stands "0\n"
//!
//!   crc32c 8c1d3a07
//! ```
//!
//! Values stand in quotes, with everything that is no plain character escaped, so bytes come back as they were. The last line is the checksum of
//! all before it. While changes are under way the state is `applying`, and nothing is known of how the settings stand.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::{Form, Place};

const TITLE: &str = "ticktape undo file, version 1. Not to be edited: `ticktape tune undo` gives back what stands here";

/// No box has more settings to change.
const ENTRIES_MAX: usize = 65_536;

/// How far an apply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is under way, or was when it was killed.
    Applying,
    /// It came to its end.
    Applied,
}

/// One setting, as it was, and what it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the root.
    pub path: String,
    /// The check that asked for it.
    pub check: String,
    /// How the kernel writes it.
    pub form: Form,
    /// The bytes that it had.
    pub old: Vec<u8>,
    /// Of an interrupt, the cores that it went to: of those that it may go to the kernel picks one, and keeps it.
    pub went: Option<Vec<u8>>,
    /// What it was given.
    pub new: String,
    /// The bytes that it had after all was done; unknown while that is under way.
    pub stands: Option<Vec<u8>>,
}

impl Entry {
    /// Whether bytes are there because of us.
    pub fn is_ours(&self, bytes: &[u8]) -> bool {
        // An undo narrows an interrupt's mask for a while to where it went, and may be killed then.
        let is_narrowed = |went: &Vec<u8>| self.form.says(bytes, &String::from_utf8_lossy(went));
        self.stands.as_deref() == Some(bytes)
            || self.form.follows(bytes, &self.old, &self.new)
            || self.went.as_ref().is_some_and(is_narrowed)
    }
}

/// All that an apply changed, or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoFile {
    /// The root whose settings these are.
    pub root: String,
    /// The kernel's identity of this start of the box.
    pub boot: String,
    /// How far it came.
    pub state: State,
    /// In the order in which they are changed.
    pub entries: Vec<Entry>,
}

impl UndoFile {
    /// Whether the box was started again since. Where a start has no identity nobody can say so, and nothing is given up.
    pub fn is_of_earlier_start(&self, place: &Place) -> bool {
        ![&self.boot, &place.boot].into_iter().any(String::is_empty) && self.boot != place.boot
    }
}

/// Why a text is no undo file that could be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoFileError {
    /// Something else altogether.
    Foreign,
    /// The last line is no checksum: the end is missing.
    Cut,
    /// It is not what was written: edited, or damaged.
    Edited,
    /// A line, from 1, that no version of this program writes.
    Malformed {
        /// The line.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl fmt::Display for UndoFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UndoFileError::Foreign => f.write_str("no undo file of ticktape, or of another version"),
            UndoFileError::Cut => f.write_str("its end is missing: the last line is no checksum"),
            UndoFileError::Edited => f.write_str("edited or damaged: its checksum is of another text"),
            UndoFileError::Malformed { line, what } => write!(f, "line {line}: {what}"),
        }
    }
}

impl std::error::Error for UndoFileError {}

impl fmt::Display for UndoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let state = match self.state {
            State::Applying => "applying",
            State::Applied => "applied",
        };
        writeln!(
            text,
            "{TITLE}\nroot {}\nboot {}\nstate {state}\n",
            quoted(self.root.as_bytes()),
            quoted(self.boot.as_bytes())
        )?;
        for entry in &self.entries {
            writeln!(text, "== {}\ncheck {}\nform {}", entry.path, entry.check, entry.form.name())?;
            writeln!(text, "old {}", quoted(&entry.old))?;
            if let Some(went) = &entry.went {
                writeln!(text, "went {}", quoted(went))?;
            }
            writeln!(text, "new {}", quoted(entry.new.as_bytes()))?;
            if let Some(stands) = &entry.stands {
                writeln!(text, "stands {}", quoted(stands))?;
            }
            text.push('\n');
        }
        writeln!(f, "{text}crc32c {:08x}", crc32c::crc32c(text.as_bytes()))
    }
}

impl FromStr for UndoFile {
    type Err = UndoFileError;

    fn from_str(text: &str) -> Result<UndoFile, UndoFileError> {
        if !text.starts_with(TITLE) {
            return Err(UndoFileError::Foreign);
        }
        let body = checked(text)?;
        let written: Vec<(usize, &str)> =
            body.lines().enumerate().skip(1).filter(|(_, line)| !line.is_empty()).collect();
        let mut lines = Lines { lines: written.into_iter().peekable(), last: 1 };
        let root = lines.text("root")?;
        let boot = lines.text("boot")?;
        let state = match lines.plain("state")? {
            "applying" => State::Applying,
            "applied" => State::Applied,
            _ => return Err(lines.wrong("no state of an apply")),
        };
        let mut entries = Vec::new();
        while lines.lines.peek().is_some() {
            entries.push(lines.entry()?);
            if entries.len() > ENTRIES_MAX {
                return Err(lines.wrong("more settings than any box has"));
            }
        }
        Ok(UndoFile { root, boot, state, entries })
    }
}

/// The text before the checksum, if that is right.
fn checked(text: &str) -> Result<&str, UndoFileError> {
    let whole = text.strip_suffix('\n').ok_or(UndoFileError::Cut)?;
    let at = whole.rfind('\n').map_or(0, |at| at + 1);
    let digits = whole[at..].strip_prefix("crc32c ").ok_or(UndoFileError::Cut)?;
    let body = &text[..at];
    let is_right = digits == format!("{:08x}", crc32c::crc32c(body.as_bytes()));
    if is_right { Ok(body) } else { Err(UndoFileError::Edited) }
}

struct Lines<'a> {
    lines: std::iter::Peekable<std::vec::IntoIter<(usize, &'a str)>>,
    last: usize,
}

impl<'a> Lines<'a> {
    fn wrong(&self, what: &'static str) -> UndoFileError {
        UndoFileError::Malformed { line: self.last, what }
    }

    /// The next line's value, which has to be `key`'s.
    fn plain(&mut self, key: &'static str) -> Result<&'a str, UndoFileError> {
        let Some((index, line)) = self.lines.next() else { return Err(self.wrong("the next line is missing")) };
        self.last = index + 1;
        line.strip_prefix(key)
            .and_then(|rest| rest.strip_prefix(' '))
            .ok_or(self.wrong("another key than should stand here"))
    }

    fn bytes(&mut self, key: &'static str) -> Result<Vec<u8>, UndoFileError> {
        let value = self.plain(key)?;
        unquoted(value).ok_or(self.wrong("no value in quotes"))
    }

    fn text(&mut self, key: &'static str) -> Result<String, UndoFileError> {
        let bytes = self.bytes(key)?;
        String::from_utf8(bytes).map_err(|_| self.wrong("no text"))
    }

    fn entry(&mut self) -> Result<Entry, UndoFileError> {
        let path = self.plain("==")?.to_owned();
        if !is_setting(&path) {
            return Err(self.wrong("no path of a setting, which is below proc/sys, proc/irq or sys"));
        }
        let check = self.plain("check")?.to_owned();
        let form = self.plain("form")?;
        let form = Form::named(form).ok_or(self.wrong("no form of a value"))?;
        let old = self.bytes("old")?;
        let went = self.bytes_if("went")?;
        let new = self.text("new")?;
        let stands = self.bytes_if("stands")?;
        Ok(Entry { path, check, form, old, went, new, stands })
    }

    /// The next line's value, where it is `key`'s.
    fn bytes_if(&mut self, key: &'static str) -> Result<Option<Vec<u8>>, UndoFileError> {
        let is_there =
            self.lines.peek().is_some_and(|(_, line)| line.strip_prefix(key).is_some_and(|l| l.starts_with(' ')));
        if is_there { self.bytes(key).map(Some) } else { Ok(None) }
    }
}

/// Of an interrupt's mask, where the cores stand that it goes to.
pub(super) fn effective(mask: &str) -> Option<String> {
    let interrupt = mask.strip_suffix("/smp_affinity_list").filter(|above| above.starts_with("proc/irq/"))?;
    Some(format!("{interrupt}/effective_affinity_list"))
}

/// Whether a path is one that settings have: nothing else is ever written to.
pub(super) fn is_setting(path: &str) -> bool {
    let is_plain = path.split('/').all(|part| !matches!(part, "" | "." | "..")) && !path.contains('\0');
    is_plain && ["proc/sys/", "proc/irq/", "sys/"].iter().any(|above| path.starts_with(above))
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

/// The bytes of what [`quoted`] wrote.
fn unquoted(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'"' {
            return None;
        }
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other @ (b'\\' | b'"' | b'\'') => other,
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file() -> UndoFile {
        let entry = |path: &str, form, old: &[u8], new: &str, stands: Option<&[u8]>| Entry {
            path: path.to_owned(),
            check: "memory-thp".to_owned(),
            form,
            old: old.to_vec(),
            went: None,
            new: new.to_owned(),
            stands: stands.map(<[u8]>::to_vec),
        };
        UndoFile {
            root: "/".to_owned(),
            boot: "b9b3adaa".to_owned(),
            state: State::Applied,
            entries: vec![
                entry("proc/sys/vm/stat_interval", Form::Word, b"1\n", "120", Some(b"120\n")),
                entry(
                    "sys/kernel/mm/transparent_hugepage/enabled",
                    Form::Choice,
                    b"[always] \"\\\xff\n",
                    "madvise",
                    None,
                ),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = file().to_string();
        assert_eq!(text.parse(), Ok(file()), "{text}");
        assert!(text.is_ascii() && text.contains("\nold \"1\\n\"\nnew \"120\"\nstands \"120\\n\"\n"), "{text}");
    }

    #[test]
    fn an_edited_a_cut_and_a_foreign_file_are_told_apart() {
        let text = file().to_string();
        let refused = |text: &str| text.parse::<UndoFile>().unwrap_err();
        assert_eq!(refused(&text.replace("old \"1", "old \"2")), UndoFileError::Edited);
        assert_eq!(refused(&text[..text.len() - 1]), UndoFileError::Cut);
        assert_eq!(refused(&text[..text.len() / 2]), UndoFileError::Cut);
        assert_eq!(refused("kernel.numa_balancing = 0\n"), UndoFileError::Foreign);
        assert_eq!(refused(""), UndoFileError::Foreign);
        assert_eq!(refused(&text.replace("version 1", "version 2")), UndoFileError::Foreign);
    }

    /// `text` with a checksum that is right.
    fn signed(body: &str) -> String {
        format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()))
    }

    #[test]
    fn a_right_checksum_does_not_make_a_setting_of_any_path() {
        let text = file().to_string();
        let body = &text[..text.rfind("crc32c").unwrap()];
        assert_eq!(signed(body), text);
        for path in ["etc/passwd", "proc/1/oom_score_adj", "sys/../etc/passwd", "/sys/a", "sys//a", "proc/sys/./a"] {
            let error = signed(&body.replace("proc/sys/vm/stat_interval", path)).parse::<UndoFile>().unwrap_err();
            assert!(matches!(error, UndoFileError::Malformed { line: 6, .. }), "{path}: {error}");
        }
        for (from, to, line) in
            [("form word", "form any", 8), ("new \"120\"", "new 120", 10), ("state applied", "state done", 4)]
        {
            let error = signed(&body.replace(from, to)).parse::<UndoFile>().unwrap_err();
            assert!(matches!(error, UndoFileError::Malformed { line: at, .. } if at == line), "{to}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(old: Vec<u8>, went: Option<Vec<u8>>, stands: Option<Vec<u8>>, new: String) {
            let mut file = file();
            file.entries[0] = Entry { old, went, stands, new, ..file.entries[0].clone() };
            prop_assert_eq!(file.to_string().parse(), Ok(file));
        }

        #[test]
        fn a_changed_byte_is_noticed(at: prop::sample::Index, to in 1_u8..127) {
            let mut bytes = file().to_string().into_bytes();
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != to);
            bytes[at] = to;
            let text = String::from_utf8(bytes).unwrap();
            prop_assert!(text.parse::<UndoFile>().is_err());
        }

        #[test]
        fn garbage_with_a_right_checksum_is_no_panic(body in "(== |root |boot |old |new |form |check |\"|\\\\|x|sys/a|\n|word| ){0,40}") {
            let _ = signed(&format!("{TITLE}\n{body}\n")).parse::<UndoFile>();
        }
    }
}
