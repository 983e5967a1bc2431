"""What every test shares: how properties are tried, which files come first, which tests try a threat."""

import gc
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from medlive.db import embedded
from medlive.snapshot.parquet import Comparison, compare_twins, find_difference
from tests.support.server import PRISTINE, named, plain

# What the caller has set for an instance of their own is no setting of the tests.
for _name in list(os.environ):
    if _name.startswith("MEDLIVE_") and _name != "MEDLIVE_INTEGRATIONS_VENV":
        del os.environ[_name]

# What is imported and collected stays: nothing is gained by looking through it for garbage again and again.
gc.disable()

# No test measures time, so no example has a deadline. `make test` tries the same few examples each time, so that a
# change is judged by itself; `make security` tries many new ones, and what it finds becomes an @example.
settings.register_profile("brief", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("security", deadline=None, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "brief"))

# `make test` hands files to its workers in this order. What takes long comes first, so that none is left alone
# with it at the end; then the other tests of whole programs, which wait for servers and leave room for the rest.
FIRST = (
    "acceptance/test_demo_loop.py",
    "acceptance/test_worker_and_scheduler.py",
    "acceptance/test_harvest_weeks.py",
    "acceptance/test_endpoint_failures.py",
    "acceptance/test_kill_and_resume.py",
    "integration/test_web_every_page.py",
    "acceptance/test_backup.py",
    "integration/test_freeze_weeks.py",
    "unit/snapshot/test_verify_mutations.py",
    "acceptance/test_attacks.py",
    "integration/test_duplicates.py",
    "integration/test_evidence_encoder.py",
    "acceptance/test_eval_run.py",
    "browser/test_report_pages.py",
)


THREATS = Path(__file__).parents[1] / "docs" / "builders" / "threats.md"


def named_tests(document: Path) -> set[str]:
    """The tests that a document names, as `test_x.py::test_y`."""
    return set(re.findall(r"`(\w+\.py::\w+)`", document.read_text(encoding="utf-8")))


def pytest_collection_finish() -> None:
    """From here on garbage is collected, and only among what the tests make."""
    gc.freeze()
    gc.enable()


SAMPLED = 4
"""`make test` tries every fourth row of a matrix, `make thorough` the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of FIRST first, all else in its order; mark what a target of the Makefile selects."""
    threats = named_tests(THREATS)
    rows: Counter[str] = Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name.rpartition("/")[2] in threats:
            item.add_marker("security")
        if item.get_closest_marker("matrix") is not None:
            if rows[name] % SAMPLED:
                item.add_marker("thorough")
            rows[name] += 1
    here = f"{Path(__file__).parent}/"
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(
        key=lambda item: places.get(str(item.path).removeprefix(here), len(FIRST))
    )


DAY_ENDS = timedelta(minutes=2)


def pytest_runtest_setup() -> None:
    """Begin no test in the last two minutes of a day in UTC: its date and ISO week stay the same to its end."""
    moment = datetime.now(UTC)
    tomorrow = (moment + DAY_ENDS).replace(hour=0, minute=0, second=0, microsecond=0)
    if tomorrow > moment:
        time.sleep((tomorrow - moment).total_seconds())


COMPARE_TWINS = "medlive.snapshot.verify.steps.compare_twins"


def compare_in_this_process(
    comparisons: Sequence[Comparison],
) -> list[str | ValueError | None]:
    """Compare parquet files as medlive's own process does, but where pyarrow is loaded already."""
    results: list[str | ValueError | None] = []
    for comparison in comparisons:
        try:
            results.append(find_difference(*comparison))
        except (ValueError, OSError) as exc:
            results.append(ValueError(str(exc)))
    return results


@pytest.fixture(autouse=True, scope="session")
def parquet_in_this_process() -> Iterator[None]:
    """Start no process for each snapshot that is verified; `parquet_in_own_process` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(COMPARE_TWINS, compare_in_this_process)
        yield


@pytest.fixture
def parquet_in_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare parquet files where medlive does, in a process whose memory is limited."""
    monkeypatch.setattr(COMPARE_TWINS, compare_twins)


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """The home of the one server; the demo runs in it."""
    home = Path(tempfile.mkdtemp(prefix="medlive-tests-"))
    home.chmod(0o755)  # root's server runs as another user, who must get in
    yield home
    embedded.stop(home)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def server(home: Path) -> str:
    """The URL of a server that lives as long as the tests; `medlive`, its own database, is empty."""
    from medlive.db.schema.migrate import grant, upgrade  # imports SQLAlchemy

    url = embedded.start(home)
    with psycopg.connect(plain(url), autocommit=True) as connection:
        # Nothing here outlives the machine, and no database lives long enough to be cleaned.
        for setting in (
            "fsync",
            "full_page_writes",
            "synchronous_commit",
            "autovacuum",
        ):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"CREATE DATABASE {PRISTINE}")
    upgrade(named(url, PRISTINE))
    grant(named(url, PRISTINE))
    return url
