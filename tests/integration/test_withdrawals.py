"""Withdrawals: later snapshots drop what was taken back, frozen ones stay, and the errata say so."""

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from medlive.config import Settings
from medlive.db.curation.cases import CaseContent, add_revision, latest_case
from medlive.db.curation.reviews import list_disputes
from medlive.db.release.withdrawals import must_not_be_given_out, reasons_for
from medlive.db.session import Database
from medlive.db.tables.release import ReviewAction, WithdrawalRow
from medlive.db.threads.takedowns import erase_thread
from medlive.errors import CheckFailed, UsageError
from medlive.instance.paths import snapshots_path
from medlive.integrity.digest import digest_text
from medlive.integrity.signing import PublicKey, generate
from medlive.rubric.model import Axis, Criterion, Origin, Rubric, Theme
from medlive.service.curation.complete import save_case
from medlive.service.curation.review import (
    decide_case,
    dispute_case,
    resolve_dispute,
)
from medlive.service.harvest.takedown import take_down
from medlive.service.release.withdraw import (
    check_public_reason,
    reinstate,
    withdraw,
    write_errata,
)
from medlive.snapshot.errata import WithdrawalKind, load_errata
from tests.support.decisions import KEPT, KEY, START, make_case
from tests.support.instance import Instance
from tests.support.triggers import refused_by_trigger

ERRATUM, PRIVACY = WithdrawalKind.ERRATUM, WithdrawalKind.PRIVACY
WRONG = "The dose is that of another drug."
RUBRIC = Rubric(
    Theme.RESPONSE_DEPTH,
    "Pulmonary & Critical Care",
    tuple(
        Criterion(f"c{n}", n, f"Advises number {n}.", Axis.ACCURACY, points, "a1")
        for n, points in enumerate((5, -10, 3, 2), start=1)
    ),
)


@pytest.fixture
def settings(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """This test's instance, without a signing key."""
    for name in (
        "MEDLIVE_SIGNING_KEY",
        "MEDLIVE_SIGNING_KEY_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    return Settings(home=tmp_path / "home", database_url=SecretStr(database_url))


async def freeze(
    database: Database, version: str, *, held_out: tuple[str, ...] = ()
) -> None:
    """Freeze every ready case at its latest revision, as rows alone; some of them held out."""
    async with database.begin() as session:
        for statement in (
            "INSERT INTO snapshots (version, state) VALUES (:version, 'building')",
            "INSERT INTO snapshot_members"
            " (version, case_id, revision, first_release, held_since, salt, commitment)"
            " SELECT :version, id, max(revision), CASE WHEN id = ANY (:held) THEN NULL ELSE :version END,"
            " CASE WHEN id = ANY (:held) THEN :version END, CASE WHEN id = ANY (:held) THEN repeat('0', 64) END,"
            " CASE WHEN id = ANY (:held) THEN 'sha256:' || repeat('0', 64) END"
            " FROM cases JOIN case_revisions ON case_id = id WHERE status = 'ready' GROUP BY id",
            "UPDATE snapshots SET state = 'frozen', frozen_at = now(), manifest = '{}', manifest_digest = :digest,"
            " cases = 0, criteria = 0, publishable = true, why_not = '[]', path = 'x' WHERE version = :version",
        ):
            values = {
                "version": version,
                "held": list(held_out),
                "digest": digest_text(version),
            }
            await session.execute(
                text(statement),
                {k: v for k, v in values.items() if f":{k}" in statement},
            )


async def latest(database: Database, case_id: str) -> CaseContent:
    async with database.begin() as session:
        found = await latest_case(session, case_id)
    assert found is not None
    return found


async def curated_again(database: Database, case_id: str, rubric: Rubric) -> Any:
    """What saving a case's later curation does."""
    async with database.begin() as session:
        thread = (
            await session.execute(
                text(
                    "SELECT thread_id, curation_id FROM cases JOIN case_revisions ON case_id = id"
                    " WHERE id = :id AND revision = 1"
                ),
                {"id": case_id},
            )
        ).one()
        assert KEPT.text is not None
        content = CaseContent(
            curation_id=thread[1],
            language="en",
            source="forum",
            posted_at=START,
            rubric=rubric,
            text=KEPT.text,
            publishable=True,
        )
        return await save_case(session, content, thread_pk=thread[0], key=KEY)


async def entries(database: Database, settings: Settings) -> list[dict[str, Any]]:
    """The errata, written anew, without their moments."""
    path = await write_errata(database, settings)
    found: list[dict[str, Any]] = json.loads(path.read_text())["entries"]
    for entry in found:
        del entry["issued_at"]
    return found


async def test_errata_follow_what_was_withdrawn_through_the_snapshots(
    database: Database, settings: Settings
) -> None:
    one, two, three, held = [
        (await make_case(database, number, rubric=RUBRIC)).case_id
        for number in range(1, 5)
    ]
    folder = snapshots_path(settings) / "medlive-2026.W46" / "data"
    folder.mkdir(parents=True)
    (folder / "cases.jsonl").write_bytes(b"{}\n")
    await freeze(database, "2026.W46", held_out=(held,))
    # Before W47 the case is curated again: the criterion that was c2 is c3 now, and c2 is another one.
    await curated_again(
        database,
        two,
        replace(
            RUBRIC,
            criteria=(
                RUBRIC.criteria[0],
                replace(RUBRIC.criteria[2], id="c2", position=2),
                replace(
                    RUBRIC.criteria[1],
                    id="c3",
                    position=3,
                    criterion="  ADVISES number 2. ",
                ),
                RUBRIC.criteria[3],
            ),
        ),
    )
    await freeze(database, "2026.W47", held_out=(held,))

    with pytest.raises(UsageError, match="different"):
        await withdraw(database, settings, two, ERRATUM, WRONG, criterion_id="c2")
    # c2 of the latest revision is one thing, c2 of the first another; c3 likewise.
    planned = await withdraw(
        database,
        settings,
        two,
        ERRATUM,
        WRONG,
        criterion_id=f"{two}-c2",
        revision=1,
        dry_run=True,
    )
    assert planned.snapshots == ("2026.W46", "2026.W47")
    assert not (snapshots_path(settings) / "errata.json").exists()
    assert (await latest(database, two)).revision == 2
    done = await withdraw(
        database,
        settings,
        two,
        ERRATUM,
        f" {WRONG}\n",
        criterion_id="c2",
        revision=1,
        by="Ann",
    )
    assert (done.already, done.snapshots, done.signed) == (
        False,
        ("2026.W46", "2026.W47"),
        False,
    )
    assert done.withdrawal.new_revision == 3
    left = (await latest(database, two)).rubric.criteria
    assert [(c.id, c.position) for c in left] == [("c1", 1), ("c2", 2), ("c4", 3)]

    gone = await withdraw(
        database, settings, one, PRIVACY, "It tells who the patient is."
    )
    unseen = await withdraw(database, settings, held, ERRATUM, "Never shown.")
    assert (gone.snapshots, unseen.snapshots) == (("2026.W46", "2026.W47"), ())
    first, second, case = await entries(database, settings)
    number = done.withdrawal.number
    assert first == {
        "id": number,
        "kind": "erratum",
        "case_id": two,
        "criterion_id": f"{two}-c2",
        "reason": WRONG,
        "revision": 1,
        "snapshots": ["2026.W46"],
        "fixed_in": "2026.W47",
    }
    assert (second["criterion_id"], second["revision"], second["snapshots"]) == (
        f"{two}-c3",
        2,
        ["2026.W47"],
    )
    assert (second["id"], second["fixed_in"]) == (number, None)
    assert (case["case_id"], case["criterion_id"], case["kind"]) == (
        one,
        None,
        "privacy",
    )
    async with database.begin() as session:
        assert await reasons_for(session, "2026.W47") == {
            one: "privacy: It tells who the patient is.",
            two: f"erratum: {WRONG}",
            held: "erratum: Never shown.",
        }

    await freeze(database, "2026.W48")
    fixed = await entries(database, settings)
    assert [entry["fixed_in"] for entry in fixed] == [
        "2026.W47",
        "2026.W48",
        "2026.W48",
    ]
    assert [entry["snapshots"] for entry in fixed] == [
        ["2026.W46"],
        ["2026.W47"],
        ["2026.W46", "2026.W47"],
    ]
    async with database.begin() as session:
        members = await session.execute(
            text(
                "SELECT case_id, revision FROM snapshot_members WHERE version = '2026.W48'"
            )
        )
        assert {(row.case_id, row.revision) for row in members} == {
            (two, 3),
            (three, 1),
        }
        # What W48 shows was revised before it: a later revision would have another reason.
        assert await reasons_for(session, "2026.W48") == {}

    # The same again changes nothing and says so; the first words stay. The file is the same bytes.
    path = snapshots_path(settings) / "errata.json"
    before = path.read_bytes()
    for options in (
        {"criterion_id": f"{two}-c2", "revision": 1},
        {"criterion_id": f"{two}-c3", "revision": 2},
    ):
        again = await withdraw(
            database,
            settings,
            two,
            ERRATUM,
            "Other words.",
            **options,  # type: ignore[arg-type]
        )
        assert (again.already, again.withdrawal.number, again.withdrawal.reason) == (
            True,
            number,
            WRONG,
        )
    assert (await withdraw(database, settings, one, PRIVACY, "Once more.")).already
    assert path.read_bytes() == before
    names = {p.name for p in snapshots_path(settings).iterdir()}
    assert names == {"medlive-2026.W46", "errata.json", "errata-public.json"}
    assert (folder / "cases.jsonl").read_bytes() == b"{}\n"
    async with database.begin() as session:
        assert [
            w.withdrawn_by for w in await session.rows(WithdrawalRow, "ORDER BY id")
        ] == [
            "Ann",
            None,
            None,
        ]


async def test_errata_say_that_a_criterion_came_from_no_advice(
    database: Database, settings: Settings
) -> None:
    added = replace(
        RUBRIC.criteria[2], advice_id=None, origin=Origin.EVIDENCE, source="c:0:s"
    )
    first, second, _, last = RUBRIC.criteria
    rubric = replace(RUBRIC, criteria=(first, second, added, last))
    case = await make_case(database, rubric=rubric)
    await freeze(database, "2026.W47")
    for number in (3, 4):
        await withdraw(
            database,
            settings,
            case.case_id,
            ERRATUM,
            WRONG,
            criterion_id=f"{case.case_id}-c{number}",
        )
    errata = load_errata(await write_errata(database, settings))
    assert [entry.origin for entry in errata.entries] == ["evidence", None]


async def test_what_was_withdrawn_does_not_come_back_with_a_later_curation(
    database: Database, settings: Settings
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await withdraw(database, settings, case_id, ERRATUM, WRONG, criterion_id="c2")
    # c2 is in no revision that is latest or shown any more, and is still known.
    assert (
        await withdraw(database, settings, case_id, ERRATUM, WRONG, criterion_id="c2")
    ).already
    assert (await curated_again(database, case_id, RUBRIC)).status == "unchanged"
    spelt = replace(
        RUBRIC.criteria[1],
        criterion="Advises  NUMBER 2.",
        id="c1",
        position=1,
        points=-8,
    )
    fresh = replace(
        RUBRIC.criteria[0], criterion="Advises something else.", id="c5", position=5
    )
    again = await curated_again(
        database,
        case_id,
        replace(RUBRIC, criteria=(spelt, *RUBRIC.criteria[2:], fresh)),
    )
    assert again.status == "revised"
    now = await latest(database, case_id)
    assert [(c.id, c.position) for c in now.rubric.criteria] == [
        ("c3", 1),
        ("c4", 2),
        ("c5", 3),
    ]
    # Where too little would be left the case waits, as it was.
    assert (
        await curated_again(
            database, case_id, replace(RUBRIC, criteria=RUBRIC.criteria[1:3])
        )
    ) == replace(again, status="left")
    async with database.begin() as session:
        row = (
            await session.execute(text("SELECT status, status_reason FROM cases"))
        ).one()
    assert (row.status, row.status_reason) == (
        "held",
        "without its withdrawn criteria the rubric has 1 criterion",
    )
    await curated_again(database, case_id, RUBRIC)
    async with database.begin() as session:
        assert (
            await session.execute(text("SELECT status FROM cases"))
        ).scalar() == "ready"

    # Of c1, c3, c4 none but c1 may go on costing points only, nor alone.
    minus = replace(
        RUBRIC,
        criteria=(
            RUBRIC.criteria[0],
            *(replace(c, points=-3) for c in RUBRIC.criteria[2:]),
        ),
    )
    await curated_again(database, case_id, minus)
    with pytest.raises(CheckFailed) as caught:
        await withdraw(database, settings, case_id, PRIVACY, WRONG, criterion_id="c1")
    assert "withdraw the case" in (caught.value.hint or "")
    await withdraw(database, settings, case_id, PRIVACY, WRONG, criterion_id="c3")
    with pytest.raises(CheckFailed, match="1 criterion"):
        await withdraw(database, settings, case_id, PRIVACY, WRONG, criterion_id="c4")
    await withdraw(database, settings, case_id, PRIVACY, WRONG)
    with pytest.raises(CheckFailed, match="whole case"):
        await withdraw(database, settings, case_id, PRIVACY, WRONG, criterion_id="c4")
    assert (await curated_again(database, case_id, RUBRIC)).status == "revised"
    async with database.begin() as session:
        assert (
            await session.execute(text("SELECT status FROM cases"))
        ).scalar() == "withdrawn"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("", "1 to 500"),
        (" \n ", "1 to 500"),
        ("x" * 501, "1 to 500"),
        ("Ask ann@clinic.example about it.", "identifier"),
        ("See https://forum.example/t/1", "identifier"),
        ("The patient is Dr. John Smith.", "identifier"),
        ("Call +1 (415) 555-2671.", "identifier"),
        ("张伟医生的电话是13812345678", "identifier"),
        ("No\x00thing", r"U\+0000"),
        ("half \ud83d", r"U\+D83D"),
        ("rever\u202esed", r"U\+202E"),
    ],
)
def test_a_reason_is_public_and_checked(reason: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        check_public_reason(reason)
    assert "Smith" not in str(caught.value)


async def test_a_takedown_withdraws_what_is_frozen_and_says_nothing_of_its_reason(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, public = generate()
    monkeypatch.setenv("MEDLIVE_SIGNING_KEY", secret)
    shown, unshown = [
        (await make_case(database, number, rubric=RUBRIC)).case_id for number in (1, 2)
    ]
    async with database.begin() as session:
        await session.execute(
            text("UPDATE cases SET status = 'held', status_reason = 'x' WHERE id = :i"),
            {"i": unshown},
        )
    await freeze(database, "2026.W46")
    for case_id in (shown, unshown):
        await dispute_case(
            database, case_id, "The patient wrote to us.", criterion_id="c1"
        )
        await withdraw(database, settings, case_id, ERRATUM, WRONG, criterion_id="c2")
    for number in (1, 2):
        async with database.begin() as session:
            await erase_thread(session, "forum", f"t{number}", "a court's order")
        done = await take_down(
            database, settings, "forum", f"t{number}", "another private word"
        )
        assert done.frozen == ([("2026.W46", shown)] if number == 1 else [])
    path = snapshots_path(settings) / "errata.json"
    found = load_errata(path, public_key=PublicKey.parse(public))
    assert [(e.kind, e.case_id, e.reason) for e in found.entries] == [
        ("erratum", shown, WRONG),
        ("takedown", shown, "taken down"),
    ]
    for private in ("court", "private", "wrote"):
        assert private not in path.read_text()
    async with database.begin() as session:
        assert {
            w.case_id for w in await session.rows(WithdrawalRow, "ORDER BY id")
        } == {shown}
        assert await list_disputes(session, closed=True) == []
        assert await reasons_for(session, "2026.W46") == {shown: "takedown: taken down"}


async def test_withdrawals_and_disputes_cannot_be_rewritten(
    database: Database, settings: Settings
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await withdraw(database, settings, case_id, ERRATUM, WRONG, criterion_id="c2")
    one = await dispute_case(database, case_id, "Is this so?", by="Bo")
    again = await dispute_case(database, case_id, "Is this so?", by="Bo")
    assert again.number == one.number
    two = await dispute_case(
        database, case_id, "And this?", criterion_id=f"{case_id}-c3"
    )
    assert (one.criterion_id, two.criterion_id) == (None, "c3")
    closed = await resolve_dispute(database, one.number, "It is.", by="Cy")
    assert closed.closed_at is not None
    async with database.begin() as session:
        # Another one is open still.
        assert [d.case_id for d in await list_disputes(session)] == [case_id]
        assert [d.number for d in await list_disputes(session)] == [two.number]
        assert [d.resolution for d in await list_disputes(session, closed=True)] == [
            "It is.",
            None,
        ]
    await resolve_dispute(database, two.number, "No.")
    with pytest.raises(CheckFailed):
        await resolve_dispute(database, two.number, "Yes.")
    with pytest.raises(UsageError):
        await resolve_dispute(database, 99, "Yes.")
    await reinstate(database, settings, case_id, "It is right.", criterion_id="c2")
    three = await dispute_case(database, case_id, "Really?")
    again = await dispute_case(database, case_id, "Is this so?", by="Bo")
    assert again.number not in (one.number, three.number), (
        "a closed one is not opened again"
    )
    for refused in (
        "UPDATE withdrawals SET reason = 'else'",
        "DELETE FROM withdrawals",
        "TRUNCATE withdrawals, reinstatements",
        "DELETE FROM reinstatements",
        f"UPDATE disputes SET reason = 'else' WHERE id = {three.number}",
        f"UPDATE disputes SET resolution = 'else' WHERE id = {two.number}",
        f"UPDATE disputes SET closed_at = NULL, closed_by = NULL, resolution = NULL WHERE id = {one.number}",
        "DELETE FROM disputes",
        "TRUNCATE disputes",
    ):
        with refused_by_trigger():
            async with database.begin() as session:
                await session.execute(text(refused))


async def test_every_criterion_that_an_id_has_named_comes_back(
    database: Database, settings: Settings
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await withdraw(database, settings, case_id, ERRATUM, WRONG, criterion_id="c2")
    other = replace(RUBRIC.criteria[1], criterion="Advises something else.")
    criteria = (RUBRIC.criteria[0], other, *RUBRIC.criteria[2:])
    again = await curated_again(database, case_id, replace(RUBRIC, criteria=criteria))
    of = again.revision
    await withdraw(
        database, settings, case_id, ERRATUM, WRONG, criterion_id="c2", revision=of
    )
    await reinstate(database, settings, case_id, "It is right.", criterion_id="c2")
    texts = [c.criterion for c in (await latest(database, case_id)).rubric.criteria]
    assert sorted(texts)[2:] == [
        "Advises number 3.",
        "Advises number 4.",
        "Advises something else.",
    ]
    assert len(texts) == 5


async def test_a_criterion_that_comes_back_makes_the_rubric_unproved(
    database: Database, settings: Settings
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await withdraw(database, settings, case_id, ERRATUM, WRONG, criterion_id="c2")
    case = await latest(database, case_id)
    rubric = replace(case.rubric, ceiling=0.9, floor=0.1, separation=0.4)
    proved = replace(case, rubric=rubric)
    async with database.begin() as session:
        await add_revision(session, case_id, proved)
    await reinstate(database, settings, case_id, "It is right.", criterion_id="c2")
    rubric = (await latest(database, case_id)).rubric
    assert (len(rubric.criteria), rubric.ceiling) == (4, None)


async def test_a_snapshot_without_a_withdrawn_criterion_is_given_out(
    database: Database, settings: Settings
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await freeze(database, "2026.W46")
    # The second kind makes no new revision: the latest lacks the criterion already.
    for kind in (ERRATUM, PRIVACY):
        await withdraw(database, settings, case_id, kind, WRONG, criterion_id="c2")
    await freeze(database, "2026.W47")
    async with database.begin() as session:
        assert await must_not_be_given_out(session) == {"2026.W46"}


async def test_a_snapshot_from_before_a_withdrawn_criterion_is_given_out(
    database: Database, settings: Settings
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await freeze(database, "2026.W46")
    added = replace(RUBRIC.criteria[0], id="c5", position=5, criterion="Asks Ann.")
    rubric = replace(RUBRIC, criteria=(*RUBRIC.criteria, added))
    await curated_again(database, case_id, rubric)
    await freeze(database, "2026.W47")
    await withdraw(database, settings, case_id, PRIVACY, WRONG, criterion_id="c5")
    async with database.begin() as session:
        assert await must_not_be_given_out(session) == {"2026.W47"}
        assert await reasons_for(session, "2026.W46") == {}
        assert await reasons_for(session, "2026.W47") == {case_id: f"privacy: {WRONG}"}


async def test_a_case_that_comes_back_waits_for_a_person_and_not_for_a_curation(
    database: Database, settings: Settings
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await decide_case(database, case_id, ReviewAction.REJECT, "No.")
    await decide_case(database, case_id, ReviewAction.APPROVE, "Yes.")
    await withdraw(database, settings, case_id, ERRATUM, WRONG)
    await reinstate(database, settings, case_id, "It is right.")

    async def status() -> Any:
        async with database.begin() as session:
            return await session.scalar(text("SELECT status FROM cases"))

    await curated_again(database, case_id, RUBRIC)
    assert await status() == "held"
    await decide_case(database, case_id, ReviewAction.APPROVE, "It is.")
    await curated_again(database, case_id, replace(RUBRIC, specialty="Cardiology"))
    assert await status() == "ready"
    await decide_case(database, case_id, ReviewAction.REJECT, "No.")
    for _ in range(2):
        await curated_again(database, case_id, RUBRIC)
        assert await status() == "held"


@pytest.mark.thorough
async def test_the_commands(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    case_id = (await make_case(database, rubric=RUBRIC)).case_id
    await freeze(database, "2026.W46")
    instance = Instance(tmp_path, database_url)

    def run(*words: str, status: int | None = 0) -> Any:
        return instance.here(*words, status=status)

    def work() -> None:
        why = ("--kind", "erratum", "--reason", WRONG)
        unknown = run("snapshot", "withdraw", f"{case_id[:-1]}x", *why, status=2)
        assert "medlive case list" in unknown.err
        part = run("snapshot", "withdraw", case_id, "--criterion", "c9", *why, status=2)
        assert f"medlive case show {case_id}" in part.err
        run(
            "snapshot",
            "withdraw",
            case_id,
            "--kind",
            "whim",
            "--reason",
            WRONG,
            status=2,
        )
        run("review", "dispute", f"{case_id}0", "--reason", "x", status=2)
        opened = run(
            "review",
            "dispute",
            case_id,
            "--criterion",
            "c1",
            "--reason",
            "x",
            "--by",
            "Bo",
            "--json",
        )
        assert opened.json["criterion_id"] == "c1"
        assert [d["number"] for d in run("review", "disputes", "--json").json] == [
            opened.json["number"]
        ]
        run("review", "resolve", str(opened.json["number"]), "--resolution", "No.")
        assert run("review", "disputes", "--json").json == []
        assert (
            run("review", "disputes", "--all", "--json").json[0]["resolution"] == "No."
        )
        part = ("snapshot", "withdraw", case_id, "--criterion", f"{case_id}-c2", *why)
        unasked = run(*part, status=2).err
        assert "2026.W46" in unasked
        assert "nobody is there to answer" in unasked
        assert len(run("review", "edit", case_id).json["criteria"]) == 4
        done = run(*part, "--yes", "--json")
        assert (done.json["new_revision"], done.json["snapshots"]) == (2, ["2026.W46"])
        digest = hashlib.sha256(Path(done.json["errata"]).read_bytes())
        again = run("snapshot", "withdraw", case_id, "--criterion", "c2", *why)
        assert "already withdrawn" in again.out
        assert (
            hashlib.sha256(Path(done.json["errata"]).read_bytes()).digest()
            == digest.digest()
        )

        why_not = ("--reason", "The dose is right.", "--by", "Bo")
        run("snapshot", "reinstate", case_id, *why_not, status=1)
        run("snapshot", "reinstate", case_id, "--criterion", "c3", *why_not, status=1)
        run("snapshot", "reinstate", case_id, "--criterion", f"{case_id}-c2", *why_not)
        run("snapshot", "reinstate", case_id, "--criterion", "c2", *why_not, status=1)
        back = run("review", "edit", case_id).json["criteria"]
        assert [c["id"] for c in back] == ["c1", "c3", "c4", "c2"]
        private = ("--kind", "privacy", "--reason", WRONG, "--yes")
        run("snapshot", "withdraw", case_id, *private)
        run("snapshot", "reinstate", case_id, *why_not)
        assert (
            run("review", "list", "--json").json[0]["status_reason"]
            == "reinstated by a person: The dose is right."
        )
        errata = load_errata(done.json["errata"])
        assert [(e.kind, e.reinstated_at is None) for e in errata.entries] == [
            (ERRATUM, False),
            (PRIVACY, False),
        ]
        assert errata.affecting("2026.W46") == ()
        assert run("audit", "log", "--json").json[0]["reason"] == "The dose is right."
        # What was undone may be withdrawn again, as an entry of its own.
        run("snapshot", "withdraw", case_id, *private)
        errata = load_errata(done.json["errata"])
        assert [e.kind for e in errata.affecting("2026.W46")] == [PRIVACY]
        assert len(errata.entries) == 3

    await asyncio.to_thread(work)
