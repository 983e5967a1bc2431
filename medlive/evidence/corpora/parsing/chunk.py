"""Documents cut into passages: by section, then by sentence; small enough to cite, whole enough to judge."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from medlive.evidence.corpora.parsing.text import clean, language_of, one_line, slug
from medlive.evidence.passage import Passage

LIMIT = {"zh": 500, "ja": 500}
"""Characters to a passage, by language; a Chinese character weighs about two and a half Latin ones."""
DEFAULT_LIMIT = 1200
MAX_LABEL = 120
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


@dataclass(frozen=True, slots=True)
class Section:
    """A labelled part of a document; the label may be empty."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
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
) -> Iterator[Passage | None]:
    """The document's passages in reading order; None in the place of a piece that is boilerplate."""
    title = one_line(document.title)[:300]
    used: Counter[str] = Counter()
    for label, text, language in _pieces(document):
        if is_boilerplate(text):
            yield None
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
    """The texts of the passages to be."""
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
        pending += pieces[-1:]
    yield from _joined(pending)


def _joined(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """Several pieces as one, where there are any."""
    if pieces:
        labels = dict.fromkeys(label for label, _, _ in pieces if label)
        text = "\n".join(text for _, text, _ in pieces)
        yield ", ".join(labels)[:MAX_LABEL], text, pieces[0][2]


def path_label(titles: Sequence[str]) -> str:
    """The titles a text stands under, outermost first ("Treatment > Drugs"); a long path loses its beginning."""
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


def chunk(text: str, limit: int) -> Iterator[str]:
    """Pieces of at most `limit` characters (a last short one may lengthen its neighbour by a quarter).

    Cuts fall between sentences; inside a sentence only when it alone exceeds the limit, then at a clause or a
    space in its second half if there is one. Nothing but white space at the cuts is lost.
    """
    pending: list[str] = []
    size = 0
    previous: str | None = None
    for sentence in sentences(text):
        for part in _split_long(sentence, limit):
            if size + len(part.rstrip()) > limit and size:
                if previous is not None:
                    yield previous
                previous = "".join(pending).strip()
                pending, size = [], 0
            pending.append(part)
            size += len(part)
    last = "".join(pending).strip()
    if previous is not None:
        if (
            last
            and len(last) * 4 <= limit
            and len(previous) + len(last) + 1 <= limit + limit // 4
        ):
            last = f"{previous}\n{last}" if _ITEM.match(last) else f"{previous} {last}"
        elif previous:
            yield previous
    if last:
        yield last


def _split_long(sentence: str, limit: int) -> Iterator[str]:
    start = 0
    while len(sentence) - start > limit:
        cut = start + limit
        for match in _CLAUSE_END.finditer(sentence, start + limit // 2, start + limit):
            cut = match.end()
        yield sentence[start:cut]
        start = cut
    yield sentence[start:]
