"""Freezing on a database of before: what format 1 froze stays and is followed; what was not finished goes."""

import json
from pathlib import Path

import psycopg
import pytest
from alembic import command
from pydantic import SecretStr
from support.release import case_id, fill

from medlive.config import Settings
from medlive.db import migrate
from medlive.db.session import Database
from medlive.digest import digest_file
from medlive.errors import CheckFailed, UsageError
from medlive.service.freezing import freeze
from medlive.service.rebuilding import rebuild
from medlive.snapshot.gates import gates_digest
from medlive.snapshot.verify import verify_snapshot

BEFORE = (
    "INSERT INTO snapshots (version, state) VALUES ('2026.W44', 'building'), ('2026.W43', 'building')",
    "INSERT INTO snapshot_members SELECT version, case_id, 1, '2026.W43' FROM case_revisions, snapshots",
)
FROZEN = """
    UPDATE snapshots SET state = 'frozen', frozen_at = now(), manifest = '{}', manifest_digest = %s, cases = 2,
        criteria = 6, publishable = true, why_not = '[]', path = %s
    WHERE version = '2026.W43'
"""


async def test_what_was_frozen_in_format_1_is_followed_by_its_folders_digest(
    database_url: str, tmp_path: Path
) -> None:
    plain = database_url.replace("+psycopg", "")
    old = tmp_path / "home" / "snapshots" / "medlive-2026.W43"
    old.mkdir(parents=True)
    for name in ("manifest.json", "SHA256SUMS"):
        (old / name).write_text(f"{name} of format 1\n")
    with psycopg.connect(plain, autocommit=True) as admin:
        admin.execute("DROP SCHEMA public CASCADE")
        admin.execute("CREATE SCHEMA public")
        with migrate._connected(database_url) as connection:
            command.upgrade(migrate._config(connection), "0007")
            connection.commit()
        fill(admin, 2)
        for statement in BEFORE:
            admin.execute(statement)
        admin.execute(FROZEN, [digest_file(old / "manifest.json"), str(old)])
        migrate.upgrade(database_url)
        assert migrate.check(database_url) == []
        assert admin.execute("SELECT version, state FROM snapshots").fetchall() == [("2026.W43", "frozen")]
        assert admin.execute("SELECT count(*) FROM snapshot_members").fetchall() == [(2,)]
        with pytest.raises(psycopg.Error, match="refused"):
            admin.execute("UPDATE snapshots SET meta = '{}'")
        fill(admin, 1, first=3, gates=gates_digest())
    database = Database.connect(database_url)
    settings = Settings(home=tmp_path / "home", database_url=SecretStr(database_url))
    (old / "manifest.json").rename(old / "aside")
    with pytest.raises(CheckFailed, match=r"2026\.W43"):
        await freeze(database, settings, "2026.W45")
    (old / "aside").rename(old / "manifest.json")
    done = await freeze(database, settings, "2026.W45")
    manifest = json.loads((done.path / "manifest.json").read_bytes())
    assert manifest["lineage"] == [{"version": "2026.W43", "digest": digest_file(old / "SHA256SUMS")}]
    assert manifest["counts"]["by_first_release"] == {"2026.W43": 2, "2026.W45": 1}
    changes = json.loads((done.path / "changes.json").read_bytes())
    assert [entry["case_id"] for entry in changes["added"]] == [case_id(3)]
    old.rename(tmp_path / "old")
    assert verify_snapshot(done.path).ok
    assert (await freeze(database, settings, "2026.W43")).already
    with pytest.raises(UsageError, match="format 1"):
        await rebuild(database, settings, "2026.W43")
    await database.aclose()
