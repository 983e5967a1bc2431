"""The routes of the review desk."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from medlive.db import studies
from medlive.db.accounts import Account
from medlive.db.curation.reviews import (
    list_disputes,
    list_held,
    list_waiting_overrules,
)
from medlive.db.harvest.harvests import list_sources
from medlive.db.mapping import Record
from medlive.db.runs import list_evaluations
from medlive.db.studies import RatedCase, Rating, Study, StudyItem
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Stratum, StudyKind
from medlive.db.tables.release import DisputeRow, EvaluationRunRow
from medlive.errors import MedliveError, UsageError
from medlive.guard.bounds import HELD_SHOWN
from medlive.text.html import Page
from medlive.web.accounts.access import Admin, Reviewer
from medlive.web.pages import TEMPLATES, NoticePage, local_path, render
from medlive.web.site import Room, Section, Site, SiteOf, Text

if TYPE_CHECKING:
    from medlive.service.studies import (
        Results,
    )  # Loads numpy, as do the imports in the routes

router: Final = APIRouter(prefix="/review", include_in_schema=False)
REVIEW: Final = Room(False, router, (Section("Review", "/review", Role.REVIEWER),))


SCALES: Final[Mapping[str, Sequence[tuple[int, str]]]] = {
    "narrative_and_query": (
        (2, "coherent and a real clinical question"),
        (1, "with small faults"),
        (0, "neither"),
    ),
    "advice": (
        (2, "right and safe for this patient"),
        (1, "acceptable"),
        (0, "wrong or harmful"),
    ),
    "criterion": ((1, "clinically right and relevant to this case"), (0, "not")),
    "verdict": ((1, "the answer meets the criterion"), (0, "it does not")),
}
"""Aspect → what each rating means (LiveMedBench, Tables 8 to 10)."""
TEMPLATES.globals["scales"] = SCALES


@dataclass(frozen=True)
class DeskPage(Page):
    """What waits for people: the account's studies, open disputes, held cases; for admins the form of a study."""

    template = "review/index.html"
    shown: tuple[Study, ...]
    held: tuple[Record, ...]  # Those that wait longest
    more_held: bool  # Whether there are others
    disputes: tuple[DisputeRow, ...]
    overruled: tuple[Record, ...]  # Vetoes that a second person has to overrule
    quarantined: tuple[Record, ...]
    user: Account
    is_admin: bool
    runs: tuple[
        EvaluationRunRow, ...
    ]  # Whose grader may be checked; none but for admins
    kinds: tuple[str, ...] = tuple(StudyKind)
    strata: tuple[str, ...] = tuple(Stratum)


@dataclass(frozen=True)
class RatePage(Page):
    """One item to rate."""

    template = "review/rate.html"
    study: Study
    item: StudyItem
    case: RatedCase
    own: Rating | None  # What the account gave before
    done: int
    total: int
    before: int | None  # Positions of the neighbours in the rater's order
    after: int | None


@dataclass(frozen=True)
class ResultsPage(Page):
    """What came of a study so far, and disagreements side by side."""

    template = "review/results.html"
    study: Study
    results: "Results"
    cases: Mapping[tuple[str, int], RatedCase]
    settles: bool  # Whether the account is the adjudicator
    is_admin: bool
    blind: bool  # Whether the account still rates, and is shown how far everybody is and nothing else


@router.get("")
async def show_desk(request: Request, site: SiteOf, account: Reviewer) -> Response:
    """The desk."""
    is_admin = account.may(Role.ADMIN)
    async with site.database.begin() as session:
        shown = [
            s
            for s in await studies.list_studies(session)
            if is_admin or _takes_part(s, account)
        ]
        held_cases, disputes = (
            await list_held(session, limit=HELD_SHOWN + 1),
            await list_disputes(session),
        )
        overruled = await list_waiting_overrules(session)
        quarantined = tuple(
            s for s in await list_sources(session) if s.quarantine_reason is not None
        )
        runs = tuple(await list_evaluations(session)) if is_admin else ()
    page = DeskPage(
        tuple(shown),
        tuple(held_cases[:HELD_SHOWN]),
        len(held_cases) > HELD_SHOWN,
        tuple(disputes),
        tuple(overruled),
        quarantined,
        account,
        is_admin,
        runs,
    )
    return render(request, page)


@router.post("/studies")
async def begin(
    site: SiteOf,
    account: Admin,
    name: Text = "",
    kind: Text = "",
    version: Text = "",
    stratum: Text = "none",
    sample: Text = "",
    seed: Text = "0",
    raters: Text = "",
    adjudicator: Text = "",
    run: Text = "",
    judges: Text = "",
    keep_reports: Text = "",
) -> Response:
    """Begin a study."""
    from medlive.service.studies import start_study

    try:
        what, drawn_by = StudyKind(kind), Stratum(stratum)
        size, number = int(sample), int(seed)
    except ValueError as error:
        raise HTTPException(422, f"The form holds what it cannot: {error}.") from error
    cases, answers = (
        (None, run)
        if what is StudyKind.GRADER_CHECK
        else (version.strip() or None, None)
    )
    study = Study(
        name=name.strip(),
        kind=what,
        version=cases,
        run=answers,
        stratum=drawn_by,
        seed=number,
        raters=raters.replace(",", " ").split(),
        adjudicator=adjudicator.strip() or None,
        created_by=account.name,
    )
    try:
        await start_study(
            site.database,
            site.settings,
            study,
            size,
            tuple(judges.split()),
            keep_reports=bool(keep_reports),
            read_sheet=site.evaluation.read_sheet if site.evaluation else None,
        )
    except MedliveError as error:
        raise HTTPException(422, error.message) from error
    return RedirectResponse(f"/review/studies/{study.name}/results", 303)


@router.get("/studies/{name}")
async def show_item(
    request: Request,
    site: SiteOf,
    account: Reviewer,
    name: str,
    item: int | None = None,
) -> Response:
    """The next item that the rater has not rated, or the one of this position."""
    from medlive.service.studies import order_for

    study = await _study(site, name)
    if account.name not in study.raters:
        raise HTTPException(403, "You do not rate in this study.")
    async with site.database.begin() as session:
        items = order_for(study, account.name, await studies.items_of(session, name))
        own = {
            r.item: r
            for r in await studies.ratings_of(session, name)
            if r.rater == account.name
        }
        wanted = (
            i
            for i in items
            if (i.item not in own if item is None else i.position == item)
        )
        if (chosen := next(wanted, None)) is None:
            links = [("To the desk", "/review")]
            if items and not study.closed_at:
                first = f"/review/studies/{name}?item={items[0].position}"
                links.insert(0, ("Look at your ratings again", first))
            text = "You rated everything. Thank you."
            return render(request, NoticePage(study.name, text, links))
        cases = await studies.read_revisions(
            session, [(chosen.case_id, chosen.revision)]
        )
    place = items.index(chosen)
    before = items[place - 1].position if place else None
    after = items[place + 1].position if place + 1 < len(items) else None
    case = cases[chosen.case_id, chosen.revision]
    return render(
        request,
        RatePage(
            study,
            chosen,
            case,
            own.get(chosen.item),
            len(own),
            len(items),
            before,
            after,
        ),
    )


@router.post("/studies/{name}/items/{position}")
async def give(
    site: SiteOf,
    account: Reviewer,
    name: str,
    position: int,
    rating: Text = "",
    comment: Text = "",
    back: Text = "",
) -> Response:
    """Keep a rating, and go on to the next item."""
    from medlive.service.studies import rate

    study = await _study(site, name)
    try:
        await rate(site.database, study, account.name, position, rating, comment)
    except MedliveError as error:
        raise HTTPException(
            403 if account.name not in _people(study) else 422, error.message
        ) from error
    return RedirectResponse(local_path(back or f"/review/studies/{name}"), 303)


@router.get("/studies/{name}/results")
async def show_results(
    request: Request, site: SiteOf, account: Reviewer, name: str
) -> Response:
    """Agreement and disagreements: for admins and the adjudicator, and for none who may still rate."""
    from medlive.service.studies import evaluate

    study = await _study(site, name)
    is_admin, settles = account.may(Role.ADMIN), account.name == study.adjudicator
    if not (is_admin or settles):
        raise HTTPException(403, "The results are for the adjudicator and for admins.")
    async with site.database.begin() as session:
        results = await evaluate(session, study)
        shown = [*(d.item for d in results.disagreements), *results.overturned]
        cases = await studies.read_revisions(
            session, {(item.case_id, item.revision) for item in shown}
        )
    return render(
        request,
        ResultsPage(
            study, results, cases, settles, is_admin, _still_rates(account, study)
        ),
    )


@router.post("/studies/{name}/close")
async def end(site: SiteOf, account: Admin, name: str) -> Response:
    """Let nobody rate any more."""
    from medlive.service.studies import close

    try:
        await close(site.database, await _study(site, name), by=account.name)
    except MedliveError as error:
        raise HTTPException(422, error.message) from error
    return RedirectResponse(f"/review/studies/{name}/results", 303)


@router.get("/studies/{name}/ratings.csv")
async def export(
    site: SiteOf, account: Admin, name: str, adjudicated: bool = False
) -> Response:
    """The raters' ratings, or the adjudicator's, as a table; `medlive eval meta RUN --human` reads a grader check's."""
    study = await _study(site, name)
    if _still_rates(account, study):
        raise HTTPException(
            403, "You rate here: the ratings are given out once the study is closed."
        )
    async with site.database.begin() as session:
        ratings = await studies.ratings_of(session, name)
    people = {study.adjudicator} if adjudicated else set(study.raters)
    text = io.StringIO()
    writer = csv.writer(text)
    columns, blinding = ["item", "rater", "rating"], []
    if study.kind is StudyKind.GRADER_CHECK:
        columns, blinding = ["item", "rater", "met", "blinding"], [study.blinding.value]
    writer.writerow(columns)
    for rating_row in ratings:
        if rating_row.rater in people:
            rating = "" if rating_row.rating is None else rating_row.rating
            writer.writerow([rating_row.item, rating_row.rater, rating, *blinding])
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.csv"',
        "Cache-Control": "no-store",
    }
    return Response(
        text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers
    )


async def _study(site: Site, name: str) -> Study:
    async with site.database.begin() as session:
        try:
            return await studies.find_study(session, name)
        except UsageError as error:
            raise HTTPException(404, error.message) from error


def _still_rates(account: Account, study: Study) -> bool:
    """Whether the account must not learn what others gave, since it may still change what it gives itself."""
    return account.name in study.raters and study.closed_at is None


def _people(study: Study) -> tuple[str | None, ...]:
    return (*study.raters, study.adjudicator)


def _takes_part(study: Study, account: Account) -> bool:
    return account.name in _people(study)
