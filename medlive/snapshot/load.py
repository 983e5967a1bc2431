"""Loading: one line from a snapshot to typed cases, slices and data frames; what is not needed is not read."""

import operator
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import from_json

from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.integrity.folder import MOST_LINE, SUMS, TooLong, lines, sha256
from medlive.integrity.public_key import public_key_of
from medlive.snapshot import frames
from medlive.snapshot.frames import Condition, Table
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, SnapshotCase, case_from_rows, row_fault, week_end
from medlive.snapshot.verify.run import verify_snapshot

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from medlive.integrity.signing import PublicKey

CASES: Final = "data/cases.jsonl"
CRITERIA: Final = "data/criteria.jsonl"

Keep = Callable[[SnapshotCase], bool]
OneOrMore = str | Collection[str] | None
"""A value, or any of several; None: whatever it is."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot's cases, or a part of them, with the manifest they came with.

    Iterating streams typed cases from the files in the order of their ids, each time anew; `cases` keeps them.
    """

    path: Path
    manifest: Manifest = field(repr=False)
    digest: str
    """`sha256:` and the digest of SHA256SUMS: the identity of the whole folder, whatever the part."""
    verified: bool = False
    conditions: tuple[Condition, ...] = ()
    """What `filter` was given."""
    keep: tuple[Keep, ...] = ()
    """What `where` was given, asked after the conditions."""
    _files: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """What the data files were like when they were opened."""

    @property
    def version(self) -> str:
        """The snapshot's version."""
        return self.manifest.version

    @property
    def whole(self) -> bool:
        """Whether no case was left out by a filter."""
        return not self.conditions and not self.keep

    @cached_property
    def cases(self) -> tuple[SnapshotCase, ...]:
        """The cases, all in memory."""
        return tuple(case for case in self)

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        if self.whole and self.verified:
            return self.manifest.counts.cases
        if self.keep:
            return sum(1 for _ in self._chosen())
        return sum(1 for _ in self._case_rows())

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __iter__(self) -> Iterator[SnapshotCase]:
        return self._chosen()

    def case(self, case_id: str) -> SnapshotCase:
        """The case of that id, found by halving the sorted file. Raises KeyError when it is not in this part."""
        row = next(self._sorted_rows(CASES, CASE_FIELDS, case_id), None)
        if row is not None and self._fits(row):
            found = self._case(row, list(self._sorted_rows(CRITERIA, CRITERION_FIELDS, case_id)))
            if all(keep(found) for keep in self.keep):
                return found
        raise KeyError(case_id)

    def where(self, keep: Keep) -> "Snapshot":
        """The part whose cases `keep` says yes to; it is asked when cases are read, and each time they are."""
        return self._part(keep=(*self.keep, keep))

    def filter(
        self,
        *,
        language: OneOrMore = None,
        source: OneOrMore = None,
        theme: OneOrMore = None,
        specialty: OneOrMore = None,
        posted_from: date | str | None = None,
        posted_before: date | str | None = None,
        first_release: OneOrMore = None,
        first_release_after: str | None = None,
    ) -> "Snapshot":
        """The part that fits all that is given.

        `posted_from` is inclusive; `posted_before` and `first_release_after` ("2026.W40": only what is newer) are
        exclusive. Dates may be text, `YYYY-MM-DD`. Raises UsageError for what is no date or no version.
        """
        given: list[Condition] = []
        for column, wanted in (("language", language), ("source", source), ("theme", theme)):
            given += _among(column, wanted)
        given += _among("specialty", specialty)
        given += _among("first_release", first_release)
        if posted_from is not None:
            given.append(Condition("posted_at", operator.ge, _day("posted_from", posted_from)))
        if posted_before is not None:
            given.append(Condition("posted_at", operator.lt, _day("posted_before", posted_before)))
        if first_release_after is not None:
            after = first_release_after.removeprefix("medlive-")
            if week_end(after) is None:
                raise UsageError(f"first_release_after: {first_release_after!r} is no version such as 2026.W47")
            given.append(Condition("first_release", operator.gt, after))
        return self._part(conditions=(*self.conditions, *given))

    def to_records(self) -> list[dict[str, Any]]:
        """Each case as a plain dictionary, its criteria nested under `criteria`."""
        return [case.record() for case in self]

    def to_arrow(self, table: Table = "cases") -> "pa.Table":
        """The part's cases, or the criteria of these cases, as a pyarrow table.

        Raises MissingExtra without pyarrow, UsageError for another table.
        """
        return frames.to_arrow(self._file(table), table, self.conditions, self._ids(table))

    def to_pandas(self, table: Table = "cases") -> "pd.DataFrame":
        """The same as a pandas frame, `posted_at` as datetime64. Raises MissingExtra without pandas.

        Reads the parquet files where pyarrow is installed, else the JSON Lines.
        """
        if not frames.has("pyarrow"):
            return frames.rows_to_pandas(self._rows_of(table), table)
        return frames.to_pandas(self._file(table), table, self.conditions, self._ids(table))

    def to_polars(self, table: Table = "cases") -> "pl.DataFrame":
        """The same as a polars frame, `posted_at` as Date. Raises MissingExtra without polars."""
        return frames.to_polars(self._file(table), table, self.conditions, self._ids(table))

    def _part(self, **changes: Any) -> "Snapshot":
        return replace(self, **changes)

    def _ids(self, table: Table) -> list[str] | None:
        """The chosen cases' ids where conditions on columns of `table` cannot say which rows are meant."""
        frames.check_table(table)
        if self.keep:
            return [case.case_id for case in self._chosen()]
        if self.conditions and table == "criteria":
            if frames.has("pyarrow"):
                column = frames.to_arrow(self._file("cases"), "cases", self.conditions, None, ["case_id"])
                return cast(list[str], column["case_id"].to_pylist())
            return [row["case_id"] for row in self._case_rows()]
        return None

    def _file(self, table: Table) -> Path:
        frames.check_table(table)
        name = f"data/{table}.parquet"
        self._check_same(name)
        return self.path / name

    def _rows_of(self, table: Table) -> Iterator[dict[str, Any]]:
        ids = self._ids(table)
        chosen = None if ids is None else set(ids)
        rows = self._case_rows() if table == "cases" else self._rows(CRITERIA, CRITERION_FIELDS)
        return (row for row in rows if chosen is None or row["case_id"] in chosen)

    def _fits(self, row: Mapping[str, Any]) -> bool:
        return all(condition.holds(row) for condition in self.conditions)

    def _case_rows(self) -> Iterator[dict[str, Any]]:
        return (row for row in self._rows(CASES, CASE_FIELDS) if self._fits(row))

    def _chosen(self) -> Iterator[SnapshotCase]:
        criteria = self._rows(CRITERIA, CRITERION_FIELDS)
        waiting = next(criteria, None)
        for row in self._case_rows():
            while waiting is not None and waiting["case_id"] < row["case_id"]:
                waiting = next(criteria, None)
            mine = []
            while waiting is not None and waiting["case_id"] == row["case_id"]:
                mine.append(waiting)
                waiting = next(criteria, None)
            case = self._case(row, mine)
            if all(keep(case) for keep in self.keep):
                yield case

    def _case(self, row: Mapping[str, Any], criteria: list[dict[str, Any]]) -> SnapshotCase:
        with _readable(self.path):
            return case_from_rows(row, criteria)

    def _rows(self, name: str, fields: Mapping[str, type]) -> Iterator[dict[str, Any]]:
        """A file's rows in the order of their cases, which is what reading two files side by side rests on."""
        self._check_same(name)
        before = ""
        with _readable(self.path):
            for number, data in enumerate(lines(self.path / name), start=1):
                row = self._row(data, fields, name, number)
                if row["case_id"] < before:
                    raise ValueError(f"{name}:{number}: case {row['case_id']!r} after {before!r}")
                before = row["case_id"]
                yield row

    def _sorted_rows(self, name: str, fields: Mapping[str, type], case_id: str) -> Iterator[dict[str, Any]]:
        """The rows of one case, by halving the file: its rows are sorted by case id."""
        self._check_same(name)
        with _readable(self.path), (self.path / name).open("rb") as handle:
            low, high = 0, handle.seek(0, os.SEEK_END)
            while low < high:
                middle = (low + high) // 2
                handle.seek(middle)
                if middle:
                    handle.seek(middle - 1)
                    handle.readline(MOST_LINE)
                data = handle.readline(MOST_LINE)
                if data and self._row(data, fields, name)["case_id"] < case_id:
                    low = handle.tell()
                else:
                    high = middle
            handle.seek(low)
            if low:
                handle.seek(low - 1)
                handle.readline(MOST_LINE)
            while data := handle.readline(MOST_LINE):
                row = self._row(data, fields, name)
                if row["case_id"] != case_id:
                    return
                yield row

    def _row(
        self, data: bytes, fields: Mapping[str, type], name: str, number: int | None = None
    ) -> dict[str, Any]:
        try:
            row: dict[str, Any] = from_json(data)
            # What was verified and is the same file since is not looked at twice.
            fault = None if self.verified else row_fault(row, fields)
        except ValueError as exc:
            fault = str(exc)
        if fault is not None:
            raise ValueError(f"{name}{'' if number is None else f':{number}'}: {fault}")
        return row

    def _check_same(self, name: str) -> None:
        if not (self.path / name).is_file():
            raise BadInput(f"{self.path} cannot be read as a snapshot: {name} is no file")
        if _state(self.path / name) != self._files.get(name):
            raise CheckFailed(
                f"{self.path / name} was changed after the snapshot was opened", hint="load the snapshot again"
            )


def load_snapshot(
    path_or_version: str | Path, *, verify: bool = True, public_key: "PublicKey | str | Path | None" = None
) -> Snapshot:
    """The snapshot in a folder, or of a version ("2026.W47", "latest") that is looked up as `find_snapshot` says.

    `public_key` is the minisign key that must have signed it: parsed, its file, or its base64 line. Raises
    CheckFailed when `verify` is True and a step fails, BadInput when there is no snapshot or it cannot be read,
    BadKey for what is no key, and UsageError for a key where nothing is verified.
    """
    root = find_snapshot(path_or_version)
    if public_key is not None and not verify:
        raise UsageError("a public key is of use only where the snapshot is verified")
    try:
        files = {name: _state(root / name) for name in _DATA if (root / name).is_file()}
    except OSError as exc:
        raise BadInput(f"{root} cannot be read: {exc.strerror or exc}") from exc
    if verify:
        key = public_key_of(public_key)
        report = verify_snapshot(root, public_key=key)
        if not report.ok:
            raise CheckFailed(
                report.summary(), hint="fetch it again, or load it with verify=False at your own risk"
            )
    with _readable(root):
        manifest = Manifest.model_validate_json((root / "manifest.json").read_bytes())
        return Snapshot(root, manifest, "sha256:" + sha256(root / SUMS), verify, _files=files)


_DATA: Final = tuple(f"data/{stem}.{form}" for stem in ("cases", "criteria") for form in ("jsonl", "parquet"))


@contextmanager
def _readable(root: Path) -> Iterator[None]:
    """Says of what reading a damaged folder raises that it is BadInput; only reading is done inside."""
    try:
        yield
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(f"{root} cannot be read as a snapshot: {str(exc)[:300]}") from exc


def _state(path: Path) -> tuple[int, ...]:
    """What tells a file that was replaced or written to from the one that was verified."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _among(column: str, wanted: OneOrMore) -> list[Condition]:
    if wanted is None:
        return []
    return [Condition(column, frames.among, (wanted,) if isinstance(wanted, str) else tuple(wanted))]


def _day(name: str, given: date | str) -> date:
    try:
        day = date.fromisoformat(given) if isinstance(given, str) else given
    except ValueError as exc:
        raise UsageError(f"{name}: {given!r} is no date of the form YYYY-MM-DD") from exc
    return date(day.year, day.month, day.day)
