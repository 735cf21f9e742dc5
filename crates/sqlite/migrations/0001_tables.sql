-- The inbox: one row per message that a consumer has applied. It holds no payload. The sixteen bytes of `key` stand for
-- (consumer, tenant, message_id); a table without rowid keeps them in one tree instead of a table and an index.
CREATE TABLE oncebox_inbox (
    key          BLOB NOT NULL PRIMARY KEY,
    consumer     TEXT NOT NULL,
    tenant       TEXT NOT NULL DEFAULT '',
    message_id   TEXT NOT NULL,
    processed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;

-- How far a consumer has come, and who may advance it.
CREATE TABLE oncebox_position (
    consumer    TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    partition   INTEGER NOT NULL,
    next_offset INTEGER,
    epoch       INTEGER NOT NULL,
    starts      INTEGER NOT NULL DEFAULT 0,
    applied     INTEGER NOT NULL DEFAULT 0,
    duplicates  INTEGER NOT NULL DEFAULT 0,
    updated_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (consumer, topic, partition)
) WITHOUT ROWID;

-- Offsets that are tried one at a time, written down before the attempt, so that a message that kills the process is
-- recognised.
CREATE TABLE oncebox_attempt (
    consumer  TEXT    NOT NULL,
    topic     TEXT    NOT NULL,
    partition INTEGER NOT NULL,
    "offset"  INTEGER NOT NULL,
    attempts  INTEGER NOT NULL,
    PRIMARY KEY (consumer, topic, partition, "offset")
) WITHOUT ROWID;

-- Messages that were given up, kept whole. AUTOINCREMENT: a number is never used again, not even after a delete.
CREATE TABLE oncebox_dead (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     TEXT    NOT NULL,
    tenant       TEXT    NOT NULL DEFAULT '',
    message_id   TEXT    NOT NULL DEFAULT '',
    topic        TEXT    NOT NULL,
    partition    INTEGER NOT NULL,
    "offset"     INTEGER NOT NULL,
    key          BLOB,
    payload      BLOB,
    headers      TEXT    NOT NULL DEFAULT '[]',
    timestamp_ms INTEGER,
    error        TEXT    NOT NULL,
    attempts     INTEGER NOT NULL,
    failed_at    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- A message without an id has no receipt that would keep a second copy of its letter away.
CREATE UNIQUE INDEX oncebox_dead_without_id ON oncebox_dead (consumer, topic, partition, "offset")
    WHERE message_id = '';

-- Purge asks whether a receipt belongs to a dead letter, and operators ask by id; `park-key` asks whether a key has one.
CREATE INDEX oncebox_dead_by_id ON oncebox_dead (message_id, consumer, tenant);
CREATE INDEX oncebox_dead_by_key ON oncebox_dead (consumer, topic, partition, key);

-- Receipts of this consumer older than `purged_before` are gone; `purged` counts them.
CREATE TABLE oncebox_horizon (
    consumer      TEXT    NOT NULL PRIMARY KEY,
    purged_before TEXT    NOT NULL,
    purged        INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
