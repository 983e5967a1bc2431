"""LLMEval-Med's published questions (seed 003): five categories, checklists, conversations of several rounds."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from medlive.errors import BadInput

CATEGORIES: Final = {
    "医疗知识": "Medical Knowledge",
    "医疗语言理解": "Medical Language Understanding",
    "一般语言理解": "Medical Language Understanding",
    "医疗推理": "Medical Reasoning",
    "医疗安全伦理": "Medical Safety and Ethics",
    "医疗文本生成": "Medical Text Generation",
}
"""`category1` as the file spells it → the paper's name."""
CORE: Final = "core"
SECONDARY: Final = "secondary"
_HEADS: Final = re.compile(r"(核心|次要)(?:需求|要求)\s*[:：]?")
_ITEM: Final = re.compile(r"(?m)^\s*\d+\s*[.、．)]\s*")


def is_llmeval(text: str) -> bool:
    """Whether a file's beginning is that of LLMEval-Med's `dataset.json`."""
    return '"sanswer"' in text and '"groupCode"' in text


def llmeval_rows(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    """The questions as rows of cases, with their places; or why one is none.

    The file is an object of categories, each a list of questions; NaN stands for a value that is missing. A
    question of round 2 and later is `after` the one before it in its group. Raises BadInput for another file.
    """
    try:
        by_category = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{name}: not JSON: {exc}") from exc
    if not isinstance(by_category, dict) or not all(
        isinstance(rows, list) for rows in by_category.values()
    ):
        raise BadInput(f"{name}: expected an object of lists, one for each category")
    for category, rows in by_category.items():
        ids: set[str] = set()
        for place, raw in enumerate(rows, start=1):
            where = f"{category}, question {place}"
            try:
                row = _row(category, raw)
            except (KeyError, TypeError, ValueError) as exc:
                yield where, f"not a question: {exc!r:.100}"
                continue
            if row["after"] and row["after"] not in ids:
                yield where, f"the round before it ({row['after']}) is not there"
                continue
            ids.add(row["case_id"])
            yield where, row


_TAGS: Final = {
    "category": "category2",
    "scene": "scene",
    "difficulty": "difficulty",
}
"""The fields that become tags, by the tag's kind."""


def _row(category: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    group, turn = int(raw["groupCode"]), int(raw["round"])
    theme = (
        CATEGORIES.get(category) or CATEGORIES.get(str(raw["category1"])) or category
    )
    short = "".join(word[0] for word in theme.split() if word[0].isupper()).lower()
    rubric = []
    for level, items in requirements(_text(raw.get("checklist"))).items():
        for n, item in enumerate(items, start=1):
            criterion_id = f"{level}_{n}"
            rubric.append(
                {"criterion": item, "points": 1.0, "axis": level, "id": criterion_id}
            )
    tags = []
    for kind, field in _TAGS.items():
        value = raw.get(field)
        if isinstance(value, str):
            tags.append(f"{kind}:{value}")
    return {
        "case_id": f"llmeval-{short}-{group}-{turn}",
        "query": str(raw["problem"]),
        "advice": _text(raw.get("sanswer")),
        "rubric": rubric,
        "language": "zh",
        "theme": theme,
        "cluster": f"llmeval-{short}-{group}",
        "after": f"llmeval-{short}-{group}-{turn - 1}" if turn > 1 else None,
        "tags": tags,
    }


def requirements(checklist: str) -> dict[str, list[str]]:
    """Core and secondary requirements of a checklist; text before the first heading is core."""
    parts = _HEADS.split(checklist)
    by_kind: dict[str, list[str]] = {CORE: _items(parts[0]), SECONDARY: []}
    for kind, text in zip(parts[1::2], parts[2::2], strict=True):
        by_kind[CORE if kind == "核心" else SECONDARY] += _items(text)
    return by_kind


def _items(text: str) -> list[str]:
    return [" ".join(item.split()) for item in _ITEM.split(text) if item.strip()]


def _text(value: object) -> str:
    """A value as text; "" for none, and for the NaN that a table wrote where there was none."""
    return (
        ""
        if value is None or (isinstance(value, float) and math.isnan(value))
        else str(value)
    )
