"""Nothing is paid for twice: not at once, and not after a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import EndpointUnavailable
from medlive.llm.budget import Budget, BudgetSpent
from medlive.llm.engine import Finish, Prompt, Reply, Request
from medlive.llm.registry import Price
from medlive.llm.replay import ReplayEngine
from tests.support.bad_endpoint import (
    BadEndpoint,
    Step,
    bad_endpoint,
    completion,
    fails,
    ok,
    sends,
    slow,
)
from tests.support.engines import engine_at
from tests.support.reply_store import store_of


def request(number: int = 0, **more: Any) -> Request:
    return Request(
        "grader.criterion",
        Prompt("grader.criterion", "p"),
        {"n": number, **more},
        {"type": "object"},
    )


def asking(
    endpoint: BadEndpoint, folder: Path, budget: Budget | None = None, **more: Any
) -> ReplayEngine:
    inner = engine_at(
        "m", endpoint.url, "", **{"max_retries": 0, "backoff_s": 0.01, **more}
    )
    return ReplayEngine(inner, store_of(folder), budget)


async def test_a_reply_is_paid_once_even_after_a_restart(tmp_path: Path) -> None:
    async with bad_endpoint([ok("one"), ok("two")]) as endpoint:
        engine = asking(endpoint, tmp_path)
        first = await engine.answer(request())
        assert (first.text, first.replayed) == ("one", False)
        first = await engine.answer(request())
        assert (first.text, first.replayed) == ("one", True)
        await engine.aclose()

        engine = asking(endpoint, tmp_path)
        again = await engine.answer(request())
        assert (again, again.replayed) == (first, True)
        assert endpoint.asked == 1
        assert (await engine.answer(request(1))).text == "two"
        await engine.aclose()


async def test_what_makes_another_request_is_asked_anew(tmp_path: Path) -> None:
    async with bad_endpoint([ok("x")]) as endpoint:
        plain = request()
        others = [
            plain,
            request(1),
            Request("grader.rubric", plain.prompt, plain.inputs, plain.schema),
            Request(
                plain.task, Prompt(plain.task, "other"), plain.inputs, plain.schema
            ),
            Request(plain.task, plain.prompt, plain.inputs, {"type": "array"}),
            Request(
                plain.task, plain.prompt, plain.inputs, plain.schema, ("raw", "problem")
            ),
        ]
        engine = asking(endpoint, tmp_path)
        for other in others:
            await engine.answer(other)
        await engine.aclose()
        engine = asking(endpoint, tmp_path, parameters={"temperature": 1})
        await engine.answer(plain)
        await engine.aclose()
        assert endpoint.asked == len(others) + 1


async def test_equal_requests_at_once_share_one_call(tmp_path: Path) -> None:
    async with bad_endpoint([slow(0.1, ok("x"))]) as endpoint:
        engine = asking(endpoint, tmp_path)
        got = await asyncio.gather(*(engine.answer(request(i % 3)) for i in range(60)))
        assert endpoint.asked == 3
        assert sum(not reply.replayed for reply in got) == 3
        await engine.aclose()


async def test_a_caller_who_leaves_takes_nothing_from_the_others(
    tmp_path: Path,
) -> None:
    async with bad_endpoint([slow(0.15, ok("x"))]) as endpoint:
        engine = asking(endpoint, tmp_path)
        leaver = asyncio.create_task(engine.answer(request()))
        stayer = asyncio.create_task(engine.answer(request()))
        lonely = asyncio.create_task(engine.answer(request(1)))
        await asyncio.sleep(0.05)
        leaver.cancel()
        lonely.cancel()
        assert (await stayer).text == "x"
        await engine.aclose()
        assert endpoint.asked == 2

        engine = asking(endpoint, tmp_path)
        assert (await engine.answer(request(1))).replayed is True, (
            "paid for, so kept although nobody waited"
        )
        await engine.aclose()


async def test_a_failure_reaches_every_waiter_and_is_not_kept(tmp_path: Path) -> None:
    async with bad_endpoint([slow(0.05, fails(500)), ok("x")]) as endpoint:
        engine = asking(endpoint, tmp_path)
        got = await asyncio.gather(
            *(engine.answer(request()) for _ in range(5)), return_exceptions=True
        )
        assert all(isinstance(one, EndpointUnavailable) for one in got)
        assert endpoint.asked == 1
        assert (await engine.answer(request())).text == "x"
        await engine.aclose()


async def test_truncated_and_refused_replies_are_kept_too(tmp_path: Path) -> None:
    cut, refused = completion('{"a', finish="length"), completion(None, refusal="no")
    async with bad_endpoint([sends(cut), sends(refused)]) as endpoint:
        engine = asking(endpoint, tmp_path)
        for number, finish in ((0, Finish.LENGTH), (1, Finish.REFUSAL)):
            assert (await engine.answer(request(number))).finish is finish
            reply = await engine.answer(request(number))
            assert (reply.finish, reply.replayed) == (finish, True)
        await engine.aclose()


async def test_a_budget_of_calls_holds_exactly_and_replays_are_free(
    tmp_path: Path,
) -> None:
    async with bad_endpoint([slow(0.02, ok("x"))]) as endpoint:
        engine = asking(endpoint, tmp_path, Budget(max_calls=7))
        got = await asyncio.gather(
            *(engine.answer(request(i)) for i in range(20)), return_exceptions=True
        )
        assert sum(isinstance(one, BudgetSpent) for one in got) == 13
        assert endpoint.asked == 7
        done = next(i for i, one in enumerate(got) if isinstance(one, Reply))
        assert (await engine.answer(request(done))).replayed is True
        await engine.aclose()


async def test_a_budget_of_dollars_or_tokens_stops_the_next_call(
    tmp_path: Path,
) -> None:
    for budget in (Budget(max_usd=0.002), Budget(max_tokens=2000)):
        async with bad_endpoint([ok("x")]) as endpoint:
            engine = asking(
                endpoint,
                tmp_path / str(budget.max_tokens),
                budget,
                price=Price(input=1.0, output=1.0),
            )
            await engine.answer(request(0))
            await engine.answer(request(1))
            with pytest.raises(BudgetSpent):
                await engine.answer(request(2))
            assert endpoint.asked == 2
            await engine.aclose()


@pytest.mark.parametrize("limits", [{"max_tokens": 12_000}, {"max_usd": 0.012}])
async def test_calls_at_once_do_not_overshoot_a_budget(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    async with bad_endpoint(
        [slow(0.01, ok("x"))]
    ) as endpoint:  # 1100 tokens and 0.0011 dollars a call
        budget = Budget(**limits)
        engine = asking(
            endpoint,
            tmp_path,
            budget,
            price=Price(input=1.0, output=1.0),
            parameters={"max_tokens": 1100},
        )
        got = await asyncio.gather(
            *(engine.answer(request(i)) for i in range(40)), return_exceptions=True
        )
        assert (
            endpoint.asked == 11
        )  # ten fit whole; the last is made while something is left
        assert sum(isinstance(one, BudgetSpent) for one in got) == 29
        assert budget.tokens == 12_100
        assert "is spent" in (budget.stopped or "")
        assert endpoint.most_under_way > 3
        await engine.aclose()


async def test_a_call_that_failed_gives_its_reservation_back(tmp_path: Path) -> None:
    async with bad_endpoint([fails(500), ok("x")]) as endpoint:
        budget = Budget(max_tokens=1200)
        engine = asking(
            endpoint, tmp_path, budget, parameters={"max_completion_tokens": 1000}
        )
        with pytest.raises(EndpointUnavailable):
            await engine.answer(request(0))
        assert (budget.calls, budget.tokens) == (1, 0)
        assert (await engine.answer(request(1))).text == "x"
        await engine.aclose()


async def test_every_attempt_is_counted_with_what_it_took(tmp_path: Path) -> None:
    silent = sends(completion(None))
    async with bad_endpoint(
        [silent, fails(500), ok("x"), silent, silent, silent]
    ) as endpoint:
        budget = Budget(max_tokens=10**6)
        engine = engine_at(
            "m",
            endpoint.url,
            max_retries=2,
            backoff_s=0.0,
            price=Price(input=1.0, output=1.0),
        )
        asked = ReplayEngine(engine, store_of(tmp_path), budget)
        reply = await asked.answer(request(0))
        one = completion("x")["usage"]["total_tokens"]
        assert (reply.text, reply.usage.input_tokens + reply.usage.output_tokens) == (
            "x",
            2 * one,
        )
        assert (budget.calls, budget.tokens) == (3, 2 * one)
        with pytest.raises(EndpointUnavailable):
            await asked.answer(request(1))
        assert (budget.calls, budget.tokens) == (6, 5 * one)
        await asked.aclose()


TOOL_CALL = sends(completion(None, finish="tool_calls", tool_calls=[{"id": "1"}]))


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("limit", "most"),
    [({"max_calls": 5}, 5), ({"max_tokens": 3300}, 3), ({"max_usd": 0.0033}, 3)],
)
@pytest.mark.parametrize(
    "step", [TOOL_CALL, sends(completion("")), sends(completion(None))]
)
async def test_a_budget_binds_the_attempts_of_a_call_too(
    tmp_path: Path, limit: dict[str, Any], most: int, step: Step
) -> None:
    async with bad_endpoint([step]) as endpoint:
        budget = Budget(**limit)
        engine = engine_at(
            "m",
            endpoint.url,
            backoff_s=0.0,
            price=Price(input=1.0, output=1.0),
            parameters={"max_tokens": 1100},
        )
        asked = ReplayEngine(engine, store_of(tmp_path), budget)
        got = await asyncio.gather(
            *(asked.answer(request(i)) for i in range(8)), return_exceptions=True
        )
        # Of what is charged afterwards, one request under way may go past the limit: here all have been charged.
        assert endpoint.asked == budget.calls == most
        assert budget.stopped
        assert budget.tokens == most * completion("x")["usage"]["total_tokens"]
        assert all(
            isinstance(one, EndpointUnavailable | BudgetSpent | Reply) for one in got
        )
        await asked.aclose()


async def test_a_looser_way_of_asking_for_json_is_a_request_of_the_budget(
    tmp_path: Path,
) -> None:
    async with bad_endpoint([fails(400, "no response_format")]) as endpoint:
        budget = Budget(max_calls=2)
        engine = asking(endpoint, tmp_path, budget)
        with pytest.raises(BudgetSpent):
            await engine.answer(request(0))
        assert endpoint.asked == budget.calls == 2
        await engine.aclose()


async def test_an_endpoint_that_reports_no_usage_is_charged_an_upper_bound(
    tmp_path: Path,
) -> None:
    async with bad_endpoint(
        [sends({**completion("x" * 1000), "usage": None})]
    ) as endpoint:
        budget = Budget(max_tokens=6000, max_usd=1)
        more = {
            "parameters": {"max_tokens": 1000},
            "price": Price(input=1.0, output=1.0),
        }
        engine = asking(endpoint, tmp_path, budget, **more)
        got = await asyncio.gather(
            *(engine.answer(request(i)) for i in range(9)), return_exceptions=True
        )
        replies = [one for one in got if isinstance(one, Reply)]
        assert 1 < len(replies) < 9
        assert all(reply.usage.estimated for reply in replies)
        assert budget.as_json()["estimated_calls"] == len(replies)
        assert (
            budget.usd
            == pytest.approx(sum(r.usage.cost_usd or 0 for r in replies))
            == budget.tokens / 1e6
        )
        await engine.aclose()


async def test_a_budget_in_dollars_refuses_a_model_without_a_price(
    tmp_path: Path,
) -> None:
    async with bad_endpoint([ok("x")]) as endpoint:
        budget = Budget(max_usd=5)
        engine = asking(endpoint, tmp_path, budget)
        with pytest.raises(BudgetSpent):
            await engine.answer(request())
        assert endpoint.asked == 0
        await engine.aclose()
        budget = Budget(max_calls=5)
        engine = asking(endpoint, tmp_path, budget)
        await engine.answer(request())
        assert budget.as_json()["usd"] is None
        assert budget.as_json()["unpriced_calls"] == 1
        await engine.aclose()
