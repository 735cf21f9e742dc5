-- Which consumer has applied which message. The key stands for (consumer, tenant, message_id): see oncebox_receipt_key.
-- There is no index on processed_at: it would cost every message, and purge reads the table in its physical order.
CREATE TABLE oncebox_inbox (
    key uuid NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    consumer text NOT NULL,
    tenant text NOT NULL DEFAULT '',
    message_id text NOT NULL,
    PRIMARY KEY (key)
) WITH (
    -- Purge makes dead rows in bounded steps; the space must come back before the next pass, however large the table is.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05
);

-- How far each partition is, and who may move it. Half of each page stays free so that every update is a HOT update.
CREATE TABLE oncebox_position (
    consumer text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    next_offset bigint,
    epoch bigint NOT NULL,
    starts integer NOT NULL DEFAULT 0,
    applied bigint NOT NULL DEFAULT 0,
    duplicates bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

-- Messages that run one at a time, because an earlier owner of their partition died. Written before they run.
CREATE TABLE oncebox_attempt (
    consumer text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    attempts integer NOT NULL,
    PRIMARY KEY (consumer, topic, partition, "offset")
);

-- Messages that were given up, whole. message_id is '' when the message had none. headers is an array of [name, value];
-- json and not jsonb, because it must hold whatever was sent.
CREATE TABLE oncebox_dead (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer text NOT NULL,
    tenant text NOT NULL DEFAULT '',
    message_id text NOT NULL DEFAULT '',
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    key bytea,
    payload bytea,
    headers json NOT NULL,
    timestamp_ms bigint,
    error text NOT NULL,
    attempts integer NOT NULL,
    failed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX oncebox_dead_by_id ON oncebox_dead (consumer, message_id);
-- A hash, because a key may be longer than an index entry.
CREATE INDEX oncebox_dead_by_key ON oncebox_dead (consumer, topic, partition, sha256(key));
CREATE UNIQUE INDEX oncebox_dead_without_id ON oncebox_dead (consumer, topic, partition, "offset") WHERE message_id = '';

-- Receipts older than this are gone. Written before the first of them is.
CREATE TABLE oncebox_horizon (
    consumer text PRIMARY KEY,
    purged_before timestamptz NOT NULL
);
