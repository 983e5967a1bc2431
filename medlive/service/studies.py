"""Studies in which people rate cases, or check a grader: `start_study` draws, then `rate`, `evaluate`, `close`.

Items are drawn by a seed and rated blind; a grader check has the figures of `eval meta`.
"""

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from medlive.config import Settings
from medlive.db import studies
from medlive.db.accounts import list_accounts
from medlive.db.audit_log import record
from medlive.db.mapping import Record
from medlive.db.runs import list_evaluations
from medlive.db.session import Database, Session
from medlive.db.studies import Rating, Study, StudyItem
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Act, Stratum, StudyKind
from medlive.errors import CheckFailed, MedliveError, UsageError
from medlive.grader.rated import CheckedVerdict, GraderSheet, case_parts
from medlive.guard.bounds import COMMENT_CHARS
from medlive.instance.paths import report_path
from medlive.statistics.case_ratings import (
    ASPECTS,
    AspectQuality,
    aspect_figures,
)
from medlive.statistics.raters import (
    ABSENT,
    Reliability,
    agreed_codes,
    code_of,
    reliability,
)

# What is rated of a case; a grader check rates verdicts
ASPECTS_OF = {
    StudyKind.CASE_QUALITY: ("narrative_and_query", "advice"),
    StudyKind.CRITERION_VALIDITY: ("criterion",),
    StudyKind.GRADER_CHECK: (),
}
SCALES: Mapping[str, int] = {**ASPECTS, "verdict": 2}
"""The rated aspects, with the number of values on their scales; a verdict is 1 for met."""
_MOST_SEED = 2**31 - 1
ReadSheet = Callable[[Path, Sequence[str]], GraderSheet]
"""Reads a graded run's verdicts, or what two judges of it decided differently; raises UsageError."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True)
class Disagreement:
    """An item that the raters rated differently, or that one of them could not decide."""

    item: StudyItem
    ratings: tuple[Rating, ...]  # In the order of the study's raters
    settled: Rating | None  # The adjudicator's rating; None as yet


@dataclass(frozen=True)
class Results:
    """The results of a study so far."""

    items: int
    progress: dict[str, int]  # Rater → items rated
    aspects: tuple[AspectQuality, ...]  # Of cases, over what two raters rated
    # Of a grader, as `eval meta --human` has it; None: nothing is rated
    grading: Reliability | None
    disagreements: tuple[Disagreement, ...]  # Of the items that all raters rated
    # What all raters, two or more, decided against the grader
    overturned: tuple[StudyItem, ...]


async def start_study(
    database: Database,
    settings: Settings,
    study: Study,
    sample: int,
    judges: Sequence[str] = (),
    *,
    read_sheet: ReadSheet | None = None,
) -> int:
    """Draw a study's cases and store it; return how many items each rater gets.

    The answers of a grader check are those of a run that `eval score` recorded, and its cases the snapshot's.
    While it is open, no report on a snapshot with one of its cases is shown: it would hold the verdicts.

    Args:
        database: The database.
        settings: Where reports are.
        study: What is drawn and who rates.
        sample: Cases to draw.
        judges: Two judges of the run, to ask only about what they decided differently.
        read_sheet: Reads the run of a grader check.

    Raises:
        UsageError: If the name is taken or cannot be one, if there are fewer than two raters, an account that may
            not rate, no run that can be read, or no case to draw.
    """
    if sample < 1:
        raise UsageError("a study draws one case or more")
    async with database.begin() as session:
        await _check_study(session, study)
        verdicts: Sequence[CheckedVerdict] | None = None
        if study.kind is StudyKind.GRADER_CHECK:
            sheet, version = await _recorded_sheet(
                session, study.run, judges, read_sheet
            )
            study.version = version
            study.grader, study.against, verdicts = sheet
        candidates = await studies.list_candidates(session, study.version)
        if verdicts is not None:
            checked = {verdict.case_id for verdict in verdicts}
            candidates = [c for c in candidates if c.case_id in checked]
        drawn = draw(candidates, sample, study.stratum, study.seed)
        if not drawn:
            raise UsageError("no case to draw from")
        revisions = {c.case_id: c.revision for c in drawn}
        texts = await studies.read_revisions(session, revisions.items())
        cases = {revision: texts[revision] for revision in revisions.items()}
        study.blinding = "blind"
        if verdicts is not None:
            items = list(_verdict_items(verdicts, cases))
            versions = await studies.versions_of(session, revisions.keys())
            reports = [report_path(settings, v) / "index.html" for v in versions]
            if any(map(Path.is_file, reports)):
                study.blinding = "after_report"
        else:
            items = list(_case_items(study, cases))
        await studies.add_study(session, study, items)
        await record(
            session,
            Act.START_STUDY,
            f"study:{study.name}",
            by=study.created_by,
            items=len(items),
            blinding=study.blinding,
        )
    return len(items)


async def _check_study(session: Session, study: Study) -> None:
    """Raises UsageError unless name and seed are valid, and two raters or more and another adjudicator may rate."""
    if not _NAME.fullmatch(study.name) or not 0 <= study.seed <= _MOST_SEED:
        raise UsageError(
            "a name has up to 64 of a-z, 0-9 and -, a seed is from 0 to 2,147,483,647"
        )
    people = [*study.raters, *filter(None, [study.adjudicator])]
    if len(study.raters) < 2 or len(set(people)) < len(people):
        raise UsageError(
            "a study needs two raters or more, each once, and another one as adjudicator"
        )
    unable = set(people)
    for account in await list_accounts(session):
        if account.may(Role.REVIEWER) and account.disabled_at is None:
            unable.discard(account.name)
    if unable:
        raise UsageError(f"no account that may rate: {', '.join(sorted(unable))}")


async def _recorded_sheet(
    session: Session,
    path: str | None,
    judges: Sequence[str],
    read_sheet: ReadSheet | None,
) -> tuple[GraderSheet, str]:
    """The verdicts of a recorded run, and its snapshot's version. Raises UsageError."""
    versions = {e.path: e.snapshot_version for e in await list_evaluations(session)}
    if path is None or path not in versions or read_sheet is None:
        raise UsageError("a grader check needs a run that is recorded here")
    try:
        sheet = await asyncio.to_thread(read_sheet, Path(path), judges)
    except (OSError, MedliveError) as error:
        raise UsageError(f"the run cannot be read on this machine: {error}") from error
    return sheet, versions[path]


_Cases = Mapping[tuple[str, int], Record]
"""The texts of cases by (case id, revision)."""


def _case_items(study: Study, cases: _Cases) -> Iterator[StudyItem]:
    """The items of a study of cases: the parts of each case that its kind of study rates."""
    for (case_id, revision), case in cases.items():
        prefix = f"{case_id}-"
        criteria = {prefix + number: text for number, text in case.criteria.items()}
        for item, aspect, criterion_id in case_parts(
            case_id, _question_of(case), case.text.advice, criteria
        ):
            if aspect in ASPECTS_OF[study.kind]:
                yield StudyItem(
                    item=item,
                    case_id=case_id,
                    revision=revision,
                    aspect=aspect,
                    criterion_id=criterion_id and criterion_id.removeprefix(prefix),
                )


def _verdict_items(
    verdicts: Sequence[CheckedVerdict], cases: _Cases
) -> Iterator[StudyItem]:
    """The items of a grader check: the verdicts on a run's answers to these cases. Raises UsageError."""
    revisions = dict(cases.keys())
    for verdict in verdicts:
        case_id = verdict.case_id
        if case_id not in revisions:
            continue
        revision = revisions[case_id]
        if verdict.question != _question_of(cases[case_id, revision]):
            raise UsageError(f"the run's case {case_id} is not as the snapshot has it")
        yield StudyItem(
            item=verdict.id,
            case_id=case_id,
            revision=revision,
            aspect="verdict",
            criterion_id=verdict.criterion_id.removeprefix(f"{case_id}-"),
            answer=verdict.answer,
            verdict=verdict.met,
        )


def _question_of(case: Record) -> str:
    """A case's question as a run on a snapshot has it, so that its items have the same ids."""
    return f"{case.text.narrative}\n\n{case.text.query}".strip()


def draw(
    candidates: Sequence[Record], sample: int, stratum: Stratum, seed: int
) -> list[Record]:
    """Draw `sample` cases, in equal numbers from each stratum as far as it goes; sorted by case id."""
    by_stratum: dict[str, list[Record]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda c: c.case_id):
        name = "" if stratum is Stratum.NONE else getattr(candidate, stratum.value)
        by_stratum[name or ""].append(candidate)
    order = random.Random(seed)
    groups = [members for _, members in sorted(by_stratum.items())]
    for members in groups:
        order.shuffle(members)
    order.shuffle(groups)  # So that no stratum has the odd one by its name
    turns = []
    for turn in zip_longest(*groups):
        turns += [candidate for candidate in turn if candidate is not None]
    return sorted(turns[:sample], key=lambda c: c.case_id)


def order_for(
    study: Study,
    rater: str,
    items: Sequence[StudyItem],
) -> list[StudyItem]:
    """The items as one rater gets them: the cases in an order drawn for the rater, a case's items together."""
    cases = sorted({item.case_id for item in items})
    random.Random(f"{study.seed} {study.name} {rater}").shuffle(cases)
    places = {case_id: n for n, case_id in enumerate(cases)}
    return sorted(items, key=lambda item: (places[item.case_id], item.position))


async def rate(
    database: Database,
    study: Study,
    rater: str,
    position: int,
    rating: str,
    comment: str,
) -> None:
    """Store a rater's or the adjudicator's rating of an item; "" says that it could not be decided.

    Raises:
        UsageError: If there is no such item, or the rating is not on its scale.
        CheckFailed: If the study is closed, the account does not rate in it, or the raters agree on the item.
    """
    async with database.begin() as session:
        results = await evaluate(session, study) if rater == study.adjudicator else None
        # Nobody closes it meanwhile
        study = await studies.find_study(session, study.name, lock=True)
        for item in await studies.items_of(session, study.name):
            if item.position == position:
                break
        else:
            raise UsageError(f"study {study.name} has no item {position}")
        values = SCALES[item.aspect]
        if rating not in ("", *map(str, range(values))):
            raise UsageError(
                f"a rating of this is a whole number from 0 to {values - 1}"
            )
        if len(comment) > COMMENT_CHARS:
            raise UsageError(f"a comment has at most {COMMENT_CHARS:,} characters")
        if study.closed_at:
            raise CheckFailed(f"study {study.name} is closed")
        if rater not in study.raters and (
            results is None or item not in [d.item for d in results.disagreements]
        ):
            raise CheckFailed(f"{rater} has nothing to rate here")
        await studies.save_rating(
            session,
            study.name,
            Rating(
                item=item.item,
                rater=rater,
                rating=int(rating) if rating else None,
                comment=comment.strip(),
            ),
        )


async def evaluate(session: Session, study: Study) -> Results:
    """Agreement so far with 95 % intervals over cases, and what the raters disagree on."""
    items = await studies.items_of(session, study.name)
    by_item: dict[str, dict[str, Rating]] = defaultdict(dict)
    decided: dict[str, dict[str, int]] = defaultdict(dict)
    progress = dict.fromkeys(study.raters, 0)
    for rating in await studies.ratings_of(session, study.name):
        by_item[rating.item][rating.rater] = rating
        if rating.rater in progress:
            progress[rating.rater] += 1
            if rating.rating is not None:
                decided[rating.item][rating.rater] = rating.rating
    disagreements, overturned = _compare_raters(study, items, by_item)
    aspects = []
    for aspect in ASPECTS_OF[study.kind]:
        cases = {item.item: item.case_id for item in items if item.aspect == aspect}
        aspects.append(aspect_figures(aspect, cases, decided, study.raters))
    answered = [i for i in items if i.item in decided and i.answer is not None]
    return Results(
        items=len(items),
        progress=progress,
        aspects=tuple(aspects),
        grading=_grading(study, answered, by_item) if answered else None,
        disagreements=tuple(disagreements),
        overturned=tuple(overturned),
    )


def _compare_raters(
    study: Study,
    items: Sequence[StudyItem],
    by_item: Mapping[str, Mapping[str, Rating]],
) -> tuple[list[Disagreement], list[StudyItem]]:
    """Among the items that all raters rated: those on which they differ, and those whose verdict all reject."""
    disagreements, overturned = list[Disagreement](), list[StudyItem]()
    for item in items:
        by_rater = by_item[item.item]
        if not set(study.raters) <= by_rater.keys():
            continue
        ratings = tuple(by_rater[rater] for rater in study.raters)
        values = {rating.rating for rating in ratings}
        if len(values) > 1 or None in values:
            disagreements.append(
                Disagreement(item, ratings, by_rater.get(study.adjudicator or ""))
            )
        elif item.verdict is not None and values == {not item.verdict}:
            overturned.append(item)
    return disagreements, overturned


def _grading(
    study: Study,
    items: Sequence[StudyItem],
    by_item: Mapping[str, Mapping[str, Rating]],
) -> Reliability:
    """How far the grader, the raters and the adjudicator agree on what was rated."""

    def code(item: StudyItem, rater: str) -> int:
        rating = by_item[item.item].get(rater)
        if rating is None or rating.rating is None:
            return ABSENT
        return code_of(bool(rating.rating))

    codes = np.array([[code(item, rater) for rater in study.raters] for item in items])
    decisions = np.array([code(item, study.adjudicator or "") for item in items])
    return reliability(
        codes,
        np.array([code_of(item.verdict) for item in items]),
        raters=study.raters,
        cases=[item.case_id for item in items],
        grader_name=study.grader or "grader",
        agreed=agreed_codes(codes, decisions) if study.adjudicator else None,
    )


async def close(database: Database, study: Study, *, by: str) -> None:
    """Let nobody rate any more; to close a closed study changes nothing."""
    async with database.begin() as session:
        if await studies.close_study(session, study.name):
            await record(session, Act.CLOSE_STUDY, f"study:{study.name}", by=by)
