"""What a command that cannot be undone asks at a terminal: a real one, at which somebody types."""

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.support.instance import Instance
from tests.support.waiting import LIMIT_S


def typed(instance: Instance, answer: str, *arguments: str) -> tuple[int, str]:
    """The status and stderr of a command at whose prompt this is typed."""
    ours, theirs = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, "-m", "medlive", *arguments],
        env=instance.environment(),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    _, err = command.communicate(timeout=LIMIT_S)
    os.close(ours)
    return command.returncode, err


async def test_a_takedown_wants_the_id_typed(
    database_url: str, tmp_path: Path, rejected: int
) -> None:
    instance = Instance(tmp_path, database_url)
    words = ("thread", "takedown", "test", "1", "--reason", "asked")

    def work() -> None:
        assert "nobody is there to answer" in instance.here(*words, status=2).err
        for answer in ("y", "test/2"):
            status, shown = typed(instance, answer, *words)
            assert (status, "would be erased for good" in shown) == (1, True)
            assert f"expected test/1, not {answer!r}" in shown
        assert instance.here("thread", "show", "test/1").status == 0
        assert typed(instance, "test/1", *words)[0] == 0
        assert (
            "was taken down" in instance.here("thread", "show", "test/1", status=1).err
        )

    await asyncio.to_thread(work)
