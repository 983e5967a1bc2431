"""`OnlineRetriever` asks literature services besides the local index, and fuses the results by rank.

Fusion is reciprocal rank fusion, as in the local index (Cormack, Clarke and Büttcher, SIGIR 2009). Of a claim's phrase
only plain words are sent, and nothing where an identifier of a person is found in it.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from medlive.evidence.corpora.parsing.text import language_of
from medlive.evidence.passage import (
    Hit,
    IndexIdentity,
    Passage,
    Phrases,
    Place,
    Retriever,
    SideHit,
)
from medlive.evidence.retriever import RRF_K, SCORE_DIGITS
from medlive.integrity.digest import digest_json

from .service import Literature

ARTICLES = 10
"""Articles asked of each service for each phrase."""
MOST_WORDS = 12
"""Words of a phrase that are sent; relevance ranking gains nothing from more, and long phrases match nothing."""
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_OPERATORS = frozenset({"and", "or", "not", "to"})
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
        """Prepare to search.

        Args:
            services: Asked for every phrase, at least one; they share a client.
            local: The local index; None for none.
            may_leave: Whether a phrase may be sent, because it names nobody.
        """
        self.services = tuple(services)
        self._local = local
        self._may_leave = may_leave
        # Services have no digest, so their passages are stored with each verdict.
        own = local.identity if local else IndexIdentity("", "", {}, 0)
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
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        """See `Retriever`.

        Raises:
            LiteratureUnavailable: if a service gave no usable answer; a claim is never judged on a part.
            CircuitOpen: if a service's circuit is open, so that it is not asked.
        """
        local: list[list[Hit]] = [[] for _ in queries]
        if self._local is not None:
            local = await self._local.search(queries, k=k, not_after=not_after)
        results = []
        for query, own in zip(queries, local, strict=True):
            orders = await self._ask(query, not_after)
            results.append(fuse(own, orders, k))
        return results

    async def aclose(self) -> None:
        """Close the connections to the services."""
        await self.services[0].client.aclose()

    async def _ask(
        self,
        query: Phrases,
        not_after: date | None,
    ) -> dict[Place, list[Passage]]:
        """Return what each service finds for each phrase; when one fails, the others are not asked any further."""
        tasks: dict[Place, asyncio.Task[list[Passage]]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for number, phrase in enumerate(query):
                    words = plain_words(phrase) if self._may_leave(phrase) else ""
                    for service in self.services if words else ():
                        search = service.search(
                            words, most=ARTICLES, not_after=not_after
                        )
                        key = service.name, number
                        tasks[key] = group.create_task(search)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {key: task.result() for key, task in tasks.items()}


def plain_words(phrase: str) -> str:
    """Return the words of a phrase in lower case, without what a search engine reads as a command.

    Args:
        phrase: A search phrase as an engine wrote it.

    Returns:
        At most `MOST_WORDS` words; "" if the phrase holds none, or is not in a script that the services index.
    """
    if language_of(phrase) not in ("en", "und"):
        return ""
    words = [word.lower() for word in _WORD.findall(phrase)]
    return " ".join([word for word in words if word not in _OPERATORS][:MOST_WORDS])


def fuse(
    local: Sequence[Hit],
    orders: Mapping[Place, Sequence[Passage]],
    k: int,
) -> list[Hit]:
    """Return the k best of `local`, which counts as one order, and of the services' orders.

    Europe PMC's copy of an article that PubMed or the index also gives counts as theirs.
    """
    passages = {hit.passage.id: hit.passage for hit in local}
    scores: dict[str, float] = defaultdict(float)
    sides: dict[str, list[SideHit]] = defaultdict(list)
    for hit in local:
        scores[hit.passage.id] = 1 / (RRF_K + hit.rank)
        sides[hit.passage.id] += hit.sides
    # Each PMID's first passage, of the index or else of PubMed
    articles: dict[str, Passage] = {}
    for passage in passages.values():
        if pmid := _pmid(passage):
            articles.setdefault(pmid, passage)
    places = sorted(orders, key=lambda place: place[0] != "pubmed")
    for side, phrase in places:
        seen = set[str]()
        for rank, passage in enumerate(orders[side, phrase], start=1):
            if side == "pubmed":
                articles.setdefault(_pmid(passage), passage)
            else:
                passage = articles.get(_pmid(passage), passage)
            name = passages.setdefault(passage.id, passage).id
            if name not in seen:
                seen.add(name)
                share = 1 / (RRF_K + rank)
                scores[name] += share
                sides[name].append(SideHit(side, rank, share, phrase))
    rounded = {name: round(score, SCORE_DIGITS) for name, score in scores.items()}
    best = sorted(rounded, key=lambda name: (-rounded[name], name))[:k]
    return [
        Hit(passages[name], rounded[name], rank, tuple(sides[name]))
        for rank, name in enumerate(best, start=1)
    ]


def _pmid(passage: Passage) -> str:
    """Return the PMID in a passage's address; "" if it is not an article of PubMed."""
    match = _ARTICLE.fullmatch(passage.url)
    return match[1] if match else ""
