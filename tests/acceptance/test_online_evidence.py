"""A week with literature services alone: curated, frozen, rebuilt without them; and while they are away."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from medlive.db.jobs import Queue
from medlive.demo.samples import SampleThread
from medlive.evidence.online import service
from medlive.guard import circuit
from medlive.instance.loading import read_settings
from medlive.service.work import jobs, taken
from medlive.service.work.worker import run_worker
from tests.support.instance import Done, Instance, write_lines
from tests.support.literature import LiteratureServer
from tests.support.sample_literature import serve_samples
from tests.support.threads import as_import
from tests.support.waiting import until

NewInstance = Callable[..., Instance]
ALIKE = "SELECT DISTINCT outcome, reason FROM curations"
LATEST = "SELECT DISTINCT ON (revision_id) outcome FROM curations ORDER BY revision_id, id DESC"
LOST = "SELECT count(*) FROM medlive_waiting_threads() WHERE waits_for IS NULL"
UNJUDGED = """
    SELECT count(*) FROM curations AS c WHERE c.outcome = 'kept' AND NOT EXISTS
        (SELECT FROM claim_evidence AS e WHERE e.curation_id = c.id)
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again soon."""
    monkeypatch.setattr(service, "BACKOFF_S", 0.0)
    monkeypatch.setattr(service, "INTERVAL_S", 0.0)
    monkeypatch.setattr(circuit, "FAILING_S", 0.0)
    monkeypatch.setattr(circuit, "FRESH_S", 0.1)
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr("medlive.service.work.worker.HEARTBEAT_S", 0.1)
    monkeypatch.setattr(taken, "FIRST_WAIT_S", 0.2)
    monkeypatch.setattr(taken, "RETRY_AFTER_S", {"endpoint_unavailable": (0,) * 9})


@pytest.fixture
async def served() -> AsyncIterator[LiteratureServer]:
    async with serve_samples() as server:
        yield server


@pytest.fixture
def instance(new_instance: NewInstance, served: LiteratureServer) -> Instance:
    """An instance without a local index."""
    instance = new_instance(
        MEDLIVE_EVIDENCE__ONLINE=json.dumps(["pubmed", "europepmc"]),
        MEDLIVE_EVIDENCE__ONLINE_EMAIL="ops@example.org",
        MEDLIVE_EVIDENCE__ONLINE_ADDRESSES__PUBMED=served.addresses["pubmed"],
        MEDLIVE_EVIDENCE__ONLINE_ADDRESSES__EUROPEPMC=served.addresses["europepmc"],
    )
    shutil.rmtree(instance.home / "evidence")
    return instance


async def run(
    instance: Instance, *arguments: str | Path, status: int | None = 0
) -> Done:
    return await asyncio.to_thread(instance.here, *arguments, status=status)


async def import_english(
    instance: Instance, samples: list[SampleThread], most: int
) -> None:
    kept = [
        t
        for t in samples
        if t.expect.outcome == "kept" and t.site in ("icliniq", "sdn")
    ]
    lines = write_lines(instance.home / "threads.jsonl", map(as_import, kept[:most]))
    await run(instance, "import", lines)


@pytest.mark.thorough
async def test_a_week_needs_no_index_and_afterwards_no_service(
    instance: Instance, served: LiteratureServer, samples: list[SampleThread]
) -> None:
    await import_english(instance, samples, 3)
    await run(instance, "curate")
    kept = instance.one("SELECT count(*) FROM curations WHERE outcome = 'kept'")
    assert kept >= 2, instance.places()
    assert instance.one(UNJUDGED) == 0
    status = await run(instance, "status")
    assert "retriever: pubmed + europepmc online; no local index" in status.err
    assert "evidence" not in (await run(instance, "status", "--check", status=None)).out
    week = (await run(instance, "snapshot", "freeze", "--json")).json["version"]

    served.down = True
    instance.change("DELETE FROM literature_answers")
    asked = len(served.asked)
    shutil.rmtree(instance.home / "snapshots" / f"medlive-{week}")
    await run(instance, "snapshot", "freeze", "--week", week)
    await run(instance, "snapshot", "verify", week)
    (thread,) = instance.rows(
        "SELECT t.source || '/' || t.thread_id FROM threads AS t JOIN cases AS c ON c.thread_id = t.id LIMIT 1"
    )[0]
    shown = await run(instance, "thread", "show", thread)
    assert "https://pubmed.ncbi.nlm.nih.gov/1" in "".join(shown.out.split())
    assert len(served.asked) == asked
    folder = instance.home / "snapshots" / f"medlive-{week}"
    (use,) = json.loads((folder / "manifest.json").read_text("utf-8"))["provenance"][
        "evidence"
    ]
    assert use["retriever"] == "pubmed+europepmc"
    assert use["corpora"] == {"europepmc": "online", "pubmed": "online"}
    assert use["index_digest"].startswith("sha256:")


@pytest.mark.thorough
async def test_a_worker_waits_for_a_service_that_is_away_and_decides_nothing_on_a_part(
    instance: Instance, served: LiteratureServer, samples: list[SampleThread]
) -> None:
    await import_english(instance, samples, 3)
    await run(instance, "filter")
    served.down = True
    settings, stop = read_settings(instance.environment()), asyncio.Event()
    worker = asyncio.create_task(
        run_worker(settings, stop, [Queue.CURATE], concurrency=2, grace_s=5)
    )
    waiting = "SELECT count(*) FROM workers WHERE state = 'waiting' AND reason LIKE '%%is not asked since%%'"
    await until(lambda: instance.rows(waiting) == [(1,)])
    assert set(instance.rows(ALIKE)) <= {("failed", "endpoint_unavailable")}
    assert instance.one("SELECT count(*) FROM claim_verdicts") == 0
    assert instance.one(LOST) == 0
    checked = await run(instance, "status", "--check", status=1)
    assert "status 503" in checked.out
    served.down = False
    await run(instance, "circuit", "reset")
    pending = (
        "SELECT count(*) FROM thread_standings WHERE outcome IN ('pending', 'failed')"
    )
    await until(lambda: instance.one(pending) == 0)
    stop.set()
    await asyncio.wait_for(worker, 60)
    assert len(instance.rows(LATEST)) == 3
    assert set(instance.rows(LATEST)) <= {("kept",), ("held",), ("rejected",)}
    assert instance.one(UNJUDGED) == 0


@pytest.mark.thorough
async def test_a_curation_that_met_a_service_that_is_away_goes_on_later(
    instance: Instance, served: LiteratureServer, samples: list[SampleThread]
) -> None:
    await import_english(instance, samples, 2)
    served.down = True
    ended = await run(instance, "curate", status=3)
    assert "is not asked since" in ended.err
    assert set(instance.rows(ALIKE)) <= {("failed", "endpoint_unavailable")}
    served.down = False
    await run(instance, "circuit", "reset")
    await run(instance, "curate")
    assert len(instance.rows(LATEST)) == 2
    assert ("failed",) not in instance.rows(LATEST)
    assert instance.one(LOST) == 0
