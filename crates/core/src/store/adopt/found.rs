//! What a store has found out about an adopted table, and whether it will do.

use super::{Adopt, IdKind, StoredId};
use crate::store::Finding;

/// A column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundColumn {
    /// Its name, as the mapping spells it if it is part of it.
    pub name: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Whether the database fills it if nobody does: a default, an identity, a generated column.
    pub filled: bool,
    /// Whether only the database fills it.
    pub generated: bool,
    /// Whether it holds text.
    pub text: bool,
    /// The most characters that it holds.
    pub max_chars: Option<u32>,
}

/// The definition of the table, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTable {
    /// All columns.
    pub columns: Vec<FoundColumn>,
    /// The columns of each unique key that a claim can rely on: over all rows, checked at once, on plain columns.
    pub keys: Vec<Vec<String>>,
    /// What the column of the message id holds; or its type, which is none that can.
    pub id: Result<IdKind, String>,
    /// Why the column of the time cannot be used, although it is mapped; or why rows cannot be walked over.
    pub no_purge: Option<String>,
    /// Rights that the role lacks.
    pub missing_rights: Vec<String>,
    /// Ids of some rows that are there.
    pub sample: Vec<StoredId>,
    /// Whether one of these rows has no time.
    pub undated: bool,
    /// What else is worth a warning.
    pub warnings: Vec<String>,
}

/// What is asked of the table.
#[derive(Debug, Clone, Copy)]
pub struct AdoptedUse {
    /// How many consumers write receipts into it.
    pub consumers: usize,
    /// Whether messages have tenants.
    pub tenants: bool,
    /// How long the longest name of a consumer is.
    pub longest_consumer: usize,
}

impl Adopt {
    /// The columns of the unique key that tells copies: the message id, with the consumer and the tenant or without. Of
    /// several the one with the fewest columns, which is the one that decides.
    #[must_use]
    pub fn key<'f>(&self, found: &'f FoundTable) -> Option<&'f [String]> {
        let allowed = [Some(self.message_id.as_str()), self.consumer_column(), self.tenant_column()];
        let fits = |key: &&Vec<String>| {
            key.contains(&self.message_id)
                && key.iter().all(|column| allowed.contains(&Some(column.as_str())))
        };
        found.keys.iter().filter(fits).min_by_key(|key| key.len()).map(Vec::as_slice)
    }

    /// Which of the further columns must not be NULL.
    #[must_use]
    pub fn required(&self, found: &FoundTable) -> Vec<bool> {
        let nullable = |name: &str| found.columns.iter().any(|column| column.name == name && column.nullable);
        self.set.iter().map(|(column, _)| !nullable(column)).collect()
    }

    /// What the mapping lacks, one line each. An error breaks the promise, or keeps anything from being written.
    /// `create_key` is what to run where a unique key is missing, such as [`Adopt::create_key`].
    #[must_use]
    pub fn judge(&self, found: &FoundTable, usage: AdoptedUse, create_key: &str) -> Vec<Finding> {
        let subject = format!("adopted table {self}");
        let error = |detail: String| Finding::error(&subject, detail);
        let has = |name: &str| found.columns.iter().find(|column| column.name == name);
        let missing: Vec<_> = self.columns().filter(|name| has(name).is_none()).collect();
        if !missing.is_empty() {
            return vec![error(format!(
                "it has no column {}: name columns of the table under [store.adopt]",
                missing.join(", ")
            ))];
        }
        let mut findings = Vec::new();
        if let Err(kind) = &found.id {
            findings.push(error(format!(
                "the column {} is of type {kind}; text, UUID and binary columns can hold message ids",
                self.message_id
            )));
        }
        findings.extend(self.judge_key(found, usage, create_key).into_iter().map(error));
        findings.extend(self.judge_columns(found, usage).into_iter().map(error));
        findings.extend(self.misfit(found).map(error));
        for column in &found.columns {
            let mapped = self.columns().any(|name| name == column.name)
                && !(self.processed_at.as_ref() == Some(&column.name) && found.no_purge.is_some());
            if !mapped && !column.nullable && !column.filled {
                findings.push(error(format!(
                    "nothing fills the column {0}, which must not be NULL: give it a default, or a value under \
                     [store.adopt] with `set = {{ {0} = \"header:NAME\" }}`",
                    column.name
                )));
            }
        }
        if !found.missing_rights.is_empty() {
            findings.push(error(format!(
                "the role may not {} on it: grant that",
                found.missing_rights.join(", ")
            )));
        }
        if findings.is_empty() {
            findings.push(Finding::ok(&subject, self.as_found(found)));
        }
        findings.extend(self.limits(found).into_iter().map(|detail| Finding::warning(&subject, detail)));
        findings
    }

    fn judge_key(&self, found: &FoundTable, usage: AdoptedUse, create_key: &str) -> Vec<String> {
        let Some(key) = self.key(found) else {
            return vec![format!("no unique key tells copies of a message. Create one: {create_key}")];
        };
        let mut problems = Vec::new();
        let key_list = key.join(", ");
        let in_key = |column: Option<&str>| column.is_some_and(|column| key.iter().any(|one| one == column));
        if usage.consumers > 1 && !in_key(self.consumer_column()) {
            problems.push(format!(
                "its unique key ({key_list}) does not tell consumers apart, so it serves one consumer, and {} are \
                 configured: give the others a store of their own, or make the key (message id, consumer)",
                usage.consumers
            ));
        }
        if usage.tenants && !in_key(self.tenant_column()) {
            problems.push(format!(
                "its unique key ({key_list}) does not tell tenants apart: remove `tenant` from the inbox, or make the \
                 tenant part of the key"
            ));
        }
        for column in key {
            let nullable = found.columns.iter().any(|one| one.name == *column && one.nullable);
            if nullable && *column != self.message_id {
                problems.push(format!(
                    "the column {column} is part of its unique key and may be NULL, and NULLs are never the same: make \
                     it NOT NULL, with '' where there is none"
                ));
            }
        }
        problems
    }

    /// Whether what is written fits into the columns, whatever the message is.
    fn judge_columns(&self, found: &FoundTable, usage: AdoptedUse) -> Vec<String> {
        let mut problems = Vec::new();
        for column in found.columns.iter().filter(|column| self.columns().any(|name| name == column.name)) {
            if column.generated {
                problems
                    .push(format!("the column {} is generated: nothing can be written into it", column.name));
            }
            if self.consumer.as_ref() != Some(&column.name) {
                continue;
            }
            if !column.text {
                problems.push(format!(
                    "the column {} holds no text, and names of consumers are text",
                    column.name
                ));
            }
        }
        problems.extend(self.too_narrow(found, usage.longest_consumer));
        problems
    }

    /// What to say if the column for consumers does not hold a name of this length.
    #[must_use]
    pub fn too_narrow(&self, found: &FoundTable, length: usize) -> Option<String> {
        let column = found.columns.iter().find(|column| self.consumer.as_ref() == Some(&column.name))?;
        let most = column.max_chars.filter(|most| length > *most as usize)?;
        Some(format!(
            "the column {} holds {most} characters, and the name of a consumer has {length}: make it wider",
            column.name
        ))
    }

    /// Whether the ids that are there are written as ours would be. If they are not, no copy of them would be recognised.
    /// Where the mapping says how, a few others among them are nobody's business.
    fn misfit(&self, found: &FoundTable) -> Option<String> {
        let kind = found.id.as_ref().ok()?;
        let odd: Vec<_> = found.sample.iter().filter(|id| !kind.writes(id)).collect();
        let first = odd.first()?;
        if self.id_format.is_some() && odd.len() < found.sample.len() {
            return None;
        }
        Some(format!(
            "{} of {} ids that were looked at in the column {} are not written as oncebox would write them ({}), such as \
             {first}, so their copies would not be recognised: say how with `id_format = \"text\"`, \"uuid\", \"hex\" or \
             \"uuid-bytes\" under [store.adopt]; other ways of writing them cannot be adopted",
            odd.len(),
            found.sample.len(),
            self.message_id,
            as_kind(*kind)
        ))
    }

    fn as_found(&self, found: &FoundTable) -> String {
        let key = self.key(found).unwrap_or_default().join(", ");
        let holds = found.id.as_ref().map_or("nothing", |kind| as_kind(*kind));
        format!("receipts go here; ids as {holds}, unique by ({key})")
    }

    /// What works, but not all of it.
    fn limits(&self, found: &FoundTable) -> Vec<String> {
        let mut limits = found.warnings.clone();
        let is_tenant = |column: &&FoundColumn| self.tenant.as_ref() == Some(&column.name);
        if let Some(column) = found.columns.iter().find(is_tenant).filter(|column| !column.text) {
            limits.push(format!(
                "the column {} holds no text: a message without a tenant, or with one of another form, becomes a dead letter",
                column.name
            ));
        }
        if self.consumer.is_none() {
            limits.push("no column for consumers is mapped: it serves one consumer only".to_owned());
        }
        if self.tenant.is_none() {
            limits.push("no column for tenants is mapped: messages with a tenant are refused".to_owned());
        }
        match (&self.processed_at, &found.no_purge) {
            (None, _) => limits.push(
                "no column for the time is mapped: nothing is purged, and `retention` has no effect"
                    .to_owned(),
            ),
            (Some(_), Some(why)) => {
                limits.push(format!("{why}: nothing is purged, and `retention` has no effect"));
            }
            (Some(_), None) => {}
        }
        if let Some(column) = self.processed_at.as_ref().filter(|_| found.undated) {
            limits.push(format!(
                "some rows have no {column}. A row means \"applied\" to oncebox: if your code stores messages first and \
                 processes them later, those that are waiting would be skipped as copies"
            ));
        }
        limits
    }

    /// Whether receipts are dated, and purged.
    #[must_use]
    pub fn is_purged(&self, found: &FoundTable) -> bool {
        self.processed_at.is_some() && found.no_purge.is_none()
    }
}

/// In words.
fn as_kind(kind: IdKind) -> &'static str {
    match kind {
        IdKind::Text { .. } => "text",
        IdKind::Uuid => "UUIDs",
        IdKind::UuidHex => "UUIDs of 32 hex digits in lower case",
        IdKind::UuidBytes => "the 16 bytes of UUIDs",
        IdKind::Bytes { .. } => "bytes of text",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{FindingLevel, IdFormat};

    const ONE: AdoptedUse = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 5 };

    fn column(name: &str) -> FoundColumn {
        FoundColumn {
            name: name.to_owned(),
            nullable: false,
            filled: false,
            generated: false,
            text: true,
            max_chars: None,
        }
    }

    fn found(columns: &[&str], keys: &[&[&str]]) -> FoundTable {
        FoundTable {
            columns: columns.iter().map(|name| column(name)).collect(),
            keys: keys.iter().map(|key| key.iter().map(|name| (*name).to_owned()).collect()).collect(),
            id: Ok(IdKind::Uuid),
            no_purge: None,
            missing_rights: Vec::new(),
            sample: Vec::new(),
            undated: false,
            warnings: Vec::new(),
        }
    }

    fn errors(adopt: &Adopt, found: &FoundTable, usage: AdoptedUse) -> Vec<String> {
        let findings = adopt.judge(found, usage, &adopt.create_key('"'));
        findings.into_iter().filter(|f| f.level == FindingLevel::Error).map(|f| f.detail).collect()
    }

    #[test]
    fn a_table_without_a_usable_key_is_refused_with_the_statement() {
        let adopt = Adopt::table("inbox", "id").unwrap().consumer("consumer").unwrap();
        for keys in [&[][..], &[&["consumer"][..]], &[&["id", "topic"][..]]] {
            let said = errors(&adopt, &found(&["id", "consumer", "topic"], keys), ONE).join("\n");
            assert!(
                said.contains(r#"CREATE UNIQUE INDEX inbox_once ON "inbox" ("id", "consumer")"#),
                "{said}"
            );
        }
        let several = found(&["id", "consumer"], &[&["consumer", "id"], &["id"]]);
        assert_eq!(adopt.key(&several), Some(&["id".to_owned()][..]), "the narrower one decides");
    }

    #[test]
    fn two_consumers_need_the_consumer_in_the_key() {
        let adopt = Adopt::table("inbox", "id").unwrap().consumer("consumer").unwrap();
        let two = AdoptedUse { consumers: 2, ..ONE };
        assert_eq!(errors(&adopt, &found(&["id", "consumer"], &[&["id"]]), ONE).len(), 0);
        assert_eq!(errors(&adopt, &found(&["id", "consumer"], &[&["id"]]), two).len(), 1);
        assert_eq!(errors(&adopt, &found(&["id", "consumer"], &[&["consumer", "id"]]), two).len(), 0);
        let tenants = AdoptedUse { tenants: true, ..ONE };
        assert_eq!(errors(&adopt, &found(&["id", "consumer"], &[&["consumer", "id"]]), tenants).len(), 1);
    }

    #[test]
    fn a_key_over_a_column_that_may_be_null_is_refused() {
        let adopt = Adopt::table("inbox", "id").unwrap().tenant("tenant").unwrap();
        let mut table = found(&["id", "tenant"], &[&["tenant", "id"]]);
        assert_eq!(errors(&adopt, &table, ONE).len(), 0);
        table.columns[1].nullable = true;
        assert_eq!(errors(&adopt, &table, ONE).len(), 1);
    }

    #[test]
    fn names_of_consumers_must_fit() {
        let adopt = Adopt::table("inbox", "id").unwrap().consumer("consumer").unwrap();
        let mut table = found(&["id", "consumer"], &[&["id"]]);
        table.columns[1].max_chars = Some(5);
        assert_eq!(errors(&adopt, &table, ONE).len(), 0);
        table.columns[1].max_chars = Some(4);
        assert_eq!(errors(&adopt, &table, ONE).len(), 1);
        table.columns[1] = FoundColumn { text: false, ..column("consumer") };
        assert_eq!(errors(&adopt, &table, ONE).len(), 1);
        table.columns[1] = FoundColumn { generated: true, ..column("consumer") };
        assert_eq!(errors(&adopt, &table, ONE).len(), 1);
    }

    #[test]
    fn ids_that_are_there_must_be_written_as_ours() {
        let adopt = Adopt::table("inbox", "id").unwrap();
        let id = |text: &str| StoredId::Text(text.to_owned());
        let mut table = found(&["id"], &[&["id"]]);
        table.sample = vec![id("01890a5d-ac96-774b-bcce-b302099a8057"), id("order-1")];
        assert_eq!(errors(&adopt, &table, ONE).len(), 1);
        assert_eq!(errors(&adopt.clone().id_format(IdFormat::Uuid), &table, ONE).len(), 0, "a few others");
        table.sample.remove(0);
        assert_eq!(errors(&adopt.id_format(IdFormat::Uuid), &table, ONE).len(), 1, "none fits");
    }

    #[test]
    fn columns_that_nothing_fills_are_named() {
        let adopt = Adopt::table("inbox", "id").unwrap().processed_at("at").unwrap();
        let mut table = found(&["id", "at", "kind", "note"], &[&["id"]]);
        table.columns[3].nullable = true;
        let said = errors(&adopt, &table, ONE);
        assert!(said.len() == 1 && said[0].contains("set = { kind ="), "{said:?}");
        // A time that we cannot write is not filled either.
        table.no_purge = Some("at is a number".to_owned());
        assert_eq!(errors(&adopt, &table, ONE).len(), 2);
    }

    #[test]
    fn what_the_mapping_lacks_is_said_in_one_line_each() {
        let adopt = Adopt::table("inbox", "id").unwrap();
        let findings = adopt.judge(&found(&["id"], &[&["id"]]), ONE, "");
        let levels: Vec<_> = findings.iter().map(|f| f.level).collect();
        use FindingLevel::{Ok as Fine, Warning};
        assert_eq!(levels, [Fine, Warning, Warning, Warning]);
        assert_eq!(errors(&adopt, &found(&["message_id"], &[]), ONE).len(), 1, "only the missing column");
    }
}
