"""What a command that cannot be undone asks at a terminal: a real one, at which somebody types."""

import asyncio
import pty
from pathlib import Path

import pytest

from tests.support.instance import Done, Instance


def typed(instance: Instance, answer: str, *arguments: str, status: int) -> Done:
    """A command at whose prompt this is typed."""
    ours, theirs = pty.openpty()
    with open(ours, "wb", buffering=0) as keyboard, open(theirs) as terminal:
        keyboard.write(f"{answer}\n".encode())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", terminal)
            return instance.here(*arguments, status=status)


async def test_a_takedown_wants_the_id_typed(
    database_url: str, tmp_path: Path, rejected: int
) -> None:
    instance = Instance(tmp_path, database_url)
    words = ("thread", "takedown", "test", "1", "--reason", "asked")

    def work() -> None:
        assert "nobody is there to answer" in instance.here(*words, status=2).err
        for answer in ("y", "test/2"):
            shown = typed(instance, answer, *words, status=1).err
            assert "would be erased for good" in shown
            assert f"expected test/1, not {answer!r}" in shown
        assert instance.here("thread", "show", "test/1").status == 0
        typed(instance, "test/1", *words, status=0)
        assert (
            "was taken down" in instance.here("thread", "show", "test/1", status=1).err
        )

    await asyncio.to_thread(work)
