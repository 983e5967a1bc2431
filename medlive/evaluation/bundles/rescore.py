"""The last steps over a bundle: its errata, and its scores and rates worked out anew."""

from typing import Any, Final

import numpy as np

from medlive import __version__
from medlive.errors import CheckFailed, MedliveError
from medlive.evaluation.bundles.bundle import MOST_DRAWS, bundle_scores, bundled_run, named_errata
from medlive.evaluation.bundles.files import BUNDLE, RUN, SCORES
from medlive.evaluation.bundles.read import differences, plain
from medlive.evaluation.bundles.state import Held, known
from medlive.evaluation.runs.folder import GRADES, RESPONSES, RunFolder
from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, use_errata
from medlive.evaluation.scoring.graded import GradedRun
from medlive.integrity.checks import Faults, Skip
from medlive.integrity.folder import printable

_RESTS: Final = 4
"""Scores rest on what this step and those after it look at: before it, a fault is one of packing."""


def errata(held: Held, out: Faults) -> None:
    """What was left out as withdrawn is in the snapshot's errata; what is in them and was not left out is told."""
    known(held.scores, SCORES)
    cases, said = held.known_cases(), held.errata
    applied = said is not None and said.mode is ErrataMode.APPLY
    run = RunFolder(held.path, known(held.run, RUN), cases)
    try:
        (there,) = use_errata([run], ErrataMode.APPLY, ErrataSearch(held.errata_file, held.home)).runs
    except MedliveError as exc:
        if applied or held.errata_file is not None:
            out.add(SCORES, "errata that can be read", exc.message[:200])
        else:
            held.told(f"the errata beside the snapshot cannot be read: {exc.message[:200]}")
        return
    held.withdrawn = there
    left: tuple[set[str], set[tuple[str, str]]] = (set(), set())
    if said is not None and applied:
        named = named_errata(cases, said.model_dump(mode="json"))
        left = set(named.cases), set(named.criteria)
        for case_id in sorted(left[0] - set(there.cases)):
            out.add(SCORES, "the errata of the snapshot", f"case {printable(case_id)[:100]} left out for none")
        for case_id, criterion_id in sorted(left[1] - set(there.criteria)):
            if case_id not in there.cases:
                what = f"criterion {printable(criterion_id)[:80]} of {printable(case_id)[:80]} left out for none"
                out.add(SCORES, "the errata of the snapshot", what)
    late = [c for c in there.cases if c not in left[0]], [c for c in there.criteria if c not in left[1]]
    if any(late):
        held.told(f"{len(late[0])} cases and {len(late[1])} criteria were withdrawn and are in the scores")


def scores(held: Held, out: Faults) -> None:
    """The scores come out again to the printed digit."""
    again = _scored_again(held, out)
    if again is None:
        return
    said = known(held.scores, SCORES)
    for place, want, got in differences(plain(again), plain(said)):
        if not place.startswith("rates"):
            out.add(f"{SCORES}: {printable(place)}", want, got)
    info = known(held.info, BUNDLE)
    made, here = (info.code_version, info.numpy), (__version__, np.__version__)
    if made != here:
        # Another numpy may have drawn other numbers, another medlive may score otherwise.
        theirs = f"medlive {printable(made[0])[:40]}, numpy {printable(made[1])[:40]}"
        if out.count:
            out.add(BUNDLE, f"medlive {here[0]}, numpy {here[1]}, which scored it here", theirs)
        else:
            held.told(f"made with {theirs}; scored again with medlive {here[0]}, numpy {here[1]}")


def rates(held: Held, out: Faults) -> None:
    """The rates of unanswered, ungraded, truncated and refused come out again."""
    again = _scored_again(held, out)
    if again is None:
        return
    said = {"rates": known(held.scores, SCORES).get("rates")}
    for place, want, got in differences({"rates": plain(again["rates"])}, plain(said)):
        out.add(f"{SCORES}: {printable(place)}", want, got)


def _scored_again(held: Held, out: Faults) -> dict[str, Any] | None:
    known(held.info, BUNDLE)
    held.held_rows(held.answers, RESPONSES)
    said = known(held.scores, SCORES)
    held.known_cases()
    if held.again is not None:
        return held.again
    if any(number >= _RESTS for number in held.failed):
        raise Skip("what the scores rest on does not hold")
    try:
        boot = said["bootstrap"]
        draws, seed = boot["draws"], boot["seed"]
        whole = type(draws) is int and type(seed) is int
        if not whole or not 1 <= draws <= MOST_DRAWS or not 0 <= seed < 2**63:
            raise ValueError(f"draws {draws!r}, seed {seed!r}"[:100])
        held.again = bundle_scores(graded(held), said["errata"], draws, seed)
    except (KeyError, TypeError, ValueError, CheckFailed) as exc:
        out.add(SCORES, f"1 to {MOST_DRAWS} draws, a seed and errata that leave a case", str(exc)[:200])
    return held.again


def graded(held: Held) -> GradedRun:
    """What the bundle holds as a run to be scored. Raises Skip where it could not be read."""
    return bundled_run(
        known(held.run, RUN),
        held.known_cases(),
        known(held.answers, RESPONSES),
        known(held.grades, GRADES),
    )
