"""Cases in their threads' own words: nothing of what was answered is in them, and nothing else changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from medlive.errors import UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.cases.load import in_own_words, opening
from medlive.threads.model import Message, Role, Thread
from tests.unit.evaluation.conftest import AT, USE, Model, make_cases


def thread(*said: tuple[Role, str], title: str = "Knee") -> Thread:
    messages = tuple(
        Message(f"m{i}", "x", role, role == "physician", text)
        for i, (role, text) in enumerate(said)
    )
    return Thread("s", "t", "", title, None, (), None, messages)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            thread(
                ("patient", "It hurts. "),
                ("patient", "And swells."),
                ("physician", "Rest."),
                ("patient", "So I rest."),
            ),
            "Knee\n\nIt hurts.\n\nAnd swells.",
        ),
        (
            thread(("patient", "It hurts."), ("other", "Me."), ("patient", "How?")),
            "Knee\n\nIt hurts.",
        ),
        (thread(("patient", "Knee hurts.")), "Knee hurts."),
        (thread(("patient", "膝痛"), title=""), "膝痛"),
        (thread(("physician", "Rest."), ("patient", "So I rest.")), ""),
        (thread(title="else"), ""),
        (thread(("patient", " ")), ""),
    ],
)
def test_the_opening_ends_where_somebody_else_speaks(found: Thread, text: str) -> None:
    assert opening(found) == text


def test_words_change_and_rubrics_dates_and_ids_do_not() -> None:
    cases = make_cases(3)
    told = thread(("patient", "It hurts."))
    raw = in_own_words(cases, {"c000": told, "c001": thread(), "gone": told})
    assert raw.cases == (
        replace(cases.cases[0], narrative="Knee\n\nIt hurts.", query=""),
    )
    assert (raw.publishable, raw.name, raw.digest) == (False, cases.name, cases.digest)
    assert raw.notes[-1].startswith("2 of 3 cases are left out")
    with pytest.raises(UsageError):
        in_own_words(cases, {"c000": thread()})


async def test_a_run_in_own_words_and_one_in_ours_are_two(tmp_path: Path) -> None:
    cases = make_cases(1)
    raw = in_own_words(cases, {"c000": thread(("patient", "It hurts."))})
    await run_model(raw, Model(), tmp_path, use=replace(USE, arm="raw"), created_at=AT)
    with pytest.raises(UsageError, match="rows of the cases"):
        await run_model(cases, Model(), tmp_path, use=USE, created_at=AT)
