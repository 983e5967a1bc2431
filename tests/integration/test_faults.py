"""The table of faults: each is made for real, and named by its code in the next look, wherever people look."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from medlive.db.session import Database
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.service.watch import checks, notify
from medlive.service.watch.checks import CHECKS
from medlive.service.watch.metrics import read_metrics
from medlive.service.watch.notify import look
from medlive.service.watch.status import read_problems
from tests.support.faults import FAULTS, Stage, healthy_instance
from tests.support.receivers import serve_webhook

FAULTS_PAGE = Path(__file__).parents[2] / "docs" / "builders" / "faults.md"
TEST = "tests/integration/test_faults.py::test_a_fault_is_named_wherever_people_look"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small evidence index."""
    folder = tmp_path_factory.mktemp("evidence")
    rows = [
        {
            "id": f"p{n}",
            "title": "Cough",
            "text": f"Rest helps against a cough of {n} days.",
        }
        for n in range(9)
    ]
    corpus = folder / "cough.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index([open_corpus(str(corpus))], folder / "index")
    return folder / "index"


@pytest.fixture
async def stage(
    database: Database, tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    """An instance that is well."""
    async with healthy_instance(
        database, tmp_path / "home", index, monkeypatch.setenv
    ) as healthy:
        yield healthy


async def metrics_of(stage: Stage) -> dict[str, float]:
    """Code → the value of `medlive_problem`."""
    content = (await read_metrics(stage.database, stage.settings)).decode()
    families = text_string_to_metric_families(content)
    samples = [sample for family in families for sample in family.samples]
    return {
        sample.labels["code"]: sample.value
        for sample in samples
        if sample.name == "medlive_problem"
    }


async def test_nothing_is_named_in_an_instance_that_is_well(stage: Stage) -> None:
    assert await look(stage.database, stage.settings) == []
    assert await read_problems(stage.database, stage.settings) == []
    assert await metrics_of(stage) == dict.fromkeys(
        (check.__name__ for check in CHECKS), 0
    )


async def test_no_index_is_no_fault_where_a_literature_service_is_asked(
    stage: Stage,
) -> None:
    shutil.rmtree(stage.index)
    stage.configure("evidence", online=("pubmed",), online_email="ops@example.org")
    assert await look(stage.database, stage.settings) == []


@pytest.mark.matrix
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_named_wherever_people_look(stage: Stage, name: str) -> None:
    fault = FAULTS[name]
    with serve_webhook() as (url, posts):
        await fault.make(stage)
        stage.configure("notify", webhook=SecretStr(url))
        await look(stage.database, stage.settings)
    problems = await read_problems(stage.database, stage.settings)
    named = {problem["code"] for problem in problems}
    assert fault.code in named
    assert all(
        f"{problem['text']}{problem['next_step']}".isprintable() for problem in problems
    )
    assert (await metrics_of(stage))[fault.code] == 1
    messages = [
        post["text"]
        for post in posts
        if post["code"] == fault.code and post["event"] == "problem"
    ]
    assert all(
        f"medlive status ack {fault.code}" in text and "What to do: " in text
        for text in messages
    )
    assert messages


def test_a_look_and_every_patience_together_take_less_than_five_minutes() -> None:
    patience = max(checks.SILENT_AFTER, checks.UNSERVED_AFTER)
    assert timedelta(seconds=notify.LOOK_S) + patience < timedelta(minutes=5)


def test_the_table_has_a_row_for_every_fault_and_a_fault_for_every_check() -> None:
    table = FAULTS_PAGE.read_text(encoding="utf-8")
    rows = {
        fault: code
        for code, fault in re.findall(
            r"^\| [^|]+ \| `(\w+)` \|.*\| `([\w-]+)` \|", table, re.MULTILINE
        )
    }
    assert rows == {name: fault.code for name, fault in FAULTS.items()}
    assert {fault.code for fault in FAULTS.values()} == {
        check.__name__ for check in CHECKS
    }
    assert TEST in table
