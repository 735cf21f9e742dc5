-- Why duplicates came. settled_to: one past the highest offset of the log that was ever settled, by whichever lane. rewound_to: below
-- it records come again because somebody has moved the position, or the broker's offset, back. The counters are those of the
-- duplicates whose cause is known.
--
-- MySQL cannot add a column only where it is missing, and a step that was interrupted is run again.
SET @oncebox_step = IF(
    (SELECT COUNT(*) FROM information_schema.columns
     WHERE table_schema = DATABASE() AND table_name = 'oncebox_position' AND column_name = 'settled_to') > 0, 'DO 0',
    'ALTER TABLE oncebox_position ADD COLUMN settled_to BIGINT,
        ADD COLUMN rewound_to BIGINT,
        ADD COLUMN redelivered BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN rewound BIGINT NOT NULL DEFAULT 0,
        ADD COLUMN published_twice BIGINT NOT NULL DEFAULT 0');
PREPARE oncebox_step FROM @oncebox_step;
EXECUTE oncebox_step;
DEALLOCATE PREPARE oncebox_step;
SET @oncebox_step = NULL;
