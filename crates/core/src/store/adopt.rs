//! A table that an application already has, taken over as the place where receipts are.
//!
//! [`Adopt`] says which table and which columns. A store looks at the definition of the table once ([`FoundTable`]), and
//! [`Adopt::judge`] says what the mapping lacks, in the same words for every database. How an id is written into the column is
//! [`IdKind`]; what a batch sends to the table is [`AdoptedBatch`].

mod batch;
mod found;
mod id;
mod moving;

use std::fmt;

pub use batch::{AdoptedBatch, AdoptedRow, Met};
pub use found::{AdoptedUse, FoundColumn, FoundTable};
pub use id::{IdFormat, IdKind, StoredId};
pub use moving::{Adopting, CopiedPage, CopiedReceipt, CopyFrom, PageMark, Switched};

use crate::inbox::Selector;

/// The longest name of a table or a column.
const MAX_NAME_BYTES: usize = 63;

/// Which table holds the receipts, and what its columns mean.
///
/// ```
/// use oncebox_core::store::Adopt;
///
/// let adopt = Adopt::table("inventory_inbox", "message_id")?.processed_at("processed_at")?;
/// assert_eq!(adopt.to_string(), "inventory_inbox");
/// assert!(Adopt::table("inbox; DROP TABLE users", "id").is_err());
/// # Ok::<(), oncebox_core::store::AdoptError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopt {
    schema: Option<String>,
    table: String,
    message_id: String,
    id_format: Option<IdFormat>,
    processed_at: Option<String>,
    consumer: Option<String>,
    tenant: Option<String>,
    set: Vec<(String, Selector)>,
}

/// Why a mapping was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// Not a plain name.
    #[error(
        "{0:?} is not a name that can be adopted: use a letter or `_`, then up to 62 letters, digits, `_` or `$`"
    )]
    Name(String),
    /// A table of oncebox itself.
    #[error("the table {0} is oncebox's own")]
    Ours(String),
    /// One column for two purposes.
    #[error("the column {0} is named twice")]
    Twice(String),
}

impl Adopt {
    /// A table, optionally as `schema.table`, and the column that holds the message id.
    ///
    /// # Errors
    /// If one of them is not a plain name.
    pub fn table(table: &str, message_id: &str) -> Result<Self, AdoptError> {
        let (schema, name) = match table.split_once('.') {
            Some((schema, name)) => (Some(checked(schema)?), name),
            None => (None, table),
        };
        let table = checked(name)?;
        if table.to_ascii_lowercase().starts_with("oncebox_") {
            return Err(AdoptError::Ours(table));
        }
        Ok(Self {
            schema,
            table,
            message_id: checked(message_id)?,
            id_format: None,
            processed_at: None,
            consumer: None,
            tenant: None,
            set: Vec::new(),
        })
    }

    /// How ids are written. Without it the type of the column decides.
    #[must_use]
    pub fn id_format(mut self, format: IdFormat) -> Self {
        self.id_format = Some(format);
        self
    }

    /// What the column holds: by its type, which the database says, and by what the mapping says about it.
    ///
    /// # Errors
    /// The type, or why ids cannot be written into it so.
    pub fn id_kind(&self, by_type: Result<IdKind, String>) -> Result<IdKind, String> {
        match self.id_format {
            Some(format) => by_type.and_then(|kind| format.within(kind)),
            None => by_type,
        }
    }

    /// The column that holds when the message was applied. Without it nothing is purged.
    ///
    /// # Errors
    /// If it is not a plain name, or has another purpose already.
    pub fn processed_at(mut self, column: &str) -> Result<Self, AdoptError> {
        self.processed_at = Some(self.free(column)?);
        Ok(self)
    }

    /// The column that holds the name of the consumer. Without it the table serves one consumer only.
    ///
    /// # Errors
    /// If it is not a plain name, or has another purpose already.
    pub fn consumer(mut self, column: &str) -> Result<Self, AdoptError> {
        self.consumer = Some(self.free(column)?);
        Ok(self)
    }

    /// The column that holds the tenant, `''` for none. Without it messages with a tenant are refused.
    ///
    /// # Errors
    /// If it is not a plain name, or has another purpose already.
    pub fn tenant(mut self, column: &str) -> Result<Self, AdoptError> {
        self.tenant = Some(self.free(column)?);
        Ok(self)
    }

    /// A further column, filled with what the selector finds in the message; NULL where it finds nothing.
    ///
    /// # Errors
    /// If it is not a plain name, or has another purpose already.
    pub fn set(mut self, column: &str, selector: Selector) -> Result<Self, AdoptError> {
        let column = self.free(column)?;
        self.set.push((column, selector));
        Ok(self)
    }

    fn free(&self, column: &str) -> Result<String, AdoptError> {
        let column = checked(column)?;
        // Databases differ in whether case matters; two columns that differ in nothing else are nobody's wish.
        if self.columns().any(|taken| taken.eq_ignore_ascii_case(&column)) {
            return Err(AdoptError::Twice(column));
        }
        Ok(column)
    }

    /// The schema, if one was named.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The table, without its schema.
    #[must_use]
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// The column of the message id.
    #[must_use]
    pub fn message_id_column(&self) -> &str {
        &self.message_id
    }

    /// The column of the time.
    #[must_use]
    pub fn processed_at_column(&self) -> Option<&str> {
        self.processed_at.as_deref()
    }

    /// The column of the consumer.
    #[must_use]
    pub fn consumer_column(&self) -> Option<&str> {
        self.consumer.as_deref()
    }

    /// The column of the tenant.
    #[must_use]
    pub fn tenant_column(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The further columns and where their values come from.
    pub fn set_columns(&self) -> impl Iterator<Item = (&str, &Selector)> {
        self.set.iter().map(|(column, selector)| (column.as_str(), selector))
    }

    /// All columns of the mapping.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let own = [
            Some(&self.message_id),
            self.consumer.as_ref(),
            self.tenant.as_ref(),
            self.processed_at.as_ref(),
        ];
        own.into_iter().flatten().chain(self.set.iter().map(|(column, _)| column)).map(String::as_str)
    }

    /// The same as a list.
    #[must_use]
    pub fn further(&self) -> &[(String, Selector)] {
        &self.set
    }

    /// How ids are written, if the mapping says so.
    #[must_use]
    pub fn format(&self) -> Option<IdFormat> {
        self.id_format
    }

    /// The table's name with each part in quotes, doubled inside.
    #[must_use]
    pub fn quoted(&self, quote: char) -> String {
        let quoted = |name: &str| {
            let doubled = name.replace(quote, &format!("{quote}{quote}"));
            format!("{quote}{doubled}{quote}")
        };
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.table)),
            None => quoted(&self.table),
        }
    }

    /// The statement of SQL that makes a unique key which tells copies of a message.
    #[must_use]
    pub fn create_key(&self, quote: char) -> String {
        let columns: Vec<_> = self.key_columns().map(|column| format!("{quote}{column}{quote}")).collect();
        let (name, table) = (&self.table, self.quoted(quote));
        format!("CREATE UNIQUE INDEX {name}_once ON {table} ({})", columns.join(", "))
    }

    /// The columns that a unique key should have.
    pub fn key_columns(&self) -> impl Iterator<Item = &str> {
        let columns = [Some(&self.message_id), self.consumer.as_ref(), self.tenant.as_ref()];
        columns.into_iter().flatten().map(String::as_str)
    }

    /// The same mapping of a table with another name beside this one.
    #[must_use]
    pub fn renamed(&self, suffix: &str) -> Self {
        let mut table = self.table.clone();
        table.truncate(MAX_NAME_BYTES.saturating_sub(suffix.len()));
        Self { table: format!("{table}{suffix}"), ..self.clone() }
    }
}

impl fmt::Display for Adopt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.table),
            None => f.write_str(&self.table),
        }
    }
}

/// Names are checked and quoted: neither alone would be enough if the other were forgotten once.
fn checked(name: &str) -> Result<String, AdoptError> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let mut chars = name.chars();
    if name.len() <= MAX_NAME_BYTES && chars.next().is_some_and(first) && chars.all(rest) {
        Ok(name.to_owned())
    } else {
        Err(AdoptError::Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_taken() {
        for good in ["inbox", "_x", "Inbox$1", "shop.inbox", &"x".repeat(63)] {
            assert!(Adopt::table(good, "id").is_ok(), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a.b.c", "1a", "a b", "a\"b", "a`b", "a-b", "ä", &"x".repeat(64)] {
            assert!(Adopt::table(bad, "id").is_err(), "{bad}");
            assert!(Adopt::table("inbox", bad).is_err(), "{bad}");
        }
        let ours = AdoptError::Ours("Oncebox_inbox".to_owned());
        assert_eq!(Adopt::table("Oncebox_inbox", "message_id"), Err(ours));
    }

    #[test]
    fn a_column_has_one_purpose() {
        let adopt = Adopt::table("inbox", "id").unwrap();
        assert_eq!(adopt.clone().consumer("ID"), Err(AdoptError::Twice("ID".to_owned())));
        let adopt = adopt.set("kind", Selector::Key).unwrap();
        assert_eq!(adopt.tenant("kind"), Err(AdoptError::Twice("kind".to_owned())));
    }

    #[test]
    fn names_are_quoted_part_by_part() {
        let adopt = Adopt::table("shop.inbox", "id").unwrap();
        assert_eq!(
            (adopt.quoted('"'), adopt.quoted('`')),
            (r#""shop"."inbox""#.to_owned(), "`shop`.`inbox`".to_owned())
        );
        assert_eq!(adopt.renamed("_adopted").to_string(), "shop.inbox_adopted");
        let long = Adopt::table(&"x".repeat(63), "id").unwrap();
        assert_eq!(long.renamed("_adopted").table_name().len(), 63);
    }
}
