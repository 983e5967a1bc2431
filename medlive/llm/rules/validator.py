"""The Validator's tasks by rules: words are counted, and no medicine is known."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from medlive.llm.rules import lexicon
from medlive.llm.rules.text import bigrams, language_of, plain, sentences, stem, words

_NONCLINICAL: Final = re.compile(
    r"\b(?:residency|exam|salary|interview|fee|price|appointment|certificate|sick note|career|tuition|license)\b"
    r"|学费|考试|预约|挂号|请假|开证明|价格|多少钱|招聘|面试",
    re.IGNORECASE,
)
_CATEGORIES: Final = (
    (
        "treatment",
        re.compile(
            r"\b(?:treat\w*|take|medicine|drug|dose|tablet|safe)\b|治|药|吃什么|用量"
        ),
    ),
    (
        "epidemiology",
        re.compile(
            r"\b(?:how common|risk of|chance|prognosis|contagious)\b|几率|会传染|预后|遗传"
        ),
    ),
    (
        "diagnosis",
        re.compile(
            r"\b(?:what is|cause|why|is it|could it|normal|mean)\b|什么病|原因|是不是|为什么|正常吗"
        ),
    ),
)
_CHECKLIST: Final = (
    (
        "Who the patient is",
        "患者的年龄或性别",
        re.compile(
            r"\b(?:\d+[\s-]?(?:year|yr|month)|male|female|man|woman|boy|girl)|岁|男|女|孩子|宝宝"
        ),
    ),
    (
        "How long it has lasted",
        "持续时间",
        re.compile(
            r"\b(?:day|week|month|year|since|hour|ago|today|yesterday)|天|周|月|年|小时|昨|今"
        ),
    ),
    ("What is complained of", "主要症状或问题", re.compile(r"[a-z\u3400-\u9fff]")),
)
# Halves of surrogate pairs, which no JSON reply can hold
_UNPAIRED: Final = re.compile("[\ud800-\udfff]")
_LIKE: Final = 0.6  # The share of a claim's words that one sentence of a passage must hold to support it
_NOT: Final = re.compile(
    r"\b(?:not|no|never|avoid|without|cannot)\b|n't\b|[不没无未勿忌]|避免|禁"
)


def query(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """S_cc: {category, meaningful, reason}."""
    text = str(inputs.get("query") or "")[:4000]
    if _NONCLINICAL.search(text) or not lexicon.clinical_words(text):
        return {
            "category": "nonclinical",
            "meaningful": False,
            "reason": "Names nothing clinical.",
        }
    category = next(
        (name for name, pattern in _CATEGORIES if pattern.search(plain(text))),
        "management",
    )
    return {
        "category": category,
        "meaningful": True,
        "reason": "Names a clinical matter.",
    }


def sufficiency(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{consult, required, prudent}: three items that any question has, found by their words."""
    stated = [
        (str(e.get("id") or ""), plain(str(e.get("statement") or "")))
        for e in inputs.get("narrative") or ()
    ]
    stated.append(("q", plain(str(inputs.get("query") or ""))))
    chinese = language_of(inputs.get("language"), stated[-1][1]) == "zh"
    required = []
    for english, han, pattern in _CHECKLIST:
        ids = [i for i, text in stated if pattern.search(text)][:20]
        required.append(
            {
                "requirement": han if chinese else english,
                "present": bool(ids),
                "element_ids": ids,
            }
        )
    return {"consult": "", "required": required, "prudent": []}


def claims(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{claims}: each advice as it stands, and what to search for: its own words and the question's."""
    asked = str(inputs.get("query") or "")
    return {
        "claims": [
            {
                "id": str(e.get("id") or ""),
                "statement": str(e.get("statement") or "")[:1900],
                "queries": _phrases(str(e.get("statement") or ""), asked),
            }
            for e in list(inputs.get("advice") or ())[:40]
        ]
    }


def _phrases(statement: str, asked: str) -> list[str]:
    own = " ".join([*_named(statement), *lexicon.glosses(statement)])
    both = " ".join([*_named(asked), *lexicon.glosses(asked)])
    return [f"{own} advice"[:120].strip(), f"medical {own} {both}"[:120].strip()]


def _named(text: str) -> list[str]:
    return [
        w
        for w in dict.fromkeys(words(text))
        if stem(w) not in lexicon.CONTENT_STOP and not w[0].isdigit()
    ][:12]


def align(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts}: supported where a sentence of a passage shares most words and denies as much, else neutral."""
    passages = [
        (str(p.get("id") or ""), part)
        for p in inputs.get("passages") or ()
        for part in str(p.get("text") or "").split(" … ")
    ]
    return {"verdicts": [_verdict(c, passages) for c in inputs.get("claims") or ()]}


def _verdict(
    claim: Mapping[str, Any], passages: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    text = str(claim.get("statement") or "")[:2000]
    wanted, denies = terms(text), bool(_NOT.search(plain(text)))
    best, where, quote = 0.0, "", ""
    for passage_id, part in passages:
        for one in sentences(part, language_of(None, part)):
            own = terms(one.text)
            if (
                len(own) < 4
                or denies != bool(_NOT.search(plain(one.text)))
                or _UNPAIRED.search(one.text)
            ):
                continue
            share = len(wanted & own) / max(4, len(wanted))
            if share > best:
                best, where, quote = share, passage_id, one.text
    supported = best >= _LIKE
    return {
        "id": str(claim.get("id") or ""),
        "verdict": "supported" if supported else "neutral",
        "evidence": [{"passage_id": where, "quotes": [quote[:1900]]}]
        if supported
        else [],
        "reason": f"The nearest sentence shares {best:.0%} of the claim's words.",
    }


def terms(text: str) -> frozenset[str]:
    """What a text is about: English stems, pairs of Chinese characters, the glossary's words for them."""
    latin = {stem(w) for w in words(text) if not w[0].isdigit()} - lexicon.CONTENT_STOP
    return frozenset(
        latin
        | bigrams(plain(text), lexicon.STOP_ZH)
        | {stem(w) for w in lexicon.glosses(text)}
    )


def veto(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts}: nothing goes against anything."""
    return {
        "verdicts": [
            {
                "id": str(c.get("id") or ""),
                "false_by_passage": False,
                "evidence": [],
                "could_hurt": False,
                "harm_evidence": [],
                "reason": "Rules do not judge.",
            }
            for c in inputs.get("claims") or ()
        ]
    }
