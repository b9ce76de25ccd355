//! How the kernel writes what it was told: rarely in the same bytes.

use crate::facts::cpu_list::{self, CoreSet};

/// The form of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A word or a number, with a line's end after it.
    Word,
    /// One of several words, with the chosen one in brackets: `always [madvise] never`. Only the one word is written.
    Choice,
    /// A list of cores, `0-3,8`, which comes back in the shortest way.
    List,
    /// A mask of cores, `ff,0000000f`, which comes back with as many digits as the kernel knows cores.
    Mask,
    /// A number that the kernel comes as near to as it can: pages that it has to find first.
    Count,
    /// A word or a number that nobody changes, but that the next setting moves when it is changed: it is put back after that.
    Kept,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 6] = [Form::Word, Form::Choice, Form::List, Form::Mask, Form::Count, Form::Kept];

    /// As it stands in files.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Word => "word",
            Form::Choice => "choice",
            Form::List => "list",
            Form::Mask => "mask",
            Form::Count => "count",
            Form::Kept => "kept",
        }
    }

    /// The form of that name.
    pub fn named(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.name() == name)
    }

    /// What has to be written so that a read gives `bytes` again.
    pub fn written_as(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            // Of several words the kernel takes the one.
            Form::Choice => chosen(&String::from_utf8_lossy(bytes)).as_bytes().to_vec(),
            _ => bytes.to_vec(),
        }
    }

    /// Whether a read of `bytes` means `value`.
    pub fn says(self, bytes: &[u8], value: &str) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        match self {
            Form::Word | Form::Count | Form::Kept => text == value.trim(),
            Form::Choice => chosen(text) == value.trim(),
            Form::List => same(cpu_list::list(text), cpu_list::list(value)),
            Form::Mask => same(cpu_list::mask(text), cpu_list::mask(value)),
        }
    }

    /// Whether a setting that stood at `old` and was given `value` may stand at `bytes` because of that.
    pub fn follows(self, bytes: &[u8], old: &[u8], value: &str) -> bool {
        if self.says(bytes, value) {
            return true;
        }
        let number = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().parse::<u64>().ok();
        match (self, number(bytes), number(old), value.trim().parse::<u64>()) {
            (Form::Count, Some(now), Some(old), Ok(value)) => (old.min(value)..=old.max(value)).contains(&now),
            _ => false,
        }
    }
}

fn same(a: Result<CoreSet, String>, b: Result<CoreSet, String>) -> bool {
    matches!((a, b), (Ok(a), Ok(b)) if a == b)
}

fn chosen(text: &str) -> &str {
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or(text, |(word, _)| word).trim()
}

/// Cores as a mask, in words of 32 bits with the highest first.
pub fn mask(cores: &[usize]) -> String {
    let words = cores.iter().max().map_or(1, |last| last / 32 + 1);
    let word =
        |at: usize| cores.iter().filter(|core| *core / 32 == at).fold(0_u32, |bits, core| bits | 1 << (core % 32));
    (0..words).rev().map(|at| format!("{:08x}", word(at))).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_comes_back_means_what_was_written() {
        for (form, bytes, value, says) in [
            (Form::Word, "performance\n", "performance", true),
            (Form::Word, "powersave\n", "performance", false),
            (Form::Choice, "always [madvise] never\n", "madvise", true),
            (Form::Choice, "always [madvise] never\n", "always", false),
            (Form::Choice, "none\n", "none", true),
            (Form::List, "0-3,7\n", "0,1,2,3,7", true),
            (Form::List, "0-3\n", "0-2", false),
            (Form::Mask, "00000000,0000000f\n", "f", true),
            (Form::Mask, "3\n", "00000003", true),
            (Form::Mask, "x\n", "x", false),
        ] {
            assert_eq!(form.says(bytes.as_bytes(), value), says, "{bytes:?} {value}");
        }
    }

    #[test]
    fn pages_that_could_not_all_be_found_are_still_ours() {
        let follows = |now: &str| Form::Count.follows(now.as_bytes(), b"2\n", "10");
        assert!(follows("2\n") && follows("7\n") && follows("10\n"));
        assert!(!follows("1\n") && !follows("11\n") && !follows("many\n"));
        assert!(!Form::Word.follows(b"7\n", b"2\n", "10"));
    }

    #[test]
    fn of_a_choice_only_the_word_is_written_back() {
        assert_eq!(Form::Choice.written_as(b"none [mq-deadline] kyber\n"), b"mq-deadline");
        assert_eq!(Form::List.written_as(b"0-3\n"), b"0-3\n");
    }

    proptest! {
        #[test]
        fn masks_are_read_as_they_are_written(cores in prop::collection::btree_set(0..1_024_usize, 0..40)) {
            let cores: Vec<usize> = cores.into_iter().collect();
            prop_assert_eq!(cpu_list::mask(&mask(&cores)), Ok(cores));
        }
    }
}
