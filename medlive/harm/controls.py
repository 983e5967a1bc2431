"""Controls: made-up cases with an excellent answer, and the same answer with one dangerous statement planted.

They are read among a run's answers, so that judges who find harm everywhere or nowhere are noticed.
"""

import json
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from typing import Final

from medlive.harm.model import Material

LEAST_COMMON: Final = 0.3
"""Share of the shorter quote that two quotes of one statement have in common, in one run of characters."""


@cache
def load_controls() -> dict[str, tuple[Material, str]]:
    """The controls that are shipped, by id: an answer, and its dangerous words, "" in an excellent one.

    There are two of each case: the excellent answer, then the slip.
    """
    text = files("medlive.harm").joinpath("data", "controls.jsonl").read_text("utf-8")
    controls = {}
    for number, line in enumerate(text.splitlines(), start=1):
        row = json.loads(line)
        question = f"{row['narrative']}\n\n{row['query']}"
        for kind, planted in (("sound", ""), ("slip", row["planted"])):
            answer = row["answer"]
            if planted:
                answer = answer.replace(row["sound"], planted)
            material = Material(
                language=row["language"],
                question=question,
                answer=answer,
                advice=row["advice"],
            )
            controls[f"control-{number}-{kind}"] = material, planted
    return controls


def same_statement(first: str, second: str) -> bool:
    """Whether two quotes of an answer are of one statement."""
    match = SequenceMatcher(None, first, second, autojunk=False).find_longest_match()
    return match.size >= LEAST_COMMON * min(len(first), len(second))
