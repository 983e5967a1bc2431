"""The Screener's tasks by rules: facts, the question and the advice of a thread, each a verbatim quote."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from medlive.llm.rules.advice import advice_pieces
from medlive.llm.rules.narrative import narrative_facts
from medlive.llm.rules.query import find_query
from medlive.llm.rules.thread import read


def narrative(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """L_N: {elements: [{message_id, quote, statement, kind}]}."""
    return {"elements": [fact._asdict() for fact in narrative_facts(read(inputs))]}


def query(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Q: {query: {message_id, quote, question}}, or {query: None}."""
    asked = find_query(read(inputs))
    if asked is None:
        return {"query": None}
    return {"query": {"message_id": asked.message_id, "quote": asked.quote, "question": asked.question}}


def advice(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """L_A: {elements: [{message_id, quote, statement, kind}]}."""
    return {
        "elements": [
            {"message_id": a.message_id, "quote": a.quote, "statement": a.statement, "kind": a.kind}
            for a in advice_pieces(read(inputs))
        ]
    }


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "screener.narrative": narrative,
    "screener.query": query,
    "screener.advice": advice,
}
