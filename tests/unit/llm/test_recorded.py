"""A recorded reply is found by task and inputs whatever the prompt says; where there is none another stands in."""

import json
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput
from medlive.llm.engine import Prompt, Request
from medlive.llm.recorded import (
    RecordedEngine,
    Recording,
    RecordingEngine,
    load_recording,
    save_recording,
)
from medlive.llm.rules.engine import RulesEngine
from tests.support.scripted import Scripted

QUERY = {"language": "en", "query": "Is a rash normal?"}


def request(
    inputs: dict[str, Any],
    wording: str = "Do it.",
    repair: tuple[str, str] | None = None,
) -> Request:
    return Request(
        "validator.query", Prompt("validator.query", wording), inputs, {}, repair=repair
    )


async def recorded() -> Recording:
    recording = Recording("m-1", "2026-11-22", "By hand.")
    model = Scripted(
        {
            "validator.query": {
                "category": "diagnosis",
                "meaningful": True,
                "of_its_time": False,
                "reason": "recorded",
            }
        }
    )
    await RecordingEngine(model, recording).answer(request(QUERY))
    return recording


async def test_a_reply_outlives_a_reworded_prompt_and_nothing_else() -> None:
    engine = RecordedEngine(await recorded(), RulesEngine())
    again = await engine.answer(
        request(dict(reversed(QUERY.items())), "In other words.")
    )
    assert (json.loads(again.text)["reason"], again.model) == ("recorded", "m-1")
    for other in (
        request(QUERY | {"query": "Is a rush normal?"}),
        request(QUERY, repair=("{}", "too short")),
    ):
        stood_in = await engine.answer(other)
        assert stood_in.model == RulesEngine().identity.model
    assert (
        engine.identity.parameters["otherwise"]
        == f"rules {RulesEngine().identity.model}"
    )
    assert not engine.identity.publishable


async def test_a_mended_reply_replaces_the_one_that_was_sent_back() -> None:
    recording = Recording("m-1", "2026-11-22", "By hand.")
    model = Scripted(
        {"validator.query": ["no JSON", {"category": "x"}, {"category": "diagnosis"}]}
    )
    engine = RecordingEngine(model, recording)
    for repair in (None, ("no JSON", "no JSON"), ("{}", "what is x?")):
        await engine.answer(request(QUERY, repair=repair))
    assert [json.loads(text) for _, text in recording.replies.values()] == [
        {"category": "diagnosis"}
    ]


async def test_a_recording_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    recording = await recorded()
    recording.replies["key"] = ("task", json.dumps("a\u2028b\x85", ensure_ascii=False))
    save_recording(recording, tmp_path / "replies.jsonl")
    assert load_recording(tmp_path / "replies.jsonl") == recording


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a recording"),
        ("[]\n", "not a recording"),
        ('{"model": "m"}\n', "made_on"),
        (
            '{"model": "m", "made_on": "d", "how": "h"}\n{"task": "t"}\n',
            "not a recording",
        ),
    ],
)
def test_what_is_no_recording_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match=told):
        load_recording(path)
