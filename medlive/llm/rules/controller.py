"""The Controller's tasks by rules: does a statement hold words that its source does not, and the written texts."""

import re
from collections.abc import Mapping
from typing import Any

from medlive.llm.rules.text import bigrams, language_of, plain, sentences, stem, words
from medlive.llm.rules.validator import denies, terms

_FUNCTION_TEXT = (
    "a an the is are was were be been to of in on at for and or that this it"
)
_FUNCTION = frozenset(_FUNCTION_TEXT.split())
_NOTHING = re.compile(r"(?!)")
_MOST_TEXT = 9_500


def support(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts}: supported where every word of the statement stands in the title or a message."""
    texts = [message["text"] for message in inputs["messages"]]
    source = _Source(" ".join([inputs["title"], *texts]))
    verdicts = []
    for element in inputs["elements"]:
        new = source.new_words(element["statement"])
        verdicts.append({"id": element["id"], "supported": not new, "reason": new})
    return {"verdicts": verdicts}


class _Source:
    """The words of a text that statements were made from."""

    def __init__(self, text: str) -> None:
        own_words = set(words(text))
        self._stems = own_words.union(map(stem, own_words))
        self._pairs = bigrams(plain(text), _NOTHING)

    def new_words(self, statement: str) -> str:
        """The words of a statement that the source lacks, as a sentence; "" if there are none."""
        new = []
        for word in words(statement):
            if stem(word) not in self._stems and word not in _FUNCTION:
                new.append(word)
        new += sorted(bigrams(plain(statement), _NOTHING) - self._pairs)
        return f"New words: {', '.join(new[:5])}." if new else ""


def write(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{narrative, advice}: the statements one after the other, assessments before plans."""
    narrative = [element["statement"] for element in inputs["narrative"]]
    ordered = sorted(inputs["advice"], key=lambda e: e["kind"] != "assessment")
    advice = [element["statement"] for element in ordered]
    chinese = language_of(inputs["language"], " ".join(narrative)[:4000]) == "zh"
    return {
        "narrative": _paragraph(narrative, chinese),
        "advice": _paragraph(advice, chinese),
    }


def _paragraph(statements: list[str], chinese: bool) -> str:
    parts, length = [], 0
    for text in statements:
        stop = "。" if chinese else "."
        whole = text if text.endswith(tuple("。！？!?.…")) else text + stop
        if length + len(whole) < _MOST_TEXT:
            parts.append(whole)
            length += len(whole) + 1
    return ("" if chinese else " ").join(parts)


_ASKED = {"en": "Is it said: {}?", "zh": "是否说到：{}？"}
_SAID = re.compile(r"(?:Is it said: |是否说到：)(.+)[?？]", re.DOTALL)


def questions(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{questions}: sentences of the text, evenly spread, each asked about."""
    text = inputs["text"][:24_000]
    language = language_of(inputs.get("language"), text[:4000])
    seen: dict[str, None] = {}
    for sentence in sentences(text):
        if terms(sentence.text):
            seen[sentence.text.strip().rstrip(".。?？!！")] = None
    statements = list(seen) or [text.strip()[:100] or "-"]
    count = max(1, min(inputs["count"], 20, len(statements)))
    step = max(1.0, len(statements) / count)
    asked: dict[str, None] = {}
    for number in range(count):
        asked[_ASKED[language].format(statements[int(number * step)][:400])] = None
    return {"questions": list(asked)}


def answers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{answers}: yes where a sentence shares most words and denies as much, else unknown."""
    stated = []
    for sentence in sentences(inputs["text"][:24_000]):
        stated.append((terms(sentence.text), denies(sentence.text)))
    answered = []
    for asked in inputs["questions"][:40]:
        question = asked["question"][:1000]
        said = _SAID.fullmatch(question)
        statement = said[1] if said else question
        wanted, denied, answer = terms(statement), denies(statement), "unknown"
        for own, other in stated:
            if wanted and len(wanted & own) >= 0.6 * len(wanted) and denied == other:
                answer = "yes"
        answered.append({"id": asked["id"], "answer": answer})
    return {"answers": answered}
