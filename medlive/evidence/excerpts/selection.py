"""What a judge is given of all the passages that were found for a case's claims, within a budget of tokens.

Rank by rank, so that each claim has its best passage before any has its second; then, as far as the budget goes,
more of those that were chosen, the best first. Pieces of one section are one passage, and a text that two corpora
hold, or a chunk that overlaps another, is given once.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import NamedTuple

from medlive.evidence.excerpts.excerpt import Stretch, excerpt, render
from medlive.evidence.excerpts.sentences import split_sentences
from medlive.evidence.passage import Hit, Passage
from medlive.text.normalise import contains_quote, fold
from medlive.text.tokens import UNITS, estimate_tokens, weight

WIDTH = 180
"""Tokens shown of a piece at first: about 700 Latin characters, with which judges found more support than with 260."""
LEAST_WIDTH = 60
"""Tokens shown of a piece where there are many claims; a sentence that is longer is given whole."""
SEARCHED = 4
"""Hits to search for each passage of a claim: long sections give many, of which one counts."""
EACH = 3
"""Passages for which each claim is to have room, before they get wider."""
FRAME = 16
"""Tokens of a passage besides title and text: its id, the keys, the marks around them."""
TITLE = 80
"""Characters shown of a document's title."""
SECTION = 60
"""Characters shown of a section's heading."""
ALIKE = 0.8
"""The share of the shorter text's shingles that two near-identical texts have in common."""
SHINGLE = 4
_WORD = re.compile(r"[\u3040-\u9fff]|[^\W_\u3040-\u9fff]+")
LEAST_KNOWN = 60
"""Units of weight from which on a sentence that is shown already is not shown again."""


@dataclass(frozen=True, slots=True)
class ShownPassage:
    """A section as a judge is given it."""

    id: str  # `<corpus>:<document>:<section>`
    title: str  # The document's title and the section's heading
    text: str  # Whole sentences; " … " where others were left out
    stretches: tuple[str, ...]  # The words between two gaps: a quote stands in one
    hits: tuple[Hit, ...]  # Its pieces in reading order, each with what is shown of it

    @property
    def tokens(self) -> int:
        """What it costs."""
        return _cost(self.title, self.text)

    def has(self, quote: str) -> bool:
        """Whether a quote stands in what is shown, without a gap."""
        return any(contains_quote(quote, words) for words in self.stretches)

    def cite(self, quote: str) -> tuple[tuple[str, str], ...]:
        """(id of the piece, words) of a quote that is shown: two where it runs from one piece to the next."""
        for hit in self.hits:
            if contains_quote(quote, hit.passage.text):
                return ((hit.passage.id, quote),)
        for first, second in pairwise(self.hits):
            for at in range(1, len(quote)):
                halves = (first.passage, quote[:at]), (second.passage, quote[at:])
                if all(contains_quote(half, p.text) for p, half in halves):
                    return tuple((p.id, half.strip()) for p, half in halves)
        return ((self.hits[0].passage.id, quote),)


class Selection(NamedTuple):
    """The passages for a case."""

    passages: tuple[ShownPassage, ...]  # The best first
    hits: tuple[tuple[Hit, ...], ...]
    """For each claim its hits, one of a section, each with what is shown of it."""


def select(
    wanted: Sequence[Sequence[str]],
    hits: Sequence[Sequence[Hit]],
    *,
    most: int,
    tokens: int,
) -> Selection:
    """Choose what is shown of the hits of all claims.

    Args:
        wanted: For each claim its phrases and itself.
        hits: For each claim what was found, the best first; more than `most`, because of a section or a text that is
            found twice only the better one counts.
        most: Passages of a claim.
        tokens: The most that all passages may cost together (`ShownPassage.tokens`).

    Returns:
        The same for the same arguments; claims that find the same passage share it.
    """
    case = _Case(wanted, hits, most, tokens)
    width = max(LEAST_WIDTH, min(WIDTH, tokens // (EACH * max(1, len(hits)))))
    for identity in case.in_turn:
        case.show(identity, width * UNITS)
    for identity in case.in_turn:
        case.widen(identity)
    return case.selection()


@dataclass(slots=True)
class _Section:
    """A section that is shown, while its pieces are chosen."""

    title: str
    pieces: dict[str, "_Piece"] = field(default_factory=dict)

    def in_order(self) -> list["_Piece"]:
        """The pieces in reading order."""
        return sorted(self.pieces.values(), key=lambda piece: piece.place)

    def stretches(self) -> tuple[Stretch, ...]:
        """The stretches of all pieces, those joined that follow one another."""
        joined: list[Stretch] = []
        previous: _Piece | None = None
        for piece in self.in_order():
            joins = previous is not None and previous.leads_to(piece)
            first, *rest = piece.stretches
            joined += [first._replace(joins=joins), *rest]
            previous = piece
        return tuple(joined)

    def tokens(self) -> int:
        """What it costs; 0 while nothing of it is shown."""
        return _cost(self.title, render(self.stretches())) if self.pieces else 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is shown of a passage."""

    hit: Hit
    stretches: tuple[Stretch, ...]

    @property
    def place(self) -> tuple[int, str]:
        """Its place in its section."""
        return self.hit.passage.piece, self.hit.passage.id

    @property
    def weight(self) -> int:
        """How much is shown."""
        return weight(render(self.stretches))

    def leads_to(self, other: "_Piece") -> bool:
        """Whether nothing is left out between what is shown of this piece and of the other."""
        last, first = self.stretches[-1], other.stretches[0]
        following = other.hit.passage.piece == self.hit.passage.piece + 1
        return following and first.start == 0 and last.end == len(self.hit.passage.text)


class _Case:
    """The passages of a case while they are chosen."""

    def __init__(
        self,
        wanted: Sequence[Sequence[str]],
        hits: Sequence[Sequence[Hit]],
        most: int,
        room: int,
    ) -> None:
        self.in_turn: list[str] = []
        """The passages, rank by rank: every claim's first, then every claim's second, and so on."""
        self._room = room  # Tokens that are left
        self._instead: dict[str, str] = {}
        self._hits: dict[str, Hit] = {}
        self._wanted: dict[str, dict[str, None]] = {}
        self._sections: dict[str, _Section] = {}
        self._own = [self._distinct(hits_of_claim, most) for hits_of_claim in hits]
        for rank in zip_longest(*self._own):
            for phrases, hit in zip(wanted, rank, strict=True):
                if hit is not None:
                    self._want(hit.passage.id, phrases)

    def _want(self, identity: str, phrases: Sequence[str]) -> None:
        if identity not in self._wanted:
            self.in_turn.append(identity)
        self._wanted.setdefault(identity, {}).update(dict.fromkeys(phrases))

    def _distinct(self, hits: Sequence[Hit], most: int) -> list[Hit]:
        """A claim's first hits, one of a section, each text by the passage that was first found with it."""
        sections: dict[str, Hit] = {}
        for hit in hits:
            if len(sections) == most:
                break
            passage = self._first_with(hit)
            same = replace(hit, passage=passage)
            sections.setdefault(passage.section_id, same)
        return list(sections.values())

    def _first_with(self, hit: Hit) -> Passage:
        """The passage that was first found with the hit's text, or nearly the same one."""
        identity = hit.passage.id
        if identity not in self._instead:
            self._instead[identity] = self._alike(hit.passage)
            self._hits.setdefault(self._instead[identity], hit)
        return self._hits[self._instead[identity]].passage

    def _alike(self, passage: Passage) -> str:
        own = shingles(passage.text)
        for other, known in self._hits.items():
            if len(own & shingles(known.passage.text)) >= ALIKE * len(own):
                return other
        return passage.id

    def _section(self, identity: str) -> _Section:
        """The section of a passage, which may have nothing to show yet."""
        passage = self._hits[identity].passage
        return self._sections.setdefault(passage.section_id, _Section(_title(passage)))

    def show(self, identity: str, units: int) -> None:
        """Show a piece, about `units` of it, if there is room."""
        section = self._section(identity)
        heading = 0 if section.pieces else _cost(section.title, "")
        limit = (self._room - heading - 1) * UNITS
        self._set(identity, units=min(units, limit), limit=limit)

    def widen(self, identity: str) -> None:
        """Show more of a piece that is shown, as far as there is room."""
        piece = self._section(identity).pieces.get(identity)
        if piece is not None:
            limit = piece.weight + (self._room - 1) * UNITS
            self._set(identity, units=limit, limit=limit, least=piece.weight + 1)

    def _set(self, identity: str, *, units: int, limit: int, least: int = 1) -> None:
        """Show so much of a piece, unless it repeats another section."""
        section, hit = self._section(identity), self._hits[identity]
        stretches = excerpt(
            hit.passage.text,
            self._wanted[identity],
            units=units,
            limit=limit,
            known=self._shown_besides(identity),
        )
        piece = _Piece(hit, stretches)
        if piece.weight < least or self._is_repeated(section, piece):
            return
        self._room += section.tokens()
        section.pieces[identity] = piece
        self._room -= section.tokens()

    def _shown_besides(self, identity: str) -> frozenset[str]:
        """The longer sentences that are shown of other pieces, folded."""
        known: set[str] = set()
        for section in self._sections.values():
            for other, piece in section.pieces.items():
                if other != identity:
                    known |= _long_sentences(piece.stretches)
        return frozenset(known)

    def _is_repeated(self, own: _Section, piece: _Piece) -> bool:
        """Whether another section that is shown would be alike, with this piece in its own."""
        pieces = own.pieces | {piece.hit.passage.id: piece}
        text = render(_Section(own.title, pieces).stretches())
        others = [s for s in self._sections.values() if s is not own and s.pieces]
        return any(alike(text, render(other.stretches())) for other in others)

    def selection(self) -> Selection:
        """What was chosen."""
        passages = []
        for identity, section in self._sections.items():
            if section.pieces:
                passages.append(_shown(identity, section))
        shown = {hit.passage.id: hit.shown for p in passages for hit in p.hits}
        claims = []
        for own in self._own:
            hits = [replace(h, shown=shown.get(h.passage.id, "")) for h in own]
            claims.append(tuple(hits))
        return Selection(tuple(passages), tuple(claims))


def _cost(title: str, text: str) -> int:
    return FRAME + estimate_tokens(title) + estimate_tokens(text)


def _shown(identity: str, section: _Section) -> ShownPassage:
    stretches = section.stretches()
    readable: list[str] = []
    for stretch in stretches:
        before = f"{readable.pop()}\n" if stretch.joins else ""
        readable.append(before + stretch.words)
    hits = []
    for piece in section.in_order():
        hits.append(replace(piece.hit, shown=render(piece.stretches)))
    return ShownPassage(
        id=identity,
        title=section.title,
        text=render(stretches),
        stretches=tuple(readable),
        hits=tuple(hits),
    )


def _title(passage: Passage) -> str:
    """The document's title, and the section's heading where it says more."""
    title = textwrap.shorten(passage.title, TITLE, placeholder=" …")
    section = textwrap.shorten(passage.section, SECTION, placeholder=" …")
    if not section or section.casefold() in title.casefold():
        return title
    return f"{title}: {section}" if title else section


@lru_cache(maxsize=512)
def _long_sentences(stretches: tuple[Stretch, ...]) -> frozenset[str]:
    long = set()
    for stretch in stretches:
        for own in split_sentences(stretch.words):
            if own.units >= LEAST_KNOWN:
                long.add(fold(own.words))
    return frozenset(long)


def alike(one: str, other: str) -> bool:
    """Whether two texts are near-identical, or one holds nearly all of the other."""
    first, second = shingles(one), shingles(other)
    return len(first & second) >= ALIKE * min(len(first), len(second))


@lru_cache(maxsize=512)
def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """The runs of four words of a text, a Chinese character being one; of a shorter text itself."""
    words = _WORD.findall(fold(text))
    runs = range(max(1, len(words) - SHINGLE + 1))
    return frozenset(tuple(words[n : n + SHINGLE]) for n in runs)
