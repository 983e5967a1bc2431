-- Every thread that waits, with what it waits for. NULL: nothing will ever take it up, which must not be.
--
-- Not a view: on an empty database this comes before the job queue's own tables.
CREATE FUNCTION medlive_waiting_threads()
RETURNS TABLE (thread_id integer, revision_id integer, job_id bigint, waits_for text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    WITH wanted AS (
        SELECT standing.thread_id, standing.revision_id, standing.stage
        FROM thread_standings AS standing WHERE standing.outcome = 'pending'
        UNION ALL
        -- A thread whose rejection a person overruled waits until it is decided again.
        SELECT DISTINCT standing.thread_id, standing.revision_id, 'screener'
        FROM overrules AS overrule
        JOIN thread_standings AS standing ON standing.revision_id = overrule.revision_id
        WHERE standing.outcome <> 'pending' AND NOT EXISTS (
            SELECT FROM curations AS decided WHERE decided.revision_id = overrule.revision_id
            AND decided.id > coalesce(overrule.curation_id, 0)
        )
    ), latest AS (
        SELECT DISTINCT ON (queued.queueing_lock)
            queued.id, queued.queueing_lock, queued.status, queued.scheduled_at, failure.reason
        FROM procrastinate_jobs AS queued LEFT JOIN job_failures AS failure ON failure.job_id = queued.id
        WHERE queued.queue_name = 'curate' AND queued.status <> 'succeeded'
        ORDER BY queued.queueing_lock, queued.status IN ('todo', 'doing') DESC, queued.id DESC
    )
    SELECT wanted.thread_id, wanted.revision_id, job.id, CASE
        WHEN wanted.stage = 'filters' THEN 'the filters'
        WHEN job.status = 'doing' THEN 'the worker that curates it'
        WHEN job.status = 'todo' AND job.scheduled_at > now() THEN 'the time of its next attempt'
        WHEN job.status = 'todo' THEN 'a worker'
        WHEN job.status = 'failed' AND job.reason IS NOT NULL THEN 'a person, its job failed: ' || job.reason
        WHEN job.status IN ('cancelled', 'aborted') THEN 'a person, its job was cancelled'
    END
    FROM wanted LEFT JOIN latest AS job ON job.queueing_lock = 'curate:' || wanted.revision_id;
END $$;

COMMENT ON FUNCTION medlive_waiting_threads IS 'Threads that wait and what for; NULL: for nothing, which must not be';

-- No table of its caller's stands in for one that it reads.
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION medlive_waiting_threads SET search_path TO %I, pg_temp', current_schema());
END $$;
