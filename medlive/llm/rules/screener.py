"""The Screener's tasks by rules: whole sentences are taken as they stand, by the clinical words in them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from medlive.llm.rules.lexicon import clinical_words
from medlive.llm.rules.text import sentences, statement, unmarked

_MOST = 40
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASKS = re.compile(
    r"\?|？|\b(?:please|kindly)\b[^.]{0,40}\b(?:suggest|advise|help|tell|guide)|怎么|如何|吗\b|吗[。？?]?$|什么|请问|能不能|要不要|可以.{0,12}吗|是否",
    re.IGNORECASE,
)
_CLOSED = re.compile(r"^\W*(?:no|yes|none|没有|没|有|是的|不是|无)\W*$", re.IGNORECASE)
_COURTESY = re.compile(
    r"^\W*(?:hi|hello|dear|thanks?|thank you|regards|best|good (?:morning|evening))\b[^.]{0,60}$|https?://|-->|<link>"
    r"|(?:thanks?|thank you|welcome) (?:for|to)|i (?:have gone through|understand your)|kindly rate"
    r"|hope (?:this|i)|any (?:further|more) quer"
    r"|您好|你好|谢谢|感谢|已详细阅读|祝|满意|好评|资料我已",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"\b(?:should|take|avoid|stop|start|continue|use|apply|see|consult|need|advise|recommend|suggest|do not|don't"
    r"|get|go|have|try|drink|eat|rest)\b|建议|应|可以|需要|不要|避免|复查|检查|服用|治疗|注意|去|住院",
    re.IGNORECASE,
)
_OBJECTIVE = re.compile(
    r"\d|\b(?:old|weigh|test|scan|report|result)\b|岁|检查|化验|结果|诊断"
)


def _pieces(inputs: Mapping[str, Any], role: str) -> Iterator[tuple[str, str]]:
    """(message id, sentence) of one side's messages, without sentences that no reply could hold."""
    for message in inputs["messages"][:200]:
        if message["role"] != role:
            continue
        text = message["text"]
        for sentence in sentences(text):
            bare = unmarked(text, sentence)
            if bare is None or _SURROGATE.search(bare.text):
                continue
            if statement(bare.text):
                yield message["id"], bare.text


def extract(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{narrative, query, advice}."""
    return {
        "narrative": _narrative(inputs),
        "query": _query(inputs),
        "advice": _advice(inputs),
    }


def _narrative(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The patient's sentences with a clinical word, that ask nothing."""
    elements = []
    for message_id, text in _pieces(inputs, "patient"):
        if clinical_words(text) and not _ASKS.search(text) and not _CLOSED.match(text):
            kind = "objective" if _OBJECTIVE.search(text) else "subjective"
            elements.append(_element(message_id, text, kind))
    return elements[:_MOST]


def _advice(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The physician's sentences with a clinical word, without courtesies and questions back."""
    elements = []
    for message_id, text in _pieces(inputs, "physician"):
        if _COURTESY.search(text) or text.rstrip().endswith(("?", "？")):
            continue
        if clinical_words(text):
            kind = "plan" if _PLAN.search(text) else "assessment"
            elements.append(_element(message_id, text, kind))
    return elements[:_MOST]


def _element(message_id: str, text: str, kind: str) -> dict[str, Any]:
    return {
        "message_id": message_id,
        "quote": text,
        "statement": statement(text),
        "kind": kind,
    }


def _query(inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The patient's last sentence that asks and names something clinical, else the title that asks."""
    title = inputs["title"].strip()
    asked = [] if _SURROGATE.search(title) else [("title", title)]
    asked += _pieces(inputs, "patient")
    for message_id, text in reversed(asked):
        if _ASKS.search(text) and clinical_words(text):
            question = statement(text)[:1900]
            return {"message_id": message_id, "quote": text, "question": question}
    return None


def revise(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{elements}: everything that was objected to is taken back."""
    withdrawn = {"keep": False, "message_id": "", "quote": "", "statement": ""}
    return {"elements": [{"id": e["id"], **withdrawn} for e in inputs["elements"]]}
