"""What a demo leaves of the file that it records in."""

from pathlib import Path

import pytest

from medlive.config import RoleSettings, Settings
from medlive.demo import loop
from medlive.errors import UsageError


async def test_a_run_that_fails_at_once_keeps_an_earlier_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(settings: Settings) -> None:
        raise UsageError("the home of an instance")

    monkeypatch.setattr(loop, "_take_home", refuse)
    earlier = tmp_path / "replies.jsonl"
    earlier.write_text("paid for\n")
    settings = Settings.model_validate({"home": tmp_path / "home"})
    live = RoleSettings(engine="openai", base_url="http://127.0.0.1:1/v1", model="m")
    with pytest.raises(UsageError, match="home of an instance"):
        await loop.run_demo(settings, print, live, earlier)
    with pytest.raises(UsageError, match="a model in every role"):
        await loop.run_demo(settings, print, None, earlier)
    assert earlier.read_text() == "paid for\n"
