-- Writes the receipt of a message inside the caller's transaction. fresh = 1: apply it and commit. fresh = 0: it was applied
-- before. A concurrent copy waits until the other transaction has ended. A receipt that belongs to another message is an
-- error: nobody meets that by accident.
--
-- The key of a receipt: SHA-256 over the lengths and bytes of consumer and tenant and the bytes of the id. An id in the
-- canonical form of UUIDv7 gives the key its leading 48 bits; every other key has the top bit set.
DROP PROCEDURE IF EXISTS oncebox_claim;
DELIMITER //
CREATE PROCEDURE oncebox_claim(
    IN consumer VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN message_id VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN tenant VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT fresh BOOLEAN
)
SQL SECURITY INVOKER
BEGIN
    DECLARE ob_tenant_ VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT COALESCE(tenant, '');
    DECLARE ob_hash_ VARBINARY(32);
    DECLARE ob_key_ BINARY(16);
    DECLARE ob_same_ INT;
    SET fresh = NULL;
    IF consumer IS NULL OR OCTET_LENGTH(consumer) NOT BETWEEN 1 AND 200 OR consumer REGEXP '[^A-Za-z0-9._-]' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a consumer is 1 to 200 letters, digits, dots, underscores or dashes';
    END IF;
    IF message_id IS NULL OR OCTET_LENGTH(message_id) NOT BETWEEN 1 AND 512 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a message id has 1 to 512 bytes';
    END IF;
    IF OCTET_LENGTH(ob_tenant_) > 256 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a tenant has at most 256 bytes, \'\' if there is none';
    END IF;
    SET ob_hash_ = UNHEX(SHA2(CONCAT(
        UNHEX(LPAD(HEX(OCTET_LENGTH(consumer)), 8, '0')), CAST(consumer AS BINARY),
        UNHEX(LPAD(HEX(OCTET_LENGTH(ob_tenant_)), 8, '0')), CAST(ob_tenant_ AS BINARY),
        CAST(message_id AS BINARY)), 256));
    -- With its length, because `$` also stands before the end of a line.
    IF OCTET_LENGTH(message_id) = 36
        AND message_id REGEXP '^[0-7][0-9a-f]{7}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' THEN
        SET ob_key_ = CONCAT(UNHEX(CONCAT(SUBSTR(message_id, 1, 8), SUBSTR(message_id, 10, 4))), SUBSTR(ob_hash_, 1, 10));
    ELSE
        SET ob_key_ = CONCAT(UNHEX(HEX(ORD(SUBSTR(ob_hash_, 1, 1)) | 128)), SUBSTR(ob_hash_, 2, 15));
    END IF;
    INSERT INTO oncebox_inbox (`key`, consumer, tenant, message_id) VALUES (ob_key_, consumer, ob_tenant_, message_id)
        ON DUPLICATE KEY UPDATE copies = copies + 1;
    -- One row was written, or one was changed, which counts as two.
    IF ROW_COUNT() = 1 THEN
        SET fresh = TRUE;
    ELSE
        SELECT COUNT(*) INTO ob_same_ FROM oncebox_inbox AS i WHERE i.`key` = ob_key_
            AND CAST(i.consumer AS BINARY) = CAST(consumer AS BINARY)
            AND CAST(i.tenant AS BINARY) = CAST(ob_tenant_ AS BINARY)
            AND CAST(i.message_id AS BINARY) = CAST(message_id AS BINARY);
        IF ob_same_ = 0 THEN
            SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31004, MESSAGE_TEXT =
                'the message was not applied, but its receipt belongs to another message: look at who sends such ids';
        END IF;
        SET fresh = FALSE;
    END IF;
END //
DELIMITER ;
