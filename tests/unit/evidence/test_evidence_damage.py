"""A damaged index is never searched in silence: each flipped byte is an error before the first result."""

import json
import shutil
from pathlib import Path

import pytest

from medlive.errors import IndexCorrupt
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.index import open_index
from medlive.evidence.manifest import read_manifest

pytestmark = pytest.mark.whole

QUESTION = [("gout treatment",)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    source = folder / "sample.jsonl"
    with source.open("w", encoding="utf-8") as handle:
        for n in range(200):
            row = {
                "id": f"p{n}",
                "title": "Gout",
                "text": f"Sentence {n} on gout.",
                "date": 2001 + n % 20,
            }
            handle.write(json.dumps(row) + "\n")
    build_index([open_corpus(source)], folder / "index")
    return folder / "index"


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "index"))


def flip(place: Path, position: int) -> None:
    data = bytearray(place.read_bytes())
    data[position] ^= 0xFF
    put(place, bytes(data))


def put(place: Path, data: bytes) -> None:
    """Replace a file: one that is cut while an engine has it mapped ends the process."""
    new = place.with_name("new")
    new.write_bytes(data)
    new.replace(place)


async def test_each_damaged_file_is_an_error_before_the_first_result(
    index: Path,
) -> None:
    manifest = read_manifest(index)
    assert len(manifest.files) > 8
    for entry in manifest.files:
        place = index / manifest.data / entry.path
        whole = place.read_bytes()
        flip(place, len(whole) // 2)
        with pytest.raises(IndexCorrupt):  # as it is opened, or at its first search
            await open_index(index, verify=True).search(QUESTION, k=5)
        put(place, whole)
    assert await open_index(index, verify=True).search(QUESTION, k=5) != [[]]


async def test_a_panic_of_the_engine_is_a_damaged_index(index: Path) -> None:
    manifest = read_manifest(index)
    (name,) = (entry.path for entry in manifest.files if entry.path.endswith(".term"))
    terms = index / manifest.data / name
    size, ended = len(terms.read_bytes()), 0
    for position in range(0, size, max(1, size // 20)):
        flip(terms, position)
        try:
            await open_index(index).search(
                QUESTION, k=5
            )  # a PanicException would end the test run
        except IndexCorrupt:
            ended += 1
        flip(terms, position)
    assert ended > 0


async def test_damage_that_comes_later_is_seen_by_the_next_look(index: Path) -> None:
    manifest = read_manifest(index)
    opened = open_index(index, verify=True)
    assert await opened.search(QUESTION, k=5) != [[]]
    flip(index / manifest.data / "days.bin", 3)
    assert await opened.search(QUESTION, k=5) != [[]]  # within the day
    with pytest.raises(IndexCorrupt):
        await open_index(index, verify=True).search(QUESTION, k=5)


async def test_an_index_that_a_build_replaced_stays_good(index: Path) -> None:
    opened = open_index(index, verify=True)
    source = index.parent / "other.jsonl"
    source.write_text(
        json.dumps({"id": "a", "title": "Gout", "text": "Gout is common."}) + "\n"
    )
    build_index([open_corpus(source)], index, fresh=True)
    assert len((await opened.search(QUESTION, k=5))[0]) == 5
