"""Verify a bundle in numbered steps, each failure with file, expected and found; and unpack what verified."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from medlive.build import code_version
from medlive.errors import CheckFailed, MedliveError, UsageError
from medlive.evaluation.bundles import contents, verdicts
from medlive.evaluation.bundles import files as bundle_files
from medlive.evaluation.bundles.bundle import (
    MOST_DRAWS,
    BundleInfo,
    ErrataUse,
    bundle_scores,
    bundled_run,
    cases_jsonl,
    errata_from_record,
    scored_part,
)
from medlive.evaluation.bundles.contents import Verification, require
from medlive.evaluation.bundles.files import (
    BUNDLE,
    EVIDENCE_FILE,
    FINDINGS,
    PROTOCOLS,
    RUN,
    SCORES,
    encode_document,
    encode_row,
)
from medlive.evaluation.bundles.protocols import check_protocols
from medlive.evaluation.grading.questions import Finding
from medlive.evaluation.log import writing
from medlive.evaluation.model import CaseSet
from medlive.evaluation.runs.folder import (
    GRADES,
    RESPONSES,
    RunFolder,
    open_run,
    write_whole,
)
from medlive.evaluation.scoring.errata import (
    ErrataMode,
    ErrataSearch,
    RunErrata,
    use_errata,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.integrity.checks import (
    Faults,
    Skip,
    StepResult,
    StepState,
    Trust,
    run_steps,
)
from medlive.printable import printable

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_RESTS: Final = 4
"""Scores depend on this step and the later ones; earlier faults concern the packaging."""


def errata(state: Verification, out: Faults) -> None:
    """Check that what was left out is in the snapshot's errata; note withdrawn parts that were scored."""
    require(state.scores, SCORES)
    cases, declared = state.require_cases(), state.errata
    applied = declared is not None and declared.mode is ErrataMode.APPLY
    run = RunFolder(state.path, require(state.run, RUN), cases)
    try:
        (known,) = use_errata(
            [run],
            ErrataMode.APPLY,
            ErrataSearch(state.errata_file, state.snapshots_folder),
        ).runs
    except MedliveError as exc:
        if applied or state.errata_file is not None:
            out.add(SCORES, "readable errata", exc.message[:200])
        else:
            state.add_note(
                f"the errata beside the snapshot cannot be read: {exc.message[:200]}"
            )
        return
    state.withdrawn = known
    left_out = RunErrata("", known.found)
    if declared is not None and applied:
        left_out = errata_from_record(cases, declared.model_dump(mode="json"))
    for what in _without_erratum(left_out, known):
        out.add(
            SCORES, "the errata of the snapshot", f"{what} left out without an erratum"
        )
    cases_scored = len(set(known.cases) - set(left_out.cases))
    criteria_scored = len(set(known.criteria) - set(left_out.criteria))
    if cases_scored or criteria_scored:
        state.add_note(
            f"{cases_scored} cases and {criteria_scored} criteria were withdrawn but are scored"
        )


def _without_erratum(left_out: RunErrata, known: RunErrata) -> Iterator[str]:
    """The cases and criteria that were left out of the scores, and that no erratum withdraws."""
    for case_id in left_out.cases:
        if case_id not in known.cases:
            yield f"case {printable(case_id)[:100]}"
    for case_id, criterion_id in left_out.criteria:
        if case_id in known.cases or (case_id, criterion_id) in known.criteria:
            continue
        yield f"criterion {printable(criterion_id)[:80]} of {printable(case_id)[:80]}"


def scores(state: Verification, out: Faults) -> None:
    """Check that recomputed scores equal the bundle's to the printed digit."""
    recomputed = _recompute(state, out)
    if recomputed is None:
        return
    declared = require(state.scores, SCORES)
    _compare(
        recomputed, declared, (recomputed.keys() | declared.keys()) - {"rates"}, out
    )
    info = require(state.info, BUNDLE)
    made, here = (info.code_version, info.numpy), (code_version(), np.__version__)
    if made != here:
        # Other versions may draw other random numbers or score differently.
        theirs = f"medlive {printable(made[0])[:40]}, numpy {printable(made[1])[:40]}"
        if out.count:
            out.add(
                BUNDLE,
                f"medlive {here[0]}, numpy {here[1]}, which recomputed the scores",
                theirs,
            )
        else:
            state.add_note(
                f"made with {theirs}; scored again with medlive {here[0]}, numpy {here[1]}"
            )


def rates(state: Verification, out: Faults) -> None:
    """Check that recomputed rates equal the bundle's."""
    if (recomputed := _recompute(state, out)) is not None:
        _compare(recomputed, require(state.scores, SCORES), {"rates"}, out)


def protocols(state: Verification, out: Faults) -> None:
    """Check that what judges said about the run is as they replied, and comes to the results of the protocols."""
    if not state.files.keys() & bundle_files.OF_PROTOCOLS:
        return
    info, run = require(state.info, BUNDLE), graded(state)
    declared = bundle_files.parse_document(
        state.require_file(PROTOCOLS), PROTOCOLS, out
    )
    rows = bundle_files.rows(
        state.require_file(FINDINGS), FINDINGS, Finding, info.canary, out
    )
    if declared is None or rows is None:
        return
    if any(number >= _RESTS for number in state.failed):
        raise Skip("an earlier step that the results depend on failed")
    errata = None if state.errata is None else state.errata.model_dump(mode="json")
    if unverifiable := check_protocols(scored_part(run, errata), declared, rows, out):
        state.add_note(
            f"{unverifiable} of {len(rows)} findings have no stored reply to check them against"
        )


def _compare(
    recomputed: Mapping[str, Any],
    declared: Mapping[str, Any],
    fields: Set[str],
    out: Faults,
) -> None:
    docs = (
        {name: doc[name] for name in doc.keys() & fields}
        for doc in (recomputed, declared)
    )
    for place, want, got in bundle_files.differences(
        *map(bundle_files.through_json, docs)
    ):
        out.add(f"{SCORES}: {printable(place)}", want, got)


def _recompute(state: Verification, out: Faults) -> dict[str, Any] | None:
    state.require_rows(state.answers, RESPONSES)
    declared = require(state.scores, SCORES)
    if state.recomputed is not None:
        return state.recomputed
    if any(number >= _RESTS for number in state.failed):
        raise Skip("an earlier step that the scores depend on failed")
    try:
        draws, seed = (declared["bootstrap"][name] for name in ("draws", "seed"))
        if [type(draws), type(seed)] != [int, int] or not (
            1 <= draws <= MOST_DRAWS and 0 <= seed < 2**63
        ):
            raise ValueError(f"draws {draws!r}, seed {seed!r}"[:100])
        state.recomputed = bundle_scores(graded(state), declared["errata"], draws, seed)
    except (KeyError, TypeError, ValueError, CheckFailed) as exc:
        out.add(
            SCORES,
            f"1 to {MOST_DRAWS} draws, a seed and errata that leave a case",
            str(exc)[:200],
        )
    return state.recomputed


def graded(state: Verification) -> GradedRun:
    """Return the bundle's content as a run. Raises Skip if it could not be read."""
    rows = require(state.answers, RESPONSES), require(state.grades, GRADES)
    return bundled_run(require(state.run, RUN), state.require_cases(), *rows)


@dataclass(frozen=True, slots=True)
class BundleReport:
    """The result of every step, in order, and what was read."""

    path: Path
    steps: tuple[StepResult, ...]
    info: BundleInfo | None
    trust: Trust
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
        return tuple(
            step.why
            for step in self.steps[1:]
            if step.state is StepState.PASSED and step.why
        )

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
    files, packing_faults = bundle_files.read_bundle(path)
    state = Verification(
        path, files, packing_faults, public_keys, snapshot, errata_file
    )
    signature, *others = results = run_steps(state, STEPS)
    usable = signature.state is not StepState.FAILED and all(
        r.state is StepState.PASSED for r in others
    )
    run, book = (graded(state), files.get(EVIDENCE_FILE)) if usable else (None, None)
    return BundleReport(
        path, results, state.info, state.trust, run, book, state.errata, state.withdrawn
    )


STEPS: Final[tuple[tuple[str, Callable[[Verification, Faults], None]], ...]] = (
    (
        "the signature is valid, by a given key or the one that the bundle names",
        contents.signature,
    ),
    ("the bundle contains exactly its files, as regular files", contents.files),
    ("every file matches SHA256SUMS and bundle.json", contents.digests),
    (
        "every document and row is valid and in canonical form, and they agree",
        contents.schema,
    ),
    ("the snapshot is the one named in the bundle, and verifies", contents.snapshot),
    ("the cases equal the snapshot's", contents.cases),
    (
        "only open-book runs have evidence, as run.json says, none newer than its case",
        contents.evidence,
    ),
    ("every answer belongs to a case, at most one each", contents.answers),
    (
        "every verdict matches its criterion, its answer and the grader's reply",
        verdicts.verdicts,
    ),
    ("the pinned grader gave all verdicts", verdicts.grader),
    ("everything left out is in the snapshot's errata", errata),
    ("the recomputed scores are equal to the printed digit", scores),
    (
        "the recomputed rates of unanswered, ungraded, truncated and refused are equal",
        rates,
    ),
    (
        "what judges said in protocols matches their replies, and comes to the same results",
        protocols,
    ),
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
    answers = [encode_row(answer.row()) for answer in run.answers.values()]
    grades = []
    for case in run.run.cases:
        of_case = run.grades.get(case.case_id, {})
        for criterion in case.criteria:
            grade = of_case.get(criterion.id)
            if grade is not None:
                grades.append(encode_row(grade.row()))
    files = {"cases.jsonl": cases_jsonl(run.run.cases)}
    if report.book is not None:
        files[EVIDENCE_FILE] = report.book
    files[RESPONSES] = b"".join(answers)
    files[GRADES] = b"".join(grades)
    # Last, since it makes the folder a run.
    files["run.json"] = encode_document(run.run.info.model_dump(mode="json"))
    with writing(out):
        if out.is_symlink() or (
            out.exists() and (not out.is_dir() or any(out.iterdir()))
        ):
            raise UsageError(f"{out} is not empty", hint="name a new folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_whole(out / name, data)
    return open_run(out)
