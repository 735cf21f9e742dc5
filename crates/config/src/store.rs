//! `[store]`: the database.

mod parts;

use std::time::Duration;

use oncebox_core::inbox::Selector;
use oncebox_core::secret::Secret;
use oncebox_core::store::Adopt;

use super::adopt;
use super::bounds::duration_within;
use super::inbox::selector;
use super::reader::{Entry, Section};
use parts::Parts;

/// `[store]`: the database that holds receipts, positions, dead letters and what the handlers change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// `url`: where the database is. Required, unless `kind`, `host` and so on say it.
    pub url: Secret,
    /// Which database the URL names.
    pub kind: StoreKind,
    /// `max_connections`: the most connections that carry messages and events. The default is the store's, or what the inboxes
    /// and the relay need, if that is more.
    pub max_connections: Option<u32>,
    /// `partition_receipts`: whether receipts are partitioned, so that purge can drop whole partitions. Default `none`;
    /// PostgreSQL only.
    pub partition_receipts: PartitionReceipts,
    /// `old_transaction`: `check` and `status` warn of transactions that have been open for longer. Default ten minutes.
    pub old_transaction: Duration,
    /// `[store.adopt]`: a table of the application that holds the receipts instead of oncebox's own.
    pub adopt: Option<Adopt>,
    /// `event_type`: where the type of a message is. Receipts then carry it, and when they were written. MongoDB only.
    pub event_type: Option<Selector>,
}

/// The databases this build can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// `mongodb://` or `mongodb+srv://`.
    Mongodb,
    /// `mysql://` or `mariadb://`, whichever of the two it is.
    Mysql,
    /// `postgres://` or `postgresql://`.
    Postgres,
    /// `sqlite://`.
    Sqlite,
}

impl StoreKind {
    /// Whether handlers and sweeps are written in SQL there.
    #[must_use]
    pub fn speaks_sql(self) -> bool {
        self != Self::Mongodb
    }
}

/// How the table of receipts is partitioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionReceipts {
    /// One plain table.
    #[default]
    None,
    /// One partition per day.
    Day,
}

/// Longer than any transaction of a healthy application, shorter than what hurts.
const OLD_TRANSACTION: Duration = Duration::from_secs(10 * 60);

const URL_FIX: &str = "write postgres://USER:PASSWORD@HOST/DATABASE, mysql://…, mongodb://HOST/DATABASE?replicaSet=NAME or sqlite://FILE; or give kind, host, user, password and database";

pub(super) fn read(mut section: Section<'_, '_>) -> Option<StoreConfig> {
    let written = section.optional("url");
    let parts = Parts::take(&mut section);
    let url = match &written {
        Some(entry) => {
            parts.refuse();
            url(entry)
        }
        None if parts.is_empty() => {
            section.report_key("url", "it is missing, so there is no database to keep receipts in", URL_FIX);
            None
        }
        None => parts.into_url(&section),
    };
    let max_connections =
        section.or("max_connections", None, |e| e.integer(&(1..=1000)).map(|most| u32::try_from(most).ok()));
    let partitions = section.optional("partition_receipts");
    let choices = [("none", PartitionReceipts::None), ("day", PartitionReceipts::Day)];
    let partition_receipts = partitions.as_ref().and_then(|e| e.choice(&choices)).unwrap_or_default();
    let refused = url.as_ref().and_then(|(_, kind)| without_partitions(*kind));
    if let (Some(entry), Some(why), PartitionReceipts::Day) = (partitions, refused, partition_receipts) {
        entry.report(why, "remove the key or use a postgres:// store");
    }
    let ages = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 60 * 60);
    let old_transaction = section.or("old_transaction", OLD_TRANSACTION, |e| duration_within(&e, ages));
    let adopted = section.optional("adopt");
    if let Some(entry) = adopted.as_ref().filter(|_| partition_receipts == PartitionReceipts::Day) {
        entry.report(
            "receipts in an adopted table are not partitioned by day",
            "remove `partition_receipts`, or this section",
        );
    }
    let adopt = adopted.and_then(Entry::into_section).and_then(adopt::read);
    let event_type = section.optional("event_type");
    if let (Some(entry), Some((_, kind))) = (&event_type, &url)
        && kind.speaks_sql()
    {
        entry.report(
            "the table of receipts has no column for the type of a message",
            "remove the key; a table of yours can have one: `set` under [store.adopt]",
        );
    }
    if let Some(entry) = event_type.as_ref().filter(|_| adopt.is_some()) {
        entry.report(
            "receipts in an adopted collection have the fields that you name",
            "remove the key; write `set = { eventType = \"header:type\" }` under [store.adopt]",
        );
    }
    let event_type = event_type.and_then(|entry| selector(&entry));
    section.finish();
    let (url, kind) = url?;
    Some(StoreConfig { url, kind, max_connections, partition_receipts, old_transaction, adopt, event_type })
}

/// Why receipts are not partitioned there.
fn without_partitions(kind: StoreKind) -> Option<&'static str> {
    match kind {
        StoreKind::Postgres => None,
        StoreKind::Mongodb => Some("MongoDB has no partitioned collections"),
        // A change of a table's partitions needs the table for itself: it waits for whoever uses it, and whoever comes next waits
        // for it.
        StoreKind::Mysql => {
            Some("MySQL and MariaDB hold up every transaction while a partition is made or dropped")
        }
        StoreKind::Sqlite => Some("SQLite has no partitioned tables"),
    }
}

/// Reads the URL without ever repeating it in a message: it may hold a password.
fn url(entry: &Entry<'_, '_>) -> Option<(Secret, StoreKind)> {
    let text = entry.url_text(false)?;
    let Some((scheme, rest)) = text.split_once("://") else {
        entry.report("this is not a database URL", URL_FIX);
        return None;
    };
    let kind = match scheme {
        "postgres" | "postgresql" => StoreKind::Postgres,
        "mysql" | "mariadb" => StoreKind::Mysql,
        "sqlite" => StoreKind::Sqlite,
        "mongodb" | "mongodb+srv" => StoreKind::Mongodb,
        _ => {
            entry.report("the scheme of this URL is not known", URL_FIX);
            return None;
        }
    };
    if kind == StoreKind::Sqlite && rest.split('?').next().is_none_or(str::is_empty) {
        entry.report("this names no file", "write sqlite://FILE, such as sqlite://oncebox.sqlite");
        return None;
    }
    if kind == StoreKind::Mysql && !names_a_database(rest) {
        entry.report("this names no database", "write mysql://USER:PASSWORD@HOST/DATABASE");
        return None;
    }
    if kind == StoreKind::Mongodb && !names_a_database(rest) {
        let fix = "write mongodb://HOST:PORT/DATABASE?replicaSet=NAME or mongodb+srv://HOST/DATABASE";
        entry.report("this names no database", fix);
        return None;
    }
    Some((Secret::new(text), kind))
}

/// A server of PostgreSQL has a default for this; one of MySQL leaves the session without any, and MongoDB's own default, `test`, is
/// nobody's wish.
fn names_a_database(rest: &str) -> bool {
    let path = rest.split(['?', '#']).next().and_then(|before| before.split_once('/'));
    path.is_some_and(|(_, name)| !name.is_empty())
}
