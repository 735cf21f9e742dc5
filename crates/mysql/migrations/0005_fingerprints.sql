-- What the payload was, in sixteen bytes of its SHA-256, where copies are compared with it; NULL where they are not. Without an
-- algorithm the server takes the one that rewrites no row, where it can.
--
-- MySQL cannot add a column only where it is missing, and a step that was interrupted is run again.
SET @oncebox_step = IF(
    (SELECT COUNT(*) FROM information_schema.columns
     WHERE table_schema = DATABASE() AND table_name = 'oncebox_inbox' AND column_name = 'fingerprint') > 0, 'DO 0',
    'ALTER TABLE oncebox_inbox ADD COLUMN fingerprint BINARY(16)');
PREPARE oncebox_step FROM @oncebox_step;
EXECUTE oncebox_step;
DEALLOCATE PREPARE oncebox_step;
SET @oncebox_step = NULL;
