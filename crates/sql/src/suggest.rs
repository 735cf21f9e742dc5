//! "Did you mean …?"

/// The option nearest to `word`, if it is near enough to be a slip of the fingers.
#[must_use]
pub fn nearest<'a>(word: &str, options: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().chars().collect();
    // One slip in a short word, one in three characters of a longer one.
    let tolerance = (word.len() / 3).max(1);
    options
        .into_iter()
        .map(|option| (distance(&word, &option.chars().collect::<Vec<_>>()), option))
        .filter(|(distance, option)| *distance <= tolerance && *distance < option.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, option)| option)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from `a` to `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_not() {
        let keys = ["retention", "retry", "id", "topics", "on_failure"];
        for (word, expected) in [
            ("retenton", Some("retention")),
            ("topic", Some("topics")),
            ("tpoics", Some("topics")),
            ("ID", Some("id")),
            ("on-failure", Some("on_failure")),
            ("xyz", None),
            ("i", Some("id")),
            ("z", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), expected, "{word}");
        }
    }
}
