"""Loading a snapshot (`load_snapshot`) as typed cases, slices and data frames; rows are read when they are needed."""

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medlive.errors import BadInput, CheckFailed, UsageError, require
from medlive.integrity.folder import SUMS, sha256
from medlive.integrity.signing import public_key_of

from .contents import read_cases, read_manifest, readable
from .locate import find_snapshot
from .manifest import Manifest
from .model import (
    TABLES,
    SnapshotCase,
    Table,
    case_from_rows,
)
from .slices import Slice
from .verify.steps import verify_snapshot

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from medlive.integrity.signing import PublicKey

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
    # `sha256:` and the digest of SHA256SUMS, which identifies the whole folder
    digest: str
    verified: bool = False
    keep: tuple[
        Keep, ...
    ] = ()  # The tests of `filter` and `where`; empty for the whole snapshot
    _opened: tuple[tuple[int, ...], ...] = field(
        default=(),
        repr=False,
    )
    """The data files' `_state` when the snapshot was opened."""

    @property
    def version(self) -> str:
        """The snapshot's version."""
        return self.manifest.version

    @cached_property
    def cases(self) -> tuple[SnapshotCase, ...]:
        """The cases, all in memory."""
        # tuple(self) would first ask for the length, which reads all rows.
        return tuple(iter(self))

    def __len__(self) -> int:
        if self.verified and not self.keep:
            return self.manifest.counts.cases
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[SnapshotCase]:
        return self._read()

    def _read(self, *, alone: bool = False) -> Iterator[SnapshotCase]:
        """The cases of this part; `alone`: without their criteria."""
        self._check_same()
        shape = self.manifest.shape
        trusted = self.verified
        for row, criteria in read_cases(self.path, shape, trusted=trusted, alone=alone):
            with readable(self.path):
                case = case_from_rows(row, criteria, shape.unknown)
            if all(keep(case) for keep in self.keep):
                yield case

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
        posted_from: str | None = None,
        posted_before: str | None = None,
        first_release: OneOrMore = None,
        first_release_after: str | None = None,
    ) -> "Snapshot":
        """Return the part that meets every condition given.

        Args:
            language: "en", "zh".
            source: The community.
            theme: The theme.
            specialty: The specialty.
            posted_from: The first day, as `YYYY-MM-DD`.
            posted_before: The day after the last one, likewise.
            first_release: The version that first held the case.
            first_release_after: Only cases of later versions than this one, such as "2026.W40".

        Raises:
            UsageError: If a date or version is not valid.
        """
        conditions = {
            "language": language,
            "source": source,
            "theme": theme,
            "specialty": specialty,
            "first_release": first_release,
        }
        several = {}
        for name, values in conditions.items():
            if values is not None:
                several[name] = [values] if isinstance(values, str) else list(values)
        part = Slice(
            **several,
            posted_from=posted_from,
            posted_before=posted_before,
            first_release_after=first_release_after,
        )
        return self.take(part)

    def take(self, part: Slice) -> "Snapshot":
        """Return the part whose cases the slice takes."""
        return self.where(lambda case: part.fits(case, case.posted_at.isoformat()))

    def to_arrow(self, table: Table = "cases") -> "pa.Table":
        """Return the part's cases, or the criteria of these cases, as a pyarrow table.

        For the cases of a whole snapshot its criteria are not read, so damage in them is not seen.

        Raises:
            MissingExtra: If pyarrow is not installed.
            UsageError: If there is no such table.
            BadInput: If the file or its rows cannot be read.
        """
        if table not in TABLES:
            raise UsageError(f"expected the table cases or criteria, got {table!r}")
        require("pyarrow", "a data frame")
        import pyarrow as pa
        import pyarrow.parquet as pq

        from .parquet import schema

        shape = self.manifest.shape
        absent = shape.absent(table)  # Rows have their defaults
        columns = schema((*shape.columns[table], *absent))
        # Parquet that was not verified is never opened, and parts are read from the rows anyway.
        if self.verified and not self.keep and not absent:
            self._check_same()
            path = self.path / f"data/{table}.parquet"
            try:
                return pq.read_table(path, columns=columns.names)
            except (pa.ArrowException, OSError) as exc:
                raise BadInput(f"{path}: {str(exc)[:300]}") from exc
        # In every row: the canary, and the defaults of unknown columns, which `row` leaves out
        same = {**shape.unknown[table], "canary": self.manifest.canary}
        rows: list[dict[str, Any]] = []
        for case in self._read(alone=table == "cases" and not self.keep):
            if table == "cases":
                rows.append({**same, **case.row(), "posted_at": case.posted_at})
            else:
                rows += [{**same, **criterion.row()} for criterion in case.criteria]
        return pa.Table.from_pylist(rows, schema=columns)

    def to_pandas(self, table: Table = "cases") -> "pd.DataFrame":
        """Return `to_arrow`'s table as a pandas frame, `posted_at` as datetime64. Raises MissingExtra."""
        require("pandas", "a pandas frame")
        return self.to_arrow(table).to_pandas(date_as_object=False)

    def to_polars(self, table: Table = "cases") -> "pl.DataFrame":
        """Return `to_arrow`'s table as a polars frame, `posted_at` as Date. Raises MissingExtra."""
        require("polars", "a polars frame")
        import polars as pl

        return pl.DataFrame(self.to_arrow(table))

    def _check_same(self) -> None:
        """Raise CheckFailed if a data file changed after the snapshot was opened."""
        with readable(self.path):
            same = _state(self.path) == self._opened
        if not same:
            raise CheckFailed(
                f"{self.path} was changed after the snapshot was opened",
                hint="load the snapshot again",
            )


class NewerSnapshotWarning(UserWarning):
    """A snapshot holds columns or values that this medlive does not know."""


def load_snapshot(
    path_or_version: str | Path,
    *,
    verify: bool = True,
    public_key: "PublicKey | str | Path | None" = None,
) -> Snapshot:
    """Load a snapshot, with a warning where it is not publishable or holds what this medlive does not know.

    Arguments and errors are those of `open_snapshot`.
    """
    snapshot = open_snapshot(
        path_or_version,
        verify=verify,
        public_key=public_key,
    )
    manifest = snapshot.manifest
    if not manifest.publishable:
        reasons = "; ".join(manifest.why_not)
        text = f"medlive {manifest.version} is not publishable: {reasons}"
        warnings.warn(text, UserWarning, stacklevel=2)
    if manifest.newer:
        text = f"medlive {manifest.version}: {manifest.newer}"
        warnings.warn(text, NewerSnapshotWarning, stacklevel=2)
    return snapshot


def open_snapshot(
    path_or_version: str | Path,
    *,
    verify: bool = True,
    public_key: "PublicKey | str | Path | None" = None,
) -> Snapshot:
    """Load a snapshot without the warnings of `load_snapshot`, for callers that give their own.

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
    with readable(root):
        opened = _state(root)
    if verify:
        report = verify_snapshot(root, public_key=public_key_of(public_key))
        if not report.ok:
            raise CheckFailed(
                report.summary(),
                hint="fetch it again, or load it with verify=False at your own risk",
            )
    manifest = read_manifest(root)
    with readable(root):
        digest = f"sha256:{sha256(root / SUMS)}"
    return Snapshot(root, manifest, digest, verify, _opened=opened)


def _state(root: Path) -> tuple[tuple[int, ...], ...]:
    """Return what changes in the status of the data files when one is replaced or written to."""
    states: list[tuple[int, ...]] = []
    for path in sorted((root / "data").iterdir()):
        status = path.stat()
        states.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(states)
