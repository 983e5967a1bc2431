"""Verify a bundle in numbered steps, each failure with file, expected and found; and unpack what verified."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from medlive.build import code_version
from medlive.errors import BadInput, CheckFailed, MedliveError, UsageError, first_fault
from medlive.evaluation.bundles.bundle import (
    UNTRUSTED_COMMENT,
    BundledRows,
    BundleInfo,
    bundle_scores,
    bundled_rows,
    bundled_run,
    canary_of_cases,
    run_files,
    scored_part,
)
from medlive.evaluation.bundles.files import (
    ALWAYS,
    BUNDLE,
    RUN,
    SCORES,
    Shape,
    checksums,
    differences,
    encode_figures,
    parse_document,
    parse_rows,
    read_bundle,
    trusted_comment,
)
from medlive.evaluation.bundles.harm import check_readings
from medlive.evaluation.bundles.public import (
    public_answer,
    public_grade,
    public_harm,
    public_info,
)
from medlive.evaluation.bundles.verdicts import check_verdicts
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, day_of, is_day, select
from medlive.evaluation.harm import READINGS, HarmRow
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase, Grade
from medlive.evaluation.runs.folder import (
    GRADES,
    IMPORTED,
    RESPONSES,
    SETTLED,
    CasesUse,
    EvidenceUse,
    RunFolder,
    RunInfo,
    open_run,
    write_whole,
)
from medlive.evaluation.runs.templates import (
    EVIDENCE,
    TEMPLATES,
    WITHOUT_EVIDENCE,
    Evidence,
    load_template,
)
from medlive.evaluation.scoring.errata import (
    ErrataMode,
    ErrataSearch,
    RunErrata,
    use_errata,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.guard.printable import printable
from medlive.integrity.checks import (
    Faults,
    SignedDocument,
    Skip,
    StepResult,
    StepState,
    Trust,
    run_steps,
)
from medlive.integrity.digest import canonical_json, digest_bytes
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.integrity.log import writing
from medlive.llm.prompts import load_prompt
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.model import week_end

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_RESTS: Final = 3
"""Figures depend on this step and the later ones; earlier faults concern the packaging."""
_SELECTION: Final = TypeAdapter(Selection)
Known = TypeVar("Known")


@dataclass
class Verification:
    """What the steps read and produce; None where it could not be read, or not yet."""

    path: Path
    files: Mapping[str, bytes]
    packing_faults: Faults
    public_keys: "Sequence[PublicKey]"
    snapshot: Path | CaseSet | None
    errata_file: Path | None
    trust: Trust = Trust.BROKEN
    note: str = ""
    failed: tuple[int, ...] = ()
    info: BundleInfo | None = None
    run_info: RunInfo | None = None
    rows: BundledRows | None = None
    snapshots_folder: Path | None = None
    run: GradedRun | None = None
    """With the snapshot's cases, once these are known."""
    withdrawn: RunErrata | None = None

    def require_file(self, name: str) -> bytes:
        """Return the content of a file. Raises Skip if it is missing."""
        if name not in self.files:
            raise Skip(f"{name} is missing")
        return self.files[name]

    def add_note(self, text: str) -> None:
        """Add a note to the current step, which may still pass."""
        self.note = f"{self.note}; {text}" if self.note else text

    def require_run(self) -> GradedRun:
        """Return the run with its cases. Raises Skip if the snapshot is not available."""
        if self.run is None:
            raise Skip("the cases are not available", allowed=True)
        return self.run


def _require(value: Known | None, name: str) -> Known:
    """Return the value. Raises Skip if it could not be read."""
    if value is None:
        raise Skip(f"{name} could not be read")
    return value


def _parse(
    state: Verification, name: str, shape: type[Shape], out: Faults
) -> Shape | None:
    try:
        return parse_document(state.require_file(name), shape)
    except ValidationError as exc:
        out.add(name, "its schema", first_fault(exc)[:250])
    except ValueError as exc:
        out.add(name, "a document in canonical form", str(exc)[:200])
    return None


def _signature(state: Verification, out: Faults) -> None:
    """Check the signature with a given key, else with the one that the bundle names."""
    info = state.info = _parse(state, BUNDLE, BundleInfo, out)
    if info is None:
        return
    key = info.signing
    has_signature = SIGNATURE in state.files
    named_key = SignedDocument(
        what="bundle",
        document=BUNDLE,
        key=None if key is None else (key.key_id, key.public_key),
        comment=trusted_comment(state.files[BUNDLE]),
        untrusted=UNTRUSTED_COMMENT,
        given=state.public_keys,
        read=state.require_file,
    )
    if key is None and not has_signature and not state.public_keys:
        state.trust = Trust.NOT_SIGNED
    state.trust, state.note = named_key.check(has_signature, out)


def _files(state: Verification, out: Faults) -> None:
    """Check that the files of a bundle are present, and as their digests say."""
    out.extend(state.packing_faults)
    for name in sorted(ALWAYS - state.files.keys()):
        out.add(name, "a file", "none")
    signed = {n: d for n, d in state.files.items() if n not in (SUMS, SIGNATURE)}
    if state.require_file(SUMS) != checksums(signed):
        what = "one sha256sum line for each file, in order, with its digest"
        out.add(SUMS, what, "other lines, digests, order or line ends")


def _contents(state: Verification, out: Faults) -> None:
    """Check that every document and row is as medlive writes it for the public."""
    run = state.run_info = _parse(state, RUN, RunInfo, out)
    info = _require(state.info, BUNDLE)
    if run is None:
        return
    try:
        if public_info(run) != run:
            out.add(RUN, "no endpoint or path of the machine that made it", "one")
    except UsageError as exc:
        out.add(RUN, "parameters that may be published", exc.message[:200])
    if info.canary != canary_of_cases(run):
        out.add(BUNDLE, "the canary of its snapshot", printable(str(info.canary))[:60])
    try:
        answers = state.require_file(RESPONSES)
        grades = state.require_file(GRADES)
        state.rows = BundledRows(
            parse_rows(answers, RESPONSES, Answer, public_answer, info.canary),
            parse_rows(grades, GRADES, Grade, public_grade, info.canary),
            parse_rows(
                state.files.get(READINGS, b""),
                READINGS,
                HarmRow,
                public_harm,
                info.canary,
            ),
        )
    except ValueError as exc:
        out.add(".", "rows of answers and grades in canonical form", str(exc)[:200])
        return
    names = {run.model, run.template.name}
    for grade in state.rows.grades:
        names.update((grade.model, grade.engine))
    for row in state.rows.harm:
        names.update((row.reader, row.checker))
    for name in sorted(names):
        # Names are printed in tables and on terminals.
        if not name.strip() or printable(name) != name:
            out.add(RUN, "printable names", printable(name)[:100])


def _snapshot(state: Verification, out: Faults) -> None:
    """Check that the snapshot is the one named in the run, verifies, and holds the run's cases."""
    run = _require(state.run_info, RUN)
    use = run.cases
    source = state.snapshot
    cases = source if isinstance(source, CaseSet) else _load_cases(source, use, out)
    if cases is None:
        return
    if cases.verified is False:
        out.add(cases.name, "a verified snapshot", "an unverified one")
    for name in ("origin", "name", "digest", "publishable"):
        want, got = str(getattr(use, name)), str(getattr(cases, name))
        if want != got:
            what = f"{name} {printable(want)[:100]}, as {RUN} says"
            out.add(printable(cases.name), what, got)
    if out.count:
        return
    named = printable(str(use.selection))[:200]
    total = len(cases)
    if use.selection is not None:
        try:
            cases = select(cases, _SELECTION.validate_python(use.selection))
        except (MedliveError, ValueError) as exc:
            out.add(RUN, "a selection of cases", printable(str(exc))[:200])
            return
    if len(cases) < total:
        state.add_note(f"{len(cases)} of its {total} cases, by {named}")
    actual = digest_bytes(cases_jsonl(cases.cases)), len(cases), cases.selection
    if actual != (use.rows, use.count, use.selection):
        what = f"{actual[1]} cases with the digest {actual[0]}, by {actual[2]}"
        out.add(RUN, what, printable(f"{use.count}, {use.rows}, {named}")[:300])
        return
    rows = _require(state.rows, f"{RESPONSES} or {GRADES}")
    state.snapshots_folder = cases.snapshots
    state.run = bundled_run(run, cases.cases, rows)


def _load_cases(place: Path | None, use: CasesUse, out: Faults) -> CaseSet | None:
    """Load the cases from the given place, or by the snapshot's version. Raises Skip if there are none."""
    if place is None:
        named = printable(use.name)[:100]
        if use.origin != "snapshot":
            raise Skip(f"the cases are of the file {named!r}, not given", allowed=True)
        if week_end(use.name) is None:
            # Only look up versions: an untrusted bundle must not name a path of this machine.
            out.add(RUN, "a snapshot version", named)
            return None
        try:
            place = find_snapshot(use.name)
        except BadInput as exc:
            raise Skip(f"no snapshot was given: {exc.message}", allowed=True) from None
    try:
        return load_cases(place)
    except (BadInput, CheckFailed) as exc:
        what = "the cases of the run, and a snapshot that verifies"
        out.add(place.name, what, exc.message[:300])
    return None


def cases_jsonl(cases: tuple[EvaluationCase, ...]) -> bytes:
    """A run's `cases.jsonl`; its digest is `CasesUse.rows`."""
    lines = [canonical_json(case.row()) + "\n" for case in cases]
    return "".join(lines).encode("utf-8", "backslashreplace")


def _evidence(state: Verification, out: Faults) -> None:
    """Check that only open-book runs have evidence, as `run.json` says, none newer than its case."""
    run = _require(state.run_info, RUN)
    use, data = run.evidence, state.files.get(EVIDENCE)
    own_template = run.template.name not in TEMPLATES
    closed = run.arm == "closed" or not (
        own_template or run.template.name in WITHOUT_EVIDENCE
    )
    if run.engine != IMPORTED and (closed if use else run.open_book):
        out.add(
            RUN, "evidence where arm and template take some, and only there", "other"
        )
    if (use is None) != (data is None):
        out.add(EVIDENCE, f"a file exactly where {RUN} names evidence", "other")
    if use is None or data is None:
        return
    if use.rows != digest_bytes(data):
        out.add(EVIDENCE, f"the digest {use.rows[:80]}", "another")
    try:
        book = Evidence.read(data)
    except BadInput as exc:
        out.add(EVIDENCE, "snippets", exc.message[:200])
        return
    cases = state.require_run().run.cases
    if book.data() != data or list(book.by_case) != [case.case_id for case in cases]:
        out.add(EVIDENCE, "every case of the run, in order and canonical form", "other")
        return
    _check_snippets(book, use, cases, out)


def _check_snippets(
    book: Evidence,
    use: EvidenceUse,
    cases: Sequence[EvaluationCase],
    out: Faults,
) -> None:
    for case in cases:
        day, snippets = day_of(case), book.by_case[case.case_id]
        allowed = [_is_allowed(snippet.date, day, use.undated) for snippet in snippets]
        if len(allowed) > use.top_k or not all(allowed):
            what = f"at most {use.top_k} snippets for case {case.case_id}, none dated after {day}"
            out.add(EVIDENCE, what, "others")


def _is_allowed(date: str | None, day: str | None, undated: bool) -> bool:
    """Whether a snippet of that date may stand before a case of that day."""
    if day is None:
        return False
    if date is None:
        return undated
    return is_day(date) and date <= day


def _rows(state: Verification, out: Faults) -> None:
    """Check that there is one answer a case and one grade a criterion at most, in the order of the cases."""
    run = state.require_run()
    rows = _require(state.rows, GRADES)
    expected = bundled_rows(run)
    what = "a row for the snapshot's cases and criteria, once and in order"
    for number, pair in enumerate(zip_longest(expected.answers, rows.answers), 1):
        if pair[0] != pair[1]:
            out.add(f"{RESPONSES}:{number}", what, "another")
            break
    for number, pair in enumerate(zip_longest(expected.grades, rows.grades), 1):
        if pair[0] != pair[1]:
            out.add(f"{GRADES}:{number}", what, "another")
            break
    for number, readings in enumerate(zip_longest(expected.harm, rows.harm), 1):
        if readings[0] != readings[1]:
            out.add(f"{READINGS}:{number}", what, "another")
            break
    missing = len(run.run.cases) - len(rows.answers)
    failed = sum(answer.state is AnswerState.FAILED for answer in rows.answers)
    unanswered = missing + sum(not answer.gradable for answer in rows.answers)
    if unanswered > 0:
        state.add_note(
            f"{unanswered} of {len(run.run.cases)} cases have no answer ({failed} failed, {missing} missing)"
        )
    own = {"", run.run.info.model, run.run.info.asked_as}
    others = [answer.model for answer in rows.answers if answer.model not in own]
    if others:
        names = ", ".join(sorted(set(others))[:3])
        state.add_note(
            f"{len(others)} answers are by the model {printable(names)[:200]} "
            f"instead of {printable(run.run.info.model)[:60]}"
        )


def _verdicts(state: Verification, out: Faults) -> None:
    """Check that every verdict and every reading for harm matches its answer and the judge's reply."""
    run = state.require_run()
    if run.grader is None:
        out.add(GRADES, "verdicts", "none")
        return
    for note in check_verdicts(run, out):
        state.add_note(note)
    if run.harm is not None:
        for note in check_readings(run, run.harm, out):
            state.add_note(note)
    elif READINGS in state.files:
        out.add(READINGS, "readings of the run's answers", "none")
    _add_version(state, out)


def _grader(state: Verification, out: Faults) -> None:
    """Check that the pinned grader alone gave all verdicts; note texts that differ from this version's."""
    run = state.require_run()
    pinned, template = run.grader, run.run.info.template
    if pinned is None:
        raise Skip("nothing is graded")
    for grade in _require(state.rows, GRADES).grades:
        got = (grade.engine, grade.model, grade.mode.value, grade.prompt, grade.judge)
        if got != (
            pinned.engine,
            pinned.model,
            pinned.mode,
            pinned.prompt,
            pinned.judge,
        ):
            out.add(GRADES, "the same grader in every row", printable(str(got))[:200])
        # A reply by another model leaves a criterion ungraded.
        if grade.met is not None and grade.grader != pinned.model:
            name = printable(grade.grader)[:100] or "an unnamed model"
            what = f"verdicts by the pinned grader {pinned.model[:100]}"
            out.add(GRADES, what, f"verdicts by {name}")
    if not out.count and pinned.engine not in (IMPORTED, SETTLED):
        prompt = load_prompt("medlive.grader", f"grader.{pinned.mode}")
        if prompt.digest != pinned.prompt:
            state.add_note("the grader's prompt differs from this version's")
    known = template.name in TEMPLATES and template.digest is not None
    if known and load_template(template.name).digest != template.digest:
        state.add_note("the text of its template differs from this version's")


def _errata(state: Verification, out: Faults) -> None:
    """Check that what was left out is in the snapshot's errata; note withdrawn parts that were scored."""
    run, info = state.require_run(), _require(state.info, BUNDLE)
    search = ErrataSearch(state.errata_file, state.snapshots_folder)
    try:
        (known,) = use_errata([run.run], ErrataMode.APPLY, search).runs
    except MedliveError as exc:
        if state.errata_file or info.withdrawn_cases or info.withdrawn_criteria:
            out.add(BUNDLE, "readable errata", exc.message[:200])
        else:
            state.add_note(
                f"the errata beside the snapshot cannot be read: {exc.message[:200]}"
            )
        return
    state.withdrawn = known
    for what in _without_erratum(info, known):
        out.add(
            BUNDLE, "the errata of the snapshot", f"{what} left out without an erratum"
        )
    cases = len(set(known.cases) - set(info.withdrawn_cases))
    criteria = len(set(known.criteria) - set(info.withdrawn_criteria))
    if cases or criteria:
        state.add_note(
            f"{cases} cases and {criteria} criteria were withdrawn but are scored"
        )


def _without_erratum(info: BundleInfo, known: RunErrata) -> Iterator[str]:
    """The cases and criteria that the figures leave out, and that no erratum withdraws."""
    for case_id in info.withdrawn_cases:
        if case_id not in known.cases:
            yield f"case {printable(case_id)[:100]}"
    for case_id, criterion_id in info.withdrawn_criteria:
        if case_id in known.cases or (case_id, criterion_id) in known.criteria:
            continue
        yield f"criterion {printable(criterion_id)[:80]} of {printable(case_id)[:80]}"


def _scores(state: Verification, out: Faults) -> None:
    """Score the run again, and check that every figure is equal to the printed digit."""
    run, info = state.require_run(), _require(state.info, BUNDLE)
    data = state.require_file(SCORES)
    if any(number >= _RESTS for number in state.failed):
        raise Skip("an earlier step that the figures depend on failed")
    try:
        expected = encode_figures(bundle_scores(scored_part(run, info), info))
    except CheckFailed as exc:
        out.add(BUNDLE, "errata that leave a case", exc.message[:200])
        return
    if data == expected:
        if _made_with(info) != _made_here():
            state.add_note(
                f"made with {_made_with(info)}; scored again with {_made_here()}"
            )
        return
    try:
        for place, want, got in differences(expected, data):
            out.add(f"{SCORES}: {place[:100]}", want[:120], got[:120])
    except (ValueError, RecursionError) as exc:
        out.add(SCORES, "a JSON document", str(exc)[:200])
    if not out.count:
        out.add(SCORES, "a document in canonical form", "another form")
    _add_version(state, out)


def _add_version(state: Verification, out: Faults) -> None:
    """Add to faults that another version may score, draw or read replies differently."""
    info = _require(state.info, BUNDLE)
    if out.count and _made_with(info) != _made_here():
        out.add(BUNDLE, f"{_made_here()}, which verifies it", _made_with(info))


def _made_with(info: BundleInfo) -> str:
    return f"medlive {printable(info.code_version)[:40]}, numpy {printable(info.numpy)[:40]}"


def _made_here() -> str:
    return f"medlive {code_version()}, numpy {np.__version__}"


@dataclass(frozen=True, slots=True)
class BundleReport:
    """The result of every step, in order, and what was read."""

    path: Path
    steps: tuple[StepResult, ...]
    info: BundleInfo | None
    digest: str
    """Of `SHA256SUMS`, and so of all that is signed; "" where there is none."""
    model: str | None
    trust: Trust
    run: GradedRun | None
    """The bundle's run, if every step that it depends on passed."""
    evidence: bytes | None = None
    """The snippets of an open-book run (`evidence.jsonl`)."""
    withdrawn: RunErrata | None = None
    """What locally known errata affect; None if that step was not reached."""

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return not self.failed

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
        passed = (step for step in self.steps[1:] if step.state is StepState.PASSED)
        return tuple(step.why for step in passed if step.why)

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
        path, files, packing_faults, public_keys, snapshot, errata_file
    )
    steps = run_steps(state, STEPS)
    usable = steps[0].state is not StepState.FAILED
    for step in steps[1:]:
        usable = usable and step.state is StepState.PASSED
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


STEPS: Final[tuple[tuple[str, Callable[[Verification, Faults], None]], ...]] = (
    (
        "the signature is valid, by a given key or the one that the bundle names",
        _signature,
    ),
    ("exactly a bundle's files are there, each as SHA256SUMS says", _files),
    ("every document and row is as medlive writes it for the public", _contents),
    ("the snapshot is the one named, verifies, and holds the run's cases", _snapshot),
    ("open-book runs alone have evidence, none newer than its case", _evidence),
    ("there is one answer a case and one grade a criterion at most", _rows),
    (
        "every verdict and reading for harm matches its answer and the reply",
        _verdicts,
    ),
    ("the pinned grader gave all verdicts", _grader),
    ("everything left out is in the snapshot's errata", _errata),
    ("the recomputed figures are equal to the printed digit", _scores),
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
    files = {"cases.jsonl": cases_jsonl(report.run.run.cases)}
    files |= run_files(report.run, report.evidence)
    with writing(out):
        empty = not out.exists() or (out.is_dir() and not any(out.iterdir()))
        if out.is_symlink() or not empty:
            raise UsageError(f"{out} is not empty", hint="name a new folder")
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_whole(out / name, data)
    return open_run(out)
