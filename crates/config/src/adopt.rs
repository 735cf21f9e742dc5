//! `[store.adopt]`: a table that the application already has.

use oncebox_core::store::{Adopt, AdoptError, IdFormat};

use super::inbox::selector;
use super::reader::{Entry, Section};

const COLUMN_FIX: &str = "name a column of the table";

pub(super) fn read(mut section: Section<'_, '_>) -> Option<Adopt> {
    let table = section.required("table", "it is missing", "name the table that holds the receipts");
    let message_id = section.required(
        "message_id",
        "it is missing",
        "name the column that holds the ids of messages; it must have a unique key",
    );
    let id_format = section.optional("id_format");
    let names = [section.optional("processed_at"), section.optional("consumer"), section.optional("tenant")];
    let set = section.optional("set");
    section.finish();

    let mut adopt = self::table(table, message_id)?;
    if let Some(format) = id_format.as_ref().and_then(id_format_of) {
        adopt = adopt.id_format(format);
    }
    let [processed_at, consumer, tenant] = names;
    for (entry, map) in [
        (processed_at, Adopt::processed_at as fn(Adopt, &str) -> Result<Adopt, AdoptError>),
        (consumer, Adopt::consumer),
        (tenant, Adopt::tenant),
    ] {
        adopt = with(adopt, entry.as_ref(), map);
    }
    for (column, entry) in set.and_then(Entry::into_section).map(Section::into_entries).unwrap_or_default() {
        let Some(selector) = selector(&entry) else { continue };
        match adopt.clone().set(&column, selector) {
            Ok(further) => adopt = further,
            Err(error) => entry.report(error.to_string(), COLUMN_FIX),
        }
    }
    Some(adopt)
}

fn table(table: Option<Entry<'_, '_>>, message_id: Option<Entry<'_, '_>>) -> Option<Adopt> {
    let (table, message_id) = (table?, message_id?);
    let (name, column) = (table.filled_text()?, message_id.filled_text()?);
    // Each alone, so that the one that is wrong is named.
    if let Err(error) = Adopt::table(&name, "message_id") {
        table.report(error.to_string(), "write `table` or `schema.table`");
        return None;
    }
    Adopt::table(&name, &column).map_err(|error| message_id.report(error.to_string(), COLUMN_FIX)).ok()
}

fn with(
    adopt: Adopt,
    entry: Option<&Entry<'_, '_>>,
    map: impl Fn(Adopt, &str) -> Result<Adopt, AdoptError>,
) -> Adopt {
    let Some(entry) = entry else { return adopt };
    let Some(column) = entry.filled_text() else { return adopt };
    match map(adopt.clone(), &column) {
        Ok(adopt) => adopt,
        Err(error) => {
            entry.report(error.to_string(), COLUMN_FIX);
            adopt
        }
    }
}

fn id_format_of(entry: &Entry<'_, '_>) -> Option<IdFormat> {
    let fix = "leave it out, if the type of the column tells";
    entry.text()?.parse().map_err(|error: String| entry.report(error, fix)).ok()
}

/// A table without a column for consumers serves one of them.
pub(super) fn check_consumers(adopt: &Adopt, inboxes: &[Entry<'_, '_>]) {
    if adopt.consumer_column().is_none()
        && let Some(second) = inboxes.get(1)
    {
        second.report(
            format!("the adopted table {adopt} has no column for consumers, so it serves one inbox only"),
            "write `consumer` under [store.adopt], or give this inbox a configuration of its own",
        );
    }
}

/// A table without a column for tenants would take the same id of two tenants for one message.
pub(super) fn check_tenant(adopt: &Adopt, tenant: &Entry<'_, '_>) {
    if adopt.tenant_column().is_none() {
        tenant.report(
            format!("the adopted table {adopt} has no column for tenants"),
            "write `tenant` under [store.adopt], or remove this key",
        );
    }
}
