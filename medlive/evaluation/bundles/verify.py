"""Verify a bundle in numbered steps, each failure with file, expected and found; and unpack what verified."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from medlive.errors import BadInput, UsageError
from medlive.evaluation.bundles import contents as bundle_contents
from medlive.evaluation.bundles import rescore as bundle_rescore
from medlive.evaluation.bundles import sources as bundle_sources
from medlive.evaluation.bundles import verdicts as bundle_verdicts
from medlive.evaluation.bundles.bundle import BundleInfo, ErrataUse, cases_jsonl
from medlive.evaluation.bundles.contents import Verification
from medlive.evaluation.bundles.files import EVIDENCE_FILE, encode_document, encode_row, read_bundle
from medlive.evaluation.model import CaseSet
from medlive.evaluation.runs.folder import GRADES, RESPONSES, RunFolder, open_run, write_whole
from medlive.evaluation.scoring.errata import RunErrata
from medlive.evaluation.scoring.graded import GradedRun
from medlive.integrity.checks import Faults, StepResult, StepState, Trust, run_steps

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey


@dataclass(frozen=True, slots=True)
class BundleReport:
    """The result of every step, in order, and what was read."""

    path: Path
    steps: tuple[StepResult, ...]
    info: BundleInfo | None
    """None when it could not be read."""
    trust: Trust
    """What the signature says."""
    run: GradedRun | None
    """The bundle's run, if every step that it depends on passed."""
    book: bytes | None = None
    """The snippets of an open-book run (`evidence.jsonl`), if `run` is given."""
    errata: ErrataUse | None = None
    """The errata that the bundle declares; None if it declares none."""
    withdrawn: RunErrata | None = None
    """What locally known errata affect; None if that step was not reached."""

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return all(step.state is not StepState.FAILED for step in self.steps)

    @property
    def complete(self) -> bool:
        """Whether no step was skipped, except the signature: a bundle may be unsigned."""
        return all(step.state is not StepState.SKIPPED for step in self.steps[1:])

    @property
    def proven(self) -> bool:
        """Whether every step passed, including the signature."""
        return all(step.state is StepState.PASSED for step in self.steps)

    @property
    def failed(self) -> tuple[StepResult, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.state is StepState.FAILED)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of passed steps, except the signature's."""
        return tuple(step.why for step in self.steps[1:] if step.state is StepState.PASSED and step.why)

    @property
    def why_not(self) -> str:
        """Why the bundle cannot be ranked; "" if it can."""
        for step in self.failed:
            return f"step {step.number} ({step.name}): {step.findings[0]}"
        for step in self.steps[1:]:
            if step.state is StepState.SKIPPED:
                return f"step {step.number} ({step.name}) was skipped: {step.why}"
        return ""


def verify_bundle(
    path: Path,
    *,
    public_keys: "Sequence[PublicKey]" = (),
    snapshot: Path | CaseSet | None = None,
    errata_file: Path | None = None,
) -> BundleReport:
    """Run all verification steps on a bundle; nothing is written.

    Args:
        path: The bundle, an archive or a folder.
        public_keys: Keys of which one must have signed the bundle. Without any, the signature is checked with the
            key that the bundle names, which proves integrity but not origin.
        snapshot: The folder or LiveMedBench file of the run's cases, or the cases as `load_cases` verified them.
            By default the version named in the bundle is looked up (`find_snapshot`); steps that need it are
            skipped if it is not available.
        errata_file: The errata that must name what was left out; by default those beside the snapshot.

    Raises:
        BadInput: If there is no bundle at `path`.
    """
    files, packing_faults = read_bundle(path)
    state = Verification(path, files, packing_faults, public_keys, snapshot, errata_file)
    signature, *others = results = run_steps(state, STEPS)
    usable = signature.state is not StepState.FAILED and all(r.state is StepState.PASSED for r in others)
    return BundleReport(
        path,
        results,
        state.info,
        state.trust,
        bundle_rescore.graded(state) if usable else None,
        files.get(EVIDENCE_FILE) if usable else None,
        state.errata,
        state.withdrawn,
    )


STEPS: Final[tuple[tuple[str, Callable[[Verification, Faults], None]], ...]] = (
    ("the signature is valid, by a given key or the one that the bundle names", bundle_contents.signature),
    ("the bundle contains exactly its files, as regular files", bundle_contents.files),
    ("every file matches SHA256SUMS and bundle.json", bundle_contents.digests),
    ("every document and row is valid and in canonical form, and they agree", bundle_contents.schema),
    ("the snapshot is the one named in the bundle, and verifies", bundle_sources.snapshot),
    ("the cases equal the snapshot's", bundle_sources.cases),
    ("only open-book runs have evidence, as run.json says, none newer than its case", bundle_sources.evidence),
    ("every answer belongs to a case, at most one each", bundle_sources.answers),
    ("every verdict matches its criterion, its answer and the grader's reply", bundle_verdicts.verdicts),
    ("the pinned grader gave all verdicts", bundle_verdicts.grader),
    ("everything left out is in the snapshot's errata", bundle_rescore.errata),
    ("the recomputed scores are equal to the printed digit", bundle_rescore.scores),
    ("the recomputed rates of unanswered, ungraded, truncated and refused are equal", bundle_rescore.rates),
)
"""The steps, in order: a reviewer checks completeness by counting."""


def unbundle(report: BundleReport, out: Path) -> RunFolder:
    """Write a verified bundle and the snapshot's cases as a run folder, and open it.

    Raises:
        UsageError: If the bundle did not verify completely, or `out` is not empty.
        BadInput: If `out` cannot be written.
    """
    if report.run is None:
        raise UsageError(f"{report.path} cannot be unpacked: {report.why_not}")
    run = report.run
    grades = (run.grades.get(case.case_id, {}).get(c.id) for case in run.run.cases for c in case.criteria)
    files = {
        "cases.jsonl": cases_jsonl(run.run.cases),
        **({} if report.book is None else {EVIDENCE_FILE: report.book}),
        RESPONSES: b"".join(encode_row(answer.row()) for answer in run.answers.values()),
        GRADES: b"".join(encode_row(grade.row()) for grade in grades if grade is not None),
        # Last, since it makes the folder a run.
        "run.json": encode_document(run.run.info.model_dump(mode="json")),
    }
    try:
        if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
            raise UsageError(f"{out} is not empty", hint="name a new folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_whole(out / name, data)
    except OSError as exc:
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc
    return open_run(out)
