"""Small snapshots to be published, made prepared without the verification that other tests take."""

from datetime import UTC, date, datetime
from pathlib import Path

from medlive.integrity.folder import SIGNATURE, SUMS, sha256
from medlive.publishing.publish import PreparedRelease
from medlive.snapshot.diff import Change
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.manifest import FileEntry, Manifest, Provenance, SnapshotMeta
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
from tests.support.entries import Entries

PROVENANCE = Provenance(
    code_version="0.1.0", engines=(), prompts={}, evidence=(), thresholds={}
)


def a_case(number: int, version: str) -> SnapshotCase:
    """A case with one criterion, first released in that version."""
    case_id = f"c{number:03d}"
    return SnapshotCase(
        case_id,
        1,
        version,
        "en",
        "icliniq",
        date(2025, 3, 4),
        "Cardiology",
        "Response Depth",
        "My knee hurts since 3 days. " * 150,
        "Do I need a tablet?",
        "Rest first.",
        (
            SnapshotCriterion(
                f"{case_id}-c1", case_id, 1, 1, "Advises rest", "Accuracy", 5
            ),
        ),
    )


def a_snapshot(
    root: Path, version: str = "2026.W47", cases: int = 3, why_not: tuple[str, ...] = ()
) -> Path:
    """A snapshot of its own line under `root`; its folder."""
    rows = [a_case(n, version) for n in range(cases)]
    week = int(version[-2:])
    meta = SnapshotMeta(
        version=version,
        created_at=datetime(2026, 1, 1 + week % 28, 8, tzinfo=UTC),
        provenance=PROVENANCE,
        why_not=why_not,
    )
    entries = Entries(tuple(Change("added", c.case_id, "new", None, 1) for c in rows))
    return write_snapshot(rows, meta, root, entries).path


def prepared(folder: Path, errata: dict[str, bytes] | None = None) -> PreparedRelease:
    """The snapshot as `prepare_release` gives it."""
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    names = [n for n in ("manifest.json", SUMS, SIGNATURE) if (folder / n).exists()]
    files = {
        **manifest.files,
        **{
            n: FileEntry(size=(folder / n).stat().st_size, sha256=sha256(folder / n))
            for n in names
        },
    }
    return PreparedRelease(
        manifest=manifest,
        files=dict(sorted(files.items())),
        path=folder,
        errata=errata or {},
    )
