"""The steps that `verify_bundle` runs, in order (`STEPS`); a fault names a file, what was expected and what came."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from medlive.build import code_version
from medlive.errors import BadInput, CheckFailed, MedliveError, UsageError, first_fault
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, day_of, select
from medlive.evaluation.harm import READINGS, HarmRow
from medlive.evaluation.model import (
    Answer,
    CaseSet,
    EvaluationCase,
    Grade,
)
from medlive.evaluation.runs.folder import (
    GRADES,
    IMPORTED,
    RESPONSES,
    CasesUse,
    EvidenceUse,
    RunInfo,
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
    RunErrata,
    use_errata,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.guard.printable import printable
from medlive.integrity.checks import Faults, Inspection, Skip, check_signed
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.integrity.signing import PublicKey
from medlive.llm.engine import RULES_MODEL, endpoint_engine
from medlive.llm.prompts import load_prompt
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.model import week_end
from medlive.snapshot.slices import is_day

from .bundle import (
    UNTRUSTED_COMMENT,
    BundleInfo,
    Logs,
    bundle_scores,
    bundled_rows,
    bundled_run,
    canary_of_cases,
    public_info,
    public_rows,
    run_files,
)
from .files import (
    ALWAYS,
    BUNDLE,
    RUN,
    SCORES,
    Shape,
    checksums,
    encode_document,
    encode_figures,
    parse_document,
    parse_rows,
    trusted_comment,
)
from .verdicts import check_readings, check_verdicts

_SELECTION = TypeAdapter(Selection)
_SOURCE = ("origin", "name", "digest", "publishable")
"""What `run.json` says of the snapshot or file of its cases."""
_PART = ("selection", "rows", "count")
"""What `run.json` says of the part that the run asked about."""
Known = TypeVar("Known")


@dataclass
class Verification(Inspection):
    """What the steps read and produce, handed from one to the next; None: not read yet, or not readable."""

    files: Mapping[str, bytes]
    packing_faults: Faults
    public_keys: Sequence[PublicKey]
    snapshot: Path | CaseSet | None
    errata_file: Path | None
    info: BundleInfo | None = None
    run_info: RunInfo | None = None
    rows: Logs | None = None
    snapshots_folder: Path | None = None
    run: GradedRun | None = None
    """With the snapshot's cases, once these are known."""
    withdrawn: RunErrata | None = None

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises Skip if it is missing."""
        if name not in self.files:
            raise Skip(f"{name} is missing")
        return self.files[name]

    def add_note(self, text: str) -> None:
        """Add a note to the current step, which may still pass; unprintable characters are escaped."""
        text = printable(text)
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
    state: Verification,
    name: str,
    shape: type[Shape],
    out: Faults,
) -> Shape | None:
    """Parse a document of the bundle; None if it is invalid, which `out` then says."""
    try:
        return parse_document(state.read(name), shape)
    except ValidationError as exc:
        out.add(name, "its schema", first_fault(exc)[:250])
    except ValueError as exc:
        out.add(name, "a document", str(exc)[:200])
    return None


def check_origin(state: Verification, out: Faults) -> None:
    """Check the signature with a given key, else with the one that the bundle names."""
    info = state.info = _parse(state, BUNDLE, BundleInfo, out)
    if info is None:
        return
    key = info.signing
    check_signed(
        state,
        out,
        document=BUNDLE,
        key=None if key is None else (key.key_id, key.public_key),
        comments=(trusted_comment(state.files[BUNDLE]), UNTRUSTED_COMMENT),
        signers=state.public_keys,
        has_signature=SIGNATURE in state.files,
    )


def check_files(state: Verification, out: Faults) -> None:
    """Check that the files of a bundle are present, and as their digests say."""
    out.extend(state.packing_faults)
    for name in sorted(ALWAYS - state.files.keys()):
        out.add(name, "a file", "none")
    signed = {n: d for n, d in state.files.items() if n not in (SUMS, SIGNATURE)}
    if state.read(SUMS) != checksums(signed):
        what = "one sha256sum line for each file, in order, with its digest"
        out.add(SUMS, what, "other lines, digests, order or line ends")


def check_contents(state: Verification, out: Faults) -> None:
    """Check that every document and row is as medlive writes it for the public."""
    run = state.run_info = _parse(state, RUN, RunInfo, out)
    info = _require(state.info, BUNDLE)
    if run is None:
        return
    try:
        rows = state.rows = {
            RESPONSES: parse_rows(state.read(RESPONSES), RESPONSES, Answer),
            GRADES: parse_rows(state.read(GRADES), GRADES, Grade),
            READINGS: parse_rows(state.files.get(READINGS, b""), READINGS, HarmRow),
        }
        public = run_files(public_info(run), public_rows(rows), None)
    except ValueError as exc:
        out.add(".", "rows of answers, grades and readings", str(exc)[:200])
        return
    except UsageError as exc:
        out.add(RUN, "parameters that may be published", exc.message[:200])
        return
    made = f"medlive {info.code_version[:40]}, numpy {info.numpy[:40]}"
    here = f"medlive {code_version()}, numpy {np.__version__}"
    if made != here:
        state.add_note(
            f"made with {made}, verified with {here}: another version may score or read replies differently"
        )
    about = info.model_copy(update={"canary": canary_of_cases(run)})
    public[BUNDLE] = encode_document(about.model_dump(mode="json"))
    for name, data in public.items():
        _compare(name, data, state.files[name], out)
    names = {run.model, run.template.name}
    for grade in rows[GRADES]:
        names |= {grade.model, grade.engine}
    for reading in rows[READINGS]:
        names |= {reading.reader, reading.checker}
    for name in sorted(names):
        # Names are printed in tables and on terminals.
        if not name.strip() or printable(name) != name:
            out.add(RUN, "printable names", name[:100])


def _compare(name: str, expected: bytes, data: bytes, out: Faults) -> None:
    """Add a fault for the first line in which a file differs from what is expected."""
    pairs = zip_longest(expected.split(b"\n"), data.split(b"\n"))
    for number, lines in enumerate(pairs, start=1):
        if lines[0] == lines[1]:
            continue
        want, got = (
            "no line" if line is None else line.decode("utf-8", "backslashreplace")
            for line in lines
        )
        if name.endswith(".jsonl"):
            want, got = "a row as medlive writes it for the public", "another form"
        out.add(f"{name}:{number}", want[:120], got[:120])
        return


def _find_cases(use: CasesUse) -> Path:
    """The folder of the snapshot that a run names.

    Raises:
        Skip: If the cases come from a file, or the snapshot is not on this machine.
        BadInput: If the name is not a snapshot version.
    """
    named = use.name[:100]
    if use.origin != "snapshot":
        raise Skip(f"the cases are of the file {named!r}, not given", allowed=True)
    if week_end(use.name) is None:
        # Only look up versions: an untrusted bundle must not name a path of this machine.
        raise BadInput(f"{named!r} is not a snapshot version")
    try:
        return find_snapshot(use.name)
    except BadInput as exc:
        raise Skip(f"no snapshot was given: {exc.message}", allowed=True) from None


def check_snapshot(state: Verification, out: Faults) -> None:
    """Check that the snapshot is the one named in the run, verifies, and holds the run's cases."""
    use = _require(state.run_info, RUN).cases
    file = RUN  # Where a fault is
    try:
        whole = _find_cases(use) if state.snapshot is None else state.snapshot
        if not isinstance(whole, CaseSet):
            file = whole.name
            whole = load_cases(whole)
        if whole.verified is False:
            out.add(whole.name, "a verified snapshot", "an unverified one")
        _compare_cases(_SOURCE, use, whole, out)
        cases, file = whole, RUN
        if use.selection is not None and not out.count:
            cases = select(whole, _SELECTION.validate_python(use.selection))
    except (MedliveError, ValueError) as exc:
        what = "the cases of the run, and a snapshot that verifies"
        out.add(file, what, str(exc)[:300])
        return
    if not out.count:
        _compare_cases(_PART, use, cases, out)
    if out.count:
        return
    if len(cases) < len(whole):
        part = str(use.selection)[:200]
        state.add_note(f"{len(cases)} of its {len(whole)} cases, by {part}")
    run, rows = _require(state.run_info, RUN), _require(state.rows, RESPONSES)
    state.snapshots_folder = cases.snapshots
    state.run = bundled_run(run, cases.cases, rows)


def _compare_cases(
    names: Sequence[str],
    use: CasesUse,
    cases: CaseSet,
    out: Faults,
) -> None:
    """Add a fault for each of these fields in which the cases differ from `run.json`."""
    for name in names:
        want, got = getattr(use, name), getattr(cases, name)
        if want != got:
            what = f"{name} {str(want)[:100]}, as {RUN} says"
            out.add(cases.name, what, str(got))


def check_evidence(state: Verification, out: Faults) -> None:
    """Check that only open-book runs have evidence, as `run.json` says, none newer than its case."""
    run = _require(state.run_info, RUN)
    use, data = run.evidence, state.files.get(EVIDENCE)
    takes_none = run.template.name in set(TEMPLATES) - WITHOUT_EVIDENCE.keys()
    closed = run.arm == "closed" or takes_none
    if run.engine != IMPORTED and (closed if use else run.open_book):
        what = "evidence where arm and template take some, and only there"
        out.add(RUN, what, "other")
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
    cases = state.require_run().cases
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
    """Check that a case has no more snippets than the run says, and none that is newer than it."""
    for case in cases:
        day, snippets = day_of(case), book.by_case[case.case_id]
        fit = len(snippets) <= (use.top_k if day else 0)
        for snippet in snippets:
            dated = snippet.date
            fit &= is_day(dated) and dated <= (day or "") if dated else use.undated
        if not fit:
            what = f"at most {use.top_k} snippets for case {case.case_id}, none dated after {day}"
            out.add(EVIDENCE, what, "others")


def check_rows(state: Verification, out: Faults) -> None:
    """Check that there is one answer a case and one grade a criterion at most, in the order of the cases."""
    run = state.require_run()
    rows = _require(state.rows, GRADES)
    for name, wanted in bundled_rows(run).items():
        pairs = zip_longest(wanted, rows[name])
        for number, (want, got) in enumerate(pairs, start=1):
            if want != got:
                what = "a row for the snapshot's cases and criteria, once and in order"
                out.add(f"{name}:{number}", what, "another")
                break
    info, total, answers = run.info, len(run.cases), rows[RESPONSES]
    unanswered = total - sum(answer.gradable for answer in answers)
    if unanswered > 0:
        state.add_note(f"{unanswered} of {total} cases have no answer")
    own = {"", info.model, info.asked_as}
    others = [answer.model for answer in answers if answer.model not in own]
    if others:
        listed = ", ".join(sorted(set(others))[:3])[:200]
        state.add_note(
            f"{len(others)} answers are by the model {listed} instead of {info.model[:60]}"
        )


def check_judgements(state: Verification, out: Faults) -> None:
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


def check_grader(state: Verification, out: Faults) -> None:
    """Check that the pinned grader alone gave all verdicts; note texts that differ from this version's."""
    run = state.require_run()
    pinned, template = run.grader, run.info.template
    if pinned is None:
        raise Skip("nothing is graded")
    pin = attrgetter("engine", "model", "mode", "prompt", "judge")
    for grade in _require(state.rows, GRADES)[GRADES]:
        if pin(grade) != pin(pinned):
            got = str(list(pin(grade)))
            out.add(GRADES, "the same grader in every row", got[:200])
        # The rules' replies name their version too.
        by_rules = (
            pinned.model == RULES_MODEL and endpoint_engine(grade.grader) == "rules"
        )
        by_pinned = by_rules or grade.grader == pinned.model
        if grade.met is not None and not by_pinned:
            name = grade.grader[:100] or "an unnamed model"
            what = f"verdicts by the pinned grader {pinned.model[:100]}"
            out.add(GRADES, what, f"verdicts by {name}")
    if not out.count and pinned.engine != IMPORTED:
        prompt = load_prompt("medlive.grader", f"grader.{pinned.mode}")
        if prompt.digest != pinned.prompt:
            state.add_note("the grader's prompt differs from this version's")
    known = template.name in TEMPLATES and template.digest is not None
    if known and load_template(template.name).digest != template.digest:
        state.add_note("the text of its template differs from this version's")


def check_errata(state: Verification, out: Faults) -> None:
    """Check that what was left out is in the snapshot's errata; note withdrawn parts that were scored."""
    run, info = state.require_run(), _require(state.info, BUNDLE)
    try:
        use = use_errata(
            [run.run],
            ErrataMode.APPLY,
            file=state.errata_file,
            home=state.snapshots_folder,
        )
    except MedliveError as exc:
        why = exc.message[:200]
        if state.errata_file or info.withdrawn_cases or info.withdrawn_criteria:
            out.add(BUNDLE, "readable errata", why)
        else:
            state.add_note(f"the errata beside the snapshot cannot be read: {why}")
        return
    (known,) = use.runs
    state.withdrawn = known
    cases, criteria = set(info.withdrawn_cases), set(info.withdrawn_criteria)
    undue = [f"case {case_id}" for case_id in cases.difference(known.cases)]
    for case_id, criterion_id in criteria.difference(known.criteria):
        if case_id not in known.cases:
            undue.append(f"criterion {criterion_id} of {case_id}")
    for what in sorted(undue):
        got = f"{what[:180]} left out without an erratum"
        out.add(BUNDLE, "the errata of the snapshot", got)
    late_cases, late = set(known.cases) - cases, set(known.criteria) - criteria
    if late_cases or late:
        state.add_note(
            f"{len(late_cases)} cases and {len(late)} criteria were withdrawn but are scored"
        )


def check_scores(state: Verification, out: Faults) -> None:
    """Score the run again, and check that every figure is equal to the printed digit."""
    run, info = state.require_run(), _require(state.info, BUNDLE)
    # Faults of the first two steps concern the packaging.
    if any(number > 2 for number in state.failed):
        raise Skip("an earlier step that the figures depend on failed")
    try:
        expected = encode_figures(bundle_scores(run, info))
    except CheckFailed as exc:
        out.add(BUNDLE, "errata that leave a case", exc.message[:200])
        return
    _compare(SCORES, expected, state.read(SCORES), out)


STEPS: tuple[tuple[str, Callable[[Verification, Faults], None]], ...] = (
    (
        "the signature is valid, by a given key or the one that the bundle names",
        check_origin,
    ),
    ("exactly a bundle's files are there, each as SHA256SUMS says", check_files),
    ("every document and row is as medlive writes it for the public", check_contents),
    (
        "the snapshot is the one named, verifies, and holds the run's cases",
        check_snapshot,
    ),
    ("open-book runs alone have evidence, none newer than its case", check_evidence),
    ("there is one answer a case and one grade a criterion at most", check_rows),
    (
        "every verdict and reading for harm matches its answer and the reply",
        check_judgements,
    ),
    ("the pinned grader gave all verdicts", check_grader),
    ("everything left out is in the snapshot's errata", check_errata),
    ("the recomputed figures are equal to the printed digit", check_scores),
)
"""The steps, in order: a reviewer checks completeness by counting."""
