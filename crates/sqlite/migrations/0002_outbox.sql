-- The outbox: one row per event that waits to be published. Any program may write events in its own transaction:
--
--     INSERT INTO oncebox_outbox (topic, key, payload) VALUES ('stock.changed', 'A-1', json_object('qty', 2));
--
-- and so may the SQL of a handler, which can name the message that caused the event:
--
--     INSERT INTO oncebox_outbox (topic, key, payload, causation_id)
--     VALUES ('stock.changed', :key, json_object('qty', :payload->>'qty'), :id)
--
-- `id` is a UUIDv7 by default. `key` and `payload` are text or blobs; text means its bytes, and no payload is a tombstone.
-- `headers` is a JSON object of texts, or an array of [name, value] where a name repeats.
--
-- Events of one key share a shard, and a shard belongs to one relay at a time. Events without a key are spread. The payload
-- comes last: SQLite finds the columns behind a long value only by walking through it.
CREATE TABLE oncebox_outbox (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT    NOT NULL DEFAULT (printf('%08x-%04x-7%03x-%04x-%04x%08x',
                     (strftime('%s', 'now') * 1000 + substr(strftime('%f', 'now'), 4)) >> 16,
                     (strftime('%s', 'now') * 1000 + substr(strftime('%f', 'now'), 4)) & 65535,
                     random() & 4095, random() & 16383 | 32768, random() & 65535, random() & 4294967295)),
    topic        TEXT    NOT NULL,
    shard        INTEGER NOT NULL GENERATED ALWAYS AS (CASE WHEN key IS NULL THEN seq & 15 ELSE
                     instr('123456789ABCDEF', substr(hex(substr(CAST(key AS BLOB), -2)), -1, 1))
                     + 7 * instr('123456789ABCDEF', substr(hex(substr(CAST(key AS BLOB), -2)), -3, 1)) & 15 END) STORED,
    created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    held_until   TEXT,
    parked_at    TEXT,
    published_at TEXT,
    error        TEXT,
    consumer     TEXT,
    tenant       TEXT,
    causation_id TEXT,
    key          TEXT,
    headers      TEXT    NOT NULL DEFAULT '{}',
    payload      TEXT,
    CONSTRAINT "a topic has 1 to 249 letters, digits, dots, underscores or dashes" CHECK (
        typeof(topic) = 'text' AND length(CAST(topic AS BLOB)) BETWEEN 1 AND 249
        AND length(topic) = length(CAST(topic AS BLOB))
        AND topic NOT GLOB '*[^a-zA-Z0-9._-]*' AND topic NOT IN ('.', '..')),
    CONSTRAINT "an id is a UUID in lower case" CHECK (
        id GLOB '????????-????-????-????-????????????' AND id NOT GLOB '*[^0-9a-f-]*'
        AND length(replace(id, '-', '')) = 32),
    CONSTRAINT "headers are a JSON object, or an array of pairs" CHECK (
        CASE WHEN typeof(headers) = 'text' AND json_valid(headers)
        THEN json_type(headers) IN ('object', 'array') ELSE 0 END)
);

-- What can be published now. Only few rows are in the other indexes at a time.
CREATE INDEX oncebox_outbox_ready ON oncebox_outbox (topic, shard, seq)
    WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NULL;

-- Held events by the time when they are due, and by key: a later event of the key has to wait for them.
CREATE INDEX oncebox_outbox_due ON oncebox_outbox (topic, shard, held_until, seq)
    WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NOT NULL;
CREATE INDEX oncebox_outbox_held ON oncebox_outbox (topic, CAST(key AS BLOB), seq, held_until)
    WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NOT NULL;

CREATE INDEX oncebox_outbox_parked ON oncebox_outbox (seq) WHERE parked_at IS NOT NULL;
CREATE INDEX oncebox_outbox_published ON oncebox_outbox (published_at) WHERE published_at IS NOT NULL;

-- The relays that are alive until `seen_until`, unless they are heard of again.
CREATE TABLE oncebox_relay (
    relay      TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    seen_until TEXT NOT NULL
) WITHOUT ROWID;

-- Who may publish the events of a shard. The epoch is raised each time a shard changes hands.
CREATE TABLE oncebox_shard (
    shard        INTEGER PRIMARY KEY,
    relay        TEXT,
    epoch        INTEGER NOT NULL DEFAULT 0,
    leased_until TEXT
);

INSERT INTO oncebox_shard (shard)
WITH RECURSIVE shards(shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM shards WHERE shard < 15)
SELECT shard FROM shards;

-- Rows of sweeps that became events, and until when they do not become events again.
CREATE TABLE oncebox_sweep (
    name         TEXT NOT NULL,
    row_key      TEXT NOT NULL,
    silent_until TEXT NOT NULL,
    PRIMARY KEY (name, row_key)
) WITHOUT ROWID;
