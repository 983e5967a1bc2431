"""A takedown: nothing of the thread is left, nothing else is touched, and it does not come back."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from medlive.config import Settings
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.embedded import find_program
from medlive.db.harvest.harvests import quarantine
from medlive.db.schema.rights import IMMUTABLE
from medlive.db.session import Database, advisory_lock
from medlive.db.tables import Base
from medlive.db.threads.takedowns import find_takedown
from medlive.demo.samples import SampleThread, sample_evidence_path
from medlive.errors import CheckFailed, UsageError
from medlive.evaluation.cases.load import in_own_words, load_cases
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.instance.paths import archive_path, index_path, snapshots_path
from medlive.integrity.digest import canonical_json
from medlive.llm.engine import EngineIdentity, Finish, Prompt, Reply, Request, Usage
from medlive.service.backup.contents import DUMP
from medlive.service.backup.make import make_backup
from medlive.service.curation.curate import run_curation
from medlive.service.curation.inspect import (
    ThreadTakenDown,
    inspect_thread,
    threads_of_cases,
)
from medlive.service.database import handle_key
from medlive.service.harvest.harvest import harvest_source, import_file
from medlive.service.harvest.raw_files import apply_retention
from medlive.service.harvest.takedown import allow_return, take_down
from medlive.service.release.freeze import freeze
from medlive.service.release.withdraw import reinstate
from medlive.snapshot.errata import load_errata
from medlive.sources.archive import pages
from medlive.sources.registry import build_site
from tests.support.custody import (
    harvest,
    rows_of_tables,
    samples,
    settings_of,
    traces_in_files,
    traces_in_tables,
    words_of,
)
from tests.support.forum import BOARD, Forum, serve_forum, thread
from tests.support.threads import as_import
from tests.support.triggers import refused_by_trigger

MARK = "At dusk my quillbarrow hums."
ERASED, KEPT, REJECTED = "1402038", "1402075", "1402519"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the sample evidence."""
    folder = tmp_path_factory.mktemp("evidence") / "index"
    build_index([open_corpus(sample_evidence_path(), name="samples")], folder)
    return folder


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """This test's instance."""
    return settings_of(database_url, tmp_path)


@pytest.fixture
async def curated(
    database: Database, settings: Settings, index: Path
) -> dict[str, SampleThread]:
    """Three threads harvested and curated; two of them made cases."""
    first, *others = samples(ERASED, KEPT, REJECTED)
    opening = first.messages[0].model_copy(
        update={"text": f"{first.messages[0].text} {MARK}"}
    )
    threads = [
        first.model_copy(update={"messages": (opening, *first.messages[1:])}),
        *others,
    ]
    shutil.copytree(index, index_path(settings))
    await harvest(database, settings, threads)
    assert (await run_curation(settings)).counts.outcomes == {"kept": 2, "rejected": 1}
    return {t.thread_id: t for t in threads}


async def rows(database: Database, sql: str, **values: Any) -> list[Any]:
    async with database.begin() as session:
        return [tuple(row) for row in await session.execute(text(sql), values)]


def files_with(folder: Path, word: str) -> set[str]:
    """The files below a folder that hold a word, also when they are compressed."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.name == DUMP:
                command = [str(find_program("pg_restore", 18)), "--file=-", str(path)]
                data = subprocess.run(command, capture_output=True, check=True).stdout
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            found |= (
                {path.relative_to(folder).as_posix()}
                if word.encode() in data
                else set()
            )
    return found


async def attempt(database: Database, *statements: str) -> None:
    """Several statements in one transaction."""
    async with database.begin() as session:
        for statement in statements:
            await session.execute(text(statement))


async def own_words(database: Database, thread: SampleThread) -> list[str]:
    """Words of a thread that are no words of the evidence."""
    words = words_of(thread)
    evidence = {
        word
        for table, word in await traces_in_tables(database, words)
        if table == "passages"
    }
    assert len(evidence) * 4 < len(words)
    return [word for word in words if word not in evidence]


async def test_no_byte_of_a_thread_is_left_and_it_does_not_come_back(
    database: Database,
    settings: Settings,
    curated: dict[str, SampleThread],
    tmp_path: Path,
) -> None:
    folder, gone = archive_path(settings), curated[ERASED]
    words = await own_words(database, gone)
    others = {i: words_of(t) for i, t in curated.items() if i != ERASED}
    # Its address stands in messages too.
    url = (
        await rows(database, "SELECT url FROM threads WHERE thread_id = :i", i=ERASED)
    )[0][0]
    async with database.begin() as session:
        await quarantine(session, "sdn", f"{url}: no layout fits")
    key = handle_key(settings)
    assert traces_in_files(folder, words)
    # A verdict about its case, and one about another.
    [(case_id,)] = await rows(
        database,
        "SELECT c.id FROM cases c JOIN threads t ON t.id = c.thread_id WHERE t.thread_id = :i",
        i=ERASED,
    )
    verdicts = settings.home / "cache" / "grades" / "ab"
    verdicts.mkdir(parents=True)
    for name, about in (("gone", case_id), ("other", "ml-1")):
        (verdicts / f"{name}.jsonl").write_text(
            canonical_json({"case_id": about, "reason": MARK[:9]}) + "\n"
        )
    assert (await make_backup(settings, tmp_path / "before"))["rows"]
    holding = files_with(settings.home, "quillbarrow")
    assert {name.partition("/")[0] for name in holding} == {"archive", "before"}
    assert "before/database.dump" in holding
    shutil.rmtree(tmp_path / "before")
    told = {table for table, _ in await traces_in_tables(database, words)}
    assert told >= {
        "threads",
        "thread_revisions",
        "frontier",
        "fetches",
        "replies",
        "elements",
        "curations",
        "case_revisions",
        "sources",
    }

    before = sorted(await rows_of_tables(database))
    planned = await take_down(
        database, settings, "sdn", ERASED, "the author asked", dry_run=True
    )
    assert sorted(await rows_of_tables(database)) == before
    done = await take_down(database, settings, "sdn", ERASED, "the author asked")
    assert (done.counts, done.frozen, done.damaged) == (planned.counts, [], [])
    assert (
        done.counts["case_revisions"]
        == done.counts["threads"]
        == done.counts["fetches"]
        == 1
    )
    assert traces_in_files(folder, words) == []
    assert await traces_in_tables(database, words) == set()
    await make_backup(settings, tmp_path / "after")
    assert files_with(settings.home, "quillbarrow") == set()
    assert not verdicts.exists()
    shutil.rmtree(tmp_path / "after")
    for other, theirs in others.items():
        shared = set(theirs) & set(words)
        assert set(traces_in_files(folder, theirs)) > shared, other

    # The other threads' pages lie where the rows say, and whole.
    (path,) = [p for p in folder.rglob("*") if p.is_file()]
    assert list(pages(path)), "every record that is left is sound"
    places = await rows(
        database,
        "SELECT archive_offset FROM fetches WHERE archive_id IS NOT NULL ORDER BY 1",
    )
    assert [(place.offset,) for place, _ in pages(path)] == places

    # Neither a harvest nor an import brings it back, and no page that shows it is kept.
    async with database.begin() as session:
        await session.execute(
            text("UPDATE sources SET quarantined_at = NULL, quarantine_reason = NULL")
        )
    again = await harvest(database, settings, list(curated.values()))
    assert again.counts["taken_down"] >= 1
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps(as_import(t)) + "\n" for t in curated.values())
    )
    imported, _ = await import_file(
        database, tmp_path / "in.jsonl", assume_posted_at=None, handle_key=key
    )
    assert (imported["taken_down"], imported["problems"]) == (1, 0)
    assert traces_in_files(folder, words) == []
    assert await traces_in_tables(database, words) == set()

    # Once more changes nothing, and what is left says when and why.
    assert not (
        await take_down(database, settings, "sdn", ERASED, "another reason")
    ).counts
    with pytest.raises(ThreadTakenDown, match="author"):
        async with database.begin() as session:
            await inspect_thread(session, "sdn", ERASED)
    frozen = await freeze(database, settings)
    assert frozen.cases == 1

    # Undone, it may come back, and is what the import says; nothing that was erased does.
    await allow_return(database, "sdn", ERASED, "It was another author.", by="Bo")
    with pytest.raises(CheckFailed):
        await allow_return(database, "sdn", ERASED, "It was another author.")
    assert await traces_in_tables(database, words) == set()
    imported, _ = await import_file(
        database, tmp_path / "in.jsonl", assume_posted_at=None, handle_key=key
    )
    assert (imported["taken_down"], imported["new"]) == (0, 1)
    # Taken down again, it goes again.
    assert (await take_down(database, settings, "sdn", ERASED, "It was not.")).counts[
        "thread_revisions"
    ] == 1
    assert await traces_in_tables(database, words) == set()


async def test_what_a_frozen_snapshot_holds_is_named_and_kept_out_of_later_ones(
    database: Database, settings: Settings, curated: dict[str, SampleThread]
) -> None:
    frozen = await freeze(database, settings, "2026.W46")
    assert frozen.cases == 2
    words = await own_words(database, curated[ERASED])
    held = {
        w
        for table, w in await traces_in_tables(database, words)
        if table in ("case_revisions", "criteria")
    }
    folder = {
        path: path.read_bytes() for path in frozen.path.rglob("*") if path.is_file()
    }
    cases = load_cases(frozen.path)
    ids = [case.case_id for case in cases.cases]
    threads = await threads_of_cases(settings, cases.name, ids)
    before = {case.case_id: case for case in in_own_words(cases, threads).cases}
    done = await take_down(database, settings, "sdn", ERASED, "a court's order")
    [(version, case_id)] = done.frozen
    found_by = "medlive_words(concat_ws(E'\\n', c.narrative, c.query, c.advice))"
    assert await rows(
        database,
        f"SELECT words = {found_by} FROM thread_standings JOIN case_revisions c USING (case_id)"
        " JOIN threads t ON t.id = thread_standings.thread_id WHERE t.thread_id = :i",
        i=ERASED,
    ) == [(True,)]
    assert version == frozen.version
    # The raw arm asks in each thread's own words while there are such, and says how many it has lost.
    assert len(before) == 2
    assert any(w in before[case_id].narrative for w in words)
    assert (before[case_id].query, before[case_id].advice != "") == ("", True)
    after = in_own_words(cases, await threads_of_cases(settings, cases.name, ids))
    assert {case.case_id for case in after.cases} == before.keys() - {case_id}
    assert "1 of 2 cases are left out" in after.notes[-1]
    assert after.publishable is False
    # The errata beside the snapshot say so; the snapshot stays as it is.
    errata = snapshots_path(settings) / "errata.json"
    [erratum] = load_errata(errata).affecting(version)
    assert (erratum.kind, erratum.case_id, erratum.reason) == (
        "takedown",
        case_id,
        "taken down",
    )
    assert {
        path: path.read_bytes() for path in frozen.path.rglob("*") if path.is_file()
    } == folder
    for table in ("criteria", "case_revisions"):
        change = f"DELETE FROM {table} WHERE case_id = '{case_id}'"
        with refused_by_trigger():
            await attempt(database, "UPDATE takedowns SET counts = counts", change)
    assert traces_in_files(archive_path(settings), words) == []
    left = await traces_in_tables(database, words)
    # Only the case that was published still has words of it.
    assert {table for table, _ in left} <= {"case_revisions", "criteria"}
    assert {w for _, w in left} <= held
    assert await rows(
        database, "SELECT status, status_reason FROM cases WHERE id = :i", i=case_id
    ) == [("withdrawn", "taken_down")]
    assert await rows(
        database, "SELECT title, messages FROM thread_revisions WHERE messages = '[]'"
    ) == [("", [])]
    # What is left empty is no obstacle for a later run, and makes no case.
    run = await run_curation(settings)
    assert run.counts.faults == []
    later = await freeze(database, settings, "2026.W52")
    assert later.cases == 1
    [erratum] = load_errata(errata).entries
    assert erratum.fixed_in == "2026.W52"
    changes = (later.path / "changes.json").read_text()
    assert "takedown: taken down" in changes
    assert "court" not in changes
    with pytest.raises(CheckFailed):
        await reinstate(database, settings, case_id, "It was a mistake.")
    await allow_return(database, "sdn", ERASED, "The court took it back.")
    change = "DELETE FROM thread_revisions WHERE messages = '[]'"
    with refused_by_trigger():
        await attempt(database, "UPDATE takedowns SET counts = counts", change)
    await reinstate(database, settings, case_id, "It was a mistake.")
    assert load_errata(errata).affecting(version) == ()
    assert await rows(
        database, "SELECT status FROM cases WHERE id = :i", i=case_id
    ) == [("held",)]


@pytest.mark.thorough
async def test_only_the_rows_of_the_thread_may_go_and_only_with_its_takedown(
    database: Database, curated: dict[str, SampleThread]
) -> None:
    down = f"INSERT INTO takedowns (source, thread_id, reason) VALUES ('sdn', '{ERASED}', 'x')"
    for work in (
        "INSERT INTO holds (curation_id, position, reason, detail, elements) SELECT DISTINCT curation_id, 1,"
        " 'advice_wrong', 'd', ARRAY['a1'] FROM case_revisions",
        "INSERT INTO rubric_proofs (curation_id, passed, rounds, ceiling, floor, separation, criteria, findings,"
        " engines) SELECT DISTINCT curation_id, true, 0, 1, 0, 1, '[]'::jsonb, '[]'::jsonb, '{}'::jsonb"
        " FROM case_revisions",
        "INSERT INTO rubric_probes (curation_id, position, probe, answer, note, score, verdicts)"
        " SELECT curation_id, 1, 'vague', 'a', '', 0, '{}' FROM rubric_proofs",
        "INSERT INTO reviews (case_id, revision, action, reason) SELECT id, 1, 'approve', 'r' FROM cases",
        "INSERT INTO withdrawals (case_id, revision, kind, reason) SELECT id, 1, 'erratum', 'r' FROM cases",
        "INSERT INTO reinstatements (withdrawal_id, case_id) SELECT id, case_id FROM withdrawals",
        "INSERT INTO overrules (revision_id, overruled, reason) SELECT id, 'duplicate', 'r' FROM thread_revisions",
    ):
        await attempt(database, work)
    counts = {
        table: (await rows(database, f"SELECT count(*) FROM {table}"))[0][0]
        for table in IMMUTABLE
    }
    assert all(counts.values()), counts
    other = (
        await rows(database, "SELECT id FROM threads WHERE thread_id = :i", i=KEPT)
    )[0][0]
    theirs = f"SELECT id FROM thread_revisions WHERE thread_id = {other}"
    decisions = f"SELECT id FROM curations WHERE revision_id IN ({theirs})"
    cases = f"SELECT id FROM cases WHERE thread_id = {other}"
    where = {
        "thread_revisions": f"id IN ({theirs})",
        "curations": f"id IN ({decisions})",
        "overrules": f"revision_id IN ({theirs})",
        "case_revisions": f"case_id IN ({cases})",
        **dict.fromkeys(
            (
                "criteria",
                "reviews",
                "identifier_scans",
                "withdrawals",
                "reinstatements",
            ),
            f"case_id IN ({cases})",
        ),
        "prompts": "true",
        "passages": "true",
        "replies": f"request_digest IN (SELECT reply_digest FROM agent_calls WHERE curation_id IN ({decisions}))",
    }
    for table in IMMUTABLE:
        which = where.get(table, f"curation_id IN ({decisions})")
        column = next(
            c.name for c in Base.metadata.tables[table].columns if c.identity is None
        )
        for refused in (
            [f"DELETE FROM {table}"],
            [f"UPDATE {table} SET {column} = {column}"],
            [down, f"DELETE FROM {table} WHERE {which}"],
            [down, f"UPDATE {table} SET {column} = {column} WHERE {which}"],
            [down, f"UPDATE {table} SET {column} = {column}"],
            [down, f"TRUNCATE {table} CASCADE"],
        ):
            with refused_by_trigger():
                await attempt(database, *refused)
    ours = f"thread_id = (SELECT id FROM threads WHERE thread_id = '{ERASED}')"
    half = "title = 'else', tags = '{}', messages = '[]', fetch_id = NULL, import_run_id = NULL"
    emptied = "title = '', tags = '{}', messages = '[]', fetch_id = NULL, import_run_id = NULL"
    for refused in (
        # Emptied as a whole or not at all, and nothing else with it.
        [down, f"UPDATE thread_revisions SET title = '' WHERE {ours}"],
        [
            down,
            f"UPDATE thread_revisions SET {emptied}, posted_at = now() WHERE {ours}",
        ],
        [down, f"UPDATE thread_revisions SET {half} WHERE {ours}"],
        [down, "DELETE FROM takedowns"],
        [down, "UPDATE takedowns SET thread_id = 'else'"],
        [down, "UPDATE takedowns SET reason = 'else'"],
        [down, "TRUNCATE takedowns"],
    ):
        with refused_by_trigger():
            await attempt(database, *refused)
    # A takedown that is done lets nothing through any more.
    await attempt(database, down)
    with refused_by_trigger():
        await attempt(database, f"DELETE FROM thread_revisions WHERE {ours}")
    with refused_by_trigger():
        await attempt(
            database,
            "UPDATE takedowns SET erased_in = 0",
            f"UPDATE thread_revisions SET title = '' WHERE {ours}",
        )
    after = {
        table: (await rows(database, f"SELECT count(*) FROM {table}"))[0][0]
        for table in IMMUTABLE
    }
    assert after == counts


@pytest.mark.parametrize("when", ["before the rows change", "before the old file goes"])
async def test_what_a_kill_leaves_is_finished(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    threads = samples(ERASED, KEPT)
    words, folder = words_of(threads[0]) + words_of(threads[1]), archive_path(settings)
    gone = next(t for t in threads if t.thread_id == ERASED)
    await harvest(database, settings, threads)

    class Killed(Exception):
        pass

    async def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        if when == "before the rows change":
            patched.setattr("medlive.db.harvest.fetches.replace_archive", killed)
        else:
            patched.setattr(Path, "unlink", _no_unlink(Killed))
        with pytest.raises(Killed):
            await take_down(database, settings, "sdn", ERASED, "asked")
    assert len([p for p in folder.rglob("*") if p.is_file()]) == 2
    assert traces_in_files(folder, words_of(gone))
    if when == "before the rows change":
        counts = await apply_retention(database, settings)
        assert (counts["swept"], counts["damaged"]) == (1, 0)
    else:
        await take_down(database, settings, "sdn", ERASED, "asked")
    assert len([p for p in folder.rglob("*") if p.is_file()]) == 1
    assert traces_in_files(folder, words_of(gone)) == []
    assert traces_in_files(folder, words)
    assert not any((await apply_retention(database, settings)).values())


def _no_unlink(error: type[Exception]) -> Any:
    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.exists():
            raise error

    return unlink


async def test_a_takedown_goes_not_beside_who_brings_the_thread_in(
    database: Database, settings: Settings
) -> None:
    await harvest(database, settings, samples(ERASED))
    async with advisory_lock(database, "harvest sdn") as alone:
        assert alone
        with pytest.raises(CheckFailed):
            await take_down(database, settings, "sdn", ERASED, "asked")
    (revision,) = (await rows(database, "SELECT id FROM thread_revisions"))[0]
    async with database.begin() as session:
        await session.execute(text("INSERT INTO procrastinate_workers DEFAULT VALUES"))
        await session.execute(
            text(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, worker_id)"
                " SELECT 'curation', 'medlive:curate_revision',"
                " jsonb_build_object('revision', CAST(:r AS int)), 'doing', id"
                " FROM procrastinate_workers"
            ),
            {"r": revision},
        )
    with pytest.raises(CheckFailed):
        await take_down(database, settings, "sdn", ERASED, "asked")
    async with database.begin() as session:
        assert await find_takedown(session, "sdn", ERASED) is None
        await session.execute(
            text(
                "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'"
            )
        )
    done = await take_down(database, settings, "sdn", ERASED, "asked")
    assert done.counts["threads"] == 1
    for source, reason in (("elsewhere", "asked"), ("sdn", "  "), ("sdn", "x" * 2001)):
        with pytest.raises(UsageError):
            await take_down(database, settings, source, ERASED, reason)
    with pytest.raises(UsageError):
        await take_down(database, settings, "sdn", ERASED, "x", by=" \n")


async def test_pages_of_other_threads_that_link_to_it_lose_their_bytes_and_nothing_else(
    database: Database, settings: Settings
) -> None:
    forum = Forum()
    alike = {
        "thread_id": "50010",
        "url": "https://forum.example/threads/cough-1.50010/",
    }
    forum.add(
        *(thread(number) for number in (1, 2, 3)), thread(4).model_copy(update=alike)
    )
    similar = (
        '<aside><a href="/threads/cough-1.5001/latest">Another title</a></aside></body>'
    )
    in_json = r'<script>{"related":"\/threads\/cough-1.5001\/"}</script></body>'

    def change(path: str, page: str) -> str:
        own = {"5002": similar, "5003": in_json}
        return page.replace("</body>", own.get(path[-5:-1], "</body>"))

    forum.change = change
    async with serve_forum(forum):
        overrides = {"base_url": forum.url, "boards": (BOARD,), "min_interval_s": 0.0}
        await harvest_source(database, settings, build_site("sdn", overrides))
    done = await take_down(database, settings, "sdn", "5001", "asked")
    # The list and the pages of 5002 and 5003; 50010, whose address begins alike, is another thread.
    assert done.counts["pages_showing_it"] == 3
    bytes_here = "SELECT thread_id, archive_id IS NOT NULL FROM fetches WHERE kind = 'thread' ORDER BY 1"
    assert await rows(database, bytes_here) == [
        ("50010", True),
        ("5002", False),
        ("5003", False),
    ]
    assert await rows(database, "SELECT count(*) FROM thread_revisions") == [(3,)]
    assert traces_in_files(archive_path(settings), ["cough-1.5001/"]) == []


async def test_a_page_in_another_encoding_that_shows_the_title_loses_its_bytes(
    database: Database, settings: Settings
) -> None:
    title = "Metoprolol and a cough that stays for weeks"
    forum = Forum()
    forum.add(thread(1).model_copy(update={"title": title}), thread(2))
    forum.encoding = "utf-16"
    forum.change = lambda path, page: (
        page.replace("</body>", f"<p>{title}</p></body>") if "5002" in path else page
    )
    async with serve_forum(forum):
        overrides = {"base_url": forum.url, "boards": (BOARD,), "min_interval_s": 0.0}
        done = await harvest_source(database, settings, build_site("sdn", overrides))
    assert done.counts["new"] == 2
    erased = await take_down(database, settings, "sdn", "5001", "asked")
    assert erased.counts["pages_showing_it"] == 2


async def test_an_imported_address_that_is_a_mere_word_changes_no_other_row(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    counts = '{"new": 1, "problem": null}'
    await attempt(
        database,
        "INSERT INTO pipeline_runs (command, settings, outcome, finished_at, counts, code_version) "
        f"VALUES ('harvest', '{{}}', 'done', now(), '{counts}', '1')",
    )
    line = as_import(samples(KEPT)[0]) | {"url": "null"}
    file = tmp_path / "threads.jsonl"
    file.write_text(json.dumps(line) + "\n")
    key = handle_key(settings)
    await import_file(database, file, assume_posted_at=None, handle_key=key)
    done = await take_down(database, settings, line["source"], KEPT, "asked")
    assert done.counts["threads"] == 1
    stored = await rows(database, "SELECT counts FROM pipeline_runs")
    assert stored == [(json.loads(counts),)]


async def test_a_thread_that_was_never_met_is_kept_out(
    database: Database, settings: Settings
) -> None:
    await harvest(database, settings, samples(KEPT))
    done = await take_down(database, settings, "sdn", ERASED, "asked beforehand")
    assert not done.counts
    again = await harvest(database, settings, samples(ERASED, KEPT))
    assert again.counts["taken_down"] >= 1
    assert await rows(database, "SELECT thread_id FROM threads") == [(KEPT,)]
    assert traces_in_files(archive_path(settings), words_of(samples(ERASED)[0])) == []


async def test_replies_of_an_attempt_that_was_cut_off_go_as_well(
    database: Database, settings: Settings
) -> None:
    await harvest(database, settings, samples(ERASED, KEPT))
    texts = dict(
        await rows(
            database,
            "SELECT threads.thread_id, messages -> 0 ->> 'text' FROM thread_revisions "
            "JOIN threads ON threads.id = thread_revisions.thread_id",
        )
    )
    statement = "A statement in words of its own that no message of the thread has."
    store = PostgresReplyStore(database)
    engine = EngineIdentity("openai", "m", {})

    def of(thread_id: str) -> dict[str, Any]:
        return {"messages": [{"id": "m0", "text": texts[thread_id]}]}

    asked: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        "first": ("screener.extract", of(ERASED), {"narrative": [statement]}),
        "second": ("validator.alignment", {"claim": statement}, {}),
        "others": ("screener.extract", of(KEPT), {}),
    }
    for name, (task, inputs, answer) in asked.items():
        request = Request(task, Prompt(task, name), inputs, {"type": "object"})
        reply = Reply(json.dumps(answer), Finish.STOP, Usage(), "m")
        await store.keep(request.digest(engine), request, engine, reply)
    done = await take_down(database, settings, "sdn", ERASED, "asked")
    assert done.counts["replies"] == 2
    assert [
        t
        for (t,) in await rows(
            database, "SELECT inputs -> 'messages' -> 0 ->> 'text' FROM replies"
        )
    ] == [texts[KEPT]]
