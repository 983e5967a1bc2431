"""Cases and snapshots: one revision for each wording, and what is settled cannot be changed."""

from dataclasses import replace

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from medlive.db.curation import cases
from medlive.db.release import fixing, snapshots
from medlive.db.release.rows import read_snapshots
from medlive.db.session import Database, Session
from medlive.db.tables.release import CaseRow, CaseStatus, SnapshotRow
from medlive.errors import UsageError
from medlive.integrity.digest import digest_text
from medlive.rubric.model import (
    Axis,
    CompletedPoint,
    Completion,
    Criterion,
    Omission,
    OmittedFact,
    Origin,
)
from medlive.snapshot.model import SnapshotCase
from tests.support.decisions import KEPT, KEY, PROMPT, RUBRIC, make_case
from tests.support.triggers import refused_by_trigger

GATES = digest_text("gates")


async def frozen(database: Database, version: str) -> SnapshotRow:
    async with database.begin() as session:
        await fixing.save_verdicts(
            session, GATES, [(i, n, []) for i, n in await pending(session)]
        )
    async with database.begin() as session:
        info = await snapshots.begin_snapshot(session, version)
        assert (
            await fixing.judge(
                session,
                version,
                info.parent,
                GATES,
                publishable_only=False,
                hold_unproved=False,
            )
            == 0
        )
        await fixing.add_members(session, version, due=[], held_out=[])
        numbers = await snapshots.count_members(session, version)
        return await snapshots.freeze_snapshot(
            session,
            SnapshotRow(
                version=version,
                manifest={
                    "counts": {"cases": numbers.cases, "criteria": numbers.criteria}
                },
                manifest_digest=digest_text(version),
                sums_digest=digest_text(version + " sums"),
                signature=None,
                path="somewhere",
                publishable=True,
                why_not=[],
            ),
        )


async def pending(session: Session) -> list[tuple[str, int]]:
    parent = await snapshots.latest_frozen(session)
    return await fixing.unchecked(
        session, parent.version if parent else None, GATES, after="", most=99
    )


def members(database: Database, version: str) -> list[SnapshotCase]:
    with read_snapshots(database.engine.url, version=version) as reader:
        return list(reader.cases())


async def test_a_case_has_one_stable_id_and_a_revision_for_each_wording(
    database: Database,
) -> None:
    first = await make_case(database)
    assert (first.revision, first.status) == (1, "new")
    assert first.case_id == cases.case_id_of("forum", "t1", KEY)
    assert first.case_id != cases.case_id_of("forum", "t1", b"another key")
    assert (await make_case(database)).status == "unchanged"
    heavier = replace(
        RUBRIC, criteria=(replace(RUBRIC.criteria[0], points=6), RUBRIC.criteria[1])
    )
    again = await make_case(database, rubric=heavier)
    assert (again.case_id, again.revision, again.status) == (
        first.case_id,
        2,
        "revised",
    )
    async with database.begin() as session:
        ready = await cases.latest_case(session, first.case_id)
    assert ready is not None
    assert (ready.revision, ready.rubric, ready.text) == (2, heavier, KEPT.text)


async def test_held_and_withdrawn_cases_are_not_ready(database: Database) -> None:
    held = await make_case(database, 1, held="two facts in one criterion")
    gone = await make_case(database, 2)
    await make_case(database, 3)
    async with database.begin() as session:
        await cases.set_status(session, gone.case_id, CaseStatus.WITHDRAWN, "retracted")
        with pytest.raises(UsageError):
            await cases.lock_case(session, "ml-000000000000")
    assert (await make_case(database, 2)).status == "unchanged"
    async with database.begin() as session:
        rows = {
            row.id: row.status_reason for row in await session.scalars(select(CaseRow))
        }
    ready = cases.case_id_of("forum", "t3", KEY)
    assert rows == {
        held.case_id: "two facts in one criterion",
        gone.case_id: "retracted",
        ready: None,
    }


async def test_snapshots_hold_their_rows_and_know_first_releases(
    database: Database,
) -> None:
    one = await make_case(database, 1)
    info = await frozen(database, "2026.W10")
    assert (info.cases, info.criteria, info.parent, info.publishable) == (
        1,
        2,
        None,
        True,
    )
    two = await make_case(database, 2)
    assert (await frozen(database, "2026.W11")).parent == "2026.W10"
    async with database.begin() as session:
        rows = members(database, "2026.W11")
        assert {c.case_id: c.first_release for c in rows} == {
            one.case_id: "2026.W10",
            two.case_id: "2026.W11",
        }
        assert [c.points for c in rows[0].criteria] == [5, -10]
        assert len({c.criterion_id for case in rows for c in case.criteria}) == 4
        assert rows == members(database, "2026.W11")
        provenance = await snapshots.load_provenance(
            session, "2026.W11", code_version="1"
        )
        assert provenance.prompts == {"screener.extract": PROMPT.digest}
        assert [e.role for e in provenance.engines] == ["screener", "validator"]
        assert provenance.thresholds == {"sufficiency": 0.5, "alignment": 0.5}
        assert [s.version for s in await snapshots.list_snapshots(session)] == [
            "2026.W11",
            "2026.W10",
        ]
    for version in ("2026.W11", "2026.W09"):
        with pytest.raises(UsageError):
            async with database.begin() as session:
                await snapshots.begin_snapshot(session, version)


async def test_counts_that_are_not_the_members_freeze_nothing(
    database: Database,
) -> None:
    await make_case(database)
    async with database.begin() as session:
        await snapshots.begin_snapshot(session, "2026.W10")
        with pytest.raises(snapshots.MembersGone):
            await snapshots.freeze_snapshot(
                session,
                SnapshotRow(
                    version="2026.W10",
                    manifest={"counts": {"cases": 1, "criteria": 2}},
                    manifest_digest=digest_text(""),
                    sums_digest=digest_text(""),
                    signature=None,
                    path="p",
                    publishable=True,
                    why_not=[],
                ),
            )


REFUSED_CHANGES = [
    "UPDATE snapshots SET path = 'elsewhere'",
    "UPDATE snapshots SET state = 'building', frozen_at = NULL",
    "DELETE FROM snapshots",
    "TRUNCATE snapshots CASCADE",
    "TRUNCATE snapshot_members",
    "DELETE FROM snapshot_members",
    "UPDATE snapshot_members SET revision = 1",
    "UPDATE snapshot_members SET salt = repeat('0', 64)",
    "UPDATE snapshots SET sums_digest = manifest_digest",
    "INSERT INTO snapshot_changes VALUES ('2026.W10', 'x', 'added', 'x', NULL, 1)",
    "INSERT INTO snapshot_kept_out VALUES ('2026.W10', 'x', 1, 'text', 'x')",
    "TRUNCATE snapshot_changes",
    "UPDATE snapshot_members SET version = '2026.W12'",
    "INSERT INTO snapshot_members SELECT '2026.W10', case_id, revision, '2026.W10' FROM case_revisions"
    " WHERE case_id NOT IN (SELECT case_id FROM snapshot_members)",
    "UPDATE case_revisions SET query = 'else'",
    "DELETE FROM criteria",
    "UPDATE criteria SET points = 1",
    "UPDATE thread_revisions SET title = 'else'",
    "DELETE FROM thread_revisions",
    "UPDATE replies SET text = 'else'",
    "DELETE FROM replies",
    "UPDATE prompts SET text = 'else'",
    "UPDATE curations SET outcome = 'rejected', reason = 'no_query'",
    "UPDATE elements SET quote = 'else'",
    "UPDATE claim_verdicts SET reason = 'else'",
    "DELETE FROM claim_evidence",
    "UPDATE cross_examinations SET summary = 100",
    "DELETE FROM cross_questions",
    "UPDATE passages SET text = 'else'",
    "TRUNCATE replies CASCADE",
]


async def test_what_is_settled_cannot_be_changed(database: Database) -> None:
    await make_case(database)
    await frozen(database, "2026.W10")
    await make_case(database, 2)
    async with database.begin() as session:
        await snapshots.begin_snapshot(session, "2026.W12")

    async def attempt(change: str) -> None:
        async with database.begin() as session:
            await session.execute(text(change))

    for change in REFUSED_CHANGES:
        with refused_by_trigger():
            await attempt(change)
    assert len(members(database, "2026.W10")) == 1


async def test_points_are_bounded_and_never_zero(database: Database) -> None:
    for points in (-11, 0, 11):
        rubric = replace(RUBRIC, criteria=(replace(RUBRIC.criteria[0], points=points),))
        with pytest.raises(IntegrityError):
            await make_case(database, rubric=rubric)


async def test_a_criterion_keeps_what_it_rests_on(database: Database) -> None:
    passage = Criterion(
        id="c3",
        position=3,
        criterion="Warns of coughing blood.",
        axis=Axis.SAFETY,
        points=8,
        advice_id=None,
        fact="Coughing blood needs a visit.",
        origin=Origin.EVIDENCE,
        source="c:0:s",
    )
    rubric = replace(RUBRIC, criteria=(*RUBRIC.criteria, passage))
    saved = await make_case(database, rubric=rubric)
    async with database.begin() as session:
        case = await cases.latest_case(session, saved.case_id)
    assert case is not None
    assert case.rubric.criteria == rubric.criteria
    # Another passage is another rubric.
    moved = replace(passage, source="c:1:s")
    again = replace(rubric, criteria=(*RUBRIC.criteria, moved))
    assert (await make_case(database, rubric=again)).status == "revised"
    await frozen(database, "2026.W47")
    [shown] = members(database, "2026.W47")
    assert [(c.origin, c.source) for c in shown.criteria] == [
        ("advice", ""),
        ("advice", ""),
        ("evidence", "c:1:s"),
    ]
    unfounded = replace(passage, source="")
    wrong = replace(rubric, criteria=(*RUBRIC.criteria, unfounded))
    with pytest.raises(IntegrityError, match="origin_has_source"):
        await make_case(database, rubric=wrong)


async def test_what_a_rubric_leaves_out_and_lacks_is_kept(database: Database) -> None:
    omitted = OmittedFact("Drink tea.", "a1", Omission.TRIVIAL, "a habit")
    point = CompletedPoint(
        point="Count the pills.",
        criterion="Advises counting the pills.",
        outcome="not_named",
        source="",
        detail="nobody else",
    )
    completion = Completion(points=(point,), note="one model")
    rubric = replace(RUBRIC, omitted=(omitted,), completion=completion)
    saved = await make_case(database, rubric=rubric)
    async with database.begin() as session:
        case = await cases.latest_case(session, saved.case_id)
    assert case is not None
    assert case.rubric == rubric
