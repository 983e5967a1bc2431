"""Load cases to evaluate on, from a snapshot's folder or a benchmark's file, or put them in their threads' words."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from medlive.errors import BadInput, UsageError
from medlive.evaluation.model import CaseSet, EvaluationCase, EvaluationCriterion
from medlive.snapshot.load import Snapshot, open_snapshot
from medlive.threads.model import Thread

from .benchmarks import Format, format_of, read_benchmark
from .selection import IN_PYTHON


def load_cases(
    path: str | Path,
    *,
    verify: bool = True,
    format_: Format | None = None,
) -> CaseSet:
    """The cases at `path`: a snapshot's folder, checked if `verify`, or a benchmark's file.

    `format_` is the file's format; None: it is recognised by the first characters. Raises CheckFailed when the
    snapshot, also one that the file is a part of, does not verify, and BadInput when the path holds neither.
    """
    place = Path(path)
    if place.is_dir():
        return from_snapshot(open_snapshot(place, verify=verify))
    if not place.is_file():
        hint = "name a snapshot's folder or version, LiveMedBench's JSON file of cases, or another benchmark's file"
        raise BadInput(f"{place} is neither a folder nor a file", hint=hint)
    cases = read_benchmark(place, format_ or format_of(place))
    beside = place.parent / "manifest.json"
    if place.name != "livemedbench.json" or not beside.is_file():
        return cases
    # As publishable as the snapshot that it is a part of
    whole = open_snapshot(place.parent, verify=verify)
    return replace(
        cases,
        publishable=whole.manifest.publishable,
        notes=(*cases.notes, *whole.manifest.why_not),
        snapshots=whole.path.absolute().parent,
        verified=whole.verified,
    )


def from_snapshot(snapshot: Snapshot) -> CaseSet:
    """The cases of a loaded snapshot, or of a part of one."""
    manifest = snapshot.manifest
    cases = []
    for case in snapshot:
        criteria = []
        for c in case.criteria:
            criterion = EvaluationCriterion(
                id=c.criterion_id,
                criterion=c.criterion,
                points=float(c.points),
                axis=c.axis,
                origin=c.origin,
            )
            criteria.append(criterion)
        evaluated = EvaluationCase(
            case_id=case.case_id,
            language=case.language,
            narrative=case.narrative,
            query=case.query,
            advice=case.advice,
            criteria=tuple(criteria),
            post_time=f"{case.posted_at.isoformat()}T00:00:00",
            month=f"{case.posted_at:%Y-%m}",
            source=case.source,
            theme=case.theme,
            specialty=case.specialty,
            first_release=case.first_release,
            difficulty=_known(case.difficulty),
            dialogue_register=_known(case.dialogue_register),
        )
        cases.append(evaluated)
    newer = manifest.newer
    # Figures and bundles name the selection of a part.
    is_part = bool(snapshot.keep) and len(cases) < manifest.counts.cases
    return CaseSet(
        cases=tuple(cases),
        origin="snapshot",
        name=snapshot.version,
        digest=snapshot.digest,
        publishable=manifest.publishable,
        notes=(*manifest.why_not, *filter(None, [newer])),
        snapshots=snapshot.path.absolute().parent,
        verified=snapshot.verified,
        selection=IN_PYTHON if is_part else None,
    )


def _known(label: str) -> str | None:
    """The label; None for "unknown"."""
    return None if label == "unknown" else label


def opening(thread: Thread) -> str:
    """A thread's title and what the asker wrote before anybody else did; "" where the asker wrote nothing.

    What comes later answers a physician, and would give away what was advised.
    """
    texts = []
    for message in thread.messages:
        if message.role != "patient":
            break
        texts.append(message.text.strip())
    text = "\n\n".join(filter(None, texts))
    title = thread.title.strip()
    return text if not text or text.startswith(title) else f"{title}\n\n{text}"


def in_own_words(cases: CaseSet, threads: Mapping[str, Thread]) -> CaseSet:
    """The cases with their threads' `opening` as the narrative and no query; rubrics, dates and ids stay.

    `threads` are by case id, without the identifiers of people. A case whose thread is not there, or has no
    opening, is left out and counted in `notes`. The result is not publishable: it holds what a community's members
    wrote. Raises UsageError when no case is left.
    """
    openings = {case_id: opening(thread) for case_id, thread in threads.items()}
    worded = []
    for case in cases.cases:
        if text := openings.get(case.case_id):
            worded.append(
                replace(
                    case,
                    narrative=text,
                    query="",
                )
            )
    if not worded:
        raise UsageError(
            f"this database holds the thread of no case of {cases.name}",
            hint="--raw is for whoever harvested the threads; a snapshot holds none",
        )
    notes = ["asked in the threads' own words, which are not ours to publish"]
    if lost := len(cases) - len(worded):
        notes.append(
            f"{lost} of {len(cases)} cases are left out: their thread is not in this database, or empty"
        )
    return replace(
        cases,
        cases=tuple(worded),
        publishable=False,
        notes=(*cases.notes, *notes),
    )
