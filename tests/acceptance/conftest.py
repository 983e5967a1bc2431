"""The whole program as its users run it: the demo run twice, fresh instances at will."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from medlive.config import Settings
from medlive.demo.samples import SampleThread, load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.instance.paths import index_path
from tests.support.instance import Instance
from tests.support.server import own_database

_NUMBERS = count(1)

NewInstance = Callable[..., Instance]


@pytest.fixture(scope="session")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that holds the index of the sample evidence and nothing else."""
    home = tmp_path_factory.mktemp("evidence")
    build_index(
        [open_corpus(sample_evidence_path(), name="demo")],
        index_path(Settings(home=home)),
    )
    return home


@pytest.fixture
def new_instance(server: str, evidence: Path, tmp_path: Path) -> Iterator[NewInstance]:
    """Makes instances with an empty database and the sample evidence; keyword arguments are their settings."""
    with ExitStack() as stack:

        def make(**settings: str) -> Instance:
            url = stack.enter_context(own_database(server))
            home = tmp_path / f"instance_{next(_NUMBERS)}"
            shutil.copytree(evidence, home)
            return Instance(home, url, settings)

        yield make


@pytest.fixture(scope="session")
def samples() -> list[SampleThread]:
    """The sample consultations."""
    return load_sample_threads()
