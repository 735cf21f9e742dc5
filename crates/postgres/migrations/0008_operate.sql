-- Dead letters whose errors read alike have the same group. It is NULL where a letter was written by an oncebox that knew none, until
-- a newer one looks at it. A letter that an operator has changed keeps what arrived beside it; edits says how often that was. No row
-- is rewritten.
ALTER TABLE oncebox_dead
    ADD COLUMN error_group text COLLATE "C",
    ADD COLUMN edits integer,
    ADD COLUMN edited_at timestamptz,
    ADD COLUMN edited_by text,
    ADD COLUMN original_key bytea,
    ADD COLUMN original_payload bytea,
    ADD COLUMN original_headers json;
CREATE INDEX oncebox_dead_by_group ON oncebox_dead (error_group, number);

-- How many dead letters of a consumer were replayed.
CREATE TABLE oncebox_replayed (
    consumer text PRIMARY KEY,
    replayed bigint NOT NULL
) WITH (fillfactor = 50);

-- What operators have done through oncebox. ended_at is NULL while it is being done, or if its process has died.
CREATE TABLE oncebox_audit (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    who text NOT NULL,
    action text NOT NULL,
    consumer text,
    parameters json NOT NULL,
    result json,
    error text
);
CREATE INDEX oncebox_audit_by_time ON oncebox_audit (at);
