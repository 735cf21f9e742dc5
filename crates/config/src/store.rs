//! `[store]`: the database.

use oncebox_core::secret::Secret;
use oncebox_core::store::Adopt;

use super::adopt;
use super::reader::{Entry, Section};

/// `[store]`: the database that holds receipts, positions, dead letters and what the handlers change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// `url`: where the database is. Required.
    pub url: Secret,
    /// Which database the URL names.
    pub kind: StoreKind,
    /// `max_connections`: the most connections oncebox opens. The default is the store's.
    pub max_connections: Option<u32>,
    /// `partition_receipts`: whether receipts are partitioned, so that purge can drop whole partitions. Default `none`;
    /// PostgreSQL only.
    pub partition_receipts: PartitionReceipts,
    /// `[store.adopt]`: a table of the application that holds the receipts instead of oncebox's own.
    pub adopt: Option<Adopt>,
}

/// The databases this build can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// `mysql://` or `mariadb://`, whichever of the two it is.
    Mysql,
    /// `postgres://` or `postgresql://`.
    Postgres,
    /// `sqlite://`.
    Sqlite,
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

const URL_FIX: &str =
    "write postgres://USER:PASSWORD@HOST/DATABASE, mysql://USER:PASSWORD@HOST/DATABASE or sqlite://FILE";

pub(super) fn read(mut section: Section<'_, '_>) -> Option<StoreConfig> {
    let url = section
        .required("url", "it is missing, so there is no database to keep receipts in", URL_FIX)
        .and_then(|entry| url(&entry));
    let max_connections =
        section.or("max_connections", None, |e| e.integer(&(1..=1000)).map(|most| u32::try_from(most).ok()));
    let partitions = section.optional("partition_receipts");
    let choices = [("none", PartitionReceipts::None), ("day", PartitionReceipts::Day)];
    let partition_receipts = partitions.as_ref().and_then(|e| e.choice(&choices)).unwrap_or_default();
    let refused = url.as_ref().and_then(|(_, kind)| without_partitions(*kind));
    if let (Some(entry), Some(why), PartitionReceipts::Day) = (partitions, refused, partition_receipts) {
        entry.report(why, "remove the key or use a postgres:// store");
    }
    let adopted = section.optional("adopt");
    if let Some(entry) = adopted.as_ref().filter(|_| partition_receipts == PartitionReceipts::Day) {
        entry.report(
            "receipts in an adopted table are not partitioned by day",
            "remove `partition_receipts`, or this section",
        );
    }
    let adopt = adopted.and_then(Entry::into_section).and_then(adopt::read);
    section.finish();
    let (url, kind) = url?;
    Some(StoreConfig { url, kind, max_connections, partition_receipts, adopt })
}

/// Why receipts are not partitioned there.
fn without_partitions(kind: StoreKind) -> Option<&'static str> {
    match kind {
        StoreKind::Postgres => None,
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
    let text = entry.filled_text()?;
    let Some((scheme, rest)) = text.split_once("://") else {
        entry.report("this is not a database URL", URL_FIX);
        return None;
    };
    let kind = match scheme {
        "postgres" | "postgresql" => StoreKind::Postgres,
        "mysql" | "mariadb" => StoreKind::Mysql,
        "sqlite" => StoreKind::Sqlite,
        "mongodb" => {
            entry.report(
                format!("{scheme}:// is not supported by this build yet"),
                "use postgres://, mysql:// or sqlite://",
            );
            return None;
        }
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
    Some((Secret::new(text), kind))
}

/// A server of PostgreSQL has a default for this; one of MySQL leaves the session without any.
fn names_a_database(rest: &str) -> bool {
    let path = rest.split(['?', '#']).next().and_then(|before| before.split_once('/'));
    path.is_some_and(|(_, name)| !name.is_empty())
}
