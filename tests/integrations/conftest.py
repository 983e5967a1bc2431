"""What a harness needs to run here: its command, a snapshot, and an endpoint on this machine whose grader now and
then says nothing that can be read."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from medlive.llm.engine import Reply, Request
from medlive.llm.rules.engine import RulesEngine
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.model import SnapshotCriterion
from tests.support.engines import serve
from tests.unit.snapshot.conftest import META, added, make_case

ROOT = Path(__file__).parents[2]
UNREADABLE = "Names an electrocardiogram."
MET = "Advises to write down how the symptoms develop."
CASES = {
    "c000": (
        (MET, 5),
        ("Leaves it to a physician to decide which tests are needed.", -2),
        ("Names an X-ray.", 4),
    ),
    # All that is met of it is an error: equation 1 gives less than nothing, which counts as 0.
    "c002": (("Advises rest and drinking enough.", -7), ("Names an X-ray.", 3)),
    "c004": ((MET, 5), (UNREADABLE, 5)),
    "c006": ((MET, 2), ("Names an X-ray.", 8)),
}
SCORE = (3 / 9 + 0 + 2 / 10) / 3
"""By hand, of the three cases that can be graded."""


class _HalfMute(RulesEngine):
    async def answer(self, request: Request) -> Reply:
        reply = await super().answer(request)
        graded = json.loads(reply.text).get("grades")
        if graded is None:
            return reply
        mute = [
            criterion["id"]
            for criterion in request.inputs["criteria"]
            if criterion["criterion"] == UNREADABLE
        ]
        kept = [grade for grade in graded if grade["id"] not in mute]
        text = json.dumps({"grades": kept})
        return Reply(text, reply.finish, reply.usage, reply.model)


@dataclass(frozen=True)
class Place:
    """A harness's environment, the snapshot, the endpoint, and what `medlive eval` makes of them."""

    bin: Path
    snapshot: Path
    url: str
    grader: str
    reference: dict[str, Any]
    work: Path

    def run(self, name: str, *arguments: object, **variables: str) -> str:
        """Run a command of the environment; what it prints. Nothing but this machine is asked for anything."""
        return run(self.bin / name, *arguments, home=self.work, check=True, **variables)


def run(
    command: Path, *arguments: object, home: Path, check: bool, **variables: str
) -> str:
    """Run a command from the repository's root, offline, its state under `home`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MEDLIVE_", "INSPECT_"))
    }
    environment = kept | {
        "HOME": str(home),
        "MEDLIVE_HOME": str(home / "medlive"),
        "HF_HOME": str(home / "hf"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "NO_COLOR": "1",
        "OPENAI_API_KEY": "none",
    }
    done = subprocess.run(
        [command, *map(str, arguments)],
        cwd=ROOT,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if check and done.returncode:
        pytest.fail(
            f"{command.name} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout


@pytest.fixture(scope="session")
def harness_bin() -> Path:
    """Where the harnesses' commands are."""
    named = os.environ.get("MEDLIVE_INTEGRATIONS_VENV")
    folder = Path(named) / "bin" if named else Path(sys.prefix) / "bin"
    missing = [name for name in ("inspect", "lm_eval") if not (folder / name).exists()]
    if missing:
        pytest.skip(
            f"{' and '.join(missing)} not installed: `make integrations` does it"
        )
    return folder


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """The rules engine's endpoint, in a thread of its own."""
    ready: list[str] = []
    started, stop = threading.Event(), threading.Event()

    async def work() -> None:
        async with serve(_HalfMute) as url:
            ready.append(url)
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert started.wait(60)
    yield ready[0]
    stop.set()
    thread.join()


@pytest.fixture(scope="session")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a few cases that the sample model and the rules' grader disagree on."""
    cases = []
    for number, (case_id, criteria) in zip(range(0, 8, 2), CASES.items(), strict=True):
        rubric = tuple(
            SnapshotCriterion(
                f"{case_id}-c{k}", case_id, 1, k, text, "Accuracy", points
            )
            for k, (text, points) in enumerate(criteria, start=1)
        )
        made = make_case(
            number,
            narrative="I have had a dry cough for $3 weeks.",
            query="What {should} I do?",
            criteria=rubric,
        )
        assert made.case_id == case_id
        cases.append(made)
    return write_snapshot(
        cases, META, tmp_path_factory.mktemp("snapshots"), added(cases)
    ).path


@pytest.fixture(scope="session")
def place(
    harness_bin: Path,
    snapshot: Path,
    endpoint: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Place:
    """All of it, with the score that `medlive eval run`, `grade` and `score` come to."""
    work = tmp_path_factory.mktemp("work")
    medlive, grader, out = (
        Path(sys.prefix) / "bin" / "medlive",
        RulesEngine().identity.model,
        work / "run",
    )
    run(
        medlive,
        "eval",
        "run",
        "--cases",
        snapshot,
        "--model",
        "sample-generic",
        "--base-url",
        endpoint,
        "--out",
        out,
        check=True,
        home=work,
    )
    # It ends with 1, since a criterion stays ungraded.
    run(
        medlive,
        "eval",
        "grade",
        out,
        "--grader",
        grader,
        "--base-url",
        endpoint,
        check=False,
        home=work,
    )
    table = json.loads(
        run(
            medlive,
            "eval",
            "score",
            out,
            "--format",
            "json",
            "--allow",
            "not-publishable",
            check=True,
            home=work,
        )
    )
    return Place(harness_bin, snapshot, endpoint, grader, table["models"][0], work)
