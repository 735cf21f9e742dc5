-- An event is not published before deliver_at (UTC). Until then the relay holds it, and with it the later events of its key.
--
-- waiting_since says since when a held event could have been published. Those that wait behind another are as old as that one.
-- MySQL computes it for the first time when created_at has not got its default yet and is a date of zeros, which it refuses.
--
-- MySQL cannot add a column only where it is missing, and a step that was interrupted is run again.
SET @oncebox_step = IF(
    (SELECT COUNT(*) FROM information_schema.columns
     WHERE table_schema = DATABASE() AND table_name = 'oncebox_outbox' AND column_name = 'deliver_at') > 0, 'DO 0',
    'ALTER TABLE oncebox_outbox ADD COLUMN deliver_at DATETIME(6),
        ADD COLUMN waiting_since DATETIME(6) AS (IF(held_until < TIMESTAMP''9999-12-31 23:59:59.999999'',
            IF(deliver_at > created_at, deliver_at,
                IF(created_at > TIMESTAMP''1000-01-01 00:00:00'', created_at, NULL)), NULL)) STORED,
        ADD KEY oncebox_outbox_since (waiting_since)');
PREPARE oncebox_step FROM @oncebox_step;
EXECUTE oncebox_step;
DEALLOCATE PREPARE oncebox_step;
SET @oncebox_step = NULL;

-- Writes an event into the outbox, in the caller's transaction, to be published at deliver_at (UTC), or at once if that is NULL.
-- NULL as the payload is a tombstone; NULL as the headers is none. The variables @oncebox_consumer, @oncebox_tenant,
-- @oncebox_causation_id, @oncebox_correlation_id and @oncebox_traceparent say what it follows from. They last as long as the
-- session: who sets them sets them to NULL again.
DROP PROCEDURE IF EXISTS oncebox_emit_bytes_at;
DELIMITER //
CREATE PROCEDURE oncebox_emit_bytes_at(
    IN topic LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN `key` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN payload LONGBLOB,
    IN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN deliver_at DATETIME(6),
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
    IF @oncebox_correlation_id <> '' THEN
        CALL oncebox_with_header(ob_headers_, 'correlation-id', @oncebox_correlation_id);
    END IF;
    INSERT INTO oncebox_outbox (topic, `key`, payload, headers, deliver_at, consumer, tenant, causation_id)
    VALUES (topic, CAST(`key` AS BINARY), payload, ob_headers_, deliver_at, NULLIF(@oncebox_consumer, ''),
        IF(ob_cause_ IS NULL, NULLIF(ob_tenant_, ''), COALESCE(ob_tenant_, '')), ob_cause_);
    SELECT o.id INTO id FROM oncebox_outbox AS o WHERE o.seq = LAST_INSERT_ID();
    DO LAST_INSERT_ID(ob_last_);
END //
DELIMITER ;

-- The same with JSON, whose text is kept as it is.
DROP PROCEDURE IF EXISTS oncebox_emit_at;
DELIMITER //
CREATE PROCEDURE oncebox_emit_at(
    IN topic LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN `key` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN deliver_at DATETIME(6),
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
    CALL oncebox_emit_bytes_at(topic, `key`, CAST(payload AS BINARY), ob_headers_, deliver_at, id);
END //
DELIMITER ;

-- The same, to be published at once.
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
    CALL oncebox_emit_bytes_at(topic, `key`, payload, headers, NULL, id);
END //
DELIMITER ;

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
    CALL oncebox_emit_at(topic, `key`, payload, headers, NULL, id);
END //
DELIMITER ;
