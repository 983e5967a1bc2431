"""Nothing is paid for twice: not at once, not after a restart, not after a crash in the middle of a line."""

import asyncio
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import EndpointUnavailable, UsageError
from medlive.llm.budget import Budget, BudgetSpent
from medlive.llm.engine import EngineIdentity, Finish, Prompt, Reply, Request, Usage
from medlive.llm.openai import OpenAIEngine, Price
from medlive.llm.replay import FILE_NAME, FileReplyStore, ReplayEngine
from tests.support.bad_endpoint import BadEndpoint, bad_endpoint, completion, fails, ok, sends, slow


def request(number: int = 0, **more: Any) -> Request:
    return Request("grader.criterion", Prompt("grader.criterion", "p"), {"n": number, **more}, {"type": "object"})


def asking(endpoint: BadEndpoint, folder: Path, budget: Budget | None = None, **more: Any) -> ReplayEngine:
    inner = OpenAIEngine("m", endpoint.url, "", **{"max_retries": 0, "backoff_s": 0.01, **more})
    return ReplayEngine(inner, FileReplyStore(folder), budget)


async def closed(engine: ReplayEngine) -> None:
    await engine.aclose()
    engine._store.close()  # type: ignore[attr-defined]


async def test_a_reply_is_paid_once_even_after_a_restart(tmp_path: Path) -> None:
    async with bad_endpoint([ok("one"), ok("two")]) as endpoint:
        engine = asking(endpoint, tmp_path)
        first = await engine.answer(request())
        assert (first.text, first.replayed) == ("one", False)
        first = await engine.answer(request())
        assert (first.text, first.replayed) == ("one", True)
        await closed(engine)

        engine = asking(endpoint, tmp_path)
        again = await engine.answer(request())
        assert (again, again.replayed) == (first, True)
        assert endpoint.asked == 1
        assert (await engine.answer(request(1))).text == "two"
        await closed(engine)


async def test_what_makes_another_request_is_asked_anew(tmp_path: Path) -> None:
    async with bad_endpoint([ok("x")]) as endpoint:
        plain = request()
        others = [
            plain,
            request(1),
            Request("grader.rubric", plain.prompt, plain.inputs, plain.schema),
            Request(plain.task, Prompt(plain.task, "other"), plain.inputs, plain.schema),
            Request(plain.task, plain.prompt, plain.inputs, {"type": "array"}),
            Request(plain.task, plain.prompt, plain.inputs, plain.schema, ("raw", "problem")),
        ]
        engine = asking(endpoint, tmp_path)
        for other in others:
            await engine.answer(other)
        await closed(engine)
        engine = asking(endpoint, tmp_path, parameters={"temperature": 1})
        await engine.answer(plain)
        await closed(engine)
        assert endpoint.asked == len(others) + 1


async def test_equal_requests_at_once_share_one_call(tmp_path: Path) -> None:
    async with bad_endpoint([slow(0.1, ok("x"))]) as endpoint:
        engine = asking(endpoint, tmp_path)
        got = await asyncio.gather(*(engine.answer(request(i % 3)) for i in range(60)))
        assert endpoint.asked == 3
        assert sum(not reply.replayed for reply in got) == 3
        await closed(engine)


async def test_a_caller_who_leaves_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async with bad_endpoint([slow(0.15, ok("x"))]) as endpoint:
        engine = asking(endpoint, tmp_path)
        leaver = asyncio.create_task(engine.answer(request()))
        stayer = asyncio.create_task(engine.answer(request()))
        lonely = asyncio.create_task(engine.answer(request(1)))
        await asyncio.sleep(0.05)
        leaver.cancel()
        lonely.cancel()
        assert (await stayer).text == "x"
        await closed(engine)
        assert endpoint.asked == 2

        engine = asking(endpoint, tmp_path)
        assert (await engine.answer(request(1))).replayed is True, "paid for, so kept although nobody waited"
        await closed(engine)


async def test_a_failure_reaches_every_waiter_and_is_not_kept(tmp_path: Path) -> None:
    async with bad_endpoint([slow(0.05, fails(500)), ok("x")]) as endpoint:
        engine = asking(endpoint, tmp_path)
        got = await asyncio.gather(*(engine.answer(request()) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(one, EndpointUnavailable) for one in got)
        assert endpoint.asked == 1
        assert (await engine.answer(request())).text == "x"
        await closed(engine)


async def test_truncated_and_refused_replies_are_kept_too(tmp_path: Path) -> None:
    cut, refused = completion('{"a', finish="length"), completion(None, refusal="no")
    async with bad_endpoint([sends(cut), sends(refused)]) as endpoint:
        engine = asking(endpoint, tmp_path)
        for number, finish in ((0, Finish.LENGTH), (1, Finish.REFUSAL)):
            assert (await engine.answer(request(number))).finish is finish
            reply = await engine.answer(request(number))
            assert (reply.finish, reply.replayed) == (finish, True)
        await closed(engine)


async def test_a_budget_of_calls_holds_exactly_and_replays_are_free(tmp_path: Path) -> None:
    async with bad_endpoint([slow(0.02, ok("x"))]) as endpoint:
        engine = asking(endpoint, tmp_path, Budget(max_calls=7))
        got = await asyncio.gather(*(engine.answer(request(i)) for i in range(20)), return_exceptions=True)
        assert sum(isinstance(one, BudgetSpent) for one in got) == 13
        assert endpoint.asked == 7
        done = next(i for i, one in enumerate(got) if isinstance(one, Reply))
        assert (await engine.answer(request(done))).replayed is True
        await closed(engine)


async def test_a_budget_of_dollars_or_tokens_stops_the_next_call(tmp_path: Path) -> None:
    for budget in (Budget(max_usd=0.002), Budget(max_tokens=2000)):
        async with bad_endpoint([ok("x")]) as endpoint:
            engine = asking(endpoint, tmp_path / str(budget.max_tokens), budget, price=Price(1.0, 1.0))
            await engine.answer(request(0))
            await engine.answer(request(1))
            with pytest.raises(BudgetSpent):
                await engine.answer(request(2))
            assert endpoint.asked == 2
            await closed(engine)


@pytest.mark.parametrize("limits", [{"max_tokens": 12_000}, {"max_usd": 0.012}])
async def test_calls_at_once_do_not_overshoot_a_budget(tmp_path: Path, limits: dict[str, Any]) -> None:
    async with bad_endpoint([slow(0.01, ok("x"))]) as endpoint:  # 1100 tokens and 0.0011 dollars a call
        budget = Budget(**limits)
        engine = asking(endpoint, tmp_path, budget, price=Price(1.0, 1.0), parameters={"max_tokens": 1100})
        got = await asyncio.gather(*(engine.answer(request(i)) for i in range(40)), return_exceptions=True)
        assert endpoint.asked == 11  # ten fit whole; the last is made while something is left
        assert sum(isinstance(one, BudgetSpent) for one in got) == 29
        assert budget.tokens == 12_100
        assert "is spent" in (budget.stopped or "")
        assert endpoint.most_under_way > 3
        await closed(engine)


async def test_a_call_that_failed_gives_its_reservation_back(tmp_path: Path) -> None:
    async with bad_endpoint([fails(500), ok("x")]) as endpoint:
        budget = Budget(max_tokens=1200)
        engine = asking(endpoint, tmp_path, budget, parameters={"max_completion_tokens": 1000})
        with pytest.raises(EndpointUnavailable):
            await engine.answer(request(0))
        assert (budget.calls, budget.tokens) == (1, 0)
        assert (await engine.answer(request(1))).text == "x"
        await closed(engine)


async def test_every_attempt_is_counted_with_what_it_took(tmp_path: Path) -> None:
    silent = sends(completion(None))
    async with bad_endpoint([silent, fails(500), ok("x"), silent, silent, silent]) as endpoint:
        budget = Budget(max_tokens=10**6)
        engine = OpenAIEngine("m", endpoint.url, max_retries=2, backoff_s=0.0, price=Price(1.0, 1.0))
        with FileReplyStore(tmp_path) as store:
            asked = ReplayEngine(engine, store, budget)
            reply = await asked.answer(request(0))
            one = completion("x")["usage"]["total_tokens"]
            assert (reply.text, reply.attempts, reply.usage.input_tokens + reply.usage.output_tokens) == (
                "x", 3, 2 * one,
            )  # fmt: skip
            assert (budget.calls, budget.tokens) == (3, 2 * one)
            with pytest.raises(EndpointUnavailable):
                await asked.answer(request(1))
            assert (budget.calls, budget.tokens) == (6, 5 * one)
            await asked.aclose()


async def test_an_endpoint_that_tells_no_usage_is_charged_its_estimate(tmp_path: Path) -> None:
    async with bad_endpoint([sends({**completion("x"), "usage": None})]) as endpoint:
        budget = Budget(max_tokens=2500, max_usd=1)
        more = {"parameters": {"max_tokens": 1000}, "price": Price(1.0, 1.0)}
        engine = asking(endpoint, tmp_path, budget, **more)
        got = await asyncio.gather(*(engine.answer(request(i)) for i in range(9)), return_exceptions=True)
        assert sum(isinstance(one, Reply) for one in got) == 3
        assert budget.as_json()["estimated_calls"] == 3
        assert budget.usd > 0.003
        await closed(engine)


async def test_a_budget_in_dollars_refuses_a_model_without_a_price(tmp_path: Path) -> None:
    async with bad_endpoint([ok("x")]) as endpoint:
        budget = Budget(max_usd=5)
        engine = asking(endpoint, tmp_path, budget)
        with pytest.raises(BudgetSpent, match="no price"):
            await engine.answer(request())
        assert endpoint.asked == 0
        await closed(engine)
        budget = Budget(max_calls=5)
        engine = asking(endpoint, tmp_path, budget)
        await engine.answer(request())
        assert budget.as_json()["usd"] is None
        assert budget.as_json()["unpriced_calls"] == 1
        await closed(engine)


IDENTITY = EngineIdentity("openai", "m", {"temperature": 0})


def reply(text: str) -> Reply:
    return Reply(text, Finish.STOP, Usage(3, 1, 2, 0.25, 7.5), "m-as-served")


TEXTS = st.lists(st.text(st.characters() | st.sampled_from("\ud83d\x00\n\r\u2028é你")), min_size=1, max_size=8)


@settings(deadline=None, max_examples=60)
@given(TEXTS, st.data())
def test_whatever_tears_the_file_only_the_torn_line_is_lost(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("store")

    async def keep(store: FileReplyStore, number: int) -> None:
        await store.keep(f"sha256:{number}", request(number), IDENTITY, reply(texts[number]))

    with FileReplyStore(folder) as store:
        for number in range(len(texts)):
            asyncio.run(keep(store, number))
    whole = (folder / FILE_NAME).read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    (folder / FILE_NAME).write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")

    with FileReplyStore(folder) as store:
        assert len(store) == kept
        assert store.damaged == (0 if whole[:cut].endswith(b"\n") or cut == 0 else 1)
        for number in range(len(texts)):
            found = asyncio.run(store.find(f"sha256:{number}"))
            assert found == (reply(texts[number]) if number < kept else None)
        for number in range(kept, len(texts)):
            asyncio.run(keep(store, number))
    assert (folder / FILE_NAME).read_bytes() == whole


async def test_lines_that_are_no_replies_are_passed_over_and_counted(tmp_path: Path) -> None:
    with FileReplyStore(tmp_path) as store:
        await store.keep("sha256:1", request(), IDENTITY, reply("first"))
    with (tmp_path / FILE_NAME).open("ab") as file:
        for line in (b"\xff\xfe\n", b"\n", b"[]\n", b'{"request": "sha256:2"}\n', b"[" * 9000 + b"\n"):
            file.write(line)
        file.write(b'{"request":"sha256:3","reply":{"text":"","finish":"eh","model":"","usage":{}}}\n')
    with FileReplyStore(tmp_path) as store:
        assert (len(store), store.damaged) == (1, 6)
        await store.keep("sha256:2", request(), IDENTITY, reply("second"))
        assert await store.find("sha256:1") == reply("first")
        assert await store.find("sha256:2") == reply("second")


def test_a_second_process_is_told_to_wait(tmp_path: Path) -> None:
    with FileReplyStore(tmp_path), pytest.raises(UsageError, match="in use"):
        FileReplyStore(tmp_path)
    with FileReplyStore(tmp_path):
        pass


def _write_for_ever(folder: str, ready: Any) -> None:
    async def go() -> None:
        store = FileReplyStore(Path(folder))
        for number in range(1_000_000):
            await store.keep(f"sha256:{number}", request(number), IDENTITY, reply(f"{number} " * 200))
            if number == 50:
                ready.set()

    asyncio.run(go())


async def test_a_killed_writer_loses_no_reply_that_it_had_kept(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    writer = context.Process(target=_write_for_ever, args=(str(tmp_path), ready))
    writer.start()
    assert ready.wait(30)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    with FileReplyStore(tmp_path) as store:
        assert len(store) > 50
        assert store.damaged <= 1
        for number in range(len(store)):
            found = await store.find(f"sha256:{number}")
            assert found.text == f"{number} " * 200
    for line in (tmp_path / FILE_NAME).read_bytes().splitlines():
        assert json.loads(line)["engine"] == "openai"
