"""The Controller's tasks by rules: does a statement hold words that its source does not, and the written texts."""

import re
from collections.abc import Mapping
from typing import Any, Final

from medlive.llm.rules.text import bigrams, language_of, plain, sentences, stem, words
from medlive.llm.rules.validator import terms

_FUNCTION_TEXT: Final = (
    "a an the is are was were be been to of in on at for and or that this it"
)
_FUNCTION: Final = frozenset(_FUNCTION_TEXT.split())
_NOTHING: Final = re.compile(r"(?!)")
_NOT: Final = re.compile(r"\b(?:not|no|never|without|cannot)\b|n't\b|[不没无未否勿]")
_MOST_TEXT: Final = 9_500


def support(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts}: supported where every word of the statement stands in the title or a message."""
    shown = " ".join(
        [
            str(inputs.get("title") or ""),
            *(str(m.get("text") or "") for m in inputs.get("messages") or ()),
        ]
    )
    source = _Source(shown)
    items = [
        (e, source.new_words(str(e.get("statement") or "")))
        for e in inputs.get("elements") or ()
    ]
    return {
        "verdicts": [
            {"id": str(e.get("id") or ""), "supported": not new, "reason": new}
            for e, new in items
        ]
    }


class _Source:
    """The words of a text that statements were made from."""

    def __init__(self, text: str) -> None:
        found = set(words(text))
        self._known = found | {stem(w) for w in found}
        self._pairs = bigrams(plain(text), _NOTHING)

    def new_words(self, statement: str) -> str:
        """The words of a statement that the source lacks, as a sentence; "" if there are none."""
        new = [
            w
            for w in words(statement)
            if stem(w) not in self._known and w not in _FUNCTION
        ]
        new += sorted(bigrams(plain(statement), _NOTHING) - self._pairs)
        return f"New words: {', '.join(new[:5])}." if new else ""


def write(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{narrative, advice}: the statements one after the other, assessments before plans."""
    narrative = [str(e.get("statement") or "") for e in inputs.get("narrative") or ()]
    advice = [
        (str(e.get("kind") or ""), str(e.get("statement") or ""))
        for e in inputs.get("advice") or ()
    ]
    ordered = [s for kind, s in advice if kind == "assessment"] + [
        s for kind, s in advice if kind != "assessment"
    ]
    chinese = language_of(inputs.get("language"), " ".join(narrative)[:4000]) == "zh"
    return {
        "narrative": _paragraph(narrative, chinese),
        "advice": _paragraph(ordered, chinese),
    }


def _paragraph(statements: list[str], chinese: bool) -> str:
    found, length = [], 0
    for text in statements:
        whole = (
            text
            if text[-1:] in "。！？!?.…" and text
            else text + ("。" if chinese else ".")
        )
        if length + len(whole) < _MOST_TEXT:
            found.append(whole)
            length += len(whole) + 1
    return ("" if chinese else " ").join(found)


_ASKED: Final = {"en": "Is it said: {}?", "zh": "是否说到：{}？"}
_SAID: Final = re.compile(r"(?:Is it said: |是否说到：)(.+)[?？]", re.DOTALL)


def questions(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{questions}: sentences of the text, evenly spread, each asked about."""
    text = str(inputs.get("text") or "")[:24_000]
    language = language_of(inputs.get("language"), text[:4000])
    found = list(
        dict.fromkeys(
            s.text.strip().rstrip(".。?？!！")
            for s in sentences(text, language)
            if terms(s.text)
        )
    )
    count = max(1, min(int(inputs.get("count") or 1), 20))
    step = max(1.0, len(found) / count)
    picked = [found[int(i * step)] for i in range(min(count, len(found)))] or [
        text.strip()[:100] or "-"
    ]
    return {
        "questions": list(
            dict.fromkeys(_ASKED[language].format(one[:400]) for one in picked)
        )
    }


def answers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{answers}: yes where a sentence shares most words and denies as much, no where it denies otherwise."""
    text = str(inputs.get("text") or "")[:24_000]
    language = language_of(inputs.get("language"), text[:4000])
    stated = [
        (terms(s.text), bool(_NOT.search(plain(s.text))))
        for s in sentences(text, language)
    ]
    return {
        "answers": [
            {
                "id": str(q.get("id") or ""),
                "answer": _answer(str(q.get("question") or "")[:1000], stated),
            }
            for q in list(inputs.get("questions") or ())[:40]
        ]
    }


def _answer(question: str, stated: list[tuple[frozenset[str], bool]]) -> str:
    asked = _SAID.fullmatch(question)
    statement = asked[1] if asked else question
    wanted, denied = terms(statement), bool(_NOT.search(plain(statement)))
    like = [
        other
        for terms_, other in stated
        if wanted and len(wanted & terms_) >= 0.6 * len(wanted)
    ]
    if not like:
        return "unknown"
    return "yes" if denied in like else "no"
