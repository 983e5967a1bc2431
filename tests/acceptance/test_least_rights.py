"""The week's work by processes that sign in to the database as no more than worker and web."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import httpx2
import pytest
from sqlalchemy import make_url

from medlive.db.schema.rights import WEB, WORKER
from medlive.demo.samples import load_sample_threads
from tests.support.instance import Instance, write_lines
from tests.support.threads import as_import
from tests.support.waiting import wait_until

Users = tuple[Instance, Instance, Instance]


@pytest.fixture
def users(new_instance: Callable[..., Instance]) -> Iterator[Users]:
    """One instance, used by the owner, by a worker and by the web."""
    owner = new_instance()
    owner.here("db", "roles")
    names = {role: f"least_{role}" for role in (WORKER, WEB)}
    for role, name in names.items():
        owner.change(f"CREATE ROLE {name} LOGIN IN ROLE {role}")
    url = make_url(owner.url or "")
    others = [
        replace(owner, url=url.set(username=name).render_as_string(hide_password=False))
        for name in names.values()
    ]
    yield owner, others[0], others[1]
    for name in names.values():
        owner.change(f"DROP ROLE {name}")


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2).status_code == 200
    except httpx2.HTTPError:
        return False


@pytest.mark.thorough
def test_a_worker_and_the_web_do_their_work_with_the_least_rights(
    users: Users, free_tcp_port_factory: Callable[[], int]
) -> None:
    owner, worker, web = users
    kept = [t for t in load_sample_threads() if t.expect.outcome == "kept"][:4]
    worker.here(
        "import", write_lines(owner.home / "threads.jsonl", map(as_import, kept))
    )
    health, port = free_tcp_port_factory(), free_tcp_port_factory()
    worker.here("scheduler", "--once", "--json", status=None)
    running = worker.start(
        "worker", "--queues", "all", "--health-port", str(health), "--json"
    )
    serving = web.start("serve", "--part", "metrics", "--port", str(port))
    try:
        wait_until(lambda: _answers(f"http://127.0.0.1:{health}/healthz"))
        wait_until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"))
        worker.here("curate")
        assert owner.one("SELECT count(*) FROM cases") == 4
        frozen = worker.here("snapshot", "freeze", "--json").json
        assert frozen["cases"] == 4
        shown = httpx2.get(f"http://127.0.0.1:{port}/metrics").text
        assert 'medlive_threads{outcome="kept",reason="",stage="rubric"} 4.0' in shown
        assert "medlive_info" in shown
    finally:
        for process in (running, serving):
            os.kill(process.pid, signal.SIGTERM)
    assert owner.finish(running).status == 0
    assert owner.finish(serving).status == 0
    # What only the owner may do is refused in words.
    refused = worker.here(
        "thread",
        "takedown",
        kept[0].source,
        kept[0].thread_id,
        "--reason",
        "x",
        "--yes",
        status=3,
    )
    assert "permission denied" in refused.err
    assert web.here("user", "invite", "ada").status == 0
    assert worker.here("user", "list", status=3).status == 3
