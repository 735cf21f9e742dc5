//! Which keys of the file have changed, for a process that reads it again.

use std::collections::BTreeSet;

use toml_span::Value;
use toml_span::value::ValueInner;

/// The keys whose values differ between two texts, as in `outbox.lease` or `inbox[stock].lanes`. An entry of a list that has a
/// name is known by it. Nothing for a text that is no TOML.
#[must_use]
pub fn changed_keys(old: &str, new: &str) -> Vec<String> {
    let mut changed = Vec::new();
    if let (Ok(old), Ok(new)) = (toml_span::parse(old), toml_span::parse(new)) {
        compare("", Some(&old), Some(&new), &mut changed);
    }
    changed
}

fn compare(path: &str, old: Option<&Value<'_>>, new: Option<&Value<'_>>, changed: &mut Vec<String>) {
    match (old.map(|value| value.as_ref()), new.map(|value| value.as_ref())) {
        (None, None) => {}
        (Some(ValueInner::Table(a)), Some(ValueInner::Table(b))) => {
            let keys: BTreeSet<&str> = a.keys().chain(b.keys()).map(|key| key.name.as_ref()).collect();
            for key in keys {
                let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                compare(&path, a.get(key), b.get(key), changed);
            }
        }
        (Some(ValueInner::Array(a)), Some(ValueInner::Array(b))) if are_tables(a) && are_tables(b) => {
            compare_entries(path, a, b, changed);
        }
        // A list that is only in one of them counts as empty in the other.
        (Some(ValueInner::Array(a)), None) if are_tables(a) => compare_entries(path, a, &[], changed),
        (None, Some(ValueInner::Array(b))) if are_tables(b) => compare_entries(path, &[], b, changed),
        (Some(a), Some(b)) if same(a, b) => {}
        _ => changed.push(path.to_owned()),
    }
}

fn compare_entries(path: &str, old: &[Value<'_>], new: &[Value<'_>], changed: &mut Vec<String>) {
    let named = |entries: &[Value<'_>]| -> Vec<String> {
        entries
            .iter()
            .enumerate()
            .map(|(nth, entry)| name(entry).unwrap_or_else(|| nth.to_string()))
            .collect()
    };
    let (old_names, new_names) = (named(old), named(new));
    let entry = |names: &[String], name: &String| names.iter().position(|one| one == name);
    for name in old_names.iter().chain(new_names.iter().filter(|name| !old_names.contains(name))) {
        let (a, b) = (entry(&old_names, name).map(|at| &old[at]), entry(&new_names, name).map(|at| &new[at]));
        compare(&format!("{path}[{name}]"), a, b, changed);
    }
}

/// What an entry of a list is known by.
fn name(entry: &Value<'_>) -> Option<String> {
    let table = entry.as_table()?;
    ["consumer", "name"].iter().find_map(|key| table.get(*key)?.as_str()).map(str::to_owned)
}

fn are_tables(values: &[Value<'_>]) -> bool {
    values.iter().all(|value| value.as_table().is_some())
}

fn same(a: &ValueInner<'_>, b: &ValueInner<'_>) -> bool {
    match (a, b) {
        (ValueInner::Array(a), ValueInner::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a.as_ref(), b.as_ref()))
        }
        (ValueInner::Table(a), ValueInner::Table(b)) => {
            let within = |(key, value): (&toml_span::value::Key<'_>, &Value<'_>)| {
                b.get(key.name.as_ref()).is_some_and(|other| same(value.as_ref(), other.as_ref()))
            };
            a.len() == b.len() && a.iter().all(within)
        }
        (ValueInner::String(a), ValueInner::String(b)) => a == b,
        (ValueInner::Integer(a), ValueInner::Integer(b)) => a == b,
        (ValueInner::Float(a), ValueInner::Float(b)) => a.to_bits() == b.to_bits(),
        (ValueInner::Boolean(a), ValueInner::Boolean(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "[store]\nurl = \"sqlite://a\"\n[[inbox]]\nconsumer = \"stock\"\nlanes = 1\ntopics = [\"a\", \"b\"]\n\
                       [[inbox]]\nconsumer = \"mail\"\n[inbox.handler]\neach = [\"SELECT 1\", { sql = \"SELECT 2\", rows = 1 }]\n";

    #[test]
    fn the_same_text_has_no_changes_and_order_is_none() {
        assert_eq!(changed_keys(OLD, OLD), [""; 0]);
        let (head, mail) = OLD.split_once("[[inbox]]\nconsumer = \"mail\"").unwrap();
        let (store, stock) = head.split_once("[[inbox]]").unwrap();
        let swapped = format!("[[inbox]]\nconsumer = \"mail\"{mail}[[inbox]]{stock}{store}");
        assert_eq!(changed_keys(OLD, &swapped), [""; 0]);
    }

    #[test]
    fn what_changed_is_named() {
        let new = OLD
            .replace("lanes = 1", "lanes = 2\nretry = { attempts = 3 }")
            .replace("\"b\"", "\"c\"")
            .replace("rows = 1", "rows = 2")
            .replace("[store]", "[outbox]\nlease = \"5s\"\n[store]\nmax_connections = 3");
        assert_eq!(
            changed_keys(OLD, &new),
            [
                "inbox[stock].lanes",
                "inbox[stock].retry",
                "inbox[stock].topics",
                "inbox[mail].handler.each",
                "outbox",
                "store.max_connections",
            ]
        );
    }

    #[test]
    fn an_entry_comes_or_goes() {
        let gone = OLD.replace("consumer = \"mail\"", "consumer = \"post\"");
        assert_eq!(changed_keys(OLD, &gone), ["inbox[mail]", "inbox[post]"]);
        let webhook = format!("{OLD}[[webhook]]\nurl = \"https://a\"\n");
        assert_eq!(changed_keys(OLD, &webhook), ["webhook[0]"]);
        assert_eq!(changed_keys(&webhook, &webhook.replace("https://a", "https://b")), ["webhook[0].url"]);
        assert_eq!(changed_keys(OLD, "no = toml ="), [""; 0]);
    }
}
