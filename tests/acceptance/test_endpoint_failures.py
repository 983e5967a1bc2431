"""An endpoint that is down, rate-limited, broken or talks nonsense: work is `failed`, told, and resumes."""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from medlive.demo.samples import SampleThread
from tests.support.bad_endpoint import Step, bad_endpoint, fails, ok, raw, sends, slow
from tests.support.counting_endpoint import counting_endpoint
from tests.support.instance import Done, Instance, write_lines, write_models
from tests.support.threads import as_import

THREADS = 3
ENDPOINT_GONE = 3
MAX_ATTEMPTS = 2
NewInstance = Callable[..., Instance]


@pytest.fixture
def instance(
    new_instance: NewInstance, samples: list[SampleThread], tmp_path: Path
) -> Instance:
    """An instance with a few threads that pass the filters."""
    instance = new_instance(
        MEDLIVE_CONFIG=str(tmp_path / "config"),
        MEDLIVE_CURATION__MAX_ATTEMPTS=str(MAX_ATTEMPTS),
    )
    write_models(tmp_path / "config", "http://127.0.0.1:9/v1")
    chosen = [t for t in samples if t.expect.outcome == "kept"][:THREADS]
    lines = write_lines(instance.home / "threads.jsonl", map(as_import, chosen))
    (told,) = instance.here("import", lines, "--json").json
    assert told["new"] == THREADS
    return instance


def _point(instance: Instance, url: str, *, timeout_s: float = 30.0) -> None:
    # Generous, so that a busy machine adds no time-outs to those that a test asks for.
    write_models(
        Path(instance.settings["MEDLIVE_CONFIG"]),
        url,
        max_retries=1,
        timeout_s=timeout_s,
    )


async def _do(instance: Instance, *arguments: str, status: int | None = 0) -> Done:
    return await asyncio.to_thread(instance.here, *arguments, status=status)


async def _all_failed(
    instance: Instance, reason: str, *, status: int
) -> list[dict[str, Any]]:
    """Curate, check that every thread failed for that reason and that `status` says so; what it says."""
    done = await _do(instance, "curate", "--json", status=status)
    assert done.json["outcomes"] == {"failed": THREADS}, done.err
    assert done.json["failures"] == {reason: THREADS}
    assert {p[0] for p in instance.places().values()} == {"failed"}
    told = (await _do(instance, "status", "--json", status=None)).json
    assert told["kept"] == 0
    assert [row for row in told["funnel"] if row[1] == "rejected"] == []
    failures: list[dict[str, Any]] = told["failures"]
    assert len(failures) == THREADS
    assert {f["reason"] for f in failures} == {reason}, failures
    assert all(f["detail"] for f in failures)
    return failures


async def _recovers(instance: Instance) -> None:
    async with counting_endpoint() as endpoint:
        _point(instance, endpoint.url)
        done = (await _do(instance, "curate", "--json")).json
        assert sum(done["outcomes"].values()) == THREADS
        assert done["outcomes"].get("failed") is None
        assert {p[0] for p in instance.places().values()} <= {"kept", "rejected"}
        told = (await _do(instance, "status", "--json", status=1)).json
        assert {problem["code"] for problem in told["problems"]} == {"unpriced"}
        assert told["failures"] == []
        asked = endpoint.asked
        assert asked > 0
        assert (await _do(instance, "curate", "--json")).json["outcomes"] == {}
        assert endpoint.asked == asked


TOO_SLOW = slow(1.5, ok("{}"))
NO_ANSWER: dict[str, Step] = {
    "server error": fails(500),
    "rate limit without end": fails(
        429, "slow down", "rate_limit_exceeded", Retry_After="1"
    ),
    "a page of HTML": raw(b"<html><body>Bad gateway</body></html>", "text/html"),
    "bytes that are no JSON": raw(b"\x00\xff{{{", "application/json"),
    "too slow": TOO_SLOW,
}


@pytest.mark.thorough
async def test_an_endpoint_that_gives_no_answer_fails_the_threads_until_it_does(
    instance: Instance,
) -> None:
    # More often than `curation.max_attempts` allows: an attempt that got no answer is not counted.
    for name, step in NO_ANSWER.items():
        async with bad_endpoint([step]) as endpoint:
            _point(instance, endpoint.url, timeout_s=0.5 if step is TOO_SLOW else 30.0)
            await _all_failed(instance, "endpoint_unavailable", status=ENDPOINT_GONE)
            assert endpoint.asked >= 1, name
            checked = await _do(instance, "status", "--check", status=1)
            assert checked.out.startswith(
                f"threads_fail_alike: {THREADS} threads failed alike"
            ), name
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        _point(instance, f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        await _all_failed(instance, "endpoint_unavailable", status=ENDPOINT_GONE)
    assert instance.one("SELECT count(*) FROM replies") == 0
    await _recovers(instance)


@pytest.mark.thorough
async def test_a_dead_key_is_asked_once_and_fails_no_thread(instance: Instance) -> None:
    async with counting_endpoint() as good, bad_endpoint([fails(401)]) as endpoint:
        instance = Instance(
            instance.home,
            instance.url,
            {**instance.settings, "MEDLIVE_CURATION__CONCURRENCY": "1"},
        )
        _point(instance, endpoint.url)
        done = await _do(instance, "curate", "--json", status=ENDPOINT_GONE)
        assert f"status 401: no; threads that wait: {THREADS}" in done.err
        assert (done.json["outcomes"], done.json["left"], endpoint.asked) == (
            {},
            THREADS,
            1,
        )
        attempts = "SELECT count(*) FROM curations"
        again = await _do(instance, "curate", "--json", status=ENDPOINT_GONE)
        assert (again.json["outcomes"], again.json["left"]) == ({}, THREADS)
        assert (
            instance.one(attempts),
            endpoint.asked,
            again.json["spent"]["calls"],
        ) == (0, 1, 0)
        (problem,) = (await _do(instance, "status", "--json", status=1)).json[
            "problems"
        ]
        assert problem["code"] == "circuit_open"
        assert "(rules) is not asked since" in problem["text"]
        instance.change("UPDATE circuits SET retry_at = now()")
        probed = await _do(instance, "curate", "--json", status=ENDPOINT_GONE)
        assert (probed.json["outcomes"], probed.json["left"], endpoint.asked) == (
            {},
            THREADS,
            2,
        )
        assert instance.one("SELECT backoff_s FROM circuits") == 120
        # Another endpoint is another circuit, and the old one's is no problem of this instance.
        _point(instance, good.url)
        assert (
            sum((await _do(instance, "curate", "--json")).json["outcomes"].values())
            == THREADS
        )
        assert (await _do(instance, "status", "--check", status=1)).out.startswith(
            "unpriced: "
        )


async def test_a_thread_takes_no_longer_than_it_may(instance: Instance) -> None:
    limited = {**instance.settings, "MEDLIVE_CURATION__THREAD_TIMEOUT_S": "0.5"}
    instance = Instance(instance.home, instance.url, limited)
    async with bad_endpoint([slow(3, ok("{}"))]) as endpoint:
        _point(instance, endpoint.url)
        failures = await _all_failed(
            instance, "endpoint_unavailable", status=ENDPOINT_GONE
        )
        assert {f["detail"] for f in failures} == {"not decided within 0.5 s"}


@pytest.mark.thorough
async def test_a_rate_limit_is_waited_out_as_long_as_it_asks(
    instance: Instance,
) -> None:
    async with counting_endpoint() as good:
        limited = fails(429, "slow down", "rate_limit_exceeded", Retry_After="1")

        async def forward(body: dict[str, Any]) -> web.StreamResponse:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{good.url}/chat/completions", json=body) as r,
            ):
                return web.json_response(await r.json(), status=r.status)

        async with bad_endpoint([limited, forward]) as endpoint:
            _point(instance, endpoint.url)
            started = time.monotonic()
            done = (await _do(instance, "curate", "--json")).json
            assert time.monotonic() - started >= 1.0
            assert done["outcomes"].get("failed") is None
            assert sum(done["outcomes"].values()) == THREADS
            assert endpoint.asked == instance.one("SELECT count(*) FROM replies") + 1


RUBBISH = (
    "not JSON at all",
    "{}",
    '{"elements": "none"}',
    "[" * 5000,
    '{"nul": "\\u0000 \\ud800"}',
    "",
)


async def test_rubbish_is_kept_repaired_once_and_asked_afresh(
    instance: Instance,
) -> None:
    async with bad_endpoint([ok(answer) for answer in RUBBISH]) as endpoint:
        _point(instance, endpoint.url)
        await _all_failed(instance, "invalid_reply", status=0)
        assert endpoint.asked >= len(RUBBISH)
        assert {text for (text,) in instance.rows("SELECT text FROM replies")} >= set(
            RUBBISH[:4]
        )
        problems = [
            p
            for (p,) in instance.rows(
                "SELECT problem FROM agent_calls WHERE outcome = 'invalid'"
            )
        ]
        assert len(problems) == endpoint.asked
        assert all(problems)
        # Every unusable reply is returned once with its fault.
        assert (
            max(
                attempt
                for (attempt,) in instance.rows("SELECT attempt FROM agent_calls")
            )
            == 2
        )
    await _recovers(instance)


@pytest.mark.thorough
async def test_rubbish_without_end_is_retried_only_on_demand(
    instance: Instance,
) -> None:
    async with bad_endpoint([ok("rubbish")]) as endpoint:
        _point(instance, endpoint.url)
        for _ in range(MAX_ATTEMPTS):
            await _all_failed(instance, "invalid_reply", status=0)
        asked = endpoint.asked
        assert (await _do(instance, "curate", "--json")).json["outcomes"] == {}
        assert endpoint.asked == asked
        done = await _do(instance, "curate", "--retry-failed", "--json")
        assert done.json["outcomes"] == {"failed": THREADS}
        assert endpoint.asked > asked


@pytest.mark.thorough
async def test_failed_threads_are_finished_by_whichever_engine_comes_next(
    instance: Instance,
) -> None:
    async with bad_endpoint([fails(500)]) as endpoint:
        _point(instance, endpoint.url)
        await _all_failed(instance, "endpoint_unavailable", status=ENDPOINT_GONE)
    write_models(
        Path(instance.settings["MEDLIVE_CONFIG"]),
        "http://127.0.0.1:9/v1",
        engine="rules",
    )
    done = (await _do(instance, "curate", "--json")).json
    assert sum(done["outcomes"].values()) == THREADS
    assert done["outcomes"].get("failed") is None


async def test_a_key_that_an_endpoint_echoes_is_stored_and_shown_nowhere(
    instance: Instance,
) -> None:
    key = secrets.token_urlsafe(24)
    # as of a proxy: nobody here knows it, its place says what it is
    stranger = secrets.token_urlsafe(24)
    said = f"no access with {key}; sent was Authorization: Bearer {stranger}"
    steps = [
        fails(500, said),
        fails(400, said),
        raw(f"<html>{said}</html>".encode(), "text/html"),
        sends({"error": {"message": said}}),
        ok(f"I was called with {key}"),
        fails(401, said),
    ]
    instance = Instance(
        instance.home, instance.url, {**instance.settings, "OF_THE_MODEL": key}
    )
    shown = []
    async with bad_endpoint(steps) as endpoint:
        folder = Path(instance.settings["MEDLIVE_CONFIG"])
        write_models(folder, endpoint.url, max_retries=0, api_key_env="OF_THE_MODEL")
        for _ in range(len(steps) // THREADS):
            curate = ("--log-level", "debug", "curate", "--retry-failed", "--json")
            shown += [
                await _do(instance, *curate, status=None),
                await _do(instance, "status", "--json", status=None),
            ]
        shown.append(await _do(instance, "config", "show"))
        assert endpoint.asked >= len(steps)
    assert not [
        text
        for done in shown
        for text in (done.out, done.err)
        if key in text or stranger in text
    ]
    tables = instance.rows(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    )
    stored = [
        row
        for (table,) in tables
        for (row,) in instance.rows(f'SELECT t::text FROM "{table}" t')
    ]
    assert any("status 401" in row for row in stored), "what the endpoint said is kept"
    assert not [row for row in stored if key in row or stranger in row]
