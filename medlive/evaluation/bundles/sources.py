"""Verification steps for the snapshot, the cases, the evidence and the answers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from medlive.digest import digest_bytes, digest_json
from medlive.errors import BadInput, CheckFailed, MedliveError
from medlive.evaluation.bundles.bundle import case_digest, cases_jsonl
from medlive.evaluation.bundles.contents import Verification, require
from medlive.evaluation.bundles.files import BUNDLE, CASES, EVIDENCE_FILE, RUN, differences
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, day_of, select
from medlive.evaluation.model import AnswerState, CaseSet, EvaluationCase
from medlive.evaluation.runs.folder import IMPORTED, RESPONSES, CasesUse, EvidenceUse, RunInfo
from medlive.evaluation.runs.templates import TEMPLATES, WITHOUT_EVIDENCE, Evidence, Snippet
from medlive.integrity.checks import Faults, Skip
from medlive.integrity.folder import printable
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.model import week_end

_TEXTS: Final = ("case_id", "passage_id", "corpus", "digest", "title", "section", "text")


def snapshot(state: Verification, out: Faults) -> None:
    """Check that the snapshot is the one named in the bundle, and that it verifies."""
    use = require(state.info, BUNDLE).cases
    found = state.snapshot if isinstance(state.snapshot, CaseSet) else _loaded(state, use, out)
    if found is None:
        return
    if found.verified is False:
        out.add(found.name, "a verified snapshot", "an unverified one")
    for name in ("origin", "name", "digest", "publishable"):
        if (want := getattr(use, name)) != (got := getattr(found, name)):
            out.add(printable(found.name), f"{name} {printable(str(want))[:100]}, as {BUNDLE} says", str(got))
    if out.count:
        return
    total, named = len(found), printable(str(use.selection))[:200]
    if use.selection is not None:
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in use.selection.items()}
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
            raise Skip(f"the cases are of the file {named!r}, which was not given", allowed=True)
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
        out.add(place.name, "the cases of the run, and a snapshot that verifies", exc.message[:300])
    return None


def cases(state: Verification, out: Faults) -> None:
    """Check that the cases equal the snapshot's, or the part of them that `run.json` selects."""
    use, digests = require(state.info, BUNDLE).cases, require(state.digests, CASES)
    expected = state.require_cases()
    want = {case.case_id: case_digest(case) for case in expected}
    for case_id, one, other in differences(want, dict(digests)):
        out.add(f"{CASES}: {printable(case_id)}", one, printable(other))
    if not out.count and [[case_id, digest] for case_id, digest in want.items()] != digests:
        out.add(CASES, "each case once, in the snapshot's order", "duplicates or another order")
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
    counted = {
        "rows": digest_bytes(data),
        "snippets": sum(map(len, by_case.values())),
        "closed": sum(not listed for listed in by_case.values()),
    }
    for name, value in counted.items():
        if value != getattr(use, name):
            out.add(RUN, f"{name}: {value}", str(getattr(use, name))[:80])
    expected_cases = state.require_cases()
    if list(by_case) != [case.case_id for case in expected_cases]:
        out.add(EVIDENCE_FILE, "every case of the run, in order", "other cases or another order")
    for case in expected_cases:
        for what, got in _snippet_faults(case, by_case.get(case.case_id, ()), use):
            out.add(EVIDENCE_FILE, f"case {case.case_id}{what}", got)


def _snippets(data: bytes) -> Mapping[str, Sequence[Snippet]]:
    """The snippets by case. Raises ValueError where they are of other types or in another form."""
    book = Evidence.read(data)
    for one in (one for listed in book.by_case.values() for one in listed):
        texts = [getattr(one, name) for name in _TEXTS] + ([] if one.date is None else [one.date])
        if type(one.rank) is not int or not all(isinstance(text, str) for text in texts):
            raise ValueError("other values")
    if book.data() != data:
        raise ValueError("another form")
    return book.by_case


def _arm(run: RunInfo, out: Faults) -> None:
    """Check that the template and the arm agree with the presence of evidence."""
    has_evidence, name = run.evidence is not None, run.template.name
    wanted, found = ("no evidence", "evidence") if has_evidence else ("evidence", "none")
    if run.engine != IMPORTED and name in TEMPLATES and has_evidence is not (name in WITHOUT_EVIDENCE):
        out.add(RUN, f"{wanted} for the template {name}", found)
    if (run.arm == "closed" and has_evidence) or (
        run.arm == "open-book" and not has_evidence and run.engine != IMPORTED
    ):
        out.add(RUN, f"the arm of a run {'with' if has_evidence else 'without'} evidence", run.arm)


def _snippet_faults(
    case: EvaluationCase, listed: Sequence[Snippet], use: EvidenceUse
) -> Iterator[tuple[str, str]]:
    """What is wrong with a case's snippets, as (expected, found)."""
    day = day_of(case)
    if [one.rank for one in listed] != list(range(1, len(listed) + 1)) or len(listed) > use.top_k:
        yield f": at most {use.top_k} snippets, ranked from 1", f"{len(listed)} others"
    if listed and day is None:
        yield ": no snippet, since its date is unknown", str(len(listed))
    for one in listed:
        what = f", snippet {one.rank}"
        if one.digest != digest_json([one.title, one.section, one.text]):
            yield f"{what}: the digest of its title, section and text", printable(one.digest)[:80]
        if one.corpus not in use.corpora:
            yield f"{what}: a corpus of the index", printable(one.corpus)[:80]
        if one.date is None and not use.undated:
            yield f"{what}: a date", "none"
        if one.date is not None and (not _is_day(one.date) or (day is not None and one.date > day)):
            yield f"{what}: a date not after its case's ({day})", printable(one.date)[:40]


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def answers(state: Verification, out: Faults) -> None:
    """Check that every answer belongs to a case, at most one each."""
    listed, run_cases = state.require_rows(state.answers, RESPONSES), state.require_cases()
    in_order(RESPONSES, [a.case_id for a in listed], [c.case_id for c in run_cases], "case", out)
    if (open_ := len(run_cases) - sum(a.gradable for a in listed)) > 0:
        failed = sum(a.state is AnswerState.FAILED for a in listed)
        missing = len(run_cases) - len(listed)
        state.add_note(f"{open_} of {len(run_cases)} cases have no answer ({failed} failed, {missing} missing)")
    run = require(state.run, RUN)
    others = Counter(a.model for a in listed if a.model and a.model not in (run.model, run.asked_as))
    if others:
        names = ", ".join(printable(name)[:60] for name, _ in others.most_common(3))
        state.add_note(f"{others.total()} answers are by the model {names} instead of {printable(run.model)[:60]}")


def in_order(file: str, found: Sequence[Any], known_names: Sequence[Any], what: str, out: Faults) -> None:
    """Check that each of `found` is in `known_names`, once, and in the same order."""
    places = {name: place for place, name in enumerate(known_names)}
    last = -1
    for name in found:
        place = places.get(name)
        if place is None:
            out.add(file, f"a {what} of the snapshot", printable(str(name))[:200])
        elif place <= last:
            out.add(file, f"each {what} once and in order", printable(str(name))[:200])
        else:
            last = place
