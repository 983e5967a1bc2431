"""The steps over what a run began with: the snapshot and its cases, the evidence, and the answers."""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

from medlive.digest import digest_bytes, digest_json
from medlive.errors import BadInput, CheckFailed, MedliveError
from medlive.evaluation.bundles.bundle import BundleInfo, case_digest, rows_digest
from medlive.evaluation.bundles.files import BOOK, BUNDLE, CASES, RUN
from medlive.evaluation.bundles.state import Held, known
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
"""How many names a note holds."""
_TEXTS: Final = ("case_id", "passage_id", "corpus", "digest", "title", "section", "text")


def snapshot(held: Held, out: Faults) -> None:
    """The snapshot is the one that the bundle names, and verifies."""
    info = known(held.info, BUNDLE)
    found = held.snapshot if isinstance(held.snapshot, CaseSet) else _loaded(held, info, out)
    if found is None:
        return
    if found.verified is False:
        out.add(found.name, "a snapshot that was verified", "one that was not")
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
    whole = len(found)
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
    if len(found) < whole:
        held.told(
            f"{len(found)} of its {whole} cases, by {printable(str(dict(info.cases.selection or {})))[:200]}"
        )
    held.cases, held.home = found.cases, found.snapshots


def _loaded(held: Held, info: BundleInfo, out: Faults) -> CaseSet | None:
    """The cases that lie where it was said, or where the version is looked up. Raises Skip without any."""
    place = held.snapshot if isinstance(held.snapshot, Path) else None
    if place is None:
        named = printable(info.cases.name)[:100]
        if info.cases.origin != "snapshot":
            raise Skip(f"the cases are of the file {named!r}, which was not given", allowed=True)
        if week_end(info.cases.name) is None:
            # Only a version is looked up: a stranger's bundle names no path of this machine.
            out.add(BUNDLE, "the version of a snapshot", named)
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
        out.add(place.name, "the cases that the run was made on", exc.message[:300])
    return None


def cases(held: Held, out: Faults) -> None:
    """The cases are the snapshot's, each as it is there, all or the part that `run.json` says."""
    info, digests = known(held.info, BUNDLE), known(held.digests, CASES)
    there = held.known_cases()
    want = [(case.case_id, case_digest(case)) for case in there]
    got = [(case_id, digest) for case_id, digest in digests]
    if want != got:
        known_here, said = dict(want), dict(got)
        for case_id in [name for name in known_here if name not in said]:
            out.add(CASES, f"case {case_id}", "none")
        for case_id in [name for name in said if name not in known_here]:
            out.add(CASES, "the cases of the snapshot alone", printable(case_id)[:100])
        for case_id in [name for name in known_here if name in said and said[name] != known_here[name]]:
            out.add(CASES, f"case {case_id} as {known_here[case_id]}", printable(said[case_id])[:100])
        if not out.count:
            out.add(CASES, "each case once, in the snapshot's order", "twice, or in another order")
    if (rows := rows_digest(there)) != info.cases.rows:
        out.add(RUN, f"the cases' rows {rows}", printable(info.cases.rows)[:100])
    if info.cases.count != len(there):
        out.add(RUN, f"{len(there)} cases", str(info.cases.count)[:40])


def evidence(held: Held, out: Faults) -> None:
    """There is evidence exactly for an open book, it is what `run.json` says, and none is newer than its case."""
    info, run = known(held.info, BUNDLE), known(held.run, RUN)
    use = run.evidence
    _arm(run, out)
    if use is None:
        if BOOK in held.files:
            out.add(BOOK, f"nothing, for {RUN} names no evidence", "a file")
        return
    if not info.answers:
        raise Skip("the bundle was made without answers and evidence", allowed=True)
    data = held.need(BOOK)
    if (got := digest_bytes(data)) != use.rows:
        out.add(BOOK, f"{use.rows[:80]} as in {RUN}", got)
    try:
        book = Evidence.read(data)
        whole = all(_is_snippet(one) for listed in book.by_case.values() for one in listed)
        if not whole or book.data() != data:
            out.add(BOOK, "snippets in their one spelling", "other values or another spelling")
            return
    except (BadInput, ValueError, TypeError, RecursionError) as exc:
        out.add(BOOK, "snippets", printable(str(exc))[:200])
        return
    counted = {
        "snippets": sum(map(len, book.by_case.values())),
        "closed": sum(not listed for listed in book.by_case.values()),
    }
    for name, number in counted.items():
        if number != getattr(use, name):
            out.add(RUN, f"{name}: {number}", str(getattr(use, name))[:40])
    there = held.known_cases()
    if list(book.by_case) != [case.case_id for case in there]:
        out.add(BOOK, "every case of the run, in order", "others")
    for case in there:
        _snippets(case, book.by_case.get(case.case_id, ()), use, out)


def _arm(run: RunInfo, out: Faults) -> None:
    """An open book is said to be one: by its template and, where it is named so, by its arm."""
    there, name = run.evidence is not None, run.template.name
    if run.engine != IMPORTED and name in TEMPLATES and there is not (name in WITHOUT_EVIDENCE):
        out.add(
            RUN, f"the evidence that the template {name} {'lacks' if there else 'takes'}", "some" * there or "none"
        )
    if (run.arm == "closed" and there) or (run.arm == "open-book" and not there and run.engine != IMPORTED):
        out.add(RUN, f"the arm of a run {'with' if there else 'without'} evidence", run.arm)


def _is_snippet(one: Snippet) -> bool:
    texts = all(isinstance(getattr(one, name), str) for name in _TEXTS)
    return texts and type(one.rank) is int and (one.date is None or isinstance(one.date, str))


def _snippets(case: EvaluationCase, listed: Sequence[Snippet], use: EvidenceUse, out: Faults) -> None:
    day = day_of(case)
    if [one.rank for one in listed] != list(range(1, len(listed) + 1)) or len(listed) > use.top_k:
        out.add(BOOK, f"case {case.case_id}: at most {use.top_k} snippets, ranked from 1", f"{len(listed)} others")
    if listed and day is None:
        out.add(BOOK, f"case {case.case_id}: no snippet, for its day is not known", str(len(listed)))
    for one in listed:
        what = f"case {case.case_id}, snippet {one.rank}"
        if one.digest != digest_json([one.title, one.section, one.text]):
            out.add(BOOK, f"{what}: the digest of its title, section and text", printable(one.digest)[:80])
        if one.corpus not in use.corpora:
            out.add(BOOK, f"{what}: a corpus of the index", printable(one.corpus)[:80])
        if one.date is None:
            if not use.undated:
                out.add(BOOK, f"{what}: a date", "none")
        elif not _is_day(one.date) or (day is not None and one.date > day):
            out.add(BOOK, f"{what}: dated {day} or before, as its case", printable(one.date)[:40])


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def answers(held: Held, out: Faults) -> None:
    """Every answer is to a case, one each."""
    listed, there = held.held_rows(held.answers, RESPONSES), held.known_cases()
    in_order(RESPONSES, [a.case_id for a in listed], [c.case_id for c in there], "case", out)
    if (open_ := len(there) - sum(a.gradable for a in listed)) > 0:
        failed = sum(a.state is AnswerState.FAILED for a in listed)
        held.told(
            f"{open_} of {len(there)} cases have no answer ({failed} failed, {len(there) - len(listed)} missing)"
        )
    run = known(held.run, RUN)
    others = Counter(a.model for a in listed if a.model and a.model not in (run.model, run.asked_as))
    if others:
        names = ", ".join(printable(name)[:60] for name, _ in others.most_common(_NAMED))
        held.told(f"{others.total()} answers name the model {names}, the run {printable(run.model)[:60]}")


def in_order(file: str, said: Sequence[Any], there: Sequence[Any], what: str, out: Faults) -> None:
    """Each of `said` is among `there`, once, and in the same order."""
    places = {name: place for place, name in enumerate(there)}
    last = -1
    for name in said:
        place = places.get(name)
        if place is None:
            out.add(file, f"a {what} of the snapshot", printable(str(name))[:200])
        elif place <= last:
            out.add(file, f"each {what} once and in order", printable(str(name))[:200])
        else:
            last = place
