-- Consumers that an operator has paused: no process begins anything for them until they are resumed.
CREATE TABLE oncebox_paused (
    consumer text PRIMARY KEY,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_by text NOT NULL,
    reason text
);
