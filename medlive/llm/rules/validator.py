"""The Validator's tasks by rules: words are counted, and no medicine is known."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from medlive.llm.rules import lexicon
from medlive.llm.rules.text import bigrams, language_of, plain, sentences, stem, words

_NONCLINICAL = re.compile(
    r"\b(?:residency|exam|salary|interview|fee|price|appointment|certificate|sick note|career|tuition|license)\b"
    r"|学费|考试|预约|挂号|请假|开证明|价格|多少钱|招聘|面试",
    re.IGNORECASE,
)
_CHECKLIST = (
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
_UNPAIRED = re.compile("[\ud800-\udfff]")
_LIKE = 0.6  # The share of a claim's words that one sentence of a passage must hold to support it
_NOT = re.compile(
    r"\b(?:not|no|never|avoid|without|cannot)\b|n't\b|[不没无未勿忌]|避免|禁"
)


def query(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """S_cc: {category, meaningful, of_its_time, reason}."""
    text = inputs["query"][:4000]
    meaningful = not _NONCLINICAL.search(text) and bool(lexicon.clinical_words(text))
    named = "a clinical matter" if meaningful else "nothing clinical"
    return {
        "category": "management" if meaningful else "nonclinical",
        "meaningful": meaningful,
        "of_its_time": False,
        "reason": f"Names {named}.",
    }


def sufficiency(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{consult, answers_now, required, prudent}: three items that any question has, found by their words."""
    stated = [(e["id"], plain(e["statement"])) for e in inputs["narrative"]]
    stated.append(("q", plain(inputs["query"])))
    chinese = language_of(inputs["language"], stated[-1][1]) == "zh"
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
    return {
        "consult": "",
        "answers_now": False,
        "required": required,
        "prudent": [],
    }


def claims(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{claims}: each advice as it stands, and what to search for: its own words and the question's."""
    stated = []
    for advice in inputs["advice"][:40]:
        statement = advice["statement"]
        own, asked = _searched(statement), _searched(inputs["query"])
        queries = [
            f"{own} advice"[:120].strip(),
            f"medical {own} {asked}"[:120].strip(),
        ]
        stated.append(
            {"id": advice["id"], "statement": statement[:1900], "queries": queries}
        )
    return {"claims": stated}


def _searched(text: str) -> str:
    named = []
    for word in dict.fromkeys(words(text)):
        if stem(word) not in lexicon.CONTENT_STOP and not word[0].isdigit():
            named.append(word)
    return " ".join([*named[:12], *lexicon.glosses(text)])


def align(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts}: supported where a sentence of a passage shares most words and denies as much, else neutral."""
    passages = []
    for passage in inputs["passages"]:
        for part in passage["text"].split(" … "):
            passages.append((passage["id"], part))
    return {"verdicts": [_verdict(claim, passages) for claim in inputs["claims"]]}


def _verdict(
    claim: Mapping[str, Any], passages: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    text = claim["statement"][:2000]
    wanted, denied = terms(text), denies(text)
    best, where, quote = 0.0, "", ""
    for passage_id, part in passages:
        for sentence in sentences(part):
            own = terms(sentence.text)
            if (
                len(own) < 4
                or denied != denies(sentence.text)
                or _UNPAIRED.search(sentence.text)
            ):
                continue
            share = len(wanted & own) / max(4, len(wanted))
            if share > best:
                best, where, quote = share, passage_id, sentence.text
    supported = best >= _LIKE
    evidence = [{"passage_id": where, "quotes": [quote[:1900]]}] if supported else []
    return {
        "id": claim["id"],
        "verdict": "supported" if supported else "neutral",
        "evidence": evidence,
        "lacks": [],
        "reason": f"The nearest sentence shares {best:.0%} of the claim's words.",
    }


def soundness(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts}: undecided, since it makes no clinical judgement."""
    verdicts = []
    for item in inputs["items"]:
        verdicts.append(
            {
                "id": item["id"],
                "case_for": "",
                "case_against": "",
                "verdict": "undecided",
                "sure": False,
                "standard": "",
            }
        )
    return {"verdicts": verdicts}


def denies(text: str) -> bool:
    """Whether a text holds a word of denial."""
    return bool(_NOT.search(plain(text)))


def terms(text: str) -> frozenset[str]:
    """What a text is about: English stems, pairs of Chinese characters, the glossary's words for them."""
    latin = {stem(w) for w in words(text) if not w[0].isdigit()} - lexicon.CONTENT_STOP
    glossed = map(stem, lexicon.glosses(text))
    return frozenset(latin | bigrams(plain(text), lexicon.STOP_ZH)).union(glossed)


def veto(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{verdicts}: nothing goes against anything."""
    verdict = {
        "false_by_passage": False,
        "evidence": [],
        "could_hurt": False,
        "harm_evidence": [],
        "reason": "Rules do not judge.",
    }
    return {"verdicts": [{"id": claim["id"], **verdict} for claim in inputs["claims"]]}
