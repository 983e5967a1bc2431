"""The whole program as its users run it: one PostgreSQL for all, the demo run twice, fresh instances at will."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from medlive.config import Settings
from medlive.db import embedded
from medlive.db.migrate import upgrade
from medlive.demo.samples import SampleThread, load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.service.paths import index_path
from tests.support.instance import Instance

_NUMBERS = count(1)
_PRISTINE = "pristine"

NewInstance = Callable[..., Instance]


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """The home of the one server; the demo runs in it."""
    home = Path(tempfile.mkdtemp(prefix="medlive-acceptance-"))
    home.chmod(0o755)  # root's server runs as another user, who must get in
    yield home
    embedded.stop(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def server(home: Path) -> str:
    """The running server's URL; its database `pristine` holds the newest schema and no rows."""
    url = embedded.start(home)
    with psycopg.connect(_plain(url), autocommit=True) as connection:
        # Nothing here outlives the machine. Commits stay synchronous in order: a kill is of the client.
        for setting in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"CREATE DATABASE {_PRISTINE}")
    upgrade(_named(url, _PRISTINE))
    return url


@pytest.fixture(scope="session")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that holds the index of the sample evidence and nothing else."""
    home = tmp_path_factory.mktemp("evidence")
    build_index([open_corpus(sample_evidence_path(), name="demo")], index_path(Settings(home=home)))
    return home


@pytest.fixture
def new_instance(server: str, evidence: Path, tmp_path: Path) -> Iterator[NewInstance]:
    """Makes instances with an empty database and the sample evidence; keyword arguments are their settings."""
    made: list[str] = []

    def make(**settings: str) -> Instance:
        name = f"instance_{next(_NUMBERS)}"
        with psycopg.connect(_plain(_named(server, "postgres")), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {_PRISTINE} STRATEGY FILE_COPY")
        made.append(name)
        home = tmp_path / name
        shutil.copytree(evidence, home)
        return Instance(home, _named(server, name), settings)

    yield make
    with psycopg.connect(_plain(_named(server, "postgres")), autocommit=True) as connection:
        for name in made:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def samples() -> list[SampleThread]:
    """The sample consultations."""
    return load_sample_threads()


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def _named(url: str, database: str) -> str:
    return url.replace("/medlive?", f"/{database}?")
