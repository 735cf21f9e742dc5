-- An event is not published before `deliver_at`: UTC, in any form that SQLite reads as a time. Until then the relay holds it, and
-- with it the later events of its key.
ALTER TABLE oncebox_outbox ADD COLUMN deliver_at TEXT
    CONSTRAINT "deliver_at is a time" CHECK (deliver_at IS NULL OR unixepoch(deliver_at) IS NOT NULL);

-- Since when a held event could have been published. Those that wait behind another are as old as that one.
CREATE INDEX oncebox_outbox_since ON oncebox_outbox (
    max(unixepoch(coalesce(deliver_at, created_at), 'subsec'), unixepoch(created_at, 'subsec')))
    WHERE published_at IS NULL AND parked_at IS NULL AND held_until < '9999-12-31T23:59:59.999Z';
