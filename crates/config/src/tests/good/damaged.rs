//! Whatever stands in the file, it is answered.

use proptest::prelude::*;

use super::parse_with;
use crate::*;

proptest! {
    /// Whatever an editor leaves behind is answered, not a reason to panic.
    #[test]
    fn a_damaged_file_is_answered(from in 0..TEMPLATE.len(), len in 0..80_usize, junk in "[\\[\\]{}=\".,'a\n#$-]{0,6}") {
        let end = (from + len).min(TEMPLATE.len());
        if let (Some(head), Some(tail)) = (TEMPLATE.get(..from), TEMPLATE.get(end..)) {
            let text = format!("{head}{junk}{tail}");
            if let Err(problems) = parse_with(&text, &|_| None) {
                prop_assert!(!problems.is_empty());
                let lines = text.lines().count() + 1;
                prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
            }
        }
    }

    #[test]
    fn any_headings_are_answered(lines in prop::collection::vec(
        "(\\[\\[?)?(store|inbox|kafka|http|handler|each|outbox|webhook|sweep|emit)(\\.(url|handler|properties|each)){0,2}(\\]\\]?| = (1|\"x\"|\\{\\}|\\[\\]))?", 0..8,
    )) {
        let text = lines.join("\n");
        prop_assert!(parse_with(&text, &|_| None).is_err());
    }
}
