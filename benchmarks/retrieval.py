"""Retrieval against a naive peer, in one run: does the index find what it should, and how fast?

Run `python benchmarks/retrieval.py [REALDATA_FOLDER]`; the default is `../shared/realdata` beside the checkout.

1. Known item (PubMedQA): a question must find its own abstract among 1,000. The question is left out of the
   indexed text, which is the abstract's parts alone.
2. Graded relevance (Cystic Fibrosis collection): 50 queries, four raters, 1,239 MEDLINE records; a record's
   gain is the sum of its ratings (0 to 8), every record with a rating above 0 counts as relevant.
3. Size and speed: MedQuAD and PubMedQA indexed together, searched one by one and by 64 tasks at once.

The peer is BM25 as one writes it in an afternoon: lower-cased letters and digits, no stems, no stop words, one
field, an inverted index in memory.
"""

import asyncio
import json
import math
import re
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from medlive.evidence.build import build_index, open_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.lexical import BM25Retriever
from medlive.evidence.passage import Passage, Query
from medlive.evidence.store import PassageStore

DEPTH = 100
"""Passages fetched per query; a document stands where its best passage stands."""

Search = Callable[[Sequence[str]], list[list[str]]]


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
            rarity = math.log(1 + (len(self._ids) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                norm = 1.2 * (0.25 + 0.75 * self._lengths[number] / self._mean)
                scores[number] += rarity * count * 2.2 / (count + norm)
        best = sorted(scores, key=lambda n: (-scores[n], n))[:DEPTH]
        return list(dict.fromkeys(self._ids[number] for number in best))


def document_of(passage_id: str) -> str:
    """The document part of a passage id."""
    return passage_id.split(":")[1]


def searching(retriever: BM25Retriever) -> Search:
    """The index's search as a list of document ids per query."""

    def search(queries: Sequence[str]) -> list[list[str]]:
        answers = asyncio.run(retriever.search([Query(q) for q in queries], k=DEPTH))
        return [list(dict.fromkeys(document_of(hit.passage.id) for hit in hits)) for hits in answers]

    return search


def indexed(rows: list[dict[str, str]], work: Path) -> tuple[BM25Retriever, list[Passage]]:
    """An index over rows of JSON, and the passages in it."""
    source = work / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    manifest = build_index([open_corpus(source)], work / "index", fresh=True)
    return open_index(work / "index"), list(PassageStore(work / "index" / manifest.data))


def timed(search: Search, queries: Sequence[str]) -> tuple[list[list[str]], float]:
    """(answers, milliseconds a query)."""
    start = time.perf_counter()
    answers = search(queries)
    return answers, (time.perf_counter() - start) * 1000 / len(queries)


def report(name: str, ours: dict[str, float], peer: dict[str, float]) -> None:
    """One line a measure: ours, the peer's, and the ratio."""
    print(f"\n{name}\n  {'measure':<14}{'medlive':>10}{'peer':>10}{'ratio':>8}")
    for measure, value in ours.items():
        ratio = value / peer[measure] if peer[measure] else math.nan
        print(f"  {measure:<14}{value:>10.3f}{peer[measure]:>10.3f}{ratio:>8.2f}")


def known_item(source: Path) -> None:
    """PubMedQA: question → its abstract."""
    entries = json.loads(source.read_text(encoding="utf-8"))
    rows = [{"id": pmid, "title": "", "text": " ".join(entry["CONTEXTS"])} for pmid, entry in entries.items()]
    questions = [entry["QUESTION"] for entry in entries.values()]

    def measures(search: Search) -> dict[str, float]:
        answers, each = timed(search, questions)
        ranks = [
            found.index(pmid) + 1 if pmid in found else math.inf
            for pmid, found in zip(entries, answers, strict=True)
        ]
        return {f"recall@{k}": sum(r <= k for r in ranks) / len(ranks) for k in (1, 5, 32)} | {"ms/query": each}

    with tempfile.TemporaryDirectory() as work:
        retriever, passages = indexed(rows, Path(work))
        peer = NaiveBM25(passages)
        report(
            f"known item, PubMedQA, {len(questions)} questions, {len(passages)} passages",
            measures(searching(retriever)),
            measures(peer.search),
        )


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
    return [{"id": str(int(r["RN"])), "title": r["TI"], "text": r["AB"] or r["EX"] or r["TI"]} for r in records]


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


def graded(folder: Path) -> None:
    """The Cystic Fibrosis collection: nDCG@10 and recall@32."""
    rows = medline_records(folder)
    queries = graded_queries(folder / "cfquery")

    def measures(search: Search) -> dict[str, float]:
        answers, each = timed(search, [text for text, _ in queries])
        ndcg, recall = [], []
        for found, (_, grades) in zip(answers, queries, strict=True):
            gain = sum(grades.get(d, 0) / math.log2(i + 2) for i, d in enumerate(found[:10]))
            best = sorted(grades.values(), reverse=True)[:10]
            ndcg.append(gain / sum(g / math.log2(i + 2) for i, g in enumerate(best)))
            relevant = {d for d, g in grades.items() if g}
            recall.append(len(relevant & set(found[:32])) / len(relevant))
        return {"nDCG@10": statistics.fmean(ndcg), "recall@32": statistics.fmean(recall), "ms/query": each}

    with tempfile.TemporaryDirectory() as work:
        retriever, passages = indexed(rows, Path(work))
        report(
            f"graded relevance, Cystic Fibrosis, {len(queries)} queries, {len(rows)} records",
            measures(searching(retriever)),
            measures(NaiveBM25(passages).search),
        )


async def _at_once(retriever: BM25Retriever, queries: Sequence[str], tasks: int) -> tuple[float, list[float]]:
    """(seconds in all, seconds of each query) with so many tasks taking queries from one list."""
    waiting = iter(queries)
    each: list[float] = []

    async def work() -> None:
        for query in waiting:
            start = time.perf_counter()
            await retriever.search([Query(query)], k=5)
            each.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(tasks)))
    return time.perf_counter() - start, each


def size_and_speed(evidence: Path) -> None:
    """MedQuAD and PubMedQA together: build time, bytes, latency."""
    corpora = [
        open_corpus(evidence / name)
        for name in ("medquad_xml_1-9.tar.gz", "pubmedqa_ori_pqal.json")
        if (evidence / name).exists()
    ]
    questions = [
        entry["QUESTION"]
        for entry in json.loads((evidence / "pubmedqa_ori_pqal.json").read_text(encoding="utf-8")).values()
    ]
    with tempfile.TemporaryDirectory() as work:
        start = time.perf_counter()
        manifest = build_index(corpora, Path(work))
        built = time.perf_counter() - start
        stored = sum(entry.size for entry in manifest.files)
        start = time.perf_counter()
        retriever = open_index(Path(work))
        opened = time.perf_counter() - start
        text = sum(len(p.text.encode()) for p in PassageStore(Path(work) / manifest.data))
        print(f"\nindex, {', '.join(manifest.corpus_digests)}, {manifest.passages} passages")
        print(f"  build {built:.1f} s ({manifest.passages / built:.0f} passages/s), open {opened * 1000:.1f} ms")
        print(f"  size {stored / 1e6:.1f} MB, {stored / text:.2f} times the text")
        for tasks in (1, 8, 64):
            total, each = asyncio.run(_at_once(retriever, questions, tasks))
            each.sort()
            print(
                f"  {tasks:>2} tasks: {len(questions) / total:6.0f} queries/s, a query p50 "
                f"{each[len(each) // 2] * 1000:.1f} ms, p95 {each[len(each) * 95 // 100] * 1000:.1f} ms"
            )


def main() -> None:
    """Run what the data at hand allows."""
    default = Path(__file__).resolve().parents[2] / "shared" / "realdata"
    evidence = (Path(sys.argv[1]) if len(sys.argv) > 1 else default) / "evidence"
    steps: tuple[tuple[Path, Callable[[], None]], ...] = (
        (evidence / "pubmedqa_ori_pqal.json", lambda: known_item(evidence / "pubmedqa_ori_pqal.json")),
        (evidence / "cystic_fibrosis" / "cfquery", lambda: graded(evidence / "cystic_fibrosis")),
        (evidence / "medquad_xml_1-9.tar.gz", lambda: size_and_speed(evidence)),
    )
    for needed, step in steps:
        if needed.exists():
            step()
        else:
            print(f"\nskipped: there is no {needed}")


if __name__ == "__main__":
    main()
