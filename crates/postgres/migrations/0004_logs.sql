-- Which log a position belongs to, the last settled record that it is recognised by, where an operator has moved it to, and
-- up to when everything that the log held is settled, and how many transactions have advanced it. None of these is indexed, so updates stay HOT updates.
ALTER TABLE oncebox_position
    ADD COLUMN log text,
    ADD COLUMN mark_offset bigint,
    ADD COLUMN mark_digest bigint,
    ADD COLUMN floor bigint,
    ADD COLUMN caught_up_at timestamptz,
    ADD COLUMN retired_at timestamptz,
    ADD COLUMN commits bigint NOT NULL DEFAULT 0;

-- Two letters without an id at the same place of two logs are two letters. log is '' when it is not known.
ALTER TABLE oncebox_dead ADD COLUMN log text NOT NULL DEFAULT '';
DROP INDEX oncebox_dead_without_id;
CREATE UNIQUE INDEX oncebox_dead_without_id ON oncebox_dead (consumer, topic, partition, "offset", log)
    WHERE message_id = '';

-- Who purges, until when, and where the next step begins. One row.
CREATE TABLE oncebox_purge (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    owner uuid,
    leased_until timestamptz,
    at_table text,
    at_page bigint
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO oncebox_purge DEFAULT VALUES;

DROP FUNCTION oncebox_advance(text, text, integer, bigint, bigint, bigint, bigint);

-- Writes down how far a partition is, if it still belongs to the owner with that epoch and is at least where the owner
-- was told that it is: a database that failed over to an older state is not written on. NULL leaves a value as it is.
-- Offsets and the time up to which the partition is caught up never go back, and that time is never later than now.
-- Without counts (NULL) there were no messages: then nothing says that the owner makes progress, or that the log lives. And
-- only a commit that moves the next offset is progress: a lane that runs ahead says nothing about the message that holds it.
CREATE FUNCTION oncebox_advance(
    consumer text, topic text, partition integer, epoch bigint, at_least bigint,
    next_offset bigint, log text, mark_offset bigint, mark_digest bigint, caught_up_ms bigint,
    applied bigint, duplicates bigint, commits bigint
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
        updated_at = CASE WHEN $11 IS NULL THEN updated_at ELSE clock_timestamp() END
    WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4
        AND ($5 IS NULL OR next_offset >= $5) AND ($13 IS NULL OR commits >= $13);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process has taken over % %/%, or the database has gone back to an older state', $1, $2, $3
            USING ERRCODE = 'OBX01';
    END IF;
END
$body$;

-- Writes the receipt of a message inside the caller's transaction. True: the message is fresh, apply it and commit.
-- False: it was applied before. A concurrent copy waits until the other transaction has ended. A receipt that belongs to
-- another message is an error: nobody meets that by accident.
CREATE OR REPLACE FUNCTION oncebox_claim(consumer text, message_id text, tenant text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    receipt uuid;
    other record;
BEGIN
    IF $1 IS NULL OR $1 COLLATE "C" !~ '^[A-Za-z0-9._-]{1,200}$' THEN
        RAISE EXCEPTION 'a consumer is 1 to 200 letters, digits, dots, underscores or dashes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $2 IS NULL OR octet_length($2) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'a message id has 1 to 512 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $3 IS NULL OR octet_length($3) > 256 THEN
        RAISE EXCEPTION 'a tenant has at most 256 bytes, '''' if there is none'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    receipt := oncebox_receipt_key($1, $2, $3);
    INSERT INTO oncebox_inbox (key, consumer, tenant, message_id) VALUES (receipt, $1, $3, $2)
    ON CONFLICT (key) DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT i.message_id INTO other FROM oncebox_inbox i
    WHERE i.key = receipt AND (i.consumer, i.tenant, i.message_id) IS DISTINCT FROM ($1, $3, $2);
    IF FOUND THEN
        RAISE EXCEPTION 'message % of consumer % was not applied, but its receipt belongs to message %',
            quote_literal($2), $1, quote_literal(other.message_id) USING ERRCODE = 'OBX04',
            HINT = 'Ids that collide are made on purpose. Look at who sends them, and give the message another id.';
    END IF;
    RETURN false;
END
$body$;
-- Writes an event into the outbox, in the caller's transaction. NULL as the payload is a tombstone. The settings
-- oncebox.consumer, oncebox.tenant, oncebox.causation_id and oncebox.traceparent say what it follows from. In a transaction
-- that oncebox began, a handler may have changed its role: the event is written with the role of the beginning.
CREATE OR REPLACE FUNCTION oncebox_emit_bytes(topic text, key text, payload bytea, headers json DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    cause text := NULLIF(current_setting('oncebox.causation_id', true), '');
    tenant text := current_setting('oncebox.tenant', true);
    trace text := current_setting('oncebox.traceparent', true);
    handlers_role text := current_setting('role');
    role_at_begin text;
    written uuid;
BEGIN
    IF $1 IS NULL OR length($1) > 249 OR $1 COLLATE "C" !~ '^[A-Za-z0-9._-]+$' OR $1 IN ('.', '..') THEN
        RAISE EXCEPTION '% is not a topic: 1 to 249 letters, digits, dots, underscores or dashes',
            COALESCE(quote_literal(left($1, 300)), 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length($2) > 65536 THEN
        RAISE EXCEPTION 'the key of an event to % has % bytes, more than 65536', $1, octet_length($2)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length($3) > 67108864 THEN
        RAISE EXCEPTION 'the payload of an event to % has % bytes, more than 67108864', $1, octet_length($3)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $4::text IS DISTINCT FROM '{}' THEN
        PERFORM oncebox_check_headers($1, $4);
    END IF;
    -- In a function that runs with its owner's rights the role cannot be changed, and those rights count.
    IF current_setting('oncebox.open', true) = 'yes'
        AND current_user = (CASE handlers_role WHEN 'none' THEN session_user ELSE handlers_role::name END) THEN
        role_at_begin := NULLIF(NULLIF(current_setting('oncebox.role', true), handlers_role), '');
    END IF;
    IF role_at_begin IS NOT NULL THEN
        PERFORM set_config('role', role_at_begin, true);
    END IF;
    INSERT INTO oncebox_outbox (topic, key, payload, headers, consumer, tenant, causation_id)
    VALUES ($1, convert_to($2, 'UTF8'), $3,
        CASE WHEN trace <> '' THEN oncebox_with_header($4, 'traceparent', trace) ELSE $4 END,
        NULLIF(current_setting('oncebox.consumer', true), ''),
        CASE WHEN cause IS NULL THEN NULLIF(tenant, '') ELSE COALESCE(tenant, '') END,
        cause)
    RETURNING id INTO written;
    IF role_at_begin IS NOT NULL THEN
        PERFORM set_config('role', handlers_role, true);
    END IF;
    RETURN written;
END
$body$;

-- Callers have search paths of their own.
DO $body$
DECLARE
    signature text;
BEGIN
    FOREACH signature IN ARRAY ARRAY['oncebox_claim(text, text, text)', 'oncebox_emit_bytes(text, text, bytea, json)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', signature, current_schema());
    END LOOP;
END
$body$;
