-- Consumers that an operator has paused: no process begins anything for them until they are resumed.
CREATE TABLE IF NOT EXISTS oncebox_paused (
    consumer VARCHAR(200) NOT NULL PRIMARY KEY,
    paused_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    paused_by VARCHAR(500) NOT NULL,
    reason VARCHAR(500)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
