"""The Validator's tasks by rules: is it a clinical request, is enough told, does the evidence stand behind it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from medlive.llm.rules import language_en as en
from medlive.llm.rules import language_zh as zh
from medlive.llm.rules import lexicon_en, lexicon_zh
from medlive.llm.rules.alignment import align, goes_against
from medlive.llm.rules.checklist import category_of, checklist
from medlive.llm.rules.question import chinese_asks, english_question
from medlive.llm.rules.text import language_of

_CLAIM: Final = 1900
_SUBJECT: Final = 3
"""Words of the question that are lent to a claim which names nothing."""
_STATEMENT: Final = 700
"""Characters of a narrative element that are read; the Screener's own are no longer."""


def query(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """S_cc: {category, meaningful, reason}."""
    text = str(inputs.get("query") or "")[:4000]
    language = language_of(inputs.get("language"), text)
    patterns = zh if language == "zh" else en
    reason = ""
    if patterns.NONCLINICAL.search(text):
        reason = "Not a clinical request: social, illegal, about an examination or a career."
    elif patterns.INJECTION.search(text):
        reason = "Speaks to a program, asks nothing clinical."
    elif patterns.LOGISTIC.search(text) and not patterns.DEMAND.search(patterns.LOGISTIC.sub(" ", text)):
        reason = "Asks for a service, not for clinical knowledge."
    elif language == "zh":
        if not lexicon_zh.CLINICAL.search(text) and not lexicon_zh.DRUG.search(text):
            reason = "Names no symptom, finding, drug or condition."
        elif not (chinese_asks(text) or zh.QUESTION.search(text) or zh.DEMAND.search(text)):
            reason = "Asks nothing."
    elif not _names_something(text):
        reason = "Names no symptom, finding, drug or condition."
    elif not (english_question(text) or "?" in text or en.REQUEST.search(text)):
        reason = "Asks nothing."
    if reason:
        return {"category": "nonclinical", "meaningful": False, "reason": reason}
    return {
        "category": category_of(text, language),
        "meaningful": True,
        "reason": "Names a clinical matter and asks about it.",
    }


def _names_something(text: str) -> bool:
    """Whether an English question names a clinical matter: a particular word, or a common one with a demand."""
    if lexicon_en.specific_words(text):
        return True
    common = set(lexicon_en.clinical_words(text))
    return len(common) >= 2 or (bool(common) and en.DEMAND.search(text) is not None)


def sufficiency(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The checklist: {items: [{requirement, present, element_ids}]}."""
    text = str(inputs.get("query") or "")[:4000]
    narrative = [
        (str(e.get("id") or ""), str(e.get("statement") or "")[:_STATEMENT])
        for e in list(inputs.get("narrative") or ())[:200]
    ]
    language = language_of(inputs.get("language"), text + " ".join(s for _, s in narrative[:5]))
    return {
        "items": [
            {"requirement": name, "present": bool(ids), "element_ids": list(ids)}
            for name, ids in checklist(language, text, narrative)
        ]
    }


def claims(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Each advice as it stands; one that names nothing particular gets what the question names: {claims}."""
    text = str(inputs.get("query") or "")[:4000]
    language = language_of(inputs.get("language"), text)
    stated = []
    for element in list(inputs.get("advice") or ())[:40]:
        statement = str(element.get("statement") or "")[:_CLAIM]
        subject = [word for word in _particulars(text, language) if word not in statement.casefold()][:_SUBJECT]
        if subject and not _particulars(statement, language):
            statement = f"{statement} ({', '.join(subject)})"
        stated.append({"id": str(element.get("id") or ""), "statement": statement})
    return {"claims": stated}


def _particulars(text: str, language: str) -> list[str]:
    """The words of a text that name something particular, each once."""
    if language == "zh":
        glossed = [spelling for spelling, _ in lexicon_zh.glosses(text)]
        words = [*lexicon_zh.DRUG.findall(text), *glossed, *lexicon_zh.clinical_words(text)]
        return [word for word in dict.fromkeys(words) if len(word) > 1]
    return list(dict.fromkeys(lexicon_en.specific_words(text)))


def translate(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The English words of the glossary's terms in each claim, "" where it knows none: {translations}."""
    return {
        "translations": [
            {
                "id": str(claim.get("id") or ""),
                "english": " ".join(
                    dict.fromkeys(
                        word
                        for _, english in lexicon_zh.glosses(str(claim.get("statement") or "")[:_CLAIM])
                        for word in english
                    )
                ),
            }
            for claim in list(inputs.get("claims") or ())[:40]
        ]
    }


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "validator.query": query,
    "validator.sufficiency": sufficiency,
    "validator.claims": claims,
    "validator.translate": translate,
    "validator.alignment": align,
    "validator.veto": goes_against,
}
