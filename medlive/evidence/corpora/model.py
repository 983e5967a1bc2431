"""Corpora and their readers (`Corpus`, `Reader`), and their documents, which `passages_of` cuts into passages.

Passages are small enough to cite and whole enough to judge.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

from pydantic import BaseModel

from medlive.evidence.passage import Passage

from .parsing.text import clean, language_of, one_line, slug

LIMIT = {"zh": 500, "ja": 500}
"""Characters to which passages are cut, by language; a Chinese character weighs about two and a half Latin ones."""
DEFAULT_LIMIT = 1200
MAX_LABEL = 120  # Characters
_SENTENCE_END = re.compile(r"[.!?][\"')\]”’]{0,3}\s+|[。！？；][\"”’）」]{0,3}|\n")
_CLAUSE_END = re.compile(r"[，、；：,;:]|\s")
_QUESTION_ALONE = re.compile(r"[^.!?。！？\n]*[?？]\s*")
_WORD = re.compile(r"\w")
_ITEM = re.compile(r"(?m)^[-•*▪·] ")

# A page that points elsewhere instead of saying something. Anchored at the start, so that a real text with
# such a sentence inside is kept.
_BOILERPLATE = re.compile(
    r"""(?ix) ^\W{0,5} (?:
        (?:the\ following|these|additional|other)\ (?:\w+\ ){0,2}
            (?:resources|links|websites|organi[sz]ations)\ (?:\w+\ ){0,2}
            (?:address|provide|may|can|offer|include|are|might)
      | (?:this\ (?:site|website)|we)\ uses?\ cookies | please\ enable\ (?:javascript|cookies)
      | (?:404|403|error|page)\b.{0,20}not\ (?:be\ )?found | access\ denied | all\ rights\ reserved\W*$
      | how\ (?:can|do|might)\ (?:i|you)\ (?:find|get|learn)\ (?:additional|more)\b
      | to\ (?:view|see|search)\ (?:the|a)\ (?:list|contact|current)\b
      | frequently\ asked\ que+stions[^.?!]{0,80}$
      | skip\ to\ (?:main\ )?content | table\ of\ contents\W*$ | (?:click|tap)\ here\b[^.]{0,80}\W*$
      | 版权所有 | (?:页面|网页)(?:不存在|无法|未找到) | 请(?:先)?登录 | 点击(?:查看|下载|这里)[^。]{0,30}$
      | 本(?:网)?站使用\s*cookie
    )"""
)
MAX_PROBLEMS_KEPT = 1000
"""Problems kept with their names; further ones are only counted: a ruined archive must not fill memory."""


@dataclass(frozen=True)
class Section:
    """A labelled part of a document; the label may be empty."""

    label: str
    text: str


@dataclass(frozen=True)
class Document:
    """A source document before it is cut."""

    id: str  # Unique within its corpus and stable across readings
    title: str
    sections: tuple[Section, ...]
    language: str | None = None  # None: tell by script
    published: date | None = None
    url: str = ""
    licence: str | None = None  # None: the corpus's licence
    continuous: bool = False
    """True when sections continue one another (an abstract), so that short ones may share a passage."""


def passages_of(
    document: Document,
    *,
    corpus: str,
    licence: str,
) -> Iterator[Passage]:
    """The document's passages in reading order, without pieces that say nothing."""
    title = one_line(document.title)[:300]
    used: Counter[str] = Counter()
    for label, text, language in _pieces(document):
        if is_boilerplate(text):
            continue
        part = slug(label)
        used[part] += 1
        yield Passage(
            id=f"{corpus}:{slug(document.id)}:{part}.{used[part]}",
            corpus=corpus,
            title=title,
            section=label,
            text=text,
            language=language,
            published=document.published,
            url=one_line(document.url)[:500],
            licence=document.licence or licence,
        )


def is_boilerplate(text: str) -> bool:
    """Whether a piece says nothing by itself: no words, a notice, a bare question, a list of links."""
    if len(text) <= 300 and _QUESTION_ALONE.fullmatch(text):
        return True
    return not _WORD.search(text) or _BOILERPLATE.search(text[:300]) is not None


_Piece = tuple[str, str, str]
"""A label, a text and its language."""


def _pieces(document: Document) -> Iterator[_Piece]:
    """The texts of a document's passages; short sections of a continuous document share one."""
    cleaned = []
    for section in document.sections:
        cleaned.append((one_line(section.label)[:MAX_LABEL], clean(section.text)))
    whole = document.language
    if document.continuous:
        whole = whole or language_of(" ".join(text for _, text in cleaned))
    pending: list[_Piece] = []
    for label, text in cleaned:
        language = whole or language_of(text)
        limit = LIMIT.get(language, DEFAULT_LIMIT)
        size = sum(len(words) + 1 for _, words, _ in pending)
        if not document.continuous or size + len(text) > limit:
            yield from _joined(pending)
            pending = []
        pieces = [(label, piece, language) for piece in chunk(text, limit)]
        yield from pieces[:-1]
        # The last piece may share a passage with the next section
        pending += pieces[-1:]
    yield from _joined(pending)


def _joined(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """Several pieces as one, where there are any."""
    if pieces:
        labels = dict.fromkeys(label for label, _, _ in pieces if label)
        text = "\n".join(text for _, text, _ in pieces)
        yield ", ".join(labels)[:MAX_LABEL], text, pieces[0][2]


def path_label(titles: Sequence[str]) -> str:
    """The titles above a text, outermost first ("Treatment > Drugs"); a long path loses its beginning."""
    names = [name for title in titles if (name := one_line(title))]
    label = " > ".join(names)
    while len(label) > MAX_LABEL and len(names) > 1:
        names = names[1:]
        label = "… > " + " > ".join(names)
    return label


def sentences(text: str) -> Iterator[str]:
    """The text's sentences with their closing marks; joined they give the text back."""
    start = 0
    for match in _SENTENCE_END.finditer(text):
        yield text[start : match.end()]
        start = match.end()
    if start < len(text):
        yield text[start:]


def chunk(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` characters (a last short one may lengthen its neighbour by a quarter).

    Cuts fall between sentences; inside a sentence only when it alone exceeds the limit, then at a clause or a
    space in its second half if there is one. Nothing but white space at the cuts is lost.
    """
    pieces = []
    pending = ""
    for sentence in sentences(text):
        for part in _split_long(sentence, limit):
            if pending and len(pending) + len(part.rstrip()) > limit:
                pieces.append(pending.strip())
                pending = ""
            pending += part
    last = pending.strip()
    is_short = len(last) * 4 <= limit
    if pieces and last and is_short:
        joined = (
            f"{pieces[-1]}\n{last}" if _ITEM.match(last) else f"{pieces[-1]} {last}"
        )
        if len(joined) <= limit + limit // 4:
            pieces[-1], last = joined, ""
    pieces.append(last)
    return list(filter(None, pieces))


def _split_long(sentence: str, limit: int) -> Iterator[str]:
    start = 0
    while len(sentence) - start > limit:
        cut = start + limit
        for match in _CLAUSE_END.finditer(sentence, start + limit // 2, start + limit):
            cut = match.end()
        yield sentence[start:cut]
        start = cut
    yield sentence[start:]


@dataclass
class ReadLog:
    """The account of one reading of a corpus; every file or record read is counted here or gives a passage."""

    # The first `MAX_PROBLEMS_KEPT` files or records that could not be read, each with the cause
    problems: list[tuple[str, str]] = field(default_factory=list)
    problem_count: int = 0
    documents: int = 0  # Documents that gave at least one passage
    left_out: int = 0
    """Documents that say nothing, were retracted, or are in question; records that a later one replaced."""

    def problem(self, member: str, cause: str) -> None:
        """Count a problem, and keep it while there is room."""
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS_KEPT:
            self.problems.append((member[:300], cause[:300]))


@dataclass(frozen=True)
class Reader:
    """A kind of corpus: how it is recognised and how its documents are read.

    `documents` yields in an order of its own; digests and search results do not depend on it. It reports what
    it cannot read to the log and raises BadInput only when nothing at all can be read.
    """

    kind: str
    about: str  # One line for people who choose a kind
    sniff: Callable[[Path], bool]  # Whether a path holds a corpus of this kind
    documents: Callable[[Path, ReadLog], Iterator[Document]]
    licence: str  # The licence of the kind's published data; "unstated" where the kind does not settle it


class Fetched(BaseModel, frozen=True, extra="forbid"):
    """Where a corpus was fetched from, when, and as what; every file of it is in its folder's `fetched.json`."""

    address: str
    fetched_at: datetime | None  # When the newest of its files was fetched
    files: int
    digest: str  # Of the files, as `fetched.json` in the corpus's folder lists them
    selection: str  # What was chosen of it, as JSON


@dataclass(frozen=True)
class Corpus:
    """A named source of evidence on disk; reading it twice gives the same passages."""

    name: str  # Letters, digits, `-`, `_` and `.`; the first part of every passage id
    path: Path
    reader: Reader
    licence: str
    fetched: Fetched | None = None  # None for a corpus that a person put there

    def passages(self, log: ReadLog) -> Iterator[Passage]:
        """The corpus cut into passages; what is left out is counted in `log`."""
        for document in self.reader.documents(self.path, log):
            pieces = passages_of(document, corpus=self.name, licence=self.licence)
            passages = list(pieces)
            log.documents += bool(passages)
            log.left_out += not passages
            yield from passages
