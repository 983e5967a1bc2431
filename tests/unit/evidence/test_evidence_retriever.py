"""Hybrid search: what each side found, how sides are fused, what filters keep out, batches that change nothing."""

import asyncio
import itertools
import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from medlive.errors import ConfigError, IndexCorrupt, IndexOutdated, UsageError
from medlive.evidence import index as module
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders.model import Reranker
from medlive.evidence.encoders.table import EncoderSettings
from medlive.evidence.index import open_index
from medlive.evidence.manifest import read_manifest
from medlive.evidence.passage import Hit, Passage, Phrases, Place
from medlive.evidence.plan import WORDS_ALONE
from medlive.evidence.retriever import IndexRetriever, RetrieverName, fused
from medlive.evidence.store import Order, PassageStore
from tests.support.hashing_encoder import HashingEncoder, index_plan, named

NOUNS = (
    "gout",
    "asthma",
    "migraine",
    "psoriasis",
    "shingles",
    "glaucoma",
)
DRUGS = ("colchicine", "salbutamol", "sumatriptan", "aciclovir", "timolol", "naproxen")
TOPICS = ("dose", "relapse", "children", "outlook")
CORPORA = ("guidelines", "journals", "leaflets")


def rows(corpus: str) -> Iterator[dict[str, object]]:
    for n, (noun, drug, topic) in enumerate(itertools.product(NOUNS, DRUGS, TOPICS)):
        if n % len(CORPORA) != CORPORA.index(corpus):
            continue
        dated = None if n % 5 == 0 else f"{2000 + n % 20}-0{1 + n % 9}-11"
        yield {
            "id": f"{n:03d}",
            "title": noun,
            "section": topic,
            "text": f"{drug} for {noun}: {topic} of {drug}.",
            "date": dated,
        }


def build(folder: Path, encoder: HashingEncoder | None) -> Path:
    for name in CORPORA:
        source = folder / f"{name}.jsonl"
        source.write_text(
            "".join(json.dumps(row) + "\n" for row in rows(name)), encoding="utf-8"
        )
    plan = WORDS_ALONE if encoder is None else index_plan(encoder)
    build_index(
        [open_corpus(folder / f"{n}.jsonl") for n in CORPORA],
        folder / "index",
        plan=plan,
    )
    return folder / "index"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("hybrid"), HashingEncoder())


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose vectors are of English passages."""
    encoder = HashingEncoder("medcpt", languages=("en",))
    return build(tmp_path_factory.mktemp("english"), encoder)


@pytest.fixture(scope="module")
def words_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index without vectors."""
    return build(tmp_path_factory.mktemp("words"), None)


@pytest.fixture(scope="module")
def passages(index: Path) -> list[Passage]:
    return list(PassageStore(index / read_manifest(index).data))


@pytest.fixture(scope="module")
def hybrid(index: Path) -> IndexRetriever:
    return open_index(index, encoders=named(HashingEncoder()))


def search(
    retriever: IndexRetriever, *queries: Phrases | str, k: int = 10, **filters: object
) -> list[list[Hit]]:
    asked = [(q,) if isinstance(q, str) else q for q in queries]
    return asyncio.run(retriever.search(asked, k=k, **filters))  # type: ignore[arg-type]


def test_the_identity_tells_of_both_sides(index: Path, hybrid: IndexRetriever) -> None:
    manifest = read_manifest(index)
    assert hybrid.identity.retriever == manifest.retriever == "hybrid"
    assert hybrid.identity.index_digest == manifest.index_digest
    dense = hybrid.identity.dense["sides"][0] | hybrid.identity.dense
    assert (dense["encoder"], dense["encoder_digest"]) == (
        "hashing",
        HashingEncoder().identity.digest,
    )
    assert (dense["kind"], dense["recall"]["k"], dense["fusion"]) == (
        "flat",
        32,
        {"rrf_k": 60, "depth": 100, "joint": 0.5},
    )
    words = open_index(index, retriever="bm25")
    assert (words.identity.retriever, words.identity.dense) == ("bm25", None)
    # A verdict names its evidence by this digest: searched by words alone, the index shows other evidence.
    assert words.identity.index_digest != read_manifest(index).index_digest


def test_ranks_are_fused_as_the_paper_says() -> None:
    # By hand: a is 1st and 3rd, b 2nd and 1st, c only 2nd, d only 3rd.
    a, b, c, d = range(4)
    sides: dict[Place, Order] = {
        ("lexical", 0): [(a, 9.0), (b, 8.0), (d, 7.0)],
        ("dense", 0): [(b, 0.9), (c, 0.8), (a, 0.7)],
    }
    expected = {
        a: Fraction(1, 61) + Fraction(1, 63),
        b: Fraction(1, 62) + Fraction(1, 61),
        c: Fraction(1, 62),
        d: Fraction(1, 63),
    }
    equal = dict.fromkeys(sides, 1.0)
    assert dict(fused(sides, equal)) == pytest.approx(
        {o: float(s) for o, s in expected.items()}, abs=1e-10
    )
    assert len(fused(sides, equal)) == 4
    # Vectors that count half have half the share.
    assert dict(fused(sides, {**equal, ("dense", 0): 0.5}))[c] == pytest.approx(
        0.5 / 62, abs=1e-10
    )
    # The order of a float's additions must not part a tie.
    orders: dict[Place, Order] = {
        ("lexical", 0): [(a, 1), (b, 1), (c, 1)],
        ("lexical", 1): [(c, 1), (a, 1), (b, 1)],
        ("dense", 0): [(b, 1), (c, 1), (a, 1)],
    }
    tied = fused(orders, dict.fromkeys(orders, 1.0))
    assert len({score for _, score in tied}) == 1


def oracle(
    passages: Sequence[Passage],
    lexical: Sequence[Hit],
    query: str,
    k: int,
    depth: int = 100,
) -> list[tuple[str, float]]:
    """Fusion written another way: nearest by plain numpy, ranks by sorting, sums as fractions."""
    encoder = HashingEncoder()
    vectors = (
        encoder.encode_passages([p.title_and_text for p in passages])
        .astype(np.float16)
        .astype(np.float32)
    )
    near = vectors @ encoder.encode_queries([query])[0]
    order = sorted(
        range(len(passages)), key=lambda n: (-float(f"{near[n]:.6g}"), passages[n].id)
    )[:depth]
    ranks = {passages[n].id: [rank] for rank, n in enumerate(order, start=1)}
    for hit in lexical[:depth]:
        ranks.setdefault(hit.passage.id, []).append(hit.rank)
    total = {
        id_: sum(Fraction(1, 60 + rank) for rank in places)
        for id_, places in ranks.items()
    }
    return [
        (id_, float(score))
        for id_, score in sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[
            :k
        ]
    ]


@pytest.mark.thorough
@given(
    words=st.lists(
        st.sampled_from([*NOUNS, *DRUGS, *TOPICS, "unheard"]),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_hits_are_those_of_a_fusion_written_another_way(
    index: Path, hybrid: IndexRetriever, passages: list[Passage], words: list[str]
) -> None:
    query = " ".join(words)
    [lexical] = search(open_index(index, retriever="bm25"), query, k=100)
    [hits] = search(hybrid, query, k=12)
    got = [(hit.passage.id, hit.score) for hit in hits]
    want = oracle(passages, lexical, query, 12)
    # Vectors that tie at the depth's edge may be any of the tied: they reach no further than its rank's share.
    edge = 2 / (60 + 90)
    assert [pair for pair in got if pair[1] > edge] == [
        (id_, pytest.approx(score, abs=1e-9)) for id_, score in want if score > edge
    ]


def test_a_hit_says_where_each_side_put_it(index: Path, hybrid: IndexRetriever) -> None:
    query = ("salbutamol asthma children", "colchicine gout dose")
    [hits] = search(hybrid, query, k=200)
    words, near = (
        open_index(index, encoders=named(HashingEncoder()), retriever=n)
        for n in ("bm25", "dense")
    )
    orders = {
        (side, n): {h.passage.id: h for h in search(alone, phrase, k=200)[0]}
        for side, alone in (("lexical", words), ("dense", near))
        for n, phrase in enumerate(query)
    }
    # Both phrases' words together count as much as the phrases by themselves, and all words as much as vectors.
    [both] = search(words, " ".join(query), k=200)
    orders["joint", 0] = {h.passage.id: h for h in both}
    weights = {"lexical": 0.5, "joint": 1.0, "dense": 1.0}
    for hit in hits:
        expected = [
            (side, n, found[hit.passage.id].rank, found[hit.passage.id].sides[0].score)
            for side in ("lexical", "joint", "dense")
            for n in (0, 1)
            if hit.passage.id in (found := orders.get((side, n), {}))
        ]
        assert [(s.side, s.phrase, s.rank, s.score) for s in hit.sides] == expected
        assert hit.score == pytest.approx(
            sum(weights[side] / (60 + rank) for side, _, rank, _ in expected), abs=1e-9
        )
    assert len({len(hit.sides) for hit in hits}) > 1
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))


RETRIEVERS: tuple[RetrieverName, ...] = ("bm25", "dense", "hybrid")


@pytest.mark.thorough
@pytest.mark.parametrize("name", RETRIEVERS)
@given(
    day=st.none() | st.dates(date(1999, 1, 1), date(2021, 1, 1)),
    words=st.lists(st.sampled_from([*NOUNS, *DRUGS, *TOPICS]), min_size=1, max_size=3),
)
@example(day=date(1990, 1, 1), words=["gout"])
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_side_shows_what_a_filter_keeps_out(
    index: Path,
    passages: list[Passage],
    name: RetrieverName,
    day: date | None,
    words: list[str],
) -> None:
    retriever = open_index(index, encoders=named(HashingEncoder()), retriever=name)
    query = (" ".join(words), words[0])
    [hits] = search(retriever, query, k=300, not_after=day)
    allowed = {
        p.id
        for p in passages
        if day is None or p.published is None or p.published <= day
    }
    assert {h.passage.id for h in hits} <= allowed
    if name == "dense":
        assert {h.passage.id for h in hits} == allowed
    # What stays keeps its score on each side.
    every = {h.passage.id: h for h in search(retriever, query, k=300)[0]}
    for hit in hits:
        assert {(s.side, s.score) for s in hit.sides} == {
            (s.side, s.score) for s in every[hit.passage.id].sides
        }


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        (("gout dose",), "gout dose"),
        (("5 mg",), "5 mg"),
        (("12.5",), "12.5"),
        (("痛风的剂量",), None),
        (("痛风的剂量", "dose in gout"), "dose in gout"),
    ],
)
def test_an_english_encoder_reads_english_only(
    english: Path, query: Phrases, asked: str | None
) -> None:
    encoder = HashingEncoder("medcpt", languages=("en",))
    retriever = open_index(english, encoders=named(encoder))
    encoder.query_batches.clear()
    [hits] = search(retriever, query)
    assert [text for batch in encoder.query_batches for text in batch] == (
        [] if asked is None else [asked]
    )
    if asked is None:
        assert hits == []


def test_an_encoder_of_any_language_reads_the_query_itself(
    hybrid: IndexRetriever, index: Path
) -> None:
    encoder = HashingEncoder()
    search(open_index(index, encoders=named(encoder)), "痛风的剂量")
    assert encoder.query_batches == [["痛风的剂量"]]


def test_a_query_without_a_word_finds_nothing_on_any_side(
    hybrid: IndexRetriever,
) -> None:
    assert search(hybrid, "", "。。。", "\0", "\ud800", "🎉") == [[], [], [], [], []]


@given(query=st.text(alphabet=st.characters(), max_size=200))
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_text_is_a_hybrid_query(hybrid: IndexRetriever, query: str) -> None:
    [hits] = search(hybrid, (query, query[::-1]), k=5)
    assert [h.rank for h in hits] == list(range(1, len(hits) + 1))
    assert all(a.score >= b.score for a, b in itertools.pairwise(hits))


@pytest.mark.thorough
async def test_calls_at_once_give_what_one_gives(index: Path) -> None:
    retriever = open_index(index, encoders=named(HashingEncoder()))
    queries = [(f"{noun} {topic}",) for noun in NOUNS for topic in TOPICS]
    alone = [
        (await retriever.search([q], k=5, not_after=d))[0]
        for q in queries
        for d in (None, date(2010, 1, 1))
    ]
    at_once = await asyncio.gather(
        *(
            retriever.search([q], k=5, not_after=d)
            for q in queries
            for d in (None, date(2010, 1, 1))
        )
    )
    assert [hits for [hits] in at_once] == alone
    together = await retriever.search(queries, k=5)
    assert together == alone[::2]


class BackwardsReranker(Reranker):
    """Likes what stands last in the alphabet."""

    def __init__(self) -> None:
        super().__init__("backwards", "sha256:" + "b" * 64, self.rate)
        self.asked: list[tuple[str, int]] = []

    def rate(self, query: str, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.asked.append((query, len(pairs)))
        order = sorted(text for _, text in pairs)
        return np.array([order.index(text) for _, text in pairs], dtype=np.float32)


@pytest.mark.parametrize(("place", "byte"), [(8, 1), (21, 44), (26, 98), (200, 255)])
def test_damaged_ordinals_are_a_damaged_index(
    index: Path, tmp_path: Path, place: int, byte: int
) -> None:
    folder = Path(shutil.copytree(index, tmp_path / "index"))
    manifest = read_manifest(folder)
    [ordinals] = (folder / manifest.data).rglob("ordinals.npy")
    data = bytearray(ordinals.read_bytes())
    data[place] = byte
    ordinals.write_bytes(data)
    with pytest.raises(IndexCorrupt, match=r"ordinals\.npy cannot be read"):
        open_index(folder, encoders=named(HashingEncoder()))


def test_a_cross_encoder_orders_the_best_anew(
    index: Path, hybrid: IndexRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = BackwardsReranker()
    monkeypatch.setattr(module, "_measured_reranker", lambda *_: reranker)
    retriever = open_index(index, encoders=named(HashingEncoder()))
    [fused_order] = search(hybrid, "gout dose", k=50)
    [hits] = search(retriever, ("gout dosage", "dose in gout"), k=5)
    assert reranker.asked == [("gout dosage", 50)]
    [hits] = search(retriever, "gout dose", k=5)
    assert [h.passage.text for h in hits] == sorted(
        (h.passage.text for h in fused_order), reverse=True
    )[:5]
    fused_rank = {h.passage.id: h.sides for h in fused_order}
    for hit in hits:
        assert hit.sides[:-1] == fused_rank[hit.passage.id]
        assert (hit.sides[-1].side, hit.sides[-1].rank, hit.sides[-1].score) == (
            "rerank",
            hit.rank,
            hit.score,
        )
    assert retriever.identity.dense["reranker"] == {
        "name": "backwards",
        "digest": reranker.digest,
    }


class KnowingReranker(BackwardsReranker):
    """Puts the passages whose title is the query first."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.digest = "knowing", "sha256:" + "c" * 64

    def rate(self, query: str, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        return np.array([query in title for title, _ in pairs], dtype=np.float32)


@pytest.mark.parametrize(
    ("reranker", "helps"), [(BackwardsReranker(), False), (KnowingReranker(), True)]
)
def test_a_configured_reranker_is_used_where_it_was_measured_to_help(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reranker: BackwardsReranker,
    helps: bool,
) -> None:
    corpus, folder = tmp_path / "notes.jsonl", tmp_path / "index"
    notes = []
    # Words cannot tell one order from the other, so that every second title is found second.
    for n, (one, other) in enumerate(itertools.permutations(DRUGS, 2)):
        title = f"{one} before {other}"
        notes.append({"id": f"{n:02}", "title": title, "text": f"Note {n:02}."})
    corpus.write_text("".join(json.dumps(row) + "\n" for row in notes), "utf-8")
    plan = WORDS_ALONE._replace(reranker=reranker)
    manifest = build_index([open_corpus(corpus)], folder, plan=plan)
    assert manifest == read_manifest(folder)
    measured = manifest.reranker
    assert (measured.items, measured.helps) == (30, helps)
    assert (measured.after > measured.before) == helps
    monkeypatch.setattr(module, "open_reranker", lambda *_, **__: reranker)
    own = EncoderSettings(models=tmp_path, reranker=reranker.name)
    used = open_index(folder, settings=own).identity
    assert ("reranker" in (used.dense or {})) == helps
    assert (used.index_digest != manifest.index_digest) == helps
    # One that was not measured, and none: off.
    for name in ("other", ""):
        others = open_index(folder, settings=own.model_copy(update={"reranker": name}))
        assert others.identity.dense is None
    if helps:
        monkeypatch.setattr(module, "open_reranker", lambda *_, **__: OTHER)
        with pytest.raises(IndexOutdated, match="was measured as"):
            open_index(folder, settings=own)


OTHER = BackwardsReranker()


def test_another_encoders_index_is_refused(index: Path) -> None:
    with pytest.raises(IndexOutdated) as caught:
        open_index(index, encoders={"hashing": HashingEncoder("other")})
    assert "manifest.json" in caught.value.message
    assert "--encoder" in (caught.value.hint or "")
    with pytest.raises(IndexOutdated):
        open_index(
            index,
            encoders=named(HashingEncoder(salt="other weights under the same name")),
        )


def test_words_alone_search_an_index_whose_encoder_is_gone_and_nothing_else_does(
    index: Path,
) -> None:
    with pytest.raises(ConfigError, match="is not an encoder") as caught:
        open_index(index)
    assert 'retriever = "bm25"' in (caught.value.hint or "")
    assert search(open_index(index, retriever="bm25"), "gout")[0]


def test_vectors_are_not_looked_for_in_an_index_without(words_alone: Path) -> None:
    assert open_index(words_alone).identity.retriever == "bm25"
    for name in ("dense", "hybrid"):
        with pytest.raises(UsageError):
            open_index(words_alone, retriever=name, encoders=named(HashingEncoder()))


def test_several_phrases_are_fused_without_vectors(words_alone: Path) -> None:
    words = open_index(words_alone)
    [hits] = search(words, ("colchicine", "salbutamol"), k=20)
    assert {(s.side, s.phrase) for h in hits for s in h.sides} == {
        ("lexical", 0),
        ("lexical", 1),
        ("joint", 0),
    }
    [one] = search(words, "colchicine", k=20)
    assert one
    assert all(h.score == round(1 / (60 + h.rank), 10) for h in one)


def test_a_claims_own_language_is_not_drowned_by_its_english_phrases(
    tmp_path: Path,
) -> None:
    source = tmp_path / "mixed.jsonl"
    subjects = ("Insomnia", "Sleeping tablets", "Behavioural therapy")
    texts = [f"{each}, part {n}." for n in range(8) for each in subjects]
    texts.append("慢性失眠首选认知行为治疗。")
    rows = [{"id": str(n), "title": "t", "text": t} for n, t in enumerate(texts)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index([open_corpus(source)], tmp_path / "index")
    phrases = ("insomnia", "sleeping tablets", "behavioural therapy", "慢性失眠的治疗")
    [hits] = search(open_index(tmp_path / "index"), phrases, k=6)
    assert any(hit.passage.text == texts[-1] for hit in hits)


def test_a_compressed_index_finds_what_flat_finds_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medlive.evidence.dense.FLAT_UP_TO", 0)
    compressed = open_index(
        build(tmp_path, HashingEncoder()),
        encoders=named(HashingEncoder()),
        retriever="dense",
    )
    assert compressed.identity.dense["sides"][0]["kind"] == "ivf_pq"
    text = "colchicine for gout: dose of colchicine gout dose"
    [hits] = search(compressed, text, k=1)
    assert hits[0].passage.text == "colchicine for gout: dose of colchicine."


def test_one_text_in_two_corpora_is_found_under_the_same_id_whichever_was_built_first(
    tmp_path: Path,
) -> None:
    for name in "ab":
        lines = (
            json.dumps({"id": str(n), "title": "Gout", "text": f"Eased by {noun}."})
            for n, noun in enumerate(NOUNS)
        )
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    answers = []
    for order in ("ab", "ba"):
        plan = index_plan(HashingEncoder())
        for name in order:
            build_index(
                [open_corpus(tmp_path / f"{name}.jsonl")], tmp_path / order, plan=plan
            )
        opened = open_index(
            tmp_path / order, encoders=named(HashingEncoder()), retriever="dense"
        )
        [hits] = search(opened, "gout eased by glaucoma", k=1)
        answers.append((opened.identity.index_digest, [hit.passage.id for hit in hits]))
    assert answers[0] == answers[1]
    assert answers[0][1] == ["a:5:-.1"]
