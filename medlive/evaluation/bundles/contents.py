"""What the verification of a bundle reads, and its steps for everything but verdicts, errata and scores."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from medlive.digest import digest_bytes, digest_json
from medlive.errors import BadInput, CheckFailed, MedliveError
from medlive.evaluation.bundles import files as bundle_files
from medlive.evaluation.bundles.bundle import (
    SCORES_VERSION,
    UNTRUSTED_COMMENT,
    BundleInfo,
    ErrataUse,
    case_digests,
    cases_jsonl,
    describe_bundle,
)
from medlive.evaluation.bundles.files import (
    BUNDLE,
    CASES,
    EVIDENCE_FILE,
    RUN,
    SCORES,
    parse_document,
    parse_model,
)
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, day_of, is_day, select
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase, Grade
from medlive.evaluation.runs.folder import (
    GRADES,
    IMPORTED,
    RESPONSES,
    CasesUse,
    EvidenceUse,
    RunInfo,
)
from medlive.evaluation.runs.templates import (
    TEMPLATES,
    WITHOUT_EVIDENCE,
    Evidence,
    Snippet,
    load_template,
)
from medlive.evaluation.scoring.errata import RunErrata
from medlive.integrity.checks import Faults, SignedDocument, Skip, Trust
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.printable import printable
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.model import week_end

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_NO_FILE: Final = "no such file"
_PAIRS: Final = TypeAdapter(
    list[Annotated[list[str], Field(min_length=2, max_length=2)]]
)
_SNIPPETS: Final = TypeAdapter(list[Snippet])
Known = TypeVar("Known")
Row = TypeVar("Row", Answer, Grade)


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
    run: RunInfo | None = None
    scores: dict[str, Any] | None = None
    errata: ErrataUse | None = None
    """None also if the bundle does not mention errata."""
    digests: list[list[str]] | None = None
    answers: list[Answer] | None = None
    grades: list[Grade] | None = None
    cases: tuple[EvaluationCase, ...] | None = None
    snapshots_folder: Path | None = None
    withdrawn: RunErrata | None = None
    recomputed: dict[str, Any] | None = None

    def require_file(self, name: str) -> bytes:
        """Return the content of a file. Raises Skip if it is missing."""
        if name not in self.files:
            raise Skip(f"{name} is missing")
        return self.files[name]

    def add_note(self, text: str) -> None:
        """Add a note to the current step, which may still pass."""
        self.note = f"{self.note}; {text}" if self.note else text

    def require_cases(self) -> tuple[EvaluationCase, ...]:
        """Return the snapshot's cases. Raises Skip if the snapshot is not available."""
        if self.cases is None:
            raise Skip("the cases are not available", allowed=True)
        return self.cases

    def require_rows(self, rows: list[Row] | None, name: str) -> list[Row]:
        """Return the rows of a log. Raises Skip if the bundle was made without answers."""
        if self.info is not None and not self.info.answers:
            raise Skip("the bundle was made without answers and grades", allowed=True)
        return require(rows, name)


def require(value: Known | None, name: str) -> Known:
    """Return the value. Raises Skip if it could not be read."""
    if value is None:
        raise Skip(f"{name} could not be read")
    return value


def signature(state: Verification, out: Faults) -> None:
    """Check the signature with a given key, else with the one that the bundle names."""
    info = state.info = parse_model(state.require_file(BUNDLE), BUNDLE, BundleInfo, out)
    if info is None:
        return
    has_signature = SIGNATURE in state.files
    named_key = SignedDocument(
        what="bundle",
        document=BUNDLE,
        key=None
        if info.signing is None
        else (info.signing.key_id, info.signing.public_key),
        comment=bundle_files.trusted_comment(state.files[BUNDLE]),
        untrusted=UNTRUSTED_COMMENT,
        given=state.public_keys,
        read=state.require_file,
    )
    if info.signing is None and not has_signature and not state.public_keys:
        state.trust = Trust.NOT_SIGNED
    state.trust, state.note = named_key.check(has_signature, out)


def files(state: Verification, out: Faults) -> None:
    """Check that exactly the files of a bundle are present, as regular files."""
    out.extend(state.packing_faults)
    full = state.info is None or state.info.answers
    wanted = {*bundle_files.ALWAYS, SUMS, *(bundle_files.ANSWERS if full else ())}
    if full and state.files.keys() & bundle_files.OF_PROTOCOLS:
        wanted |= bundle_files.OF_PROTOCOLS
    for name in sorted(wanted - state.files.keys()):
        out.add(name, "a file", "none")
    # A later step checks whether evidence must be present.
    may = {SIGNATURE, *([EVIDENCE_FILE] if full else [])}
    for name in sorted(state.files.keys() - wanted - may):
        out.add(name, _NO_FILE, "a file")


def digests(state: Verification, out: Faults) -> None:
    """Check every file's digest and size against SHA256SUMS and bundle.json."""
    sums = state.require_file(SUMS)
    signed = {n: d for n, d in state.files.items() if n not in (SUMS, SIGNATURE)}
    if sums != bundle_files.checksums(signed):
        what = "one sha256sum line for each file, in order, with its digest"
        out.add(SUMS, what, "other lines, digests, order or line ends")
    info = require(state.info, BUNDLE)
    del signed[BUNDLE]
    want = {name: use.model_dump() for name, use in info.files.items()}
    got = {}
    for name, data in signed.items():
        got[name] = {"bytes": len(data), "digest": digest_bytes(data)}
    for place, expected, found in bundle_files.differences(want, got):
        out.add(printable(place)[:200], f"{expected} as in {BUNDLE}", found)


def schema(state: Verification, out: Faults) -> None:
    """Check that every document and row has its schema and its canonical form, and that they agree."""
    state.run = parse_model(state.require_file(RUN), RUN, RunInfo, out)
    state.scores = parse_document(state.require_file(SCORES), SCORES, out)
    if (
        state.scores is not None
        and (version := state.scores.get("format_version")) != SCORES_VERSION
    ):
        out.add(
            SCORES,
            f"format_version {SCORES_VERSION}; make the bundle again",
            printable(str(version))[:40],
        )
    if state.scores is not None and (row := state.scores.get("errata")) is not None:
        state.errata = parse_model(
            bundle_files.encode_document(row), SCORES, ErrataUse, out
        )
    listed = parse_document(state.require_file(CASES), CASES, out)
    if listed is not None:
        pairs = listed.get("cases") if len(listed) == 1 else None
        try:
            state.digests = _PAIRS.validate_python(pairs, strict=True)
        except ValidationError:
            out.add(CASES, "a list of cases and their digests", "something else")
    info = require(state.info, BUNDLE)
    if info.answers:
        state.answers = bundle_files.rows(
            state.require_file(RESPONSES), RESPONSES, Answer, info.canary, out
        )
        state.grades = bundle_files.rows(
            state.require_file(GRADES), GRADES, Grade, info.canary, out
        )
    if state.run is not None:
        _agree(state, state.run, info, out)


def _agree(state: Verification, run: RunInfo, info: BundleInfo, out: Faults) -> None:
    """Check bundle.json against run.json."""
    expected = describe_bundle(run, info.grader, info.answers, info.signing, {})
    of_run = {"model", "template", "parameters", "cases", "canary"}
    want, got = (
        one.model_dump(mode="json", include=of_run) for one in (expected, info)
    )
    for place, in_run, in_bundle in bundle_files.differences(want, got):
        what = f"{printable(place)} as in {RUN}: {printable(in_run)}"
        out.add(BUNDLE, what, printable(in_bundle))
    if run.snapshots is not None or run.endpoint is not None:
        out.add(RUN, "no endpoint or path of the machine that made it", "one")
    template = run.template
    names = {
        "model": run.model,
        "template": template.name,
        "grader": info.grader.model,
    }
    for what, text in names.items():
        # Names are printed in tables and on terminals.
        if not text.strip() or printable(text) != text:
            out.add(BUNDLE, f"a printable name of the {what}", printable(text)[:100])
    if template.name in TEMPLATES and template.digest not in (
        None,
        load_template(template.name).digest,
    ):
        state.add_note(
            f"the text of its template {template.name} differs from this version's"
        )


def snapshot(state: Verification, out: Faults) -> None:
    """Check that the snapshot is the one named in the bundle, and that it verifies."""
    use = require(state.info, BUNDLE).cases
    found = (
        state.snapshot
        if isinstance(state.snapshot, CaseSet)
        else _loaded(state, use, out)
    )
    if found is None:
        return
    if found.verified is False:
        out.add(found.name, "a verified snapshot", "an unverified one")
    for name in ("origin", "name", "digest", "publishable"):
        if (want := getattr(use, name)) != (got := getattr(found, name)):
            out.add(
                printable(found.name),
                f"{name} {printable(str(want))[:100]}, as {BUNDLE} says",
                str(got),
            )
    if out.count:
        return
    total, named = len(found), printable(str(use.selection))[:200]
    if use.selection is not None:
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in use.selection.items()
        }
        try:
            found = select(found, Selection(**given))
        except (MedliveError, TypeError, AttributeError) as exc:
            out.add(BUNDLE, "a selection of cases", printable(str(exc))[:200])
            return
        if found.selection != use.selection:
            out.add(BUNDLE, f"the selection {found.selection}", named)
    if len(found) < total:
        state.add_note(f"{len(found)} of its {total} cases, by {named}")
    state.cases, state.snapshots_folder = found.cases, found.snapshots


def _loaded(state: Verification, use: CasesUse, out: Faults) -> CaseSet | None:
    """Load the cases from the given place or by the bundle's snapshot version. Raises Skip if there are none."""
    place = state.snapshot if isinstance(state.snapshot, Path) else None
    if place is None:
        named = printable(use.name)[:100]
        if use.origin != "snapshot":
            raise Skip(
                f"the cases are of the file {named!r}, which was not given",
                allowed=True,
            )
        if week_end(use.name) is None:
            # Only look up versions: an untrusted bundle must not name a path of this machine.
            out.add(BUNDLE, "a snapshot version", named)
            return None
        try:
            place = find_snapshot(use.name)
        except BadInput as exc:
            raise Skip(f"no snapshot was given: {exc.message}", allowed=True) from None
    try:
        return load_cases(place)
    except (BadInput, CheckFailed) as exc:
        out.add(
            place.name,
            "the cases of the run, and a snapshot that verifies",
            exc.message[:300],
        )
    return None


def cases(state: Verification, out: Faults) -> None:
    """Check that the cases equal the snapshot's, or the part of them that `run.json` selects."""
    use, found = require(state.info, BUNDLE).cases, require(state.digests, CASES)
    expected = state.require_cases()
    want = case_digests(expected)
    by_case, declared = dict(want), dict(found)
    for case_id, digest, other in bundle_files.differences(by_case, declared):
        out.add(f"{CASES}: {printable(case_id)}", digest, printable(other))
    if not out.count and want != found:
        what = "each case once, in the snapshot's order"
        out.add(CASES, what, "duplicates or another order")
    if (rows := digest_bytes(cases_jsonl(expected))) != use.rows:
        out.add(RUN, f"the cases' rows {rows}", printable(use.rows)[:100])
    if use.count != len(expected):
        out.add(RUN, f"{len(expected)} cases", str(use.count)[:40])


def evidence(state: Verification, out: Faults) -> None:
    """Check that only open-book runs have evidence, as `run.json` says, none newer than its case."""
    info, run = require(state.info, BUNDLE), require(state.run, RUN)
    use = run.evidence
    _arm(run, out)
    if use is None:
        if EVIDENCE_FILE in state.files:
            out.add(EVIDENCE_FILE, f"no file, since {RUN} names no evidence", "a file")
        return
    if not info.answers:
        raise Skip("the bundle was made without answers and evidence", allowed=True)
    data = state.require_file(EVIDENCE_FILE)
    try:
        by_case = _snippets(data)
    except (BadInput, ValueError, TypeError, RecursionError) as exc:
        out.add(EVIDENCE_FILE, "snippets in canonical form", printable(str(exc))[:200])
        return
    sizes = [len(listed) for listed in by_case.values()]
    counted = {
        "rows": digest_bytes(data),
        "snippets": sum(sizes),
        "closed": sizes.count(0),
    }
    for name, value in counted.items():
        if value != getattr(use, name):
            out.add(RUN, f"{name}: {value}", str(getattr(use, name))[:80])
    expected_cases = state.require_cases()
    if list(by_case) != [case.case_id for case in expected_cases]:
        out.add(
            EVIDENCE_FILE,
            "every case of the run, in order",
            "other cases or another order",
        )
    for case in expected_cases:
        for what, got in _snippet_faults(case, by_case.get(case.case_id, ()), use):
            out.add(EVIDENCE_FILE, f"case {case.case_id}{what}", got)


def _snippets(data: bytes) -> Mapping[str, Sequence[Snippet]]:
    """The snippets by case. Raises ValueError where they are of other types or in another form."""
    book = Evidence.read(data)
    rows = [asdict(one) for listed in book.by_case.values() for one in listed]
    _SNIPPETS.validate_json(bundle_files.encode_document(rows), strict=True)
    if book.data() != data:
        raise ValueError("another form")
    return book.by_case


def _arm(run: RunInfo, out: Faults) -> None:
    """Check that the template and the arm agree with the presence of evidence."""
    has_evidence, name = run.evidence is not None, run.template.name
    wanted, found = (
        ("no evidence", "evidence") if has_evidence else ("evidence", "none")
    )
    if (
        run.engine != IMPORTED
        and name in TEMPLATES
        and has_evidence is not (name in WITHOUT_EVIDENCE)
    ):
        out.add(RUN, f"{wanted} for the template {name}", found)
    if (run.arm == "closed" and has_evidence) or (
        run.arm == "open-book" and not has_evidence and run.engine != IMPORTED
    ):
        out.add(
            RUN,
            f"the arm of a run {'with' if has_evidence else 'without'} evidence",
            run.arm,
        )


def _snippet_faults(
    case: EvaluationCase, listed: Sequence[Snippet], use: EvidenceUse
) -> Iterator[tuple[str, str]]:
    """What is wrong with a case's snippets, as (expected, found)."""
    day = day_of(case)
    if [one.rank for one in listed] != list(range(1, len(listed) + 1)) or len(
        listed
    ) > use.top_k:
        yield f": at most {use.top_k} snippets, ranked from 1", f"{len(listed)} others"
    if listed and day is None:
        yield ": no snippet, since its date is unknown", str(len(listed))
    for one in listed:
        what = f", snippet {one.rank}"
        if one.digest != digest_json([one.title, one.section, one.text]):
            yield (
                f"{what}: the digest of its title, section and text",
                printable(one.digest)[:80],
            )
        if one.corpus not in use.corpora:
            yield f"{what}: a corpus of the index", printable(one.corpus)[:80]
        if one.date is None and not use.undated:
            yield f"{what}: a date", "none"
        if one.date is not None and (
            not is_day(one.date) or (day is not None and one.date > day)
        ):
            yield (
                f"{what}: a date not after its case's ({day})",
                printable(one.date)[:40],
            )


def answers(state: Verification, out: Faults) -> None:
    """Check that every answer belongs to a case, at most one each."""
    listed, run_cases = (
        state.require_rows(state.answers, RESPONSES),
        state.require_cases(),
    )
    in_order(
        RESPONSES,
        [a.case_id for a in listed],
        [c.case_id for c in run_cases],
        "case",
        out,
    )
    if (open_ := len(run_cases) - sum(a.gradable for a in listed)) > 0:
        failed = sum(a.state is AnswerState.FAILED for a in listed)
        missing = len(run_cases) - len(listed)
        state.add_note(
            f"{open_} of {len(run_cases)} cases have no answer ({failed} failed, {missing} missing)"
        )
    run = require(state.run, RUN)
    others = Counter(
        a.model for a in listed if a.model and a.model not in (run.model, run.asked_as)
    )
    if others:
        names = ", ".join(printable(name)[:60] for name, _ in others.most_common(3))
        state.add_note(
            f"{others.total()} answers are by the model {names} instead of {printable(run.model)[:60]}"
        )


def in_order(
    file: str, names: Sequence[Any], known: Sequence[Any], what: str, out: Faults
) -> None:
    """Check that each of `names` is one of `known`, once, and in the same order."""
    places = {name: place for place, name in enumerate(known)}
    last = -1
    for name in names:
        place = places.get(name)
        if place is None:
            out.add(file, f"a {what} of the snapshot", printable(str(name))[:200])
        elif place <= last:
            out.add(file, f"each {what} once and in order", printable(str(name))[:200])
        else:
            last = place
