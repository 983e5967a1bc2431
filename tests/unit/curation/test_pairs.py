"""Pairs of words and statement, faithful or distorted, through the control of elements with recorded verdicts.

The pairs were written for this project by language models that had not seen the checks; the verdicts are those of
others that saw neither the checks nor which pairs are faithful (docs/curation.md says how). The half
called "tuned" was looked at while the checks were written, the half "held_out" was not.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from medlive.curation.agent import Agent
from medlive.curation.controller import ElementControl
from medlive.curation.model import Element, ElementStatus, Side
from medlive.llm.engine import Reply, Request
from medlive.llm.recorded import RecordedEngine, load_recording
from medlive.llm.replay import ReplayEngine
from medlive.threads.model import Message, Role, Thread
from tests.support.scripted import Memory, Scripted

DATA = Path(__file__).parents[2] / "data"
PAIRS: list[dict[str, Any]] = [
    json.loads(line)
    for line in DATA.joinpath("pairs.jsonl").read_text(encoding="utf-8").splitlines()
]


class NothingElse(Scripted):
    """Stands in for what is not recorded: nothing may be missing."""

    async def answer(self, request: Request) -> Reply:
        raise AssertionError(f"{request.task} is not recorded for {request.inputs}")


def taken_back(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The reply of a Screener that defends nothing: what the controls object to is gone."""
    gone = {"keep": False, "message_id": "", "quote": "", "statement": ""}
    return {"elements": [{"id": e["id"], **gone} for e in inputs["elements"]]}


def thread_of(pair: dict[str, Any]) -> Thread:
    role: Role = pair["role"]
    other: Role = "patient" if role == "physician" else "physician"
    earlier = (
        [Message("m1", other, other, other == "physician", pair["before"])]
        if pair["before"]
        else []
    )
    said = Message("m2", role, role, role == "physician", pair["message"])
    return Thread(
        "icliniq",
        pair["id"],
        "",
        pair["title"],
        pair["language"],
        (),
        None,
        (*earlier, said),
    )


async def outcome(
    pair: dict[str, Any], judge: ReplayEngine, screener: ReplayEngine
) -> ElementStatus:
    patient = pair["role"] == "patient"
    element = Element(
        id=pair["id"],
        side=Side.NARRATIVE if patient else Side.ADVICE,
        message_id="m2",
        quote=pair["quote"],
        statement=pair["statement"],
        kind="subjective" if patient else "plan",
    )
    screening, judging = (
        Agent(engine, [], pair["language"]) for engine in (screener, judge)
    )
    control = ElementControl(thread_of(pair), {element.id: element}, screening, judging)
    await control.run(judged=False)
    await control.run(judged=True)
    return control.elements[0].status


async def outcomes(half: str) -> dict[bool, list[tuple[str, ElementStatus]]]:
    recording = load_recording(DATA / "pair_verdicts.jsonl")
    judge = ReplayEngine(RecordedEngine(recording, NothingElse({})), Memory())
    # A faithful statement is defended; a distorted one is not to be mended into truth.
    screeners = {
        True: judge,
        False: ReplayEngine(Scripted({"screener.revise": taken_back}), Memory()),
    }
    found: dict[bool, list[tuple[str, ElementStatus]]] = {True: [], False: []}
    for pair in PAIRS:
        if pair["half"] == half:
            faithful = pair["faithful"]
            found[faithful].append(
                (pair["id"], await outcome(pair, judge, screeners[faithful]))
            )
    return found


@pytest.mark.parametrize(
    "half", [pytest.param("tuned", marks=pytest.mark.thorough), "held_out"]
)
def test_faithful_statements_pass_and_distorted_ones_are_caught(half: str) -> None:
    found = asyncio.run(outcomes(half))
    refused = [name for name, status in found[True] if status is not ElementStatus.KEPT]
    missed = [name for name, status in found[False] if status is ElementStatus.KEPT]
    assert len(refused) < 0.01 * len(found[True]), refused
    assert len(missed) <= 0.05 * len(found[False]), missed


def test_there_are_pairs_of_every_kind_in_both_languages() -> None:
    assert len(PAIRS) >= 600
    kinds = {(pair["kind"], pair["faithful"]) for pair in PAIRS}
    for language in ("en", "zh"):
        for half in ("tuned", "held_out"):
            here = {
                (p["kind"], p["faithful"])
                for p in PAIRS
                if (p["language"], p["half"]) == (language, half)
            }
            assert here == kinds
