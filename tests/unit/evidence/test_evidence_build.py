"""Building: atomic, repeatable, and an index that cannot be used says so with what to do."""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import (
    BadInput,
    EvidenceUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexOutdated,
    UsageError,
)
from medlive.evidence import index as evidence_index
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.corpora.survey import REPEATED_IN, Survey
from medlive.evidence.index import open_index, verify_index
from medlive.evidence.manifest import MANIFEST, index_digest, read_manifest
from medlive.evidence.passage import Hit, Passage
from medlive.evidence.store import PassageStore, from_line, to_line
from medlive.integrity.log import Locked

pytestmark = pytest.mark.whole

ROWS: list[dict[str, object]] = [
    {
        "id": "gout",
        "title": "Gout",
        "text": "Colchicine eases an attack of gout.",
        "date": "2020",
    },
    {
        "id": "asthma",
        "title": "Asthma",
        "text": "Salbutamol opens the airways in asthma.",
    },
    {
        "id": "migraine",
        "title": "Migraine",
        "text": "Sumatriptan may stop a migraine early.",
    },
]


def corpus_file(path: Path, rows: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the rows, to be copied before it is changed."""
    folder = tmp_path_factory.mktemp("built")
    build_index([open_corpus(corpus_file(folder / "a.jsonl", ROWS))], folder / "index")
    return folder / "index"


def hits_of(index: Path, query: str, k: int = 3) -> list[Hit]:
    return asyncio.run(open_index(index).search([(query,)], k=k))[0]


WITHOUT_FAISS = """
import sys
sys.modules["faiss"] = None
from pathlib import Path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
build_index([open_corpus(Path(sys.argv[1]))], Path(sys.argv[2]))
"""


@pytest.mark.thorough
def test_an_index_of_words_is_built_where_faiss_is_not(tmp_path: Path) -> None:
    source = corpus_file(tmp_path / "notes.jsonl", ROWS)
    subprocess.run(
        [sys.executable, "-c", WITHOUT_FAISS, source, tmp_path / "index"], check=True
    )
    assert hits_of(tmp_path / "index", "gout")[0].passage.title == "Gout"


def test_the_manifest_accounts_for_the_index(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        *ROWS,
        {"id": "copy", "title": "Gout", "text": ROWS[0]["text"]},
        {"id": "ask", "title": "X", "text": "Why?"},
    ]
    source = corpus_file(tmp_path / "notes.jsonl", rows)
    source.write_text(source.read_text() + "{broken\n")
    seen: list[str] = []
    manifest = build_index([open_corpus(source)], tmp_path / "index", warn=seen.append)
    [entry] = manifest.corpora
    assert (entry.name, entry.kind, entry.licence) == ("notes", "passages", "unstated")
    counts = (entry.passages, entry.repeated, entry.left_out, entry.problems)
    assert counts == (3, 1, 1, 1)
    assert manifest.passages == 3 == open_index(tmp_path / "index").identity.passages
    assert (
        read_manifest(tmp_path / "index")
        == manifest
        == verify_index(tmp_path / "index")
    )
    assert [line.partition(": ")[0] for line in seen] == ["notes.jsonl:6"]


def test_what_an_earlier_version_counted_in_parts_is_unknown(tmp_path: Path) -> None:
    index = tmp_path / "index"
    build_index([open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))], index)
    [entry] = json.loads((index / MANIFEST).read_text())["corpora"]
    earlier = entry | {"boilerplate": 1, "empty": 0}
    del earlier["left_out"]
    _edit_manifest(index, corpora=[earlier])
    assert read_manifest(index).corpora[0].left_out is None


def test_a_second_corpus_joins_and_a_named_one_is_replaced(tmp_path: Path) -> None:
    index = tmp_path / "index"
    a = corpus_file(tmp_path / "a.jsonl", ROWS[:2])
    build_index([open_corpus(a)], index)
    build_index([open_corpus(corpus_file(tmp_path / "b.jsonl", ROWS[2:]))], index)
    both = read_manifest(index)
    assert [e.name for e in both.corpora] == ["a", "b"]
    assert [
        hits_of(index, q)[0].passage.corpus for q in ("colchicine", "sumatriptan")
    ] == ["a", "b"]
    at_once = build_index(
        [open_corpus(tmp_path / f"{n}.jsonl") for n in "ba"], tmp_path / "other"
    )
    assert at_once.index_digest == both.index_digest
    corpus_file(a, ROWS[1:2])
    build_index([open_corpus(a)], index)
    assert hits_of(index, "colchicine") == []
    assert hits_of(index, "sumatriptan")
    assert [
        e.name for e in build_index([open_corpus(a)], index, fresh=True).corpora
    ] == ["a"]


@pytest.mark.thorough
@given(seed=st.integers())
@settings(max_examples=6, deadline=None)
def test_digests_and_results_do_not_depend_on_order(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rows: list[dict[str, object]] = [
        *ROWS,
        {
            "id": "gout",
            "title": "Gout",
            "text": "Another text under a used id about gout.",
        },
        {
            "id": "gout2",
            "title": "Gout",
            "text": "Colchicine eases an attack of gout.",
            "date": "2020",
        },
    ]
    shuffled = random.Random(seed).sample(rows, len(rows))
    folder = tmp_path_factory.mktemp("order")
    one = build_index(
        [open_corpus(corpus_file(folder / "1" / "n.jsonl", rows))], folder / "i1"
    )
    two = build_index(
        [open_corpus(corpus_file(folder / "2" / "n.jsonl", shuffled))], folder / "i2"
    )
    assert one.corpora[0].digest == two.corpora[0].digest
    assert one.index_digest == two.index_digest
    query = "gout attack migraine text"
    assert hits_of(folder / "i1", query, 9) == hits_of(folder / "i2", query, 9)
    assert (
        len({h.passage.id for h in hits_of(folder / "i1", query, 9)})
        == one.passages - 1
        == 3
    )


def test_the_digest_follows_content_and_parameters_not_the_name(tmp_path: Path) -> None:
    base = index_digest({"k1": 1.2}, {"a": "sha256:1"}, ())
    assert base == index_digest({"k1": 1.2}, {"a": "sha256:1"}, ())
    assert (
        len(
            {
                base,
                index_digest({"k1": 1.3}, {"a": "sha256:1"}, ()),
                index_digest({"k1": 1.2}, {"a": "sha256:2"}, ()),
            }
        )
        == 3
    )

    def digest(name: str, text: str) -> str:
        survey = Survey(tmp_path / "survey")
        survey.add(Passage(f"{name}:d:-.1", name, "T", "", text, "en", None, "", "x"))
        return survey.digest

    assert digest("a", "text") == digest("b", "text") != digest("a", "texts")


def test_text_that_continues_many_pages_is_dropped_but_first_pieces_stay(
    tmp_path: Path,
) -> None:
    survey = Survey(tmp_path / "survey")
    pages = [
        Passage(f"c:d{n}:s.{part}", "c", f"Disease {n}", "s", text, "en", None, "", "x")
        for n in range(REPEATED_IN)
        for part, text in (
            (1, "Inherited in a recessive pattern."),
            (2, "About the numbers in this table."),
            (3, f"Own {n}."),
        )
    ]
    for page in pages:
        survey.add(page)
    kept = list(survey.kept())
    assert {p.id[-1] for p in kept} == {"1", "3"}
    assert len(kept) == 2 * REPEATED_IN


@pytest.mark.thorough
def test_a_build_that_is_killed_leaves_the_old_index_and_the_next_one_tidies_up(
    tmp_path: Path,
) -> None:
    index = tmp_path / "index"
    small = corpus_file(tmp_path / "small.jsonl", ROWS)
    old = build_index([open_corpus(small)], index)
    big = corpus_file(
        tmp_path / "big.jsonl",
        [
            {
                "id": str(n),
                "title": f"Page {n}",
                "text": f"Passage number {n} on fever. " * 20,
            }
            for n in range(4_000)
        ],
    )
    code = (
        "import sys; from pathlib import Path; from medlive.evidence.build import build_index;"
        "from medlive.evidence.corpora.registry import open_corpus;"
        "build_index([open_corpus(sys.argv[1])], Path(sys.argv[2]),"
        " lambda passages: print(passages, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(big), str(index)],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "0\n":  # All is read
                break
        assert hits_of(index, "colchicine"), "usable while another process builds"
        with pytest.raises(Locked):
            build_index([open_corpus(small)], index)
        os.kill(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    assert any(p.name.startswith("building-") for p in index.iterdir())
    assert read_manifest(index) == old
    assert hits_of(index, "colchicine")[0].passage.title == "Gout"
    new = build_index([open_corpus(corpus_file(tmp_path / "c.jsonl", ROWS[:1]))], index)
    assert sorted(p.name for p in index.iterdir()) == [".lock", new.data, MANIFEST]


def test_a_build_that_ends_during_a_verification_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    build_index([open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))], index)
    other = open_corpus(corpus_file(tmp_path / "b.jsonl", ROWS[:1]))
    old = evidence_index.read_index(index)
    build_index([other], index, fresh=True)
    answers = iter([old])
    now = evidence_index.read_index
    monkeypatch.setattr(
        evidence_index, "read_index", lambda path: next(answers, None) or now(path)
    )
    assert verify_index(index).passages == 1


def test_a_retriever_opened_before_a_rebuild_goes_on(tmp_path: Path) -> None:
    index = tmp_path / "index"
    build_index([open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))], index)
    before = open_index(index)
    build_index(
        [open_corpus(corpus_file(tmp_path / "b.jsonl", ROWS[:1]))], index, fresh=True
    )
    assert (
        asyncio.run(before.search([("sumatriptan",)], k=1))[0][0].passage.title
        == "Migraine"
    )


def test_an_index_that_is_replaced_while_it_is_opened_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, corpus = tmp_path / "index", tmp_path / "a.jsonl"
    build_index([open_corpus(corpus_file(corpus, ROWS[:1]))], index)
    outdated = read_manifest(index)
    build_index([open_corpus(corpus_file(corpus, ROWS))], index)
    answers = iter([outdated, read_manifest(index)])
    monkeypatch.setattr("medlive.evidence.index.read_manifest", lambda _: next(answers))
    assert open_index(index).identity.passages == len(ROWS)


def test_an_absent_index_says_how_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(IndexMissing) as caught:
        open_index(tmp_path / "nowhere")
    assert caught.value.exit_status == 3
    assert "medlive evidence build" in (caught.value.hint or "")


def _edit_manifest(index: Path, **changes: object) -> None:
    place = index / MANIFEST
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))


def _truncate(place: Path) -> None:
    place.write_bytes(place.read_bytes()[:-3])


@pytest.mark.parametrize(
    "damage",
    [
        "garbage",
        "list",
        "field",
        "climbs",
        "long",
        "format",
        "format2",
        "parameters",
        "digest",
        "lines",
        "offsets",
        "engine",
        "meta",
        "gone",
        "dirs",
    ],
)
def test_a_damaged_or_foreign_index_is_refused_with_a_hint(
    built: Path, tmp_path: Path, damage: str
) -> None:
    index = Path(shutil.copytree(built, tmp_path / "index"))
    manifest = read_manifest(index)
    data = index / manifest.data
    expected: type[EvidenceUnavailable] = IndexCorrupt
    match damage:
        case "garbage":
            (index / MANIFEST).write_bytes(b"\xff\x00{")
        case "list":
            (index / MANIFEST).write_text("[]")
        case "field":
            _edit_manifest(index, passages="many")
        case "climbs":
            _edit_manifest(index, data="../a")
        case "long":
            name = {"path": "x" * 300, "size": 1, "digest": "sha256:"}
            _edit_manifest(index, files=[name])
        case "format":
            _edit_manifest(index, format_version=99)
            expected = IndexOutdated
        case "format2":
            _edit_manifest(index, format_version=99, something_new=1)
            expected = IndexOutdated
        case "parameters":
            parameters = manifest.parameters | {"analyzer": "sha256:other"}
            digest = index_digest(parameters, manifest.corpus_digests, ())
            _edit_manifest(index, parameters=parameters, index_digest=digest)
            expected = IndexOutdated
        case "digest":
            _edit_manifest(index, index_digest="sha256:" + "0" * 64)
        case "lines":
            _truncate(data / "passages.jsonl")
        case "offsets":
            _truncate(data / "offsets.bin")
        case "engine":
            _truncate(next((data / "lexical").glob("*.term")))
        case "meta":
            meta = data / "lexical" / "meta.json"
            meta.write_bytes(b"#" * meta.stat().st_size)
        case "gone":
            (data / "passages.jsonl").unlink()
        case "dirs":
            (index / MANIFEST).unlink()
            (index / MANIFEST).mkdir()
    with pytest.raises(expected) as caught:
        open_index(index)
    assert "medlive evidence build" in (caught.value.hint or "")
    if damage in ("garbage", "engine"):
        corpus = open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))
        build_index([corpus], index, fresh=True)
        assert hits_of(index, "colchicine")


@pytest.mark.parametrize("name", ["/etc/hostname", "../manifest.json", "a//b", "a\\b"])
def test_an_index_that_names_files_elsewhere_is_refused(
    built: Path, tmp_path: Path, name: str
) -> None:
    index = Path(shutil.copytree(built, tmp_path / "index"))
    written = json.loads((index / MANIFEST).read_bytes())
    written["files"][0]["path"] = name
    (index / MANIFEST).write_text(json.dumps(written))
    for use in (open_index, verify_index):
        with pytest.raises(IndexCorrupt):
            use(index)


def test_damage_that_keeps_the_size_is_found_by_verification_and_is_no_crash(
    tmp_path: Path,
) -> None:
    index = tmp_path / "index"
    manifest = build_index(
        [open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))], index
    )
    place = index / manifest.data / "passages.jsonl"
    place.write_bytes(b"#" * place.stat().st_size)
    with pytest.raises(IndexCorrupt):
        verify_index(index)
    with pytest.raises(IndexCorrupt):
        hits_of(index, "colchicine")


def test_other_corpora_of_a_damaged_index_are_not_dropped_silently(
    tmp_path: Path,
) -> None:
    index = tmp_path / "index"
    a, b = (
        corpus_file(tmp_path / "a.jsonl", ROWS[:2]),
        corpus_file(tmp_path / "b.jsonl", ROWS[2:]),
    )
    manifest = build_index([open_corpus(a), open_corpus(b)], index)
    _truncate(index / manifest.data / "passages.jsonl")
    with pytest.raises(IndexCorrupt):
        build_index([open_corpus(a)], index)
    assert build_index([open_corpus(a)], index, fresh=True).passages == 2


def test_damaged_passages_are_not_kept_under_a_fresh_digest(tmp_path: Path) -> None:
    index = tmp_path / "index"
    a, b = (
        corpus_file(tmp_path / "a.jsonl", ROWS[:2]),
        corpus_file(tmp_path / "b.jsonl", ROWS[2:]),
    )
    manifest = build_index([open_corpus(a), open_corpus(b)], index)
    place = index / manifest.data / "passages.jsonl"
    place.write_bytes(place.read_bytes().replace(b"e", b"a", 1))
    with pytest.raises(IndexCorrupt):
        build_index([open_corpus(a)], index)
    assert build_index([open_corpus(a)], index, fresh=True).passages == 2


@pytest.mark.parametrize(
    "changes",
    [{"format_version": 99}, {"passages": "many"}, {"index_digest": "sha256:0"}],
)
def test_an_index_that_cannot_be_read_keeps_its_data_and_its_other_corpora(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    index = tmp_path / "index"
    a, b = (
        corpus_file(tmp_path / "a.jsonl", ROWS[:2]),
        corpus_file(tmp_path / "b.jsonl", ROWS[2:]),
    )
    manifest = build_index([open_corpus(a), open_corpus(b)], index)
    _edit_manifest(index, **changes)
    with pytest.raises((IndexCorrupt, IndexOutdated)) as caught:
        build_index([open_corpus(a)], index)
    assert "--fresh" in (caught.value.hint or "")
    # Nor does a build that comes to nothing take the data along.
    nothing = corpus_file(
        tmp_path / "a" / "a.jsonl", [{"id": "x", "title": "t", "text": ""}]
    )
    with pytest.raises(BadInput):
        build_index([open_corpus(nothing)], index, fresh=True)
    assert (index / manifest.data / "passages.jsonl").is_file()
    build_index([open_corpus(a)], index, fresh=True)
    assert not (index / manifest.data).exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    corpus = open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))
    with pytest.raises(BadInput, match=r"a\.jsonl cannot be written"):
        build_index([corpus], tmp_path / "a.jsonl")


def test_corpora_without_passages_or_with_one_name_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("{\n")
    with pytest.raises(BadInput, match=r"empty\.jsonl:1"):
        build_index([open_corpus(empty)], tmp_path / "index")
    corpus = open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))
    with pytest.raises(UsageError):
        build_index([corpus, corpus], tmp_path / "index")
    assert not (tmp_path / "index" / MANIFEST).exists()


@given(
    st.builds(
        Passage,
        *[st.text()] * 5,
        st.just("en"),
        st.none() | st.dates(),
        st.text(),
        st.text(),
    )
)
def test_a_passage_survives_its_line(passage: Passage) -> None:
    assert from_line(to_line(passage)) == passage
    assert to_line(passage).count(b"\n") == 1


def test_a_store_has_no_passage_beyond_its_end(tmp_path: Path) -> None:
    manifest = build_index(
        [open_corpus(corpus_file(tmp_path / "a.jsonl", ROWS))], tmp_path / "i"
    )
    store = PassageStore(tmp_path / "i" / manifest.data)
    assert len(list(store)) == len(store) == 3
    for ordinal in (-1, 3):
        with pytest.raises(IndexCorrupt):
            store.get(ordinal)
