-- A position belongs to one log: `log` is its identity, the mark is the last settled record (its offset and a digest), to
-- recognise the log by. Reading never begins below `floor`, where an operator has moved the position to. Everything that the
-- log held at `caught_up_at` is settled; NULL means that nobody knows. A retired position does not hold back retention.
ALTER TABLE oncebox_position ADD COLUMN log TEXT;
ALTER TABLE oncebox_position ADD COLUMN mark_offset INTEGER;
ALTER TABLE oncebox_position ADD COLUMN mark_digest INTEGER;
ALTER TABLE oncebox_position ADD COLUMN floor INTEGER;
ALTER TABLE oncebox_position ADD COLUMN caught_up_at TEXT;
ALTER TABLE oncebox_position ADD COLUMN retired_at TEXT;
-- How many transactions have advanced it: a database that knows fewer than its owner has gone back.
ALTER TABLE oncebox_position ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;

-- The dead letters again, with the log that each stood in ('' if it is not known), and with the payload at the end: SQLite
-- finds the columns behind a long value only by walking through it, and a list wants all columns but that one.
CREATE TABLE oncebox_dead_next (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     TEXT    NOT NULL,
    tenant       TEXT    NOT NULL DEFAULT '',
    message_id   TEXT    NOT NULL DEFAULT '',
    topic        TEXT    NOT NULL,
    partition    INTEGER NOT NULL,
    "offset"     INTEGER NOT NULL,
    log          TEXT    NOT NULL DEFAULT '',
    timestamp_ms INTEGER,
    attempts     INTEGER NOT NULL,
    failed_at    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    error        TEXT    NOT NULL,
    key          BLOB,
    headers      TEXT    NOT NULL DEFAULT '[]',
    payload      BLOB
);
INSERT INTO oncebox_dead_next (number, consumer, tenant, message_id, topic, partition, "offset", timestamp_ms, attempts,
                               failed_at, error, key, headers, payload)
SELECT number, consumer, tenant, message_id, topic, partition, "offset", timestamp_ms, attempts,
       failed_at, error, key, headers, payload
FROM oncebox_dead;

-- Numbers of letters that are gone are not used again.
INSERT INTO sqlite_sequence (name, seq)
SELECT 'oncebox_dead_next', seq FROM sqlite_sequence
WHERE name = 'oncebox_dead' AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'oncebox_dead_next');
UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'oncebox_dead')
WHERE name = 'oncebox_dead_next';
DROP TABLE oncebox_dead;
ALTER TABLE oncebox_dead_next RENAME TO oncebox_dead;

-- A message without an id has no receipt that would keep a second copy of its letter away. Its place in its log does.
CREATE UNIQUE INDEX oncebox_dead_without_id ON oncebox_dead (consumer, topic, partition, "offset", log)
    WHERE message_id = '';
CREATE INDEX oncebox_dead_by_id ON oncebox_dead (message_id, consumer, tenant);
CREATE INDEX oncebox_dead_by_key ON oncebox_dead (consumer, topic, partition, key);

-- Who makes the retention pass, until when without being heard of again, and how far the pass is: the last key that was
-- looked at, and how many receipts were. One row.
CREATE TABLE oncebox_purge (
    only_row     INTEGER PRIMARY KEY CHECK (only_row = 1),
    owner        TEXT,
    leased_until TEXT,
    reached      BLOB    NOT NULL DEFAULT x'',
    done         INTEGER NOT NULL DEFAULT 0
);
INSERT INTO oncebox_purge (only_row) VALUES (1);
