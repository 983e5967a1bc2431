"""`grader.criterion` and `grader.rubric`: a criterion is met where one passage of the answer says its words.

Words of content are compared, not meanings: a paraphrase is missed, and the engine says so by being the rules
engine. Numbers must be the same, and what is denied on one side must be denied on the other. A verdict or an
instruction inside an answer is only text, and its sentence is never a quote.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from medlive.llm.rules import lexicon
from medlive.llm.rules.text import (
    Language,
    bigrams,
    language_of,
    plain,
    sentences,
    stem,
    words,
)

NEEDED: dict[Language, float] = {"en": 0.4, "zh": 0.5}
"""The share of a criterion's content that one passage must hold; tuned on answers that physicians labelled."""

_HEAD_EN = re.compile(
    r"^\W*(?:(?:the )?(?:answer|response)\s+)?(?:(?:clearly|explicitly|correctly|appropriately)\s+)?"
    r"(?P<verb>states?|recommends?|advises?|suggests?|mentions?|explains?|says?|names?|notes?|"
    r"identif(?:y|ies)|warns?|tells?|"
    r"describes?|asks?|encourages?|urges?|discourages?|denies|lists?|instructs?|refers?)\b"
    r"(?P<more>(?:\s+(?:the (?:patient|user|person)|that|to|for|about|against|of|whether|not|the need|"
    r"against|taking|need))*)\b",
    re.IGNORECASE,
)
_HEAD_ZH = re.compile(
    r"^(?:回答|答复)?(?:明确|正确)?(?P<verb>指出|建议|推荐|不建议|不推荐|说明|提到|解释|告知|提醒|警告|"
    r"询问|否认|认为没有必要|认为)(?:患者)?"
)
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
_SURROGATE = re.compile("[\ud800-\udfff]")
"""A lone one: no reply can hold it, so nothing is quoted from its sentence."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_BARE = frozenset(
    {"patient", "answer", "response", "recommend", "advis", "suggest", "state"}
)
_CLAUSE = re.compile(
    r"[,;:，；：]|\b(?:but|however|although|while|whereas|because|and)\b|但|而"
)


def _terms(text: str, language: Language) -> frozenset[str]:
    """What a text is about: English stems, or pairs of Chinese characters and the Latin words between them."""
    latin = frozenset(stem(word) for word in words(text) if not word[0].isdigit())
    if language == "zh":
        return frozenset(bigrams(plain(text), lexicon.STOP_ZH)) | (
            latin - lexicon.CONTENT_STOP
        )
    content = latin - lexicon.CONTENT_STOP - _BARE
    # A criterion of everyday words only ("Advises rest") still has something to look for.
    return content or latin - _FUNCTION - _BARE


_FUNCTION_TEXT = (
    "a an the and or but if of in on at to for from with by is are was were be been it its this that there they"
    " he she his her their as may can could should would will might must do does has have had not no any some"
)
_FUNCTION = frozenset(map(stem, _FUNCTION_TEXT.split()))


@lru_cache(maxsize=256)
def _passages(answer: str) -> dict[str, frozenset[str]]:
    """The sentences of an answer that may be quoted, and what each is about."""
    language = language_of(None, answer)
    passages = {}
    for sentence in sentences(answer):
        text = sentence.text
        if not _ADDRESSED.search(text) and not _SURROGATE.search(text):
            passages[text] = _terms(text, language)
    return passages


def _denied(text: str, language: Language, terms: frozenset[str]) -> bool:
    """Whether the clause of a text that holds most of the terms carries an odd number of denials."""
    best, clause = -1, text
    for part in (
        _CLAUSE.split(text) if language == "en" else re.split(r"[，,；;。]", text)
    ):
        shared = len(_terms(part, language) & terms) if part.strip() else 0
        if shared > best:
            best, clause = shared, part
    pattern = _DENIAL_ZH if language == "zh" else _DENIAL_EN
    return len(pattern.findall(clause)) % 2 == 1


def _core(criterion: str, language: Language) -> tuple[str, bool]:
    """What the criterion asks for without its leading verb, and whether that verb denies it."""
    match = (_HEAD_ZH if language == "zh" else _HEAD_EN).match(criterion)
    if match is None:
        return criterion, False
    head = match.group().lower()
    denies = bool(
        re.search(r"\bagainst\b|\bnot\b|discourage|denies|不|否认|没有必要", head)
    )
    return criterion[match.end() :], denies


class _Verdict(NamedTuple):
    met: bool
    quote: str
    reason: str


def _grade(inputs: Mapping[str, Any], criterion: str) -> _Verdict:
    language = language_of(inputs.get("language"), criterion)
    core, denies = _core(criterion, language)
    wanted = _terms(core, language)
    # What the question says already tells nothing, since any answer repeats it.
    wanted = (
        wanted - _terms(str(inputs.get("question", ""))[:20_000], language) or wanted
    )
    if not wanted:
        return _Verdict(False, "", "The criterion holds no word to look for.")
    numbers = set(_NUMBER.findall(plain(core)))
    best_share, quote, shared = 0.0, "", frozenset[str]()
    for text, terms in _passages(str(inputs["answer"])).items():
        share = len(wanted & terms) / len(wanted)
        if share > best_share and numbers.issubset(_NUMBER.findall(plain(text))):
            best_share, quote, shared = share, text, wanted & terms
    if best_share < NEEDED[language]:
        return _Verdict(
            False,
            "",
            f"No passage of the answer holds the criterion's words; the nearest {best_share:.0%}.",
        )
    asked = denies != _denied(core, language, wanted)
    if asked != _denied(quote, language, shared):
        return _Verdict(
            False,
            "",
            "The nearest passage denies what the criterion states, or states what it denies.",
        )
    return _Verdict(
        True,
        quote[:4000],
        f"One passage holds {best_share:.0%} of the criterion's words.",
    )


def grade_criterion(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the answer meets one criterion, with the passage that does."""
    met, quote, reasoning = _grade(inputs, str(inputs["criterion"]))
    return {
        "reasoning": reasoning,
        "conclusion": "met" if met else "not met",
        "met": met,
        "quote": quote,
        "whole": False,
    }


def grade_rubric(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same for each criterion of a list, in its order."""
    grades = [
        {
            "id": str(criterion["id"]),
            **grade_criterion({**inputs, "criterion": criterion["criterion"]}),
        }
        for criterion in inputs["criteria"]
    ]
    return {"grades": grades}


def grade_answers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same for each of several answers, in their order."""
    answers = []
    for answer in inputs["answers"]:
        graded = grade_rubric({**inputs, "answer": answer["answer"]})
        answers.append({"id": str(answer["id"]), **graded})
    return {"answers": answers}
