"""A pipeline that is closed by a task which is itself cancelled leaves no call and no connection open."""

import asyncio
from dataclasses import replace

from medlive.db.session import Database
from medlive.llm.engine import Prompt, Reply, Request
from medlive.llm.replay import ReplayEngine
from tests.support.reviewing import pipeline
from tests.support.scripted import Memory, Scripted

REQUEST = Request("reader.case", Prompt("reader.case", "p"), {}, {"type": "object"})


class Silent(Scripted):
    """An engine that never answers."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked, self.closed = asyncio.Event(), False

    async def answer(self, request: Request) -> Reply:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def aclose(self) -> None:
        self.closed = True


async def test_every_engine_is_closed_though_the_closing_is_cancelled() -> None:
    engines = {"reader": Silent(), "rubric": Silent()}
    respondents = {
        role: ReplayEngine(engine, Memory()) for role, engine in engines.items()
    }
    database = Database.connect("postgresql://nobody@127.0.0.1:9/none")  # unused
    opened = replace(pipeline(database), respondents=respondents)
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
