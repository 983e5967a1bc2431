"""Verification steps for the snapshot, the cases, the evidence and the answers."""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from medlive.digest import digest_bytes, digest_json
from medlive.errors import BadInput, CheckFailed, MedliveError
from medlive.evaluation.bundles.bundle import BundleInfo, case_digest, cases_digest
from medlive.evaluation.bundles.files import BUNDLE, CASES, EVIDENCE_FILE, RUN
from medlive.evaluation.bundles.state import Verification, require
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, day_of, select
from medlive.evaluation.model import AnswerState, CaseSet, EvaluationCase
from medlive.evaluation.runs.evidence import Evidence, Snippet
from medlive.evaluation.runs.folder import IMPORTED, RESPONSES, EvidenceUse, RunInfo
from medlive.evaluation.runs.templates import TEMPLATES, WITHOUT_EVIDENCE
from medlive.integrity.checks import Faults, Skip
from medlive.integrity.folder import printable
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.model import week_end

_NAMED: Final = 3
"""How many names a note lists."""
_TEXTS: Final = ("case_id", "passage_id", "corpus", "digest", "title", "section", "text")


def snapshot(state: Verification, out: Faults) -> None:
    """Check that the snapshot is the one named in the bundle, and that it verifies."""
    info = require(state.info, BUNDLE)
    found = state.snapshot if isinstance(state.snapshot, CaseSet) else _loaded(state, info, out)
    if found is None:
        return
    if found.verified is False:
        out.add(found.name, "a verified snapshot", "an unverified one")
    for name in ("origin", "name", "digest"):
        if (want := getattr(info.cases, name)) != (got := getattr(found, name)):
            out.add(printable(found.name), f"{name} {printable(want)[:100]}, as {BUNDLE} says", got)
    if info.cases.publishable != found.publishable:
        out.add(
            BUNDLE,
            f"publishable: {found.publishable}, as {printable(found.name)} says",
            str(info.cases.publishable),
        )
    if out.count:
        return
    total = len(found)
    try:
        if info.cases.selection is not None:
            given: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in info.cases.selection.items()
            }
            found = select(found, Selection(**given))
            if found.selection != info.cases.selection:
                out.add(BUNDLE, f"the selection {found.selection}", printable(str(info.cases.selection))[:200])
    except (MedliveError, TypeError, AttributeError) as exc:
        out.add(BUNDLE, "a selection of cases", printable(str(exc))[:200])
        return
    if len(found) < total:
        state.add_note(
            f"{len(found)} of its {total} cases, by {printable(str(dict(info.cases.selection or {})))[:200]}"
        )
    state.cases, state.snapshots_folder = found.cases, found.snapshots


def _loaded(state: Verification, info: BundleInfo, out: Faults) -> CaseSet | None:
    """Load the cases from the given place or by the bundle's snapshot version. Raises Skip if there are none."""
    place = state.snapshot if isinstance(state.snapshot, Path) else None
    if place is None:
        named = printable(info.cases.name)[:100]
        if info.cases.origin != "snapshot":
            raise Skip(f"the cases are of the file {named!r}, which was not given", allowed=True)
        if week_end(info.cases.name) is None:
            # Only look up versions: an untrusted bundle must not name a path of this machine.
            out.add(BUNDLE, "a snapshot version", named)
            return None
        try:
            place = find_snapshot(info.cases.name)
        except BadInput as exc:
            raise Skip(f"no snapshot was given: {exc.message}", allowed=True) from None
    try:
        return load_cases(place)
    except CheckFailed as exc:
        out.add(place.name, "a snapshot that verifies", exc.message[:300])
    except BadInput as exc:
        out.add(place.name, "the cases of the run", exc.message[:300])
    return None


def cases(state: Verification, out: Faults) -> None:
    """Check that the cases equal the snapshot's, or the part of them that `run.json` selects."""
    info, digests = require(state.info, BUNDLE), require(state.digests, CASES)
    expected = state.require_cases()
    want = {case.case_id: case_digest(case) for case in expected}
    got = dict(digests)
    if [[case_id, digest] for case_id, digest in want.items()] != digests:
        for case_id, digest in want.items():
            if case_id not in got:
                out.add(CASES, f"case {case_id}", "none")
            elif got[case_id] != digest:
                out.add(CASES, f"case {case_id} as {digest}", printable(got[case_id])[:100])
        for case_id in [name for name in got if name not in want]:
            out.add(CASES, "only cases of the snapshot", printable(case_id)[:100])
        if not out.count:
            out.add(CASES, "each case once, in the snapshot's order", "duplicates or another order")
    if (rows := cases_digest(expected)) != info.cases.rows:
        out.add(RUN, f"the cases' rows {rows}", printable(info.cases.rows)[:100])
    if info.cases.count != len(expected):
        out.add(RUN, f"{len(expected)} cases", str(info.cases.count)[:40])


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
    if (got := digest_bytes(data)) != use.rows:
        out.add(EVIDENCE_FILE, f"{use.rows[:80]} as in {RUN}", got)
    try:
        book = Evidence.read(data)
        well_formed = all(_is_snippet(one) for listed in book.by_case.values() for one in listed)
        if not well_formed or book.data() != data:
            out.add(EVIDENCE_FILE, "snippets in canonical form", "other values or another form")
            return
    except (BadInput, ValueError, TypeError, RecursionError) as exc:
        out.add(EVIDENCE_FILE, "snippets", printable(str(exc))[:200])
        return
    counted = {
        "snippets": sum(map(len, book.by_case.values())),
        "closed": sum(not listed for listed in book.by_case.values()),
    }
    for name, number in counted.items():
        if number != getattr(use, name):
            out.add(RUN, f"{name}: {number}", str(getattr(use, name))[:40])
    expected_cases = state.require_cases()
    if list(book.by_case) != [case.case_id for case in expected_cases]:
        out.add(EVIDENCE_FILE, "every case of the run, in order", "other cases or another order")
    for case in expected_cases:
        _snippets(case, book.by_case.get(case.case_id, ()), use, out)


def _arm(run: RunInfo, out: Faults) -> None:
    """Check that the template and the arm agree with the presence of evidence."""
    has_evidence, name = run.evidence is not None, run.template.name
    if run.engine != IMPORTED and name in TEMPLATES and has_evidence is not (name in WITHOUT_EVIDENCE):
        out.add(
            RUN,
            f"{'no evidence' if has_evidence else 'evidence'} for the template {name}",
            "evidence" if has_evidence else "none",
        )
    if (run.arm == "closed" and has_evidence) or (
        run.arm == "open-book" and not has_evidence and run.engine != IMPORTED
    ):
        out.add(RUN, f"the arm of a run {'with' if has_evidence else 'without'} evidence", run.arm)


def _is_snippet(one: Snippet) -> bool:
    texts = all(isinstance(getattr(one, name), str) for name in _TEXTS)
    return texts and type(one.rank) is int and (one.date is None or isinstance(one.date, str))


def _snippets(case: EvaluationCase, listed: Sequence[Snippet], use: EvidenceUse, out: Faults) -> None:
    day = day_of(case)
    if [one.rank for one in listed] != list(range(1, len(listed) + 1)) or len(listed) > use.top_k:
        out.add(
            EVIDENCE_FILE,
            f"case {case.case_id}: at most {use.top_k} snippets, ranked from 1",
            f"{len(listed)} others",
        )
    if listed and day is None:
        out.add(EVIDENCE_FILE, f"case {case.case_id}: no snippet, since its date is unknown", str(len(listed)))
    for one in listed:
        what = f"case {case.case_id}, snippet {one.rank}"
        if one.digest != digest_json([one.title, one.section, one.text]):
            out.add(
                EVIDENCE_FILE, f"{what}: the digest of its title, section and text", printable(one.digest)[:80]
            )
        if one.corpus not in use.corpora:
            out.add(EVIDENCE_FILE, f"{what}: a corpus of the index", printable(one.corpus)[:80])
        if one.date is None:
            if not use.undated:
                out.add(EVIDENCE_FILE, f"{what}: a date", "none")
        elif not _is_day(one.date) or (day is not None and one.date > day):
            out.add(EVIDENCE_FILE, f"{what}: a date not after its case's ({day})", printable(one.date)[:40])


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
        names = ", ".join(printable(name)[:60] for name, _ in others.most_common(_NAMED))
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
