-- What the payload was, in sixteen bytes of its SHA-256, where copies are compared with it; NULL where they are not. No row is
-- rewritten.
ALTER TABLE oncebox_inbox ADD COLUMN fingerprint uuid;
