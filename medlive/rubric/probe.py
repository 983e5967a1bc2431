"""Answers of known quality to a case, from which the proof of its rubric is made.

Each is written from narrative and query alone, in a call of its own: who writes one is not told that there are
others (decision 46). Code checks that each is what was asked for; an answer that is not goes back once.
"""

import asyncio
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Annotated, ClassVar

from pydantic import StringConstraints

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText
from medlive.llm.ask import ReplyModel
from medlive.llm.engine import Prompt
from medlive.llm.prompts import load_prompt
from medlive.llm.reading import is_refusal
from medlive.text.normalise import fold

from .proof import GOOD, NOTED, GradedProbe, Probe

TASK = "rubric.probe"
_ASSIGNMENT = re.compile(r"^## Assignment: (\w+)\n", re.MULTILINE)
_EXAMPLE = re.compile(r'Input: `\{"language":"(\w+)"')
_WORD = re.compile(r"[\u3400-\u9fff]|[a-z0-9]+(?:['’-][a-z0-9]+)*")
"""A word, or a Chinese character."""


class ProbeReply(ReplyModel):
    """One answer to a case. Inputs: probe, query, narrative (a text)."""

    task: ClassVar = TASK
    note: Annotated[str, StringConstraints(max_length=1500)]
    """What the answer lacks or has wrong, where the assignment asks for it; else empty."""
    answer: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=8000)
    ]


LENGTHS = {
    "en": {
        Probe.SHORT: (50, 130),
        Probe.LONG: (180, 450),
        Probe.ORDINARY: (90, 260),
        Probe.SLIP: (90, 290),
        Probe.VAGUE: (20, 180),
        Probe.WRONG: (40, 280),
    },
    "zh": {
        Probe.SHORT: (80, 260),
        Probe.LONG: (300, 900),
        Probe.ORDINARY: (150, 480),
        Probe.SLIP: (150, 540),
        Probe.VAGUE: (30, 320),
        Probe.WRONG: (60, 560),
    },
}
"""The fewest and most words of an answer (of a Chinese one, characters): what is accepted around the lengths that the
prompt asks for."""
ALIKE = 0.9
"""Ratio of common words, in order, from which two answers count as the same."""
_META = re.compile(
    r"\b(?:excellent|vague|wrong|incorrect|plausible|model) (?:answer|reply)\b"
    r"|\b(?:deliberately|intentionally|purposely) (?:wrong|vague|incorrect|false|misleading)\b"
    r"|\b(?:this|my|the) (?:answer|reply) (?:is|makes|contains) (?:a |an )?"
    r"(?:excellent|vague|wrong|incorrect|mistake|error)"
    r"|\b(?:great|excellent|good|wonderful) question\b|\bas assigned\b"
    r"|(?:优秀|完美|模糊|含糊|错误)的?(?:回答|答案|回复)|故意(?:写错|答错|给出错误|含糊)"
    r"|(?:很好|非常好|好)的问题|问得(?:很|非常)?好"
)
"""What speaks of the assignment, or praises."""


@cache
def probe_prompt(probe: Probe, language: str) -> Prompt:
    """The instructions for one answer: what all share, this one's assignment alone, and its example in the language
    of the case ("en" or "zh")."""
    common, *parts = _ASSIGNMENT.split(load_prompt("medlive.rubric", TASK).text)
    assignment = parts[parts.index(probe.value) + 1]
    paragraphs = []
    for paragraph in assignment.strip().split("\n\n"):
        example = _EXAMPLE.search(paragraph)
        if example is None or example[1] == language:
            paragraphs.append(paragraph)
    text = "\n\n".join(paragraphs)
    return Prompt(TASK, f"{common}## Assignment\n{text}\n")


async def write_probes(
    text: CaseText, prober: Agent, kinds: Sequence[Probe] = tuple(Probe)
) -> tuple[GradedProbe, ...]:
    """Answers of known quality to a case, not graded yet.

    Args:
        text: Only narrative and query are shown to the prober.
        prober: Writes the answers.
        kinds: Those that are written.

    Raises:
        AgentFailure: If one of them could not be had.
    """
    written: list[GradedProbe] = []

    async def write(probe: Probe) -> GradedProbe:
        def check(reply: ProbeReply) -> str | None:
            return _fault_of(reply, probe, prober.language, written)

        inputs = {
            "probe": probe.value,
            "query": text.query,
            "narrative": text.narrative,
        }
        prompt = probe_prompt(probe, prober.language)
        reply = await prober.ask(ProbeReply, inputs, check, prompt=prompt)
        note = reply.note.strip() if probe in NOTED else ""
        written.append(GradedProbe(probe, reply.answer, note, {}))
        return written[-1]

    return tuple(await asyncio.gather(*map(write, kinds)))


def _fault_of(
    reply: ProbeReply, probe: Probe, language: str, written: Sequence[GradedProbe]
) -> str | None:
    """Why an answer is not as assigned, or is the same as one for another assignment; None: it is fine."""
    answer = fold(reply.answer)
    if probe is not Probe.VAGUE and is_refusal(reply.answer):
        return "the answer declines to answer"
    words = _WORD.findall(answer)
    chinese = sum(len(word) == 1 and word > "\u3400" for word in words)
    if (language == "zh") != (chinese * 2 > len(words)):
        return f"the answer is not in the language of the case ({language})"
    least, most = LENGTHS[language][probe]
    if not least <= len(words) <= most:
        unit = "characters" if language == "zh" else "words"
        return f"the answer has {len(words)} {unit}, expected {least} to {most}"
    if match := _META.search(answer):
        return f"the answer praises, or speaks of its assignment: {match.group()!r}"
    if probe in NOTED and not reply.note.strip():
        return "`note` does not say what the answer lacks or has wrong"
    for earlier in written:
        # A short answer may be all that there is to say.
        if {probe, earlier.probe} <= set(GOOD):
            continue
        others = _WORD.findall(fold(earlier.answer))
        matcher = SequenceMatcher(None, words, others, autojunk=False)
        if matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE:
            return "the answer is one that was given for another assignment"
    return None
