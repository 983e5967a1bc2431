"""`/metrics`: what Prometheus scrapes agrees with the database, and is served apart from the pages."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from medlive.config import Settings
from medlive.db.jobs import Queue
from medlive.db.session import Database
from medlive.guard.circuit import circuit_key, circuit_name
from medlive.service.watch.metrics import NAMES, read_metrics
from medlive.service.work.jobs import defer_revisions, open_app
from medlive.web.app import metrics_room
from tests.support.release import fill
from tests.support.web import served, site_of

Samples = dict[tuple[str, tuple[str, ...]], float]


async def scrape(database: Database, settings: Settings) -> Samples:
    """Metric and values of its labels → its value."""
    text = (await read_metrics(database, settings)).decode()
    families = list(text_string_to_metric_families(text))
    assert {family.name for family in families} <= NAMES.keys()
    return {
        (
            sample.name,
            tuple(sample.labels[label] for label in NAMES[sample.name][1].split()),
        ): sample.value
        for family in families
        for sample in family.samples
    }


async def test_it_counts_what_the_database_holds(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path)
    with psycopg.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        fill(connection, 3)
    app = open_app(database)
    async with app.open_async(), database.begin() as session:
        await defer_revisions(session, [1, 2])
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        query = "SELECT stage, outcome, reason, count(*) FROM thread_standings GROUP BY 1, 2, 3"
        expected = {tuple(row[:3]): row[3] for row in connection.execute(query)}
        paid = connection.execute("SELECT count(*) FROM replies").fetchone()
    samples = await scrape(database, settings)
    assert {
        key[1]: n for key, n in samples.items() if key[0] == "medlive_threads" and n
    } == expected
    assert samples["medlive_jobs", (Queue.CURATE.value, "todo")] == 2
    assert 0 <= samples["medlive_oldest_job_seconds", (Queue.CURATE.value,)] < 3600
    assert (
        sum(n for (name, _), n in samples.items() if name == "medlive_week_replies")
        == (paid or [0])[0]
    )
    assert (
        0
        < samples["medlive_disk_free_bytes", ("home",)]
        <= samples["medlive_disk_size_bytes", ("home",)]
    )
    assert samples["medlive_queue_workers", (Queue.CURATE.value,)] == 0


async def test_a_failed_step_a_quarantine_and_a_circuit_show(
    database: Database,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    endpoint = {"engine": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    settings = Settings.model_validate(
        {"home": tmp_path, "roles": {"screener": endpoint}}
    )
    long_ago = datetime.now(UTC) - timedelta(days=30)
    with psycopg.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        connection.execute(
            "INSERT INTO sources (name, kind, quarantined_at, quarantine_reason) "
            "VALUES ('sdn', 'site', now(), 'layout')"
        )
        connection.execute(
            "INSERT INTO harvest_runs (source, iso_week, outcome, problem, started_at, finished_at) "
            "VALUES ('sdn', '2020.W01', 'failed', 'gone', %s, %s)",
            [long_ago, long_ago],
        )
        connection.execute(
            "INSERT INTO circuits SELECT %s, %s, 'no credit', false, now(), now(), 30",
            [
                circuit_key(endpoint["base_url"], "", "m"),
                circuit_name(endpoint["base_url"], "m"),
            ],
        )
    samples = await scrape(database, settings)
    for code in ("circuit_open", "step_overdue"):
        assert samples["medlive_problem", (code, "page")] == 1
    assert samples["medlive_problem", ("source_quarantined", "ticket")] == 1
    seen = samples["medlive_step_last_run_timestamp_seconds", ("harvest:sdn",)]
    assert abs(seen - long_ago.timestamp()) < 1


async def test_it_is_served_without_an_account_and_beside_no_page(
    database: Database, tmp_path: Path
) -> None:
    site = site_of(database, tmp_path)
    room = metrics_room(partial(read_metrics, database, site.settings))
    async with served(site, [room]) as monitor:
        answer = await monitor.get("/metrics")
        assert (answer.status_code, answer.headers["Content-Type"].split(";")[0]) == (
            200,
            "text/plain",
        )
        assert "medlive_info" in answer.text
        assert (await monitor.get("/readyz")).json()["database"] == "ok"
        assert (await monitor.get("/sign-in")).status_code == 404
    async with served(site) as browser:
        assert (await browser.get("/metrics")).status_code in (404, 303)
