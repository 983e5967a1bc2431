"""What becomes of the calls under way where a pipeline is closed, or the work that made them is broken off."""

import asyncio
from dataclasses import replace

import pytest

from medlive.db.session import Database
from medlive.errors import DatabaseUnavailable
from medlive.llm.engine import Prompt, Reply, Request
from medlive.llm.replay import ReplayEngine
from tests.support.reviewing import pipeline
from tests.support.scripted import Memory, Scripted

UNUSED = Database.connect("postgresql://nobody@127.0.0.1:9/none")
REQUEST = Request("reader.case", Prompt("reader.case", "p"), {}, {"type": "object"})


class Silent(Scripted):
    """An engine that answers when it is let go."""

    def __init__(self) -> None:
        super().__init__({REQUEST.task: {}})
        self.asked, self.go, self.closed = asyncio.Event(), asyncio.Event(), False

    async def answer(self, request: Request) -> Reply:
        self.asked.set()
        await self.go.wait()
        return await super().answer(request)

    async def aclose(self) -> None:
        self.closed = True


async def test_every_engine_is_closed_though_the_closing_is_cancelled() -> None:
    engines = {"reader": Silent(), "rubric": Silent()}
    respondents = {
        role: ReplayEngine(engine, Memory()) for role, engine in engines.items()
    }
    opened = replace(pipeline(UNUSED), respondents=respondents)
    calls = [
        asyncio.create_task(respondent.answer(REQUEST))
        for respondent in respondents.values()
    ]
    for engine in engines.values():
        await engine.asked.wait()
    closing = asyncio.create_task(opened.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert [engine.closed for engine in engines.values()] == [True, True]
    done, _ = await asyncio.wait(calls)
    assert all(call.cancelled() for call in done)


@pytest.mark.parametrize("cause", [DatabaseUnavailable(), asyncio.CancelledError()])
async def test_a_call_is_kept_before_the_work_that_made_it_ends_broken_off(
    cause: BaseException,
) -> None:
    engine, store = Silent(), Memory()
    asks = ReplayEngine(engine, store)
    opened = replace(pipeline(UNUSED), respondents={"reader": asks})

    async def work() -> None:
        async with opened.settled():
            await asyncio.wait([asyncio.ensure_future(asks.answer(REQUEST))], timeout=0)
            raise cause

    working = asyncio.create_task(work())
    done, _ = await asyncio.wait([working], timeout=0.1)
    assert not done
    engine.go.set()
    with pytest.raises(type(cause)):
        await working
    assert await store.find(REQUEST.digest(engine.identity))
