-- Dead letters whose errors read alike have the same group. It is NULL where a letter was written by an oncebox that knew none, until
-- a newer one looks at it. A letter that an operator has changed keeps what arrived beside it; edits says how often that was.
--
-- MySQL cannot add a column only where it is missing, and a step that was interrupted is run again.
SET @oncebox_step = IF(
    (SELECT COUNT(*) FROM information_schema.columns
     WHERE table_schema = DATABASE() AND table_name = 'oncebox_dead' AND column_name = 'error_group') > 0, 'DO 0',
    'ALTER TABLE oncebox_dead ADD COLUMN error_group VARCHAR(16),
        ADD COLUMN edits INT,
        ADD COLUMN edited_at DATETIME(6),
        ADD COLUMN edited_by VARCHAR(500),
        ADD COLUMN original_key LONGBLOB,
        ADD COLUMN original_payload LONGBLOB,
        ADD COLUMN original_headers LONGTEXT,
        ADD KEY oncebox_dead_by_group (error_group, number)');
PREPARE oncebox_step FROM @oncebox_step;
EXECUTE oncebox_step;
DEALLOCATE PREPARE oncebox_step;
SET @oncebox_step = NULL;

-- How many dead letters of a consumer were replayed.
CREATE TABLE IF NOT EXISTS oncebox_replayed (
    consumer VARCHAR(200) NOT NULL PRIMARY KEY,
    replayed BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What operators have done through oncebox. ended_at is NULL while it is being done, or if its process has died.
CREATE TABLE IF NOT EXISTS oncebox_audit (
    number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `at` DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    ended_at DATETIME(6),
    who VARCHAR(500) NOT NULL,
    action VARCHAR(200) NOT NULL,
    consumer VARCHAR(200),
    parameters LONGTEXT NOT NULL,
    result LONGTEXT,
    error TEXT,
    KEY oncebox_audit_by_time (`at`)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
