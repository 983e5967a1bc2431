"""`screener.advice`: what a physician judges and orders, each as a verbatim quote."""

import re
from typing import Final, NamedTuple

from medlive.llm.rules import language_en as en
from medlive.llm.rules import language_zh as zh
from medlive.llm.rules import lexicon_en, lexicon_zh
from medlive.llm.rules.narrative import strip_lead
from medlive.llm.rules.question import english_question
from medlive.llm.rules.text import Piece, clauses, piece, plain, sentences, statement
from medlive.llm.rules.thread import Conversation, Said, zones

MOST: Final = 12
_LIST_ITEM: Final = 90
_GROUP: Final = 70


class Advice(NamedTuple):
    """An element of the advice; `weight` ranks it where there are too many."""

    message_id: str
    quote: str
    statement: str
    kind: str
    weight: float


def _english_pieces(said: Said) -> list[Piece]:
    """Sentences, with a heading joined to the short list that follows it."""
    source = said.text
    found: list[Piece] = []
    run = sentences(source, "en")
    i = 0
    while i < len(run):
        one = run[i]
        if en.HEADING.search(one.text):
            end = i
            while end + 1 < len(run) and len(run[end + 1].text) <= _LIST_ITEM and end - i < 8:
                following = run[end + 1]
                if end > i and not re.match(r"^[\s(]*\d{1,2}[.)]", following.text):
                    break
                if en.HEADING.search(following.text):
                    break
                end += 1
            if end > i and en.LIST_HEADING.search(one.text) and run[end].end - one.start <= 700:
                joined = piece(source, one.start, run[end].end)
                if joined is not None:
                    found.append(joined)
            i = end + 1 if en.LIST_HEADING.search(one.text) else i + 1
            continue
        found.append(one)
        i += 1
    if found and _cut_off(source, found[-1].text):
        found.pop()
    return found


def _cut_off(source: str, last: str) -> bool:
    return source.rstrip().endswith(last) and en.UNFINISHED.search(last) is not None


def _english_kind(text: str) -> str | None:
    if en.PLAN.search(text) and not (en.JUDGED.search(text) and not en.ORDER.search(text)):
        return "plan"
    return "assessment" if en.ASSESSMENT.search(text) else None


def _english_advice(said: Said) -> list[Advice]:
    found: list[Advice] = []
    for one in _english_pieces(said):
        bare = strip_lead(said.text, one, "en")
        if bare is None or len(bare.text.split()) < 3 or en.INJECTION.search(bare.text):
            continue
        text = bare.text
        if en.BOILERPLATE.search(text) or en.RESTATE.search(text) or en.REASSURE.match(text):
            continue
        if text.endswith("?") or (en.INTERROGATIVE.match(text) and english_question(text)):
            continue
        clinical = lexicon_en.clinical_words(text)
        kind = _english_kind(text)
        if kind is None or en.FRAGMENT_START.match(text):
            continue
        if not clinical and not (kind == "plan" and en.ORDER.search(text) and len(text.split()) >= 5):
            continue
        if en.BARE_CONDITION.match(text) and not en.MAIN_CLAUSE.search(text):
            continue
        weight = len(set(lexicon_en.specific_words(text))) * 1.0 + (1.0 if kind == "plan" else 0.0)
        found.append(Advice(said.id, text, statement(text), kind, min(weight, 6.0)))
    return found


def _chinese_zone_pieces(said: Said) -> list[tuple[str, Piece]]:
    """Advice-bearing stretches with the label they stand under; a form that quotes the patient is none."""
    found: list[tuple[str, Piece]] = []
    for zone in zones(said.text, "zh"):
        if zone.label in ("总结建议", "处置建议"):
            found += [("", s) for s in _within(said.text, zone.value)]
        elif zone.label in ("药品", "疾病诊断", "初步诊断", "诊断"):
            if len(zone.whole.text) <= 200:
                found.append((zone.label, zone.whole))
        elif zone.label == "病情摘要及初步印象":
            at = said.text.find("初步印象", zone.whole.start, zone.value.start)
            whole = piece(said.text, at, zone.whole.end) if at >= 0 else None
            if (
                whole is not None
                and len(zone.value.text) <= 40
                and zh.DISEASE.search(zone.value.text)
                and "患者" not in zone.value.text
                and not zone.value.text.endswith(("？", "?"))
            ):
                found.append((zone.label, whole))
        elif not zone.label:
            found += [("", s) for s in _within(said.text, zone.value)]
    return found


def _within(source: str, value: Piece) -> list[Piece]:
    return [
        one
        for s in sentences(source[: value.end], "zh")
        if s.end > value.start and (one := piece(source, max(s.start, value.start), s.end)) is not None
    ]


def _chinese_groups(source: str, one: Piece) -> list[Piece]:
    """A long sentence cut at commas into stretches that each stand alone; a condition keeps what follows it."""
    if len(one.text) <= _GROUP:
        return [one]
    found: list[Piece] = []
    start: int | None = None
    held = False
    for clause in clauses(source, one):
        if start is None:
            start = clause.start
        held = held or zh.CONDITION.search(clause.text) is not None
        if clause.end - start >= 28 and not zh.CONDITION.search(clause.text):
            if (group := piece(source, start, clause.end)) is not None:
                found.append(group)
            start, held = None, False
    if start is not None and not held and (rest := piece(source, start, one.end)) is not None:
        if found and len(rest.text) < 12:
            found[-1] = piece(source, found[-1].start, one.end) or found[-1]
        else:
            found.append(rest)
    return found


_ZH_LEAD: Final = re.compile(
    r"^(?:感谢您的信任[，,]?)?(?:病情资料我已详细阅读[。，,]?)?(?:根据您现有的资料[，,]?)?建议[：:]\s*"
)


def _chinese_advice(said: Said) -> list[Advice]:
    found: list[Advice] = []
    for label, sentence in _chinese_zone_pieces(said):
        for one in [sentence] if label else _chinese_groups(said.text, sentence):
            bare = one if label else strip_lead(said.text, one, "zh")
            if bare is not None and (lead := _ZH_LEAD.match(bare.text)):
                bare = piece(said.text, bare.start + lead.end(), bare.end)
            if bare is None or len(bare.text) < 5 or zh.INJECTION.search(bare.text):
                continue
            text = bare.text
            if zh.BOILERPLATE.search(text) or zh.RESTATE.search(text) or zh.REASSURE.match(text):
                continue
            if not label and zh.DOCTOR_QUESTION.search(text):
                continue
            clinical = set(lexicon_zh.CLINICAL.findall(text)) or lexicon_zh.DRUG.search(text)
            plan = zh.PLAN.search(text) is not None
            if label:
                kind = "plan" if label == "药品" else "assessment"
            elif plan and (zh.ORDER.search(text) or not zh.JUDGED.search(text)):
                kind = "plan"
            elif zh.ASSESSMENT.search(text) or plan:
                kind = "assessment"
            else:
                continue
            if not clinical and not (plan and (len(text) >= 8 or zh.ORDER.search(text))):
                continue
            if zh.UNFINISHED.search(text) and said.text.rstrip().endswith(text):
                continue
            weight = len(set(lexicon_zh.CLINICAL.findall(text))) + (1.0 if plan else 0.0)
            found.append(Advice(said.id, text, statement(text), kind, min(float(weight), 6.0)))
    return found


def advice_pieces(thread: Conversation) -> list[Advice]:
    """The advice of the physicians' messages in order, at most MOST: the most specific, then the earliest."""
    found: list[Advice] = []
    seen: set[str] = set()
    told = {
        re.sub(r"\W+", "", plain(s.text)) for m in thread.of("patient") for s in sentences(m.text, thread.language)
    }
    for said in thread.of("physician"):
        for one in _chinese_advice(said) if thread.language == "zh" else _english_advice(said):
            key = re.sub(r"\W+", "", plain(one.quote))
            if not key or key in seen or key in told or len(one.quote) > 2000:
                continue
            if any("\ud800" <= c <= "\udfff" for c in one.quote):
                continue
            seen.add(key)
            found.append(one)
    if len(found) <= MOST:
        return found
    kept = sorted(range(len(found)), key=lambda i: (-found[i].weight, i))[:MOST]
    return [found[i] for i in sorted(kept)]
