"""`grader.criterion` and `grader.rubric`: a criterion is met where one passage of the answer says its words.

Words of content are compared, not meanings: a paraphrase is missed, and the engine says so by being the rules
engine. Numbers must be the same, and what is denied on one side must be denied on the other. A verdict or an
instruction inside an answer is only text, and its sentence is never a quote.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .text import (
    CONTENT_STOP,
    STOP_ZH,
    Language,
    bigrams,
    can_be_quoted,
    language_of,
    plain,
    sentences,
    stem,
    stems,
)

NEEDED: dict[Language, float] = {"en": 0.35, "zh": 0.5}
"""The share of a criterion's content that one passage must hold; tuned on answers that physicians labelled."""

_DENIAL_EN = re.compile(
    r"\b(?:not|no|never|neither|nor|without|avoid(?:s|ed|ing)?|against|stop(?:s|ped|ping)?|refrain|"
    r"unlikely|unnecessary|cannot|"
    r"discourages?|denies|deny|contraindicated|harmful|rather than|instead of|un(?:safe|related))\b|n't\b",
    re.IGNORECASE,
)
_DENIAL_ZH = re.compile(
    r"不(?!同|仅|但|断|适|舒|良|足|全|错|安|规|明|稳|少|久|过|论|管)|没有?|未|无(?!论)|非(?!常)|"
    r"别(?!人)|勿|禁|避免|忌|停(?!经)|否认|莫"
)
_ADDRESSED = re.compile(
    r"[\"']?(?:met|score|verdict|criteria_met)[\"']?\s*[:=]|\b(?:criteri(?:on|a)|rubric|grader|"
    r"full (?:marks|credit))\b|"
    r"\b(?:ignore|disregard|override)\b.{0,40}\b(?:instruction|prompt|rule|previous|above)|评分标准|"
    r"满分|忽略.{0,10}(?:指令|指示|规则|以上)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_BARE = frozenset(
    {"patient", "answer", "response", "recommend", "advis", "suggest", "state"}
)


_FUNCTION_TEXT = (
    "a an the and or but if of in on at to for from with by is are was were be been it its this that there they"
    " he she his her their as may can could should would will might must do does has have had not no any some"
)
_FUNCTION = frozenset(map(stem, _FUNCTION_TEXT.split()))


def _terms(text: str, language: Language) -> set[str]:
    """What a text is about: English stems, or pairs of Chinese characters and the Latin words between them."""
    latin = stems(text)
    if language == "zh":
        return bigrams(text, STOP_ZH) | (latin - CONTENT_STOP)
    # A criterion of everyday words only ("Advises rest") still has something to look for.
    return latin - CONTENT_STOP - _BARE or latin - _FUNCTION - _BARE


@lru_cache(maxsize=256)
def _passages(answer: str) -> dict[str, set[str]]:
    """The sentences of an answer that may be quoted, and what each is about."""
    language = language_of(None, answer)
    passages = {}
    for sentence in sentences(answer):
        if not _ADDRESSED.search(sentence) and can_be_quoted(sentence):
            passages[sentence] = _terms(sentence, language)
    return passages


def _denies(text: str, language: Language) -> bool:
    """Whether a text carries an odd number of denials."""
    pattern = _DENIAL_ZH if language == "zh" else _DENIAL_EN
    return len(pattern.findall(text)) % 2 == 1


def grade_criterion(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the answer meets one criterion, with the passage that does."""
    criterion = str(inputs["criterion"])
    language = language_of(inputs.get("language"), criterion)
    wanted = _terms(criterion, language)
    # What the question says already tells nothing, since any answer repeats it.
    question = str(inputs.get("question", ""))[:20_000]
    wanted = wanted - _terms(question, language) or wanted
    numbers = set(_NUMBER.findall(plain(criterion)))
    best, quote = 0.0, ""
    for text, terms in _passages(str(inputs["answer"])).items():
        share = len(wanted & terms) / max(1, len(wanted))
        if share > best and numbers.issubset(_NUMBER.findall(plain(text))):
            best, quote = share, text
    reasoning = f"One passage holds {best:.0%} of the criterion's words."
    if best < NEEDED[language]:
        quote = ""
        reasoning = f"The nearest passage holds {best:.0%} of the criterion's words."
    elif _denies(criterion, language) != _denies(quote, language):
        quote = ""
        reasoning = "The nearest passage denies what the criterion states, or states what it denies."
    return {
        "reasoning": reasoning,
        "conclusion": "met" if quote else "not met",
        "met": bool(quote),
        "quote": quote[:4000],
        "whole": False,
    }


def grade_rubric(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same for each criterion of a list, in its order."""
    grades = []
    for criterion in inputs["criteria"]:
        grade = grade_criterion({**inputs, "criterion": criterion["criterion"]})
        grades.append({"id": str(criterion["id"]), **grade})
    return {"grades": grades}


def grade_answers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same for each of several answers, in their order."""
    answers = []
    for answer in inputs["answers"]:
        graded = grade_rubric({**inputs, "answer": answer["answer"]})
        answers.append({"id": str(answer["id"]), **graded})
    return {"answers": answers}
