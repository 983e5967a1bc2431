"""The release gates: what a case, and a release as a whole, must pass before it is frozen.

A gate returns its hits as values. A hit on a case keeps that case out, with the reason; a hit on the release
makes it `publishable: false`, with the reason. No hit quotes the text it was found in.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Axis, Theme
from medlive.snapshot.disguise import as_read, find_disguise, find_markup
from medlive.snapshot.leaks import find_contact, find_unstorable
from medlive.snapshot.manifest import Provenance
from medlive.snapshot.model import CASE_ID, SnapshotCase, last_day, week_end


class Gate(StrEnum):
    """What was checked."""

    TEXT = "text"
    IDENTIFIERS = "identifiers"
    RUBRIC = "rubric"
    ROW = "row"
    ENGINE = "engine"
    PROVENANCE = "provenance"
    MINIMUM = "minimum"


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
    from medlive.threads.deidentify import find_identifiers

    return find_identifiers


def row_hits(case: SnapshotCase) -> Iterator[GateHit]:
    """What makes a case illegal in a snapshot, whatever made it: the same rules that `verify` applies."""

    def hit(detail: str, gate: Gate = Gate.ROW) -> GateHit:
        return GateHit(gate, case.case_id, detail)

    if not CASE_ID.fullmatch(case.case_id):
        yield hit("the id holds spaces, slashes or control characters, or is empty")
    if case.language not in ("en", "zh"):
        yield hit(f"language {case.language!r}")
    if case.theme not in set(Theme):
        yield hit(f"theme {case.theme!r}")
    if case.specialty != UNKNOWN_SPECIALTY and case.specialty not in SPECIALTIES:
        yield hit(f"specialty {case.specialty!r}")
    if week_end(case.first_release) is None:
        yield hit(f"first release {case.first_release!r}")
    elif case.posted_at > last_day(case.first_release):
        yield hit(f"posted on {case.posted_at}, after its first release {case.first_release}")
    for name in ("narrative", "query", "advice"):
        if not getattr(case, name).strip():
            yield hit(f"{name} is empty")
    if not any(c.points > 0 for c in case.criteria):
        yield hit("no criterion has positive points", Gate.RUBRIC)
    if len({c.criterion_id for c in case.criteria}) != len(case.criteria):
        yield hit("two criteria share an id", Gate.RUBRIC)
    for place, criterion in enumerate(case.criteria, start=1):
        where = f"criterion {place}"
        if criterion.axis not in set(Axis):
            yield hit(f"{where}: axis {criterion.axis!r}", Gate.RUBRIC)
        if criterion.points == 0 or abs(criterion.points) > 10:
            yield hit(f"{where}: {criterion.points} points", Gate.RUBRIC)
        if criterion.position != place:
            yield hit(f"{where}: position {criterion.position}", Gate.RUBRIC)
        if criterion.case_id != case.case_id or criterion.revision != case.revision:
            yield hit(f"{where}: belongs to {criterion.case_id} revision {criterion.revision}", Gate.RUBRIC)
        if not CASE_ID.fullmatch(criterion.criterion_id):
            yield hit(f"{where}: its id holds spaces, slashes or control characters", Gate.RUBRIC)
        if not criterion.criterion.strip():
            yield hit(f"{where}: is empty", Gate.RUBRIC)


def case_hits(case: SnapshotCase, scan: Scanner, lint: Linter) -> list[GateHit]:
    """Every reason to keep a case out, none when it may go in."""
    hits = list(row_hits(case))
    texts = [("narrative", case.narrative), ("query", case.query), ("advice", case.advice)]
    texts += [(f"criterion {place}", c.criterion) for place, c in enumerate(case.criteria, start=1)]
    texts.append(("source", case.source))
    for name, text in texts:
        if (character := find_unstorable(text)) is not None:
            hits.append(GateHit(Gate.TEXT, case.case_id, f"{name} holds {character}"))
            continue
        if (character := find_disguise(text)) is not None:
            hits.append(GateHit(Gate.TEXT, case.case_id, f"{name} holds {character}, which is not what it seems"))
        if (markup := find_markup(text)) is not None:
            hits.append(GateHit(Gate.TEXT, case.case_id, f"{name} holds markup: {markup!r}"))
        hits += [
            GateHit(Gate.IDENTIFIERS, case.case_id, f"{name} holds {found}")
            for found in _identifiers(text, case.language, scan)
        ]
    hits += [GateHit(Gate.RUBRIC, case.case_id, finding) for finding in lint(case)]
    return hits


def _identifiers(text: str, language: str, scan: Scanner) -> Iterator[str]:
    """The identifiers in a text as it is spelled, and where it has none, as it reads."""
    contact, found = find_contact(text), scan(text, language)
    if contact is not None:
        yield f"a {contact}"
    yield from (f"a {identifier.kind} at character {identifier.start}" for identifier in found)
    if contact is None and not found and (read := as_read(text)) != text:
        if (contact := find_contact(read)) is not None:
            yield f"a {contact}, spelled otherwise"
        yield from (f"a {identifier.kind}, spelled otherwise" for identifier in scan(read, language))


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


def release_hits(provenance: Provenance, cases: int, minimum: int) -> list[GateHit]:
    """Every reason why a release of that many cases may not be published."""
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
    return hits
