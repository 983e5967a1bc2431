"""The circuit breaker: what opens it, that nothing is asked while it is open, and how it closes."""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive import clock
from medlive.errors import CallerRefused, CircuitOpen, EndpointUnavailable
from medlive.guard import circuit as module
from medlive.guard.circuit import BACKOFF_S, MOST_BACKOFF_S, Circuit, Opening
from medlive.llm.ask import Asker, Unusable
from medlive.llm.budget import Budget
from medlive.llm.engine import Prompt, Reply, Request
from medlive.llm.limiter import Limiters
from medlive.llm.openai import OpenAIEngine
from medlive.llm.replay import ReplayEngine
from tests.support.bad_endpoint import bad_endpoint, fails, ok, slow
from tests.support.engines import engine_at
from tests.support.reply_store import Memory

REQUEST = Request(
    "grader.criterion", Prompt("grader.criterion", "x"), {"n": 1}, {"type": "object"}
)
GOOD = ok("{}")


class MemoryCircuits:
    """A CircuitStore."""

    def __init__(self) -> None:
        self._open: dict[str, Opening | None] = {}

    async def find(self, key: str) -> Opening | None:
        """See CircuitStore."""
        return self._open.get(key)

    async def swap(self, key: str, known: Opening | None, new: Opening | None) -> bool:
        """See CircuitStore."""
        if same := self._open.get(key) == known:
            self._open[key] = new
        return same


class Time:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.moment, self.seconds = clock.now(), 0.0

    def now(self) -> datetime:
        return self.moment

    def turn(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
        self.seconds += seconds


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Time:
    moment = Time()
    monkeypatch.setattr(module, "now", moment.now)
    return moment


def engine(url: str, **more: Any) -> OpenAIEngine:
    return engine_at(
        "m-1", url, "sk-very-secret", **{"backoff_s": 0.0, "max_retries": 0, **more}
    )


async def outcomes(asked: OpenAIEngine | ReplayEngine, times: int) -> list[type | None]:
    async def one(number: int) -> type | None:
        request = Request(REQUEST.task, REQUEST.prompt, {"n": number}, REQUEST.schema)
        try:
            await asked.answer(request)
        except EndpointUnavailable as error:
            return type(error)
        return None

    return [await one(n) for n in range(times)]


@pytest.mark.parametrize(("status", "times"), [(401, 1), (402, 1), (403, 3), (404, 3)])
async def test_a_caller_who_is_refused_asks_a_few_times_and_then_once_a_back_off(
    status: int, times: int, turned: Time
) -> None:
    async with bad_endpoint([fails(status)] * (times + 1) + [GOOD]) as endpoint:
        asked = engine(endpoint.url)
        assert await outcomes(asked, 10) == [CallerRefused] * times + [CircuitOpen] * (
            10 - times
        )
        assert endpoint.asked == times
        turned.turn(61)
        found = await asyncio.gather(*(outcomes(asked, 1) for _ in range(10)))
        assert sorted(str(f) for [f] in found) == sorted(
            str(f) for f in [CallerRefused] + [CircuitOpen] * 9
        )
        assert endpoint.asked == times + 1
        turned.turn(61)
        assert await outcomes(asked, 1) == [CircuitOpen]  # the back-off has doubled
        turned.turn(60)
        assert await outcomes(asked, 10) == [None] * 10
        await asked.aclose()


async def test_a_key_that_is_refused_fails_no_request(turned: Time) -> None:
    budget = Budget()
    async with bad_endpoint([fails(401)]) as endpoint:
        asker = Asker(asked := ReplayEngine(engine(endpoint.url), Memory(), budget))
        for calls in (1, 2):  # the one that opens it, and the one that is let through
            with pytest.raises(CircuitOpen):
                await asker.ask(REQUEST, lambda reply: reply.text)
            assert budget.calls == endpoint.asked == calls
            turned.turn(301)
        await asked.aclose()


async def test_an_endpoint_that_hangs_is_given_up_and_no_budget_is_charged(
    turned: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAILING_S", 0.1)
    budget = Budget()
    async with bad_endpoint([slow(60, GOOD)]) as endpoint:
        asked = ReplayEngine(
            engine(endpoint.url, timeout_s=0.1, max_retries=5), Memory(), budget
        )
        found = await asyncio.gather(*(outcomes(asked, 3) for _ in range(24)))
        assert {kind for kinds in found for kind in kinds} <= {
            EndpointUnavailable,
            CircuitOpen,
        }
        calls = budget.calls
        # Of 24 × 3 × 6; one may be given up before the endpoint has seen it.
        assert endpoint.asked <= calls < 40
        assert await outcomes(asked, 5) == [CircuitOpen] * 5
        assert budget.calls == calls
        await asked.aclose()


async def test_a_short_outage_or_a_third_of_faults_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = Time()
    monkeypatch.setattr(time, "monotonic", lambda: passed.seconds)
    circuit, draw = Circuit("k", "e"), random.Random(7)
    for _ in range(40):  # many at once, as when the endpoint is started again
        await circuit.failed("reset", passed.seconds)
    await circuit.answered()
    for _ in range(5000):
        passed.turn(5)
        await (
            circuit.failed("500", passed.seconds - 1)
            if draw.random() < 0.3
            else circuit.answered()
        )
        await circuit.check()


async def test_a_wall_of_unusable_replies_opens_it_and_one_that_is_usable_closes_it(
    turned: Time,
) -> None:
    usable = False

    def read(reply: Reply) -> str:
        if not usable:
            raise Unusable("no quote")
        return reply.text

    async with bad_endpoint([GOOD]) as endpoint:
        asker = Asker(asked := engine(endpoint.url, pinned=False), repairs=0)
        for _ in range(12):
            await asker.ask(REQUEST, read)
        with pytest.raises(CircuitOpen):
            await asker.ask(REQUEST, read)
        turned.turn(301)
        await asker.ask(REQUEST, read)  # answered, and again not usable
        with pytest.raises(CircuitOpen):
            await asker.ask(REQUEST, read)
        usable = True
        turned.turn(601)
        assert [(await asker.ask(REQUEST, read)).value for _ in range(3)] == ["{}"] * 3
        assert endpoint.asked == 12 + 1 + 3
        await asked.aclose()


async def test_roles_and_processes_share_what_is_open(turned: Time) -> None:
    store = MemoryCircuits()
    here, there = Limiters(store), Limiters(store)
    one, same = (here.circuit(f"http://h/v1{end}", "k", "m") for end in ("", "/"))
    assert one is same
    other, another_model = (
        there.circuit("http://h/v1", " k", "m"),
        there.circuit("http://h/v1", "k", "n"),
    )
    for _ in range(3):
        await one.refused("status 401: no")
    with pytest.raises(CircuitOpen):
        await other.check()
    await another_model.check()
    turned.turn(301)
    await other.check()  # probes
    with pytest.raises(CircuitOpen):
        await one.check()
    await other.answered()
    await one.check()
    await one.refused("status 401: no")  # it takes three again
    await one.check()


async def test_a_clock_that_was_set_back_keeps_nothing_open_for_weeks(
    turned: Time,
) -> None:
    circuit = Circuit("k", "e")
    for _ in range(3):
        await circuit.refused("no")
    turned.turn(-21 * 86_400)
    await circuit.check()


EVENTS = st.lists(st.sampled_from(["call", "wait"]), max_size=120)


@given(EVENTS, st.integers(2, 4))
def test_while_all_fails_each_back_off_lets_one_call_through(
    events: list[str], processes: int
) -> None:
    async def live(patch: Callable[[str, object], None]) -> None:
        turned, store = Time(), MemoryCircuits()
        patch("now", turned.now)
        circuits = [Circuit("k", "e", store) for _ in range(processes)]
        through: list[float] = []
        for number, event in enumerate(events):
            if event == "wait":
                turned.turn(BACKOFF_S)
                continue
            circuit = circuits[number % processes]
            try:
                await circuit.check()
            except CircuitOpen:
                continue
            through.append(turned.seconds)
            await circuit.refused("no")
        probes = through[3 * processes :]
        assert all(
            later - before >= min(2 * BACKOFF_S, MOST_BACKOFF_S)
            for before, later in pairwise(probes)
        )

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(live(lambda name, value: monkeypatch.setattr(module, name, value)))
