-- The audit log's chain is made here, and a closed study stays closed; 0002_log_and_studies.py says where each is used.

CREATE FUNCTION medlive_original_bytes(stored text, nul bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
-- The UTF-8 bytes of a text as it came: medlive/db/mapping.py marks the characters that PostgreSQL cannot hold.
DECLARE
    parts text[] := string_to_array(stored, chr(1114109));
    original bytea := convert_to(coalesce(parts[1], ''), 'UTF8');
    part text;
    mark text;
    code int;
BEGIN
    FOREACH part IN ARRAY coalesce(parts[2:], '{}') LOOP
        mark := substring(part FROM '^(0000|d[89a-f][0-9a-f]{2}|10fffd);');
        IF mark IS NULL THEN
            RAISE EXCEPTION 'a text refused: U+10FFFD marks no character'
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        code := ('x' || lpad(mark, 8, '0'))::bit(32)::int;
        original := original || CASE mark
            WHEN '0000' THEN nul
            WHEN '10fffd' THEN convert_to(chr(code), 'UTF8')
            -- Half of a surrogate pair, as the three bytes that would encode it.
            ELSE decode('ed' || to_hex(128 + ((code >> 6) & 63)) || to_hex(128 + (code & 63)), 'hex')
        END || convert_to(substr(part, length(mark) + 2), 'UTF8');
    END LOOP;
    RETURN original;
END $$;

CREATE FUNCTION medlive_canonical(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
-- As medlive/digest.py writes it, for the values that an entry of the log may hold.
BEGIN
    CASE jsonb_typeof(value)
        WHEN 'object' THEN
            IF EXISTS (SELECT FROM jsonb_object_keys(value) AS k (key) WHERE key !~ '^[a-z_]{1,40}$') THEN
                RAISE EXCEPTION 'a name of a detail refused: expected a to z and _'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN '{' || coalesce((
                SELECT string_agg(to_jsonb(key)::text || ':' || medlive_canonical(item), ',' ORDER BY key COLLATE "C")
                FROM jsonb_each(value) AS field (key, item)
            ), '') || '}';
        WHEN 'array' THEN
            RETURN '[' || coalesce((
                SELECT string_agg(medlive_canonical(item), ',' ORDER BY place)
                FROM jsonb_array_elements(value) WITH ORDINALITY AS element (item, place)
            ), '') || ']';
        WHEN 'number' THEN
            IF value::text !~ '^-?[0-9]{1,18}$' THEN
                RAISE EXCEPTION 'a detail refused: expected a whole number of up to 18 digits'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN value::text;
        ELSE
            RETURN value::text;
    END CASE;
END $$;

CREATE FUNCTION medlive_chain_log() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    latest record;
    moment timestamp := NEW.at AT TIME ZONE 'UTC';
    covered jsonb;
BEGIN
    IF num_nonnulls(NEW.number, NEW.reason_digest, NEW.salt, NEW.previous, NEW.digest) > 0 THEN
        RAISE EXCEPTION 'INSERT of audit_log refused: the database assigns number, salt and digests'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF NEW.at NOT BETWEEN '2000-01-01 00:00Z' AND '2200-01-01 00:00Z' OR jsonb_typeof(NEW.details) <> 'object' THEN
        RAISE EXCEPTION 'INSERT of audit_log refused: expected a moment from 2000 to 2200, and details by name'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    -- "meda": until this transaction ends nobody else adds an entry, so that numbers have no gap.
    PERFORM pg_advisory_xact_lock(1835361377);
    SELECT number, digest INTO latest FROM audit_log ORDER BY number DESC LIMIT 1;
    NEW.number := coalesce(latest.number, 0) + 1;
    NEW.previous := latest.digest;
    NEW.salt := replace(gen_random_uuid()::text, '-', '');
    IF NEW.reason IS NOT NULL THEN
        NEW.reason_digest := 'sha256:' || encode(sha256(medlive_original_bytes(NEW.reason, '\x00')), 'hex');
    END IF;
    covered := to_jsonb(NEW) - 'digest' - 'reason' || jsonb_build_object(
        'at', to_char(moment, 'YYYY-MM-DD"T"HH24:MI:SS')
        || CASE WHEN date_trunc('second', moment) = moment THEN '' ELSE to_char(moment, '.US') END || '+00:00'
    );
    NEW.digest := 'sha256:' || encode(
        sha256(medlive_original_bytes(medlive_canonical(covered), convert_to('\u0000', 'UTF8'))), 'hex'
    );
    RETURN NEW;
END $$;

CREATE FUNCTION medlive_close_study_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL OR NEW.closed_at IS NULL
        OR to_jsonb(NEW) - 'closed_at' <> to_jsonb(OLD) - 'closed_at' THEN
        RAISE EXCEPTION 'UPDATE of studies refused: a study is closed once, and else never changed'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION medlive_refuse_closed_study() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    closed timestamptz;
BEGIN
    -- Whoever closes it waits until this transaction ends, or is waited for.
    SELECT closed_at INTO closed FROM studies WHERE name = NEW.study FOR SHARE;
    IF closed IS NOT NULL THEN
        RAISE EXCEPTION 'INSERT of % refused: study % is closed', TG_TABLE_NAME, NEW.study
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

-- A temporary table of a caller's own must not stand in for a table that a function reads.
DO $$
DECLARE
    own regprocedure;
BEGIN
    FOR own IN
        SELECT oid::regprocedure FROM pg_proc
        WHERE pronamespace = to_regnamespace(current_schema()) AND proname LIKE 'medlive\_%'
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path TO %I, pg_temp', own, current_schema());
    END LOOP;
END $$;
