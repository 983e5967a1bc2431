"""Verifying a bundle: numbered steps, each naming the file, what it expected and got."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from medlive.evaluation.bundles import rescore as bundle_rescore
from medlive.evaluation.bundles import sources as bundle_sources
from medlive.evaluation.bundles import verdicts as bundle_verdicts
from medlive.evaluation.bundles import whole as bundle_whole
from medlive.evaluation.bundles.bundle import BundleInfo, ErrataUse
from medlive.evaluation.bundles.files import BOOK
from medlive.evaluation.bundles.read import read_bundle
from medlive.evaluation.bundles.state import Held
from medlive.evaluation.model import CaseSet
from medlive.evaluation.scoring.errata import RunErrata
from medlive.evaluation.scoring.graded import GradedRun
from medlive.integrity.checks import Faults, StepResult, StepState, Trust, run_steps

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey


@dataclass(frozen=True, slots=True)
class BundleReport:
    """Every step's outcome, in order, and what was read."""

    path: Path
    steps: tuple[StepResult, ...]
    info: BundleInfo | None
    """None when it could not be read."""
    trust: Trust
    """What the signature says."""
    run: GradedRun | None
    """What the bundle holds, where every step that it rests on passed."""
    book: bytes | None = None
    """The snippets of an open-book run (`evidence.jsonl`), where `run` is there."""
    errata: ErrataUse | None = None
    """What the bundle says of errata; None: nothing."""
    withdrawn: RunErrata | None = None
    """What the errata that are known here concern of its cases; None where nobody could look."""

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return all(step.state is not StepState.FAILED for step in self.steps)

    @property
    def complete(self) -> bool:
        """Whether every step was taken but that of the signature, which a bundle may be without."""
        return all(step.state is not StepState.SKIPPED for step in self.steps[1:])

    @property
    def proven(self) -> bool:
        """Whether every step passed, that of the signature as well."""
        return all(step.state is StepState.PASSED for step in self.steps)

    @property
    def failed(self) -> tuple[StepResult, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.state is StepState.FAILED)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of it although it passes; what the signature proves is not among it."""
        return tuple(step.why for step in self.steps[1:] if step.state is StepState.PASSED and step.why)

    @property
    def why_not(self) -> str:
        """Why the bundle cannot stand in a ranking; "" when it can."""
        for step in self.failed:
            return f"step {step.number} ({step.name}): {step.findings[0]}"
        for step in self.steps[1:]:
            if step.state is StepState.SKIPPED:
                return f"step {step.number} ({step.name}) was not taken: {step.why}"
        return ""


def verify_bundle(
    path: Path,
    *,
    public_keys: "Sequence[PublicKey]" = (),
    snapshot: Path | CaseSet | None = None,
    errata_file: Path | None = None,
) -> BundleReport:
    """Take every step over the bundle at `path`, an archive or a folder, whatever lies there.

    `public_keys`: the keys of which one must have signed it; without any a signature is checked with the key that
    the bundle names, which proves integrity and not origin. `snapshot`: the folder or LiveMedBench file that the
    run was made on, or its cases as `load_cases` verified them; None: the version that the bundle names is looked
    up (`find_snapshot`), and the steps that need it are skipped where it is not here. `errata_file`: the errata
    that must name what was left out; None: those beside the snapshot. Raises BadInput when there is no bundle;
    nothing is written.
    """
    files, odd = read_bundle(path)
    held = Held(path, files, odd, public_keys, snapshot, errata_file)
    first, *others = results = run_steps(held, STEPS)
    stands = first.state is not StepState.FAILED and all(r.state is StepState.PASSED for r in others)
    return BundleReport(
        path,
        results,
        held.info,
        held.trust,
        bundle_rescore.graded(held) if stands else None,
        files.get(BOOK) if stands else None,
        held.errata,
        held.withdrawn,
    )


STEPS: Final[tuple[tuple[str, Callable[[Held, Faults], None]], ...]] = (
    ("the signature is of the bundle, by a key that was given or the one that it names", bundle_whole.signature),
    ("it holds the files of a bundle, plain, and no others", bundle_whole.files),
    ("every file is what SHA256SUMS and bundle.json say", bundle_whole.digests),
    ("every document and row has its schema and its one spelling, and they agree", bundle_whole.schema),
    ("the snapshot is the one that the bundle names, and verifies", bundle_sources.snapshot),
    ("the cases are the snapshot's, each as it is there", bundle_sources.cases),
    ("the evidence is an open book's, as run.json says, and no newer than its cases", bundle_sources.evidence),
    ("every answer is to a case, one each", bundle_sources.answers),
    (
        "every verdict is about a criterion and the answer as it stands here, and as its reply says",
        bundle_verdicts.verdicts,
    ),
    ("one grader gave all verdicts, and it is the pinned one", bundle_verdicts.grader),
    ("what was left out is in the snapshot's errata", bundle_rescore.errata),
    ("the scores come out again to the printed digit", bundle_rescore.scores),
    ("the rates of unanswered, ungraded, truncated and refused come out again", bundle_rescore.rates),
)
"""The steps, in order: a reviewer checks completeness by counting."""
