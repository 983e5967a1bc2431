"""Cases to evaluate on, from a snapshot's folder or from LiveMedBench's file."""

from dataclasses import replace
from pathlib import Path

from medlive.errors import BadInput
from medlive.evaluation.livemedbench import read_cases
from medlive.evaluation.model import CaseSet, EvaluationCase, EvaluationCriterion
from medlive.snapshot.load import Snapshot, load_snapshot
from medlive.snapshot.model import SnapshotCase


def load_cases(path: str | Path, *, verify: bool = True) -> CaseSet:
    """The cases at `path`: a snapshot's folder (verified unless told otherwise) or a LiveMedBench JSON file.

    Raises CheckFailed when the snapshot does not verify, BadInput when the path holds neither.
    """
    place = Path(path)
    if place.is_dir():
        return from_snapshot(load_snapshot(place, verify=verify))
    if place.is_file():
        found = read_cases(place)
        beside = (place.parent / "manifest.json").is_file()
        return replace(found, snapshots=place.absolute().parent.parent) if beside else found
    raise BadInput(f"{place} is neither a snapshot's folder nor a file of cases")


def from_snapshot(snapshot: Snapshot) -> CaseSet:
    """The cases of a loaded snapshot, or of a part of one."""
    manifest = snapshot.manifest
    cases = tuple(_case(case) for case in snapshot)
    return CaseSet(
        cases,
        "snapshot",
        snapshot.version,
        snapshot.digest,
        manifest.publishable,
        manifest.why_not,
        snapshot.path.absolute().parent,
        snapshot.verified,
    )


def _case(case: SnapshotCase) -> EvaluationCase:
    return EvaluationCase(
        case_id=case.case_id,
        language=case.language,
        narrative=case.narrative,
        query=case.query,
        advice=case.advice,
        criteria=tuple(
            EvaluationCriterion(c.criterion_id, c.criterion, float(c.points), c.axis) for c in case.criteria
        ),
        post_time=f"{case.posted_at.isoformat()}T00:00:00",
        month=f"{case.posted_at:%Y-%m}",
        source=case.source,
        theme=case.theme,
        specialty=case.specialty,
        first_release=case.first_release,
    )
