//! Letters that an operator changes before they are replayed.

use serde_json::{Value, json};

use super::audit::Operator;
use crate::store::{Audit, DeadLetters, LetterContent, StoreResult};

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited {
    /// The letter is changed. What arrived is kept beside it.
    Done,
    /// It is as it should be already.
    Same,
    /// The letter is gone: dropped or replayed.
    Gone,
    /// Somebody else has changed it since it was looked at.
    Meanwhile,
}

impl<S: DeadLetters + Audit> Operator<S> {
    /// Changes a letter that was changed `times_seen` times when the operator looked at it.
    pub async fn edit(&self, number: i64, times_seen: u32, content: &LetterContent) -> StoreResult<Edited> {
        let Some(stored) = self.store.dead_letter(number).await? else { return Ok(Edited::Gone) };
        if stored.edit.as_ref().map_or(0, |edit| edit.times) != times_seen {
            return Ok(Edited::Meanwhile);
        }
        let was = LetterContent::of(&stored.letter.record);
        if was == *content {
            return Ok(Edited::Same);
        }
        let parameters = json!({ "number": number, "message_id": stored.letter.message_id, "changed": changed(&was, content) });
        let action = self.action("edit").to(&stored.consumer).with(parameters);
        let work = async {
            if self.store.edit_dead(number, times_seen, content, &self.who).await? {
                return Ok(Edited::Done);
            }
            let is_there = self.store.dead_letter(number).await?.is_some();
            Ok(if is_there { Edited::Meanwhile } else { Edited::Gone })
        };
        self.act(action, work, |edited| json!({ "edited": *edited == Edited::Done })).await
    }
}

/// What differs, without what it says.
fn changed(was: &LetterContent, is: &LetterContent) -> Value {
    let mut changed = json!({});
    if was.key != is.key {
        changed["key"] = json!(true);
    }
    if was.payload != is.payload {
        let length = |content: &LetterContent| content.payload.as_ref().map(|payload| payload.len());
        changed["payload_bytes"] = json!([length(was), length(is)]);
    }
    if was.headers != is.headers {
        let all = was.headers.iter().chain(is.headers.iter()).map(|(name, _)| name);
        let of = |content: &LetterContent, name: &str| -> Vec<Option<Vec<u8>>> {
            let named = content.headers.iter().filter(|(other, _)| *other == name);
            named.map(|(_, value)| value.map(<[u8]>::to_vec)).collect()
        };
        let mut names: Vec<&str> = all.filter(|name| of(was, name) != of(is, name)).collect();
        names.sort_unstable();
        names.dedup();
        changed["headers"] = json!(names);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_change_is_told_without_its_values() {
        let header = |value: &'static str| [("tenant", Some(Bytes::from(value)))].into_iter().collect();
        let was = LetterContent { key: None, payload: Some("secret".into()), headers: header("ana") };
        let is = LetterContent { key: None, payload: None, headers: header("ben") };
        let told = changed(&was, &is);
        assert_eq!(told, json!({ "payload_bytes": [6, null], "headers": ["tenant"] }));
    }
}
