"""Every thread that waits has a job or a named reason; what has neither is found, queued again, and said."""

from collections.abc import Callable

import pytest

from medlive.demo.samples import load_sample_threads
from tests.support.instance import Instance, write_lines
from tests.support.threads import as_import

NewInstance = Callable[..., Instance]
JOB = "(SELECT id FROM procrastinate_jobs ORDER BY id LIMIT 1)"
QUEUED_JOB = (
    "(SELECT id FROM procrastinate_jobs WHERE status = 'todo' ORDER BY id LIMIT 1)"
)
LOST = "SELECT count(*) FROM medlive_waiting_threads() WHERE waits_for IS NULL"
QUEUED = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'"
THREADS = 3


def queued(instance: Instance, count: int) -> Instance:
    """The instance, with that many threads in its queue."""
    kept = [
        thread for thread in load_sample_threads() if thread.expect.outcome == "kept"
    ]
    instance.here(
        "import",
        write_lines(instance.home / "threads.jsonl", map(as_import, kept[:count])),
    )
    instance.here("filter")
    return instance


@pytest.fixture
def instance(new_instance: NewInstance) -> Instance:
    """An instance with a few threads in its queue."""
    return queued(new_instance(), THREADS)


def waits_of(instance: Instance) -> dict[str | None, int]:
    return dict(
        instance.rows(
            "SELECT waits_for, count(*) FROM medlive_waiting_threads() GROUP BY 1"
        )
    )


def test_a_thread_without_a_job_is_found_queued_again_and_said(
    instance: Instance,
) -> None:
    assert waits_of(instance) == {"a worker": THREADS}
    violations = (
        f"DELETE FROM procrastinate_jobs WHERE id = {QUEUED_JOB}",
        f"UPDATE procrastinate_jobs SET status = 'succeeded' WHERE id = {QUEUED_JOB}",
        f"UPDATE procrastinate_jobs SET status = 'failed' WHERE id = {QUEUED_JOB}",
        f"UPDATE procrastinate_jobs SET queueing_lock = 'curate:999' WHERE id = {QUEUED_JOB}",
        "DELETE FROM procrastinate_jobs",
    )
    for violation in violations:
        instance.change(violation)
        lost = instance.one(LOST)
        assert lost == (THREADS if violation == violations[-1] else 1), violation
        found = instance.here("jobs", "check", status=1)
        assert f"{lost} threads waited without a job, and are queued again" in found.err
        assert instance.one(LOST) == 0
        assert instance.here("jobs", "check").status == 0


def test_an_empty_queue_is_checked_without_a_word(new_instance: NewInstance) -> None:
    instance = new_instance()
    assert "nothing waits" in instance.here("jobs", "list").err
    assert instance.here("jobs", "check").out == ""


def test_an_overruled_thread_without_a_job_is_found_too(
    new_instance: NewInstance,
) -> None:
    instance = queued(new_instance(), 1)
    instance.here("curate")
    ((thread, revision),) = instance.rows("SELECT thread_id, id FROM thread_revisions")
    # Decided before it was overruled; the job of that is gone.
    instance.change(
        "INSERT INTO overrules (revision_id, curation_id, overruled, reason) VALUES"
        " (%s, (SELECT max(id) FROM curations), 'unsafe', 'it is right')",
        [revision],
    )
    assert instance.rows(
        "SELECT thread_id FROM medlive_waiting_threads() WHERE waits_for IS NULL"
    ) == [(thread,)]


def test_a_reason_is_named_for_each_thread_that_waits(instance: Instance) -> None:
    changes = {
        "a person, its job failed: ValueError: x": (
            f"UPDATE procrastinate_jobs SET status = 'failed' WHERE id = {JOB}",
            f"INSERT INTO job_failures (job_id, queue, reason) VALUES ({JOB}, 'curate', 'ValueError: x')",
        ),
        "a person, its job was cancelled": (
            f"UPDATE procrastinate_jobs SET status = 'cancelled' WHERE id = {JOB}",
        ),
        "the worker that curates it": (
            f"UPDATE procrastinate_jobs SET status = 'doing' WHERE id = {JOB}",
        ),
        "the time of its next attempt": (
            "UPDATE procrastinate_jobs SET status = 'todo', scheduled_at = now() + interval '1 h'"
            f" WHERE id = {JOB}",
        ),
    }
    for reason, statements in changes.items():
        for statement in statements:
            instance.change(statement)
        assert waits_of(instance) == {reason: 1, "a worker": THREADS - 1}
    instance.change("UPDATE thread_standings SET stage = 'filters'")
    assert waits_of(instance) == {"the filters": THREADS}


def test_failed_jobs_are_tried_again_by_reason_and_delayed_ones_with_all(
    instance: Instance,
) -> None:
    ids = [
        job for (job,) in instance.rows("SELECT id FROM procrastinate_jobs ORDER BY id")
    ]
    for job, reason in zip(ids[:2], ("no room", "No Rights"), strict=True):
        instance.change(
            "UPDATE procrastinate_jobs SET status = 'failed' WHERE id = %s", [job]
        )
        instance.change(
            "INSERT INTO job_failures VALUES (%s, 'curate', %s)", [job, reason]
        )
    instance.change(
        "UPDATE procrastinate_jobs SET scheduled_at = now() + interval '4 h' WHERE id = %s",
        [ids[2]],
    )
    listed = instance.here("jobs", "list", "--json").json["jobs"]
    assert [job["reason"] for job in listed] == ["no room", "No Rights", None]
    waiting = instance.here("status", "--json", status=None).json["week"]
    assert (waiting["waiting"], waiting["delayed"]) == (1, 1)
    assert instance.one(QUEUED) == 1
    refused = instance.here("jobs", "retry", "--reason", "RIGHTS", "--json").json
    assert refused["retried"] == [ids[1]]
    others = instance.here("jobs", "retry", "--all", "--json").json
    assert others == {"retried": [ids[0]], "delayed": 1}
    assert (
        instance.one(f"{QUEUED} AND coalesce(scheduled_at <= now(), true)") == THREADS
    )
    for wrong in ((), ("1", "--all"), ("--all", "--reason", "x")):
        instance.here("jobs", "retry", *wrong, status=2)


def test_circuits_are_closed(instance: Instance) -> None:
    for key, endpoint in (("a", "one (m)"), ("b", "two (m)")):
        values = (key, endpoint, "status 402: no credit", False, 3600)
        instance.change(
            "INSERT INTO circuits SELECT %s, %s, %s, %s, now(), now() + interval '1 h', %s",
            values,
        )
    assert instance.here("circuit", "reset", "--json").json == {
        "closed": ["one (m)", "two (m)"]
    }
    assert instance.one("SELECT count(*) FROM circuits") == 0
