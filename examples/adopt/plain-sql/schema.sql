-- The inbox pattern as it stands in many articles, on PostgreSQL:
--
--     BEGIN;
--     INSERT INTO inbox (event_id) VALUES ($1) ON CONFLICT DO NOTHING;
--     -- one row: apply the message; none: skip it
--     COMMIT;
CREATE TABLE inbox (
    event_id     UUID        PRIMARY KEY,
    processed_at TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, on_hand BIGINT NOT NULL);
