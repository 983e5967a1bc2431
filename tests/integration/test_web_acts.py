"""Acts by HTTP: each needs a reason, changes what it should, and stands in the log; a takedown erases reasons."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from selectolax.lexbor import LexborHTMLParser as Html
from sqlalchemy import text

from medlive.clock import iso_week, now
from medlive.config import ScheduleSection, Settings
from medlive.db.audit_log import list_entries, verify_log
from medlive.db.curation.cases import latest_case
from medlive.db.curation.reviews import list_disputes
from medlive.db.session import Database
from medlive.rubric.model import AskedPart
from medlive.service.curation.editing import CaseEdit, edit_case
from medlive.service.schedule.steps import latest_slot
from medlive.web.site import Site
from tests.support.reviewing import status_of
from tests.support.web import Browser, add_account, served, session_of


@pytest.fixture
async def admin(
    database: Database, web_database: Database, settings: Settings, tmp_path: Path
) -> AsyncIterator[Browser]:
    """An admin's browser, which sends the token of forms."""
    site = Site(web_database, settings, tmp_path)
    async with served(site) as browser:
        browser.headers.update(
            await session_of(site, await add_account(database, "ada"))
        )
        yield browser


async def logged(database: Database) -> list[tuple[Any, ...]]:
    """What the log says, the oldest first, without accounts; its chain holds."""
    async with database.begin() as session:
        assert (await verify_log(session)).faults == ()
        found = await list_entries(session)
    return [
        (e.by, e.action.value, e.subject, e.reason)
        for e in reversed(found)
        if not e.subject.startswith("account:")
    ]


LOG = "/acts/log"


async def act(
    browser: Browser, subject: str, act: str, reason: str = "Checked.", **more: str
) -> httpx2.Response:
    return await browser.post(
        f"/acts/{subject}", data={"act": act, "reason": reason, **more}
    )


async def test_acts_on_a_case_change_it_undo_each_other_and_are_logged(
    database: Database,
    admin: Browser,
    held: str,
) -> None:
    subject = f"case/{held}"
    for name, reason, status in (
        ("approve", "Fine.", "ready"),
        ("reject", "No.", "rejected"),
        ("approve", "So be it.", "ready"),
    ):
        for empty in ("", "  "):
            assert (await act(admin, subject, name, empty)).status_code == 422
        done = await act(admin, subject, name, reason)
        assert (done.status_code, done.headers["Location"]) == (303, f"/acts/{subject}")
        assert await status_of(database, held) == status
    assert 'name="revision" value="1"' in (await admin.get(f"/acts/{subject}")).text
    stale = await act(admin, subject, "reject", "I saw another.", revision="2")
    assert (stale.status_code, "has changed since" in stale.text) == (422, True)
    assert [entry[1:] for entry in await logged(database)] == [
        ("approve", f"case:{held}", "Fine."),
        ("reject", f"case:{held}", "No."),
        ("approve", f"case:{held}", "So be it."),
    ]
    assert {entry[0] for entry in await logged(database)} == {"ada"}
    assert "So be it." in (await admin.get(f"/acts/{subject}")).text
    assert "So be it." in (await admin.get("/acts/log")).text


async def test_a_step_is_cleared_and_a_quarantine_lifted_from_the_overview(
    database: Database, admin: Browser
) -> None:
    missing = await act(admin, "step/queue", "clear_step")
    assert (missing.status_code, "nothing is recorded of queue" in missing.text) == (
        422,
        True,
    )
    async with database.begin() as session:
        week = iso_week(latest_slot(now(), ScheduleSection().queue))
        await session.execute(
            text(
                "INSERT INTO pipeline_runs (command, iso_week, code_version, settings, outcome, finished_at)"
                " VALUES ('scheduler queue', :week, 'x', '{}', 'done', now())"
            ),
            {"week": week},
        )
    assert "/acts/step/queue" in (await admin.get("/audit")).text
    done = await act(admin, "step/queue", "clear_step", "Another list.", back="/audit")
    assert (done.status_code, done.headers["Location"]) == (303, "/audit")
    async with database.begin() as session:
        outcome = await session.scalar(text("SELECT outcome FROM pipeline_runs"))
    assert outcome == "partial"
    async with database.begin() as session:
        await session.execute(
            text(
                "INSERT INTO sources (name, kind, quarantined_at, quarantine_reason)"
                " VALUES ('icliniq', 'site', now(), 'drift')"
            )
        )
    assert "Why icliniq may be harvested again" in (await admin.get("/audit")).text
    assert (
        await act(admin, "source/icliniq", "lift_quarantine", "New layout.", back=LOG)
    ).status_code == 303
    assert (
        await act(admin, "source/nowhere", "lift_quarantine", "New layout.")
    ).status_code == 422
    async with database.begin() as session:
        assert await session.scalar(text("SELECT quarantined_at FROM sources")) is None
    assert await logged(database) == [
        ("ada", "clear_step", "step:queue", "Another list."),
        ("ada", "lift_quarantine", "source:icliniq", "New layout."),
    ]


async def test_disputes_redactions_and_withdrawals(
    database: Database, admin: Browser, held: str
) -> None:
    subject = f"case/{held}"
    assert (
        await act(admin, subject, "dispute", "Wrong dose.", criterion="c1")
    ).status_code == 303
    async with database.begin() as session:
        [dispute] = await list_disputes(session)
    assert (dispute.criterion_id, dispute.opened_by) == ("c1", "ada")
    assert (
        await act(
            admin, f"dispute/{dispute.number}", "resolve", "It is right.", back=LOG
        )
    ).status_code == 303
    assert (
        await act(admin, subject, "redact", "A name.", words="dry cough")
    ).status_code == 303
    async with database.begin() as session:
        case = await latest_case(session, held)
        assert await list_disputes(session) == []
    assert case is not None
    assert "dry cough" not in str(case.text)
    assert "[redacted]" in case.text.query
    again = await act(admin, subject, "redact", "A name.", words="dry cough")
    assert (again.status_code, "nothing in case" in again.text) == (422, True)
    final = f"/acts/withdraw/{held}"
    why = {"reason": "Advice is wrong.", "type": "erratum", "criterion": ""}
    for wrong in ({"typed": ""}, {"typed": held[:-1]}, {"type": "takedown"}):
        sent = await admin.post(final, data=why | {"typed": held} | wrong)
        assert (sent.status_code, "Advice is wrong." in sent.text) == (422, True)
    # The address of harmless acts does not withdraw.
    assert (await act(admin, subject, "withdraw", type="erratum")).status_code == 422
    assert await status_of(database, held) == "held"
    done = await admin.post(final, data=why | {"typed": held})
    assert done.status_code == 303
    assert await status_of(database, held) == "withdrawn"
    assert "Undo the withdrawal</button>" in (await admin.get(f"/acts/{subject}")).text
    assert (
        await act(admin, subject, "reinstate", "It is right.", criterion="c1")
    ).status_code == 422
    assert (await act(admin, subject, "reinstate", "It is right.")).status_code == 303
    assert await status_of(database, held) == "held"
    names = [entry[1] for entry in await logged(database)]
    assert names == ["dispute", "resolve", "redact", "withdraw", "reinstate"]


async def edited_fields(admin: Browser, case_id: str) -> dict[str, list[str]]:
    """The fields of the form to edit a case, as they are shown."""
    shown = Html((await admin.get(f"/acts/case/{case_id}")).text)
    fields: dict[str, list[str]] = {}
    for field in shown.css("form.edit [name]"):
        value = field.text() or str(field.attributes.get("value") or "")
        if field.tag == "select":
            chosen = field.css_first("option[selected]") or field.css_first("option")
            value = chosen.text()
        fields.setdefault(str(field.attributes["name"]), []).append(value)
    return fields


async def test_a_form_keeps_what_was_typed_and_texts_of_several_lines(
    database: Database, admin: Browser, held: str
) -> None:
    wrong = await admin.post(
        f"/acts/case/{held}/edit",
        data={
            **await edited_fields(admin, held),
            "reason": "Shorter.",
            "advice": "<b>Stop it.</b>",
            "narrative": " ",
        },
    )
    assert wrong.status_code == 422
    assert "&lt;b&gt;Stop it.&lt;/b&gt;" in wrong.text
    assert "narrative: String should have at least 1 character" in wrong.text
    assert await logged(database) == []
    lines = CaseEdit(narrative="Aged 34 years.\n\nWith a dry cough for 3 weeks.")
    await edit_case(database, held, lines, "In two paragraphs.")
    fields = await edited_fields(admin, held)
    # As a browser sends it.
    fields["narrative"] = [fields["narrative"][0].replace("\n", "\r\n")]
    fields["reason"] = ["It is harder than that."]
    is_high = fields["difficulty"] == ["high"]
    fields["difficulty"] = ["low" if is_high else "high"]
    done = await admin.post(f"/acts/case/{held}/edit", data=fields)
    assert done.status_code == 303
    again = await admin.post(f"/acts/case/{held}/edit", data=fields)
    assert (again.status_code, "was edited since" in again.text) == (422, True)
    case = await database.ask(latest_case, held)
    assert (case.revision, case.text.narrative) == (3, lines.narrative)


async def test_an_edit_of_an_older_revision_overwrites_nothing(
    database: Database, admin: Browser, held: str
) -> None:
    page, fields = f"/acts/case/{held}", await edited_fields(admin, held)
    fields["reason"] = ["Shorter."]
    assert fields["asked_id"] == ["q1"]
    fields["asked"] = ["What makes me cough"]
    blank = await admin.post(f"{page}/edit", data=fields | {"asked": [" "]})
    assert (blank.status_code, "has no text" in blank.text) == (422, True)
    # Fields are put together by their place: one that is lost or doubled would move the others.
    for name in ("axis", "id", "asked"):
        for values in (fields[name][1:], [*fields[name], fields[name][0]]):
            moved = await admin.post(f"{page}/edit", data=fields | {name: values})
            assert (moved.status_code, "missing or repeated" in moved.text) == (
                422,
                True,
            )
    unmarked = {name: value for name, value in fields.items() if name != "revision"}
    assert (await admin.post(f"{page}/edit", data=unmarked)).status_code == 422
    sent = []
    for query in ("Why do I cough?", "Why do I cough so?"):
        sent.append(await admin.post(f"{page}/edit", data=fields | {"query": [query]}))
    assert [answer.status_code for answer in sent] == [303, 422]
    assert "Why do I cough so?" in sent[1].text
    assert "replaces revision 2" in sent[1].text
    async with database.begin() as session:
        case = await latest_case(session, held)
    assert case is not None
    assert (case.revision, case.text.query) == (2, "Why do I cough?")
    assert case.rubric.asked[0] == AskedPart("q1", "What makes me cough")
    # The log leads whoever may read it to a page that they may read too.
    assert f'href="/audit/cases/{held}"' in (await admin.get(LOG)).text


async def test_acts_on_a_thread_and_a_takedown_that_erases_their_reasons(
    database: Database, settings: Settings, admin: Browser, rejected: int
) -> None:
    done = await act(admin, "thread/test/1", "overrule", "Because.", back=LOG)
    assert done.status_code == 303
    assert "overruled this veto" in (await admin.get("/audit/threads/test/1")).text
    assert "wait for a second person" in (await admin.get("/review")).text
    # The same form sent twice is done once.
    twice = await act(admin, "thread/test/1", "overrule", "Because.", back=LOG)
    assert (twice.status_code, len(await logged(database))) == (422, 1)
    refused = await act(admin, "thread/test/1", "overrule", "I too.", back=LOG)
    assert (refused.status_code, "a second person" in refused.text) == (422, True)
    assert "Nothing was changed" in refused.text
    assert "Because." in refused.text
    assert f'href="{LOG}">Back' in refused.text
    assert (await act(admin, "thread/test/2", "overrule")).status_code == 422
    assert (await act(admin, "thread/test/1", "approve")).status_code == 422
    assert [entry[1:] for entry in await logged(database)] == [
        ("overrule", "thread:test/1", "Because."),
    ]
    # What nobody else may change only the owner erases.
    final, asked = "/acts/take-down/test/1", {"reason": "The author asked."}
    refused = await admin.post(final, data=asked | {"typed": "test/1"})
    assert (refused.status_code, "may not do this" in refused.text) == (422, True)
    assert "medlive thread takedown" in refused.text
    assert [entry[1] for entry in await logged(database)] == ["overrule"]
    site = Site(database, settings, settings.home)
    async with served(site) as owners:
        owners.headers.update(
            await session_of(site, await add_account(database, "owner"))
        )
        assert (await act(owners, "thread/test/1", "take_down")).status_code == 422
        unsure = await owners.post(final, data=asked | {"typed": "test/2"})
        assert "type test/1 to confirm" in unsure.text
        assert "Erased: 1 revision" in unsure.text
        done = await owners.post(final, data=asked | {"typed": "test/1"})
        again = await owners.get(final)
        assert "It was taken down on" in again.text
        undone = await act(
            owners, "thread/test/1", "lift_takedown", "It was not.", back=LOG
        )
    assert (done.status_code, undone.status_code) == (303, 303)
    assert [entry[1:] for entry in await logged(database)] == [
        ("overrule", "thread:test/1", None),
        ("take_down", "thread:test/1", "The author asked."),
        ("lift_takedown", "thread:test/1", "It was not."),
    ]
    assert "erased by a takedown" in (await admin.get("/acts/log")).text
