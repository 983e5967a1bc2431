-- What refuses changes of what may not change; 0001_schema.py says where each is used.

CREATE FUNCTION medlive_close_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.closed_at IS NOT NULL OR NEW.closed_at IS NULL
        OR (NEW.id, NEW.case_id, NEW.criterion_id, NEW.reason, NEW.opened_by, NEW.opened_at)
        IS DISTINCT FROM (OLD.id, OLD.case_id, OLD.criterion_id, OLD.reason, OLD.opened_by, OLD.opened_at) THEN
        RAISE EXCEPTION 'UPDATE of disputes refused: a dispute is closed once, and else never changed'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION medlive_keep_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) = to_jsonb(OLD) || '{"reason": null}'
        AND EXISTS (SELECT FROM takedowns WHERE erased_in = pg_current_xact_id()::text::bigint) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE FUNCTION medlive_note_takedown() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.source, NEW.thread_id, NEW.reason, NEW.taken_down_at)
        IS DISTINCT FROM (OLD.source, OLD.thread_id, OLD.reason, OLD.taken_down_at) THEN
        RAISE EXCEPTION 'UPDATE of takedowns refused: a takedown stays as it was asked for'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    -- Who lifts it may not erase.
    IF TG_OP = 'UPDATE' AND NEW.lifted_at IS NOT NULL THEN RETURN NEW; END IF;
    NEW.erased_in := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END $$;

CREATE FUNCTION medlive_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE FUNCTION medlive_refuse_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'frozen' THEN
        RAISE EXCEPTION '% of snapshots refused: snapshot % is frozen', TG_OP, OLD.version
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION medlive_refuse_frozen_added() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    frozen text;
BEGIN
    PERFORM 1 FROM snapshots WHERE version IN (SELECT version FROM added) ORDER BY version FOR SHARE;
    SELECT version INTO frozen FROM snapshots
        WHERE version IN (SELECT version FROM added) AND state = 'frozen' ORDER BY version LIMIT 1;
    IF frozen IS NOT NULL THEN
        RAISE EXCEPTION '% of % refused: snapshot % is frozen', TG_OP, TG_TABLE_NAME, frozen
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION medlive_refuse_frozen_members() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    touched text[] := ARRAY[OLD.version];
    frozen text;
BEGIN
    IF TG_OP = 'UPDATE' THEN touched := touched || NEW.version; END IF;
    PERFORM 1 FROM snapshots WHERE version = ANY (touched) ORDER BY version FOR SHARE;
    SELECT version INTO frozen FROM snapshots
        WHERE version = ANY (touched) AND state = 'frozen' ORDER BY version LIMIT 1;
    IF frozen IS NOT NULL THEN
        RAISE EXCEPTION '% of % refused: snapshot % is frozen', TG_OP, TG_TABLE_NAME, frozen
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION medlive_refuse_unless_taken_down() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was jsonb := to_jsonb(OLD);
    allowed boolean := false;
BEGIN
    IF EXISTS (SELECT FROM takedowns WHERE erased_in = pg_current_xact_id()::text::bigint) THEN
        IF TG_ARGV[1] = 'reply' THEN
            allowed := NOT EXISTS (SELECT FROM agent_calls WHERE reply_digest = was ->> 'request_digest');
        ELSE
            allowed := EXISTS (
                SELECT FROM threads AS thread
                JOIN takedowns AS down ON down.source = thread.source AND down.thread_id = thread.thread_id
                WHERE down.erased_in = pg_current_xact_id()::text::bigint AND thread.id = CASE TG_ARGV[1]
                    WHEN 'thread' THEN (was ->> 'thread_id')::int
                    WHEN 'revision' THEN (
                        SELECT revision.thread_id FROM thread_revisions AS revision
                        WHERE revision.id = (was ->> 'revision_id')::int
                    )
                    WHEN 'curation' THEN (
                        SELECT revision.thread_id FROM curations AS curation
                        JOIN thread_revisions AS revision ON revision.id = curation.revision_id
                        WHERE curation.id = (was ->> 'curation_id')::int
                    )
                    WHEN 'case' THEN (
                        SELECT made.thread_id FROM cases AS made WHERE made.id = was ->> 'case_id'
                    )
                END
            );
        END IF;
        IF allowed AND TG_ARGV[1] = 'case' AND TG_OP = 'DELETE' THEN
            allowed := NOT EXISTS (
                SELECT FROM snapshot_members AS member JOIN snapshots USING (version)
                WHERE member.case_id = was ->> 'case_id' AND member.revision = (was ->> 'revision')::int
                    AND snapshots.state = 'frozen'
            );
        END IF;
        IF allowed AND TG_OP = 'UPDATE' THEN
            allowed := TG_NARGS > 2 AND to_jsonb(NEW) = was || TG_ARGV[2]::jsonb;
        END IF;
    END IF;
    IF NOT allowed THEN
        RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;
