"""Verifying a bundle: numbered steps, each naming the file, what it expected and got."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from medlive.digest import digest_bytes
from medlive.errors import BadInput, CheckFailed, MedliveError
from medlive.evaluation.bundle import (
    ALWAYS,
    ANSWERS,
    BUNDLE,
    CASES,
    MOST_DRAWS,
    RUN,
    SCORES,
    UNTRUSTED_COMMENT,
    BundleInfo,
    bundle_scores,
    bundled_run,
    case_digest,
    named_errata,
    rows_digest,
    sums_of,
    trusted_comment,
)
from medlive.evaluation.bundle_read import (
    differences,
    document,
    is_list_of_pairs,
    plain,
    read_bundle,
    rows,
    shaped,
)
from medlive.evaluation.cases import load_cases
from medlive.evaluation.errata import ErrataMode, ErrataSearch, use_errata
from medlive.evaluation.graded import GradedRun
from medlive.evaluation.judge import MOST_RAW
from medlive.evaluation.model import Answer, CaseSet, EvaluationCase, Grade, Mode, Origin, keys_of
from medlive.evaluation.run import GRADES, RESPONSES, RunFolder, RunInfo
from medlive.evaluation.selection import Selection, select
from medlive.evaluation.verdict import Unreadable, Verdict, quoted, read_criterion, read_rubric
from medlive.snapshot.checks import Skip, StepResult, StepState, Trust
from medlive.snapshot.entries import Faults
from medlive.snapshot.folder import SIGNATURE, SUMS, printable
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.model import week_end

if TYPE_CHECKING:
    from medlive.snapshot.signing import PublicKey

Row = TypeVar("Row", Answer, Grade)

_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9.]{1,40})\n")


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
    errata: Mapping[str, Any] | None = None
    """What the bundle says of errata."""

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return all(step.state is not StepState.FAILED for step in self.steps)

    @property
    def complete(self) -> bool:
        """Whether every step was taken but that of the signature, which a bundle may be without."""
        return all(step.state is not StepState.SKIPPED for step in self.steps[1:])

    @property
    def failed(self) -> tuple[StepResult, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.state is StepState.FAILED)

    @property
    def why_not(self) -> str:
        """Why the bundle cannot stand in a ranking; "" when it can."""
        for step in self.failed:
            return f"step {step.number} ({step.name}): {step.findings[0]}"
        for step in self.steps[1:]:
            if step.state is StepState.SKIPPED:
                return f"step {step.number} ({step.name}) was not taken: {step.why}"
        return ""


@dataclass
class _Bundle:
    path: Path
    files: dict[str, bytes]
    odd: Faults
    public_key: "PublicKey | None"
    snapshot: Path | CaseSet | None
    errata_file: Path | None
    trust: Trust = Trust.BROKEN
    note: str = ""
    info: BundleInfo | None = None
    run: RunInfo | None = None
    scores: dict[str, Any] | None = None
    digests: list[list[str]] | None = None
    answers: list[Answer] | None = None
    grades: list[Grade] | None = None
    cases: tuple[EvaluationCase, ...] | None = None
    home: Path | None = None
    """Where errata may lie beside the snapshot."""
    unsound: bool = False
    """Whether a step failed that scores rest on: schema, cases, answers, verdicts, grader or errata."""
    again: dict[str, Any] | None = None
    """The scores as they come out here."""

    def need(self, name: str) -> bytes:
        """A file. Raises Skip where there is none."""
        if name not in self.files:
            raise Skip(f"{name} is missing")
        return self.files[name]


def verify_bundle(
    path: Path,
    *,
    public_key: "PublicKey | None" = None,
    snapshot: Path | CaseSet | None = None,
    errata_file: Path | None = None,
) -> BundleReport:
    """Take every step over the bundle at `path`, an archive or a folder, whatever lies there.

    `public_key`: the key that must have signed it; without one a signature is checked with the key that the bundle
    names, which proves integrity and not origin. `snapshot`: the folder or LiveMedBench file that the run was made
    on, or its cases as `load_cases` verified them; None: the version that the bundle names is looked up
    (`find_snapshot`), and the steps that need it are skipped where it is not here. `errata_file`: the errata that
    must name what was left out; None: those beside the snapshot. Raises BadInput when there is no bundle; nothing
    is written.
    """
    files, odd = read_bundle(path)
    bundle = _Bundle(path, files, odd, public_key, snapshot, errata_file)
    results: list[StepResult] = []
    for number, (name, step) in enumerate(STEPS, start=1):
        bundle.unsound = bundle.again is None and any(r.state is StepState.FAILED for r in results[3:])
        results.append(_take(bundle, number, name, step, any(r.state is StepState.FAILED for r in results)))
    return BundleReport(
        path,
        tuple(results),
        bundle.info,
        bundle.trust,
        _graded(bundle) if _stands(results) else None,
        (bundle.scores or {}).get("errata"),
    )


def _stands(results: list[StepResult]) -> bool:
    """Whether every step passed, but for the signature, which a bundle may be without."""
    first, *others = results
    return first.state is not StepState.FAILED and all(r.state is StepState.PASSED for r in others)


def _take(
    bundle: _Bundle, number: int, name: str, step: "Callable[[_Bundle, Faults], None]", failed: bool
) -> StepResult:
    out = Faults()
    bundle.note = ""
    try:
        step(bundle, out)
    except Skip as skip:
        if not out.count and (skip.innocent or failed):
            return StepResult(number, name, StepState.SKIPPED, why=str(skip))
        out.add(".", "what this step needs", str(skip))
    state = StepState.FAILED if out.count else StepState.PASSED
    return StepResult(number, name, state, tuple(out.kept), out.count, "" if out.count else bundle.note)


def _signature(bundle: _Bundle, out: Faults) -> None:
    info = bundle.info = shaped(bundle.need(BUNDLE), BUNDLE, BundleInfo, out)
    if info is None:
        return
    there, given = SIGNATURE in bundle.files, bundle.public_key
    if there is not (info.signing is not None):
        expected = "a file" if info.signing else f"none, for {BUNDLE} names no key"
        out.add(SIGNATURE, expected, "a file" if there else "none")
    elif info.signing is None:
        if given is None:
            bundle.trust = Trust.NOT_SIGNED
            raise Skip("the bundle has no key, and nothing proves where it came from", innocent=True)
        out.add(BUNDLE, f"the key {given.id_text()}", "no key: the bundle is not signed")
    if there and info.signing is not None:
        _check_signature(bundle, info.signing.public_key, info.signing.key_id, out)


def _check_signature(bundle: _Bundle, line: str, key_id: str, out: Faults) -> None:
    from medlive.snapshot.signing import BadKey, BadSignature, PublicKey, check_signature

    given = bundle.public_key
    try:
        named = PublicKey.parse(line)
    except BadKey as exc:
        out.add(BUNDLE, "a public key", str(exc)[:200])
        return
    if (named.id_text(), named.line()) != (key_id, line):
        out.add(BUNDLE, f"the key {named.id_text()} as {named.line()}", f"{key_id} as {line}"[:200])
    if given is not None and given.line() != named.line():
        out.add(BUNDLE, f"the key {given.id_text()}", named.id_text())
    try:
        text = bundle.files[SIGNATURE].decode("utf-8", "replace")
        comment = check_signature(bundle.need(SUMS), text, given or named, untrusted_comment=UNTRUSTED_COMMENT)
        if comment != (wanted := trusted_comment(bundle.files[BUNDLE])):
            out.add(SIGNATURE, f"the trusted comment {wanted!r}", repr(comment)[:200])
    except BadSignature as exc:
        out.add(SIGNATURE, f"a signature of {SUMS} by the key {(given or named).id_text()}", str(exc)[:300])
    if not out.count:
        bundle.trust = Trust.INTEGRITY if given is None else Trust.ORIGIN
        bundle.note = f"signed with the key {named.id_text()}" + (
            ", which the bundle itself names: nothing has changed since, whoever signed it"
            if given is None
            else ", the one that was given"
        )


def _files(bundle: _Bundle, out: Faults) -> None:
    out.take(bundle.odd)
    full = bundle.info is None or bundle.info.answers
    wanted = {*ALWAYS, SUMS, *(ANSWERS if full else ())}
    for name in sorted(wanted - bundle.files.keys()):
        out.add(name, "a file", "none")
    for name in sorted(bundle.files.keys() - wanted - {SIGNATURE}):
        out.add(name, "nothing of that name", "a file")


def _digests(bundle: _Bundle, out: Faults) -> None:
    text = bundle.need(SUMS).decode("utf-8", "replace")
    said = {match[2]: "sha256:" + match[1] for match in _SUM_LINE.finditer(text)}
    signed = {name: data for name, data in bundle.files.items() if name not in (SUMS, SIGNATURE)}
    for name, data in sorted(signed.items()):
        if said.get(name) != (got := digest_bytes(data)):
            out.add(name, f"{said.get(name, 'a digest')} as in {SUMS}", got)
    if not out.count and bundle.files[SUMS] != sums_of(signed):
        out.add(SUMS, "one line of sha256sum for each file, in order", "other lines, order or line ends")
    if bundle.info is None:
        raise Skip(f"{BUNDLE} cannot be read")
    named = bundle.info.files
    for name in sorted(named.keys() | (signed.keys() - {BUNDLE})):
        there = signed.get(name) if name != BUNDLE else None
        got = "no such file" if there is None else f"{len(there)} bytes, {digest_bytes(there)}"
        want = f"{named[name].bytes} bytes, {named[name].digest}" if name in named else "no such file"
        if got != want:
            out.add(printable(name)[:200], f"{want} as in {BUNDLE}", got)


def _schema(bundle: _Bundle, out: Faults) -> None:
    bundle.run = shaped(bundle.need(RUN), RUN, RunInfo, out)
    bundle.scores = document(bundle.need(SCORES), SCORES, out)
    listed = document(bundle.need(CASES), CASES, out)
    if listed is not None:
        if is_list_of_pairs(listed.get("cases")) and len(listed) == 1:
            bundle.digests = listed["cases"]
        else:
            out.add(CASES, "a list of cases and their digests", "another document")
    if bundle.info is None:
        raise Skip(f"{BUNDLE} cannot be read")
    if bundle.info.answers:
        bundle.answers = rows(bundle.need(RESPONSES), RESPONSES, Answer, out)
        bundle.grades = rows(bundle.need(GRADES), GRADES, Grade, out)
    if bundle.run is not None:
        for name in ("model", "template", "parameters", "cases"):
            if (want := getattr(bundle.run, name)) != (got := getattr(bundle.info, name)):
                out.add(BUNDLE, f"{name} as in {RUN}: {str(want)[:150]}", str(got)[:150])
        if bundle.run.snapshots is not None:
            out.add(RUN, "no hint at a folder of the machine that it was made on", bundle.run.snapshots[:100])


def _snapshot(bundle: _Bundle, out: Faults) -> None:
    info = _known(bundle.info, BUNDLE)
    found = bundle.snapshot if isinstance(bundle.snapshot, CaseSet) else _loaded(bundle, info, out)
    if found is None:
        return
    if found.verified is False:
        out.add(found.name, "a snapshot that was verified", "one that was not")
    for name in ("origin", "name", "digest"):
        if (want := getattr(info.cases, name)) != (got := getattr(found, name)):
            out.add(printable(found.name), f"{name} {want[:100]}, as {BUNDLE} says", got)
    if out.count:
        return
    try:
        if info.cases.selection is not None:
            given: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in info.cases.selection.items()
            }
            found = select(found, Selection(**given))
    except (MedliveError, TypeError, AttributeError) as exc:
        out.add(BUNDLE, "a selection of cases", str(exc)[:200])
        return
    bundle.cases, bundle.home = found.cases, found.snapshots


def _loaded(bundle: _Bundle, info: BundleInfo, out: Faults) -> CaseSet | None:
    """The cases that lie where it was said, or where the version is looked up. Raises Skip without any."""
    place = bundle.snapshot if isinstance(bundle.snapshot, Path) else None
    if place is None:
        if info.cases.origin != "snapshot":
            raise Skip(f"the cases are of the file {info.cases.name[:100]!r}, which was not given", innocent=True)
        if week_end(info.cases.name) is None:
            # Only a version is looked up: a stranger's bundle names no path of this machine.
            out.add(BUNDLE, "the version of a snapshot", printable(info.cases.name)[:100])
            return None
        try:
            place = find_snapshot(info.cases.name)
        except BadInput as exc:
            raise Skip(f"no snapshot was given: {exc.message}", innocent=True) from None
    try:
        return load_cases(place)
    except CheckFailed as exc:
        out.add(place.name, "a snapshot that verifies", exc.message[:300])
    except BadInput as exc:
        out.add(place.name, "the cases that the run was made on", exc.message[:300])
    return None


def _cases(bundle: _Bundle, out: Faults) -> None:
    info, digests = _known(bundle.info, BUNDLE), _known(bundle.digests, CASES)
    cases = _known_cases(bundle)
    want = [(case.case_id, case_digest(case)) for case in cases]
    got = [(case_id, digest) for case_id, digest in digests]
    if want != got:
        known, said = dict(want), dict(got)
        for case_id in [name for name in known if name not in said]:
            out.add(CASES, f"case {case_id}", "none")
        for case_id in [name for name in said if name not in known]:
            out.add(CASES, "the cases of the snapshot alone", printable(case_id)[:100])
        for case_id in [name for name in known if name in said and said[name] != known[name]]:
            out.add(CASES, f"case {case_id} as {known[case_id]}", said[case_id][:100])
        if not out.count:
            out.add(CASES, "each case once, in the snapshot's order", "twice, or in another order")
    if (rows := rows_digest(cases)) != info.cases.rows:
        out.add(RUN, f"the cases' rows {rows}", info.cases.rows[:100])
    if info.cases.count != len(cases):
        out.add(RUN, f"{len(cases)} cases", str(info.cases.count))


def _answers(bundle: _Bundle, out: Faults) -> None:
    answers, cases = _held(bundle, bundle.answers, RESPONSES), _known_cases(bundle)
    _in_order(RESPONSES, [a.case_id for a in answers], [c.case_id for c in cases], "case", out)


def _in_order(file: str, said: list[Any], known: list[Any], what: str, out: Faults) -> None:
    """Each of `said` is among `known`, once, and in the same order."""
    places = {name: place for place, name in enumerate(known)}
    last = -1
    for name in said:
        place = places.get(name)
        if place is None:
            out.add(file, f"a {what} of the snapshot", printable(str(name))[:200])
        elif place <= last:
            out.add(file, f"each {what} once and in order", printable(str(name))[:200])
        else:
            last = place


def _grades(bundle: _Bundle, out: Faults) -> None:
    grades, cases = _held(bundle, bundle.grades, GRADES), _known_cases(bundle)
    info, answers = _known(bundle.info, BUNDLE), {a.case_id: a for a in _held(bundle, bundle.answers, RESPONSES)}
    order = [(case.case_id, c.id) for case in cases for c in case.criteria]
    _in_order(GRADES, [(g.case_id, g.criterion_id) for g in grades], order, "criterion", out)
    by_id = {case.case_id: case for case in cases}
    keys: dict[str, dict[str, str]] = {}
    for grade in grades:
        case, answer = by_id.get(grade.case_id), answers.get(grade.case_id)
        what = f"case {printable(grade.case_id)[:60]}, criterion {printable(grade.criterion_id)[:60]}"
        if case is None or answer is None or not answer.gradable:
            out.add(GRADES, f"{what}: a verdict about an answer that can be graded", "there is none")
            continue
        if case.case_id not in keys:
            found = keys_of(case, answer, info.grader.judge)
            keys[case.case_id] = {c.id: key for c, key in zip(case.criteria, found, strict=True)}
        if grade.key != keys[case.case_id].get(grade.criterion_id):
            out.add(GRADES, f"{what}: the key of its question, answer, criterion and grader", grade.key[:80])
        if grade.met is None and not grade.reason:
            out.add(GRADES, f"{what}: why it is ungraded", "nothing")
        if (fault := _unsaid(grade, answer)) is not None:
            out.add(GRADES, f"{what}: what the grader's reply says", fault)


def _unsaid(grade: Grade, answer: Answer) -> str | None:
    """How a verdict differs from the reply that stands with it, or from the answer it quotes; None: in nothing."""
    if grade.met is None:
        return None
    if grade.quote.strip() and not quoted(grade.quote, answer.response):
        return "a quote that is not in the answer"
    if grade.met and not grade.quote.strip() and grade.origin is not Origin.IMPORT:
        return "met without words of the answer to show for it"
    if not grade.raw or len(grade.raw) >= MOST_RAW or grade.origin is Origin.IMPORT:
        return None
    try:
        if grade.mode is Mode.CRITERION:
            read: Verdict | str = read_criterion(grade.raw, answer.response)
        else:
            found = read_rubric(grade.raw, [grade.criterion_id], answer.response)
            read = found[grade.criterion_id]
            if read == "the reply does not grade it":
                # Found again in a cache under the key of the same words: the reply has another id for them.
                return None
    except Unreadable as exc:
        return f"a reply that holds no verdict: {exc}"
    if not isinstance(read, Verdict):
        return f"a reply that holds none: {read}"
    said = (read.met, read.quote, read.reasoning)
    return None if said == (grade.met, grade.quote, grade.reasoning) else "another verdict, quote or reasoning"


def _pinned(bundle: _Bundle, out: Faults) -> None:
    grades, info = _held(bundle, bundle.grades, GRADES), _known(bundle.info, BUNDLE)
    want = info.grader
    if list(want.answered_by) != sorted({grade.grader for grade in grades} - {""}):
        out.add(BUNDLE, "the graders that the verdicts name", ", ".join(want.answered_by)[:200])
    for name in want.answered_by:
        if name != want.model:
            out.add(GRADES, f"verdicts of the pinned grader {want.model[:100]}", f"some of {name[:100]}")
    for name, got in (
        ("engine", {g.engine for g in grades}),
        ("model", {g.model for g in grades}),
        ("mode", {g.mode.value for g in grades}),
        ("prompt", {g.prompt for g in grades}),
        ("judge", {g.judge for g in grades}),
    ):
        if got != {getattr(want, name)}:
            out.add(GRADES, f"the grader's {name} {getattr(want, name)[:100]}", ", ".join(sorted(got))[:200])


def _errata(bundle: _Bundle, out: Faults) -> None:
    row, cases = _known(bundle.scores, SCORES).get("errata"), _known_cases(bundle)
    if row is None:
        return
    try:
        mode, named = ErrataMode(row["mode"]), named_errata(cases, row)
    except (KeyError, TypeError, ValueError) as exc:
        out.add(SCORES, "what was done about errata", f"an unreadable row: {str(exc)[:100]}")
        return
    if mode is not ErrataMode.APPLY:
        return
    run = RunFolder(bundle.path, _known(bundle.run, RUN), cases)
    search = ErrataSearch(bundle.errata_file, bundle.home)
    try:
        (known,) = use_errata([run], ErrataMode.APPLY, search).runs
    except MedliveError as exc:
        out.add(SCORES, "errata that can be read", exc.message[:200])
        return
    for case_id in sorted(set(named.cases) - set(known.cases)):
        out.add(SCORES, "the errata of the snapshot", f"case {printable(case_id)[:100]} left out for none")
    gone = set(known.cases)
    for case_id, criterion_id in sorted(set(named.criteria) - set(known.criteria)):
        if case_id not in gone:
            said = f"criterion {printable(criterion_id)[:80]} of {printable(case_id)[:80]} left out for none"
            out.add(SCORES, "the errata of the snapshot", said)
    late = len(set(known.cases) - set(named.cases)) + len(set(known.criteria) - set(named.criteria))
    if late:
        bundle.note = f"{late} cases or criteria were withdrawn since, and are in the scores"


def _scores(bundle: _Bundle, out: Faults) -> None:
    again = _scored_again(bundle, out)
    if again is None:
        return
    said = _known(bundle.scores, SCORES)
    for place, want, got in differences(plain(again), plain(said)):
        if not place.startswith("rates"):
            out.add(f"{SCORES}: {place}", want, got)
    drawn = _known(bundle.info, BUNDLE).numpy
    if out.count and drawn != np.__version__:
        # Where only the intervals part, another numpy may have drawn other numbers.
        out.add(BUNDLE, f"numpy {np.__version__}, which drew the intervals here", drawn[:40])


def _rates(bundle: _Bundle, out: Faults) -> None:
    again = _scored_again(bundle, out)
    if again is None:
        return
    said = {"rates": _known(bundle.scores, SCORES).get("rates")}
    for place, want, got in differences({"rates": plain(again["rates"])}, plain(said)):
        out.add(f"{SCORES}: {place}", want, got)


def _scored_again(bundle: _Bundle, out: Faults) -> dict[str, Any] | None:
    _known(bundle.info, BUNDLE)
    _held(bundle, bundle.answers, RESPONSES)
    scores = _known(bundle.scores, SCORES)
    _known_cases(bundle)
    if bundle.again is not None:
        return bundle.again
    if bundle.unsound:
        raise Skip("what the scores rest on does not hold")
    try:
        boot = scores["bootstrap"]
        draws, seed = boot["draws"], boot["seed"]
        if (
            type(draws) is not int
            or type(seed) is not int
            or not 1 <= draws <= MOST_DRAWS
            or not 0 <= seed < 2**63
        ):
            raise ValueError(f"draws {draws!r}, seed {seed!r}"[:100])
        bundle.again = bundle_scores(_graded(bundle), scores["errata"], draws, seed)
    except (KeyError, TypeError, ValueError, CheckFailed) as exc:
        out.add(SCORES, f"1 to {MOST_DRAWS} draws, a seed and errata that leave a case", str(exc)[:200])
    return bundle.again


def _graded(bundle: _Bundle) -> GradedRun:
    return bundled_run(
        bundle.path,
        _known(bundle.run, RUN),
        _known_cases(bundle),
        _known(bundle.answers, RESPONSES),
        _known(bundle.grades, GRADES),
    )


Known = TypeVar("Known")


def _known(value: Known | None, name: str) -> Known:
    if value is None:
        raise Skip(f"{name} cannot be used")
    return value


def _known_cases(bundle: _Bundle) -> tuple[EvaluationCase, ...]:
    if bundle.cases is None:
        raise Skip("the cases are not known", innocent=True)
    return bundle.cases


def _held(bundle: _Bundle, rows: list[Row] | None, name: str) -> list[Row]:
    if bundle.info is not None and not bundle.info.answers:
        raise Skip("the bundle was made without answers and grades", innocent=True)
    return _known(rows, name)


STEPS: Final[tuple[tuple[str, Callable[[_Bundle, Faults], None]], ...]] = (
    ("the signature is of the bundle, by the key that was given or that it names", _signature),
    ("it holds the files of a bundle, plain, and no others", _files),
    ("every file is what SHA256SUMS and bundle.json say", _digests),
    ("every document and row has its schema and its one spelling, and they agree", _schema),
    ("the snapshot is the one that the bundle names, and verifies", _snapshot),
    ("the cases are the snapshot's, each as it is there", _cases),
    ("every answer is to a case, one each", _answers),
    ("every verdict is about a criterion and the answer as it stands here, and as its reply says", _grades),
    ("one grader gave all verdicts, and it is the pinned one", _pinned),
    ("what was left out is in the snapshot's errata", _errata),
    ("the scores come out again to the printed digit", _scores),
    ("the rates of unanswered, ungraded, truncated and refused come out again", _rates),
)
"""The steps, in order: a reviewer checks completeness by counting."""
