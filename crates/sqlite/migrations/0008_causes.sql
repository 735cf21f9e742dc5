-- Why duplicates came. settled_to: one past the highest offset of the log that was ever settled, by whichever lane. rewound_to: below
-- it records come again because somebody has moved the position, or the broker's offset, back. The counters are those of the
-- duplicates whose cause is known.
ALTER TABLE oncebox_position ADD COLUMN settled_to INTEGER;
ALTER TABLE oncebox_position ADD COLUMN rewound_to INTEGER;
ALTER TABLE oncebox_position ADD COLUMN redelivered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE oncebox_position ADD COLUMN rewound INTEGER NOT NULL DEFAULT 0;
ALTER TABLE oncebox_position ADD COLUMN published_twice INTEGER NOT NULL DEFAULT 0;
