"""The threads that curators read and what they decided, for curation_agreement.py.

docs/builders/measurements/yardstick.md says how.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medlive.errors import BadInput

SEED: Final = "medlive-yardstick-1"
STRATA: Final = (
    ("icliniq.threads.jsonl", 12),
    ("questiondoctors.threads.jsonl", 6),
    ("covid_dialogue_en.threads.jsonl", 5),
    ("kqa.threads.jsonl", 4),
    ("ehealthforum.threads.jsonl", 3),
    ("haodf.threads.jsonl", 15),
    ("toyhom_neike.threads.jsonl", 15),
)
"""How many threads of each import file are read; 30 English and 30 Chinese."""
DECISIONS: Final = Path(__file__).resolve().parent / "data" / "curator_decisions.jsonl"
SECOND: Final = DECISIONS.with_name("curator_decisions_2.jsonl")

Place = Literal[
    "filters",
    "screener",
    "validator.query",
    "validator.sufficiency",
    "validator.alignment",
    "controller",
    "kept",
    "rubric",
]
Key = tuple[str, str]
"""(file, thread_id)."""


class _Part(BaseModel):
    """Part of a line of the decisions' files; a key that is misspelt is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FilterDecision(_Part):
    """What the reader finds of the content filters."""

    passes: bool
    first_failing: str | None


class ScreenerDecision(_Part):
    """What there is in the thread."""

    has_narrative: bool
    has_query: bool
    has_advice: bool
    query_in_title: bool
    notes: str = ""


class ValidatorDecision(_Part):
    """None where a step has no object."""

    s_cc: Literal[0, 1] | None
    category: (
        Literal["diagnosis", "treatment", "management", "epidemiology", "nonclinical"]
        | None
    )
    sufficient: bool | None
    missing: Annotated[tuple[str, ...], Field(strict=False)]
    advice_harmful: bool
    advice_judgement: Literal["supported", "neutral", "contradicted"] | None
    alarming_sign_unanswered: bool


class Decision(_Part):
    """A reader's line on one thread (docs/builders/measurements/yardstick.md)."""

    file: str
    thread_id: str
    language: Literal["en", "zh"]
    filter: FilterDecision
    screener: ScreenerDecision
    validator: ValidatorDecision
    keep: bool
    decided_at: Place
    why: str
    confidence: Literal["high", "medium", "low"]
    theme: str | None = None
    specialty: str | None = None


def draw(folder: Path) -> list[Key]:
    """(file, thread_id) of the threads to read: of each file those whose keyed digest is smallest.

    The digest is SHA-256 of `seed:file:thread_id`, so that the draw depends on nothing but the ids; an id that
    occurs several times in a file counts once.
    """
    drawn = []
    for name, wanted in STRATA:
        with (folder / name).open(encoding="utf-8") as lines:
            ids = {json.loads(line)["thread_id"] for line in lines}
        ranked = sorted(
            ids, key=lambda i: hashlib.sha256(f"{SEED}:{name}:{i}".encode()).hexdigest()
        )
        drawn += [(name, thread_id) for thread_id in ranked[:wanted]]
    return drawn


def read_decisions(path: Path) -> dict[Key, Decision]:
    """A reader's decisions by thread. Raises BadInput naming the line."""
    found: dict[Key, Decision] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            decision = Decision.model_validate_json(line)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise BadInput(
                f"{path.name}, line {number}: {where}: {first['msg']}"
            ) from exc
        key = (decision.file, decision.thread_id)
        if key in found:
            raise BadInput(
                f"{path.name}, line {number}: {decision.thread_id} stands twice"
            )
        found[key] = decision
    return found
