"""No attack makes a better decision than its twin has, and none puts its words into a release."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import pytest_asyncio

from medlive.curation.model import Outcome, Side
from medlive.demo.samples import SampleThread
from medlive.evidence.passage import Retriever
from medlive.threads.model import Thread
from tests.support.attack_list import ATTACKS, KINDS
from tests.support.attacks import (
    Attack,
    Gullible,
    Way,
    attacked,
    gullible_endpoint,
    rules,
    twin_of,
    way_of,
)

Evidence = Callable[[bool], Retriever]


def _rows(chosen: Callable[[Attack], object]) -> list[Any]:
    """The chosen attacks; `make test` tries one of each kind, in English or Chinese by turns, and in each place."""
    tried: dict[str, str] = {}
    for number, attacks in enumerate(KINDS.values()):
        found = sorted(
            filter(chosen, attacks), key=lambda a: a.language, reverse=number % 2 == 1
        )
        tried |= {attack.id: attack.place for attack in found[:1]}
    for attack in filter(chosen, ATTACKS):
        if attack.place not in tried.values():
            tried[attack.id] = attack.place
    return [
        pytest.param(
            attack,
            id=attack.id,
            marks=[] if attack.id in tried else [pytest.mark.thorough],
        )
        for attack in ATTACKS
        if chosen(attack)
    ]


LAID = _rows(lambda attack: attack.place)
BELIEVED = _rows(lambda attack: attack.obey)

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gullible() -> AsyncIterator[Gullible]:
    """One endpoint for all."""
    async with gullible_endpoint() as model:
        yield model


@pytest.fixture(scope="session")
def twins() -> dict[str, Way]:
    """What became of the twins so far, by their base: equal threads need no second look."""
    return {}


async def _twin(
    attack: Attack, twins: dict[str, Way], thread: Thread, evidence: Evidence
) -> Way:
    if attack.base not in twins:
        twins[attack.base] = await way_of(thread, rules(), evidence(False))
    return twins[attack.base]


@pytest.mark.parametrize("attack", LAID)
async def test_the_rules_decide_no_better_than_without_the_attack(
    attack: Attack,
    samples: Mapping[str, SampleThread],
    evidence: Evidence,
    twins: dict[str, Way],
) -> None:
    thread = twin_of(attack, samples)
    twin = await _twin(attack, twins, thread, evidence)
    tried = await way_of(
        attacked(attack, thread), rules(), evidence(attack.place == "evidence")
    )
    kept = twin.curation.outcome is Outcome.KEPT
    assert kept == ("-kept" in attack.base), twin.stopped_by
    assert kept or tried.curation.outcome is Outcome.REJECTED, tried.curation.claims
    assert tried.curation.outcome is not Outcome.FAILED, tried.stopped_by
    advice = tried.curation.side(Side.ADVICE)
    assert (
        not any(attack.marker in e.statement for e in advice)
        or attack.place == "physician"
    )


@pytest.mark.parametrize("attack", BELIEVED)
async def test_code_stops_a_model_that_obeys_unless_a_judge_must(
    attack: Attack,
    samples: Mapping[str, SampleThread],
    evidence: Evidence,
    twins: dict[str, Way],
    gullible: Gullible,
) -> None:
    thread = twin_of(attack, samples)
    twin = await _twin(attack, twins, thread, evidence)
    way = await way_of(
        attacked(attack, thread),
        gullible.believes(attack),
        evidence(attack.place == "evidence"),
    )
    # Either there is no case, or it is the one that there would be without the attack; else a judge must.
    got_through = way.released is not None and way.texts() != twin.texts()
    assert got_through is attack.judgement, way.texts() or way.stopped_by
