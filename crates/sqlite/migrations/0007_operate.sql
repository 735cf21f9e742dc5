-- Dead letters whose errors read alike have the same group. It is NULL where a letter was written by an oncebox that knew none, until
-- a newer one looks at it. A letter that an operator has changed keeps what arrived beside it; edits says how often that was.
ALTER TABLE oncebox_dead ADD COLUMN error_group TEXT;
ALTER TABLE oncebox_dead ADD COLUMN edits INTEGER;
ALTER TABLE oncebox_dead ADD COLUMN edited_at TEXT;
ALTER TABLE oncebox_dead ADD COLUMN edited_by TEXT;
ALTER TABLE oncebox_dead ADD COLUMN original_key BLOB;
ALTER TABLE oncebox_dead ADD COLUMN original_headers TEXT;
ALTER TABLE oncebox_dead ADD COLUMN original_payload BLOB;
CREATE INDEX oncebox_dead_by_group ON oncebox_dead (error_group, number);

-- How many dead letters of a consumer were replayed.
CREATE TABLE oncebox_replayed (
    consumer TEXT    NOT NULL PRIMARY KEY,
    replayed INTEGER NOT NULL
) WITHOUT ROWID;

-- What operators have done through oncebox. `ended_at` is NULL while it is being done, or if its process has died.
CREATE TABLE oncebox_audit (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    ended_at   TEXT,
    who        TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    consumer   TEXT,
    parameters TEXT    NOT NULL,
    result     TEXT,
    error      TEXT
);
CREATE INDEX oncebox_audit_by_time ON oncebox_audit (at);
