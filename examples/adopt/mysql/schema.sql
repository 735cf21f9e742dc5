-- An inbox on MySQL or MariaDB, as services in PHP, Java and Node have it:
--
--     START TRANSACTION;
--     INSERT IGNORE INTO inbox_messages (message_id) VALUES (?);
--     -- one row: apply the message; none: skip it
--     COMMIT;
--
-- The column compares ids as its collation does. Two ids that differ only in their case are one for the table; for oncebox
-- they are two, and the second becomes a dead letter that says so.
CREATE TABLE inbox_messages (
    message_id   VARCHAR(100) NOT NULL PRIMARY KEY,
    processed_at TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE IF NOT EXISTS stock (sku VARCHAR(100) PRIMARY KEY, on_hand BIGINT NOT NULL);
