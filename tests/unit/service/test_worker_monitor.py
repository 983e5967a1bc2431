"""What a worker's monitor does when the worker may not be reported."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from medlive.config import Settings
from medlive.db.jobs import Queue
from medlive.errors import DatabaseForbidden
from medlive.service.work import worker
from medlive.service.work.worker import Monitor


async def test_a_worker_that_may_not_be_reported_goes_on_and_logs_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "HEARTBEAT_S", 0)
    looks, stop = 0, asyncio.Event()

    class Forbidden(Monitor):
        async def look(self) -> None:
            nonlocal looks
            looks += 1
            if looks == 3:
                stop.set()
            raise DatabaseForbidden("no right to INSERT on workers")

    jobs: Any = SimpleNamespace()
    monitor = Forbidden([Queue.CURATE], jobs, None, Settings(home=tmp_path), stop)
    looking = asyncio.create_task(monitor.keep_looking())
    await asyncio.wait_for(stop.wait(), 10)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 1
    assert "cannot be reported: no right to INSERT on workers" in logged[0]
