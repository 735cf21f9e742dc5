-- A UUIDv7 of now: 48 bits of milliseconds in front of a random UUID, whose version 4 becomes 7 by two bits.
CREATE FUNCTION oncebox_uuid7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
    52, 1), 53, 1), 'hex')::uuid;

-- Events on their way out. A row is pending until it is removed, or published_at or parked_at is set; both also clear
-- held_until. Of the held rows of a key the first one has a time, and those behind it wait until 'infinity': so a key with
-- a million events behind a failing one costs no more than a key with two.
CREATE TABLE oncebox_outbox (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL DEFAULT oncebox_uuid7(),
    topic text COLLATE "C" NOT NULL,
    key bytea,
    payload bytea,
    headers json NOT NULL DEFAULT '{}',
    -- Finite, because one that is not has no milliseconds, and would stop the reading of its whole topic.
    created_at timestamptz NOT NULL DEFAULT clock_timestamp() CHECK (isfinite(created_at)),
    -- Who publishes it: see oncebox_shard. Rows without a key need no order and are spread.
    shard integer NOT NULL GENERATED ALWAYS AS (get_byte(sha256(COALESCE(key, int8send(seq))), 0) & 15) STORED,
    consumer text,
    tenant text,
    causation_id text,
    attempts integer NOT NULL DEFAULT 0,
    error text,
    held_until timestamptz,
    parked_at timestamptz,
    published_at timestamptz
) WITH (
    -- A queue: every row dies young, however many there are at the moment.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);
CREATE INDEX oncebox_outbox_ready ON oncebox_outbox (topic, shard, seq)
    WHERE published_at IS NULL AND parked_at IS NULL AND held_until IS NULL;
CREATE INDEX oncebox_outbox_due ON oncebox_outbox (topic, shard, held_until) WHERE held_until < 'infinity';
-- A hash, because a key may be longer than an index entry.
CREATE INDEX oncebox_outbox_held ON oncebox_outbox (topic, sha256(key), seq) WHERE held_until IS NOT NULL;
CREATE INDEX oncebox_outbox_parked ON oncebox_outbox (seq) WHERE parked_at IS NOT NULL;
CREATE INDEX oncebox_outbox_published ON oncebox_outbox (published_at) WHERE published_at IS NOT NULL;

-- Whoever takes away the held row that others wait behind, also an operator by hand, makes the next one of its key due.
-- If that one is just going too, it is waited for, and the one behind it comes instead. One that has a time is not waited
-- for: two that go at the same time would wait for each other. What they leave behind, the housekeeping finds.
CREATE FUNCTION oncebox_next_of_key() RETURNS trigger
LANGUAGE plpgsql AS $body$
DECLARE
    following record;
BEGIN
    LOOP
        SELECT seq, held_until INTO following FROM oncebox_outbox
        WHERE topic = OLD.topic AND sha256(key) = sha256(OLD.key) AND key = OLD.key AND held_until IS NOT NULL
        ORDER BY seq LIMIT 1;
        EXIT WHEN NOT FOUND OR following.held_until < 'infinity';
        UPDATE oncebox_outbox SET held_until = clock_timestamp()
        WHERE seq = following.seq AND held_until = 'infinity';
        EXIT WHEN FOUND;
    END LOOP;
    RETURN NULL;
END
$body$;
CREATE TRIGGER oncebox_gone AFTER DELETE ON oncebox_outbox
    FOR EACH ROW WHEN (OLD.held_until < 'infinity' AND OLD.key IS NOT NULL)
    EXECUTE FUNCTION oncebox_next_of_key();
CREATE TRIGGER oncebox_moved AFTER UPDATE OF held_until ON oncebox_outbox
    FOR EACH ROW WHEN (OLD.held_until < 'infinity' AND (NEW.held_until < 'infinity') IS NOT TRUE AND OLD.key IS NOT NULL)
    EXECUTE FUNCTION oncebox_next_of_key();

-- The relays that were heard of.
CREATE TABLE oncebox_relay (
    relay uuid PRIMARY KEY,
    name text NOT NULL,
    seen_until timestamptz NOT NULL
);

-- Which relay publishes which shard, and since which epoch.
CREATE TABLE oncebox_shard (
    shard integer PRIMARY KEY,
    relay uuid,
    epoch bigint NOT NULL DEFAULT 0,
    leased_until timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO oncebox_shard (shard) SELECT generate_series(0, 15);

-- Which rows of a sweep became events, and when they may again.
CREATE TABLE oncebox_sweep (
    name text NOT NULL,
    row_key text NOT NULL,
    quiet_until timestamptz NOT NULL,
    PRIMARY KEY (name, row_key)
);
CREATE INDEX oncebox_sweep_over ON oncebox_sweep (quiet_until);

-- Adds a header, unless there is one of that name. The text of the others stays as it is.
CREATE FUNCTION oncebox_with_header(headers json, name text, value text) RETURNS json
LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE
    given text := btrim($1::text, E' \t\n\r');
    inner_text text := btrim(substr(given, 2, length(given) - 2), E' \t\n\r');
    separator text := CASE WHEN inner_text = '' THEN '' ELSE ',' END;
BEGIN
    IF left(given, 1) = '{' THEN
        IF $1 -> $2 IS NOT NULL THEN
            RETURN $1;
        END IF;
        RETURN '{' || to_json($2) || ':' || to_json($3) || separator || inner_text || '}';
    END IF;
    IF EXISTS (SELECT FROM json_array_elements($1) AS pair WHERE pair ->> 0 = $2) THEN
        RETURN $1;
    END IF;
    RETURN '[' || json_build_array($2, $3) || separator || inner_text || ']';
END
$body$;

-- Writes an event into the outbox, in the caller's transaction. NULL as the payload is a tombstone. The settings
-- oncebox.consumer, oncebox.tenant, oncebox.causation_id and oncebox.traceparent say what it follows from.
CREATE FUNCTION oncebox_emit_bytes(topic text, key text, payload bytea, headers json DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    cause text := NULLIF(current_setting('oncebox.causation_id', true), '');
    tenant text := current_setting('oncebox.tenant', true);
    trace text := current_setting('oncebox.traceparent', true);
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
    INSERT INTO oncebox_outbox (topic, key, payload, headers, consumer, tenant, causation_id)
    VALUES ($1, convert_to($2, 'UTF8'), $3,
        CASE WHEN trace <> '' THEN oncebox_with_header($4, 'traceparent', trace) ELSE $4 END,
        NULLIF(current_setting('oncebox.consumer', true), ''),
        CASE WHEN cause IS NULL THEN NULLIF(tenant, '') ELSE COALESCE(tenant, '') END,
        cause)
    RETURNING id INTO written;
    RETURN written;
END
$body$;

CREATE FUNCTION oncebox_check_headers(topic text, headers json) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE
    kind text := json_typeof($2);
    fits boolean;
BEGIN
    IF octet_length($2::text) > 262144 THEN
        RAISE EXCEPTION 'the headers of an event to % have % bytes, more than 262144', $1, octet_length($2::text)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF kind = 'object' THEN
        SELECT COALESCE(bool_and(json_typeof(value) NOT IN ('array', 'object') OR value -> 'base64' IS NOT NULL), true)
        INTO fits FROM json_each($2);
    ELSIF kind = 'array' THEN
        SELECT COALESCE(bool_and(CASE WHEN json_typeof(pair) = 'array' THEN json_array_length(pair) = 2
            AND json_typeof(pair -> 0) = 'string'
            AND (json_typeof(pair -> 1) IN ('string', 'null') OR pair -> 1 -> 'base64' IS NOT NULL) ELSE false END), true)
        INTO fits FROM json_array_elements($2) AS pair;
    END IF;
    IF fits IS NOT TRUE THEN
        RAISE EXCEPTION 'the headers of an event to % must be a JSON object of texts, or an array of [name, text]', $1
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$body$;

-- The same with JSON, whose text is kept as it is.
CREATE FUNCTION oncebox_emit(topic text, key text, payload json, headers json DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql AS $body$
BEGIN
    IF $3 IS NULL THEN
        RETURN oncebox_emit_bytes($1, $2, NULL, $4);
    END IF;
    IF $4::text = '{}' THEN
        RETURN oncebox_emit_bytes($1, $2, convert_to($3::text, 'UTF8'), '{"content-type":"application/json"}');
    END IF;
    PERFORM oncebox_check_headers($1, $4);
    RETURN oncebox_emit_bytes($1, $2, convert_to($3::text, 'UTF8'),
        oncebox_with_header($4, 'content-type', 'application/json'));
END
$body$;

-- Callers have search paths of their own.
DO $body$
DECLARE
    signature text;
BEGIN
    FOREACH signature IN ARRAY ARRAY['oncebox_next_of_key()', 'oncebox_emit_bytes(text, text, bytea, json)',
        'oncebox_emit(text, text, json, json)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', signature, current_schema());
    END LOOP;
END
$body$;
