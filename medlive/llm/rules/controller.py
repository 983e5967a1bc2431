"""The Controller's tasks by rules: does a statement say no more than its quote, and the written texts."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from medlive.llm.rules import lexicon_zh
from medlive.llm.rules.text import Language, bigrams, language_of, plain, sentences, stem

_TEXT: Final = 24_000
"""Characters that are read of a text which is asked about."""
_NEGATION_EN: Final = re.compile(r"\b(?:no|not|never|without|none|cannot|denies|nor|neither|\w+n't)\b")
_NEGATION_ZH: Final = re.compile(r"没有?|不|无|未|否|勿|别|禁|非")
_SURE: Final = re.compile(
    r"\b(?:definitely|certainly|confirmed|proven|always|must|surely|clearly|undoubtedly|"
    r"diagnosed)\b|肯定|确诊|一定|必须|绝对|必然|证实"
)
_HEDGE: Final = re.compile(
    r"\b(?:may|might|could|possib\w+|probab\w+|likely|suspect\w*|perhaps|maybe|seems?|appears?|"
    r"think|unlikely)\b|可能|考虑|也许|疑似|大概|似乎|怀疑|估计|好像|不排除"
)
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_HAN: Final = re.compile(r"[一-鿿]")
_FUNCTION: Final = frozenset(
    (
        *("a", "an", "the", "is", "are", "was", "were", "be", "been", "to", "of", "in", "on", "at", "for"),
        *("and", "or", "that", "this", "it", "i", "he", "she", "they"),
    )
)
_FRAME: Final = re.compile(r"(?:About|关于)\s*[\"“](.+)[\"”]\s*[:：]\s*(.+)", re.DOTALL)
"""A question with the complaint it is about; see `query`."""
_FRAME_WORDS: Final = frozenset(("about", "asked", "the", "patient"))
_FRAME_HAN: Final = frozenset("关于问答：")


def _unsupported(statement: str, quote: str, context: str) -> str:
    """Why the statement says more than its quote; empty when it does not."""
    said, source = plain(statement), plain(quote)
    wider = source + " " + plain(context)
    if said == source:
        return ""
    if (frame := _FRAME.match(statement.strip())) and all(plain(part) in wider for part in frame.groups()):
        return ""  # both parts stand in the thread word for word, negations and numbers included
    numbers = set(_NUMBER.findall(said)) - set(_NUMBER.findall(wider))
    if numbers:
        return f"Numbers that the quote does not hold: {', '.join(sorted(numbers)[:5])}."
    known = {stem(w) for w in re.findall(r"[a-z][a-z'-]*", wider)}
    more = [
        w
        for w in re.findall(r"[a-z][a-z'-]*", said)
        if stem(w) not in known and w not in _FUNCTION and w not in _FRAME_WORDS
    ]
    han = set(_HAN.findall(said)) - set(_HAN.findall(wider)) - _FRAME_HAN
    if more or han:
        return f"Words that the quote does not hold: {', '.join([*more, *sorted(han)][:5])}."
    within = source if context and said in source else wider if not _covers(said, source) else source
    if _negations(said) != _negations(within) and _negations(said) != _negations(source):
        return "The statement negates otherwise than its quote."
    if _SURE.search(said) and not _SURE.search(wider):
        return "The statement is surer than its quote."
    if not _HEDGE.search(said) and _drops_doubt(said, source):
        return "The statement leaves out the quote's doubt."
    return ""


def _drops_doubt(said: str, source: str) -> bool:
    """Whether the statement tells what its quote only supposes: a doubted clause's words without the doubt."""
    for clause in re.split(r"[,;.!?，。；！？]", source):
        if _HEDGE.search(clause):
            content = set(re.findall(r"[a-z]{4,}", _HEDGE.sub(" ", clause))) | set(
                _HAN.findall(_HEDGE.sub(" ", clause))
            )
            told = set(re.findall(r"[a-z]{4,}", said)) | set(_HAN.findall(said))
            if content and len(content & told) * 2 >= len(content):
                return True
    return False


def _covers(part: str, whole: str) -> bool:
    """Whether every word of `part` occurs in `whole`."""
    tokens = {stem(w) for w in re.findall(r"[a-z]+", part)} | set(_HAN.findall(part))
    known = {stem(w) for w in re.findall(r"[a-z]+", whole)} | set(_HAN.findall(whole))
    return tokens <= known


def _negations(text: str) -> int:
    return len(_NEGATION_EN.findall(text)) + len(_NEGATION_ZH.findall(text))


def support(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts: [{id, supported, reason}]}, one for each element."""
    verdicts = []
    for element in list(inputs.get("elements") or ())[:120]:
        problem = _unsupported(
            str(element.get("statement") or "")[:4000],
            str(element.get("quote") or "")[:4000],
            str(element.get("context") or "")[:8000],
        )
        verdicts.append(
            {
                "id": str(element.get("id") or ""),
                "supported": not problem,
                "reason": problem or "Every word, number and negation stands in the quote.",
            }
        )
    return {"verdicts": verdicts}


def _sentence(text: str, language: Language) -> str:
    text = re.sub(r"[\s\ud800-\udfff]+", " ", text).strip()
    if not text:
        return ""
    if language == "zh":
        return text if text[-1] in "。！？!?；…" else text.rstrip("，,、；;：:.") + "。"
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?…" else text.rstrip(",;:") + "."


def _paragraph(texts: list[str], language: Language, limit: int = 19_000) -> str:
    """The statements one after the other; those that no longer fit are left out whole."""
    found: list[str] = []
    length = 0
    for text in texts:
        sentence = _sentence(text, language)
        if not sentence or length + len(sentence) + 1 > limit:
            continue
        found.append(sentence)
        length += len(sentence) + 1
    return ("" if language == "zh" else " ").join(found)


def write(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{narrative, advice}: the statements as text, the narrative as told, the advice by kind."""
    narrative = [str(e.get("statement") or "") for e in inputs.get("narrative") or ()]
    advice = [(str(e.get("kind") or ""), str(e.get("statement") or "")) for e in inputs.get("advice") or ()]
    language = language_of(inputs.get("language"), " ".join(narrative)[:4000])
    assessments = [s for kind, s in advice if kind == "assessment"]
    plans = [s for kind, s in advice if kind != "assessment"]
    parts = [p for p in (_paragraph(assessments, language, 9_500), _paragraph(plans, language, 9_500)) if p]
    return {"narrative": _paragraph(narrative, language), "advice": "\n".join(parts)}


_ASKED: Final = {"en": "Is it said: {}?", "zh": "是否说到：{}？"}
_SAID: Final = re.compile(r"(?:Is it said: |是否说到：)(.+)[?？]", re.DOTALL)
_LIKE: Final = 0.6
"""Share of a question's words that a sentence must hold to answer it."""


def questions(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Sentences of the text, evenly spread, each asked about: {questions}."""
    text = str(inputs.get("text") or "")[:_TEXT]
    language = language_of(inputs.get("language"), text[:4000])
    found = list(
        dict.fromkeys(s.text.strip().rstrip(".。?？!！") for s in sentences(text, language) if _words(s.text))
    )
    count = max(1, min(int(inputs.get("count") or 1), 20))
    step = max(1.0, len(found) / count)
    picked = [found[int(i * step)] for i in range(min(count, len(found)))] or [text.strip()[:100] or "-"]
    return {"questions": list(dict.fromkeys(_ASKED[language].format(said[:400]) for said in picked))}


def answers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Yes where a sentence shares most words and denies as much, no where it denies otherwise: {answers}."""
    text = str(inputs.get("text") or "")[:_TEXT]
    language = language_of(inputs.get("language"), text[:4000])
    told = [(_words(s.text), _negations(plain(s.text)) % 2) for s in sentences(text, language)]
    return {
        "answers": [
            {"id": str(q.get("id") or ""), "answer": _answer(str(q.get("question") or "")[:1000], told)}
            for q in list(inputs.get("questions") or ())[:40]
        ]
    }


def _answer(question: str, told: list[tuple[frozenset[str], int]]) -> str:
    asked = _SAID.fullmatch(question)
    said = asked[1] if asked else question
    words, denied = _words(said), _negations(plain(said)) % 2
    like = [other for held, other in told if words and len(words & held) >= _LIKE * len(words)]
    if not like:
        return "unknown"
    return "yes" if denied in like else "no"


def _words(text: str) -> frozenset[str]:
    folded = plain(text)
    latin = {stem(w) for w in re.findall(r"[a-z]{3,}", folded) if w not in _FUNCTION}
    return frozenset(latin | set(bigrams(folded, lexicon_zh.STOP)))


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "controller.support": support,
    "controller.write": write,
    "controller.questions": questions,
    "controller.answers": answers,
}
