"""The passage: one citable piece of medical evidence, and what a retriever promises."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from medlive.digest import digest_json


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a source document, long enough to judge a claim by and short enough to cite."""

    id: str
    """`<corpus>:<document>:<section>`, stable across builds of the same corpus."""
    corpus: str
    title: str
    section: str
    text: str
    language: str
    published: date | None
    """None when the source gives no date."""
    url: str
    licence: str

    @property
    def digest(self) -> str:
        """The digest of what a verdict rests on: title, section and text."""
        return digest_json([self.title, self.section, self.text])


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage as an answer to a query: `score` is the retriever's own (higher is nearer), `rank` from 1."""

    passage: Passage
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """What a stored verdict needs to say which evidence it saw."""

    retriever: str
    """"bm25" or another kind's name."""
    index_digest: str
    corpora: dict[str, str]
    """Corpus name → corpus digest."""
    passages: int


class Retriever(Protocol):
    """Finds the passages nearest to each query."""

    @property
    def identity(self) -> IndexIdentity:
        """Which index this is."""
        ...

    async def search(self, queries: Sequence[str], *, k: int, not_after: date | None = None) -> list[list[Hit]]:
        """For each query its k best hits, best first; none published after `not_after`
        (undated passages stay: their corpus is dated by its build)."""
        ...
