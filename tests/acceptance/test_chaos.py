"""Two rounds of `make chaos`: weeks under faults come to what an undisturbed one comes to."""

import shutil
import tempfile
from pathlib import Path

from tests.chaos.rounds import run_calm, run_round
from tests.chaos.stage import open_stage


async def test_weeks_under_faults_end_as_an_undisturbed_one() -> None:
    folder = Path(tempfile.mkdtemp(prefix="medlive-chaos-"))
    try:
        async with open_stage(folder) as stage:
            calm = await run_calm(stage)
            assert len(calm.cases) == 4
            for number, fault in enumerate(("kill -9 of PostgreSQL", "kill -9 of the web")):
                assert (await run_round(stage, calm, number, seed=1, only=fault)).problems == ()
    finally:
        shutil.rmtree(folder)
