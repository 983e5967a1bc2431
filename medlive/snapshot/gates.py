"""The release gates: what a case, and a release as a whole, must pass before it is frozen.

A gate returns its hits as values. A hit on a case keeps that case out, with the reason; a hit on the release
makes it `publishable: false`, with the reason. No hit quotes the text it was found in.

Three things are asked of a case: whether its rows are legal (`row_hits`, cheap), what its texts hold
(`content_hits`, dear, and the same for the same revision as long as `gates_digest` is), and what is known of it
beside them (`fact_hits`, which may change any day).
"""

import platform
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
from typing import Any, Final, Protocol

from medlive.digest import digest_bytes, digest_json
from medlive.errors import CheckFailed
from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Axis, Theme
from medlive.snapshot.manifest import Provenance
from medlive.snapshot.model import CASE_ID, SnapshotCase, SnapshotCriterion, last_day, week_end
from medlive.snapshot.verify.disguise import as_read, find_disguise, find_markup
from medlive.snapshot.verify.leaks import find_contact, find_unstorable


class Gate(StrEnum):
    """What was checked."""

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
    """A process that checked cases died."""


@dataclass(frozen=True, slots=True)
class GateHit:
    """What a gate found; `case_id` is None where it concerns the release as a whole."""

    gate: Gate
    case_id: str | None
    detail: str


class Found(Protocol):
    """An identifier that a scanner found: its kind and its place, never its text."""

    @property
    def kind(self) -> Any:
        """What it is, a string enum."""
        ...

    @property
    def start(self) -> int:
        """Where it begins."""
        ...


Scanner = Callable[[str, str | None], Sequence[Found]]
"""`scan(text, language)`: the identifiers in a text."""

Linter = Callable[[SnapshotCase], Iterable[str]]
"""`lint(case)`: what is wrong with a case's rubric, one line each."""


def standard_scanner() -> Scanner:
    """The scanner for identifiers of people and places (needs the extra `service`)."""
    from medlive.deidentify.detect import find_identifiers

    return find_identifiers


def standard_linter() -> Linter:
    """The rubric linter, on a case as it would be released."""
    from medlive.rubric.lint import lint
    from medlive.rubric.model import Criterion

    def lint_case(case: SnapshotCase) -> Iterable[str]:
        if not all(c.axis in _AXES for c in case.criteria):
            return []  # no rubric to be read: `row_hits` names the axis
        criteria = [
            Criterion(c.criterion_id, c.position, c.criterion, Axis(c.axis), c.points, "") for c in case.criteria
        ]
        whole = f"{case.narrative}\n{case.query}\n{case.advice}"
        # Why a rubric has no criterion that costs points is known where it was written, not in a snapshot.
        findings = lint(case.language, criteria, {"": case.advice}, whole, no_negative="unknown here")
        return [f"{f.fault.value}: {f.detail}" for f in findings]

    return lint_case


_LANGUAGES: Final = frozenset(("en", "zh"))
_THEMES: Final = frozenset(theme.value for theme in Theme)
_AXES: Final = frozenset(axis.value for axis in Axis)
_SPECIALTIES: Final = frozenset((*SPECIALTIES, UNKNOWN_SPECIALTY))
_LONGEST_ID: Final = 200

MOST_TEXT: Final = 100_000
"""Characters of a case's text; a thread that makes more is no question, and no line of a snapshot is that long."""


@lru_cache(maxsize=4096)
def _last_day(version: str) -> date | None:
    return None if week_end(version) is None else last_day(version)


def row_hits(case: SnapshotCase) -> Iterator[GateHit]:
    """What makes a case illegal in a snapshot, whatever made it: the same rules that `verify` applies."""
    case_id = case.case_id

    def hit(detail: str, gate: Gate = Gate.ROW) -> GateHit:
        return GateHit(gate, case_id, detail)

    if not CASE_ID.fullmatch(case_id):
        yield hit("the id holds spaces, slashes or control characters, or is empty")
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
    for fault in _rubric_faults(case):
        yield hit(fault, Gate.RUBRIC)


def _rubric_faults(case: SnapshotCase) -> Iterator[str]:
    if not any(c.points > 0 for c in case.criteria):
        yield "no criterion has positive points"
    if len({c.criterion_id for c in case.criteria}) != len(case.criteria):
        yield "two criteria share an id"
    for place, criterion in enumerate(case.criteria, start=1):
        for fault in _criterion_faults(case, place, criterion):
            yield f"criterion {place}: {fault}"


def _criterion_faults(case: SnapshotCase, place: int, criterion: SnapshotCriterion) -> Iterator[str]:
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
    number = criterion_id[len(prefix) :]
    return (
        criterion_id.startswith(prefix)
        and number.isdecimal()
        and number.isascii()
        and number[0] != "0"
        and len(criterion_id) <= _LONGEST_ID
    )


def content_hits(case: SnapshotCase, scan: Scanner, lint: Linter) -> list[GateHit]:
    """What a case's texts and rubric hold that keeps it out.

    It depends on the texts, the language and the criteria alone, and on what `gates_digest` names.
    """
    case_id = case.case_id
    texts = [("narrative", case.narrative), ("query", case.query), ("advice", case.advice)]
    texts += [(f"criterion {place}", c.criterion) for place, c in enumerate(case.criteria, start=1)]
    texts.append(("source", case.source))
    if long := [name for name, text in texts if len(text) > MOST_TEXT]:
        return [GateHit(Gate.TEXT, case_id, f"{name} has more than {MOST_TEXT:,} characters") for name in long]
    rubric = (GateHit(Gate.RUBRIC, case_id, finding) for finding in lint(case))
    return [*_text_hits(case_id, case.language, texts, scan), *rubric]


def _text_hits(case_id: str, language: str, texts: Sequence[tuple[str, str]], scan: Scanner) -> Iterator[GateHit]:
    # What a look at all texts together does not find, no look at one of them would: a line end parts them.
    whole = "\n".join([text for _, text in texts])
    unstorable = find_unstorable(whole) is not None
    plain = not unstorable and find_disguise(whole) is None and find_markup(whole) is None
    as_spelled = find_contact(whole) is not None
    read = _each_as_read(texts, whole)
    for (name, text), as_reader in zip(texts, read, strict=True):
        if unstorable and (character := find_unstorable(text)) is not None:
            yield GateHit(Gate.TEXT, case_id, f"{name} holds {character}")
            continue
        if not plain:
            yield from (GateHit(Gate.TEXT, case_id, f"{name} holds {what}") for what in _disguises(text))
        contact = find_contact(text) if as_spelled else None
        other = as_reader if as_reader != text else None
        found = _identifiers(contact, scan(text, language), other, language, scan)
        yield from (GateHit(Gate.IDENTIFIERS, case_id, f"{name} holds {what}") for what in found)


def _disguises(text: str) -> Iterator[str]:
    if (character := find_disguise(text)) is not None:
        yield f"{character}, which is not what it seems"
    if (markup := find_markup(text)) is not None:
        yield f"markup: {markup!r}"


def case_hits(case: SnapshotCase, scan: Scanner, lint: Linter) -> list[GateHit]:
    """Every reason in a case's rows to keep it out: its `row_hits` and its `content_hits`."""
    return [*row_hits(case), *content_hits(case, scan, lint)]


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """What is known of a case beside its rows, on the day of a release."""

    publishable: bool
    """False where the case may be in no release that is to be published."""
    unpublishable_reason: str | None
    """Why not, for a reader; None where it is publishable."""
    index_known: bool
    """Whether the evidence index that its claims were judged by is recorded."""
    claims_without_evidence: int
    """Claims judged as supported for which no evidence is stored."""
    open_disputes: int
    withdrawn: str | None = None
    """The reason for which the case was withdrawn; None where it was not."""


def fact_hits(case_id: str, facts: CaseFacts, *, publishable_only: bool) -> list[GateHit]:
    """The reasons beside its rows to keep a case out. `publishable_only`: a release asks for nothing else."""
    hits = []
    if facts.withdrawn is not None:
        hits.append(GateHit(Gate.WITHDRAWN, case_id, f"withdrawn: {facts.withdrawn}"))
    if facts.open_disputes:
        many = "a dispute is" if facts.open_disputes == 1 else f"{facts.open_disputes} disputes are"
        hits.append(GateHit(Gate.DISPUTE, case_id, f"{many} open"))
    if facts.claims_without_evidence:
        many = "a supported verdict" if facts.claims_without_evidence == 1 else "supported verdicts"
        count = "" if facts.claims_without_evidence == 1 else f"{facts.claims_without_evidence} "
        hits.append(GateHit(Gate.EVIDENCE, case_id, f"{count}{many} without stored evidence"))
    if not facts.index_known:
        hits.append(GateHit(Gate.EVIDENCE, case_id, "judged by no known index"))
    if publishable_only and not facts.publishable:
        hits.append(GateHit(Gate.ENGINE, case_id, facts.unpublishable_reason or "not publishable"))
    return hits


def _each_as_read(texts: Sequence[tuple[str, str]], whole: str) -> list[str]:
    """Each text as it reads, out of one look at all of them: nothing in `as_read` reaches over a line end."""
    read = as_read(whole)
    if read == whole:
        return [text for _, text in texts]
    lines = iter(read.split("\n"))
    return ["\n".join(islice(lines, text.count("\n") + 1)) for _, text in texts]


def _identifiers(
    contact: str | None, found: Sequence[Found], as_reader: str | None, language: str, scan: Scanner
) -> Iterator[str]:
    """The identifiers found in a text as it is spelled, and where there are none, those in it as it reads."""
    if contact is not None:
        yield f"a {contact}"
    yield from (f"a {identifier.kind} at character {identifier.start}" for identifier in found)
    if contact is None and not found and as_reader is not None:
        if (contact := find_contact(as_reader)) is not None:
            yield f"a {contact}, spelled otherwise"
        yield from (f"a {identifier.kind}, spelled otherwise" for identifier in scan(as_reader, language))


@dataclass(slots=True)
class Screened:
    """Cases on their way into a release: iterate for those that pass; `hits` fills with those that do not."""

    cases: Iterable[SnapshotCase]
    scan: Scanner
    lint: Linter
    hits: list[GateHit]

    def __iter__(self) -> Iterator[SnapshotCase]:
        for case in self.cases:
            if found := case_hits(case, self.scan, self.lint):
                self.hits += found
            else:
                yield case


def screen(cases: Iterable[SnapshotCase], scan: Scanner, lint: Linter) -> Screened:
    """The cases that pass their gates, one by one; what was kept out stands in `.hits` afterwards."""
    return Screened(cases, scan, lint, [])


def release_hits(
    provenance: Provenance,
    cases: int,
    minimum: int,
    *,
    by_language: Mapping[str, int] = MappingProxyType({}),
    minimum_by_language: Mapping[str, int] = MappingProxyType({}),
) -> list[GateHit]:
    """Every reason why a release of that many cases may not be published.

    `by_language`: how many of them are in each language; `minimum_by_language`: how many there must be.
    """
    hits: list[GateHit] = []
    if by_rules := sorted({e.role for e in provenance.engines if e.engine == "rules"}):
        detail = f"the rules engine, which makes no clinical judgement, was {', '.join(by_rules)}"
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
        if (held := by_language.get(language, 0)) < least:
            detail = f"{held} cases in {language!r}, at least {least} are asked for"
            hits.append(GateHit(Gate.MINIMUM, None, detail))
    return hits


PACKAGE: Final = Path(__file__).resolve().parents[1]
DECIDING: Final = (
    "deidentify/anchors.py",
    "deidentify/chinese.py",
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
"""The modules that the scanner, the linter and `content_hits` run through, by their place in the package."""
_LIBRARIES: Final = ("phonenumbers", "python-stdnum")
"""The libraries whose tables decide what a number is."""


@cache
def gates_digest(package: Path = PACKAGE) -> str:
    """What decides `content_hits`, as `sha256:…`: another for other source or libraries.

    It covers the bytes of the modules in DECIDING under `package`, the versions of phonenumbers and python-stdnum,
    and Python's minor version with its Unicode tables, which say what a letter or a digit is. Two that are equal
    find the same in the same revision of a case, so that a verdict stored under one stands under the other. Needs
    the extra `service`.
    """
    return digest_json(
        {
            "modules": {name: digest_bytes((package / name).read_bytes()) for name in DECIDING},
            "libraries": {name: version(name) for name in _LIBRARIES},
            "python": ".".join(platform.python_version_tuple()[:2]),
            "unicode": unicodedata.unidata_version,
        }
    )


_CHUNK: Final = 64
"""Cases that go to a process at once: about 0.1 s of work."""
_AHEAD: Final = 2
"""Chunks per process on their way: none of them waits, and memory stays flat."""


def check_many(cases: Iterable[SnapshotCase], processes: int) -> Iterator[tuple[str, list[GateHit]]]:
    """Each case's id and its `content_hits` by the standard scanner and linter, in the order of the cases.

    `processes`: 1 checks in this process, more in as many new ones; a few hundred cases are held at a time. The
    cases are drawn in this thread, when results are. Raises ValueError for less than one process, and
    GateWorkerDied where one ends before its work is done.
    """
    if processes < 1:
        raise ValueError("processes must be at least 1")
    if processes == 1:
        scan, lint = standard_scanner(), standard_linter()
        return ((case.case_id, content_hits(case, scan, lint)) for case in cases)
    return _check_apart(iter(cases), processes)


def _check_apart(cases: Iterator[SnapshotCase], processes: int) -> Iterator[tuple[str, list[GateHit]]]:
    from collections import deque
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # A fork of a process with threads and an event loop may hang: new interpreters it is.
    waiting: deque[Future[list[tuple[str, list[GateHit]]]]] = deque()
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_prepare)
    try:
        for chunk in iter(lambda: list(islice(cases, _CHUNK)), []):
            waiting.append(pool.submit(_check_chunk, chunk))
            if len(waiting) > processes * _AHEAD:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BrokenProcessPool as exc:
        raise GateWorkerDied(
            "a process that checked cases ended before its work was done",
            hint="too little memory is the usual reason; fewer processes need less",
        ) from exc
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@cache
def _prepare() -> tuple[Scanner, Linter]:
    """The scanner and the linter of a process, their tables built."""
    scan, lint = standard_scanner(), standard_linter()
    scan("", None)
    return scan, lint


def _check_chunk(cases: Sequence[SnapshotCase]) -> list[tuple[str, list[GateHit]]]:
    scan, lint = _prepare()
    return [(case.case_id, content_hits(case, scan, lint)) for case in cases]
