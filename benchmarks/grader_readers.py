"""How judge's replies are read: by medlive, by HealthBench's reader and by Inspect's `model_graded_qa`.

Run `python benchmarks/grader_readers.py`; it prints the table of
docs/builders/measurements/grader-replies.md. The replies are the tests' own
(tests/support/judge_replies.py), one criterion each, in both languages, for both verdicts. HealthBench's reader
(openai/simple-evals, healthbench_eval.py) is written anew after its description; it is given the same replies with
its own names of keys. Inspect's is the installed one, behind its mock model; each whole JSON object of a reply is
given to it as its fields, a line each, with `GRADE: C` or `GRADE: I` last, which is what its prompt asks for. A
reply that then still has a brace is about JSON alone and not put to it. Replies of very many characters are left
out: HealthBench's pattern would take hours on ten megabytes of blanks. Exit status 1 where medlive reads one
wrongly, or leaves a clear one unread; 3 where Inspect is absent.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from tests.support.judge_replies import CONTRARY, FLOODS, KINDS, READ, Wrap, read, spelt  # noqa: E402

CLEAR = "clear, if careless: to be read"
COMPARED: dict[str, dict[str, Wrap]] = {
    CLEAR: READ,
    **{kind: wraps for kind, wraps in KINDS.items() if wraps is not FLOODS},
    **CONTRARY,
}
_OBJECT = re.compile(r'\{[^{}]*"met"\s*:\s*(?:true|false)[^{}]*\}')


@dataclass(frozen=True, slots=True)
class Case:
    """A reply, and the verdict that it means; None: it has more than one reading, or none."""

    kind: str
    language: str
    reply: str
    means: bool | None


def cases() -> Iterator[Case]:
    """All replies about one criterion."""
    for kind, wraps in COMPARED.items():
        for wrap in wraps.values():
            for language in ("en", "zh"):
                for met in (True, False):
                    reply = wrap(*spelt("criterion", language, met))
                    yield Case(kind, language, reply, met if kind == CLEAR else None)


def healthbench(reply: str) -> bool | None:
    """The verdict for HealthBench's reader: JSON once a fence is off, whose `criteria_met` is a boolean.

    None: it asks again, without end, or stops with an error where the JSON is no object.
    """
    renamed = reply.replace('"met"', '"criteria_met"').replace(
        '"reasoning"', '"explanation"'
    )
    try:
        value = json.loads(re.sub(r"\A```json\s*|\s*```\Z", "", renamed.strip()))
    except (ValueError, RecursionError):
        return None
    met = value.get("criteria_met") if isinstance(value, dict) else None
    return met if isinstance(met, bool) else None


def as_grade(reply: str) -> str | None:
    """A reply as Inspect's prompt asks for it; None where it is about JSON alone."""

    def lines(match: re.Match[str]) -> str:
        fields = json.loads(match.group(), strict=False)
        grade = "GRADE: C" if fields.pop("met") else "GRADE: I"
        return "\n".join([*(f"{key}: {value}" for key, value in fields.items()), grade])

    try:
        graded = _OBJECT.sub(lines, reply)
    except ValueError:
        return None
    return None if "{" in graded or '"met"' in graded else graded


async def inspect(replies: Sequence[str]) -> list[bool | None]:
    """What Inspect's scorer makes of each reply; None: unscored."""
    from inspect_ai.model import (
        ChatMessageUser,
        ModelName,
        ModelOutput,
        ModelUsage,
        get_model,
    )
    from inspect_ai.scorer import Target, model_graded_qa
    from inspect_ai.solver import TaskState

    usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    outputs = [ModelOutput.from_content("mockllm/model", reply) for reply in replies]
    for output in outputs:
        output.usage = usage  # else a tokenizer is fetched to count
    score = model_graded_qa(
        model=get_model("mockllm/model", custom_outputs=outputs, memoize=False)
    )
    found: list[bool | None] = []
    for _ in replies:
        asked = [ChatMessageUser(content="A question.")]
        answer = ModelOutput.from_content("candidate", "An answer.")
        state = TaskState(
            ModelName("mockllm/model"), 1, 1, "A question.", list(asked), output=answer
        )
        result = await score(state, Target("A criterion."))
        found.append({"C": True, "I": False}.get(str(result.value) if result else ""))
    return found


def row(kind: str, asked: Sequence[tuple[Case, bool | None]]) -> str:
    """How many of a reader's replies of a kind it read wrongly; of clear ones also how many it left unread."""
    here = [(case.means, found) for case, found in asked if case.kind == kind]
    wrong = sum(found is not None and found is not means for means, found in here)
    unread = sum(found is None for _, found in here)
    return (
        f"{wrong} of {len(here)}" + (f", {unread} unread" if kind == CLEAR else "")
        if here
        else "–"
    )


def main() -> int:
    """Print the table; the exit status says whether medlive read all as meant."""
    if find_spec("inspect_ai") is None:
        print("Inspect is absent: install the extra integrations", file=sys.stderr)
        return 3
    every = list(cases())
    plain: list[Callable[[Case], bool | None]] = [
        lambda case: read("criterion", case.reply, case.language).pop(),
        lambda case: healthbench(case.reply),
    ]
    put = [
        (case, graded) for case in every if (graded := as_grade(case.reply)) is not None
    ]
    scored = asyncio.run(inspect([graded for _, graded in put]))
    readers = [
        *([(case, reader(case)) for case in every] for reader in plain),
        [(case, found) for (case, _), found in zip(put, scored, strict=True)],
    ]
    print("| reply | medlive | HealthBench | Inspect |\n| --- | --- | --- | --- |")
    for kind in COMPARED:
        print(f"| {kind} | " + " | ".join(row(kind, asked) for asked in readers) + " |")
    wrong = [
        [found is not None and found is not case.means for case, found in asked]
        for asked in readers
    ]
    print("| all | " + " | ".join(f"{sum(one)} of {len(one)}" for one in wrong) + " |")
    return int(
        any(wrong[0])
        or any(found is None for case, found in readers[0] if case.kind == CLEAR)
    )


if __name__ == "__main__":
    sys.exit(main())
