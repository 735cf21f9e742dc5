//! The way over a table of the application: by the columns of its unique key, so that every page is one stretch of an index.

use oncebox_core::store::{IdKind, PageMark};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::super::Table;
use super::super::statements::{bytes_of, id_bytes};
use crate::purge::Mark;
use crate::quote::identifier;

/// Values of the columns that are walked by.
type Values = Vec<Option<Vec<u8>>>;

struct Column {
    name: String,
    bytes: String,
    mark: Mark,
    nullable: bool,
}

/// The order of the rows.
pub(super) struct Walk {
    columns: Vec<Column>,
    /// Says which index to take.
    hint: String,
}

/// How far a pass is, and behind what the next page begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Rows seen.
    pub(super) done: u64,
    /// Rows that there were at the beginning, as far as the server knows.
    pub(super) total: u64,
    values: Option<Values>,
}

impl Walk {
    pub(super) fn over(table: &Table) -> Self {
        let id = table.adopt.message_id_column();
        let (names, hint) = match table.adopt.key(&table.found) {
            Some(key) => (key.to_vec(), table.statements.by_key.clone()),
            // Without one the server finds its way, or reads all of it for every page.
            None => (vec![id.to_owned()], String::new()),
        };
        let nullable = |name: &str| table.found.columns.iter().any(|one| one.name == name && one.nullable);
        let column = |name: String| {
            let quoted = identifier(&name);
            let (bytes, mark) = if name == id {
                (id_bytes(table.id, &quoted), mark_of(table.id))
            } else {
                (bytes_of(&quoted), Mark::Text)
            };
            Column { nullable: nullable(&name), name: quoted, bytes, mark }
        };
        Self { columns: names.into_iter().map(column).collect(), hint }
    }

    pub(super) fn hint(&self) -> &str {
        &self.hint
    }

    /// The columns as they are sorted by.
    pub(super) fn order(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
        names.join(", ")
    }

    /// The same as bytes, as [`Walk::read`] takes them.
    pub(super) fn values(&self) -> String {
        let bytes: Vec<_> = self.columns.iter().map(|column| column.bytes.as_str()).collect();
        bytes.join(", ")
    }

    /// The place of a row.
    pub(super) fn read(&self, row: &MySqlRow) -> sqlx::Result<Values> {
        (0..self.columns.len()).map(|nth| row.try_get_unchecked(nth)).collect()
    }

    /// That a row is behind a place.
    pub(super) fn behind(&self, place: &Place) -> String {
        let Some(values) = &place.values else { return "TRUE".to_owned() };
        self.compare(values, |column, value, _| match value {
            Some(value) => column.mark.behind(&column.name, Some(value)),
            None => format!("{} IS NOT NULL", column.name),
        })
    }

    /// That a row is not behind these values. NULL comes before everything else.
    pub(super) fn up_to(&self, values: &Values) -> String {
        self.compare(values, |column, value, last| {
            let Column { name, mark, nullable, .. } = column;
            let less = match (value, last) {
                (Some(value), true) => mark.up_to(name, value),
                (Some(value), false) => format!("{name} < {}", mark.literal(value)),
                (None, true) => return format!("{name} IS NULL"),
                (None, false) => return "FALSE".to_owned(),
            };
            if *nullable { format!("({less} OR {name} IS NULL)") } else { less }
        })
    }

    /// Column by column: the first ones are the same, and then this holds. The servers see a stretch of an index in it, other than
    /// in `(a, b) > (1, 2)`.
    fn compare(&self, values: &Values, holds: impl Fn(&Column, Option<&Vec<u8>>, bool) -> String) -> String {
        let (mut same, mut cases) = (String::new(), Vec::new());
        for (nth, (column, value)) in self.columns.iter().zip(values).enumerate() {
            let last = nth + 1 == self.columns.len();
            cases.push(format!("({same}{})", holds(column, value.as_ref(), last)));
            match value {
                Some(value) => {
                    same.push_str(&format!("{} = {} AND ", column.name, column.mark.literal(value)));
                }
                None => same.push_str(&format!("{} IS NULL AND ", column.name)),
            }
        }
        format!("({})", cases.join(" OR "))
    }
}

/// What the ids are compared as.
pub(super) fn mark_of(id: IdKind) -> Mark {
    match id {
        IdKind::UuidBytes | IdKind::Bytes { .. } => Mark::Bytes,
        IdKind::Text { .. } | IdKind::Uuid | IdKind::UuidHex => Mark::Text,
    }
}

impl Place {
    /// So many rows later.
    pub(super) fn after(&self, rows: u64, values: Values) -> Self {
        Self { done: self.done + rows, total: self.total, values: Some(values) }
    }

    pub(super) fn is_first(&self) -> bool {
        self.values.is_none()
    }

    pub(super) fn to_page(&self) -> PageMark {
        let mut bytes = [self.done.to_be_bytes(), self.total.to_be_bytes()].concat();
        for value in self.values.iter().flatten() {
            let length = value.as_ref().map_or(u64::MAX, |value| value.len() as u64);
            bytes.extend(length.to_be_bytes());
            bytes.extend(value.iter().flatten());
        }
        PageMark(bytes)
    }

    /// What is no place is the beginning.
    pub(super) fn of_page(page: &PageMark) -> Self {
        Self::read(&page.0).unwrap_or_default()
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        let number = |bytes: &mut &[u8]| -> Option<u64> {
            let (first, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u64::from_be_bytes(*first))
        };
        let (done, total) = (number(&mut bytes)?, number(&mut bytes)?);
        let mut values = Vec::new();
        while !bytes.is_empty() {
            let length = number(&mut bytes)?;
            if length == u64::MAX {
                values.push(None);
                continue;
            }
            let (value, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
            values.push(Some(value.to_vec()));
            bytes = rest;
        }
        Some(Self { done, total, values: Some(values) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk() -> Walk {
        let column = |name: &str, nullable| Column {
            name: name.to_owned(),
            bytes: name.to_owned(),
            mark: Mark::Bytes,
            nullable,
        };
        Walk { columns: vec![column("a", true), column("b", false)], hint: String::new() }
    }

    #[test]
    fn a_place_comes_back_as_it_was() {
        for values in [vec![Some(b"x".to_vec())], vec![None, Some(Vec::new())]] {
            let place = Place { done: 3, total: 7, values: Some(values) };
            assert_eq!(Place::of_page(&place.to_page()), place);
        }
        assert!(Place::of_page(&PageMark::default()).is_first());
    }

    #[test]
    fn rows_are_compared_column_by_column_and_null_is_the_first() {
        let walk = walk();
        let at = |a: Option<&[u8]>| Place::default().after(1, vec![a.map(<[u8]>::to_vec), Some(vec![2])]);
        assert_eq!(walk.behind(&at(Some(&[1]))), "((a > 0x01) OR (a = 0x01 AND b > 0x02))");
        assert_eq!(walk.behind(&at(None)), "((a IS NOT NULL) OR (a IS NULL AND b > 0x02))");
        let up_to = |a: Option<Vec<u8>>| walk.up_to(&vec![a, Some(vec![2])]);
        assert_eq!(up_to(Some(vec![1])), "(((a < 0x01 OR a IS NULL)) OR (a = 0x01 AND b <= 0x02))");
        assert_eq!(up_to(None), "((FALSE) OR (a IS NULL AND b <= 0x02))");
    }
}
