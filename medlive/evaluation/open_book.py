"""Open book: what a retriever finds for each case's query, none of it newer than the case (docs/method.md §2).

The snippets are looked up once and lie in the run's folder (`evidence.jsonl`): a run goes on, and is looked at,
without the index.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final, Self

from medlive.digest import canonical_json
from medlive.errors import BadInput
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.selection import day_of
from medlive.evidence.passage import Hit, IndexIdentity, Query, Retriever
from medlive.llm.fence import fenced

EVIDENCE: Final = "evidence.jsonl"
WIDEST: Final = 1000
"""The most passages that are looked through for a case."""
AT_ONCE: Final = 32
"""Cases that are looked up together: a retriever answers them in batches."""
NO_DAY: Final = "the day the case was posted on is not known"
NOTHING: Final = "no snippet is dated on or before the day the case was posted on"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One passage that is put before one case's question."""

    case_id: str
    rank: int
    """From 1, best first."""
    passage_id: str
    corpus: str
    date: str | None
    """`YYYY-MM-DD`, on or before the case's; None: its source gives none (only where undated ones are let in)."""
    digest: str
    """The digest of title, section and text (`Passage.digest`)."""
    title: str
    section: str
    text: str

    def row(self) -> dict[str, Any]:
        """A line of `evidence.jsonl`."""
        return asdict(self)

    def shown(self) -> dict[str, Any]:
        """What the model is shown of it."""
        parts = {"title": self.title, "section": self.section, "text": self.text}
        head = {"n": self.rank, "source": self.corpus, "date": self.date or "unknown"}
        return {**head, **{name: text for name, text in parts.items() if text}}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The snippets of a run's cases."""

    by_case: Mapping[str, tuple[Snippet, ...]]
    """Of every case, also of those that have none."""
    why: Mapping[str, str]
    """Case → why it has none: it is asked as a closed book."""

    def data(self) -> bytes:
        """`evidence.jsonl`: a line a snippet; a case without any has a line of rank 0 that says why."""
        rows: list[dict[str, Any]] = []
        for case_id, snippets in self.by_case.items():
            rows += [snippet.row() for snippet in snippets]
            if not snippets:
                rows.append({"case_id": case_id, "rank": 0, "why": self.why[case_id]})
        return "".join(canonical_json(row) + "\n" for row in rows).encode("utf-8", "backslashreplace")

    @classmethod
    def read(cls, data: bytes) -> Self:
        """The snippets from their file. Raises BadInput for what is none."""
        found: dict[str, tuple[Snippet, ...]] = {}
        why: dict[str, str] = {}
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line:
                continue
            try:
                row = json.loads(line)
                if row["rank"] == 0:
                    found[row["case_id"]], why[row["case_id"]] = (), row["why"]
                else:
                    found[row["case_id"]] = (*found.get(row["case_id"], ()), Snippet(**row))
            except (ValueError, TypeError, KeyError) as exc:
                raise BadInput(f"{EVIDENCE}:{number}: no snippet: {str(exc)[:120]}") from exc
        return cls(found, why)


@dataclass(frozen=True, slots=True)
class OpenBook:
    """Where the snippets of a run come from."""

    index: str
    """The index's name, as the user gave it."""
    top_k: int
    """Snippets before a question, at most."""
    undated: bool
    """Whether snippets without a date are let in: nothing shows that they are older than the case."""
    open: Callable[[], Awaitable[Retriever]]
    """Opens the index; called only where the run's folder does not hold the snippets yet."""

    async def look_up(self, cases: Iterable[EvaluationCase]) -> tuple[Evidence, IndexIdentity]:
        """The snippets of the cases, and the index they come from. Raises what opening and searching it raise."""
        retriever = await self.open()
        return await look_up(cases, retriever, top_k=self.top_k, undated=self.undated), retriever.identity


async def look_up(
    cases: Iterable[EvaluationCase], retriever: Retriever, *, top_k: int, undated: bool = False
) -> Evidence:
    """The `top_k` best passages for each case's query, each dated on or before the case's day.

    A Chinese query is searched as it stands: a lexical side finds Chinese passages, an encoder that reads no
    Chinese stands back. A case whose day is not known has none.
    """
    chosen = list(cases)
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(case: EvaluationCase) -> list[Hit]:
        day, text = day_of(case), case.query.strip() or case.narrative.strip()
        if day is None or not text:
            return []
        async with turn:
            return await _dated(retriever, Query(text), date.fromisoformat(day), top_k, undated)

    hits = await asyncio.gather(*(one(case) for case in chosen))
    by_case = {case.case_id: _snippets(case, found) for case, found in zip(chosen, hits, strict=True)}
    why = {c.case_id: NOTHING if day_of(c) else NO_DAY for c in chosen if not by_case[c.case_id]}
    return Evidence(by_case, why)


async def _dated(retriever: Retriever, query: Query, day: date, top_k: int, undated: bool) -> list[Hit]:
    """A retriever lets undated passages through, so more are asked for until enough of them have a date."""
    k = top_k
    while True:
        (hits,) = await retriever.search([query], k=k, not_after=day)
        kept = [hit for hit in hits if _fits(hit.passage.published, day, undated)]
        if len(kept) >= top_k or len(hits) < k or k >= WIDEST:
            return kept[:top_k]
        k = min(WIDEST, k * 6)


def _fits(published: date | None, day: date, undated: bool) -> bool:
    return undated if published is None else published <= day


def _snippets(case: EvaluationCase, hits: Sequence[Hit]) -> tuple[Snippet, ...]:
    return tuple(
        Snippet(
            case_id=case.case_id,
            rank=rank,
            passage_id=hit.passage.id,
            corpus=hit.passage.corpus,
            date=hit.passage.published.isoformat() if hit.passage.published else None,
            digest=hit.passage.digest,
            title=hit.passage.title,
            section=hit.passage.section,
            text=hit.passage.text,
        )
        for rank, hit in enumerate(hits, start=1)
    )


def shown(snippets: Sequence[Snippet]) -> str:
    """The snippets as the JSON that a prompt holds: no text in it can close the marks around it."""
    return fenced({"passages": [snippet.shown() for snippet in snippets]})
