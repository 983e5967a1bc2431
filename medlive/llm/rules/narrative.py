"""`screener.narrative`: the facts that a patient states, each as a verbatim quote."""

import re
from typing import Final, NamedTuple

from medlive.llm.rules import language_en as en
from medlive.llm.rules import language_zh as zh
from medlive.llm.rules import lexicon_en, lexicon_zh
from medlive.llm.rules.question import english_question, question_start, split_chinese
from medlive.llm.rules.text import Language, Piece, bigrams, clauses, piece, plain, sentences, statement, unmarked
from medlive.llm.rules.thread import Conversation, Said, Zone, zones

MOST: Final = 60
_ASKED: Final = 'Asked "'
_GROUP: Final = 80
"""Characters that clauses of one Chinese sentence are gathered to."""


class Fact(NamedTuple):
    """A fact of the narrative."""

    message_id: str
    quote: str
    statement: str
    kind: str


def _usable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def english_clinical(text: str) -> bool:
    """Whether an English sentence says something clinical: a specific word, or a measure about somebody."""
    found = lexicon_en.clinical_words(text)
    return bool(found) or en.MEASURE.search(text) is not None


def _kind(text: str, language: Language) -> str:
    return "objective" if (en.OBJECTIVE if language == "en" else zh.OBJECTIVE).search(text) else "subjective"


def strip_lead(source: str, one: Piece, language: Language) -> Piece | None:
    """The piece without list number, greeting and leading filler words."""
    bare = unmarked(source, one)
    if bare is None:
        return None
    match = (en.GREETING if language == "en" else zh.GREETING).match(bare.text)
    if match and match.end():
        bare = piece(source, bare.start + match.end(), bare.end)
    if bare is not None and language == "en" and (lead := en.LEAD.match(bare.text)):
        bare = piece(source, bare.start + lead.end(), bare.end)
    return bare


def _english_facts(source: str) -> list[Piece]:
    found: list[Piece] = []
    for one in sentences(source, "en"):
        bare = strip_lead(source, one, "en")
        if bare is None or en.INJECTION.search(bare.text) or en.SMALLTALK.search(bare.text):
            continue
        if english_question(bare.text):
            at = question_start(bare.text)
            if not at:
                continue
            head = piece(source, bare.start, bare.start + at)
            if head is None or len(head.text) < 12 or english_question(head.text):
                continue
            bare = head
        if en.BARE.match(bare.text) or en.HYPOTHETICAL.match(bare.text) or not english_clinical(bare.text):
            continue
        if len(bare.text) < 8 and not re.search(r"\d", bare.text):
            continue
        found.append(bare)
    return found


def _chinese_free(source: str, value: Piece) -> list[Piece]:
    found: list[Piece] = []
    for one in sentences(source[: value.end], "zh"):
        if one.end <= value.start:
            continue
        start = max(one.start, value.start)
        inner = piece(source, start, one.end)
        bare = strip_lead(source, inner, "zh") if inner else None
        if bare is None or zh.INJECTION.search(bare.text):
            continue
        stated, _ = split_chinese(source, bare)
        group: list[Piece] = []
        for clause in stated:
            if zh.SMALLTALK.search(clause.text) or zh.BARE.match(clause.text) or clause.text.endswith(("？", "?")):
                found += _joined(source, group)
                group = []
                continue
            adjacent = not group or source[group[-1].end : clause.start].strip() == ""
            if group and (not adjacent or clause.end - group[0].start > _GROUP):
                found += _joined(source, group)
                group = []
            group.append(clause)
        found += _joined(source, group)
    return found


def _joined(source: str, group: list[Piece]) -> list[Piece]:
    if not group:
        return []
    one = piece(source, group[0].start, group[-1].end)
    if one is None:
        return []
    trimmed = strip_lead(source, one, "zh")
    if trimmed is None or len(trimmed.text) < 3:
        return []
    clinical = lexicon_zh.CLINICAL.search(trimmed.text) or (
        zh.MEASURE.search(trimmed.text) and len(trimmed.text) >= 4
    )
    return [trimmed] if clinical else []


def _chinese_facts(source: str) -> list[Piece]:
    found: list[Piece] = []
    for zone in zones(source, "zh"):
        if zone.label in zh.DROPPED_FIELDS or zh.HELP_FIELDS.match(zone.label):
            continue
        if zone.label in zh.LABELLED_FIELDS:
            found += _field(source, zone)
        else:
            found += _chinese_free(source, zone.value)
    return found


def _field(source: str, zone: Zone) -> list[Piece]:
    stamp = zh.DATE_STAMP.search(zone.whole.text)
    one = piece(source, zone.whole.start, zone.whole.start + stamp.start()) if stamp else zone.whole
    if one is None or one.end <= zone.value.start or len(one.text) > 400:
        return []
    return [one]


def _bare_answer(before: Said, said: Said, language: Language) -> Fact | None:
    """A short answer joined to the one question it answers; None where that is not certain."""
    answer = plain(said.text)
    lines = [s for s in sentences(before.text, language) if s.text.strip()]
    asked = [
        s for s in lines if (zh.DOCTOR_QUESTION.search(s.text) if language == "zh" else english_question(s.text))
    ]
    if len(asked) != 1 or not lines or lines[-1] != asked[0] or len(asked[0].text) > 120:
        return None
    question = asked[0].text
    if language == "zh":
        if (
            len(answer) > 14
            or not lexicon_zh.CLINICAL.search(question)
            or re.search(r"或|还是|、|，.*[？?吗]", question)
        ):
            return None
        says = zh.BARE.match(answer) or zh.MEASURE.search(answer)
        if not says or re.match(r"^(?:好的?|嗯|可以|行|ok|不清楚|不知道|不确定)", answer):
            return None
        return Fact(
            said.id,
            said.text.strip(),
            f"问：{statement(question)}答：{statement(said.text)}",
            _kind(question, language),
        )
    if len(answer.split()) > 6 or not lexicon_en.specific_words(question) or re.search(r"\bor\b|,", question):
        return None
    if not (en.BARE.match(answer) or en.MEASURE.search(answer)) or re.match(r"^(?:ok|sure|of course)", answer):
        return None
    return Fact(
        said.id,
        said.text.strip(),
        f'Asked "{statement(question)}": {statement(said.text)}',
        _kind(question, language),
    )


def _terms(text: str, language: Language) -> set[str]:
    if language == "zh":
        return bigrams(plain(text), lexicon_zh.STOP)
    return set(lexicon_en.clinical_words(text)) | {w for w in lexicon_en.content_words(text) if w[0].isdigit()}


def _take_back(facts: list[Fact], said: Piece, language: Language, rest: str) -> None:
    """Drop the earlier fact that a correction speaks of: the one that shares most with it."""
    terms = _terms(said.text + " " + rest, language)
    best, at = 0.0, -1
    for i, fact in enumerate(facts):
        theirs = _terms(fact.statement, language)
        if not theirs:
            continue
        shared = len(terms & theirs) / (len(theirs) ** 0.5)
        if shared >= best and shared > 0:
            best, at = shared, i
    if at >= 0:
        del facts[at]


def narrative_facts(thread: Conversation) -> list[Fact]:
    """The facts of the patient's messages in the order told; a fact taken back later is gone."""
    language = thread.language
    facts: list[Fact] = []
    seen: set[str] = set()
    before: Said | None = None
    for said in thread.messages:
        if said.role != "patient":
            before = said
            continue
        pieces = _chinese_facts(said.text) if language == "zh" else _english_facts(said.text)
        whole = [Piece(0, len(said.text), said.text)] if len(said.text) < 4000 else []
        retracts = (zh.RETRACT if language == "zh" else en.RETRACT).search(said.text) if whole else None
        if retracts and facts:
            around = said.text[retracts.start() : retracts.start() + 160]
            _take_back(facts, Piece(0, 0, around), language, "")
        made = 0
        for one in pieces:
            if not _usable(one.text) or len(one.text) > 2000:
                continue
            key = re.sub(r"\W+", "", plain(one.text))
            text = statement(_unstamped(one.text))
            if key in seen or not text or (retracts and _only_retracts(one.text, language)):
                continue
            seen.add(key)
            made += 1
            facts.append(Fact(said.id, one.text, text, _kind(one.text, language)))
        if not made and before is not None and len(said.text) <= 60 and _usable(said.text + before.text):
            joined = _bare_answer(before, said, language)
            if joined is not None and len(joined.statement) <= 400 and joined.quote:
                facts.append(joined)
        before = None
    if language == "en" and not any(
        f.statement.startswith(_ASKED) or en.PERSON.search(f.statement) or en.MEASURE.search(f.statement)
        for f in facts
    ):
        return []
    return facts[:MOST]


def _unstamped(text: str) -> str:
    return zh.DATE_STAMP.sub(" ", text)


def _only_retracts(text: str, language: Language) -> bool:
    if language == "zh":
        return zh.RETRACT.search(text) is not None and len(clauses(text, Piece(0, len(text), text))) == 1
    return en.RETRACT.search(text) is not None and re.search(r"\b(?:another|other) patient", text) is not None
