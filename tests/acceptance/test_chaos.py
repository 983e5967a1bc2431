"""Rounds of `make chaos`: a week under a fault comes to what an undisturbed one comes to."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.chaos.rounds import run_calm, run_round
from tests.chaos.stage import open_stage


@pytest.mark.thorough
async def test_a_week_under_a_fault_freezes_whole_as_an_undisturbed_one() -> None:
    folder = Path(tempfile.mkdtemp(prefix="medlive-chaos-"))
    try:
        async with open_stage(folder) as stage:
            calm = await run_calm(stage)
            assert len(calm.cases) == 4
            for fault in ("kill -9 of PostgreSQL", "delayed jobs"):
                assert (
                    await run_round(stage, calm, 0, seed=1, only=fault)
                ).problems == ()
    finally:
        shutil.rmtree(folder)
