-- Why duplicates came. settled_to: one past the highest offset of the log that was ever settled, by whichever lane. rewound_to: below
-- it records come again because somebody has moved the position, or the broker's offset, back. The counters are those of the
-- duplicates whose cause is known. None of these is indexed, so updates stay HOT updates.
ALTER TABLE oncebox_position
    ADD COLUMN settled_to bigint,
    ADD COLUMN rewound_to bigint,
    ADD COLUMN redelivered bigint NOT NULL DEFAULT 0,
    ADD COLUMN rewound bigint NOT NULL DEFAULT 0,
    ADD COLUMN published_twice bigint NOT NULL DEFAULT 0;

-- As before, with what is known about duplicates. The one with fewer parameters stays for processes of an older oncebox that run
-- while the tables are brought up to date.
CREATE FUNCTION oncebox_advance(
    consumer text, topic text, partition integer, epoch bigint, at_least bigint,
    next_offset bigint, log text, mark_offset bigint, mark_digest bigint, caught_up_ms bigint,
    applied bigint, duplicates bigint, commits bigint,
    settled_to bigint, rewound_to bigint, redelivered bigint, rewound bigint, published_twice bigint
) RETURNS void
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    PERFORM oncebox_still_open();
    UPDATE oncebox_position SET
        commits = commits + CASE WHEN $11 IS NULL THEN 0 ELSE 1 END,
        next_offset = GREATEST(next_offset, $6),
        log = COALESCE($7, log),
        mark_offset = GREATEST(mark_offset, $8),
        mark_digest = CASE WHEN $8 < mark_offset OR $8 IS NULL THEN mark_digest ELSE $9 END,
        caught_up_at = CASE WHEN $10 IS NULL THEN caught_up_at ELSE GREATEST(caught_up_at, timestamptz 'epoch'
            + GREATEST(LEAST($10, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 0)
            * interval '1 millisecond') END,
        retired_at = CASE WHEN $11 IS NULL THEN retired_at END,
        starts = CASE WHEN $11 IS NOT NULL AND $6 > COALESCE(next_offset, -1) THEN 0 ELSE starts END,
        applied = applied + COALESCE($11, 0),
        duplicates = duplicates + COALESCE($12, 0),
        updated_at = CASE WHEN $11 IS NULL THEN updated_at ELSE clock_timestamp() END,
        settled_to = GREATEST(settled_to, $14),
        rewound_to = GREATEST(rewound_to, $15),
        redelivered = redelivered + COALESCE($16, 0),
        rewound = rewound + COALESCE($17, 0),
        published_twice = published_twice + COALESCE($18, 0)
    WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4
        AND ($5 IS NULL OR next_offset >= $5) AND ($13 IS NULL OR commits >= $13);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process has taken over % %/%, or the database has gone back to an older state', $1, $2, $3
            USING ERRCODE = 'OBX01';
    END IF;
END
$body$;
