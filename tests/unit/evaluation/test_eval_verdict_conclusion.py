"""The conclusion of a grader's reply: read from its field, whatever words the reasoning has."""

import json
from typing import Any

import pytest

from medlive.grader.reply import GradeReply, read_criterion, read_rubric
from medlive.llm.ask import Unusable
from medlive.text.quotes import shows
from tests.support.judge_replies import ANSWERS, CONTRADICTED, ECHO, IDS, spelt
from tests.unit.evaluation.test_eval_verdict_replies import CASES, REPLIES

ANSWER = "It is a cold. You should not have it now. Nobody can tell virus from germ."
WORDED = {
    "无法判定的是病因，回答正是这样说的。": True,
    "The answer says it cannot be decided whether a virus or a germ is the cause.": True,
    "It names a cold, but not that it is harmless.": True,
    "Rest is advised, so the criterion is not met by halves.": True,
    "No X-ray is named.": False,
    "The wait of two weeks is met in no sentence; nothing is missing but that.": False,
}


def reply(met: bool, conclusion: object, reasoning: str = "It is named.") -> str:
    fields: dict[str, Any] = {"reasoning": reasoning, "conclusion": conclusion}
    fields |= {"met": met, "quote": "It is a cold" if met else "", "whole": False}
    return json.dumps(fields, ensure_ascii=False)


@pytest.mark.parametrize(("reasoning", "met"), WORDED.items())
def test_a_reason_is_not_searched_for_a_verdict(reasoning: str, met: bool) -> None:
    conclusion = "met" if met else "not met"
    assert read_criterion(reply(met, conclusion, reasoning), ANSWER).met is met


@pytest.mark.parametrize("conclusion", ["not met", "未满足", False, "No."])
def test_a_conclusion_that_is_not_the_verdict_leaves_none(conclusion: object) -> None:
    with pytest.raises(Unusable):
        read_criterion(reply(True, conclusion), ANSWER)
    assert read_criterion(reply(False, conclusion), ANSWER).met is False


@pytest.mark.parametrize("met", [True, False])
def test_a_conclusion_that_was_not_offered_is_no_verdict(met: bool) -> None:
    for conclusion in ("undecided", "perhaps"):
        with pytest.raises(Unusable, match="conclusion"):
            read_criterion(reply(met, conclusion), ANSWER)


def test_in_a_list_only_the_entry_that_contradicts_itself_is_unread() -> None:
    entries = [json.loads(reply(True, "met")), json.loads(reply(True, "not met"))]
    grades = [{"id": f"k{i}", **entry} for i, entry in enumerate(entries)]
    found = read_rubric(json.dumps({"grades": grades}), ["k0", "k1"], ANSWER)
    assert not isinstance(found["k0"], str)
    assert isinstance(found["k1"], str)


def test_the_schema_asks_for_the_conclusion_between_reasoning_and_verdict() -> None:
    names = list(GradeReply.model_json_schema()["required"])
    assert names[:3] == ["reasoning", "conclusion", "met"]


def concluded(text: str, conclusion: Any) -> str | None:
    """A bare reply with the conclusion of each entry put in; None for what is more than a bare object."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    entries = value.get("grades", [value]) if isinstance(value, dict) else None
    if not isinstance(entries, list):
        return None
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("met"), bool):
            return None
        entry["conclusion"] = conclusion(entry)
    return json.dumps(value, ensure_ascii=False)


def test_honest_replies_that_state_their_conclusion_are_read_whatever_their_words() -> (
    None
):
    read = 0
    for row in REPLIES:
        text = concluded(row["reply"], lambda e: "met" if e["met"] else "not met")
        if text is None or row["side"] != "honest" or row["mode"] != "criterion":
            continue
        case = CASES[row["case"]]
        (name,) = row["want"]
        wanted = row["want"][name]
        known = {"reasoning", "conclusion", "met", "quote", "whole"}
        if "ungraded" in wanted or not json.loads(text).keys() <= known:
            continue
        verdict = read_criterion(
            text, case["answer"], {"criterion": case["criteria"][name]}
        )
        assert ("met" if verdict.met else "not met") in wanted, row
        read += 1
    assert read > 200


def test_hostile_replies_whose_conclusion_follows_their_reasoning_are_refused() -> None:
    for wrap in CONTRADICTED.values():
        for language in ("en", "zh"):
            for met in (True, False):
                text = wrap(*spelt("criterion", language, met))
                stated = concluded(text, lambda e: "not met" if e["met"] else "met")
                if stated is None:
                    continue
                with pytest.raises(Unusable):
                    read_criterion(stated, ANSWERS[language], ECHO)
    assert len(IDS) == 3


@pytest.mark.parametrize(
    ("quote", "enough"),
    [
        ("You should not have it now", True),
        ("should not have it", False),
        ("It is a cold. You should not have it now.", True),
        ("It", False),
    ],
)
def test_a_quote_may_be_as_short_as_its_sentence(quote: str, enough: bool) -> None:
    assert shows(quote, ANSWER) is enough


def test_a_single_word_is_no_quote_though_it_is_a_sentence() -> None:
    assert not shows("No", "No. Rest and drink.")
    assert shows("不可以", "不可以。多休息。")
