"""What kind of case it is: asked last of all, and never at the case's cost."""

from datetime import UTC, datetime
from typing import Any

import pytest

from medlive.curation.chain import ROLES
from medlive.curation.model import Outcome
from medlive.errors import CircuitOpen, EndpointUnavailable
from medlive.rubric.model import Difficulty, Register
from medlive.service.curation.complete import complete_case
from tests.support.scripted import KIND, Scripted, changed, run

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CRITERION = {"axis": "Accuracy", "points": 7, "fact_id": "f1"}
RUBRIC: dict[str, Any] = {
    "rubric.write": {
        "asked": [{"id": "q1", "text": "What could cause it at 34 years?"}],
        "theme": "Response Depth",
        "specialty": "unknown",
        "no_negative": "",
        "facts": [
            {"id": "f1", "fact": "Lisinopril can cause a dry cough.", "advice_id": "a1"}
        ],
        "criteria": [
            {**CRITERION, "asked": "q1", "criterion": "States that it can cause it."},
            {
                **CRITERION,
                "points": -5,
                "criterion": "Denies it.",
                "likely": "Some do.",
            },
        ],
    },
    "reader.rubric": {"problems": [], "life_critical": []},
    "reader.identifiers": {
        "found": [{"text_id": "narrative", "words": "34 years", "kind": "number"}]
    },
}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (KIND, (Difficulty.MEDIUM, Register.LAY)),
        ("rubbish", (Difficulty.UNKNOWN, Register.UNKNOWN)),
        (EndpointUnavailable("down"), (Difficulty.UNKNOWN, Register.UNKNOWN)),
        (
            CircuitOpen("open", hint="", retry_at=datetime(2026, 11, 22, tzinfo=UTC)),
            (Difficulty.UNKNOWN, Register.UNKNOWN),
        ),
    ],
)
async def test_the_kind_is_asked_last_and_costs_no_case(
    said: Any, expected: tuple[Difficulty, Register]
) -> None:
    engine = Scripted({**changed(), **RUBRIC, "rubric.classify": said})
    done, rubric, _ = await complete_case(
        await run({}, engine=engine), "en", dict.fromkeys((*ROLES, "rubric"), engine)
    )
    assert done.outcome is Outcome.KEPT
    assert rubric is not None
    assert (rubric.difficulty, rubric.dialogue_register) == expected
    last = engine.requests[-1]
    assert last.task == "rubric.classify"
    assert "34" not in str(last.inputs["narrative"])  # the texts as they are released
    assert [part.text for part in rubric.asked] == ["What could cause it at [number]?"]
