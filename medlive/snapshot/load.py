"""Loading a snapshot as typed cases, slices and data frames; rows are read when they are asked for."""

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import from_json

from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.integrity.folder import SUMS, TooLong, lines, sha256
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
"""A value, or any of several; None accepts all."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot's cases, or a part of them, with the manifest.

    Each iteration streams typed cases from the files, in the order of their ids; `cases` keeps them in memory.
    """

    path: Path
    manifest: Manifest = field(repr=False)
    digest: str
    """`sha256:` and the digest of SHA256SUMS, which identifies the whole folder."""
    verified: bool = False
    conditions: tuple[Condition, ...] = ()
    """The conditions of `filter`."""
    keep: tuple[Keep, ...] = ()
    """The tests of `where`, applied after the conditions."""
    _files: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """File → what its status was when the snapshot was opened."""

    @property
    def version(self) -> str:
        """The snapshot's version."""
        return self.manifest.version

    @property
    def whole(self) -> bool:
        """Whether no filter is applied."""
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
        """Return the case of that id. Raises KeyError if it is not in this part."""
        for case in self:
            if case.case_id == case_id:
                return case
        raise KeyError(case_id)

    def where(self, keep: Keep) -> "Snapshot":
        """Return the part whose cases `keep` accepts; it is called whenever cases are read."""
        return replace(self, keep=(*self.keep, keep))

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
        """Return the part that meets every condition given.

        Args:
            language: "en", "zh".
            source: The community.
            theme: The theme.
            specialty: The specialty.
            posted_from: The first day, as a date or `YYYY-MM-DD`.
            posted_before: The day after the last one, likewise.
            first_release: The version that first held the case.
            first_release_after: Only cases of later versions than this one, such as "2026.W40".

        Raises:
            UsageError: If a date or version is not valid.
        """
        conditions: list[Condition] = []
        for column, wanted in (
            ("language", language),
            ("source", source),
            ("theme", theme),
            ("specialty", specialty),
            ("first_release", first_release),
        ):
            if wanted is not None:
                values = (wanted,) if isinstance(wanted, str) else tuple(wanted)
                conditions.append(Condition(column, frames.among, values))
        if posted_from is not None:
            conditions.append(Condition("posted_at", operator.ge, _day("posted_from", posted_from)))
        if posted_before is not None:
            conditions.append(Condition("posted_at", operator.lt, _day("posted_before", posted_before)))
        if first_release_after is not None:
            after = first_release_after.removeprefix("medlive-")
            if week_end(after) is None:
                raise UsageError(f"first_release_after: expected a version such as 2026.W47, got {after!r}")
            conditions.append(Condition("first_release", operator.gt, after))
        return replace(self, conditions=(*self.conditions, *conditions))

    def to_records(self) -> list[dict[str, Any]]:
        """Return each case as a plain dictionary, its criteria nested under `criteria`."""
        return [case.record() for case in self]

    def to_arrow(self, table: Table = "cases") -> "pa.Table":
        """Return the part's cases, or the criteria of these cases, as a pyarrow table.

        Raises:
            MissingExtra: If pyarrow is not installed.
            UsageError: If there is no such table.
        """
        return frames.to_arrow(self._file(table), table, self.conditions, self._ids(table))

    def to_pandas(self, table: Table = "cases") -> "pd.DataFrame":
        """Return the same as a pandas frame, `posted_at` as datetime64. Raises MissingExtra without pandas.

        Reads the parquet files if pyarrow is installed, else the JSON Lines.
        """
        if not frames.has("pyarrow"):
            return frames.rows_to_pandas(self._rows_of(table), table)
        return frames.to_pandas(self._file(table), table, self.conditions, self._ids(table))

    def to_polars(self, table: Table = "cases") -> "pl.DataFrame":
        """Return the same as a polars frame, `posted_at` as Date. Raises MissingExtra without polars."""
        return frames.to_polars(self._file(table), table, self.conditions, self._ids(table))

    def _ids(self, table: Table) -> list[str] | None:
        """Return the ids of the chosen cases where conditions on columns of `table` cannot select its rows."""
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
        head = next(criteria, None)
        for row in self._case_rows():
            own = []
            while head is not None and head["case_id"] <= row["case_id"]:
                if head["case_id"] == row["case_id"]:
                    own.append(head)
                head = next(criteria, None)
            with _readable(self.path):
                case = case_from_rows(row, own)
            if all(keep(case) for keep in self.keep):
                yield case

    def _rows(self, name: str, fields: Mapping[str, type]) -> Iterator[dict[str, Any]]:
        """Yield a file's rows, checking that they are in the order of case_id."""
        self._check_same(name)
        before = ""
        with _readable(self.path):
            for number, data in enumerate(lines(self.path / name), start=1):
                row = self._row(data, fields, name, number)
                if row["case_id"] < before:
                    raise ValueError(f"{name}:{number}: case {row['case_id']!r} after {before!r}")
                before = row["case_id"]
                yield row

    def _row(self, data: bytes, fields: Mapping[str, type], name: str, number: int) -> dict[str, Any]:
        try:
            row: dict[str, Any] = from_json(data)
            # The rows of a verified file that has not changed since are valid.
            fault = None if self.verified else row_fault(row, fields)
        except ValueError as exc:
            fault = str(exc)
        if fault is not None:
            raise ValueError(f"{name}:{number}: {fault}")
        return row

    def _check_same(self, name: str) -> None:
        if not (self.path / name).is_file():
            raise BadInput(f"{self.path} cannot be read as a snapshot: {name} is not a file")
        if _state(self.path / name) != self._files.get(name):
            raise CheckFailed(
                f"{self.path / name} was changed after the snapshot was opened", hint="load the snapshot again"
            )


def load_snapshot(
    path_or_version: str | Path, *, verify: bool = True, public_key: "PublicKey | str | Path | None" = None
) -> Snapshot:
    """Load a snapshot.

    Args:
        path_or_version: Its folder, or a version ("2026.W47", "latest") that `find_snapshot` looks up.
        verify: Whether to verify it first.
        public_key: The minisign key that must have signed it: parsed, its file, or its base64 line.

    Raises:
        CheckFailed: If verification fails.
        BadInput: If there is no snapshot or it cannot be read.
        BadKey: If the public key is not a minisign key.
        UsageError: If a public key is given and `verify` is False.
    """
    root = find_snapshot(path_or_version)
    if public_key is not None and not verify:
        raise UsageError("public_key needs verify=True")
    try:
        files = {name: _state(root / name) for name in _DATA if (root / name).is_file()}
    except OSError as exc:
        raise BadInput(f"{root} cannot be read: {exc.strerror or exc}") from exc
    if verify:
        key = None
        if public_key is not None:
            from medlive.integrity.signing import public_key_of

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
    """Turn what reading a damaged folder raises into BadInput."""
    try:
        yield
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(f"{root} cannot be read as a snapshot: {str(exc)[:300]}") from exc


def _state(path: Path) -> tuple[int, ...]:
    """Return the part of a file's status that changes when it is replaced or written to."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _day(name: str, given: date | str) -> date:
    try:
        day = date.fromisoformat(given) if isinstance(given, str) else given
    except ValueError as exc:
        raise UsageError(f"{name}: expected a date as YYYY-MM-DD, got {given!r}") from exc
    return date(day.year, day.month, day.day)
