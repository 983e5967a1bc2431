"""Verification steps for errata, scores and rates, which are recomputed."""

from typing import Any, Final

import numpy as np

from medlive import __version__
from medlive.errors import CheckFailed, MedliveError
from medlive.evaluation.bundles.bundle import MOST_DRAWS, bundle_scores, bundled_run, errata_from_record
from medlive.evaluation.bundles.contents import Verification, require
from medlive.evaluation.bundles.files import BUNDLE, RUN, SCORES, differences, through_json
from medlive.evaluation.runs.folder import GRADES, RESPONSES, RunFolder
from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, RunErrata, use_errata
from medlive.evaluation.scoring.graded import GradedRun
from medlive.integrity.checks import Faults, Skip
from medlive.integrity.folder import printable

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
            [run], ErrataMode.APPLY, ErrataSearch(state.errata_file, state.snapshots_folder)
        ).runs
    except MedliveError as exc:
        if applied or state.errata_file is not None:
            out.add(SCORES, "readable errata", exc.message[:200])
        else:
            state.add_note(f"the errata beside the snapshot cannot be read: {exc.message[:200]}")
        return
    state.withdrawn = known
    left_out = RunErrata("", known.found)
    if declared is not None and applied:
        left_out = errata_from_record(cases, declared.model_dump(mode="json"))
    without = [f"case {printable(case_id)[:100]}" for case_id in left_out.cases if case_id not in known.cases]
    without += [
        f"criterion {printable(criterion_id)[:80]} of {printable(case_id)[:80]}"
        for case_id, criterion_id in left_out.criteria
        if (case_id, criterion_id) not in known.criteria and case_id not in known.cases
    ]
    for what in without:
        out.add(SCORES, "the errata of the snapshot", f"{what} left out without an erratum")
    cases_scored = len(set(known.cases) - set(left_out.cases))
    criteria_scored = len(set(known.criteria) - set(left_out.criteria))
    if cases_scored or criteria_scored:
        state.add_note(f"{cases_scored} cases and {criteria_scored} criteria were withdrawn but are scored")


def scores(state: Verification, out: Faults) -> None:
    """Check that recomputed scores equal the bundle's to the printed digit."""
    recomputed = _recompute(state, out)
    if recomputed is None:
        return
    declared = require(state.scores, SCORES)
    for place, want, got in differences(through_json(recomputed), through_json(declared)):
        if not place.startswith("rates"):
            out.add(f"{SCORES}: {printable(place)}", want, got)
    info = require(state.info, BUNDLE)
    made, here = (info.code_version, info.numpy), (__version__, np.__version__)
    if made != here:
        # Other versions may draw other random numbers or score differently.
        theirs = f"medlive {printable(made[0])[:40]}, numpy {printable(made[1])[:40]}"
        if out.count:
            out.add(BUNDLE, f"medlive {here[0]}, numpy {here[1]}, which recomputed the scores", theirs)
        else:
            state.add_note(f"made with {theirs}; scored again with medlive {here[0]}, numpy {here[1]}")


def rates(state: Verification, out: Faults) -> None:
    """Check that recomputed rates equal the bundle's."""
    recomputed = _recompute(state, out)
    if recomputed is None:
        return
    declared = {"rates": require(state.scores, SCORES).get("rates")}
    for place, want, got in differences({"rates": through_json(recomputed["rates"])}, through_json(declared)):
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
        if [type(draws), type(seed)] != [int, int] or not (1 <= draws <= MOST_DRAWS and 0 <= seed < 2**63):
            raise ValueError(f"draws {draws!r}, seed {seed!r}"[:100])
        state.recomputed = bundle_scores(graded(state), declared["errata"], draws, seed)
    except (KeyError, TypeError, ValueError, CheckFailed) as exc:
        out.add(SCORES, f"1 to {MOST_DRAWS} draws, a seed and errata that leave a case", str(exc)[:200])
    return state.recomputed


def graded(state: Verification) -> GradedRun:
    """Return the bundle's content as a run. Raises Skip if it could not be read."""
    return bundled_run(
        require(state.run, RUN),
        state.require_cases(),
        require(state.answers, RESPONSES),
        require(state.grades, GRADES),
    )
