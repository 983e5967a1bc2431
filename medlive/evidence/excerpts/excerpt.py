"""Choose the sentences of a passage that a judge is shown: those nearest to what was searched for (`excerpt`).

Only whole sentences, with the sentences that they refer back to, and with their neighbours as far as there is room.
Unlike `corpora.model.sentences`, which decides where passages are cut and so may never change, `split_sentences` knows
abbreviations, wrapped lines, list items, and what refers back.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from medlive.evidence.corpora.parsing.text import stop_words
from medlive.text.lists import read_words
from medlive.text.normalise import fold
from medlive.text.tokens import longest_prefix, weight

LONGEST = 600
"""Units of weight (medlive.text.tokens) of the longest sentence: 600 Latin or 150 Chinese characters. What is
longer is a table or a text without stops, and is divided at the ends of clauses."""
_NEAREST_HEAD = 40
"""Sentences before a list item among which its head is looked for."""

_END = re.compile(r"""[.!?]["')\]”’]{0,3}\s+|[。！？]["”’）」』]{0,3}\s*|\s*\n\s*""")
_CLAUSE_END = re.compile(r"[，、；：。,;:|]\s*|\s+")
_LAST_WORD = re.compile(r"(?:\w\.)*\w+\Z")
_SHORT = read_words("medlive.evidence", "abbreviations.txt")
_MARKER = re.compile(
    r"[-•*▪·–●・■\uf0b7]\s*|\(?\d{1,2}[.)、．]\s*|[（(]\d{1,2}[)）]\s*|[①-⑳]\s*|\(?[a-zA-Z][.)]\s+"
    r"|\(?[IVXivx]{2,4}[.)]\s+"
)
_ITEM = re.compile(rf"(?:{_MARKER.pattern})\w")
_OPENS = re.compile(r"[:：]\s*\Z")  # The end of a line that opens a list
# An "it" that refers to nothing before
_EXPLETIVE = re.compile(
    r"(?i)it (?:is|was|may be|has been) (?:\w+ly )?(?:important|recommended|possible|likely|unlikely|unclear|unknown"
    r"|known|not known|estimated|advisable|essential|necessary|thought|believed|suggested|reported|shown|best) "
)
_REFERS_BACK = re.compile(
    r"""(?ix) ["'(\[“‘]{0,2} (?:
        (?: it | its | this | these | they | them | their | he | she | his | her | such | both | either | neither
          | that\ (?:is|was|may|can) | those(?!\ (?:who|whose|with|without|in|at|of|on)\b) | another | others
          | the\ (?:former|latter|same|above|two|other)
          | however | therefore | thus | hence | moreover | furthermore | otherwise | instead | consequently
          | conversely | similarly | accordingly | nevertheless | nonetheless
          | but | and | or | so | then | also | yet | as\ a\ result | on\ the\ other\ hand | if\ (?:so|not)
        ) \b
      | (?:[\w-]+,?\ ){1,3} (?: this | these | both | such | those(?!\ (?:who|whose|with|without|in|at|of|on)\b)
          | it | they | them ) \b (?!-)
      | 但 | 而(?!且) | 因此 | 所以 | 然而 | 其(?!实) | 它 | 这 | 两者 | 二者 | 那(?!么)
      | 前者 | 后者 | 否则 | 如此 | 由此 | 故(?!意)
      | 若是 | 以上 | 以下 | 上述 | 另一 | 则 | 该 | 此(?!外)
      | [\u3400-\u9fff]{1,3} (?: 该(?!患) | 此(?!外|时) | 上述 | 两者 | 二者 | 这[些种类样] | 前者 | 后者 )
    )"""
)
GAP = " … "
"""Shown where words of the passage were left out."""
BETWEEN = 4
"""Units of weight that are counted for what is shown between two sentences: a gap at most."""
MATCHED = 0.7
"""The share of the room for the sentences that match best; the rest is for those between and around them."""
DEPTH = 2
"""How many references are followed from a sentence to others; fewer where there is no room."""
_LATIN = re.compile(r"[a-z][a-z0-9-]{2,}")
_HAN = re.compile(r"[\u3400-\u9fff]+")
_STEM = 6  # First letters of a Latin word, which are compared
_STOP_WORDS = stop_words() | frozenset(
    ("the", "and", "for", "with", "that", "this", "are", "not", "but")
)
NEIGHBOUR = 0.5
"""The share of its better neighbour's worth that a sentence gets: what is beside a match explains it."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text, without the white space around it; or several that follow each other, shown together."""

    words: str
    start: int  # Where it begins in the text
    needs: tuple[int, ...] = ()
    """The numbers of the sentences without which it cannot be understood."""
    cut_before: bool = False
    """Whether it begins (`cut_after`: ends) inside a sentence that is too long to be shown whole."""
    cut_after: bool = False
    joins: bool = False
    """Whether it is shown as going on from the sentence before, since nothing between them was left out."""

    @property
    def end(self) -> int:
        """Where it ends in the text."""
        return self.start + len(self.words)

    @cached_property
    def units(self) -> int:
        """Its weight (`medlive.text.tokens`)."""
        return weight(self.words)


def split_sentences(text: str) -> list[Sentence]:
    """The sentences of a text in order; one heavier than `LONGEST` in parts, marked by `cut_before` and `cut_after`."""
    sentences: list[Sentence] = []
    start = 0
    for match in _END.finditer(text):
        if _is_end(text, start, match):
            sentences += _parts(text, start, match.end())
            start = match.end()
    sentences += _parts(text, start, len(text))
    return [
        replace(own, needs=_needs_of(text, sentences, number))
        for number, own in enumerate(sentences)
    ]


def _sentence(
    text: str,
    start: int,
    end: int,
    *,
    before: bool = False,
    after: bool = False,
) -> Sentence:
    """The sentence in `text[start:end]`, without the white space around it."""
    own = text[start:end]
    place = start + len(own) - len(own.lstrip())
    return Sentence(own.strip(), place, cut_before=before, cut_after=after)


def _is_end(
    text: str,
    start: int,
    match: re.Match[str],
) -> bool:
    """Whether a stop or a line's end closes the sentence that began at `start`."""
    before = text[start : match.start()]
    following = text[match.end() : match.end() + 1]
    own = _sentence(text, start, match.end())
    if not own.words or _MARKER.fullmatch(text, own.start, match.end()):
        return False
    stop = text[match.start()]
    if stop.isspace():
        wrapped = following.islower() and following.isascii()
        return not (wrapped and before[-1:] not in ".!?:;。！？：；")
    if stop != ".":
        return True
    if "\n" in match[0]:
        return True
    return not _is_abbreviation(before, following)


def _is_abbreviation(before: str, following: str) -> bool:
    """Whether a full stop between the two belongs to an abbreviation or a damaged decimal ("30. 4")."""
    last = _LAST_WORD.search(before)
    if last is None:
        return False
    word = last[0].lower()
    if word in _SHORT["always"]:
        return True
    if word == "al":
        return following.islower() or following.isdigit() or following == "("
    if following.isdigit():
        return word in _SHORT["before a number"] or (word.isdigit() and len(word) < 3)
    is_short = "." in word or len(word) < 4
    return is_short and following.islower() and following.isascii()


def _parts(text: str, start: int, end: int) -> Iterator[Sentence]:
    """A sentence, in parts if it is heavier than `LONGEST`; each part but the last ends with a clause if it can."""
    whole = _sentence(text, start, end)
    start = first = whole.start
    end = whole.end
    while weight(text[start:end]) > LONGEST:
        limit = start + longest_prefix(text[start:end], LONGEST)
        cut = limit
        for match in _CLAUSE_END.finditer(text, start + (limit - start) // 2, limit):
            cut = match.end()
        part = _sentence(text, start, cut, before=start > first, after=True)
        if part.words:
            yield part
        start = cut
    last = _sentence(text, start, end, before=start > first)
    if last.words:
        yield last


def _needs_of(
    text: str,
    sentences: list[Sentence],
    number: int,
) -> tuple[int, ...]:
    """The numbers of the sentences without which sentence `number` cannot be understood."""
    own = sentences[number]
    refers_back = _REFERS_BACK.match(own.words) and not _EXPLETIVE.match(own.words)
    needs = []
    # In a sentence that is cut, a gap shows that its beginning is missing.
    if not own.cut_before and _is_item(text, sentences, number):
        # The line that opens the list.
        for earlier in range(number - 1, max(-1, number - 1 - _NEAREST_HEAD), -1):
            if _OPENS.search(sentences[earlier].words):
                needs.append(earlier)
                break
            if not _is_item(text, sentences, earlier):
                break
    elif not own.cut_before and number and refers_back:
        needs.append(number - 1)
    if _OPENS.search(own.words) and number + 1 < len(sentences):
        needs.append(number + 1)
    return tuple(needs)


def _is_item(text: str, sentences: list[Sentence], number: int) -> bool:
    """Whether a sentence is an item of a list: it has a mark, or is a line without a stop."""
    own, words = sentences[number], sentences[number].words
    if _ITEM.match(words):
        return True
    between = text[sentences[number - 1].end : own.start] if number else "\n"
    return "\n" in between and words[-1] not in ".!?。！？" and not _OPENS.search(words)


def render(stretches: Sequence[Sentence]) -> str:
    """The text of some stretches (sentences, or runs of them) as it is shown, with gaps where words were left out."""
    parts = []
    for number, stretch in enumerate(stretches):
        if number:
            parts.append("\n" if stretch.joins else GAP)
        elif stretch.cut_before:
            parts.append(GAP.lstrip())
        parts.append(stretch.words)
    if stretches and stretches[-1].cut_after:
        parts.append(GAP.rstrip())
    return "".join(parts)


def excerpt(
    text: str,
    wanted: Iterable[str],
    *,
    units: int,
    limit: int,
    known: Collection[str] = frozenset(),
) -> tuple[Sentence, ...]:
    """The sentences of `text` nearest to the phrases in `wanted`, with what they refer back to and their neighbours.

    Args:
        text: The passage.
        wanted: The phrases that were searched for, and the claims.
        units: The most that the excerpt is to weigh (medlive.text.tokens).
        limit: What one sentence alone may weigh where none fits into `units`; at least `units`.
        known: Sentences that are shown elsewhere already, folded; they are left out.

    Returns:
        The sentences in their order, neighbours joined to one stretch; none if no sentence fits into `limit`.
    """
    sentences = split_sentences(text)
    left_out = set()
    for number, own in enumerate(sentences):
        if known and fold(own.words) in known:
            left_out.add(number)
    worth = _worth(sentences, wanted)
    # Room for a gap at either end, where a sentence is cut.
    room, longest = units - 2 * BETWEEN, limit - 2 * BETWEEN
    chosen = _matching(sentences, worth, left_out, room, longest)
    chosen = _widened(sentences, chosen, left_out, room)
    stretches: list[Sentence] = []
    for number in sorted(chosen):
        own = sentences[number]
        if number - 1 in chosen:
            before = stretches.pop()
            words = text[before.start : own.end]
            own = replace(before, words=words, cut_after=own.cut_after)
        stretches.append(own)
    return tuple(stretches)


def _matching(
    sentences: Sequence[Sentence],
    worth: Sequence[float],
    left_out: set[int],
    room: int,
    longest: int,
) -> set[int]:
    """The numbers of the sentences that match best, with what they need.

    The best may take all the room, or, if it does not fit, weigh up to `longest`.
    """
    kept = math.ceil(room * (1 - MATCHED))
    chosen: set[int] = set()
    for number in sorted(range(len(sentences)), key=lambda n: -worth[n]):
        if number in chosen | left_out or (chosen and worth[number] <= 0):
            continue
        ways = [(DEPTH, room - kept), (1, room - kept)]
        if not chosen:
            ways = [(DEPTH, room), (1, room), (1, longest)]
        for depth, most in ways:
            larger = chosen | _with_needs(sentences, number, depth) - left_out
            if _cost(sentences, larger) <= most:
                chosen = larger
                break
    return chosen


def _widened(
    sentences: Sequence[Sentence],
    matching: set[int],
    left_out: set[int],
    room: int,
) -> set[int]:
    """The matching sentences and, if they fit, those between them (smallest gap first) and around (nearest first)."""
    chosen, ends = matching, sorted(matching)
    if not chosen:
        return chosen
    gaps = [set(range(left + 1, right)) for left, right in pairwise(ends)]
    gaps.sort(key=lambda gap: _cost(sentences, gap))
    distance = {}
    for number in range(len(sentences)):
        if number not in left_out:
            distance[number] = min((abs(number - end), number < end) for end in ends)
    around = []
    for number in sorted(distance, key=lambda n: (distance[n], n)):
        around.append(_with_needs(sentences, number, DEPTH) - left_out)
    for more in [gap for gap in gaps if gap.isdisjoint(left_out)] + around:
        if _cost(sentences, chosen | more) <= room:
            chosen = chosen | more
    return chosen


def _cost(sentences: Sequence[Sentence], numbers: Iterable[int]) -> int:
    return sum(sentences[number].units + BETWEEN for number in numbers)


def _with_needs(
    sentences: Sequence[Sentence],
    number: int,
    depth: int,
) -> set[int]:
    """The sentence, the sentences that it needs, and those that these need, for `depth` steps."""
    closure, latest = {number}, [number]
    for _ in range(depth):
        needs = [n for own in latest for n in sentences[own].needs]
        latest = [n for n in needs if n not in closure]
        closure.update(latest)
    return closure


def _worth(
    sentences: Sequence[Sentence],
    wanted: Iterable[str],
) -> list[float]:
    """The worth of each sentence: the terms that it shares with `wanted`, and a part of its better neighbour's worth.

    A term that is in many sentences counts little.
    """
    needed: frozenset[str] = frozenset().union(*map(_terms, wanted))
    shared = [needed & _terms(own.words) for own in sentences]
    counts = Counter(term for own in shared for term in own)
    alone = []
    for own in shared:
        rarities = [1 / math.sqrt(counts[term]) for term in sorted(own)]
        alone.append(sum(rarities))
    padded = [0.0, *alone, 0.0]
    worth = []
    for number, value in enumerate(alone):
        worth.append(value + NEIGHBOUR * max(padded[number], padded[number + 2]))
    return worth


@lru_cache(maxsize=4096)
def _terms(text: str) -> frozenset[str]:
    """The beginnings of the Latin words of a text, and its Chinese characters in pairs."""
    lower = text.lower()
    terms = {word[:_STEM] for word in _LATIN.findall(lower) if word not in _STOP_WORDS}
    for run in _HAN.findall(lower):
        terms.update(first + second for first, second in pairwise(run))
    return frozenset(terms - _STOP_WORDS)
