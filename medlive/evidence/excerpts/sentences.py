"""The sentences of a passage, and which of them cannot be read without another.

Other than `corpora.parsing.chunk.sentences`, which decides where passages are cut and so may never change, this
knows abbreviations, wrapped lines, list items, and what refers back.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from medlive.text.lists import read_lists
from medlive.text.tokens import longest_prefix, weight

LONGEST = 600
"""Units of weight (medlive.text.tokens) of the longest sentence: 600 Latin or 150 Chinese characters. What is
longer is a table or a text without stops, and is divided at the ends of clauses."""
_NEAREST_HEAD = 40
"""Sentences before a list item among which its head is looked for."""

_END = re.compile(r"""[.!?]["')\]”’]{0,3}\s+|[。！？]["”’）」』]{0,3}\s*|\s*\n\s*""")
_CLAUSE_END = re.compile(r"[，、；：。,;:|]\s*|\s+")
_LAST_WORD = re.compile(r"(?:\w\.)*\w+\Z")
_SHORT = {
    where: frozenset(" ".join(lines).split())
    for where, lines in read_lists("medlive.evidence", "abbreviations.txt").items()
}
_MARKER = re.compile(
    r"[-•*▪·–●・■\uf0b7]\s*|\(?\d{1,2}[.)、．]\s*|[（(]\d{1,2}[)）]\s*|[①-⑳]\s*|\(?[a-zA-Z][.)]\s+"
    r"|\(?[IVXivx]{2,4}[.)]\s+"
)
_ITEM = re.compile(rf"(?:{_MARKER.pattern})\w")
_OPENS = re.compile(r"[:：]\s*\Z")
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


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text, without the white space around it; or several that follow each other, shown together."""

    words: str
    start: int  # Where it stands in the text
    needs: tuple[int, ...] = ()
    """The sentences, by number, without which it cannot be understood."""
    cut_before: bool = False
    """Whether it begins inside a sentence that is too long to be given whole."""
    cut_after: bool = False
    joins: bool = False
    """Where it is shown: whether it reads on from the one before, because nothing between the two was left out."""

    @property
    def end(self) -> int:
        """Where it ends in the text."""
        return self.start + len(self.words)

    @cached_property
    def units(self) -> int:
        """Its weight."""
        return weight(self.words)


def split_sentences(text: str) -> list[Sentence]:
    """The sentences of a text in order; one that weighs more than `LONGEST` in parts, which say that they are."""
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
    own = text[start:end]
    place = start + len(own) - len(own.lstrip())
    return Sentence(own.strip(), place, cut_before=before, cut_after=after)


def _is_end(text: str, start: int, match: re.Match[str]) -> bool:
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
    """Whether a full stop between these belongs to an abbreviation or a damaged decimal ("30. 4")."""
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
    """A sentence, in several parts where it is too long; each part but the last ends with a clause if it can."""
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


def _needs_of(text: str, sentences: list[Sentence], number: int) -> tuple[int, ...]:
    """The numbers of the sentences that one needs."""
    own = sentences[number]
    refers_back = _REFERS_BACK.match(own.words) and not _EXPLETIVE.match(own.words)
    needs: list[int] = []
    # Where a sentence is cut, the mark says that its beginning is missing.
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
