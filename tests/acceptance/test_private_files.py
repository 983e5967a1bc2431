"""What the usual commands write is its owner's alone."""

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from medlive.__main__ import main
from medlive.demo.samples import SampleThread, sample_evidence_path
from medlive.integrity.paths import walk
from medlive.llm.rules.engine import RulesEngine
from tests.support.engines import serve
from tests.support.forum import BOARD, Forum, serve_forum, thread
from tests.support.instance import Instance, write_lines
from tests.support.server import own_database
from tests.support.threads import as_import

RULES = RulesEngine().identity.model


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def program(*arguments: object) -> object:
    """Run the program's own entry in this process, begun with the usual umask; its exit status."""
    sys.argv = ["medlive", *map(str, arguments)]
    os.umask(0o022)
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def open_to_others(folder: Path) -> dict[str, str]:
    """Whatever below a folder, and the folder, gives any right to group or others."""
    modes = {"": folder.stat().st_mode} | dict(walk(folder))
    return {
        name: oct(stat.S_IMODE(mode)) for name, mode in modes.items() if mode & 0o077
    }


@pytest.mark.thorough
@pytest.mark.usefixtures("usual_umask")
async def test_no_file_of_a_home_can_be_read_by_others(
    server: str,
    samples: list[SampleThread],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forum = Forum()
    forum.add(thread(1), thread(2))
    home, results, kept = (
        tmp_path / "home",
        tmp_path / "results",
        tmp_path / "backups" / "first",
    )
    settings = {
        "MEDLIVE_HARVEST__ALLOW_LOOPBACK": "true",
        "MEDLIVE_SOURCES__SDN__BOARDS": f'["{BOARD}"]',
        "MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S": "0",
    }
    with own_database(server) as database:
        async with serve_forum(forum), serve(RulesEngine) as url:
            instance = Instance(
                home, database, settings | {"MEDLIVE_SOURCES__SDN__BASE_URL": forum.url}
            )
            for name, value in instance.environment().items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv(
                "MEDLIVE_SIGNING_KEY_FILE", str(home / "keys" / "medlive.key")
            )
            monkeypatch.setattr(sys, "argv", sys.argv)
            threads = [t for t in samples if t.expect.outcome == "kept"][:2]
            lines = write_lines(tmp_path / "threads.jsonl", map(as_import, threads))
            for command in (
                ("evidence", "build", sample_evidence_path()),
                ("import", lines),
                ("harvest", "sdn"),
                ("curate",),
                ("snapshot", "keygen"),
                ("snapshot", "freeze", "--week", "2026.W46"),
                ("backup", kept),
                (
                    "eval",
                    "all",
                    "--cases",
                    home / "snapshots" / "medlive-2026.W46",
                    "--model",
                    "sample-generic",
                    "--base-url",
                    url,
                    "--grader",
                    RULES,
                    "--out",
                    results,
                    "--yes",
                    "--allow",
                    "not-publishable",
                ),
            ):
                assert await asyncio.to_thread(program, *command) == 0, command
    written = {name for name, _ in walk(home)}
    assert written >= {
        "handle.key",
        "backup.key",
        "keys/medlive.key",
        "snapshots/medlive-2026.W46/manifest.json",
    }
    assert any(name.startswith("archive/sdn/") for name in written)
    # its embedded server, of another user, passes through
    root = {"": "0o711"} if os.geteuid() == 0 else {}
    assert open_to_others(home) in ({}, root)
    assert open_to_others(results) == {}
    assert open_to_others(kept) == {}
