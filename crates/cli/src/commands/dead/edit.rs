//! `oncebox dead edit`.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::Path;

use bytes::Bytes;
use oncebox_core::message::Headers;
use oncebox_core::operate::{Edited, Operator};
use oncebox_core::store::{LetterContent, StoredDeadLetter};
use serde_json::json;

use super::no_such_letter;
use crate::args::{DeadEdit, Output};
use crate::exit::{Answer, CommandResult, Exit, Failure};
use crate::output;
use crate::stores::ConfiguredStore;

pub(super) async fn edit<S: ConfiguredStore>(
    store: &S,
    operator: &Operator<S>,
    asked: DeadEdit,
) -> CommandResult {
    let number = asked.number;
    let Some(stored) = store.dead_letter(number).await? else { return no_such_letter(number) };
    let times_seen = stored.edit.as_ref().map_or(0, |edit| edit.times);
    let content = changed(&stored, &asked)?;
    let edited = operator.edit(number, times_seen, &content).await?;
    let (told, answer) = match edited {
        Edited::Done => ("changed. What arrived is kept: `oncebox dead show` has both", Answer::Yes),
        Edited::Same => ("as it was: nothing is changed", Answer::Yes),
        Edited::Gone => ("gone", Answer::No),
        Edited::Meanwhile => ("changed by somebody else meanwhile: look at it, and try again", Answer::No),
    };
    match asked.output.output {
        Output::Json => {
            output::json(&json!({"number": number, "changed": edited == Edited::Done, "detail": told}))?;
        }
        Output::Table => output::line(&format!("dead letter {number} is {told}"))?,
    }
    Ok(answer)
}

fn changed(stored: &StoredDeadLetter, asked: &DeadEdit) -> Result<LetterContent, Failure> {
    let mut content = LetterContent::of(&stored.letter.record);
    let others = asked.key.is_some() || !asked.headers.is_empty() || !asked.removed_headers.is_empty();
    match &asked.payload {
        Some(file) => content.payload = Some(read(file)?),
        None if others => {}
        None => content.payload = Some(in_editor(stored.number, content.payload.as_deref())?),
    }
    if let Some(key) = &asked.key {
        content.key = Some(Bytes::from(key.clone()));
    }
    content.headers = headers(&content.headers, asked);
    Ok(content)
}

/// A header stays in its place if it is set; a new one comes last.
fn headers(were: &Headers, asked: &DeadEdit) -> Headers {
    let is_set = |name: &str| asked.headers.iter().rfind(|(set, _)| set == name);
    let mut headers = Headers::new();
    let mut done: Vec<&str> = Vec::new();
    for (name, value) in were.iter() {
        if asked.removed_headers.iter().any(|removed| removed == name) || done.contains(&name) {
            continue;
        }
        match is_set(name) {
            Some((_, value)) => {
                headers.push(name, Some(Bytes::from(value.clone())));
                done.push(name);
            }
            None => headers.push(name, value.map(Bytes::copy_from_slice)),
        }
    }
    for (name, value) in &asked.headers {
        if !done.contains(&name.as_str()) && is_set(name).is_some_and(|(_, last)| last == value) {
            headers.push(name.clone(), Some(Bytes::from(value.clone())));
            done.push(name);
        }
    }
    headers
}

fn read(file: &Path) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let failed = |e| Failure { exit: Exit::Usage, text: format!("cannot read {}: {e}", file.display()) };
    read.map(Bytes::from).map_err(failed)
}

/// Opens the payload in the editor that the shell names, in a file that only its user can read.
fn in_editor(number: i64, payload: Option<&[u8]>) -> Result<Bytes, Failure> {
    let usage = |text: &str| Failure { exit: Exit::Usage, text: text.to_owned() };
    let named = |name: &str| std::env::var_os(name).filter(|editor| !editor.is_empty());
    let editor: OsString = named("VISUAL").or_else(|| named("EDITOR")).ok_or_else(|| {
        usage("no editor is named by $VISUAL or $EDITOR: use --payload FILE, --key, --header or --remove-header")
    })?;
    let mut file = tempfile::Builder::new().prefix(&format!("oncebox-dead-{number}-")).tempfile()?;
    file.write_all(payload.unwrap_or_default())?;
    file.flush()?;
    // As a shell would read it: an editor may be named with its options.
    let status = std::process::Command::new("sh")
        .args(["-c", "exec $0 \"$1\""])
        .arg(&editor)
        .arg(file.path())
        .status()?;
    if !status.success() {
        return Err(usage("the editor has failed: nothing is changed"));
    }
    // Editors often write another file under the same name.
    let edited = std::fs::read(file.path())?;
    Ok(without_added_line_end(edited, payload))
}

/// Most editors end a file with a line break; a payload that had none gets none.
fn without_added_line_end(mut edited: Vec<u8>, payload: Option<&[u8]>) -> Bytes {
    if edited.ends_with(b"\n") && payload.is_none_or(|payload| !payload.ends_with(b"\n")) {
        edited.pop();
    }
    edited.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::OutputArg;

    fn asked(set: &[(&str, &str)], removed: &[&str]) -> DeadEdit {
        DeadEdit {
            number: 1,
            payload: None,
            key: None,
            headers: set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            removed_headers: removed.iter().map(|name| (*name).to_owned()).collect(),
            output: OutputArg { output: Output::Table },
        }
    }

    #[test]
    fn headers_are_set_and_removed_by_name() {
        let value = |text: &'static str| Some(Bytes::from(text));
        let were: Headers =
            [("a", value("1")), ("b", value("2")), ("a", value("3")), ("c", None)].into_iter().collect();
        let is = headers(&were, &asked(&[("a", "9"), ("d", "4"), ("d", "5")], &["b"]));
        let wanted: Headers = [("a", value("9")), ("c", None), ("d", value("5"))].into_iter().collect();
        assert_eq!(is, wanted);
        assert_eq!(headers(&were, &asked(&[], &[])), were);
    }

    #[test]
    fn an_editor_adds_no_line_end() {
        assert_eq!(without_added_line_end(b"{}\n".to_vec(), Some(b"{ }")), "{}");
        assert_eq!(without_added_line_end(b"{}\n".to_vec(), Some(b"{ }\n")), "{}\n");
        assert_eq!(without_added_line_end(b"{}".to_vec(), None), "{}");
    }
}
