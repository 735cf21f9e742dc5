-- An event is not published before deliver_at. Until then the relay holds it, and with it the later events of its key.
ALTER TABLE oncebox_outbox ADD COLUMN deliver_at timestamptz CHECK (isfinite(deliver_at));

-- Since when a held event could have been published. Those that wait behind another are as old as that one.
CREATE INDEX oncebox_outbox_since ON oncebox_outbox (GREATEST(created_at, deliver_at)) WHERE held_until < 'infinity';

-- The functions get one more parameter, so they are made anew. Who may call them stays as it is.
SELECT set_config('oncebox.may_emit_bytes', (SELECT COALESCE(proacl::text, '') FROM pg_proc
        WHERE oid = to_regprocedure('oncebox_emit_bytes(text, text, bytea, json)')), true),
    set_config('oncebox.may_emit', (SELECT COALESCE(proacl::text, '') FROM pg_proc
        WHERE oid = to_regprocedure('oncebox_emit(text, text, json, json)')), true);
DROP FUNCTION oncebox_emit(text, text, json, json);
DROP FUNCTION oncebox_emit_bytes(text, text, bytea, json);

-- Writes an event into the outbox, in the caller's transaction. NULL as the payload is a tombstone. It is not published before
-- deliver_at. The settings oncebox.consumer, oncebox.tenant, oncebox.causation_id, oncebox.correlation_id and oncebox.traceparent
-- say what it follows from. In a transaction that oncebox began, a handler may have changed its role: the event is written with
-- the role of the beginning.
CREATE FUNCTION oncebox_emit_bytes(topic text, key text, payload bytea, headers json DEFAULT '{}',
    deliver_at timestamptz DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    cause text := NULLIF(current_setting('oncebox.causation_id', true), '');
    tenant text := current_setting('oncebox.tenant', true);
    trace text := current_setting('oncebox.traceparent', true);
    correlation text := current_setting('oncebox.correlation_id', true);
    all_headers json := $4;
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
    IF NOT isfinite($5) THEN
        RAISE EXCEPTION 'an event to % cannot be delivered at %', $1, $5 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $4::text IS DISTINCT FROM '{}' THEN
        PERFORM oncebox_check_headers($1, $4);
    END IF;
    IF trace <> '' THEN
        all_headers := oncebox_with_header(all_headers, 'traceparent', trace);
    END IF;
    IF correlation <> '' THEN
        all_headers := oncebox_with_header(all_headers, 'correlation-id', correlation);
    END IF;
    -- In a function that runs with its owner's rights the role cannot be changed, and those rights count.
    IF current_setting('oncebox.open', true) = 'yes'
        AND current_user = (CASE handlers_role WHEN 'none' THEN session_user ELSE handlers_role::name END) THEN
        role_at_begin := NULLIF(NULLIF(current_setting('oncebox.role', true), handlers_role), '');
    END IF;
    IF role_at_begin IS NOT NULL THEN
        PERFORM set_config('role', role_at_begin, true);
    END IF;
    INSERT INTO oncebox_outbox (topic, key, payload, headers, deliver_at, consumer, tenant, causation_id)
    VALUES ($1, convert_to($2, 'UTF8'), $3, all_headers, $5,
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

-- The same with JSON, whose text is kept as it is.
CREATE FUNCTION oncebox_emit(topic text, key text, payload json, headers json DEFAULT '{}',
    deliver_at timestamptz DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql AS $body$
BEGIN
    IF $3 IS NULL THEN
        RETURN oncebox_emit_bytes($1, $2, NULL, $4, $5);
    END IF;
    IF $4::text = '{}' THEN
        RETURN oncebox_emit_bytes($1, $2, convert_to($3::text, 'UTF8'), '{"content-type":"application/json"}', $5);
    END IF;
    PERFORM oncebox_check_headers($1, $4);
    RETURN oncebox_emit_bytes($1, $2, convert_to($3::text, 'UTF8'),
        oncebox_with_header($4, 'content-type', 'application/json'), $5);
END
$body$;

-- Callers have search paths of their own; and those may call them that could before.
DO $body$
DECLARE
    made record;
    may_call record;
BEGIN
    FOR made IN SELECT * FROM (VALUES
        ('oncebox_emit_bytes(text, text, bytea, json, timestamptz)', current_setting('oncebox.may_emit_bytes')),
        ('oncebox_emit(text, text, json, json, timestamptz)', current_setting('oncebox.may_emit'))) AS f(signature, acl)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', made.signature, current_schema());
        CONTINUE WHEN made.acl = '';
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', made.signature);
        FOR may_call IN SELECT grantee, is_grantable FROM aclexplode(made.acl::aclitem[]) LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s%s', made.signature,
                CASE may_call.grantee WHEN 0 THEN 'PUBLIC' ELSE may_call.grantee::regrole::text END,
                CASE WHEN may_call.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
        END LOOP;
    END LOOP;
END
$body$;
