"""A retriever that asks literature services besides the local index, and fuses what both give by rank.

Fusion is the local index's own (Cormack, Clarke and Büttcher, SIGIR 2009). A claim's phrase leaves the house only
as its plain words, and not at all where an identifier of a person is found in it.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import date

from medlive.evidence.online.phrases import plain_words
from medlive.evidence.online.service import Literature
from medlive.evidence.passage import (
    Hit,
    IndexIdentity,
    Passage,
    Query,
    Retriever,
    Side,
    SideHit,
)
from medlive.evidence.retriever import RRF_K, SCORE_DIGITS
from medlive.integrity.digest import digest_json

ARTICLES = 10
"""Articles asked of each service for each phrase."""
_ARTICLE = re.compile(
    r"https://(?:pubmed\.ncbi\.nlm\.nih\.gov/|europepmc\.org/article/MED/)(\d+)/?"
)


class OnlineRetriever:
    """The `Retriever` over literature services and, where there is one, a local index."""

    def __init__(
        self,
        services: Sequence[Literature],
        local: Retriever | None,
        *,
        may_leave: Callable[[str], bool],
    ) -> None:
        """At least one service.

        Args:
            services: Asked for every phrase; they share a client.
            local: The local index; None for none.
            may_leave: Whether a phrase names nobody.
        """
        self.services = tuple(services)
        self._local = local
        self._may_leave = may_leave
        # Services have no digest, so their passages are stored with each verdict.
        own = IndexIdentity(
            retriever="",
            index_digest="",
            corpora={},
            passages=0,
        )
        if local is not None:
            own = local.identity
        names = [service.name for service in services]
        searched = {"index": own.index_digest or None, "online": names}
        self.identity = replace(
            own,
            retriever="+".join(filter(None, [own.retriever, *names])),
            index_digest=digest_json(searched),
            corpora={**dict.fromkeys(names, "online"), **own.corpora},
        )

    async def search(
        self,
        queries: Sequence[Query],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        """See `Retriever`.

        Raises:
            LiteratureUnavailable: if a service gave no usable answer; a claim is never judged on a part.
            CircuitOpen: if a service is away, for whatever request.
        """
        local: list[list[Hit]] = [[] for _ in queries]
        if self._local is not None:
            local = await self._local.search(queries, k=k, not_after=not_after)
        results: list[list[Hit]] = []
        for query, own in zip(queries, local, strict=True):
            orders = await self._ask(query, not_after)
            results.append(fuse(own, orders, k))
        return results

    async def aclose(self) -> None:
        """Close the connections to the services."""
        await self.services[0].client.aclose()

    async def _ask(
        self,
        query: Query,
        not_after: date | None,
    ) -> dict[tuple[Side, int], list[Passage]]:
        """Return what each service finds for each phrase; when one fails, the others are not asked any further."""
        searches: dict[tuple[Side, int], Coroutine[None, None, list[Passage]]] = {}
        for number, phrase in enumerate(query.phrases):
            words = plain_words(phrase) if self._may_leave(phrase) else ""
            if not words:
                continue
            for service in self.services:
                search = service.search(words, most=ARTICLES, not_after=not_after)
                searches[Side(service.name), number] = search
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    key: group.create_task(search) for key, search in searches.items()
                }
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {key: task.result() for key, task in tasks.items()}


def fuse(
    local: Sequence[Hit],
    orders: Mapping[tuple[Side, int], Sequence[Passage]],
    k: int,
) -> list[Hit]:
    """Return the k best of all orders; the local index's own order counts as one.

    Europe PMC's copy of an article that PubMed or the index gives counts for that one.
    """
    by_id: dict[str, Hit] = {}
    for hit in local:
        by_id[hit.passage.id] = replace(hit, score=1 / (RRF_K + hit.rank))
    # Each PMID's first passage, of the index or else of PubMed
    articles: dict[str, Passage] = {}
    passages = [hit.passage for hit in local]
    for (side, _), order in orders.items():
        passages += order if side is Side.PUBMED else ()
    for passage in passages:
        if pmid := _pmid(passage):
            articles.setdefault(pmid, passage)
    for (side, phrase), order in orders.items():
        seen: set[str] = set()
        for rank, passage in enumerate(order, start=1):
            if side is Side.EUROPEPMC:
                passage = articles.get(_pmid(passage), passage)
            if passage.id in seen:
                continue
            seen.add(passage.id)
            by_side = SideHit(side, rank, 1 / (RRF_K + rank), phrase)
            hit = by_id.get(passage.id) or Hit(passage, 0.0, 0)
            score, sides = hit.score + by_side.score, (*hit.sides, by_side)
            by_id[passage.id] = replace(hit, score=score, sides=sides)
    hits = []
    for hit in by_id.values():
        hits.append(replace(hit, score=round(hit.score, SCORE_DIGITS)))
    hits.sort(key=lambda hit: (-hit.score, hit.passage.id))
    return [replace(hit, rank=rank) for rank, hit in enumerate(hits[:k], start=1)]


def _pmid(passage: Passage) -> str:
    """Return the PMID in a passage's address; "" if it is not an article of PubMed."""
    match = _ARTICLE.fullmatch(passage.url)
    return match[1] if match else ""
