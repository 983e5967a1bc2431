"""Loading: one line from a snapshot's folder to typed cases."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from medlive.errors import BadInput, CheckFailed
from medlive.snapshot.folder import SUMS, TooLong, lines, sha256
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, SnapshotCase, case_from_rows, row_fault
from medlive.snapshot.verify import verify_snapshot


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot's cases, or a part of them, with the manifest they came with."""

    path: Path
    manifest: Manifest
    digest: str
    """`sha256:` and the digest of SHA256SUMS: the identity of the whole folder."""
    cases: tuple[SnapshotCase, ...]

    @property
    def version(self) -> str:
        """The snapshot's version."""
        return self.manifest.version

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[SnapshotCase]:
        return iter(self.cases)

    def case(self, case_id: str) -> SnapshotCase:
        """The case of that id. Raises KeyError."""
        for case in self.cases:
            if case.case_id == case_id:
                return case
        raise KeyError(case_id)

    def where(self, keep: Callable[[SnapshotCase], bool]) -> "Snapshot":
        """The part whose cases `keep` says yes to."""
        return replace(self, cases=tuple(case for case in self.cases if keep(case)))

    def filter(
        self,
        *,
        language: str | None = None,
        posted_from: date | None = None,
        posted_before: date | None = None,
        first_release_after: str | None = None,
    ) -> "Snapshot":
        """The part that fits all that is given: `posted_from` inclusive, `posted_before` and
        `first_release_after` ("2026.W40") exclusive."""
        return self.where(
            lambda case: (
                (language is None or case.language == language)
                and (posted_from is None or case.posted_at >= posted_from)
                and (posted_before is None or case.posted_at < posted_before)
                and (first_release_after is None or case.first_release > first_release_after)
            )
        )

    def to_records(self) -> list[dict[str, Any]]:
        """Each case as a plain dictionary, its criteria nested under `criteria`."""
        return [case.record() for case in self.cases]


def load_snapshot(path: str | Path, *, verify: bool = True) -> Snapshot:
    """The snapshot in the folder at `path`, read from its JSON Lines.

    Raises CheckFailed when `verify` is True and a step fails, and BadInput when the folder holds no snapshot
    that can be read.
    """
    root = Path(path)
    if not (root / "manifest.json").is_file():
        raise BadInput(f"{root} holds no snapshot: there is no manifest.json")
    if verify:
        report = verify_snapshot(root)
        if not report.ok:
            raise CheckFailed(
                report.summary(), hint="fetch it again, or load it with verify=False at your own risk"
            )
    try:
        manifest = Manifest.model_validate_json((root / "manifest.json").read_bytes())
        criteria: dict[str, list[dict[str, Any]]] = {}
        for row in _read(root / "data" / "criteria.jsonl", CRITERION_FIELDS):
            criteria.setdefault(row["case_id"], []).append(row)
        cases = tuple(
            case_from_rows(row, list(criteria.get(row["case_id"], [])))
            for row in _read(root / "data" / "cases.jsonl", CASE_FIELDS)
        )
        digest = "sha256:" + sha256(root / SUMS)
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(f"{root} cannot be read as a snapshot: {str(exc)[:300]}") from exc
    return Snapshot(root, manifest, digest, cases)


def _read(path: Path, fields: dict[str, type] | Any) -> Iterator[dict[str, Any]]:
    for number, data in enumerate(lines(path), start=1):
        try:
            row = json.loads(data)
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"{path.name}:{number}: {exc}") from exc
        if (fault := row_fault(row, fields)) is not None:
            raise ValueError(f"{path.name}:{number}: {fault}")
        yield row
