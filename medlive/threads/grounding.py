"""Whether a text is made of its source's words: the bound that no engine's own opinion of itself can lift.

A rewritten fact may change persons and tenses, resolve a pronoun and mend a spelling; it may not bring matter of
its own. An engine that was talked into something says that its statement is supported; this is the check beside
it. It counts words, it does not understand them: a single changed word stays the engine's to find, a sentence
from elsewhere does not.
"""

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from operator import add
from typing import Final, NamedTuple

from medlive.threads.normalise import fold
from medlive.threads.sentences import sentences

MOST_ADDED: Final = 2 / 3
"""The share of a text's content that its source need not hold. Synonyms, terms for a layman's words and mended
spellings come to more than a half in faithful rewriting; matter from elsewhere is new nearly to the last word."""

LEAST_QUOTED: Final = 1 / 4
"""The share of a statement's content that its quote holds; the rest names what the quote points at."""

_WORD: Final = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+(?:[.,]\d+)*")
_ASCII_WORD: Final = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*|[0-9]+(?:[.,][0-9]+)*")
"""The same in a text of ASCII alone, where it is found sooner."""
_HAN: Final = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_HAN_RUN: Final = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_INITIALS: Final = re.compile(r"[\x00-\x7f]{2,}")
_KANA: Final = re.compile(r"[\u2e80-\u30ff]")
_FRAME_TEXT: Final = """
a about above after again against age aged ago all also although am among an and another any are as asked asks at
be because been before began begin being below between both but by came can cannot could did do does doing done
down during each either ever every few for from further gave get gets given gives go goes got had has have having
he her here hers herself him himself his how however i if in instead into is it its itself just kind last less
like likely made make makes many may me might more most much must my myself near need needed needs neither next no
nor not now of off on once one ones only onto or other our out over own per please regarding reported reports said
same say says see seen she should show showed shown since so some started starts stated states still such taken
takes take taking than that the their them themselves then there these they this those though through to too took
toward towards told try under until up upon us use used uses using very was we were what when whenever where
whether which while who whom whose why will with within without would yes yet you your yours
patient patients person man woman boy girl child son daughter male female years year old months month weeks week
days day hours hour daily weekly monthly noticed developed experienced experiencing feels feel felt denies
described describes currently previously recently present presents presented history known
advise advised advises recommend recommended recommends recommendation suggest suggested suggests advisable
consider considered considering possible possibly probably perhaps avoid treat treated treatment
cause causes caused due explain explains mention mentions state warn warns condition symptom symptoms disease
disorder undergo undergoes underwent seek medical develop develops developed stage currently continue continued
"""
_FRAME: Final = frozenset(_FRAME_TEXT.split())
"""Words that carry a statement without being what it states."""
_FRAME_HAN: Final = frozenset(
    "患者病人的了是有在和与及或为被其于已曾现目前时后前中者应可能建议该所以因而且但并也都还又就才请问需要避免使用服吃进行"
    "不无未没否会能将把给对从至到以之此这那何什么怎样如若则即年月日天周岁男女性本人自我他她它们您你"
)
_MEASURE_TEXT: Final = """
mg mcg ml kg cm mm mmhg mmol iu times time twice thrice two three four five six seven eight nine ten morning
mornings evening night nightly noon dose doses tablet tablets pill pills capsule capsules drop drops
second first half
"""
_MEASURE: Final = frozenset(_MEASURE_TEXT.split())
_MEASURE_HAN: Final = frozenset(
    "每一二三四五六七八九十百千两几半多少次个片粒支包毫微克升晚早上下午夜分秒钟小星期疗程左右约第"
)
_NO_SUBJECT_HAN: Final = _FRAME_HAN | _MEASURE_HAN
_SHORT: Final = 2_000
"""Characters of a text up to which its content is kept for the next time that it is asked about."""
_ANSWERS: Final = frozenset(
    (
        "yeah",
        "yep",
        "nope",
        "right",
        "correct",
        "exactly",
        "sure",
        "ok",
        "okay",
        "true",
        "doctor",
        "dr",
        "对",
        "好",
        "嗯",
    )
)
_DOSE: Final = re.compile(
    r"(?<![\w-])(?P<name>[a-z]{5,}) (?P<number>\d+(?:\.\d+)?) ?(?:mg|mcg|µg|μg|ug|g|ml|iu|units?)\b"
)
_NO_NAME: Final = re.compile(
    r"\w+(?:ed|ing|ly)|increase|reduce|decrease|receive|least|total|dosage|single|extra|additional|lower|higher"
    r"|level|levels|value|result|volume|amount|maximum|minimum|given|equals|above|below|within|every|another"
)
_ENDINGS: Final = (
    "ations", "ation", "ities", "ingly", "ments", "ness", "ment", "ical", "ions", "ally", "ity", "ies", "ing",
    "ion", "ful", "ive", "ous", "als", "ers", "ed", "es", "ly", "al", "er", "ic", "or", "s", "y", "e",
)  # fmt: skip


class _Words:
    """What is looked up of one source or of more."""

    def __init__(self, words: frozenset[str], han: frozenset[str]) -> None:
        self.words, self.han = words, han

    @cached_property
    def known(self) -> frozenset[str]:
        """Its words and its single Chinese characters."""
        return self.words | self.han

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of its words."""
        return frozenset(map(_stem, self.words))

    @cached_property
    def by_start(self) -> dict[str, list[str]]:
        """Its words of four letters and more by their first three."""
        starts: dict[str, list[str]] = {}
        for word in self.words:
            if len(word) >= 4:
                starts.setdefault(word[:3], []).append(word)
        return starts


class _Source(_Words):
    """One source as it is looked up."""

    def __init__(self, folded: str) -> None:
        self.folded = folded
        plain = folded.isascii()
        found = set(_ASCII_WORD.findall(folded) if plain else _WORD.findall(_HAN_RUN.sub(" ", folded)))
        if "-" in folded:
            found.update([part for w in found if "-" in w for part in w.split("-")])
        han = frozenset() if plain else frozenset("".join(_HAN_RUN.findall(folded)))
        super().__init__(frozenset(found), han)

    @cached_property
    def pairs(self) -> set[str]:
        """Its pairs of Chinese characters."""
        return _pairs(self.folded)


def content(text: str) -> list[str]:
    """The content of a text: Latin words, numbers and single Chinese characters, in order, without those that
    only frame a statement ("the patient reports", 患者)."""
    return list(_content(text).words)


def folded(text: str) -> str:
    """The text as `fold` gives it, kept for the next time that it is asked about."""
    return _content(text).folded


class _Content(NamedTuple):
    """The content of a text, and what of it is Latin words and numbers."""

    folded: str
    words: tuple[str, ...]
    latin: tuple[str, ...]

    @property
    def distinct(self) -> tuple[str, ...]:
        """Each word once, in order."""
        return tuple(dict.fromkeys(self.words))


def _content(text: str) -> _Content:
    return _content_of_short(text) if len(text) <= _SHORT else _content_of(text)


def _content_of(text: str) -> _Content:
    folded = fold(text)
    if folded.isascii():
        words = tuple(_latin(folded))
        return _Content(folded, words, words)
    found: list[str] = []
    latin: list[str] = []
    at = 0
    for run in _HAN_RUN.finditer(folded):
        if (start := run.start()) > at and (between := _latin(folded[at:start])):
            found += between
            latin += between
        found += [c for c in run.group() if c not in _FRAME_HAN]
        at = run.end()
    between = _latin(folded[at:])
    return _Content(folded, (*found, *between), (*latin, *between))


# A statement is asked about more than once: against its quote, its element, its thread.
_content_of_short: Final = lru_cache(maxsize=1 << 10)(_content_of)


def added(text: str, source: str) -> tuple[str, ...]:
    """The content of a text that its source holds in no form, each once, in order."""
    return _new(_content(text).distinct, _words(source))


def is_grounded(text: str, *sources: str) -> bool:
    """Whether at most MOST_ADDED of the text's content is in none of the sources. A text without content is."""
    words = _content(text).distinct
    return len(_new(words, _words_of(sources))) <= len(words) * MOST_ADDED


def ungrounded(statement: str, quote: str, context: str, *, least_quoted: float = LEAST_QUOTED) -> tuple[str, ...]:
    """Why a statement says more than its quote and context: the words that it adds, or that its quote lacks.

    Empty when it may stand: no more than MOST_ADDED of its content is in neither, and `least_quoted` of it is in
    the quote itself, unless the quote has no content ("yes", 没有, "take it") and takes matter from the context.
    """
    words = _content(statement).distinct
    if not words:
        return ()
    new = _new(words, _words(f"{quote}\n{context}"))
    if len(new) > len(words) * MOST_ADDED:
        return new
    if _has_content(quote):
        lacking = _new(words, _words(quote))
        return lacking if len(words) - len(lacking) < len(words) * least_quoted else ()
    return ()


def ungrounded_sentences(text: str, sources: Iterable[str], language: str) -> tuple[str, ...]:
    """The sentences of a written text that are not made of the sources' words; empty when all are.

    Single Chinese characters are soon found anywhere: two in a row have to be the sources' as well.
    """
    source = "\n".join(sources)
    return tuple(
        s.text
        for s in sentences(text, language)
        if not is_grounded(s.text, source) or (_has_subject(s.text) and not shares_content(s.text, source))
    )


def doses_exchanged(text: str, sources: Iterable[str]) -> tuple[str, ...]:
    """The doses of a text that the sources name for another medicine: "aspirin 50 mg" out of "losartan 50 mg".

    Only a Latin word right before a dose is looked at, in the text as in the sources; a source that has the number
    and the word anywhere lets it stand.
    """
    stated = [(fold(source), _words(source)) for source in sources]
    named = {number for plain, _ in stated for _, number, _ in _doses(plain)}
    return tuple(
        dose
        for name, number, dose in _doses(fold(text))
        if number in named
        and not any(
            _held(name, words) and re.search(rf"(?<![\d.]){re.escape(number)}(?!\.?\d)", plain)
            for plain, words in stated
        )
    )


def _doses(folded: str) -> list[tuple[str, str, str]]:
    """Each word before a dose that may name a medicine, the dose's number, and both as they stand."""
    return [
        (found["name"], found["number"], found.group())
        for found in _DOSE.finditer(folded)
        if content(found["name"]) and found["name"] not in _MEASURE and not _NO_NAME.fullmatch(found["name"])
    ]


def shares_content(text: str, source: str) -> bool:
    """Whether the two have a subject in common: a Latin word, or two Chinese characters in a row. How much, how
    often and when are none."""
    stated, read = _words(source), _content(text)
    return any(_held(w, stated) for w in _subject_words(read)) or any(
        map(_is_subject, stated.pairs & _pairs(read.folded))
    )


def _has_subject(text: str) -> bool:
    read = _content(text)
    return bool(_subject_words(read)) or any(map(_is_subject, _pairs(read.folded)))


def _subject_words(read: _Content) -> list[str]:
    return [w for w in read.latin if not (w[0].isdigit() or w in _MEASURE)]


def _pairs(folded: str) -> set[str]:
    """Every two Chinese characters in a row."""
    found: set[str] = set()
    if not folded.isascii():
        for run in _HAN_RUN.findall(folded):
            found.update(map(add, run, run[1:]))
    return found


def _is_subject(pair: str) -> bool:
    return pair[0] not in _NO_SUBJECT_HAN or pair[1] not in _NO_SUBJECT_HAN


def _is_han(word: str) -> bool:
    return len(word) == 1 and _HAN.match(word) is not None


def _new(words: tuple[str, ...], stated: _Words) -> tuple[str, ...]:
    """Those of a text's words that the source does not hold; "blood pressure" is held by "bp"."""
    known = stated.known
    held = [w in known or _held(w, stated) for w in words]
    if not all(held):
        firsts = "".join([w[0] for w in words])
        for run in _INITIALS.finditer(firsts):
            start, end = run.span()
            for size in (2, 3, 4):
                for at in range(start, end - size + 1):
                    if firsts[at : at + size] in stated.words:
                        held[at : at + size] = [True] * size
    return tuple(w for w, known in zip(words, held, strict=True) if not known)


def _has_content(quote: str) -> bool:
    return any(w not in _ANSWERS for w in content(quote))


def _latin(text: str) -> list[str]:
    found = (_ASCII_WORD if text.isascii() else _WORD).findall(text)
    words = [w.removesuffix("'s") for w in found] if "'" in text else found
    return [w for w in words if w not in _FRAME and (len(w) > 1 or w.isdigit())]


@lru_cache(maxsize=64)
def _words(source: str) -> _Source:
    # A thread's context is asked about once for each of its elements.
    return _Source(fold(source))


@lru_cache(maxsize=64)
def _words_of(sources: tuple[str, ...]) -> _Words:
    """The words of the sources one below the other."""
    parts = [_words(source) for source in sources]
    if len(parts) == 1:
        return parts[0]
    if any(_KANA.match(p.folded[:1]) or _KANA.match(p.folded[-1:]) for p in parts):
        # Folding takes the line end beside a kana away, and the words there are one.
        return _words("\n".join(sources))
    return _Words(frozenset().union(*(p.words for p in parts)), frozenset().union(*(p.han for p in parts)))


def _held(word: str, stated: _Words) -> bool:
    """Whether the source has the word: as it is, inflected, in a derived form, or one letter off."""
    if word in stated.words:
        return True
    if _is_han(word):
        return word in stated.han
    if word[0].isdigit():
        return False
    parts = word.split("-")
    if len(parts) > 1:
        return all(len(p) < 2 or p in _FRAME or _held(p, stated) for p in parts)
    if _stem(word) in stated.stems:
        return True
    return any(_related(word, other) for other in stated.by_start.get(word[:3], ()))


@lru_cache(maxsize=1 << 15)
def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def _related(one: str, other: str) -> bool:
    """Whether two words that begin alike are forms of one: all but the end in common, or one letter apart."""
    shorter, longer = sorted((one, other), key=len)
    same = next((i for i, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    if same == len(shorter):
        return len(shorter) >= 4 and longer[same:] not in ("less", "free") and len(longer) <= 2 * len(shorter)
    if same >= 5 and same * 3 >= len(longer) * 2:
        return True
    if len(shorter) < 5 or len(longer) - len(shorter) > 1:
        return False
    rest = shorter[same + (len(longer) == len(shorter)) :]
    return rest == longer[same + 1 :] or (
        len(longer) == len(shorter)
        and shorter[same : same + 2] == longer[same : same + 2][::-1]
        and shorter[same + 2 :] == longer[same + 2 :]
    )
