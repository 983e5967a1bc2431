"""A database filled with decided cases by SQL, as many as a release has."""

from typing import Any

import psycopg

DIGEST = "sha256:" + "a" * 64
MANY = 100
"""Cases from which on a query is planned well only with statistics."""
ENGINES = '{"screener": {"engine": "openai", "model": "m-1", "parameters": {}}}'

_ID = "'ml-' || substr(md5('case ' || n), 1, 16)"
_N = "generate_series(%(first)s::int, %(last)s::int) AS n"
_ONCE = (
    f"""
    INSERT INTO evidence_indexes (digest, retriever, corpora, passages)
    VALUES ('{DIGEST}', 'bm25', '{{"c": "{DIGEST}"}}', 3) ON CONFLICT DO NOTHING
    """,
    f"""
    INSERT INTO passages (key, digest, passage_id, corpus, title, section, text, language, url, licence)
    VALUES ('{DIGEST}', '{DIGEST}', 'c:1:s', 'c', 't', 's', 'Rest helps.', 'en', '', '') ON CONFLICT DO NOTHING
    """,
    "INSERT INTO sources (name, kind) VALUES ('forum', 'file') ON CONFLICT DO NOTHING",
)
_EACH = (
    f"""
    INSERT INTO threads (id, source, thread_id, url, first_seen_at, last_seen_at) OVERRIDING SYSTEM VALUE
    SELECT n, 'forum', 't' || n, '', now(), now() FROM {_N}
    """,
    f"""
    INSERT INTO thread_revisions
        (id, thread_id, revision, digest, title, language, tags, posted_at, posted_at_assumed, messages)
    OVERRIDING SYSTEM VALUE
    SELECT n, n, 1, 'sha256:' || encode(sha256(n::text::bytea), 'hex'), 'A cough', 'en', '{{}}', '2026-03-01',
        false, '[]'
    FROM {_N}
    """,
    f"""
    INSERT INTO curations
        (id, revision_id, pipeline_digest, attempt, outcome, stage, detail, threshold_sufficiency,
        threshold_alignment, s_cc, s_inf, s_align, index_digest, narrative, query, advice, engines, started_at,
        finished_at)
    OVERRIDING SYSTEM VALUE
    SELECT n, n, '{DIGEST}', 1, 'kept', 'rubric', '', 0.5, 0.5, 1, 1, 1, '{DIGEST}', 'n', 'q', 'a',
        %(engines)s::jsonb, now(), now()
    FROM {_N}
    """,
    f"""
    INSERT INTO agent_calls
        (curation_id, position, task, prompt_digest, engine, model, request_digest, reply_digest, attempt, outcome,
        problem, replayed)
    SELECT n, 1, 'screener.extract', '{DIGEST}', 'openai', 'm-1', '{DIGEST}', '{DIGEST}', 1, 'ok', '', false
    FROM {_N}
    """,
    f"""
    INSERT INTO elements (curation_id, element_id, position, side, kind, message_id, quote, statement, standing)
    SELECT n, 'a1', 1, 'advice', 'plan', 'm1', 'Rest', 'Rest helps.', 'kept' FROM {_N}
    """,
    f"""
    INSERT INTO claim_verdicts
        (curation_id, element_id, position, verdict, value, claim, queries, cited, reason, flag)
    SELECT n, 'a1', 1, 'supported', 1.0, 'Rest helps.', '{{rest}}', 1, 'it says so', '' FROM {_N}
    """,
    f"""
    INSERT INTO claim_evidence (curation_id, element_id, position, passage_key, rank, score, cited_as, quote)
    SELECT n, 'a1', p, '{DIGEST}', p, 1.0, CASE WHEN p = 1 THEN 1 END, CASE WHEN p = 1 THEN 'Rest helps' END
    FROM {_N}, generate_series(1, 2) AS p
    """,
    f"INSERT INTO cases (id, thread_id, status) SELECT {_ID}, n, 'ready' FROM {_N}",
    f"""
    INSERT INTO case_revisions
        (case_id, revision, curation_id, language, source, posted_at, specialty, theme, narrative, query, advice,
        no_negative, publishable, content_digest)
    SELECT {_ID}, 1, n, 'en', 'forum', '2026-03-01'::timestamptz + n %% 200 * interval '1 day',
        'Pulmonary & Critical Care', 'Response Depth',
        'An adult has had a dry cough and a sore throat for ' || 2 + n %% 9 || ' days. '
            || repeat('The cough is worse at night and there is no fever. ', %(length)s::int),
        'What helps against the cough?',
        'Rest and drink plenty of fluids. See a doctor if the cough lasts longer.', '', true, '{DIGEST}'
    FROM {_N}
    """,
    f"""
    INSERT INTO criteria (case_id, revision, criterion_id, position, criterion, axis, points, advice_id)
    SELECT {_ID}, 1, 'c' || p, p, (ARRAY[
            'Advises rest.', 'Advises drinking plenty of fluids.',
            'Advises seeing a doctor if the cough lasts longer.', 'Advises rest at night.',
            'Advises fluids against the cough.', 'Advises a doctor for the sore throat.'
        ])[p],
        (ARRAY['Accuracy', 'Completeness', 'Safety', 'Communication Quality', 'Context Awareness', 'Safety'])[p],
        (ARRAY[5, 4, 3, 2, 1, 6])[p], 'a1'
    FROM {_N}, generate_series(1, %(criteria)s::int) AS p
    """,
)


def fill(
    connection: psycopg.Connection[Any],
    count: int,
    *,
    first: int = 1,
    criteria: int = 3,
    length: int = 1,
    engines: str = ENGINES,
    gates: str | None = None,
) -> None:
    """Add `count` ready cases from number `first` on, with all that a release asks of a case's way.

    `length`: sentences of 51 characters in a narrative besides the first; `gates`: the digest of gates that have
    read them and found nothing. Keys to other tables are not checked, as in a restore.
    """
    values = {
        "first": first,
        "last": first + count - 1,
        "criteria": criteria,
        "length": length,
    }
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")
        for statement in (*_ONCE, *_EACH):
            connection.execute(statement, values | {"engines": engines})
        if gates is not None:
            connection.execute(
                "INSERT INTO case_gates (case_id, revision, gates_digest, hits)"
                " SELECT case_id, revision, %s, '[]' FROM case_revisions ON CONFLICT DO NOTHING",
                [gates],
            )
    if count >= MANY:
        connection.execute("ANALYZE")


def case_id(number: int) -> str:
    """The id of the case of that number."""
    from hashlib import md5

    return "ml-" + md5(f"case {number}".encode()).hexdigest()[:16]
