"""Claims of real threads judged blind: does a search find a passage on their subject, and one that supports them?

Run: `python benchmarks/retrieval_claims.py score` with the marks of benchmarks/data, or `sheet PHASE FILE` for a
sheet to mark by hand and `marks PHASE SHEET FILE` to turn it into marks. The claims and their search phrases are
those that a language model wrote for the threads of `../shared/realdata/replies/second`, the passages those of
`../shared/realdata/evidence`, searched by words alone. Neither is copied: marks hold digests.

Two phases. `subject`: what any of the searches puts first is pooled, mixed, and shown without saying which search
found it, in which corpus. `support`: each passage that is on the subject is shown as earlier curation cut it and as
it is cut now, all of them mixed. Passages that are in no pool count as off the subject: the shares are lower bounds,
and equally so only for the searches that were pooled. Texts that are cut otherwise since have no mark; a new sheet
holds these alone.

The reader of the marks in benchmarks/data is the language model that made the change it measures, and no physician.
83 texts were cut once more after the first round and judged again, with none of the earlier cut among them.
"""

import argparse
import asyncio
import hashlib
import json
import random
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from measured import mean_and_interval

from medlive.evidence.build import build_index
from medlive.evidence.corpora.model import sentences
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.excerpts.excerpt import excerpt, render
from medlive.evidence.excerpts.selection import SEARCHED, WIDTH, select
from medlive.evidence.index import open_index
from medlive.evidence.passage import Hit, Passage, Phrases
from medlive.evidence.retriever import RRF_K, IndexRetriever
from medlive.text.tokens import UNITS, estimate_tokens

REAL_DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "realdata"
REPLIES: Final = Path("replies", "second", "replies.jsonl")
MARKS: Final = Path(__file__).resolve().parent / "data" / "retrieval_marks.jsonl"
TUNED: Final = frozenset(
    (
        "313a86c9cb61",
        "3711dc2f919f",
        "4878e32cd3fd",
        "84d9e1f8f1e3",
        "d3e5d3fdae3c",
        "f847bfedbeb1",
        "ff81eefe4180",
    )
)
"""The requests whose claims were looked at while the search was changed: their claims are not scored."""
JUDGED: Final = {"zh": 15, "en": 20}
"""Language → how many claims were judged, in the order of their digests."""
DEPTH: Final = 6
"""Passages of a claim that count: `[curation] top_k`."""
ALONE: Final = 1
"""Passages of each corpus alone that were pooled."""
FIRST_CORPORA: Final = (
    "pubmedqa",
    "medquad",
    "guidelines",
    "ddi_interactions",
    "covid_articles",
)
EARLIER_WIDTH: Final = 260  # Characters


@dataclass(frozen=True, slots=True)
class SearchedClaim:
    """A claim of a real thread."""

    key: str  # The digest of claim and question
    language: str
    statement: str
    query: str
    phrases: tuple[str, ...]


def read_claims(replies: Path) -> list[SearchedClaim]:
    """The claims that no setting was chosen by, in the order of their digests."""
    claims: dict[str, SearchedClaim] = {}
    for line in replies.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["task"] != "validator.claims" or row["id"] in TUNED:
            continue
        content = row["messages"][-1]["content"]
        match = re.search(r"<input>\n(.*?)\n?</input>", content, re.DOTALL)
        if match is None:
            raise SystemExit(f"{replies.name}: {row['id']} has no input")
        inputs = json.loads(match[1])
        reply = row["reply"]
        reply = json.loads(reply) if isinstance(reply, str) else reply
        for item in reply["claims"]:
            claim = _claim(item, inputs)
            claims[claim.key] = claim
    return [claims[key] for key in sorted(claims)]


def _claim(item: Mapping[str, object], inputs: Mapping[str, str]) -> SearchedClaim:
    statement, query = str(item["statement"]), inputs["query"]
    phrases = item["queries"]
    assert isinstance(phrases, list)
    if inputs["language"] != "en":
        phrases = [*phrases, statement]
    return SearchedClaim(
        key=hashlib.sha256(f"{statement}|{query}".encode()).hexdigest()[:12],
        language=inputs["language"],
        statement=statement,
        query=query,
        phrases=tuple(phrases),
    )


def judged_claims(claims: Sequence[SearchedClaim]) -> list[SearchedClaim]:
    """Those that are scored; what a doctor says in many threads once."""
    unique = {claim.statement: claim for claim in reversed(claims)}
    ordered = sorted(unique.values(), key=lambda claim: claim.key)
    judged: list[SearchedClaim] = []
    for language, count in JUDGED.items():
        own = [claim for claim in ordered if claim.language == language]
        judged += own[:count]
    return judged


class Searches:
    """Every way of searching that is compared; a part of the corpora has an index of its own."""

    def __init__(self, retriever: IndexRetriever, evidence: Path) -> None:
        self._evidence = evidence
        self._work = tempfile.TemporaryDirectory(prefix="medlive-bench-")
        self._retrievers: dict[tuple[str, ...], IndexRetriever] = {(): retriever}
        self.corpora = sorted(retriever.identity.corpora)
        self.passages = retriever.identity.passages

    def now(self, claim: SearchedClaim, corpora: Sequence[str] = ()) -> list[Hit]:
        """As curation searches: phrases and all their words, one passage of a section."""
        hits = self._search(tuple(claim.phrases), DEPTH * SEARCHED, corpora)
        wanted = [(*claim.phrases, claim.statement)]
        _, [chosen] = select(wanted, [hits], most=DEPTH, tokens=1_000_000)
        return chosen

    def earlier(self, claim: SearchedClaim, corpora: Sequence[str] = ()) -> list[Hit]:
        """As curation searched before: each phrase by itself, fused by rank."""
        scores: dict[str, float] = defaultdict(float)
        passages: dict[str, Hit] = {}
        for phrase in dict.fromkeys(claim.phrases):
            for hit in self._search((phrase,), 100, corpora):
                scores[hit.passage.id] += 1 / (RRF_K + hit.rank)
                passages[hit.passage.id] = hit
        ranked = sorted(scores, key=lambda key: (-round(scores[key], 10), key))
        return [passages[key] for key in ranked[:DEPTH]]

    def _search(self, query: Phrases, k: int, corpora: Sequence[str]) -> list[Hit]:
        names = tuple(corpora)
        if names not in self._retrievers:
            folder = Path(self._work.name) / str(len(self._retrievers))
            self._retrievers[names] = build(self._evidence, folder, names)
        return asyncio.run(self._retrievers[names].search([query], k=k))[0]

    def setups(self, claim: SearchedClaim) -> Iterator[tuple[str, list[Passage]]]:
        """(name, passages) of every search of a claim."""
        first = [name for name in self.corpora if name in FIRST_CORPORA]
        found = {
            "all, as before": self.earlier(claim),
            "all, as now": self.now(claim),
            "the first five, as before": self.earlier(claim, first),
            "the first five, as now": self.now(claim, first),
        }
        for name, hits in found.items():
            yield name, [hit.passage for hit in hits]
        for name in self.corpora:
            hits = self.now(claim, [name])
            yield f"{name} alone", [hit.passage for hit in hits[:ALONE]]


def earlier_excerpt(text: str, wanted: Iterable[str], limit: int) -> str:
    """What was shown of a passage before: sentences that share most words with the claim, by characters."""
    if len(text) <= limit:
        return text
    terms = frozenset(term for phrase in wanted for term in _terms(phrase))
    own = [s.strip() for s in sentences(text) if s.strip()]
    order = sorted(range(len(own)), key=lambda i: (-len(terms & _terms(own[i])), i))
    chosen: list[int] = []
    length = 0
    for at in order:
        if not chosen or length + len(own[at]) <= limit:
            chosen.append(at)
            length += len(own[at])
    shown = ""
    last = -2
    for at in sorted(chosen):
        words = own[at]
        if len(words) > limit:
            words = (words[:limit].rpartition(" ")[0] or words[:limit]) + " …"
        shown += (" " if at == last + 1 else " … ") + words
        last = at
    return shown.removeprefix(" … ").strip()


def _terms(text: str) -> frozenset[str]:
    lower = text.lower()
    terms = {word[:6] for word in re.findall(r"[a-z][a-z0-9-]{2,}", lower)}
    for run in re.findall(r"[\u3400-\u9fff]+", lower):
        terms.update(run[i : i + 2] for i in range(len(run) - 1))
    return frozenset(terms)


def shown_texts(claim: SearchedClaim, passage: Passage) -> dict[str, str]:
    """The passage as it was cut, and as it is."""
    wanted = (*claim.phrases, claim.statement)
    units = WIDTH * UNITS
    return {
        "before": earlier_excerpt(passage.text, wanted, EARLIER_WIDTH),
        "now": render(excerpt(passage.text, wanted, units=units, limit=4 * units)),
    }


@dataclass(frozen=True, slots=True)
class Item:
    """A line of a sheet."""

    claim: SearchedClaim
    passage: Passage
    cut: str  # "" for the first phase
    text: str

    @property
    def key(self) -> "Key":
        """What a mark is of; a text that is cut anew has none."""
        return key_of(self.claim, self.passage, self.text if self.cut else "")


Key = tuple[str, str, str]


def key_of(claim: SearchedClaim, passage: Passage, text: str) -> Key:
    """The digests of claim, passage and, in the second phase, the text that is shown of it."""
    shown = hashlib.sha256(text.encode()).hexdigest()[:12] if text else ""
    return claim.key, passage.digest[7:19], shown


def subject_items(searches: Searches, claims: Sequence[SearchedClaim]) -> list[Item]:
    """The pool of the first phase, mixed within each claim."""
    items: list[Item] = []
    for claim in claims:
        pool: dict[str, Passage] = {}
        for _, passages in searches.setups(claim):
            for passage in passages:
                pool.setdefault(passage.digest, passage)
        own = []
        wanted = (*claim.phrases, claim.statement)
        for digest in sorted(pool):
            stretches = excerpt(pool[digest].text, wanted, units=280, limit=700)
            own.append(Item(claim, pool[digest], "", render(stretches)))
        random.Random(claim.key).shuffle(own)
        items += own
    return items


def support_items(subject: Sequence[Item], marks: "Marks") -> list[Item]:
    """Each passage on the subject in both cuts, those without a mark, mixed over all claims."""
    items = []
    for item in subject:
        if marks.get(item.key):
            for cut, text in shown_texts(item.claim, item.passage).items():
                own = Item(item.claim, item.passage, cut, text)
                if own.key not in marks:
                    items.append(own)
    random.Random(len(items)).shuffle(items)
    return items


Marks = Mapping[Key, bool]


def read_marks(path: Path) -> dict[Key, bool]:
    """What the reader said of each claim, passage and text."""
    marks = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        marks[row["claim"], row["passage"], row["text"]] = row["mark"]
    return marks


def write_sheet(items: Sequence[Item], path: Path) -> None:
    """What a reader marks."""
    lines = []
    last = ""
    for number, item in enumerate(items):
        if item.cut or item.claim.key != last:
            lines.append(
                f"\n## {item.claim.statement}  [asked: {item.claim.query[:160]}]"
            )
        last = item.claim.key
        title = f"{item.passage.title[:60]}|{item.passage.section[:24]}"
        text = item.text.replace("\n", " / ")
        lines.append(f"{number}. [{title}] {text}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def add_marks(items: Sequence[Item], positive: Path, out: Path) -> None:
    """Add a mark for every item; `positive` holds the numbers of those that the reader ticked."""
    ticked = set(map(int, positive.read_text(encoding="utf-8").split()))
    with out.open("a", encoding="utf-8") as file:
        for number, item in enumerate(items):
            claim, passage, text = item.key
            row = {"claim": claim, "passage": passage, "text": text}
            file.write(json.dumps(row | {"mark": number in ticked}) + "\n")


class Outcome(NamedTuple):
    """What a search gave for a claim."""

    subject: float  # 1 if a passage is on its subject
    before: float  # 1 if a passage supports it, as passages were cut before
    now: float


def outcome(claim: SearchedClaim, passages: Sequence[Passage], marks: Marks) -> Outcome:
    """What the reader's marks say of a search."""
    related = [p for p in passages if marks.get(key_of(claim, p, ""))]
    supporting: set[str] = set()
    for passage in related:
        for cut, text in shown_texts(claim, passage).items():
            if marks.get(key_of(claim, passage, text)):
                supporting.add(cut)
    return Outcome(
        subject=float(bool(related)),
        before=float("before" in supporting),
        now=float("now" in supporting),
    )


def score(
    searches: Searches, claims: Sequence[SearchedClaim], marks: Marks
) -> Iterator[str]:
    """For each search, the claims with a passage on their subject and with one that supports them."""
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    by_language: dict[str, list[Outcome]] = defaultdict(list)
    for claim in claims:
        for name, passages in searches.setups(claim):
            own = outcome(claim, passages, marks)
            outcomes[name].append(own)
            if name.startswith("all"):
                by_language[f"{name}: {claim.language}"].append(own)
    yield "\n| search | on the subject | supporting, cut as before | cut as now |"
    yield "| --- | --- | --- | --- |"
    for name, group in (outcomes | by_language).items():
        subject = _share([one.subject for one in group])
        before = _share([one.before for one in group])
        now = _share([one.now for one in group])
        yield f"| {name} | {subject} | {before} | {now} |"


def score_cuts(subject: Sequence[Item], marks: Marks) -> Iterator[str]:
    """How often the same passages support their claim in either cut."""
    values: dict[str, list[float]] = {"before": [], "now": []}
    tokens: dict[str, list[int]] = {"before": [], "now": []}
    unjudged = 0
    for item in subject:
        if not marks.get(item.key):
            continue
        texts = shown_texts(item.claim, item.passage)
        keys = {cut: key_of(item.claim, item.passage, t) for cut, t in texts.items()}
        if any(key not in marks for key in keys.values()):
            unjudged += 1
            continue
        for cut, text in texts.items():
            values[cut].append(float(marks[keys[cut]]))
            tokens[cut].append(estimate_tokens(text))
    yield "\n| passages on the subject, cut | supporting | tokens |"
    yield "| --- | --- | --- |"
    for cut, own in values.items():
        yield f"| as {cut} | {_share(own)} | {statistics.mean(tokens[cut]):.0f} |"
    if unjudged:
        yield f"\n{unjudged} passages are cut otherwise since they were judged."


def report_lines(
    real_data: Path, work: Path, index: Path | None = None
) -> Iterator[str]:
    """What docs/builders/measurements/retrieval.md says of the claims."""
    retriever = open_index(index) if index else build(real_data / "evidence", work)
    searches = Searches(retriever, real_data / "evidence")
    claims = judged_claims(read_claims(real_data / REPLIES))
    marks = read_marks(MARKS)
    items = subject_items(searches, claims)
    judged = sum(item.key in marks for item in items)
    yield (
        f"{len(claims)} claims that nothing was tuned with, {searches.passages:,} passages; {judged} of"
        f" {len(items)} pooled passages judged by one reader, who was not shown which search or corpus gave them"
        f" ({Path(__file__).name} says how). The first {DEPTH} passages count, of a corpus alone the first {ALONE}."
    )
    yield from score(searches, claims, marks)
    yield from score_cuts(items, marks)


def _share(values: Sequence[float]) -> str:
    measure = mean_and_interval(values)
    return f"{sum(values):.0f} of {len(values)} ({measure['low']:.2f} to {measure['high']:.2f})"


def build(evidence: Path, folder: Path, names: Sequence[str] = ()) -> IndexRetriever:
    """The index over every corpus of the real data, or those of these names."""
    corpora = []
    for path in sorted(evidence.iterdir()):
        if path.is_file() and not path.name.endswith("LICENSE"):
            corpus = open_corpus(path)
            if not names or corpus.name in names:
                corpora.append(corpus)
    build_index(corpora, folder, fresh=True)
    return open_index(folder)


def main(given: Sequence[str] | None = None) -> int:
    """Make a sheet, read one, or score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("score", "sheet", "marks"))
    parser.add_argument("phase", nargs="?", choices=("subject", "support"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--index", type=Path, help="an index of all corpora")
    parser.add_argument("--marks", type=Path, default=MARKS)
    options = parser.parse_args(given)
    replies = REAL_DATA / REPLIES
    evidence = REAL_DATA / "evidence"
    if not (replies.is_file() and evidence.is_dir()):
        print(f"not measured: {REAL_DATA} is absent", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="medlive-bench-") as work:
        if options.what == "score":
            print(*report_lines(REAL_DATA, Path(work), options.index), sep="\n")
            return 0
        retriever = (
            open_index(options.index) if options.index else build(evidence, Path(work))
        )
        marks = read_marks(options.marks) if options.marks.is_file() else {}
        claims = judged_claims(read_claims(replies))
        items = subject_items(Searches(retriever, evidence), claims)
        if options.phase == "support":
            items = support_items(items, marks)
        if options.what == "sheet":
            write_sheet(items, options.files[0])
        else:
            add_marks(items, options.files[0], options.marks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
