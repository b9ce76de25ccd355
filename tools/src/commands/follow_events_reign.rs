//! Why a reign that was brought along is refused, in words that are true of it: it may be of another copy of the journal, or of another epoch of
//! this one than the one that was named beside it.

use ticktape::payload::Reign;

/// Epochs below the present one that are asked about, at most. More would be a burst that the repair port need not answer.
pub const ASKED_MAX: u32 = 64;

/// The epochs that are asked about, the present one first.
pub fn asked(present: u32) -> impl Iterator<Item = u32> {
    (present.saturating_sub(ASKED_MAX - 1).max(1)..=present).rev()
}

/// What is said of the cursor `next` of reign `ours`, where the repair port serves `theirs` in that epoch, and `ours` in epoch `found`, if in any
/// of `asked`.
pub fn refusal(next: u64, ours: Reign, theirs: Reign, found: Option<u64>, present: u32) -> String {
    let (epoch, [ours, theirs]) = (ours.epoch, [ours, theirs].map(|reign| format!("{:016x}", reign.id)));
    let head = format!("--from {next} of reign {ours}: CursorUnproven, as");
    if let Some(found) = found {
        return format!(
            "{head} that is the reign of epoch {found} in the log that the repair port serves, and that of epoch {epoch}, which --from-epoch \
             names, is {theirs}: --from, --from-epoch, --from-log and --from-reign are to be of one line"
        );
    }
    let oldest = asked(present).last().unwrap_or(present);
    format!(
        "{head} in the log that the repair port serves epoch {epoch} is reign {theirs}, and none of its epochs {oldest} to {present} is known to be \
         {ours}: an older copy of the journal was started, and the events before {next} are of the other (or the number was copied wrongly); \
         begin from its state as it is, without --from-epoch and --from-reign"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reign_of_another_epoch_is_told_from_that_of_another_copy() {
        let (ours, theirs) = (Reign { epoch: 1, id: 0xb }, Reign { epoch: 1, id: 0xa });
        let word = refusal(20, ours, theirs, Some(2), 2);
        for part in ["--from 20 of reign 000000000000000b", "reign of epoch 2", "that of epoch 1, ", "000000000000000a"]
        {
            assert!(word.contains(part), "{part}: {word}");
        }
        assert!(!word.contains("older copy"), "{word}");
        let word = refusal(20, ours, theirs, None, 2);
        assert!(word.contains("older copy") && word.contains("epochs 1 to 2"), "{word}");
    }

    #[test]
    fn no_more_epochs_are_asked_about_than_there_are_or_than_few() {
        assert_eq!(asked(3).collect::<Vec<_>>(), [3, 2, 1]);
        for present in [ASKED_MAX, ASKED_MAX + 1, u32::MAX] {
            assert_eq!(asked(present).count(), ASKED_MAX as usize);
        }
        assert_eq!(asked(0).count(), 0);
    }
}
