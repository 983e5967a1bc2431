"""What the words of a list's filter are looked for in: every text of its cases, packed into files by the pages.

A page that is opened from a disk may fetch nothing, but a script of it may load another script. So the texts are
scripts: one for the cases' own texts and one for each model's, which a list loads when words are looked for, and
only those that it needs.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from medlive.evaluation.model import Answer, EvaluationCase, Grade

MOST_TEXT: Final = 50_000
"""Characters of one text that a page shows and a search looks into."""
OWN: Final = "case"
"""The part of a list's texts that holds the cases' own."""
_BETWEEN: Final = "\x00"


def part_of(model: int) -> str:
    """The part of a list's texts that holds a model's."""
    return f"m{model}"


def own_text(case: EvaluationCase) -> str:
    """A case's own words: id, narrative, question, advice, criteria."""
    parts = (
        case.case_id,
        case.narrative,
        case.query,
        case.advice,
        *(c.criterion for c in case.criteria),
    )
    return _joined(parts)


def model_text(answer: Answer | None, grades: Mapping[str, Grade]) -> str:
    """A model's answer to a case and what the grader wrote about it: quotes, reasoning, reasons."""
    texts = [] if answer is None else [answer.response, answer.reason]
    for grade in grades.values():
        texts += [grade.quote, grade.reasoning, grade.reason]
    return _joined(texts)


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part[:MOST_TEXT].replace(_BETWEEN, " ") for part in parts if part)


def write_texts(folder: Path, number: int, part: str, texts: Sequence[str]) -> int:
    """Write a part of the texts of the list of that number, a text for each of its cases; the bytes written."""
    data = _BETWEEN.join(texts).encode("utf-8", "backslashreplace")
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = base64.b64encode(packer.compress(data) + packer.flush()).decode("ascii")
    return (folder / f"{number}-{part}.js").write_bytes(
        f'medlive({json.dumps(part)},"{packed}");\n'.encode()
    )
