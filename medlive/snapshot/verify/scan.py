"""One pass over a snapshot's rows that collects what every row-level step of `verify` wants to know."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from io import BufferedReader
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from medlive.integrity.checks import Faults
from medlive.integrity.folder import TooLong, open_inside
from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Axis, Theme
from medlive.snapshot.entries import Cursor, Ledgers
from medlive.snapshot.gates import row_hits
from medlive.snapshot.ledger import CHANGES, HOLDOUTS
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion, case_from_rows, last_day, livemedbench_end
from medlive.snapshot.rows import (
    CASES,
    CRITERIA,
    CaseParts,
    CriterionParts,
    Line,
    Reader,
    case_row,
    criterion_row,
    value,
)
from medlive.snapshot.verify.disguise import find_disguise
from medlive.snapshot.verify.leaks import find_contact, find_unstorable

PLAIN: Final = "livemedbench.json"

MOST_VALUES: Final = 10_000
"""A count has no more values than this; what comes on top is counted as one."""
_LONGEST_VALUE: Final = 300
_REST: Final = b"(more)"
_TALLIED: Final = 500

_AXES: Final = frozenset(axis.encode() for axis in Axis)
_THEMES: Final = frozenset(theme.encode() for theme in Theme)
_SPECIALTIES: Final = frozenset(name.encode() for name in (*SPECIALTIES, UNKNOWN_SPECIALTY))
_COUNTED: Final = (
    "by_language", "by_source", "by_theme", "by_specialty", "by_axis", "by_month", "by_first_release",
    "criteria_per_case",
)  # fmt: skip
_PLACES: Final = tuple(str(place).encode() for place in range(1, 1001))


@dataclass(slots=True)
class Scan:
    """What one pass over the rows found, by the step that reports it."""

    rows: Faults = field(default_factory=Faults)
    ids: Faults = field(default_factory=Faults)
    rubric: Faults = field(default_factory=Faults)
    positive: Faults = field(default_factory=Faults)
    plain: Faults = field(default_factory=Faults)
    releases: Faults = field(default_factory=Faults)
    changes: Faults = field(default_factory=Faults)
    proofs: Faults = field(default_factory=Faults)
    canary: Faults = field(default_factory=Faults)
    leaks: Faults = field(default_factory=Faults)
    cases: int = 0
    criteria: int = 0
    counts: dict[str, Counter[bytes]] = field(default_factory=lambda: {name: Counter() for name in _COUNTED})
    pending: list[CaseParts] = field(default_factory=list)
    axes: list[bytes] = field(default_factory=list)
    sizes: list[bytes] = field(default_factory=list)
    """What is not counted yet."""

    def tally(self, case: CaseParts, criteria: Sequence[tuple[bytes, ...]]) -> None:
        """Count a case and its criteria; `settle` brings the counts up to date."""
        self.pending.append(case)
        self.axes += [parts[0] for parts in criteria]
        self.sizes.append(b"%d" % len(criteria))
        if len(self.pending) >= _TALLIED:
            self.settle()

    def settle(self) -> None:
        """Bring the counts up to date."""
        for name in ("language", "source", "theme", "specialty", "first_release"):
            self.count(f"by_{name}", list(map(attrgetter(name), self.pending)))
        self.count("by_month", [case.posted_at[:7] for case in self.pending])
        self.count("by_axis", self.axes)
        self.count("criteria_per_case", self.sizes)
        for counted in (self.pending, self.axes, self.sizes):
            counted.clear()

    def count(self, name: str, parts: list[bytes]) -> None:
        """Count values under a name of the manifest's counts."""
        counter = self.counts[name]
        for part, number in Counter(parts).items():
            if part not in counter and (len(counter) >= MOST_VALUES or len(part) > _LONGEST_VALUE):
                part = _REST
            counter[part] += number

    def counted(self, name: str) -> dict[str, int]:
        """Value → how often, as the manifest's counts state it."""
        return {value(part): number for part, number in self.counts[name].items()}


class _Expect:
    """Compares a file with the bytes it should hold, as they come."""

    def __init__(self, root: Path, faults: Faults) -> None:
        self._faults = faults
        self._handle = BufferedReader(open_inside(root, PLAIN), 1 << 18)
        self._at = 0
        self._differs = False

    def feed(self, data: bytes, case_id: bytes) -> None:
        if not self._differs and self._handle.read(len(data)) != data:
            self._differs = True
            what = f"what {CASES} and {CRITERIA} say of case {case_id.decode()!r}" if case_id else "its end"
            self._faults.add(PLAIN, what, f"other bytes after byte {self._at}")
        self._at += len(data)

    def close(self, complete: bool) -> None:
        with self._handle:
            if complete:
                self.feed(livemedbench_end(), b"")
                if not self._differs and self._handle.read(1):
                    self._faults.add(PLAIN, f"its end at byte {self._at}", "more")


def scan_rows(root: Path, manifest: Manifest | None, ledgers: Ledgers | None) -> Scan:
    """Read cases and criteria side by side, with the ledgers' entries, and compare `livemedbench.json` on the way.

    `manifest` and `ledgers` are None where they cannot be read; what needs them is not looked at then. Never
    raises for what a folder may hold.
    """
    scan = Scan()
    try:
        expect = _Expect(root, scan.plain) if manifest is not None else None
    except OSError as exc:
        scan.plain.add(PLAIN, "a readable file", exc.strerror or str(exc))
        return scan
    complete = False
    try:
        with open_inside(root, CASES) as cases, open_inside(root, CRITERIA) as criteria:
            canary = manifest.canary if manifest else None
            _Pass(scan, manifest, ledgers, expect).run(
                Reader(cases, CASES, canary), Reader(criteria, CRITERIA, canary)
            )
        complete = True
    except (OSError, TooLong) as exc:
        scan.rows.add("data", "readable rows", str(exc)[:300])
    finally:
        if expect is not None:
            expect.close(complete)
    return scan


class _Pass:
    def __init__(
        self, scan: Scan, manifest: Manifest | None, ledgers: Ledgers | None, expect: _Expect | None
    ) -> None:
        self._scan, self._expect = scan, expect
        self._canary = b"" if manifest is None else manifest.canary.encode()
        self._version = b"" if manifest is None else manifest.version.encode()
        self._releases: frozenset[bytes] | None = None
        if manifest is not None:
            before = (ancestor.version.encode() for ancestor in manifest.lineage)
            self._releases = frozenset((*before, self._version))
        self._dates: dict[tuple[bytes, bytes], bool] = {}
        self._ledgers = ledgers
        self._listed = ledgers is not None and CHANGES in ledgers.spelled
        absent, out = scan.changes, "in the snapshot"
        self._added = self._cursor("added", lambda e: absent.add(_at(CHANGES, "added", e), out, "not there"))
        self._revised = self._cursor("revised", lambda e: absent.add(_at(CHANGES, "revised", e), out, "not there"))
        self._withdrawn = self._cursor("withdrawn", lambda e: None)
        self._revealed = self._cursor(
            "revealed", lambda e: scan.proofs.add(_at(HOLDOUTS, "revealed", e), out, "not there")
        )

    def _cursor(self, section: str, lonely: Any) -> Cursor:
        return Cursor(self._ledgers.entries(section) if self._ledgers else iter(()), lonely)

    def run(self, cases: Reader, criteria: Reader) -> None:
        """Walk along both files."""
        scan, expect, before = self._scan, self._expect, b""
        waiting = iter(criteria)
        head = next(waiting, None)
        for key, parts, odd, number in cases:
            mine: list[tuple[bytes, ...]] = []
            while head is not None and head[0] <= key:
                if head[0] == key:
                    mine.append(head[1])
                    odd |= head[2]
                else:
                    self._orphan(head)
                head = next(waiting, None)
            scan.cases += 1
            scan.criteria += len(mine)
            if key == before and scan.cases > 1:
                scan.ids.add(f"{CASES}:{number}", "each case once", f"{key.decode()!r} again")
            before = key
            case = CaseParts(*parts)
            if odd or not self._usual(case, mine):
                self._closely(case, mine)
            scan.tally(case, mine)
            if self._ledgers is not None:
                self._entries(key, case, mine)
            if expect is not None:
                expect.feed(_piece(scan.cases, self._canary, case, mine), key)
        while head is not None and not cases.cut:
            self._orphan(head)
            head = next(waiting, None)
        scan.settle()
        for cursor in (self._added, self._revised, self._withdrawn, self._revealed):
            cursor.close()
        self._keep_faults(cases)
        self._keep_faults(criteria)

    def _keep_faults(self, reader: Reader) -> None:
        if reader.cut:
            found = f"{len(reader.faults)} lines that are none; the rest was not read"
            self._scan.rows.add("data", "rows", found)
        for canary, finding in reader.faults:
            (self._scan.canary if canary else self._scan.rows).put(finding)

    def _orphan(self, head: Line) -> None:
        key, parts, _, number = head
        criterion = CriterionParts(*parts)
        self._scan.criteria += 1
        self._scan.count("by_axis", [criterion.axis])
        wanted = f"a case for {value(criterion.criterion_id)!r}"
        self._scan.ids.add(f"{CRITERIA}:{number}", wanted[:300], f"no case {key.decode()!r}"[:300])

    def _usual(self, case: CaseParts, criteria: Sequence[tuple[bytes, ...]]) -> bool:
        """Whether rows of the usual spelling are a legal case together."""
        positive, revision, ids = False, case.revision, set()
        if len(criteria) > len(_PLACES):
            return False
        for place, (axis, _, _, criterion_id, points, position, its_revision) in zip(
            _PLACES, criteria, strict=False
        ):
            if position != place or its_revision != revision or axis not in _AXES:
                return False
            ids.add(criterion_id)
            positive = positive or points[0] != 0x2D
        return (
            positive
            and len(ids) == len(criteria)
            and case.theme in _THEMES
            and case.specialty in _SPECIALTIES
            and self._timely(case.posted_at, case.first_release)
        )

    def _timely(self, posted_at: bytes, first_release: bytes) -> bool:
        known = self._dates.get((posted_at, first_release))
        if known is None:
            if len(self._dates) > MOST_VALUES:
                self._dates.clear()
            try:
                late = date.fromisoformat(posted_at.decode()) > last_day(first_release.decode())
            except ValueError:
                late = True
            known = not late and (self._releases is None or first_release in self._releases)
            self._dates[posted_at, first_release] = known
        return known

    def _closely(self, parts: CaseParts, criteria: Sequence[tuple[bytes, ...]]) -> None:
        """Judge a case by the plain rules."""
        scan, row = self._scan, case_row(parts)
        rows = [criterion_row(c) for c in criteria]
        where = f"{CASES}: {row['case_id']!r}"
        try:
            case = case_from_rows(row, rows)
        except ValueError as exc:
            scan.releases.add(where, "a posting date", f"{row['posted_at']!r}: {exc}"[:200])
            case = _undated(row, rows)
        if case.posted_at.isoformat() != row["posted_at"] and case.posted_at != date.min:
            scan.releases.add(where, "a posting date as YYYY-MM-DD", row["posted_at"][:50])
        if self._releases is not None and parts.first_release not in self._releases:
            scan.releases.add(
                where, "a first release of the line that manifest.json states", repr(row["first_release"])[:50]
            )
        places = [c["position"] for c in rows]
        if any(one >= other for one, other in pairwise(places)):
            scan.rows.add(f"{CRITERIA}: {row['case_id']!r}", "rows in the order of position", f"{places}"[:200])
        for hit in row_hits(case):
            self._sorted(hit.detail).add(where, "a legal case", hit.detail[:300])
        self._look_for_leaks(where, row, rows)

    def _look_for_leaks(self, where: str, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        leaks = self._scan.leaks
        texts = [(name, row[name]) for name in ("source", "narrative", "query", "advice")]
        texts += [(f"criterion {c['position']}", c["criterion"]) for c in rows]
        for name, text in texts:
            if (character := find_unstorable(text)) is not None:
                leaks.add(where, f"a {name} without control characters", character)
            if (character := find_disguise(text)) is not None:
                leaks.add(where, f"a {name} in letters that are what they seem", character)
            if (kind := find_contact(text)) is not None:
                leaks.add(where, f"a {name} without addresses or handles", f"a {kind}")

    def _sorted(self, detail: str) -> Faults:
        """The step that a row's fault belongs to."""
        scan = self._scan
        if detail == "no criterion has positive points":
            return scan.positive
        if detail == "two criteria share an id":
            return scan.ids
        return scan.releases if "first release" in detail else scan.rubric

    def _entries(self, key: bytes, case: CaseParts, criteria: Sequence[tuple[bytes, ...]]) -> None:
        """What the ledgers say of a case that is there."""
        scan = self._scan
        fresh = case.first_release == self._version
        added, revised = self._added.at(key), self._revised.at(key)
        if self._listed:
            where = f"{CHANGES}: {key.decode()!r}"
            if fresh and added is None:
                scan.changes.add(where, "added, for its first release is this one", "not listed")
            if added is not None and revised is not None:
                scan.changes.add(where, "added or revised", "both")
            for entry in (added, revised):
                if entry is not None and str(entry["to_revision"]).encode() != case.revision:
                    scan.changes.add(
                        where, f"to_revision {case.revision.decode()}", f"{entry['to_revision']}"[:50]
                    )
            if self._withdrawn.at(key) is not None:
                scan.changes.add(f"{CHANGES}: withdrawn {key.decode()!r}", "not in the snapshot", "it is there")
        if (shown := self._revealed.at(key)) is not None:
            where = _at(HOLDOUTS, "revealed", shown)
            if not fresh:
                scan.proofs.add(where, f"first release {self._version.decode()}", case.first_release.decode()[:50])
            if shown["commitment"] != (proof := _commitment(shown["salt"], case, criteria)):
                scan.proofs.add(where, f"what its salt and rows make, {proof}", shown["commitment"])


def _of(key: bytes) -> str:
    return f"{CHANGES}: {key.decode()!r}"[:300]


def _at(name: str, section: str, entry: Mapping[str, Any]) -> str:
    return f"{name}: {section} {entry['case_id']!r}"[:300]


def _undated(row: Mapping[str, Any], criteria: list[dict[str, Any]]) -> SnapshotCase:
    """The case for its other checks, its unreadable date set to the earliest one."""
    rows = tuple(SnapshotCriterion(**c) for c in criteria)
    return SnapshotCase(**{**row, "posted_at": date.min}, criteria=rows)


def _piece(number: int, canary: bytes, case: CaseParts, criteria: Sequence[tuple[bytes, ...]]) -> bytes:
    """What a case adds to `livemedbench.json`, put together of what its rows spell."""
    items = [
        b'{"axe":"%b","criterion":"%b","points":%b}' % (axis, text, points)
        for axis, _, text, _, points, _, _ in criteria
    ]
    return (
        b'%b{"canary":"%b","case_id":"%b","core_request":"%b","doctor_advice":"%b","narrative":"%b",'
        b'"post_time":"%bT00:00:00","rubric_items":[%b]}'
    ) % (
        b"[\n" if number == 1 else b",\n",
        canary, case.case_id, case.query, case.advice, case.narrative, case.posted_at, b",".join(items),
    )  # fmt: skip


def _commitment(salt: str, case: CaseParts, criteria: Sequence[tuple[bytes, ...]]) -> str:
    """What stands for a held-out case (see `model.commitment`), put together of what its rows spell."""
    rows = b",".join(_criterion_record(parts) for parts in criteria)
    record = (
        b'{"advice":"%b","case_id":"%b","criteria":[%b],"language":"%b","narrative":"%b","posted_at":"%b",'
        b'"query":"%b","revision":%b,"source":"%b","specialty":"%b","theme":"%b"}'
    ) % (
        case.advice, case.case_id, rows, case.language, case.narrative, case.posted_at, case.query, case.revision,
        case.source, case.specialty, case.theme,
    )  # fmt: skip
    return "sha256:" + sha256(salt.encode("utf-8") + record).hexdigest()


def _criterion_record(parts: tuple[bytes, ...]) -> bytes:
    return (
        b'{"axis":"%b","case_id":"%b","criterion":"%b","criterion_id":"%b","points":%b,"position":%b,"revision":%b}'
        % parts
    )


def contents(cases: Reader, criteria: Reader) -> Iterator[tuple[bytes, CaseParts, bytes]]:
    """Each case's id, its parts, and all else that makes its content but canary and first release, in order.

    For comparing two snapshots; criteria without a case are left out.
    """
    waiting = iter(criteria)
    head = next(waiting, None)
    for key, parts, _, _ in cases:
        mine: list[bytes] = []
        while head is not None and head[0] <= key:
            if head[0] == key:
                mine.append(_criterion_record(head[1]))
            head = next(waiting, None)
        yield key, CaseParts(*parts), b",".join(mine)
