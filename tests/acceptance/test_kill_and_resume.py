"""kill -9 in the middle of `medlive curate`, and two of them at once: the same cases, each reply paid once."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medlive.demo.samples import SampleThread
from tests.support.counting_endpoint import CountingEndpoint, counting_endpoint
from tests.support.instance import Instance, write_lines, write_models
from tests.support.threads import as_import
from tests.support.waiting import until, wait_until

THREADS = 12

NewInstance = Callable[..., Instance]


def _ready(
    new_instance: NewInstance,
    samples: list[SampleThread],
    url: str,
    tmp_path: Path,
    *,
    concurrency: int,
) -> Instance:
    """An instance with the threads imported and its roles at the endpoint, so many threads curated at once."""
    config = write_models(tmp_path / "config", url)
    instance = new_instance(
        MEDLIVE_CONFIG=str(config), MEDLIVE_CURATION__CONCURRENCY=str(concurrency)
    )
    chosen = [samples[i * len(samples) // THREADS] for i in range(THREADS)]
    lines = write_lines(instance.home / "threads.jsonl", map(as_import, chosen))
    (told,) = instance.here("import", lines, "--json").json
    assert told["new"] == THREADS
    return instance


def _cases(instance: Instance) -> list[tuple[Any, ...]]:
    """Every case as its text says it, with its thread and its rubric, in the threads' order."""
    return instance.rows(
        """
        SELECT t.source, t.thread_id, r.revision, r.narrative, r.query, r.advice, r.theme::text, r.specialty,
               (SELECT array_agg((c.points, c.axis::text, c.criterion)::text ORDER BY c.position)
                FROM criteria c WHERE c.case_id = r.case_id AND c.revision = r.revision)
        FROM case_revisions r JOIN cases k ON k.id = r.case_id JOIN threads t ON t.id = k.thread_id
        ORDER BY 1, 2, 3
        """
    )


def _doubled(instance: Instance) -> list[tuple[Any, ...]]:
    """Revisions that were decided more than once."""
    return instance.rows(
        "SELECT revision_id, count(*) FROM curations GROUP BY 1 HAVING count(*) > 1"
    )


def _paid(instance: Instance) -> int:
    count = instance.one("SELECT count(*) FROM replies")
    assert isinstance(count, int)
    return count


def _kill(process: "subprocess.Popen[str]", instance: Instance) -> None:
    """kill -9, and wait until the server has noticed."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: instance.one(sessions) == 0)


async def _until_paid(
    instance: Instance, process: "subprocess.Popen[str]", replies: int
) -> None:
    def is_paid() -> bool:
        assert process.poll() is None, "it ended before it could be killed"
        return _paid(instance) >= replies

    await until(is_paid)


async def _run(instance: Instance, *arguments: str) -> Any:
    return (await asyncio.to_thread(instance.here, *arguments)).json


@pytest.mark.thorough
async def test_a_killed_run_goes_on_with_the_same_cases_and_pays_nothing_twice(
    new_instance: NewInstance, samples: list[SampleThread], tmp_path: Path
) -> None:
    async with counting_endpoint(latency_ms=50) as endpoint:
        calm = await asyncio.to_thread(
            _ready, new_instance, samples, endpoint.url, tmp_path, concurrency=6
        )
        undisturbed = await _run(calm, "curate", "--json")
        assert endpoint.asked == _paid(calm)
        assert undisturbed["outcomes"]["kept"] >= 3

        rough = await asyncio.to_thread(
            _ready, new_instance, samples, endpoint.url, tmp_path, concurrency=6
        )
        endpoint.bodies.clear()
        killed = rough.start("curate", "--json")
        await _until_paid(rough, killed, _paid(calm) // 3)
        await asyncio.to_thread(_kill, killed, rough)
        for _ in range(
            20
        ):  # what it had sent lies in the sockets, and is counted in the next turns
            await asyncio.sleep(0.02)
        kept_replies, decided = (
            _paid(rough),
            rough.one("SELECT count(*) FROM curations"),
        )
        assert kept_replies < _paid(calm)
        assert decided < sum(undisturbed["outcomes"].values())

        asked_before = endpoint.asked
        resumed = await _run(rough, "curate", "--json")

        assert _cases(rough) == _cases(calm)
        assert {n: p[:3] for n, p in rough.places().items()} == {
            n: p[:3] for n, p in calm.places().items()
        }
        assert not _doubled(rough)
        assert (
            sum(resumed["outcomes"].values())
            == sum(undisturbed["outcomes"].values()) - decided
        )
        assert _paid(rough) == _paid(calm)
        # What was stored when the process died is not asked again; what was under way then is asked once more.
        assert endpoint.asked - asked_before == _paid(rough) - kept_replies
        assert resumed["replayed"] > 0
        _nothing_left(rough)

        asked = endpoint.asked
        idle = await _run(rough, "curate", "--json")
        assert idle["outcomes"] == {}
        assert endpoint.asked == asked


@pytest.mark.thorough
async def test_two_runs_at_once_share_the_threads(
    new_instance: NewInstance, samples: list[SampleThread], tmp_path: Path
) -> None:
    async with counting_endpoint(latency_ms=50) as endpoint:
        instance = await asyncio.to_thread(
            _ready, new_instance, samples, endpoint.url, tmp_path, concurrency=2
        )
        endpoint.answers.clear()
        both = [instance.start("curate", "--json") for _ in range(2)]
        # One alone has two threads at once: the other has begun as well.
        taken = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'"
        await until(lambda: instance.one(taken) > 2)
        endpoint.answers.set()
        done = await asyncio.gather(
            *(asyncio.to_thread(instance.finish, process) for process in both)
        )
        assert [d.status for d in done] == [0, 0], [d.err for d in done]
        shares = [sum(d.json["outcomes"].values()) for d in done]
        passed = instance.one("SELECT count(*) FROM filter_results WHERE passed")
        assert instance.one("SELECT count(*) FROM filter_results") == THREADS
        assert sum(shares) == passed
        assert min(shares) > 0, "one of the two did all the work"
        assert not _doubled(instance)
        assert instance.one("SELECT count(*) FROM cases") == len(_cases(instance))
        assert all(
            outcome in ("kept", "rejected")
            for outcome, *_ in instance.places().values()
        )
        _each_reply_paid_once(endpoint, instance)
        _nothing_left(instance)


def _each_reply_paid_once(endpoint: CountingEndpoint, instance: Instance) -> None:
    # Two processes may meet in the very same question of two alike threads; no thread is asked about twice.
    assert endpoint.asked - _paid(instance) <= 4
    assert max(endpoint.bodies.values()) <= 2


def _nothing_left(instance: Instance) -> None:
    assert instance.rows(
        "SELECT status::text, count(*) FROM procrastinate_jobs GROUP BY 1"
    ) in (
        [],
        [("succeeded", instance.one("SELECT count(*) FROM procrastinate_jobs"))],
    )
