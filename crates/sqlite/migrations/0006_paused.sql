-- Consumers that an operator has paused: no process begins anything for them until they are resumed.
CREATE TABLE oncebox_paused (
    consumer  TEXT NOT NULL PRIMARY KEY,
    paused_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    paused_by TEXT NOT NULL,
    reason    TEXT
) WITHOUT ROWID;
