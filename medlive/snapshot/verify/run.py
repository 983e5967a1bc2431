"""Verify a snapshot's folder in numbered steps (`steps`)."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medlive.integrity.checks import Report, Skip, run_steps
from medlive.integrity.folder import list_files
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.verify.steps import STEPS, Inspected

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationReport(Report):
    """The results of all steps, and what the snapshot states."""

    manifest: Manifest | None  # None if it could not be read
    unknown: tuple[str, ...] = ()  # What it holds and this medlive does not know

    def summary(self) -> str:
        """Describe the failed steps in one line, for an error message."""
        if self.ok:
            return f"{self.path} verifies"
        return f"{self.path} fails verification: {'; '.join(map(str, self.failed[:4]))}"


def verify_snapshot(
    path: Path,
    *,
    public_key: "PublicKey | None" = None,
    parent: Path | None = None,
) -> VerificationReport:
    """Run every step over a folder, whatever it holds; faults are returned and nothing is raised.

    Nothing outside the folder and its parent is opened, nothing is written and no link is followed.

    Args:
        path: The snapshot's folder.
        public_key: The key that must have signed it. Without one the signature is checked with the key that the
            manifest names, which proves integrity and not origin (`VerificationReport.trust`).
        parent: The parent's folder, by default the folder of its name beside `path` if there is one.
    """
    root = Path(path)
    folder = Inspected(root, public_key, parent, *list_files(root))
    steps = run_steps(folder, STEPS)
    unknown: tuple[str, ...] = ()
    if folder.manifest is not None:
        unknown = folder.manifest.unknown
        with suppress(Skip):
            unknown = (*unknown, *sorted(folder.ledgers.unknown))
    return VerificationReport(
        path=root,
        steps=steps,
        manifest=folder.manifest,
        trust=folder.trust,
        unknown=unknown,
    )
