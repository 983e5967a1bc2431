"""The passage, one citable piece of medical evidence, and the protocol of a retriever."""

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
        """`<corpus>:<document>:<section>`: what it shares with the other pieces of its section."""
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
        """What encoders are given: the section belongs to the title."""
        named = self.section and self.section != self.title
        return (f"{self.title}. {self.section}" if named else self.title), self.text


Side = Literal["lexical", "joint", "dense", "rerank", "pubmed", "europepmc"]
"""A way of finding passages, of which a hybrid search fuses several: BM25 over a phrase's words, or over the words of
all phrases of a language; nearest vectors to a phrase; a cross-encoder's order of the other sides' results; the own
order of relevance of PubMed, and of Europe PMC."""
Place = tuple[Side, int]
"""A side, and the number of the query's phrase, from 0."""


@dataclass(frozen=True, slots=True)
class SideHit:
    """The rank of a passage on one side."""

    side: Side
    rank: int  # From 1
    score: float  # That side's own, higher is nearer; scores of different sides cannot be compared
    phrase: int = 0  # The number of the query's phrase that found it, from 0


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage as an answer to a query: `score` is the retriever's own (higher is nearer), `rank` from 1."""

    passage: Passage
    score: float
    rank: int
    sides: tuple[SideHit, ...] = ()
    """Its rank on each side that found it, in the order of `Side`."""
    shown: str = ""  # What a judge was given of it; empty for nothing


Phrases = tuple[str, ...]
"""A query: one phrase, or several different ones that look at it from different sides, fused by rank; plain text,
whatever they hold."""


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """What a stored verdict needs to say which evidence it saw."""

    retriever: str  # "bm25", "dense" or "hybrid", with "+pubmed" and "+europepmc" where they are asked too
    index_digest: str
    corpora: Mapping[str, str]  # Corpus name → corpus digest
    passages: int
    dense: Mapping[str, Any] | None = None
    """The dense side: encoder id and digest, index kind, parameters, recall@k against flat; None without one."""


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
