"""How much of what a case's calls send is a beginning that was sent before: what an endpoint's prefix cache holds.

Curates threads by the rules engine, keeps every request, and writes each in three orders: the task's
instructions and then inputs sorted by key, as it was; the words that all tasks share, the task's instructions
and inputs in the order their agent gives them, as it is; and inputs before the task's instructions. Counts, for
each call, the longest beginning that it shares with an earlier call of the same case, with an earlier call at
all, and with a call that was over when it began (calls of a thread that are made side by side are not). Tokens
are a fourth of the bytes. Exits 1 when the order as it is shares less than the one before.
Run: `python benchmarks/llm_prefix.py [--threads 60] [--import FILE]`.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from medlive.curation.chain import ROLES, CurationSettings, curate
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.index import open_index
from medlive.evidence.passage import Retriever
from medlive.integrity.digest import canonical_json
from medlive.llm.engine import Reply, Request
from medlive.llm.prompts import CLOSE, OPEN, TASK_LINE, fenced
from medlive.llm.rules.engine import RulesEngine
from medlive.service.curation.complete import complete_case
from medlive.threads.model import Message, Thread
from medlive.threads.prepare import deidentified, normalised, thread_language

Layout = Callable[[Request], str]


class Sent(NamedTuple):
    """A call of a case; calls of one wave are made side by side."""

    case: int
    wave: int
    request: Request


class Shared(NamedTuple):
    """Bytes that were sent, and of these the beginnings that were sent before."""

    sent: int
    in_case: int
    ever: int
    over: int
    by_task: dict[str, tuple[int, int]]
    """Task → sent, shared with a call that was over."""


class Recording(RulesEngine):
    """The rules engine, which keeps every request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> Reply:
        """The rules' answer."""
        self.requests.append(request)
        return await super().answer(request)


def parts(request: Request) -> tuple[str, str]:
    """The words that all tasks share, and the task's own."""
    at = request.prompt.text.index(TASK_LINE)
    return request.prompt.text[:at], request.prompt.text[at:]


def as_it_was(request: Request) -> str:
    """Task, shared words, inputs sorted by key."""
    shared, task = parts(request)
    return f"{task}{shared}{OPEN}\n{canonical_json(dict(request.inputs))}\n{CLOSE}"


def as_it_is(request: Request) -> str:
    """Shared words, task, inputs in their agent's order."""
    return f"{request.prompt.text}{OPEN}\n{fenced(request.inputs)}\n{CLOSE}"


def inputs_first(request: Request) -> str:
    """Shared words, inputs in their agent's order, task."""
    shared, task = parts(request)
    return f"{shared}{OPEN}\n{fenced(request.inputs)}\n{CLOSE}\n{task}"


LAYOUTS: dict[str, Layout] = {
    "as it was": as_it_was,
    "as it is": as_it_is,
    "inputs before the task": inputs_first,
}


def common(one: bytes, other: bytes) -> int:
    """The length of the beginning that two texts share, found by halving."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if one[low:middle] == other[low:middle]
            else (low, middle - 1)
        )
    return low


def measure(calls: Sequence[Sent], layout: Layout) -> Shared:
    """What is shared when the calls are made in this order, the cases one after the other."""
    sent = in_case = ever = over = 0
    by_task: dict[str, tuple[int, int]] = {}
    earlier: list[tuple[Sent, bytes]] = []
    for call in calls:
        text = layout(call.request).encode("utf-8", "replace")
        same = task_before = done = 0
        for before, known in earlier:
            # Of the calls of other cases the same task's share most: the others are not worth comparing.
            if before.case != call.case and before.request.task != call.request.task:
                continue
            length = common(text, known)
            task_before = max(task_before, length)
            if before.case == call.case:
                same = max(same, length)
            if before.case != call.case or before.wave != call.wave:
                done = max(done, length)
        sent, in_case, ever, over = (
            sent + len(text),
            in_case + same,
            ever + task_before,
            over + done,
        )
        of = by_task.get(call.request.task, (0, 0))
        by_task[call.request.task] = (of[0] + len(text), of[1] + done)
        earlier.append((call, text))
    return Shared(sent, in_case, ever, over, by_task)


def waves(case: int, requests: Iterable[Request]) -> list[Sent]:
    """A task's calls for all claims are one wave."""
    asked = list(requests)
    names = list(dict.fromkeys(request.task for request in asked))
    return [Sent(case, names.index(request.task), request) for request in asked]


def samples(most: int) -> list[Thread]:
    """The demo's threads."""
    threads = []
    for sample in islice(load_sample_threads(), most):
        messages = tuple(
            Message(f"m{i}", m.author, m.role, m.verified, m.text, m.posted_at, m.media)
            for i, m in enumerate(sample.messages)
        )
        threads.append(
            Thread(
                "sample",
                sample.thread_id,
                sample.url,
                sample.title,
                sample.language,
                sample.tags,
                sample.posted_at,
                messages,
            )
        )
    return threads


def imported(path: Path, most: int) -> list[Thread]:
    """The first threads of an import file."""
    threads = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(islice(lines, most)):
            given = json.loads(line)
            messages = tuple(
                Message(
                    f"m{i}",
                    m["author"],
                    m["role"],
                    m["verified"],
                    m["text"],
                    None,
                    (),
                )
                for i, m in enumerate(given["messages"])
            )
            threads.append(
                Thread(
                    "file", str(number), "", given["title"], None, (), None, messages
                )
            )
    return threads


async def record(threads: Sequence[Thread], retriever: Retriever) -> list[Sent]:
    """Every request of every thread, case by case."""
    calls: list[Sent] = []
    for number, raw in enumerate(threads):
        thread = normalised(raw)
        language = thread_language(thread)
        thread = deidentified(thread, language)
        recording = Recording()
        respondents = dict.fromkeys((*ROLES, "rubric"), recording)
        curation = await curate(
            thread,
            language,
            respondents,
            retriever,
            CurationSettings(exhaustive=True),
            run_date=date(2026, 1, 1),
        )
        if curation.text is not None:
            await complete_case(curation, language, respondents)
        calls += waves(number, recording.requests)
    return calls


def main() -> int:
    """Print the shares; the exit status says whether the order as it is shares more than the one before."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=60)
    parser.add_argument("--import", dest="file", type=Path)
    arguments = parser.parse_args()
    threads = (
        imported(arguments.file, arguments.threads)
        if arguments.file
        else samples(arguments.threads)
    )
    with tempfile.TemporaryDirectory() as folder:
        build_index(
            [open_corpus(sample_evidence_path(), name="demo")], Path(folder) / "index"
        )
        calls = asyncio.run(record(threads, open_index(Path(folder) / "index")))
    found = {name: measure(calls, layout) for name, layout in LAYOUTS.items()}
    print(
        f"{len(threads)} threads, {len(calls)} calls, {found['as it is'].sent // 4} input tokens"
    )
    print(
        "beginnings shared with            an earlier call of the case   any earlier call   a call that was over"
    )
    for name, one in found.items():
        print(
            f"{name:32} {one.in_case / one.sent:>22.1%} {one.ever / one.sent:>22.1%} {one.over / one.sent:>19.1%}"
            f"   {one.over // 4} tokens"
        )
    print(
        "by task, shared with a call that was over: as it was, as it is, inputs first (input tokens a call)"
    )
    counts = {
        task: sum(call.request.task == task for call in calls)
        for task in found["as it is"].by_task
    }
    for task, (sent, _) in sorted(found["as it is"].by_task.items()):
        shares = "  ".join(
            f"{one.by_task[task][1] / one.by_task[task][0]:6.1%}"
            for one in found.values()
        )
        print(f"  {task:24} {shares}   {sent // 4 // counts[task]}")
    ratio = found["as it is"].in_case / max(1, found["as it was"].in_case)
    print(f"shared within a case, as it is against as it was: {ratio:.2f}")
    return 0 if ratio >= 1 and found["as it is"].ever >= found["as it was"].ever else 1


if __name__ == "__main__":
    raise SystemExit(main())
