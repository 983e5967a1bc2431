"""The release gates: the checks that a case, and a release as a whole, must pass before it is frozen.

A gate returns its hits as values, and a hit keeps its case out; a fault of the release makes it
`publishable: false`. No hit quotes the text it was found in.

A case is checked in three parts: its rows (`row_hits`, cheap); its texts and rubric (`content_hits`, expensive,
and the same for a revision under one `gates_digest`); what the database knows of it
(`db.release.fixing`).
"""

import json
import platform
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path

from medlive.integrity.digest import digest_bytes, digest_json
from medlive.rubric.model import Axis, Origin, tier_of

from .manifest import Provenance
from .model import (
    CASE_ID,
    ENUMERATIONS,
    PROOF_FIELDS,
    SnapshotCase,
    SnapshotCriterion,
    week_end,
)
from .verify.text_checks import (
    as_read,
    find_contact,
    find_disguise,
    find_leak,
    find_markup,
    find_unstorable,
    texts_of,
)


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


@dataclass(frozen=True)
class GateHit:
    """What a gate found in a case."""

    gate: Gate
    case_id: str
    detail: str


def lint_case(case: SnapshotCase) -> list[str]:
    """Apply the rubric linter to a case as it would be released."""
    from medlive.rubric.lint import lint
    from medlive.rubric.model import Criterion

    criteria = []
    for c in case.criteria:
        if c.axis not in ENUMERATIONS["axis"] or c.origin not in ENUMERATIONS["origin"]:
            return []  # `row_hits` reports the axis or origin
        criterion = Criterion(
            id=c.criterion_id,
            position=c.position,
            criterion=c.criterion,
            axis=Axis(c.axis),
            points=c.points,
            advice_id="" if c.origin == Origin.ADVICE else None,
            origin=Origin(c.origin),
            source=c.source,
        )
        criteria.append(criterion)
    whole = f"{case.narrative}\n{case.query}\n{case.advice}"
    # The reason for a rubric without negative points is recorded by the curation, not in a snapshot.
    findings = lint(
        case.language,
        criteria,
        {"": case.advice},
        whole,
        no_negative="unknown here",
    )
    return [f"{f.fault}: {f.detail}" for f in findings]


_OF_CASES = ("language", "theme", "specialty", "difficulty", "dialogue_register")
"""The columns of cases that are checked against their enumeration."""

_NUMBER = re.compile("[1-9][0-9]*")
_MOST_ID = 200
"""Characters of a criterion's id."""
MAX_TEXT = 100_000
"""Characters of one text; with this limit no line of a snapshot reaches `bounds.SNAPSHOT_LINE_BYTES`."""


def row_hits(
    case: SnapshotCase, enumerations: Mapping[str, tuple[str, ...]] = ENUMERATIONS
) -> Iterator[GateHit]:
    """Find what makes a case's rows illegal in a snapshot with these enumerations; `verify` applies the same rules."""
    faults = [*_case_faults(case, enumerations), *_proof_faults(case)]
    parts: dict[str, str] = {}
    try:
        parts = asked_parts(case)
    except ValueError as exc:
        faults.append(f"asked is not a list of parts: {exc}"[:200])
    for name, text in parts.items():
        if not text.strip():
            faults.append(f"part {name!r} of the query is empty")
    for detail in faults:
        yield GateHit(Gate.ROW, case.case_id, detail)
    if not any(c.points > 0 for c in case.criteria):
        yield GateHit(Gate.RUBRIC, case.case_id, "no criterion has positive points")
    if len({c.criterion_id for c in case.criteria}) != len(case.criteria):
        yield GateHit(Gate.RUBRIC, case.case_id, "two criteria share an id")
    for place, criterion in enumerate(case.criteria, start=1):
        for detail in (
            *_criterion_faults(criterion, enumerations),
            *_place_faults(criterion, place, case, parts),
        ):
            yield GateHit(Gate.RUBRIC, case.case_id, f"criterion {place}: {detail}")


def asked_parts(case: SnapshotCase) -> dict[str, str]:
    """Return the texts of the parts of the case's query by id.

    Raises ValueError where it is not a list of parts, each with an id of its own.
    """
    if not case.asked:
        return {}
    parts: dict[str, str] = {}
    try:
        listed = json.loads(case.asked)
        for part in listed:
            parts[str(part["id"])] = str(part["text"])
    except (TypeError, LookupError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc
    if len(parts) < len(listed):
        raise ValueError("two parts share an id")
    return parts


def _case_faults(
    case: SnapshotCase, enumerations: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    if not CASE_ID.fullmatch(case.case_id):
        yield "the id has spaces, slashes or control characters, is empty or too long"
    for name in _OF_CASES:
        if getattr(case, name) not in enumerations.get(name, ()):
            yield f"{name} {getattr(case, name)!r}"
    if (end := week_end(case.first_release)) is None:
        yield f"first release {case.first_release!r}"
    elif case.posted_at > end + timedelta(days=1):  # a day more, for time zones
        yield f"posted on {case.posted_at}, after its first release {case.first_release}"
    for name in ("narrative", "query", "advice"):
        if not getattr(case, name).strip():
            yield f"{name} is empty"


def _proof_faults(case: SnapshotCase) -> Iterator[str]:
    figures = {}
    for name in (*PROOF_FIELDS, "ordinary"):
        if (figure := getattr(case, name)) is not None:
            figures[name] = figure
    if figures and not figures.keys() >= set(PROOF_FIELDS):
        yield f"{', '.join(figures)} without the other figures of the proof"
    for name, figure in figures.items():
        if not 0 <= figure <= 1:
            yield f"{name} {figure}, expected 0 to 1"


def _place_faults(
    criterion: SnapshotCriterion,
    place: int,
    case: SnapshotCase,
    parts: Mapping[str, str],
) -> Iterator[str]:
    """What is wrong with a criterion as one of a case, whose query has these parts."""
    if criterion.position != place:
        yield f"position {criterion.position}"
    if criterion.case_id != case.case_id or criterion.revision != case.revision:
        yield f"belongs to {criterion.case_id} revision {criterion.revision}"
    # What answered a part of the query may have been withdrawn since.
    if criterion.asked and criterion.asked not in parts:
        asked = criterion.asked[:40]
        yield f"answers {asked!r}, which is not a part of the query"
    of_case, _, number = criterion.criterion_id.rpartition("-c")
    is_long = len(criterion.criterion_id) > _MOST_ID
    if is_long or of_case != case.case_id or not _NUMBER.fullmatch(number):
        yield "its id is not the case's, -c and a number"


def _criterion_faults(
    criterion: SnapshotCriterion, enumerations: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """What is wrong with a criterion by itself."""
    points = criterion.points
    origin = criterion.origin
    if criterion.axis not in enumerations.get("axis", ()):
        yield f"axis {criterion.axis!r}"
    if points == 0 or not -10 <= points <= 10:
        yield f"{points} points"
    is_of_advice = origin == Origin.ADVICE
    if origin not in enumerations.get("origin", ()):
        yield f"origin {origin!r}"
    elif origin in ENUMERATIONS["origin"] and is_of_advice != (criterion.source == ""):
        yield f"origin {origin} with source {criterion.source[:100]!r}"
    tier = criterion.tier
    if tier and tier not in enumerations.get("tier", ()):
        yield f"tier {tier!r}"
    elif tier in ENUMERATIONS["tier"] and tier != tier_of(points):
        yield f"tier {tier!r} with {points} points"
    if not criterion.criterion.strip():
        yield "is empty"


def released_texts(case: SnapshotCase) -> Iterator[tuple[str, str]]:
    """Every text of a case that its readers see, after its name."""
    yield "narrative", case.narrative
    yield "query", case.query
    yield "advice", case.advice
    for place, criterion in enumerate(case.criteria, start=1):
        yield f"criterion {place}", criterion.criterion
    yield "source", case.source
    with suppress(ValueError):  # `row_hits` reports them
        parts = asked_parts(case)
        for part, text in parts.items():
            yield f"part {part} of the query", text
        # Their ids, and what a later version adds to them
        known = {"id", "text", *parts.values()}
        for text in texts_of(json.loads(case.asked or "[]")):
            if text not in known:
                yield "a part of the query", text
    yield "overruled", case.overruled or ""


def content_hits(case: SnapshotCase) -> list[GateHit]:
    """Find what in a case's texts and rubric keeps it out. Needs the extra `service`.

    The result depends only on the texts, the language, the criteria, and what `gates_digest` covers.
    """
    texts = list(released_texts(case))
    hits: list[GateHit] = []
    for name, text in texts:
        if len(text) > MAX_TEXT:
            detail = f"{name} has more than {MAX_TEXT:,} characters"
            hits.append(GateHit(Gate.TEXT, case.case_id, detail))
    if hits:
        return hits
    for name, text in texts:
        for gate, what in _text_hits(text, case.language):
            hits.append(GateHit(gate, case.case_id, f"{name} holds {what}"))
    for place, criterion in enumerate(case.criteria, start=1):
        # A passage's id or a model's name never holds these
        if leak := find_leak(criterion.source) or find_markup(criterion.source):
            detail = f"source of criterion {place} holds {leak}"
            hits.append(GateHit(Gate.TEXT, case.case_id, detail))
    for finding in lint_case(case):
        hits.append(GateHit(Gate.RUBRIC, case.case_id, finding))
    return hits


def _text_hits(text: str, language: str) -> Iterator[tuple[Gate, str]]:
    from medlive.deidentify.detect import find_identifiers

    if (character := find_unstorable(text)) is not None:
        yield Gate.TEXT, character
        return
    if (character := find_disguise(text)) is not None:
        yield Gate.TEXT, f"{character}, which is not what it seems"
    if (markup := find_markup(text)) is not None:
        yield Gate.TEXT, f"markup: {markup!r}"
    contact = find_contact(text)
    identifiers = find_identifiers(text, language)
    if contact is not None:
        yield Gate.IDENTIFIERS, f"a {contact}"
    for identifier in identifiers:
        yield Gate.IDENTIFIERS, f"a {identifier.kind} at character {identifier.start}"
    plain = as_read(text)
    if contact is None and not identifiers and plain != text:
        if (contact := find_contact(plain)) is not None:
            yield Gate.IDENTIFIERS, f"a {contact}, spelled otherwise"
        for identifier in find_identifiers(plain, language):
            yield Gate.IDENTIFIERS, f"a {identifier.kind}, spelled otherwise"


_NO_JUDGEMENT = {
    "rules": "cases were curated by the rules engine, which makes no clinical judgement",
    "recorded": "cases were curated from recorded replies, or by the rules engine where none is recorded, "
    "and not by a model that judged them",
}
"""Engine → why a release that it took part in is not publishable."""


def release_faults(provenance: Provenance, cases: int, minimum: int) -> list[str]:
    """Find every reason why a release may not be published."""
    faults = []
    for engine, why in _NO_JUDGEMENT.items():
        if roles := sorted({e.role for e in provenance.engines if e.engine == engine}):
            faults.append(f"{why} (in the roles: {', '.join(roles)})")
    for name in ("engines", "prompts", "evidence", "thresholds", "code_version"):
        if not getattr(provenance, name):
            faults.append(f"the provenance names no {name.replace('_', ' ')}")
    if cases < minimum:
        faults.append(f"{cases} cases, at least {minimum} are asked for")
    return faults


PACKAGE = Path(__file__).resolve().parents[1]
DECIDING_MODULES = (
    "deidentify/chinese.py",
    "deidentify/chinese_general.py",
    "deidentify/data/chinese.txt",
    "deidentify/data/english.txt",
    "deidentify/detect.py",
    "deidentify/english.py",
    "deidentify/english_places.py",
    "deidentify/identifiers.py",
    "deidentify/numbers.py",
    "rubric/lint.py",
    "rubric/model.py",
    "snapshot/gates.py",
    "snapshot/verify/text_checks.py",
    "text/neutral.py",
    "text/normalise.py",
    "text/lists.py",
    "text/quantities.py",
    "text/quantities.toml",
)
"""The modules that decide `content_hits`, by their path in the package."""
_LIBRARIES = ("phonenumbers", "python-stdnum")
"""The libraries whose tables say what an identity or telephone number is."""


@cache
def gates_digest(package: Path = PACKAGE) -> str:
    """Return the digest of what decides `content_hits`; under the same digest a stored verdict can be reused.

    It covers the source of DECIDING_MODULES under `package`, the versions of the libraries, and those of Python
    and its Unicode tables. Needs the extra `service`.
    """
    return digest_json(
        {
            "modules": {
                name: digest_bytes((package / name).read_bytes())
                for name in DECIDING_MODULES
            },
            "libraries": {name: version(name) for name in _LIBRARIES},
            "python": ".".join(platform.python_version_tuple()[:2]),
            "unicode": unicodedata.unidata_version,
        }
    )
