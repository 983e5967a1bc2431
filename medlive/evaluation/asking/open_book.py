"""Open book: what a retriever finds for each case's query, none of it newer than the case (docs/method.md §2).

The snippets are looked up once (`OpenBook.look_up`) and lie in the run's folder (`evidence.jsonl`), so that a run can
be continued and read without the index.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date

from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import EvidenceUse
from medlive.evaluation.runs.templates import Evidence, Snippet
from medlive.evidence.passage import Hit, Retriever
from medlive.integrity.digest import digest_bytes
from medlive.llm.pool import for_each

WIDEST = 1000
"""The most passages that are searched for one case."""
AT_ONCE = 32
"""Cases that are looked up together: a retriever answers them in batches."""
NO_DAY = "the day the case was posted on is not known"
NOTHING = "no snippet is dated on or before the day the case was posted on"


@dataclass(frozen=True)
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

    async def look_up(
        self,
        cases: Sequence[EvaluationCase],
    ) -> tuple[Evidence, EvidenceUse]:
        """The `top_k` best passages for each case's query, each dated on or before the case's day, and their origin.

        A Chinese query is searched untranslated: by words it finds Chinese passages, and an encoder that reads no
        Chinese takes no part. A case whose day is not known has no passage. Raises what opening and searching the
        index raise.
        """
        retriever = await self.open()
        by_case: dict[str, Sequence[Snippet]] = {case.case_id: () for case in cases}
        why: dict[str, str] = {}

        async def search(case: EvaluationCase) -> None:
            hits = await self._search(retriever, case)
            snippets = []
            for rank, hit in enumerate(hits, start=1):
                passage = hit.passage
                snippet = Snippet(
                    case_id=case.case_id,
                    rank=rank,
                    passage_id=passage.id,
                    corpus=passage.corpus,
                    date=passage.published.isoformat() if passage.published else None,
                    digest=passage.digest,
                    title=passage.title,
                    section=passage.section,
                    text=passage.text,
                )
                snippets.append(snippet)
            by_case[case.case_id] = tuple(snippets)

        await for_each(cases, search, AT_ONCE)
        for case in cases:
            if not by_case[case.case_id]:
                why[case.case_id] = NOTHING if day_of(case) else NO_DAY
        evidence, identity = Evidence(by_case, why), retriever.identity
        return evidence, EvidenceUse(
            index=self.index,
            retriever=identity.retriever,
            index_digest=identity.index_digest,
            corpora=dict(identity.corpora),
            top_k=self.top_k,
            undated=self.undated,
            rows=digest_bytes(evidence.data()),
            snippets=sum(map(len, by_case.values())),
            closed=len(why),
        )

    async def _search(self, retriever: Retriever, case: EvaluationCase) -> list[Hit]:
        """The best passages for a case, none newer than it."""
        day, text = day_of(case), case.query.strip() or case.narrative.strip()
        if day is None or not text:
            return []
        last, k = date.fromisoformat(day), self.top_k
        # A retriever lets undated passages through: more are asked for until enough of them have a date.
        while True:
            (hits,) = await retriever.search([(text,)], k=k, not_after=last)
            kept = []
            for hit in hits:
                dated = hit.passage.published
                if dated <= last if dated else self.undated:
                    kept.append(hit)
            if len(kept) >= self.top_k or len(hits) < k or k >= WIDEST:
                return kept[: self.top_k]
            k = min(WIDEST, k * 6)
