-- Events on their way out. Any program may write them, in its own transaction:
--
--     INSERT INTO oncebox_outbox (topic, `key`, payload) VALUES ('stock.changed', 'A-1', JSON_OBJECT('qty', 2));
--
-- `id` is a UUIDv7 by default, in lower case. `key` and `payload` are bytes, and no payload is a tombstone. `headers` is a JSON
-- object of texts, or an array of [name, value] where a name repeats; text and not JSON, because it must stay as it was written.
--
-- A row is pending until it is removed, or published_at or parked_at is set; both also clear held_until. Of the held rows of a
-- key the first one has a time, and those behind it wait until the end of all times: so a key with a million events behind a
-- failing one costs no more than a key with two.
--
-- The generated columns stand for partial indexes: they are NULL where a row does not belong into the index, and all such rows
-- lie together where nobody looks. They are stored, so that no thread of the server has to compute them later.
CREATE TABLE IF NOT EXISTS oncebox_outbox (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT (LOWER(CONCAT(
        LPAD(HEX(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 65536000), 8, '0'), '-',
        LPAD(HEX(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000 & 65535), 4, '0'), '-7',
        SUBSTR(SHA2(CONCAT(UUID(), RAND()), 256), 1, 3), '-',
        HEX(8 + FLOOR(RAND() * 4)), SUBSTR(SHA2(CONCAT(UUID(), RAND()), 256), 1, 3), '-',
        SUBSTR(SHA2(CONCAT(UUID(), RAND()), 256), 1, 12)))),
    topic VARCHAR(249) NOT NULL,
    `key` MEDIUMBLOB,
    payload LONGBLOB,
    headers LONGTEXT NOT NULL DEFAULT ('{}'),
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    consumer VARCHAR(200),
    tenant VARCHAR(256),
    causation_id VARCHAR(512),
    attempts INT NOT NULL DEFAULT 0,
    error TEXT,
    held_until DATETIME(6),
    parked_at DATETIME(6),
    published_at DATETIME(6),
    -- Who publishes it: see oncebox_shard. Rows without a key need no order and are spread.
    shard TINYINT AS (ORD(UNHEX(SHA2(COALESCE(`key`, id), 256))) & 15) STORED,
    -- So that a batch can be bounded without reading what does not fit.
    bytes BIGINT AS (COALESCE(OCTET_LENGTH(`key`), 0) + COALESCE(OCTET_LENGTH(payload), 0) + OCTET_LENGTH(headers)) STORED,
    ready_shard TINYINT AS (IF(published_at IS NULL AND parked_at IS NULL AND held_until IS NULL, shard, NULL)) STORED,
    held_shard TINYINT AS (IF(held_until IS NULL, NULL, shard)) STORED,
    -- A hash, because a key may be longer than an index entry.
    held_key BINARY(32) AS (IF(held_until IS NULL, NULL, UNHEX(SHA2(CONCAT(CAST(topic AS BINARY), 0x00, `key`), 256)))) STORED,
    KEY oncebox_outbox_ready (ready_shard, topic, seq),
    KEY oncebox_outbox_due (held_shard, topic, held_until),
    KEY oncebox_outbox_held (held_key, seq),
    KEY oncebox_outbox_parked (parked_at),
    KEY oncebox_outbox_published (published_at),
    CONSTRAINT `a topic has letters, digits, dots, underscores or dashes` CHECK (
        topic <> '' AND NOT topic REGEXP '[^A-Za-z0-9._-]' AND topic NOT IN ('.', '..')),
    CONSTRAINT `an id is a UUID in lower case` CHECK (
        id REGEXP '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The relays that were heard of.
CREATE TABLE IF NOT EXISTS oncebox_relay (
    relay BINARY(16) NOT NULL PRIMARY KEY,
    name VARCHAR(255) NOT NULL,
    seen_until DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which relay publishes which shard, and since which epoch.
CREATE TABLE IF NOT EXISTS oncebox_shard (
    shard TINYINT NOT NULL PRIMARY KEY,
    relay BINARY(16),
    epoch BIGINT NOT NULL DEFAULT 0,
    leased_until DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO oncebox_shard (shard) VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)
    ON DUPLICATE KEY UPDATE epoch = epoch;

-- Which rows of a sweep became events, and when they may again. The hash is of row_key, which may be longer than an index
-- entry; the row without one is what two processes with the same sweep wait for.
CREATE TABLE IF NOT EXISTS oncebox_sweep (
    name VARCHAR(255) NOT NULL,
    row_hash VARBINARY(32) NOT NULL,
    row_key LONGTEXT NOT NULL,
    quiet_until DATETIME(6) NOT NULL,
    PRIMARY KEY (name, row_hash),
    KEY oncebox_sweep_over (quiet_until)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Refuses headers that are neither a JSON object of texts nor an array of [name, text].
DROP PROCEDURE IF EXISTS oncebox_check_headers;
DELIMITER //
CREATE PROCEDURE oncebox_check_headers(
    IN topic LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
)
SQL SECURITY INVOKER
BEGIN
    DECLARE ob_kind_ VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT '';
    DECLARE ob_wrong_ INT DEFAULT 1;
    DECLARE ob_text_ VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    IF OCTET_LENGTH(headers) > 262144 THEN
        SET ob_text_ = LEFT(CONCAT('the headers of an event to ', topic, ' have ', OCTET_LENGTH(headers),
            ' bytes, more than 262144'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = ob_text_;
    END IF;
    IF JSON_VALID(headers) THEN
        SET ob_kind_ = JSON_TYPE(headers);
    END IF;
    IF ob_kind_ = 'OBJECT' THEN
        SELECT COUNT(*) INTO ob_wrong_ FROM JSON_TABLE(COALESCE(JSON_EXTRACT(headers, '$.*'), '[]'), '$[*]'
            COLUMNS (v JSON PATH '$')) AS j
        WHERE JSON_TYPE(j.v) = 'ARRAY' OR (JSON_TYPE(j.v) = 'OBJECT' AND NOT JSON_CONTAINS_PATH(j.v, 'one', '$.base64'));
    ELSEIF ob_kind_ = 'ARRAY' THEN
        SELECT COUNT(*) INTO ob_wrong_ FROM JSON_TABLE(headers, '$[*]' COLUMNS (v JSON PATH '$')) AS j
        WHERE NOT COALESCE(JSON_TYPE(j.v) = 'ARRAY' AND JSON_LENGTH(j.v) = 2 AND JSON_TYPE(JSON_EXTRACT(j.v, '$[0]')) = 'STRING'
            AND (JSON_TYPE(JSON_EXTRACT(j.v, '$[1]')) IN ('STRING', 'NULL') OR JSON_CONTAINS_PATH(j.v, 'one', '$[1].base64')),
            FALSE);
    END IF;
    IF ob_wrong_ > 0 THEN
        SET ob_text_ = LEFT(CONCAT('the headers of an event to ', COALESCE(topic, 'NULL'),
            ' must be a JSON object of texts, or an array of [name, text]'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = ob_text_;
    END IF;
END //
DELIMITER ;

-- Adds a header, unless there is one of that name. The text of the others stays as it is.
DROP PROCEDURE IF EXISTS oncebox_with_header;
DELIMITER //
CREATE PROCEDURE oncebox_with_header(
    INOUT headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
)
SQL SECURITY INVOKER
BEGIN
    DECLARE ob_there_ INT;
    DECLARE ob_comma_ VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT IF(JSON_LENGTH(headers) = 0, '', ',');
    IF JSON_TYPE(headers) = 'OBJECT' THEN
        IF NOT JSON_CONTAINS_PATH(headers, 'one', CONCAT('$."', name, '"')) THEN
            SET headers = CONCAT('{', JSON_QUOTE(name), ':', JSON_QUOTE(value), ob_comma_,
                SUBSTR(headers, LOCATE('{', headers) + 1));
        END IF;
    ELSE
        SELECT COUNT(*) INTO ob_there_ FROM JSON_TABLE(headers, '$[*]' COLUMNS (
            header VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]')) AS j
        WHERE CAST(j.header AS BINARY) = CAST(name AS BINARY);
        IF ob_there_ = 0 THEN
            SET headers = CONCAT('[[', JSON_QUOTE(name), ',', JSON_QUOTE(value), ']', ob_comma_,
                SUBSTR(headers, LOCATE('[', headers) + 1));
        END IF;
    END IF;
END //
DELIMITER ;

-- Writes an event into the outbox, in the caller's transaction. NULL as the payload is a tombstone; NULL as the headers is
-- none. The variables @oncebox_consumer, @oncebox_tenant, @oncebox_causation_id and @oncebox_traceparent say what it follows
-- from. They last as long as the session: who sets them sets them to NULL again.
DROP PROCEDURE IF EXISTS oncebox_emit_bytes;
DELIMITER //
CREATE PROCEDURE oncebox_emit_bytes(
    IN topic LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN `key` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN payload LONGBLOB,
    IN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin
)
SQL SECURITY INVOKER
BEGIN
    DECLARE ob_headers_ LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT COALESCE(headers, '{}');
    DECLARE ob_cause_ VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULLIF(@oncebox_causation_id, '');
    DECLARE ob_tenant_ VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT @oncebox_tenant;
    DECLARE ob_text_ VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    -- The caller may still want to know what his last statement was given.
    DECLARE ob_last_ BIGINT UNSIGNED DEFAULT LAST_INSERT_ID();
    SET id = NULL;
    IF topic IS NULL OR OCTET_LENGTH(topic) NOT BETWEEN 1 AND 249 OR topic REGEXP '[^A-Za-z0-9._-]' OR topic IN ('.', '..') THEN
        SET ob_text_ = CONCAT(COALESCE(QUOTE(LEFT(topic, 40)), 'NULL'),
            ' is not a topic: 1 to 249 letters, digits, dots, underscores or dashes');
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = ob_text_;
    END IF;
    IF OCTET_LENGTH(`key`) > 65536 THEN
        SET ob_text_ = LEFT(CONCAT('the key of an event to ', topic, ' has ', OCTET_LENGTH(`key`), ' bytes, more than 65536'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = ob_text_;
    END IF;
    IF OCTET_LENGTH(payload) > 67108864 THEN
        SET ob_text_ = LEFT(CONCAT('the payload of an event to ', topic, ' has ', OCTET_LENGTH(payload),
            ' bytes, more than 67108864'), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = ob_text_;
    END IF;
    IF ob_headers_ <> '{}' THEN
        CALL oncebox_check_headers(topic, ob_headers_);
    END IF;
    IF @oncebox_traceparent <> '' THEN
        CALL oncebox_with_header(ob_headers_, 'traceparent', @oncebox_traceparent);
    END IF;
    INSERT INTO oncebox_outbox (topic, `key`, payload, headers, consumer, tenant, causation_id)
    VALUES (topic, CAST(`key` AS BINARY), payload, ob_headers_, NULLIF(@oncebox_consumer, ''),
        IF(ob_cause_ IS NULL, NULLIF(ob_tenant_, ''), COALESCE(ob_tenant_, '')), ob_cause_);
    SELECT o.id INTO id FROM oncebox_outbox AS o WHERE o.seq = LAST_INSERT_ID();
    DO LAST_INSERT_ID(ob_last_);
END //
DELIMITER ;

-- The same with JSON, whose text is kept as it is.
DROP PROCEDURE IF EXISTS oncebox_emit;
DELIMITER //
CREATE PROCEDURE oncebox_emit(
    IN topic LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN `key` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT id VARCHAR(36) CHARACTER SET ascii COLLATE ascii_bin
)
SQL SECURITY INVOKER
BEGIN
    DECLARE ob_headers_ LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT COALESCE(headers, '{}');
    DECLARE ob_text_ VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    IF payload IS NOT NULL THEN
        IF NOT JSON_VALID(payload) THEN
            SET ob_text_ = LEFT(CONCAT('the payload of an event to ', COALESCE(topic, 'NULL'),
                ' is not JSON: oncebox_emit_bytes takes any bytes'), 128);
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = ob_text_;
        END IF;
        IF ob_headers_ = '{}' THEN
            SET ob_headers_ = '{"content-type":"application/json"}';
        ELSE
            CALL oncebox_check_headers(topic, ob_headers_);
            CALL oncebox_with_header(ob_headers_, 'content-type', 'application/json');
        END IF;
    END IF;
    CALL oncebox_emit_bytes(topic, `key`, CAST(payload AS BINARY), ob_headers_, id);
END //
DELIMITER ;
