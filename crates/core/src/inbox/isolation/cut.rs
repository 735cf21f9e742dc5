//! How a failed batch is cut so that one bad message does not hurt its neighbours.

use std::ops::Range;

/// Cuts a failed range of more than one message into parts that are run one after another, in order.
///
/// If the failing message is known it stands alone between its neighbours; otherwise the range is halved. Every part is
/// shorter than the whole, so repeated cutting ends, and together the parts are the whole in its order, so the order per
/// key holds.
#[must_use]
pub(crate) fn cut(failed: Range<usize>, culprit: Option<usize>) -> Vec<Range<usize>> {
    let parts = match culprit.filter(|at| failed.contains(at)) {
        Some(at) => vec![failed.start..at, at..at + 1, at + 1..failed.end],
        None => {
            let middle = failed.start + failed.len() / 2;
            vec![failed.start..middle, middle..failed.end]
        }
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn parts_are_the_whole_in_order(start in 0_usize..100, len in 2_usize..100, culprit in prop::option::of(0_usize..250)) {
            let whole = start..start + len;
            let parts = cut(whole.clone(), culprit);
            let joined: Vec<usize> = parts.iter().cloned().flatten().collect();
            prop_assert_eq!(joined, whole.collect::<Vec<_>>());
            prop_assert!(parts.iter().all(|p| !p.is_empty() && p.len() < len));
        }

        /// Driving a whole batch with cuts applies every good message once, in order, and singles out every bad one.
        #[test]
        fn only_the_bad_ones_are_singled_out(
            len in 1_usize..80,
            bad in prop::collection::btree_set(0_usize..80, 0..8),
            tells in any::<bool>(),
        ) {
            let bad: BTreeSet<usize> = bad.into_iter().filter(|b| *b < len).collect();
            let mut stack: Vec<Range<usize>> = std::iter::once(0..len).collect();
            let (mut applied, mut singled) = (Vec::new(), BTreeSet::new());
            let mut runs = 0;
            while let Some(range) = stack.pop() {
                runs += 1;
                match range.clone().find(|i| bad.contains(i)) {
                    None => applied.extend(range),
                    Some(at) if range.len() == 1 => { singled.insert(at); }
                    Some(at) => stack.extend(cut(range, tells.then_some(at)).into_iter().rev()),
                }
            }
            let good: Vec<usize> = (0..len).filter(|i| !bad.contains(i)).collect();
            prop_assert_eq!(applied, good);
            prop_assert!(runs <= 1 + bad.len() * 2 * (1 + len.ilog2() as usize + 1));
            prop_assert_eq!(singled, bad);
        }
    }
}
