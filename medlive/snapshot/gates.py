"""The release gates: the checks that a case, and a release as a whole, must pass before it is frozen.

A gate returns its hits as values. A hit on a case keeps that case out; a hit on the release makes it
`publishable: false`. No hit quotes the text it was found in.

A case is checked in three parts: its rows (`row_hits`, cheap); its texts and rubric (`content_hits`, expensive,
and the same for a revision under one `gates_digest`); what the database knows of it (`fact_hits`).
"""

import platform
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from medlive.digest import digest_bytes, digest_json
from medlive.errors import CheckFailed
from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Axis, Theme
from medlive.snapshot.manifest import Provenance
from medlive.snapshot.model import CASE_ID, SnapshotCase, SnapshotCriterion, last_day, week_end
from medlive.snapshot.verify.disguise import as_read, find_disguise, find_markup
from medlive.snapshot.verify.leaks import find_contact, find_unstorable

if TYPE_CHECKING:
    from medlive.deidentify.identifiers import Identifier


class Gate(StrEnum):
    """What is checked."""

    TEXT = "text"
    IDENTIFIERS = "identifiers"
    RUBRIC = "rubric"
    ROW = "row"
    ENGINE = "engine"
    EVIDENCE = "evidence"
    DISPUTE = "dispute"
    WITHDRAWN = "withdrawn"
    PROVENANCE = "provenance"
    MINIMUM = "minimum"


class GateWorkerDied(CheckFailed):
    """A worker process that checked cases died."""


@dataclass(frozen=True, slots=True)
class GateHit:
    """What a gate found; `case_id` is None if it concerns the release as a whole."""

    gate: Gate
    case_id: str | None
    detail: str


Scanner = Callable[[str, str | None], Sequence["Identifier"]]
"""`scan(text, language)`: the identifiers in a text."""

Linter = Callable[[SnapshotCase], Iterable[str]]
"""`lint(case)`: what is wrong with a case's rubric, one line each."""


def standard_scanner() -> Scanner:
    """Return the scanner for identifiers of people and places (needs the extra `service`)."""
    from medlive.deidentify.detect import find_identifiers

    return find_identifiers


def standard_linter() -> Linter:
    """Return the rubric linter, applied to a case as it would be released."""
    from medlive.rubric.lint import lint
    from medlive.rubric.model import Criterion

    def lint_case(case: SnapshotCase) -> Iterable[str]:
        if not all(c.axis in _AXES for c in case.criteria):
            return []  # `row_hits` reports the axis
        criteria = [
            Criterion(c.criterion_id, c.position, c.criterion, Axis(c.axis), c.points, "") for c in case.criteria
        ]
        whole = f"{case.narrative}\n{case.query}\n{case.advice}"
        # The reason for a rubric without negative points is recorded by the curation, not in a snapshot.
        findings = lint(case.language, criteria, {"": case.advice}, whole, no_negative="unknown here")
        return [f"{f.fault.value}: {f.detail}" for f in findings]

    return lint_case


_LANGUAGES: Final = frozenset(("en", "zh"))
_THEMES: Final = frozenset(theme.value for theme in Theme)
_AXES: Final = frozenset(axis.value for axis in Axis)
_SPECIALTIES: Final = frozenset((*SPECIALTIES, UNKNOWN_SPECIALTY))
_MAX_ID: Final = 200

MAX_TEXT: Final = 100_000
"""Characters of one text; with this limit no line of a snapshot reaches `folder.MAX_LINE`."""


@lru_cache(maxsize=4096)
def _last_day(version: str) -> date | None:
    return None if week_end(version) is None else last_day(version)


def row_hits(case: SnapshotCase) -> Iterator[GateHit]:
    """Find what makes a case's rows illegal in a snapshot; `verify` applies the same rules."""

    def hit(detail: str, gate: Gate = Gate.ROW) -> GateHit:
        return GateHit(gate, case.case_id, detail)

    if not CASE_ID.fullmatch(case.case_id):
        yield hit("the id has spaces, slashes or control characters, is empty or too long")
    if case.language not in _LANGUAGES:
        yield hit(f"language {case.language!r}")
    if case.theme not in _THEMES:
        yield hit(f"theme {case.theme!r}")
    if case.specialty not in _SPECIALTIES:
        yield hit(f"specialty {case.specialty!r}")
    if (last := _last_day(case.first_release)) is None:
        yield hit(f"first release {case.first_release!r}")
    elif case.posted_at > last:
        yield hit(f"posted on {case.posted_at}, after its first release {case.first_release}")
    for name, text in (("narrative", case.narrative), ("query", case.query), ("advice", case.advice)):
        if not text or text.isspace():
            yield hit(f"{name} is empty")
    if not any(c.points > 0 for c in case.criteria):
        yield hit("no criterion has positive points", Gate.RUBRIC)
    if len({c.criterion_id for c in case.criteria}) != len(case.criteria):
        yield hit("two criteria share an id", Gate.RUBRIC)
    for place, criterion in enumerate(case.criteria, start=1):
        for detail in _criterion_faults(criterion, place, case):
            yield hit(f"criterion {place}: {detail}", Gate.RUBRIC)


def _criterion_faults(criterion: SnapshotCriterion, place: int, case: SnapshotCase) -> Iterator[str]:
    points, text = criterion.points, criterion.criterion
    if criterion.axis not in _AXES:
        yield f"axis {criterion.axis!r}"
    if points == 0 or not -10 <= points <= 10:
        yield f"{points} points"
    if criterion.position != place:
        yield f"position {criterion.position}"
    if criterion.case_id != case.case_id or criterion.revision != case.revision:
        yield f"belongs to {criterion.case_id} revision {criterion.revision}"
    if not _is_numbered(criterion.criterion_id, f"{case.case_id}-c"):
        yield "its id is not the case's, -c and a number"
    if not text or text.isspace():
        yield "is empty"


def _is_numbered(criterion_id: str, prefix: str) -> bool:
    number = criterion_id.removeprefix(prefix)
    return (
        criterion_id.startswith(prefix)
        and re.fullmatch("[1-9][0-9]*", number) is not None
        and len(criterion_id) <= _MAX_ID
    )


def content_hits(case: SnapshotCase, scan: Scanner, lint: Linter) -> list[GateHit]:
    """Find what in a case's texts and rubric keeps it out.

    The result depends only on the texts, the language, the criteria, and what `gates_digest` covers.
    """
    texts = [("narrative", case.narrative), ("query", case.query), ("advice", case.advice)]
    texts += [(f"criterion {place}", c.criterion) for place, c in enumerate(case.criteria, start=1)]
    texts.append(("source", case.source))
    if long := [name for name, text in texts if len(text) > MAX_TEXT]:
        detail = f"has more than {MAX_TEXT:,} characters"
        return [GateHit(Gate.TEXT, case.case_id, f"{name} {detail}") for name in long]
    hits = [
        GateHit(gate, case.case_id, f"{name} holds {what}")
        for name, text in texts
        for gate, what in _text_hits(text, case.language, scan)
    ]
    return hits + [GateHit(Gate.RUBRIC, case.case_id, finding) for finding in lint(case)]


def _text_hits(text: str, language: str, scan: Scanner) -> Iterator[tuple[Gate, str]]:
    if (character := find_unstorable(text)) is not None:
        yield Gate.TEXT, character
        return
    if (character := find_disguise(text)) is not None:
        yield Gate.TEXT, f"{character}, which is not what it seems"
    if (markup := find_markup(text)) is not None:
        yield Gate.TEXT, f"markup: {markup!r}"
    contact, identifiers = find_contact(text), scan(text, language)
    if contact is not None:
        yield Gate.IDENTIFIERS, f"a {contact}"
    for identifier in identifiers:
        yield Gate.IDENTIFIERS, f"a {identifier.kind} at character {identifier.start}"
    plain = as_read(text)
    if contact is None and not identifiers and plain != text:
        if (contact := find_contact(plain)) is not None:
            yield Gate.IDENTIFIERS, f"a {contact}, spelled otherwise"
        for identifier in scan(plain, language):
            yield Gate.IDENTIFIERS, f"a {identifier.kind}, spelled otherwise"


def case_hits(case: SnapshotCase, scan: Scanner, lint: Linter) -> list[GateHit]:
    """Every reason in a case's rows to keep it out: its `row_hits` and its `content_hits`."""
    return [*row_hits(case), *content_hits(case, scan, lint)]


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """What the database knows of a case on the day of a release."""

    publishable: bool
    """False if the case may only be in a release that is not published."""
    unpublishable_reason: str | None
    """Why it is not publishable; None if it is."""
    index_known: bool
    """Whether the evidence index by which its claims were judged is recorded."""
    claims_without_evidence: int
    """Claims judged as supported without stored evidence."""
    open_disputes: int
    withdrawn: str | None = None
    """Why the case was withdrawn; None if it was not."""


def fact_hits(case_id: str, facts: CaseFacts, *, publishable_only: bool) -> list[GateHit]:
    """Find the reasons beside its rows to keep a case out.

    Args:
        case_id: The case.
        facts: What is known of it.
        publishable_only: Whether the release takes publishable cases only.
    """
    hits = []
    if facts.withdrawn is not None:
        hits.append(GateHit(Gate.WITHDRAWN, case_id, f"withdrawn: {facts.withdrawn}"))
    if facts.open_disputes:
        disputes = "a dispute is" if facts.open_disputes == 1 else f"{facts.open_disputes} disputes are"
        hits.append(GateHit(Gate.DISPUTE, case_id, f"{disputes} open"))
    if facts.claims_without_evidence:
        number = facts.claims_without_evidence
        verdicts = "a supported verdict" if number == 1 else f"{number} supported verdicts"
        hits.append(GateHit(Gate.EVIDENCE, case_id, f"{verdicts} without stored evidence"))
    if not facts.index_known:
        hits.append(GateHit(Gate.EVIDENCE, case_id, "the evidence index it was judged by is not recorded"))
    if publishable_only and not facts.publishable:
        hits.append(GateHit(Gate.ENGINE, case_id, facts.unpublishable_reason or "not publishable"))
    return hits


def release_hits(
    provenance: Provenance,
    cases: int,
    minimum: int,
    *,
    by_language: Mapping[str, int] = MappingProxyType({}),
    minimum_by_language: Mapping[str, int] = MappingProxyType({}),
) -> list[GateHit]:
    """Find every reason why a release may not be published.

    Args:
        provenance: How its cases were made.
        cases: How many cases it has.
        minimum: How many it must have.
        by_language: How many it has in each language.
        minimum_by_language: How many it must have in each language.
    """
    hits: list[GateHit] = []
    if by_rules := sorted({e.role for e in provenance.engines if e.engine == "rules"}):
        detail = f"the rules engine, which makes no clinical judgement, was {', '.join(by_rules)}"
        hits.append(GateHit(Gate.ENGINE, None, detail))
    if replayed := sorted({e.role for e in provenance.engines if e.engine == "recorded"}):
        detail = f"a recording, in which the rules engine may stand in, was {', '.join(replayed)}"
        hits.append(GateHit(Gate.ENGINE, None, detail))
    for name, value in (
        ("engines", provenance.engines),
        ("prompts", provenance.prompts),
        ("evidence", provenance.evidence),
        ("thresholds", provenance.thresholds),
        ("code version", provenance.code_version),
    ):
        if not value:
            hits.append(GateHit(Gate.PROVENANCE, None, f"the provenance names no {name}"))
    if cases < minimum:
        hits.append(GateHit(Gate.MINIMUM, None, f"{cases} cases, at least {minimum} are asked for"))
    for language, least in sorted(minimum_by_language.items()):
        if (number := by_language.get(language, 0)) < least:
            detail = f"{number} cases in {language!r}, at least {least} are asked for"
            hits.append(GateHit(Gate.MINIMUM, None, detail))
    return hits


PACKAGE: Final = Path(__file__).resolve().parents[1]
DECIDING_MODULES: Final = (
    "deidentify/chinese.py",
    "deidentify/data/chinese.txt",
    "deidentify/data/english.txt",
    "deidentify/detect.py",
    "deidentify/english.py",
    "deidentify/gazetteer.py",
    "deidentify/identifiers.py",
    "deidentify/numbers.py",
    "rubric/lint.py",
    "rubric/model.py",
    "snapshot/gates.py",
    "snapshot/verify/disguise.py",
    "snapshot/verify/leaks.py",
    "text/neutral.py",
    "text/normalise.py",
    "text/quantities.py",
)
"""The modules that decide `content_hits`, by their path in the package."""
_LIBRARIES: Final = ("phonenumbers", "python-stdnum")
"""The libraries whose tables say what an identity or telephone number is."""


@cache
def gates_digest(package: Path = PACKAGE) -> str:
    """Return the digest of what decides `content_hits`; under the same digest a stored verdict can be reused.

    It covers the source of DECIDING_MODULES under `package`, the versions of the libraries, and those of Python
    and its Unicode tables. Needs the extra `service`.
    """
    return digest_json(
        {
            "modules": {name: digest_bytes((package / name).read_bytes()) for name in DECIDING_MODULES},
            "libraries": {name: version(name) for name in _LIBRARIES},
            "python": ".".join(platform.python_version_tuple()[:2]),
            "unicode": unicodedata.unidata_version,
        }
    )


_CHUNK: Final = 64
"""Cases per unit of work, about 0.1 s."""
_QUEUED: Final = 2
"""Chunks submitted per process, so that none is idle and memory stays bounded."""


def check_many(cases: Iterable[SnapshotCase], processes: int) -> Iterator[tuple[str, list[GateHit]]]:
    """Yield each case's id and its `content_hits` by the standard scanner and linter, in order.

    Args:
        cases: The cases, read lazily in this thread.
        processes: 1 checks in this process, more in as many worker processes.

    Raises:
        ValueError: If `processes` is less than 1.
        GateWorkerDied: If a worker ends before its work is done.
    """
    if processes < 1:
        raise ValueError("processes must be at least 1")
    if processes == 1:
        scan, lint = standard_scanner(), standard_linter()
        return ((case.case_id, content_hits(case, scan, lint)) for case in cases)
    return _check_in_workers(iter(cases), processes)


def _check_in_workers(cases: Iterator[SnapshotCase], processes: int) -> Iterator[tuple[str, list[GateHit]]]:
    from collections import deque
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # Spawned, since a fork of a process with threads and an event loop may hang.
    waiting: deque[Future[list[tuple[str, list[GateHit]]]]] = deque()
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_standard_tools)
    try:
        for chunk in iter(lambda: list(islice(cases, _CHUNK)), []):
            waiting.append(pool.submit(_check_chunk, chunk))
            if len(waiting) > processes * _QUEUED:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BrokenProcessPool as exc:
        raise GateWorkerDied(
            "a worker process ended before it had checked its cases",
            hint="the usual reason is too little memory: use fewer processes",
        ) from exc
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@cache
def _standard_tools() -> tuple[Scanner, Linter]:
    """The scanner and linter of a worker, with their tables built."""
    scan, lint = standard_scanner(), standard_linter()
    scan("", None)
    return scan, lint


def _check_chunk(cases: Sequence[SnapshotCase]) -> list[tuple[str, list[GateHit]]]:
    scan, lint = _standard_tools()
    return [(case.case_id, content_hits(case, scan, lint)) for case in cases]
