"""Which answers hold a model's thinking: an endpoint that does not separate it sends it before the answer."""

import re
from collections.abc import Iterable
from typing import Final

from medlive.evaluation.model import Answer

_OPENS: Final = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_ENDS: Final = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)


def thinks_aloud(text: str) -> bool:
    """Whether an answer begins with a thinking block; its opening may be missing, as where the prompt holds it."""
    opening, end = _OPENS.search(text), _ENDS.search(text)
    if opening is not None:
        return not text[: opening.start()].strip("\ufeff \t\r\n")
    return end is not None


def told_of_thinking(answers: Iterable[Answer]) -> list[str]:
    """A note about answers that are graded with their thinking; none where there are no such."""
    n = sum(1 for answer in answers if answer.gradable and thinks_aloud(answer.response))
    if not n:
        return []
    return [f"{n} answers begin with a thinking block, which is graded with them: let the endpoint separate it"]
