"""The passage (one citable piece of medical evidence), the hits of a search, and the `Retriever` protocol."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Protocol

from medlive.integrity.digest import digest_json

_PIECE = re.compile(r"\.([0-9]{1,9})\Z")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a source document, long enough to judge a claim by and short enough to cite."""

    id: str  # `<corpus>:<document>:<section>.<piece>`, stable across builds of the same corpus
    corpus: str
    title: str
    section: str
    text: str
    language: str
    published: date | None  # None when the source gives no date
    url: str
    licence: str

    @property
    def section_id(self) -> str:
        """`<corpus>:<document>:<section>`: the part of the id that all pieces of a section share."""
        return _PIECE.sub("", self.id)

    @property
    def piece(self) -> int:
        """Its number among the pieces of its section, from 1."""
        match = _PIECE.search(self.id)
        return int(match[1]) if match else 1

    @property
    def digest(self) -> str:
        """The digest of title, section and text."""
        return digest_json([self.title, self.section, self.text])

    @property
    def title_and_text(self) -> tuple[str, str]:
        """The title, with the section's heading, and the text, as encoders read them."""
        named = self.section and self.section != self.title
        return (f"{self.title}. {self.section}" if named else self.title), self.text


Side = Literal["lexical", "joint", "dense", "rerank", "pubmed", "europepmc"]
"""A way of ranking passages; a hybrid search fuses several. `lexical`: BM25 over one phrase's words; `joint`: BM25 over
the words of all phrases of a language; `dense`: vectors nearest to a phrase; `rerank`: a cross-encoder's order of the
fused result; `pubmed`, `europepmc`: the service's own order of relevance."""
Place = tuple[Side, int]
"""A side, and the number of the query's phrase (for `joint`, of its language), from 0."""


@dataclass(frozen=True, slots=True)
class SideHit:
    """The rank of a passage on one side."""

    side: Side
    rank: int  # From 1
    score: float  # The side's own, higher is nearer; scores of different sides cannot be compared
    phrase: int = 0  # The number in `Place`: of the query's phrase that found it


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage as an answer to a query: `score` is the retriever's own (higher is nearer), `rank` from 1."""

    passage: Passage
    score: float
    rank: int
    sides: tuple[SideHit, ...] = ()
    """Its rank on each side that found it, in the order of `Side`."""
    shown: str = ""  # The part of its text that a judge was shown; empty: none


Phrases = tuple[str, ...]
"""A query: one phrase, or several wordings whose results are fused by rank. Phrases are plain text: nothing in them is
search syntax."""


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """Which evidence a search used; stored with each verdict."""

    retriever: str  # "bm25", "dense" or "hybrid", with "+pubmed" and "+europepmc" where they are asked too
    index_digest: str
    corpora: Mapping[str, str]  # Corpus name → corpus digest
    passages: int
    dense: Mapping[str, Any] | None = None
    """Keys `sides` (each encoder with its index's kind, recall and weights), `fusion`, `reranker`; None without any."""


class Retriever(Protocol):
    """Finds the passages nearest to each query."""

    identity: IndexIdentity  # Which index this is

    async def search(
        self,
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        """For each query its k best hits, best first; none published after `not_after` (undated passages stay:
        their corpus is dated by its build)."""
