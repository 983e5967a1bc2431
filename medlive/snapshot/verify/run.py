"""Verification: numbered steps over a snapshot's files alone, each naming the file, what it expected and got."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from medlive.integrity.checks import MOST_FINDINGS, StepResult, StepState, Trust, take_steps
from medlive.integrity.folder import (
    SIGNATURE,
    SUMS,
    Finding,
    Listing,
    digest_of,
    list_files,
    open_inside,
)
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.verify.steps import STEPS, Inspected

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

__all__ = ["STEPS", "StepResult", "StepState", "Trust", "VerificationReport", "verify_snapshot"]

_APART: Final = 4 * 1024 * 1024
"""A folder of more bytes is worth threads."""


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """Every step's outcome, in order."""

    path: Path
    steps: tuple[StepResult, ...]
    manifest: Manifest | None
    """None when it could not be read."""
    trust: Trust
    """What the signature says."""

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return all(step.state is not StepState.FAILED for step in self.steps)

    @property
    def complete(self) -> bool:
        """Whether every step was taken."""
        return all(step.state is not StepState.SKIPPED for step in self.steps)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The faults of all steps."""
        return tuple(finding for step in self.steps for finding in step.findings)

    def summary(self) -> str:
        """The faults in a few lines, for an error message."""
        failed = [s for s in self.steps if s.state is StepState.FAILED]
        if not failed:
            return f"{self.path} verifies"
        said = [f"step {s.number} ({s.name}): {s.findings[0]}" for s in failed]
        return f"{self.path} fails verification: " + "; ".join(said[:4])


_STAYS: Final = 4
"""The step that reports files which changed while they were read."""


def verify_snapshot(
    path: Path, *, public_key: "PublicKey | None" = None, parent: Path | None = None
) -> VerificationReport:
    """Take every step over the folder at `path`, whatever lies there; faults are values and nothing is raised.

    `public_key`: the key that must have signed it; without one a signature is checked with the key that the
    manifest names, which proves integrity and not origin (`VerificationReport.trust`). `parent`: the parent's
    folder, by default the one of its name beside `path`, where there is one. Nothing outside these two folders is
    opened and nothing is written; no link is followed, and what SHA256SUMS or the manifest name is looked up among
    the files found, never on the disk.
    """
    root = Path(path)
    listing = list_files(root)
    with _inspected(root, listing, public_key, parent) as folder:
        results = list(take_steps(folder, STEPS))
        results[_STAYS - 1] = _with_changed(results[_STAYS - 1], listing, list_files(root))
    return VerificationReport(root, tuple(results), folder.manifest, folder.trust)


def _with_changed(result: StepResult, before: Listing, after: Listing) -> StepResult:
    """The step's result, with the files that did not stay as they were while they were read."""
    changed = sorted(n for n, stamp in before.stamps.items() if after.stamps.get(n) != stamp)
    if not changed:
        return result
    found = tuple(Finding(n, "a file that stays as it is while it is read", "it changed") for n in changed)
    return replace(
        result,
        state=StepState.FAILED,
        findings=(*found, *result.findings)[:MOST_FINDINGS],
        faults=result.faults + len(found),
    )


@contextmanager
def _inspected(
    root: Path, listing: Listing, public_key: "PublicKey | None", parent: Path | None
) -> Iterator[Inspected]:
    """The folder for the steps; of a large one, threads hash the files while the rows are read."""
    names = sorted(listing.files - {SUMS, SIGNATURE}, key=lambda n: -listing.stamps[n][2])
    if sum(listing.stamps[n][2] for n in names) < _APART:
        yield Inspected(
            root, public_key, parent, listing, {name: cache(partial(_hash, root, name)) for name in names}
        )
        return
    # Few and large pieces: a thread that asks for the interpreter often would wait for the rows' thread each time.
    with ThreadPoolExecutor(max(1, min(4, (os.cpu_count() or 2) - 1)), thread_name_prefix="verify") as pool:
        hashes = {name: pool.submit(_hash, root, name).result for name in names}
        folder = Inspected(root, public_key, parent, listing, hashes)
        folder.read_rows()
        yield folder


def _hash(root: Path, name: str) -> str | None:
    try:
        with open_inside(root, name) as handle:
            return digest_of(handle)
    except OSError:
        return None
