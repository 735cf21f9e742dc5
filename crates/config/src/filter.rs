//! `inbox.where`: which messages an inbox wants.

use oncebox_core::inbox::Selector;

use super::inbox::selector_of;
use super::reader::{Entry, Section};
use super::source::SourceConfig;

/// The most values.
const MAX_VALUES: usize = 100;

const FIX: &str = "write { header = \"NAME\", equals = [\"VALUE\"] } or { selector = \"json:/POINTER\", equals = [\"VALUE\"] }";

/// `where`: the messages that have one of these values at this place. The others are acknowledged, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterConfig {
    /// `header = "NAME"`, or `selector` for other places: where the value is.
    pub selector: Selector,
    /// `equals`: the values, 1 to 100.
    pub equals: Vec<String>,
}

pub(super) fn read(mut section: Section<'_, '_>, source: Option<&SourceConfig>) -> Option<FilterConfig> {
    let (header, selector) = (section.optional("header"), section.optional("selector"));
    let selector = match (header, selector) {
        (Some(_), Some(selector)) => {
            selector.report("a header is named beside it", "keep one of `header` and `selector`");
            None
        }
        (Some(header), None) => header.filled_text().map(Selector::Header),
        (None, Some(selector)) => place(&selector, source),
        (None, None) => {
            section.report("it does not say where to look", FIX);
            None
        }
    };
    let equals = section
        .required(
            "equals",
            "it is missing, so no message would be wanted",
            "list the values, as in [\"OrderShipped\"]",
        )
        .and_then(values);
    section.finish();
    Some(FilterConfig { selector: selector?, equals: equals? })
}

fn place(entry: &Entry<'_, '_>, source: Option<&SourceConfig>) -> Option<Selector> {
    let selector = selector_of(entry, source)?;
    if matches!(selector, Selector::CloudEvents | Selector::Coordinates) {
        entry.report(
            "that is another one for each message",
            "name what several messages have in common: header:NAME, property:NAME, json:/POINTER, key or path:NAME",
        );
        return None;
    }
    Some(selector)
}

fn values(entry: Entry<'_, '_>) -> Option<Vec<String>> {
    if entry.is_empty_array() {
        entry.report(
            "the list is empty, so no message would be wanted",
            "list the values, as in [\"OrderShipped\"]",
        );
        return None;
    }
    let place = entry.place();
    let items = entry.into_items("an array of strings")?;
    if items.len() > MAX_VALUES {
        place.report(
            format!("there are {} values, more than {MAX_VALUES}", items.len()),
            "let the producer set a header that says what is meant, or filter in a handler",
        );
        return None;
    }
    // All of them are read, so that every mistake is reported.
    let values: Vec<Option<String>> = items.iter().map(Entry::scalar).collect();
    values.into_iter().collect()
}
