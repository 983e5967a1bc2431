-- Where each thread stands, kept by triggers; medlive/db/tables/work.py describes the table.

ALTER TABLE thread_standings SET (toast_tuple_target = 128);

CREATE FUNCTION medlive_words(content text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- Latin words by their stems; of Chinese every two neighbouring characters, and the last one of each run.
    SELECT strip(CASE WHEN text ~ '[㐀-鿿]' THEN
        to_tsvector('english', regexp_replace(text, '([㐀-鿿]{1,2})', ' \1 ', 'g'))
        || to_tsvector('simple', regexp_replace(
            regexp_replace(regexp_replace(text, '[^㐀-鿿]+', ' ', 'g'), '[㐀-鿿]([㐀-鿿]*)', '\1', 'g'),
            '([㐀-鿿]{2})', '\1 ', 'g'
        ))
        ELSE to_tsvector('english', text) END)
    FROM (SELECT left(content, 50000) AS text) AS cut
$$;

CREATE FUNCTION medlive_refresh_standings(ids integer[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Whoever changes one of these threads at this moment is waited for; what they did is seen below. The case comes
    -- first: a review has locked it already.
    PERFORM FROM cases WHERE thread_id = ANY (ids) ORDER BY thread_id FOR NO KEY UPDATE;
    PERFORM FROM thread_standings WHERE thread_id = ANY (ids) ORDER BY thread_id FOR UPDATE;
    INSERT INTO thread_standings AS standing (
        thread_id, revision_id, curation_id, case_id, case_revision, source, language, stage, outcome, reason, engine, specialty,
        status, week, changed_at, posted_at, words
    )
    SELECT
        thread.id, revision.id, attempt.id, made.id, texts.revision, thread.source, coalesce(revision.language, ''),
        place.stage, place.outcome, coalesce(place.reason, ''),
        coalesce(attempt.engines #>> '{screener,model}', ''), coalesce(texts.specialty, ''),
        coalesce(made.status, ''), to_char(place.at AT TIME ZONE 'UTC', 'IYYY."W"IW'), place.at,
        coalesce(revision.posted_at, thread.first_seen_at),
        -- Read anew only where other texts are shown; a takedown has emptied a revision that stays.
        CASE WHEN known.revision_id = revision.id AND revision.messages <> '[]'
            AND (known.case_id, known.case_revision) IS NOT DISTINCT FROM (made.id, texts.revision)
        THEN known.words ELSE medlive_words(concat_ws(E'\n', revision.title, (
            SELECT string_agg(message ->> 'text', E'\n') FROM jsonb_array_elements(revision.messages) AS message
        ), texts.narrative, texts.query, texts.advice)) END
    FROM threads AS thread
    JOIN LATERAL (
        SELECT * FROM thread_revisions WHERE thread_id = thread.id ORDER BY revision DESC LIMIT 1
    ) AS revision ON true
    LEFT JOIN thread_standings AS known ON known.thread_id = thread.id
    LEFT JOIN LATERAL (
        SELECT * FROM filter_results WHERE revision_id = revision.id ORDER BY decided_at DESC, chain_digest LIMIT 1
    ) AS result ON true
    LEFT JOIN LATERAL (
        SELECT * FROM curations WHERE revision_id = revision.id ORDER BY id DESC LIMIT 1
    ) AS attempt ON true
    LEFT JOIN cases AS made ON made.thread_id = thread.id
    LEFT JOIN LATERAL (
        SELECT * FROM case_revisions WHERE case_id = made.id ORDER BY revision DESC LIMIT 1
    ) AS texts ON true
    CROSS JOIN LATERAL (
        SELECT 'filters' AS stage, 'pending' AS outcome, NULL AS reason, revision.created_at AS at
        WHERE result.passed IS NULL AND attempt.id IS NULL
        UNION ALL
        SELECT 'filters', 'rejected', result.reason, result.decided_at
        WHERE NOT result.passed AND NOT EXISTS (
            SELECT FROM overrules WHERE revision_id = revision.id AND curation_id IS NULL
        )
        UNION ALL
        SELECT 'screener', 'pending', NULL, result.decided_at WHERE attempt.id IS NULL AND result.passed IS NOT NULL
        UNION ALL
        SELECT 'case', 'withdrawn', NULL, attempt.finished_at WHERE made.status = 'withdrawn' AND attempt.outcome = 'kept'
        UNION ALL
        SELECT attempt.stage, attempt.outcome, attempt.reason, attempt.finished_at WHERE attempt.id IS NOT NULL
        LIMIT 1
    ) AS place
    WHERE thread.id = ANY (ids)
    ORDER BY thread.id
    ON CONFLICT (thread_id) DO UPDATE SET
        revision_id = excluded.revision_id, curation_id = excluded.curation_id, case_id = excluded.case_id,
        case_revision = excluded.case_revision, source = excluded.source, language = excluded.language, stage = excluded.stage,
        outcome = excluded.outcome, reason = excluded.reason, engine = excluded.engine,
        specialty = excluded.specialty, status = excluded.status, week = excluded.week,
        changed_at = excluded.changed_at, posted_at = excluded.posted_at, words = excluded.words
    WHERE standing.* IS DISTINCT FROM excluded.*;
END $$;

CREATE FUNCTION medlive_note_standings() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ids integer[];
BEGIN
    EXECUTE 'SELECT array_agg(DISTINCT thread_id) FROM (' || TG_ARGV[0] || ') AS touched' INTO ids;
    IF ids IS NOT NULL THEN PERFORM medlive_refresh_standings(ids); END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION medlive_count_standings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Only ever added, so that nobody waits for anybody; medlive_sum_counts adds them up.
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO thread_counts (week, source, language, stage, outcome, reason, engine, specialty, status, n)
        SELECT level.week, source, language, stage, outcome, reason, engine, specialty, status, -count(*)
        FROM gone CROSS JOIN LATERAL (VALUES (gone.week), ('')) AS level (week)
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO thread_counts (week, source, language, stage, outcome, reason, engine, specialty, status, n)
        SELECT level.week, source, language, stage, outcome, reason, engine, specialty, status, count(*)
        FROM come CROSS JOIN LATERAL (VALUES (come.week), ('')) AS level (week)
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION medlive_sum_counts() RETURNS void LANGUAGE sql AS $$
    WITH several AS (
        SELECT week, source, language, stage, outcome, reason, engine, specialty, status, sum(n) AS n, array_agg(id) AS ids
        FROM thread_counts GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 HAVING count(*) > 1 OR sum(n) = 0
    ), removed AS (
        DELETE FROM thread_counts WHERE id IN (SELECT unnest(ids) FROM several)
    )
    INSERT INTO thread_counts (week, source, language, stage, outcome, reason, engine, specialty, status, n)
    SELECT week, source, language, stage, outcome, reason, engine, specialty, status, n FROM several WHERE n <> 0
$$;

CREATE TRIGGER thread_standings_come AFTER INSERT ON thread_standings
    REFERENCING NEW TABLE AS come FOR EACH STATEMENT EXECUTE FUNCTION medlive_count_standings();
CREATE TRIGGER thread_standings_moved AFTER UPDATE ON thread_standings
    REFERENCING OLD TABLE AS gone NEW TABLE AS come FOR EACH STATEMENT EXECUTE FUNCTION medlive_count_standings();
CREATE TRIGGER thread_standings_gone AFTER DELETE ON thread_standings
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION medlive_count_standings();
CREATE TRIGGER thread_revisions_stand AFTER INSERT ON thread_revisions REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings('SELECT thread_id FROM touching');
CREATE TRIGGER thread_revisions_emptied AFTER UPDATE ON thread_revisions REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings('SELECT thread_id FROM touching');
CREATE TRIGGER filter_results_stand AFTER INSERT ON filter_results REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings(
        'SELECT r.thread_id FROM touching JOIN thread_revisions AS r ON r.id = revision_id'
    );
CREATE TRIGGER curations_stand AFTER INSERT ON curations REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings(
        'SELECT r.thread_id FROM touching JOIN thread_revisions AS r ON r.id = revision_id'
    );
CREATE TRIGGER overrules_stand AFTER INSERT ON overrules REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings(
        'SELECT r.thread_id FROM touching JOIN thread_revisions AS r ON r.id = revision_id'
    );
CREATE TRIGGER cases_stand AFTER INSERT ON cases REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings('SELECT thread_id FROM touching');
CREATE TRIGGER cases_moved AFTER UPDATE ON cases REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings('SELECT thread_id FROM touching');
CREATE TRIGGER case_revisions_stand AFTER INSERT ON case_revisions REFERENCING NEW TABLE AS touching
    FOR EACH STATEMENT EXECUTE FUNCTION medlive_note_standings(
        'SELECT c.thread_id FROM touching JOIN cases AS c ON c.id = case_id'
    );
