-- The key of a receipt: SHA-256 over the lengths and bytes of consumer and tenant and the bytes of the id. An id in the
-- canonical form of UUIDv7 gives the key its leading 48 bits; every other key has the top bit set.
CREATE FUNCTION oncebox_receipt_key(consumer text, message_id text, tenant text DEFAULT '') RETURNS uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $body$
DECLARE
    scope_1 bytea := convert_to($1, 'UTF8');
    scope_2 bytea := convert_to($3, 'UTF8');
    digest bytea := sha256(int4send(octet_length(scope_1)) || scope_1
        || int4send(octet_length(scope_2)) || scope_2 || convert_to($2, 'UTF8'));
BEGIN
    IF $2 COLLATE "C" ~ '^[0-7][0-9a-f]{7}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' THEN
        RETURN (substr($2, 1, 8) || substr($2, 10, 4) || encode(substring(digest FROM 1 FOR 10), 'hex'))::uuid;
    END IF;
    RETURN encode(set_byte(substring(digest FROM 1 FOR 16), 0, get_byte(digest, 0) | 128), 'hex')::uuid;
END
$body$;

-- Writes the receipt of a message inside the caller's transaction. True: the message is fresh, apply it and commit.
-- False: it was applied before. A concurrent copy waits until the other transaction has ended.
CREATE FUNCTION oncebox_claim(consumer text, message_id text, tenant text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql AS $body$
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
    INSERT INTO oncebox_inbox (key, consumer, tenant, message_id)
    VALUES (oncebox_receipt_key($1, $2, $3), $1, $3, $2)
    ON CONFLICT (key) DO NOTHING;
    RETURN FOUND;
END
$body$;
-- Callers have search paths of their own. Costs some microseconds a call; the daemon does not call it.
DO $body$ BEGIN
    EXECUTE format('ALTER FUNCTION oncebox_claim(text, text, text) SET search_path = %I, pg_temp', current_schema());
END $body$;

-- Fails if the transaction that oncebox began is over: handlers must not end it.
CREATE FUNCTION oncebox_still_open() RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    IF current_setting('oncebox.open', true) IS DISTINCT FROM 'yes' THEN
        RAISE EXCEPTION 'a handler has ended the transaction that oncebox began; use a savepoint instead'
            USING ERRCODE = 'OBX03';
    END IF;
END
$body$;

-- Moves a position, if it still belongs to the owner with that epoch.
CREATE FUNCTION oncebox_advance(
    consumer text, topic text, partition integer, epoch bigint,
    next_offset bigint, applied bigint, duplicates bigint
) RETURNS void
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    PERFORM oncebox_still_open();
    UPDATE oncebox_position SET
        next_offset = GREATEST(next_offset, $5),
        starts = 0,
        applied = applied + $6,
        duplicates = duplicates + $7,
        updated_at = clock_timestamp()
    WHERE consumer = $1 AND topic = $2 AND partition = $3 AND epoch = $4;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process has taken over % %/%', $1, $2, $3 USING ERRCODE = 'OBX01';
    END IF;
END
$body$;
