"""What is a question and where in a sentence it begins, in both languages."""

import re

from medlive.llm.rules import language_en as en
from medlive.llm.rules import language_zh as zh
from medlive.llm.rules.text import Piece, clauses


def english_question(text: str) -> bool:
    """Whether an English sentence asks, by its build; a question mark alone makes no question."""
    stripped = text.strip()
    if stripped.endswith("?") and en.INTERROGATIVE.match(stripped):
        return True
    if en.INVERTED.match(stripped):
        # "When I wake up I feel dizzy." tells; so does "What happens is that my heart races."
        return not re.match(r"^what (?:is|was) (?:happening|more|worse|strange|odd)", stripped, re.IGNORECASE)
    if en.REQUEST.search(stripped):
        return True
    if stripped.endswith("?"):
        return en.INNER_QUESTION.search(stripped) is not None or not re.match(
            r"^(?:i|i'm|i've|im|my|he|she|his|her|we|our|they|it|the|this|there|have|had|no|also)\b",
            stripped,
            re.IGNORECASE,
        )
    return False


def question_start(text: str) -> int:
    """Where the asking part of a mixed sentence begins; 0 when the whole sentence asks."""
    if en.INVERTED.match(text) or (en.INTERROGATIVE.match(text) and text.rstrip().endswith("?")):
        return 0
    match = en.INNER_QUESTION.search(text)
    return match.start("q") if match else 0


def chinese_asks(clause: str) -> bool:
    """Whether a Chinese clause asks."""
    if zh.NOT_QUESTION.search(clause) and not re.search(r"[？?]|请问|吗", clause):
        return False
    match = zh.QUESTION.search(clause)
    if match is None:
        return False
    # A lone question mark after a plain statement, "血常规正常？", is no question.
    return match.group().strip() not in ("？", "?", "") or zh.STRONG.search(clause) is not None


def split_chinese(source: str, sentence: Piece) -> tuple[list[Piece], list[Piece]]:
    """A sentence's clauses that tell and those that ask; a condition goes with the question after it."""
    stated: list[Piece] = []
    asked: list[Piece] = []
    pending: list[Piece] = []
    for clause in clauses(source, sentence):
        if chinese_asks(clause.text):
            asked += [*pending, clause]
            pending = []
        elif zh.CONDITION.search(clause.text):
            pending.append(clause)
        else:
            stated += pending
            pending = []
            stated.append(clause)
    return stated + [p for p in pending if not re.match(r"^(?:如果|要是|假如|若)", p.text)], asked
