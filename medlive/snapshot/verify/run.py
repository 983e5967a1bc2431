"""Verification: run the numbered steps over a snapshot's files alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medlive.integrity.checks import StepResult, StepState, Trust, run_steps
from medlive.integrity.folder import Finding, list_files
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.verify.steps import STEPS, Inspected

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

__all__ = ["STEPS", "StepResult", "StepState", "Trust", "VerificationReport", "verify_snapshot"]


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The results of all steps, in order."""

    path: Path
    steps: tuple[StepResult, ...]
    manifest: Manifest | None
    """None if it could not be read."""
    trust: Trust
    """What the signature proves."""

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return all(step.state is not StepState.FAILED for step in self.steps)

    @property
    def complete(self) -> bool:
        """Whether no step was skipped."""
        return all(step.state is not StepState.SKIPPED for step in self.steps)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all steps."""
        return tuple(finding for step in self.steps for finding in step.findings)

    def summary(self) -> str:
        """Describe the failed steps in one line, for an error message."""
        failed = [s for s in self.steps if s.state is StepState.FAILED]
        if not failed:
            return f"{self.path} verifies"
        faults = [f"step {s.number} ({s.name}): {s.findings[0]}" for s in failed]
        return f"{self.path} fails verification: " + "; ".join(faults[:4])


def verify_snapshot(
    path: Path, *, public_key: "PublicKey | None" = None, parent: Path | None = None
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
    folder = Inspected(root, public_key, parent, list_files(root))
    steps = run_steps(folder, STEPS)
    return VerificationReport(root, steps, folder.manifest, folder.trust)
