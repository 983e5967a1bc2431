"""Studies of cases by people: drawn by their seed, rated blind, evaluated as by `eval meta --quality`."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from medlive.db import studies
from medlive.db.accounts import list_accounts
from medlive.db.audit_log import record
from medlive.db.session import Database, Session
from medlive.db.studies import Candidate, RatedCase, Rating, Study, StudyItem
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Act, Stratum, StudyKind
from medlive.errors import CheckFailed, UsageError
from medlive.evaluation.agreement.case_ratings import ASPECTS, AspectQuality, Item, aspect_figures, case_items
from medlive.evaluation.model import EvaluationCase, EvaluationCriterion

ASPECTS_OF = {
    StudyKind.CASE_QUALITY: ("narrative_and_query", "advice"),
    StudyKind.CRITERION_VALIDITY: ("criterion",),
}
_MOST_COMMENT = 2_000


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An item that the raters rated differently, or that one of them could not decide."""

    item: StudyItem
    ratings: tuple[Rating, ...]  # In the order of the study's raters
    settled: Rating | None  # The adjudicator's


@dataclass(frozen=True, slots=True)
class Results:
    """What came of a study so far."""

    items: int
    progress: dict[str, int]  # Rater → items rated
    aspects: tuple[AspectQuality, ...]  # Over what two raters rated
    disagreements: tuple[Disagreement, ...]  # Of the items that all raters rated

    @property
    def is_rated(self) -> bool:
        """Whether every rater rated every item."""
        return all(n == self.items for n in self.progress.values())


async def start_study(database: Database, study: Study, sample: int) -> int:
    """Draw a study's cases and store it; return how many items each rater gets.

    Raises:
        UsageError: If the name is taken or cannot be one, if there are fewer than two raters, an account that may
            not rate, or no case to draw.
    """
    people = {*study.raters, *([study.adjudicator] if study.adjudicator else [])}
    if len(set(study.raters)) < 2 or len(people) < len(study.raters) + bool(study.adjudicator):
        raise UsageError("a study needs two raters or more, each once, and another one as adjudicator")
    async with database.begin() as session:
        able = {a.name for a in await list_accounts(session) if a.may(Role.REVIEWER) and a.disabled_at is None}
        if unable := sorted(people - able):
            raise UsageError(f"no account that may rate: {', '.join(unable)}")
        drawn = draw(await studies.list_candidates(session, study.version), sample, study.stratum, study.seed)
        if not drawn:
            raise UsageError("no case to draw from")
        cases = await studies.read_revisions(session, [(c.case_id, c.revision) for c in drawn])
        found = [
            (candidate, item)
            for candidate in drawn
            for item in case_items(_as_evaluated(candidate.case_id, cases[candidate.case_id, candidate.revision]))
            if item.aspect in ASPECTS_OF[study.kind]
        ]
        items = [
            StudyItem(item.id, n, c.case_id, c.revision, item.aspect, _criterion_id(item))
            for n, (c, item) in enumerate(found, 1)
        ]
        await studies.add_study(session, study, items)
        await record(session, Act.START_STUDY, f"study:{study.name}", by=study.created_by, items=len(items))
    return len(items)


def draw(candidates: Sequence[Candidate], sample: int, stratum: Stratum, seed: int) -> list[Candidate]:
    """Draw `sample` cases, in equal numbers from each stratum as far as it goes; by case id."""
    by_stratum: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda c: c.case_id):
        by_stratum["" if stratum is Stratum.NONE else getattr(candidate, stratum.value)].append(candidate)
    order = random.Random(seed)
    for _, members in sorted(by_stratum.items()):
        order.shuffle(members)
    groups = [members for _, members in sorted(by_stratum.items())]
    order.shuffle(groups)  # So that no stratum has the odd one by its name
    turns = (group[n] for n in range(max(map(len, groups), default=0)) for group in groups if n < len(group))
    return sorted([c for _, c in zip(range(sample), turns, strict=False)], key=lambda c: c.case_id)


def order_for(study: Study, rater: str, items: Sequence[StudyItem]) -> list[StudyItem]:
    """The items as one rater gets them: the cases in an order drawn for the rater, a case's items together."""
    cases = sorted({item.case_id for item in items})
    random.Random(f"{study.seed} {study.name} {rater}").shuffle(cases)
    places = {case_id: n for n, case_id in enumerate(cases)}
    return sorted(items, key=lambda item: (places[item.case_id], item.position))


async def rate(database: Database, study: Study, rater: str, position: int, rating: str, comment: str) -> None:
    """Store a rater's or the adjudicator's rating of an item; "" says that it could not be decided.

    Raises:
        UsageError: If there is no such item, or the rating is not on its scale.
        CheckFailed: If the study is closed, the account does not rate in it, or the raters agree on the item.
    """
    async with database.begin() as session:
        results = await evaluate(session, study) if rater == study.adjudicator else None
        item = next((i for i in await studies.items_of(session, study.name) if i.position == position), None)
        if item is None:
            raise UsageError(f"study {study.name} has no item {position}")
        values = ASPECTS[item.aspect]
        if rating not in ("", *map(str, range(values))):
            raise UsageError(f"a rating of this is a whole number from 0 to {values - 1}")
        if len(comment) > _MOST_COMMENT:
            raise UsageError(f"a comment has at most {_MOST_COMMENT:,} characters")
        if study.closed_at is not None:
            raise CheckFailed(f"study {study.name} is closed")
        if rater not in study.raters and (results is None or item not in [d.item for d in results.disagreements]):
            raise CheckFailed(f"{rater} has nothing to rate here")
        given = Rating(item.item, rater, int(rating) if rating else None, comment.strip())
        await studies.save_rating(session, study.name, given)


async def evaluate(session: Session, study: Study) -> Results:
    """Agreement so far with 95 % intervals over cases, and what the raters disagree on."""
    items = await studies.items_of(session, study.name)
    given: dict[str, dict[str, Rating]] = defaultdict(dict)
    for rating in await studies.ratings_of(session, study.name):
        given[rating.item][rating.rater] = rating
    decided = {
        item: {rater: r.rating for rater in study.raters if (r := by.get(rater)) and r.rating is not None}
        for item, by in given.items()
    }
    disagreements = []
    for item in items:
        ratings = tuple(given[item.item][rater] for rater in study.raters if rater in given[item.item])
        values = {rating.rating for rating in ratings}
        if len(ratings) == len(study.raters) and (len(values) > 1 or None in values):
            disagreements.append(Disagreement(item, ratings, given[item.item].get(study.adjudicator or "")))
    progress = {rater: sum(rater in given[i.item] for i in items) for rater in study.raters}
    figures = aspect_figures(map(_as_rated, items), {i: by for i, by in decided.items() if by}, study.raters)
    aspects = tuple(figure for figure in figures if figure.aspect in ASPECTS_OF[study.kind])
    return Results(len(items), progress, aspects, tuple(disagreements))


async def close(database: Database, study: Study, *, by: str) -> None:
    """Let nobody rate any more. Raises CheckFailed for a closed study."""
    if study.closed_at is not None:
        raise CheckFailed(f"study {study.name} is closed already")
    async with database.begin() as session:
        await studies.close_study(session, study.name)
        await record(session, Act.CLOSE_STUDY, f"study:{study.name}", by=by)


def _as_evaluated(case_id: str, case: RatedCase) -> EvaluationCase:
    """The case as a run on a snapshot has it, so that its items have the same ids."""
    criteria = (EvaluationCriterion(f"{case_id}-{number}", text, 0.0) for number, text in case.criteria.items())
    text = case.text
    return EvaluationCase(
        case_id=case_id, language=case.language, narrative=text.narrative, query=text.query, advice=text.advice,
        criteria=tuple(criteria), post_time="", month=None,
    )  # fmt: skip


def _as_rated(item: StudyItem) -> Item:
    return Item(item.item, EvaluationCase(item.case_id, "", "", "", "", (), "", None), item.aspect)


def _criterion_id(item: Item) -> str | None:
    """The id within its case of the criterion that an item is about."""
    found = (c.id for c in item.case.criteria if c.criterion == item.criterion)
    return next(found).removeprefix(f"{item.case.case_id}-") if item.criterion else None
