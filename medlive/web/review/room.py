"""The routes of the review desk."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Form, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel

from medlive.db import studies
from medlive.db.accounts import Account
from medlive.db.curation.reviews import (
    list_disputes,
    list_held,
    list_waiting_overrules,
)
from medlive.db.runs import list_evaluations
from medlive.db.studies import Study
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Stratum, StudyKind
from medlive.errors import MedliveError
from medlive.guard.bounds import HELD_SHOWN
from medlive.web.accounts.access import Admin, Reviewer
from medlive.web.pages import (
    TEMPLATES,
    csv_file,
    local_path,
    notice,
    refusing,
    render,
)
from medlive.web.site import Room, Section, SiteOf, Text, site_of

router = APIRouter(prefix="/review")
REVIEW = Room(False, router, (Section("Review", "/review", Role.REVIEWER),))


SCALES: Mapping[str, Sequence[tuple[int, str]]] = {
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


async def find_study(site: SiteOf, name: str) -> Study:
    """The study of that name: a dependency of routes. Raises HTTPException 404."""
    with refusing(404, MedliveError):
        return await site.database.ask(studies.find_study, name)


TheStudy = Annotated[Study, Depends(find_study)]


@router.get("")
async def show_desk(request: Request, site: SiteOf, account: Reviewer) -> Response:
    """The desk: the account's studies, held cases, disputes, and overruled threads that wait."""
    is_admin = account.may(Role.ADMIN)
    async with site.database.begin() as session:
        shown = []
        for study in await studies.list_studies(session):
            if is_admin or account.name in (*study.raters, study.adjudicator):
                shown.append(study)
        waiting = await list_held(session, limit=HELD_SHOWN + 1)
        return render(
            request,
            "review/index.html",
            shown=shown,
            waiting=waiting[:HELD_SHOWN],
            more_held=len(waiting) > HELD_SHOWN,
            disputes=await list_disputes(session),
            overruled=await list_waiting_overrules(session),
            user=account,
            is_admin=is_admin,
            runs=await list_evaluations(session) if is_admin else (),
            kinds=tuple(StudyKind),
            strata=tuple(Stratum),
        )


class StudyForm(BaseModel):
    """The form to begin a study."""

    name: str = ""
    kind: StudyKind
    version: str = ""
    run: str = ""
    judges: str = ""
    stratum: Stratum = Stratum.NONE
    sample: int
    seed: int = 0
    raters: str = ""
    adjudicator: str = ""


@router.post("/studies")
async def begin(
    site: SiteOf, account: Admin, form: Annotated[StudyForm, Form()]
) -> Response:
    """Begin a study."""
    from medlive.service.studies import start_study

    is_check = form.kind is StudyKind.GRADER_CHECK
    study = Study(
        name=form.name.strip(),
        kind=form.kind,
        version=None if is_check else form.version.strip() or None,
        run=form.run if is_check else None,
        stratum=form.stratum,
        seed=form.seed,
        raters=form.raters.replace(",", " ").split(),
        adjudicator=form.adjudicator.strip() or None,
        created_by=account.name,
    )
    with refusing(422, MedliveError):
        await start_study(
            site.database,
            site.settings,
            study,
            form.sample,
            tuple(form.judges.split()),
            read_sheet=site.evaluation.read_sheet if site.evaluation else None,
        )
    return RedirectResponse(f"/review/studies/{study.name}/results", 303)


@router.get("/studies/{name}")
async def show_item(
    request: Request, account: Reviewer, study: TheStudy, item: int | None = None
) -> Response:
    """The next item that the rater has not rated, or the one at position `item`."""
    from medlive.service.studies import order_for

    if account.name not in study.raters:
        raise HTTPException(403, "You do not rate in this study.")
    async with site_of(request).database.begin() as session:
        stored = await studies.items_of(session, study.name)
        items = order_for(study, account.name, stored)
        own = {}
        for rating in await studies.ratings_of(session, study.name):
            if rating.rater == account.name:
                own[rating.item] = rating
        place = -1
        for number, offered in enumerate(items):
            is_rated = offered.item in own
            if offered.position == item or (item is None and not is_rated):
                place = number
                break
        if place < 0:
            links = [("To the desk", "/review")]
            if items and not study.closed_at:
                first = f"/review/studies/{study.name}?item={items[0].position}"
                links.insert(0, ("Look at your ratings again", first))
            text = "You rated everything. Thank you."
            return notice(request, study.name, text, links=links)
        chosen = items[place]
        revision = chosen.case_id, chosen.revision
        cases = await studies.read_revisions(session, [revision])
    after = items[place + 1 : place + 2]
    return render(
        request,
        "review/rate.html",
        study=study,
        item=chosen,
        case=cases[revision],
        own=own.get(chosen.item),
        done=len(own),
        total=len(items),
        before=items[place - 1].position if place else None,
        after=after[0].position if after else None,
    )


@router.post("/studies/{name}/items/{position}")
async def give(
    site: SiteOf,
    account: Reviewer,
    study: TheStudy,
    position: int,
    rating: Text,
    comment: Text,
    back: Text,
) -> Response:
    """Keep a rating, and go on to the next item."""
    from medlive.service.studies import rate

    takes_part = account.name in (*study.raters, study.adjudicator)
    with refusing(422 if takes_part else 403, MedliveError):
        await rate(site.database, study, account.name, position, rating, comment)
    return RedirectResponse(local_path(back or f"/review/studies/{study.name}"), 303)


@router.get("/studies/{name}/results")
async def show_results(
    request: Request, site: SiteOf, account: Reviewer, study: TheStudy
) -> Response:
    """Agreement and disagreements: for admins and the adjudicator, and for none who may still rate."""
    from medlive.service.studies import evaluate

    is_admin, settles = account.may(Role.ADMIN), account.name == study.adjudicator
    if not (is_admin or settles):
        raise HTTPException(403, "The results are for the adjudicator and for admins.")
    async with site.database.begin() as session:
        results = await evaluate(session, study)
        shown = [*(d.item for d in results.disagreements), *results.overturned]
        revisions = {(item.case_id, item.revision) for item in shown}
        return render(
            request,
            "review/results.html",
            study=study,
            results=results,
            cases=await studies.read_revisions(session, revisions),
            settles=settles,
            is_admin=is_admin,
            blind=_still_rates(account, study),
        )


@router.post("/studies/{name}/close")
async def end(site: SiteOf, account: Admin, study: TheStudy) -> Response:
    """Let nobody rate any more."""
    from medlive.service.studies import close

    with refusing(422, MedliveError):
        await close(site.database, study, by=account.name)
    return RedirectResponse(f"/review/studies/{study.name}/results", 303)


@router.get("/studies/{name}/ratings.csv")
async def export(
    site: SiteOf, account: Admin, study: TheStudy, adjudicated: bool = False
) -> Response:
    """The raters' ratings, or the adjudicator's, as a table; `medlive eval meta RUN --human` reads a grader check's."""
    if _still_rates(account, study):
        raise HTTPException(
            403, "You rate here: the ratings are given out once the study is closed."
        )
    ratings = await site.database.ask(studies.ratings_of, study.name)
    people = {study.adjudicator} if adjudicated else set(study.raters)
    text = io.StringIO()
    writer = csv.writer(text)
    is_check = study.kind is StudyKind.GRADER_CHECK
    writer.writerow(
        ["item", "rater", *(["met", "blinding"] if is_check else ["rating"])]
    )
    blinding = [study.blinding] if is_check else []
    for row in ratings:
        if row.rater in people:
            # An empty cell is a rating that was not given.
            writer.writerow([row.item, row.rater, row.rating, *blinding])
    return csv_file(study.name, text.getvalue())


def _still_rates(account: Account, study: Study) -> bool:
    """Whether the account may still rate in the study, and so must not see others' ratings."""
    return account.name in study.raters and study.closed_at is None
