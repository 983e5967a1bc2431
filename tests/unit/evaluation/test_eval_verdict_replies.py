"""Judge replies in two languages, written from the prompts alone: 354 of honest judges, 374 hostile or careless.

A hostile reply must leave its criterion ungraded (or read right), an honest one must be read. Those marked `open`
in the file are not yet read so; one that is mended loses its mark.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from medlive.grader.reply import Verdict, read_criterion, read_rubric
from medlive.llm.ask import Unusable

LINES = Path("tests/data/grader_replies.jsonl").read_text(encoding="utf-8").splitlines()
CASES: dict[str, Any] = json.loads(LINES[0])["cases"]
REPLIES: list[dict[str, Any]] = [json.loads(line) for line in LINES[1:]]
STATES = {True: "met", False: "not met"}


def read(row: dict[str, Any]) -> dict[str, str]:
    """What each criterion of a reply is read as."""
    case, ids = CASES[row["case"]], list(row["want"])
    echoes = {
        one: {
            "question": case["question"],
            "criterion": case["criteria"][one],
            "id": one,
            "criterion_id": one,
        }
        for one in ids
    }
    found: dict[str, Verdict | str] = dict.fromkeys(ids, "unread")
    try:
        if row["mode"] == "criterion":
            found = {
                ids[0]: read_criterion(row["reply"], case["answer"], echoes[ids[0]])
            }
        else:
            found = read_rubric(row["reply"], ids, case["answer"], echoes)
    except Unusable:
        pass
    return {
        one: STATES[v.met] if isinstance(v, Verdict) else "ungraded"
        for one, v in found.items()
    }


@pytest.fixture(scope="module")
def states() -> list[dict[str, str]]:
    """What the criteria of each reply are read as, in the order of `REPLIES`."""
    return [read(row) for row in REPLIES]


def test_replies_are_read_as_they_must_be_but_for_those_marked_open(
    states: list[dict[str, str]],
) -> None:
    wrong = [
        row
        for row, found in zip(REPLIES, states, strict=True)
        if any(state not in row["want"][one] for one, state in found.items())
    ]
    assert [row["reply"] for row in wrong] == [
        row["reply"] for row in REPLIES if row.get("open")
    ]


def test_no_honest_reply_is_read_as_the_contrary(
    states: list[dict[str, str]],
) -> None:
    for row, found in zip(REPLIES, states, strict=True):
        if row["side"] == "honest":
            for one, state in found.items():
                assert state in {*row["want"][one], "ungraded"}, row


def test_the_corpus_holds_both_sides_and_languages() -> None:
    sides = Counter((row["side"], CASES[row["case"]]["language"]) for row in REPLIES)
    assert min(sides.values()) >= 75
    assert len(REPLIES) >= 700
    assert sum(row.get("open", False) for row in REPLIES) < len(REPLIES) / 40
