//! Positions: how far a consumer has come, and who may advance it.

use oncebox_core::source::LogId;
use oncebox_core::store::{Advance, Ownership, PositionKey, Progress};

use crate::quote::{number, text};

/// The statements that move the position, for the message that also commits.
pub(crate) fn advance(advance: &Advance<'_>) -> String {
    let Advance { owner, progress, applied, duplicates, finished_attempt } = advance;
    let moving = moving(owner, progress, Some((*applied, *duplicates)));
    match finished_attempt {
        Some(offset) => format!(
            "DELETE FROM oncebox_attempt WHERE {} AND `offset` = {offset}; {moving}",
            of_key(&owner.key)
        ),
        None => moving,
    }
}

/// Writes down how far a partition is, if it still belongs to the owner with that epoch and is at least where the owner was
/// told that it is: a database that failed over to an older state is not written on. NULL leaves a value as it is. Offsets and
/// the time up to which the partition is caught up never go back, and that time is never later than now. Without counts there
/// were no messages: then nothing says that the owner makes progress, or that the log lives. And only a commit that moves the
/// next offset is progress: a lane that runs ahead says nothing about the message that holds it.
///
/// The second statement fails with 1242 unless the first one found its row, and so nothing is committed. Assignments are made
/// from left to right, and later ones see the earlier: `starts` and `mark_digest` stand before what they compare with.
fn moving(owner: &Ownership, progress: &Progress<'_>, counts: Option<(u64, u64)>) -> String {
    let mut set = Vec::new();
    if let Some((applied, duplicates)) = counts {
        if let Some(next) = progress.next_offset {
            set.push(format!("starts = IF({next} > COALESCE(next_offset, -1), 0, starts)"));
        }
        set.push(format!(
            "commits = commits + 1, retired_at = NULL, applied = applied + {applied}, \
             duplicates = duplicates + {duplicates}, updated_at = UTC_TIMESTAMP(6)"
        ));
    }
    if let Some(next) = progress.next_offset {
        set.push(format!("next_offset = GREATEST(COALESCE(next_offset, {next}), {next})"));
    }
    if let Some(log) = progress.log.map(LogId::as_str) {
        set.push(format!("log = {}", text(log)));
    }
    if let Some(mark) = progress.mark {
        let (offset, digest) = (mark.offset, mark.digest);
        set.push(format!("mark_digest = IF({offset} < mark_offset, mark_digest, {digest})"));
        set.push(format!("mark_offset = GREATEST(COALESCE(mark_offset, {offset}), {offset})"));
    }
    if let Some(ms) = progress.caught_up_ms {
        let ms = ms.clamp(0, crate::time::LAST_MS);
        let at = format!(
            "LEAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {ms} * 1000 MICROSECOND, UTC_TIMESTAMP(6))"
        );
        set.push(format!("caught_up_at = GREATEST(COALESCE(caught_up_at, {at}), {at})"));
    }
    if set.is_empty() {
        set.push("epoch = epoch".to_owned());
    }
    format!(
        "UPDATE oncebox_position SET {} WHERE {} AND epoch = {} AND ({at_least} IS NULL OR next_offset >= {at_least}) \
         AND ({commits} IS NULL OR commits >= {commits}); \
         SELECT IF(ROW_COUNT() = 1, 1, (SELECT 1 UNION ALL SELECT 2))",
        set.join(", "),
        of_key(&owner.key),
        owner.epoch,
        at_least = number(progress.at_least),
        commits = number(progress.commits),
    )
}

/// The condition that finds the rows of a position.
fn of_key(key: &PositionKey) -> String {
    format!(
        "consumer = {} AND topic = {} AND `partition` = {}",
        text(key.consumer.as_str()),
        text(&key.topic),
        key.partition
    )
}
