//! What was changed of a text, line by line.

use serde::de::IgnoredAny;

/// So many lines of each are compared; beyond that all of them are shown as changed.
const MAX_LINES: usize = 1_000;

/// A line of both texts or of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// In both.
    Same(String),
    /// In the first only.
    Gone(String),
    /// In the second only.
    New(String),
}

/// What differs: JSON with a line for each value, other texts by their own lines.
pub(crate) fn of_texts(was: &str, is: &str) -> Vec<Line> {
    let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    if is_json(was) && is_json(is) {
        let lines = of_lines(&spread(was), &spread(is));
        // Else they differ only in blanks between the values.
        if lines.iter().any(|line| !matches!(line, Line::Same(_))) {
            return lines;
        }
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    of_lines(&lines(was), &lines(is))
}

/// JSON with a line for each value, which stands there as it is written.
fn spread(text: &str) -> Vec<String> {
    let (mut lines, mut line, mut depth) = (Vec::new(), String::new(), 0_usize);
    let (mut in_text, mut escaped) = (false, false);
    let indent = |depth: usize| "  ".repeat(depth.min(20));
    for c in text.chars() {
        if in_text {
            line.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '{' | '[' => {
                line.push(c);
                depth += 1;
                lines.push(std::mem::replace(&mut line, indent(depth)));
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !line.trim().is_empty() {
                    lines.push(std::mem::take(&mut line));
                }
                line = indent(depth);
                line.push(c);
            }
            ',' => {
                line.push(c);
                lines.push(std::mem::replace(&mut line, indent(depth)));
            }
            ':' => line.push_str(": "),
            c if c.is_whitespace() => {}
            c => {
                in_text = c == '"';
                line.push(c);
            }
        }
    }
    lines.push(line);
    lines
}

/// The fewest lines that are gone or new.
fn of_lines(was: &[String], is: &[String]) -> Vec<Line> {
    let start = was.iter().zip(is).take_while(|(a, b)| a == b).count();
    let (was_rest, is_rest) = (&was[start..], &is[start..]);
    let end = was_rest.iter().rev().zip(is_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&was_rest[..was_rest.len() - end], &is_rest[..is_rest.len() - end]);
    let mut lines: Vec<Line> = was[..start].iter().cloned().map(Line::Same).collect();
    if old.len() > MAX_LINES || new.len() > MAX_LINES {
        lines.extend(old.iter().cloned().map(Line::Gone).chain(new.iter().cloned().map(Line::New)));
    } else {
        lines.extend(between(old, new));
    }
    lines.extend(was_rest[was_rest.len() - end..].iter().cloned().map(Line::Same));
    lines
}

/// By the longest sequence that both have.
fn between(old: &[String], new: &[String]) -> Vec<Line> {
    let width = new.len() + 1;
    let mut common = vec![0_u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            lines.push(Line::Same(old[i].clone()));
            (i, j) = (i + 1, j + 1);
        } else if common[(i + 1) * width + j] >= common[i * width + j + 1] {
            lines.push(Line::Gone(old[i].clone()));
            i += 1;
        } else {
            lines.push(Line::New(new[j].clone()));
            j += 1;
        }
    }
    lines.extend(old[i..].iter().cloned().map(Line::Gone));
    lines.extend(new[j..].iter().cloned().map(Line::New));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(was: &str, is: &str) -> Vec<String> {
        let line = |line| match line {
            Line::Same(text) => format!(" {text}"),
            Line::Gone(text) => format!("-{text}"),
            Line::New(text) => format!("+{text}"),
        };
        of_texts(was, is).into_iter().map(line).collect()
    }

    #[test]
    fn json_is_compared_value_by_value_as_it_is_written() {
        assert_eq!(
            shown(r#"{"a":1.50,"b":["x,{"],"c":{}}"#, r#"{"a":1.5,"b":["x,{"],"c":{}}"#),
            [
                " {",
                "-  \"a\": 1.50,",
                "+  \"a\": 1.5,",
                "   \"b\": [",
                "     \"x,{\"",
                "   ],",
                "   \"c\": {",
                "   }",
                " }"
            ]
        );
        assert_eq!(
            shown("{\"a\\\"\": 1}", "{ \"a\\\"\": 1}"),
            ["-{\"a\\\"\": 1}", "+{ \"a\\\"\": 1}"],
            "only blanks"
        );
    }

    #[test]
    fn lines_that_both_have_stay() {
        assert_eq!(shown("a\nb\nc\nd", "a\nx\nc\ny\nd"), [" a", "-b", "+x", " c", "+y", " d"]);
        assert_eq!(shown("", "a"), ["+a"]);
        assert!(shown("a\nb", "a\nb").iter().all(|line| line.starts_with(' ')));
    }

    #[test]
    fn what_is_too_long_to_compare_is_shown_whole() {
        let text = |word: &str| vec![word; MAX_LINES + 1].join("\n");
        let lines = of_texts(&text("a"), &text("b"));
        assert_eq!(lines.len(), 2 * (MAX_LINES + 1));
    }
}
