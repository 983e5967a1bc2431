"""Verify a bundle in numbered steps (`verify_bundle`), and write a verified one as a run folder (`unbundle`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from medlive.errors import UsageError
from medlive.evaluation.model import CaseSet
from medlive.evaluation.runs.folder import RunFolder, open_run
from medlive.evaluation.runs.templates import EVIDENCE
from medlive.evaluation.scoring.errata import RunErrata
from medlive.evaluation.scoring.graded import GradedRun
from medlive.integrity.checks import Report, run_steps
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SUMS
from medlive.integrity.log import lines_of, write_whole, writing
from medlive.integrity.signing import PublicKey

from .bundle import BundleInfo, bundled_rows, run_files
from .files import read_bundle
from .steps import STEPS, Verification


@dataclass(frozen=True, kw_only=True)
class BundleReport(Report):
    """The results of all steps, and what was read."""

    info: BundleInfo | None
    digest: str
    """The digest of `SHA256SUMS`, and so of all that is signed; "" if the file is missing."""
    model: str | None
    run: GradedRun | None
    """The bundle's run, if every step that it depends on passed."""
    evidence: bytes | None = None
    """The snippets of an open-book run (`evidence.jsonl`)."""
    withdrawn: RunErrata | None = None
    """What locally known errata affect; None if that step was not reached."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of passed steps, except the signature's."""
        passed = (step for step in self.steps[1:] if step.state == "passed")
        return tuple(step.why for step in passed if step.why)

    @property
    def why_not(self) -> str:
        """Why the bundle cannot be ranked; "" if it can."""
        for step in (*self.failed, *self.skipped):
            if step.number > 1 or step.state == "failed":
                return str(step)
        return ""


def verify_bundle(
    path: Path,
    *,
    public_keys: Sequence[PublicKey] = (),
    snapshot: Path | CaseSet | None = None,
    errata_file: Path | None = None,
) -> BundleReport:
    """Run all verification steps on a bundle; nothing is written.

    Args:
        path: The bundle.
        public_keys: Keys of which one must have signed the bundle. Without any, the signature is checked with the
            key that the bundle names, which proves integrity but not origin.
        snapshot: The folder or LiveMedBench file of the run's cases, or the cases as `load_cases` verified them.
            By default the version named in the run is looked up (`find_snapshot`); steps that need it are
            skipped if it is not available.
        errata_file: The errata that must name what was left out; by default those beside the snapshot.

    Raises:
        BadInput: If there is no bundle at `path`.
    """
    files, packing_faults = read_bundle(path)
    state = Verification(
        files,
        packing_faults,
        public_keys,
        snapshot,
        errata_file,
    )
    steps = run_steps(state, STEPS)
    usable = steps[0].state != "failed"
    for step in steps[1:]:
        usable = usable and step.state == "passed"
    return BundleReport(
        path=path,
        steps=steps,
        info=state.info,
        digest=digest_bytes(files[SUMS]) if SUMS in files else "",
        model=state.run_info.model if state.run_info else None,
        trust=state.trust,
        run=state.run if usable else None,
        evidence=files.get(EVIDENCE) if usable else None,
        withdrawn=state.withdrawn,
    )


def unbundle(report: BundleReport, out: Path) -> RunFolder:
    """Write a verified bundle and the snapshot's cases as a run folder, and open it.

    Raises:
        UsageError: If the bundle did not verify completely.
        BadInput: If `out` is there already or cannot be written.
    """
    if report.run is None:
        raise UsageError(f"{report.path} cannot be unpacked: {report.why_not}")
    run = report.run
    files = {"cases.jsonl": lines_of(case.row() for case in run.cases)}
    files |= run_files(run.info, bundled_rows(run), report.evidence)
    with writing(out):
        out.mkdir(parents=True)
        for name, data in files.items():
            write_whole(out / name, data)
    return open_run(out)
