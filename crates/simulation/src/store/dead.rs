//! Dead letters.

use std::collections::{BTreeMap, BTreeSet};

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::{ConsumerName, MessageId};
use oncebox_core::store::{
    DeadFilter, DeadGroup, DeadLetter, DeadLetters, DeadSummary, LetterContent, LetterEdit,
    MAX_KEYED_LETTERS, MAX_SUMMARY_BYTES, PositionKey, StoreResult, StoredDeadLetter, error_group,
};

use super::access::away;
use super::{LetterRow, ModelStore, ReceiptOf, Txn};
use crate::check::letter_name;
use crate::log::header_of;
use crate::plan::Place;
use crate::world::{About, Inner};

impl DeadLetters for ModelStore {
    async fn park(&self, txn: &mut Txn, consumer: &ConsumerName, letters: &[DeadLetter]) -> StoreResult<()> {
        self.statement(txn.id, |inner, id| inner.park(id, consumer, letters)).await
    }

    async fn parked_keys(
        &self,
        txn: &mut Txn,
        position: &PositionKey,
        keys: &[&[u8]],
    ) -> StoreResult<Vec<Vec<u8>>> {
        self.statement(txn.id, |inner, _| Ok(inner.parked_keys(position, keys))).await
    }

    async fn take_dead(&self, number: i64) -> StoreResult<Option<(Txn, StoredDeadLetter)>> {
        self.reach().await?;
        let txn = self.begin();
        let id = txn.id;
        // Waits for somebody else who has taken it and not decided yet.
        let taken = self.world.until(About::Transactions, |inner| inner.try_take(id, number)).await;
        self.world.takes_time(self.actor).await;
        Ok(taken?.map(|stored| (txn, stored)))
    }

    async fn letter_before(&self, txn: &mut Txn, taken: &StoredDeadLetter) -> StoreResult<Option<i64>> {
        self.statement(txn.id, |inner, _| Ok(inner.letter_before(taken))).await
    }

    async fn dead_letters(&self, filter: &DeadFilter) -> StoreResult<Vec<DeadSummary>> {
        let summary = |stored: StoredDeadLetter| DeadSummary {
            number: stored.number,
            consumer: stored.consumer,
            tenant: stored.letter.tenant.as_str().to_owned(),
            message_id: stored.letter.message_id,
            topic: stored.letter.record.topic.to_string(),
            partition: stored.letter.record.partition,
            offset: stored.letter.record.offset,
            key: stored.letter.record.key.map(|key| key[..key.len().min(MAX_SUMMARY_BYTES)].to_vec()),
            payload_bytes: stored.letter.record.payload.map(|payload| payload.len() as u64),
            error: stored.letter.error.chars().take(MAX_SUMMARY_BYTES).collect(),
            attempts: stored.letter.attempts,
            failed_at_ms: stored.failed_at_ms,
            edited: stored.edit.is_some(),
        };
        self.operation(|inner| Ok(inner.letters(filter).into_iter().map(summary).collect())).await
    }

    async fn dead_letter(&self, number: i64) -> StoreResult<Option<StoredDeadLetter>> {
        self.operation(|inner| Ok(inner.db.tables.letters.get(&number).map(|row| row.stored.clone()))).await
    }

    async fn drop_dead(&self, filter: &DeadFilter) -> StoreResult<u64> {
        self.operation(|inner| {
            let letters = inner.letters(filter);
            let mut dropped = 0;
            for stored in letters {
                let Some(row) = inner.db.tables.letters.get(&stored.number) else { continue };
                if row.taken_by.is_some() {
                    continue;
                }
                let name = (row.consumer, letter_name(row));
                inner.db.tables.letters.remove(&stored.number);
                inner.db.tables.dropped.insert(name);
                dropped += 1;
            }
            Ok(dropped)
        })
        .await
    }

    async fn count_replay(&self, consumer: &ConsumerName) -> StoreResult<()> {
        self.operation(|inner| {
            let consumer = inner.log.consumer_index(consumer.as_str());
            *inner.db.tables.replayed.entry(consumer).or_default() += 1;
            Ok(())
        })
        .await
    }

    async fn dead_groups(
        &self,
        consumer: Option<&str>,
        limit: u32,
        count_cap: u64,
    ) -> StoreResult<Vec<DeadGroup>> {
        self.operation(|inner| Ok(inner.dead_groups(consumer, limit, count_cap))).await
    }

    /// The model tells the group of a letter by its error.
    async fn group_letters(&self, _limit: u32) -> StoreResult<u64> {
        Ok(0)
    }

    async fn edit_dead(
        &self,
        number: i64,
        times_seen: u32,
        content: &LetterContent,
        by: &str,
    ) -> StoreResult<bool> {
        self.operation(|inner| Ok(inner.edit_dead(number, times_seen, content, by))).await
    }
}

fn group_of(stored: &StoredDeadLetter) -> String {
    error_group(&stored.consumer, &stored.letter.error)
}

impl Inner {
    fn try_take(&mut self, txn: u64, number: i64) -> Option<StoreResult<Option<StoredDeadLetter>>> {
        if !self.db.open.contains_key(&txn) {
            return Some(Err(away()));
        }
        let Some(row) = self.db.tables.letters.get_mut(&number) else { return Some(Ok(None)) };
        if row.taken_by.is_some_and(|by| by != txn) {
            return None;
        }
        row.taken_by = Some(txn);
        let (consumer, stored) = (row.consumer, row.stored.clone());
        let open = self.db.open.get_mut(&txn)?;
        open.taken = Some(number);
        let tenant = &stored.letter.tenant;
        let id = stored.letter.message_id.as_deref().and_then(|id| MessageId::new(id).ok());
        if let (Some(id), Ok(name)) = (id, ConsumerName::new(stored.consumer.as_str())) {
            let key = ReceiptKey::of(&name, tenant, &id);
            let (tenant, id) = (tenant.as_str().to_owned(), id.as_str().to_owned());
            let of = ReceiptOf { consumer, tenant, id, fingerprint: None };
            open.renewed.push((key, of));
        }
        Some(Ok(Some(stored)))
    }

    /// A transaction that had taken letters is gone.
    pub(super) fn release_letters(&mut self, txn: u64) {
        for row in self.db.tables.letters.values_mut().filter(|row| row.taken_by == Some(txn)) {
            row.taken_by = None;
        }
    }

    pub(super) fn park(
        &mut self,
        id: u64,
        consumer: &ConsumerName,
        letters: &[DeadLetter],
    ) -> StoreResult<()> {
        let consumer = self.log.consumer_index(consumer.as_str());
        for letter in letters {
            let place = self.log.place(&letter.record.topic, letter.record.partition);
            let Some(open) = self.db.open.get_mut(&id) else { return Err(away()) };
            open.letters.push((consumer, place, letter.clone()));
        }
        Ok(())
    }

    /// Whether this message without an id has its letter, for an offset of a log is one message: which writing of the log
    /// the letter is from.
    pub(super) fn letter_without_id(
        &self,
        consumer: usize,
        place: Place,
        letter: &DeadLetter,
    ) -> Option<i64> {
        let same = |other: &DeadLetter| {
            other.message_id.is_none()
                && (other.record.offset, &other.record.log) == (letter.record.offset, &letter.record.log)
        };
        if letter.message_id.is_some() {
            return None;
        }
        let here = |row: &&LetterRow| (row.consumer, row.place) == (consumer, place);
        let known = self.db.tables.letters.values().filter(here).map(|row| &row.stored.letter);
        known.filter(|known| same(known)).map(|known| header_of(&known.record, "writing")).next()
    }

    pub(super) fn parked_keys(&mut self, position: &PositionKey, keys: &[&[u8]]) -> Vec<Vec<u8>> {
        let spot = self.log.spot(position);
        let parked = |key: &[u8]| {
            self.db.tables.letters.values().any(|row| {
                (row.consumer, row.place) == (spot.consumer, spot.place)
                    && row.stored.letter.record.key.as_deref() == Some(key)
            })
        };
        let mut keys: Vec<Vec<u8>> = keys.iter().filter(|key| parked(key)).map(|key| key.to_vec()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    pub(super) fn letter_before(&self, taken: &StoredDeadLetter) -> Option<i64> {
        let record = &taken.letter.record;
        record.key.as_ref()?;
        let earlier = self.db.tables.letters.range(..taken.number);
        let same = |other: &StoredDeadLetter| {
            let of = &other.letter.record;
            other.consumer == taken.consumer
                && (&of.topic, of.partition, &of.key) == (&record.topic, record.partition, &record.key)
        };
        earlier.filter(|(_, row)| same(&row.stored)).map(|(number, _)| *number).next()
    }

    fn dead_groups(&self, consumer: Option<&str>, limit: u32, count_cap: u64) -> Vec<DeadGroup> {
        let mut groups: BTreeMap<String, Vec<&StoredDeadLetter>> = BTreeMap::new();
        for row in self.db.tables.letters.values() {
            if consumer.is_none_or(|consumer| consumer == row.stored.consumer) {
                groups.entry(group_of(&row.stored)).or_default().push(&row.stored);
            }
        }
        let cap = usize::try_from(count_cap).unwrap_or(usize::MAX);
        let group = |(group, letters): (String, Vec<&StoredDeadLetter>)| {
            let (first, last) = (letters.first()?, letters.last()?);
            let looked_at = cap.min(MAX_KEYED_LETTERS as usize);
            let records = letters.iter().take(looked_at).map(|stored| &stored.letter.record);
            let keyed = records.filter(|record| record.key.is_some());
            let keys: BTreeSet<_> = keyed.map(|of| (&of.topic, of.partition, &of.key)).collect();
            Some(DeadGroup {
                group,
                consumer: last.consumer.clone(),
                error: last.letter.error.chars().take(MAX_SUMMARY_BYTES).collect(),
                letters: letters.len().min(cap) as u64,
                keys: keys.len() as u64,
                first_ms: first.failed_at_ms,
                last_ms: last.failed_at_ms,
                newest: last.number,
            })
        };
        groups.into_iter().take(limit as usize).filter_map(group).collect()
    }

    fn edit_dead(&mut self, number: i64, times_seen: u32, content: &LetterContent, by: &str) -> bool {
        let at_ms = self.db_now_ms();
        let Some(row) = self.db.tables.letters.get_mut(&number) else { return false };
        let stored = &mut row.stored;
        let times = stored.edit.as_ref().map_or(0, |edit| edit.times);
        if times != times_seen || row.taken_by.is_some() {
            return false;
        }
        let record = &mut stored.letter.record;
        let original = stored.edit.take().map_or_else(|| LetterContent::of(record), |edit| edit.original);
        stored.edit = Some(LetterEdit { by: by.to_owned(), at_ms, times: times + 1, original });
        record.key.clone_from(&content.key);
        record.payload.clone_from(&content.payload);
        record.headers.clone_from(&content.headers);
        true
    }

    /// Letters by filter.
    pub(super) fn letters(&self, filter: &DeadFilter) -> Vec<StoredDeadLetter> {
        let wanted = |row: &&LetterRow| {
            let letter = &row.stored.letter;
            (filter.numbers.is_empty() || filter.numbers.contains(&row.stored.number))
                && filter.consumer.as_ref().is_none_or(|consumer| *consumer == row.stored.consumer)
                && filter.topic.as_ref().is_none_or(|topic| **topic == *letter.record.topic)
                && filter.tenant.as_ref().is_none_or(|tenant| tenant == letter.tenant.as_str())
                && filter.message_id.as_ref().is_none_or(|id| letter.message_id.as_ref() == Some(id))
                && filter.key.as_ref().is_none_or(|key| letter.record.key.as_ref().is_some_and(|k| k == key))
                && filter.group.as_ref().is_none_or(|group| *group == group_of(&row.stored))
                && filter.error.as_ref().is_none_or(|text| letter.error.contains(text.as_str()))
                && filter.failed_from_ms.is_none_or(|from| row.stored.failed_at_ms >= from)
                && filter.failed_until_ms.is_none_or(|until| row.stored.failed_at_ms < until)
                && row.stored.number > filter.after
                && filter.before.is_none_or(|before| row.stored.number < before)
        };
        let rows = self.db.tables.letters.values().filter(wanted);
        let limit = filter.limit as usize;
        if filter.newest_first {
            return rows.rev().take(limit).map(|row| row.stored.clone()).collect();
        }
        rows.take(limit).map(|row| row.stored.clone()).collect()
    }
}
