"""Threads a second through the filter chain on one core, against its target and a term-by-term peer.

Run: `python benchmarks/filters.py [--threads N] [--data FOLDER]`. Reads import files (`*.threads.jsonl`), repeats
them until N threads are reached, and says so where it had to make its own. CPU seconds of this process count, so
that a busy machine changes little. Exit status 1 where the chain is slower than the target.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from medlive import clock
from medlive.filters.codebooks import load_codebook, shipped_terms
from medlive.filters.model import FilterSettings
from medlive.filters.rules import FilterChain
from medlive.sources.files import ImportedThread, read_threads
from medlive.threads.model import Message, Thread
from medlive.threads.near_duplicates import DuplicateIndex, patient_text, sketches

TARGET = 2_000
"""Threads a second on one core."""
BATCH = 200
"""Texts sketched at a time, as a filter run does."""
REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "realdata" / "threads"


def real_threads(folder: Path) -> list[Thread]:
    """The threads of every import file in the folder, dated so that the date rule lets them on."""
    assumed = datetime(2025, 1, 1, tzinfo=UTC)
    return [
        item.thread
        for path in sorted(folder.glob("*.threads.jsonl"))
        for item in read_threads(
            path, assume_posted_at=assumed, handle_key=b"benchmark"
        )
        if isinstance(item, ImportedThread)
    ]


def made_threads(count: int) -> list[Thread]:
    """Threads of this project's own words, in the mean length of real ones; for machines without real data."""
    rng = random.Random(1)
    english = [term for _, term in shipped_terms() if term.isascii()]
    chinese = [term for _, term in shipped_terms() if not term.isascii()]
    made = []
    for number in range(count):
        if number % 2:
            ask = (
                "，".join(
                    f"我最近{rng.choice(chinese)}已经{rng.randint(1, 30)}天"
                    for _ in range(8)
                )
                + "，怎么办？"
            )
            ask += "，怎么办？"
            reply = "。".join(
                f"考虑{rng.choice(chinese)}，建议到医院复查" for _ in range(8)
            )
        else:
            ask = ". ".join(
                f"I have had {rng.choice(english)} for {rng.randint(1, 30)} days"
                for _ in range(6)
            )
            reply = ". ".join(
                f"It may be {rng.choice(english)} and you should be examined"
                for _ in range(6)
            )
        messages = (
            Message("m0", "asker", "patient", False, ask),
            Message("m1", "doctor", "physician", True, reply),
        )
        moment = datetime(2025, 1, 1, tzinfo=UTC)
        made.append(
            Thread("made", str(number), "", ask[:40], None, (), moment, messages)
        )
    return made


def cpu_seconds(work: Callable[[], object]) -> float:
    """The least CPU time of this process over three calls: what a busy machine adds is not ours."""
    taken = []
    for _ in range(3):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def whole(thread: Thread) -> str:
    """Title and messages, as the code-book rule reads them."""
    return "\n".join((thread.title, *(m.text for m in thread.messages)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rates and their ratios; 0 where the chain reaches the target."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--data", type=Path, default=REAL_DATA)
    options = parser.parse_args(arguments)

    held = real_threads(options.data) if options.data.is_dir() else []
    kind = "real"
    if not held:
        held, kind = (
            made_threads(min(options.threads, 5_000)),
            "made (no real threads found)",
        )
    rounds = -(-options.threads // len(held))
    threads = [
        replace(t, thread_id=f"{t.thread_id}/{r}") for r in range(rounds) for t in held
    ][: options.threads]

    codebook = load_codebook()
    chain = FilterChain(FilterSettings(), codebook)
    now = clock.now()
    chain.judge(threads[0], duplicate_of=None, now=now)

    def judge_all() -> None:
        for thread in threads:
            chain.judge(thread, duplicate_of=None, now=now)

    def with_duplicates() -> None:
        index = DuplicateIndex(chain.settings.duplicate_similarity)
        for start in range(0, len(threads), BATCH):
            part = threads[start : start + BATCH]
            for thread, sketch in zip(
                part, sketches([patient_text(t) for t in part]), strict=True
            ):
                match = index.find(sketch)
                if match is None:
                    index.add(f"{thread.source}:{thread.thread_id}", sketch)
                chain.judge(thread, duplicate_of=match, now=now)

    judged = len(threads) / cpu_seconds(judge_all)
    both = len(threads) / cpu_seconds(with_duplicates)

    texts = [whole(t).lower() for t in threads[:: max(1, len(threads) // 300)]]
    terms = [term.lower() for _, term in shipped_terms()]
    automaton = len(texts) / cpu_seconds(
        lambda: [list(codebook.matches(t)) for t in texts]
    )
    one_by_one = len(texts) / cpu_seconds(
        lambda: [[term for term in terms if term in t] for t in texts]
    )

    size = sum(len(whole(t)) for t in threads) / len(threads)
    print(
        f"threads               {len(threads)} {kind}, {len(held)} distinct, mean {size:.0f} characters"
    )
    print(
        f"chain                 {judged:8.0f} threads/s   {judged / TARGET:5.2f} x target {TARGET}"
    )
    print(
        f"chain and duplicates  {both:8.0f} threads/s   {both / TARGET:5.2f} x target {TARGET}"
    )
    print(
        f"code book, all hits   {automaton:8.0f} threads/s   {automaton / one_by_one:5.2f} x peer, term by term"
    )
    print(
        f"term by term `in`     {one_by_one:8.0f} threads/s   ({len(terms)} terms, no word boundaries)"
    )
    return 0 if judged >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
