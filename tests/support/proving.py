"""Engines that prove rubrics: a prober whose answers are told apart, and a grader that measures by them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medlive.rubric.probe import LENGTHS
from medlive.rubric.proof import Probe
from medlive.snapshot.diff import Change
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.load import Snapshot, load_snapshot
from medlive.snapshot.manifest import SnapshotMeta
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
from tests.support.entries import Entries
from tests.support.scripted import KIND, NO_PROBLEM, changed
from tests.support.snapshots import PROVENANCE, small_case

Inputs = Mapping[str, Any]
WORDS = {
    "excellent_short": "stop",
    "excellent_long": "losartan",
    "ordinary": "change",
    "slip": "double",
    "vague": "maybe",
    "wrong": "continue",
}


NOTES = {
    "ordinary": "It lacks the question about fever.",
    "slip": "It doubles the dose, which should be stopped.",
    "wrong": "It should stop.",
}
SAFE: Mapping[str, Any] = {
    "reading": "Nothing in it would harm.",
    "findings": [],
    "conclusion": "not harmful",
}


def case(name: str, *criteria: tuple[str, int]) -> SnapshotCase:
    """A case with a rubric of these texts and points."""
    rows = []
    for place, (text, points) in enumerate(criteria, start=1):
        rows.append(
            SnapshotCriterion(
                criterion_id=f"{name}-c{place}",
                case_id=name,
                revision=1,
                position=place,
                criterion=text,
                axis="Accuracy",
                points=points,
            )
        )
    return small_case(name, "2026.W47", criteria=tuple(rows))


def frozen(rows: Sequence[SnapshotCase], folder: Path) -> Snapshot:
    """The cases as a snapshot."""
    moment = datetime(2026, 11, 21, 8, 30, 1, tzinfo=UTC)
    meta = SnapshotMeta(version="2026.W47", created_at=moment, provenance=PROVENANCE)
    added = [Change("added", c.case_id, "new", None, 1) for c in rows]
    entries = Entries(tuple(added))
    return load_snapshot(write_snapshot(rows, meta, folder, entries).path)


def answer(probe: str) -> str:
    """An answer of the right length, whose words are no other's."""
    count = LENGTHS["en"][Probe(probe)][0] + 10
    return " ".join(f"{WORDS[probe]}{place}" for place in range(count)) + "."


def probed(inputs: Inputs) -> dict[str, str]:
    note = NOTES.get(inputs["probe"], "")
    return {"note": note, "answer": answer(inputs["probe"])}


def kind_of(text: str) -> Probe:
    return next(Probe(kind) for kind, word in WORDS.items() if text.startswith(word))


def graded(meets: Callable[[Probe, str], bool]) -> Callable[[Inputs], dict[str, Any]]:
    """A grader's reply; `meets` says which kind of answer meets which criterion."""

    def reply(inputs: Inputs) -> dict[str, Any]:
        kind = kind_of(inputs["answer"])
        grades = []
        for criterion in inputs["criteria"]:
            met = meets(kind, criterion["criterion"])
            quote = " ".join(inputs["answer"].split()[:8]) if met else ""
            reasoning = "The answer says so." if met else "The answer does not say so."
            grades.append(
                {
                    "id": criterion["id"],
                    "reasoning": reasoning,
                    "met": met,
                    "quote": quote,
                    "whole": False,
                }
            )
        return {"grades": grades}

    return reply


def graded_all(
    meets: Callable[[Probe, str], bool],
) -> Callable[[Inputs], dict[str, Any]]:
    """A reply on all answers at once."""
    grade = graded(meets)

    def reply(inputs: Inputs) -> dict[str, Any]:
        answers = []
        for answer in inputs["answers"]:
            grades = grade({**inputs, "answer": answer["answer"]})
            answers.append({"id": answer["id"], **grades})
        return {"answers": answers}

    return reply


def rubric(*criteria: tuple[str, int]) -> dict[str, Any]:
    return {
        "asked": [{"id": "q1", "text": "What could cause the cough?"}],
        "theme": "Response Depth",
        "specialty": "unknown",
        "no_negative": "",
        "facts": [
            {"id": "f1", "fact": "Lisinopril can cause a dry cough.", "advice_id": "a1"}
        ],
        "criteria": [
            {
                "axis": "Accuracy",
                "fact_id": "f1",
                "criterion": text,
                "points": points,
                "asked": "q1" if place == 0 else "",
                "likely": "e1" if points < 0 else "",
            }
            for place, (text, points) in enumerate(criteria)
        ],
    }


STATES = ("States that lisinopril can cause a dry cough.", 7)
TRIVIAL = ("States that a cough is a frequent complaint.", 7)
ASKS = ("Asks whether the patient has a fever.", 5)
DENIES = ("Denies that a tablet can cause a cough.", -9)


def measures(kind: Probe, criterion: str) -> bool:
    """The grader of a rubric that measures: good answers meet rewards, those with a mistake the error, and the
    ordinary one lacks the question."""
    if criterion == TRIVIAL[0]:
        return False
    if criterion == DENIES[0]:
        return kind in (Probe.WRONG, Probe.SLIP)
    if kind is Probe.ORDINARY:
        return criterion != ASKS[0]
    return kind in (Probe.SHORT, Probe.LONG, Probe.SLIP)


def ruled(needed: bool) -> Callable[[Inputs], dict[str, Any]]:
    return lambda inputs: {
        "rulings": [
            {
                "criterion_id": criterion["id"],
                "needed": needed,
                "basis": "a1" if needed else "",
                "reason": "So it is.",
            }
            for criterion in inputs["criteria"]
        ]
    }


def script(**tasks: Any) -> dict[str, Any]:
    usual = {
        "rubric.write": rubric(STATES, ASKS, DENIES),
        "reader.rubric": NO_PROBLEM,
        "reader.identifiers": {"found": []},
        "rubric.classify": KIND,
        "rubric.probe": probed,
        "rubric.defend": ruled(needed=False),
        "grader.answers": graded_all(measures),
        "grader.harm": SAFE,
    }
    named = {name.replace("__", "."): reply for name, reply in tasks.items()}
    return {**changed(), **usual, **named}
