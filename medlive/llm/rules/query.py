"""`screener.query`: the question that a patient really asks."""

import re
from typing import Final, NamedTuple

from medlive.llm.rules import language_en as en
from medlive.llm.rules import language_zh as zh
from medlive.llm.rules import lexicon_en, lexicon_zh
from medlive.llm.rules.narrative import Fact, narrative_facts, strip_lead
from medlive.llm.rules.question import chinese_asks, english_question, question_start, split_chinese
from medlive.llm.rules.text import bigrams, piece, plain, sentences, statement
from medlive.llm.rules.thread import Conversation, zones

_BARE: Final = 3
"""Words up to which a question that points back is no question by itself."""
_LEAST: Final = 2.0
"""Score from which a question asks something medical."""
_ASKED_ANYWAY: Final = 1.2
"""Score of a question that is no clinical one but plainly asked: the Validator is to see and reject it."""


class Asked(NamedTuple):
    """A candidate for Q."""

    message_id: str
    quote: str
    question: str
    score: float
    deictic: bool


def _usable(text: str) -> bool:
    return 2 <= sum(c.isalpha() for c in text) <= 1200 and not any("\ud800" <= c <= "\udfff" for c in text)


_DEICTIC_ZH: Final = re.compile(r"这[个种些样](?:症状|情况|病|样|问题)?|我这|^(?:那|这)|^我?(?:该|应该)")


def _english_score(text: str, answered: set[str], place: int) -> tuple[float, bool]:
    """How much an English question asks something medical, and whether it needs its case to be understood."""
    if en.INJECTION.search(text):
        return -1.0, False
    if en.NONCLINICAL.search(text):
        return _ASKED_ANYWAY, False
    if en.LOGISTIC.search(text):
        return -1.0, False
    if en.SMALLTALK.match(text):
        return 0.4, True
    clinical = lexicon_en.clinical_words(text)
    specific = set(lexicon_en.specific_words(text))
    demand = len({m.group().lower() for m in en.DEMAND.finditer(text)})
    interrogative = bool(en.INVERTED.match(text) or question_start(text) or text.endswith("?"))
    if not clinical and not demand and not (interrogative or en.REQUEST.search(text)):
        return 0.5, True
    asked = 2.2 if interrogative else 1.5 if en.REQUEST.search(text) else 1.0
    score = asked + min(len(set(clinical)), 3) * 0.5 + min(len(specific), 3) * 0.5
    score += min(demand, 2 if interrogative else 1) * 0.7
    score += min(len(answered & set(lexicon_en.content_words(text))), 4) * 0.3
    score -= (0.5 if place else 0.0) + min(place, 10) * 0.1 + len(text) / 400
    return score, not specific


def _chinese_score(text: str, answered: set[str], place: int) -> tuple[float, bool]:
    if zh.INJECTION.search(text):
        return -1.0, False
    if zh.NONCLINICAL.search(text):
        return _ASKED_ANYWAY, False
    if zh.LOGISTIC.search(text):
        return -1.0, False
    clinical = set(lexicon_zh.CLINICAL.findall(text))
    demand = len({m.group() for m in zh.DEMAND.finditer(text)})
    if not clinical and not demand:
        return 0.5, True
    score = 1.5 + min(len(clinical), 2) * 0.8 + min(demand, 3) * 0.7
    score += min(len(answered & bigrams(text, lexicon_zh.STOP)), 4) * 0.2
    score -= (1.2 if place else 0.0) + min(place, 12) * 0.15
    deictic = len(clinical) < 2 or zh.DEICTIC.match(text) is not None or _DEICTIC_ZH.search(text) is not None
    return score, deictic


def _english_candidates(thread: Conversation, answered: set[str]) -> list[Asked]:
    found: list[Asked] = []
    place = 0
    for said in thread.of("patient"):
        for one in sentences(said.text, "en"):
            bare = strip_lead(said.text, one, "en")
            if bare is None or not english_question(bare.text) or not _usable(bare.text):
                continue
            at = question_start(bare.text)
            tail = piece(said.text, bare.start + at, bare.end) if at else bare
            if tail is None:
                continue
            if at and not lexicon_en.specific_words(tail.text) and len(bare.text) <= 300:
                tail = bare  # "My knee hurts, what should I do?" is understood as a whole
            score, deictic = _english_score(tail.text, answered, place)
            found.append(Asked(said.id, tail.text, statement(tail.text), score, deictic))
        place += 1
    return found


def _chinese_candidates(thread: Conversation, answered: set[str]) -> list[Asked]:
    found: list[Asked] = []
    place = 0
    for said in thread.of("patient"):
        for zone in zones(said.text, "zh"):
            asks_help = zh.HELP_FIELDS.match(zone.label) is not None
            if (zone.label in zh.DROPPED_FIELDS or zone.label in zh.LABELLED_FIELDS) and not asks_help:
                continue
            for one in sentences(said.text[: zone.value.end], "zh"):
                inner = piece(said.text, max(one.start, zone.value.start), one.end)
                bare = strip_lead(said.text, inner, "zh") if inner and one.end > zone.value.start else None
                if bare is None:
                    continue
                _, asked = split_chinese(said.text, bare)
                whole = piece(said.text, asked[0].start, asked[-1].end) if asked else None
                if whole is not None and len(whole.text) > 90:
                    whole = asked[-1]
                if whole is None and asks_help and zh.DEMAND.search(bare.text) and len(bare.text) <= 90:
                    whole = bare
                if whole is not None and _usable(whole.text):
                    score, deictic = _chinese_score(whole.text, answered, place)
                    found.append(Asked(said.id, whole.text, statement(whole.text), score, deictic))
        place += 1
    return found


def _answered(thread: Conversation) -> set[str]:
    text = " ".join(m.text[:6000] for m in thread.of("physician"))
    if thread.language == "zh":
        return bigrams(text, lexicon_zh.STOP)
    return set(lexicon_en.content_words(text))


def _title_question(thread: Conversation) -> Asked | None:
    """The title as the question, when it asks and the patient's own words are about the same thing."""
    title = thread.title.strip()
    told = " ".join(m.text[:4000] for m in thread.of("patient"))
    if thread.language == "zh":
        title = zh.FIELD.sub("", title)
        if not chinese_asks(title) or not _usable(title) or zh.LOGISTIC.search(title):
            return None
        shared = bigrams(title, lexicon_zh.STOP) & bigrams(told, lexicon_zh.STOP)
        score, deictic = _chinese_score(title, set(), 0)
        return Asked("title", title, statement(title), score, deictic) if shared else None
    asks = [s for s in sentences(title, "en") if english_question(s.text) and not en.SMALLTALK.match(s.text)]
    if not asks or not _usable(asks[-1].text):
        return None
    quote = title if len(title) <= 300 else asks[-1].text
    named = set(lexicon_en.specific_words(quote))
    shared = named & set(lexicon_en.clinical_words(told))
    score, deictic = _english_score(quote, set(), 0)
    words = set(lexicon_en.content_words(quote))
    told_words = words & set(lexicon_en.content_words(told))
    consistent = (len(shared) * 2 >= len(named) and shared) or (
        len(told_words) >= 2 and len(told_words) >= 0.6 * len(words)
    )
    return Asked("title", quote, statement(quote), score, deictic) if consistent else None


def _complaint(thread: Conversation, asked: Asked) -> str | None:
    """The patient's main complaint in own words: what a deictic question is about."""
    facts = narrative_facts(thread)
    best: tuple[float, str] | None = None
    before = _fact_before(thread, facts, asked)
    for i, fact in enumerate(facts[:14]):
        if (
            fact.statement[:4] in ("患病多久", "怀孕情况", "过敏史：", "既往病史", "用药情况", "问：")
            or len(fact.statement) > 400
        ):
            continue
        if thread.language == "zh":
            score = len(set(lexicon_zh.CLINICAL.findall(fact.statement))) - len(fact.statement) / 60
        else:
            clinical = set(lexicon_en.clinical_words(fact.statement))
            specific = set(lexicon_en.specific_words(fact.statement))
            score = len(specific) * 0.7 + len(clinical) * 0.4 - len(fact.statement) / 100
            if re.search(
                r"\b(?:suffer|diagnos|pain|problem|since|for (?:the )?(?:last|past))", plain(fact.statement)
            ):
                score += 1
            if re.match(r"^i(?:'m| am) (?:an? )?\d+", plain(fact.statement)) and len(specific) < 2:
                score -= 2
        score += (1.0 if fact.quote == before else 0.0) - i * 0.2
        if best is None or score > best[0]:
            best = (score, fact.statement)
    return best[1] if best else None


def _fact_before(thread: Conversation, facts: list[Fact], asked: Asked) -> str | None:
    """The quote of the fact that stands last before the question in its message."""
    text = next((m.text for m in thread.messages if m.id == asked.message_id), "")
    at = text.find(asked.quote)
    before = [f.quote for f in facts if f.message_id == asked.message_id and 0 <= text.find(f.quote) < at]
    return before[-1] if before else None


def find_query(thread: Conversation) -> Asked | None:
    """Q, explicit and self-contained; None where nothing medical is asked."""
    answered = _answered(thread)
    candidates = (_chinese_candidates if thread.language == "zh" else _english_candidates)(thread, answered)
    best = max(candidates, key=lambda a: a.score, default=None)
    if best is None or best.score < _LEAST:
        title = _title_question(thread)
        refused = any(c.score < 0 for c in candidates)
        if title is not None and title.score >= _LEAST and not (refused and best is not None and best.score < 0):
            best = title
    if best is None or best.score < 1.0:
        return None
    if best.deictic and len(plain(best.question).split()) <= _BARE and thread.language == "en":
        title = _title_question(thread)
        if title is not None and not title.deictic and title.score > 0:
            best = title  # "Why?" says less than a title that asks the whole of it
    if not best.deictic:
        return best
    return _framed(thread, best)


def _framed(thread: Conversation, asked: Asked) -> Asked | None:
    """A question like "What should I do?" joined to the complaint it is about, in a fixed frame."""
    about = _complaint(thread, asked)
    if about is None:
        return asked if asked.score >= _LEAST else None
    if plain(about) in plain(asked.question) or plain(asked.question) in plain(about):
        return asked
    frame = f"关于“{about}”：{asked.question}" if thread.language == "zh" else f'About "{about}": {asked.question}'
    return asked._replace(question=frame[:2000])
