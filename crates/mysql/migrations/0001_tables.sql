-- Which consumer has applied which message. The key stands for (consumer, tenant, message_id): see oncebox_claim. The copies
-- that came after the first one are counted: that is how a claim tells a fresh receipt from one that was there.
-- There is no index on processed_at: it would cost every message, and purge walks the table by its key.
CREATE TABLE IF NOT EXISTS oncebox_inbox (
    `key` BINARY(16) NOT NULL,
    processed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    copies INT UNSIGNED NOT NULL DEFAULT 0,
    consumer VARCHAR(200) NOT NULL,
    tenant VARCHAR(256) NOT NULL DEFAULT '',
    message_id VARCHAR(512) NOT NULL,
    PRIMARY KEY (`key`)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How far each partition is, and who may move it: which log the position belongs to, the last settled record that it is
-- recognised by, where an operator has moved it to, up to when everything that the log held is settled, and how many
-- transactions have advanced it.
CREATE TABLE IF NOT EXISTS oncebox_position (
    consumer VARCHAR(200) NOT NULL,
    topic VARCHAR(255) NOT NULL,
    `partition` INT NOT NULL,
    next_offset BIGINT,
    epoch BIGINT NOT NULL,
    starts INT NOT NULL DEFAULT 0,
    applied BIGINT NOT NULL DEFAULT 0,
    duplicates BIGINT NOT NULL DEFAULT 0,
    updated_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    log VARCHAR(191),
    mark_offset BIGINT,
    mark_digest BIGINT,
    floor BIGINT,
    caught_up_at DATETIME(6),
    retired_at DATETIME(6),
    commits BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, topic, `partition`)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that run one at a time, because an earlier owner of their partition died. Written before they run.
CREATE TABLE IF NOT EXISTS oncebox_attempt (
    consumer VARCHAR(200) NOT NULL,
    topic VARCHAR(255) NOT NULL,
    `partition` INT NOT NULL,
    `offset` BIGINT NOT NULL,
    attempts INT NOT NULL,
    PRIMARY KEY (consumer, topic, `partition`, `offset`)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages that were given up, whole. message_id is '' when the message had none. headers is an array of [name, value];
-- text and not JSON, because it must hold whatever was sent. log is '' when it is not known.
CREATE TABLE IF NOT EXISTS oncebox_dead (
    number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer VARCHAR(200) NOT NULL,
    tenant VARCHAR(256) NOT NULL DEFAULT '',
    message_id VARCHAR(512) NOT NULL DEFAULT '',
    topic VARCHAR(255) NOT NULL,
    `partition` INT NOT NULL,
    `offset` BIGINT NOT NULL,
    log VARCHAR(191) NOT NULL DEFAULT '',
    `key` LONGBLOB,
    payload LONGBLOB,
    headers LONGTEXT NOT NULL,
    timestamp_ms BIGINT,
    error TEXT NOT NULL,
    attempts INT NOT NULL,
    failed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- A hash, because a key may be longer than an index entry.
    key_hash BINARY(32) AS (UNHEX(SHA2(`key`, 256))) STORED,
    -- Two copies of a message without an id are one letter. NULL is like no other NULL, so the rest may be as often as it is.
    without_id TINYINT AS (IF(message_id = '', 1, NULL)) STORED,
    KEY oncebox_dead_by_id (consumer, message_id),
    KEY oncebox_dead_by_key (consumer, topic, `partition`, key_hash),
    UNIQUE KEY oncebox_dead_without_id (consumer, topic, `partition`, `offset`, log, without_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Receipts older than this are gone. Written before the first of them is.
CREATE TABLE IF NOT EXISTS oncebox_horizon (
    consumer VARCHAR(200) NOT NULL PRIMARY KEY,
    purged_before DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who purges, until when, which key the next step begins after, and how many receipts lie before it. One row.
CREATE TABLE IF NOT EXISTS oncebox_purge (
    only_row TINYINT NOT NULL DEFAULT 1 PRIMARY KEY,
    owner BINARY(16),
    leased_until DATETIME(6),
    at_key VARBINARY(2048),
    done BIGINT NOT NULL DEFAULT 0,
    CONSTRAINT oncebox_purge_one_row CHECK (only_row = 1)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO oncebox_purge (only_row) VALUES (1) ON DUPLICATE KEY UPDATE only_row = 1;
