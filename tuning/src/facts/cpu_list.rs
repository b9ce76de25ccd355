//! Sets of cores as the kernel writes them: `0-3,8` and `ff,0000000f`.

use crate::facts::{Known, short};
use crate::root::{Root, Unread};

/// No kernel knows more cores.
pub const CORES_MAX: usize = 8_192;

/// Cores in ascending order, each once.
pub type CoreSet = Vec<usize>;

/// Reads a list, as `0-3,8`. Empty and `(null)` are no cores.
///
/// # Errors
/// What is wrong with it.
pub fn list(text: &str) -> Result<CoreSet, String> {
    let text = text.trim();
    if text.is_empty() || text == "(null)" {
        return Ok(Vec::new());
    }
    let mut cores = Vec::new();
    for part in text.split(',') {
        let wrong = || format!("{:?} is no list of cores", short(text));
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if last < first || last >= CORES_MAX || cores.len() > CORES_MAX {
            return Err(wrong());
        }
        cores.extend(first..=last);
    }
    Ok(sorted(cores))
}

/// Reads a list of the kernel's command line, where `all` and `N`, the last of the box's, are words, and `0-31:1/2` is the first of each two.
///
/// # Errors
/// What is wrong with it.
pub fn of_command_line(text: &str, last: usize) -> Result<CoreSet, String> {
    let wrong = || format!("{:?} is no list of cores", short(text));
    let number = |text: &str| match text {
        "N" => Ok(last),
        text => text.parse::<usize>().ok().filter(|&core| core < CORES_MAX).ok_or_else(wrong),
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (range, stride) = part.split_once(':').map_or((part, None), |(range, stride)| (range, Some(stride)));
        let (first, end) = match range {
            "all" => (0, last),
            range => {
                let (first, end) = range.split_once('-').unwrap_or((range, range));
                (number(first)?, number(end)?)
            }
        };
        let (used, group) = match stride {
            None => (1, 1),
            Some(stride) => {
                let (used, group) = stride.split_once('/').ok_or_else(wrong)?;
                (number(used)?, number(group)?)
            }
        };
        if end < first || group == 0 || used > group || cores.len() > CORES_MAX {
            return Err(wrong());
        }
        cores.extend((first..=end).filter(|core| (core - first) % group < used));
    }
    Ok(sorted(cores))
}

/// Reads a mask in hexadecimal words of 32 bits, the highest first.
///
/// # Errors
/// What is wrong with it.
pub fn mask(text: &str) -> Result<CoreSet, String> {
    let wrong = || format!("{:?} is no mask of cores", short(text));
    let mut cores = Vec::new();
    for (word, digits) in text.trim().rsplit(',').enumerate() {
        let bits = u32::from_str_radix(digits, 16).map_err(|_| wrong())?;
        if bits != 0 && word >= CORES_MAX / 32 {
            return Err(wrong());
        }
        cores.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 32 + bit));
    }
    Ok(cores)
}

/// A file with a list.
pub(super) fn read_list(root: &Root, path: &str) -> Known<CoreSet> {
    let text = root.text(path)?;
    list(&text).map_err(|what| Unread::malformed(path, what))
}

/// A file with a list that has one core at least.
pub(super) fn some(root: &Root, path: &str) -> Known<CoreSet> {
    let cores = read_list(root, path)?;
    if cores.is_empty() { Err(Unread::malformed(path, "no core at all")) } else { Ok(cores) }
}

/// A file with a mask.
pub(super) fn read_mask(root: &Root, path: &str) -> Known<CoreSet> {
    let text = root.text(path)?;
    mask(&text).map_err(|what| Unread::malformed(path, what))
}

/// In order, each once.
pub(crate) fn sorted(mut cores: Vec<usize>) -> CoreSet {
    cores.sort_unstable();
    cores.dedup();
    cores
}

/// Those in either, in order.
pub fn union(a: &[usize], b: &[usize]) -> CoreSet {
    sorted([a, b].concat())
}

/// Those in both.
pub fn common(a: &[usize], b: &[usize]) -> CoreSet {
    a.iter().copied().filter(|core| b.contains(core)).collect()
}

/// Those of `a` that `b` lacks.
pub fn without(a: &[usize], b: &[usize]) -> CoreSet {
    a.iter().copied().filter(|core| !b.contains(core)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin;
    use proptest::prelude::*;

    #[test]
    fn lists_and_masks_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-3,8\n"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(list("(null)"), Ok(vec![]));
        assert_eq!(list(""), Ok(vec![]));
        assert_eq!(mask("3\n"), Ok(vec![0, 1]));
        assert_eq!(mask("00000001,80000000"), Ok(vec![31, 32]));
        for wrong in ["x", "3-1", "1,", "0-8192", "-1", "0-1-2"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "g", "1,,2", "fffffffff"] {
            assert!(mask(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_the_command_line_know_words_and_strides() {
        let of = |text| of_command_line(text, 7);
        assert_eq!(of("2-4,6"), Ok(vec![2, 3, 4, 6]));
        assert_eq!(of("all"), Ok((0..8).collect()));
        assert_eq!(of("5-N"), Ok(vec![5, 6, 7]));
        assert_eq!(of("N,0"), Ok(vec![0, 7]));
        assert_eq!(of("1-6:1/2"), Ok(vec![1, 3, 5]));
        assert_eq!(of("all:2/4"), Ok(vec![0, 1, 4, 5]));
        for wrong in ["", "x", "4-2", "0-3:1", "0-3:1/0", "0-3:3/2", "0-8192", "all,", "n", "0-3:/"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_listed_is_read_back(cores in prop::collection::btree_set(0..CORES_MAX, 0..40)) {
            let cores: Vec<usize> = cores.into_iter().collect();
            prop_assert_eq!(list(&pin::list(&cores)), Ok(cores));
        }

        #[test]
        fn garbage_is_refused_or_read(text in "[0-9a-f,x \n(-]{0,40}") {
            for cores in [list(&text), mask(&text), of_command_line(&text, 63)].into_iter().flatten() {
                prop_assert!(cores.is_sorted() && cores.len() <= 2 * CORES_MAX);
            }
        }
    }
}
