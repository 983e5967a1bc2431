"""Whether advice that rests on a picture or report nobody tells in words is noticed, against careful readers.

Run: `python benchmarks/pictures.py [--draw N] [--threads N] [--replies FOLDER]`. Threads of the real data in whose
words a picture, scan or report occurs, drawn by a digest of their ids. The exact rule of the filters is tried first;
what it lets pass is screened and read by the configured screener and reader, as `medlive curate` asks them. The
readers' labels are in data/pictures_readers.jsonl; `--draw` prints the ids of a draw and asks nobody. Exit status 3
where the real threads are absent.
"""

import argparse
import asyncio
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from curation_agreement import REAL_DATA, agreement
from curator_decisions import DECISIONS, SECOND
from reply_file import FileReplyStore

from medlive.clock import now
from medlive.config import Settings
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import CaseText, Element, Side
from medlive.curation.screener import screen
from medlive.curation.second_reading import read_case
from medlive.instance.loading import read_settings
from medlive.instance.opening import build_engine
from medlive.llm.budget import Budget
from medlive.llm.replay import ReplayEngine
from medlive.service.wiring import build_filters
from medlive.sources.files import ImportedThread, read_threads
from medlive.threads.model import Thread
from medlive.threads.prepare import deidentified, normalised, thread_language

LABELS: Final = Path(__file__).resolve().parent / "data" / "pictures_readers.jsonl"
SEED: Final = "medlive-pictures-1"
LONGEST: Final = 6_000
"""Characters of a thread that is drawn, at most."""
_WORDS: Final = re.compile(
    r"\b(?:photo|picture|pic|image|attach\w*|enclosed|upload\w*|x-?ray|scan|mri|ultrasound|report|ecg|screenshot)s?\b"
    "|图|照片|片子|报告|化验单|检查单|视频|CT|彩超|B超|胸片",
    re.IGNORECASE,
)
LANGUAGES: Final = ("en", "zh")


class Finding(NamedTuple):
    """What became of a thread; all are None where an engine gave no usable reply."""

    by_rule: bool | None
    by_reader: bool | None

    @property
    def rejected(self) -> bool | None:
        """Whether the thread is turned away as not told in words."""
        return None if self.by_rule is None else self.by_rule or bool(self.by_reader)


def draw(per_language: int) -> list[Thread]:
    """Threads whose words speak of a picture, scan or report, half in each language; none of the yardstick's."""
    known = set()
    for path in (DECISIONS, SECOND):
        for line in path.read_text(encoding="utf-8").splitlines():
            known.add(json.loads(line)["thread_id"])
    by_language: dict[str, dict[str, Thread]] = {name: {} for name in LANGUAGES}
    for path in sorted((REAL_DATA / "threads").glob("*.threads.jsonl")):
        for row in read_threads(path, handle_key=b"benchmark"):
            if not isinstance(row, ImportedThread):
                continue
            thread = normalised(row.thread)
            whole = "\n".join([thread.title, *(m.text for m in thread.messages)])
            if thread.thread_id in known or len(whole) > LONGEST:
                continue
            language = thread_language(thread)
            if language in LANGUAGES and _WORDS.search(whole):
                by_language[language].setdefault(thread.thread_id, thread)
    drawn = []
    for threads in by_language.values():
        ranked = sorted(threads, key=_place)
        drawn += [threads[name] for name in ranked[:per_language]]
    return drawn


def _place(thread_id: str) -> str:
    return hashlib.sha256(f"{SEED}:{thread_id}".encode()).hexdigest()


class Bench:
    """The filters' rule, the screener and the second reader on single threads, without a database."""

    def __init__(self, settings: Settings, store: FileReplyStore) -> None:
        budget = Budget()
        self.engines = {}
        for role in ("screener", "reader"):
            engine = build_engine(getattr(settings.roles, role))
            self.engines[role] = ReplayEngine(engine, store, budget)
        self._filters = build_filters(settings)
        self._at_once = asyncio.Semaphore(settings.curation.concurrency)

    async def judge(self, thread: Thread) -> Finding:
        """Whether the rule or the reader finds that advice rests on what is not told."""
        verdicts = self._filters.judge(thread, duplicate_of=None, now=now())
        if any(v.rule == "not_text_only" and not v.passed for v in verdicts):
            return Finding(by_rule=True, by_reader=None)
        language = thread_language(thread)
        clean = deidentified(thread, language)
        agents = {
            role: Agent(engine, [], language) for role, engine in self.engines.items()
        }
        try:
            async with self._at_once:
                elements = await screen(clean, agents["screener"])
                if not all(_statements(elements, side) for side in Side):
                    return Finding(by_rule=False, by_reader=None)
                text = CaseText(*(_statements(elements, side) for side in Side))
                advice = [e for e in elements if e.side is Side.ADVICE]
                reading = await read_case(clean, text, advice, agents["reader"])
        except AgentFailure as failure:
            print(f"{thread.thread_id}: {failure}", file=sys.stderr)
            return Finding(by_rule=None, by_reader=None)
        return Finding(by_rule=False, by_reader=bool(reading.unseen))


def _statements(elements: Sequence[Element], side: Side) -> str:
    return " ".join(e.statement for e in elements if e.side is side)


async def judge_all(
    threads: Sequence[Thread], settings: Settings, folder: Path
) -> dict[str, Finding]:
    """What became of each thread, by its id."""
    bench = Bench(settings, FileReplyStore(folder / "replies.jsonl"))
    try:
        findings = await asyncio.gather(*map(bench.judge, threads))
    finally:
        for engine in bench.engines.values():
            await engine.aclose()
    return {t.thread_id: f for t, f in zip(threads, findings, strict=True)}


def show(threads: Sequence[Thread], findings: dict[str, Finding]) -> None:
    """Print how rule and question agree with the labels, by language."""
    labels = {}
    for line in LABELS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        labels[row["thread_id"]] = row["rests_on_unseen"]
    for language in (*LANGUAGES, "both"):
        own = []
        for thread in threads:
            if thread.thread_id in labels and language in (
                thread_language(thread),
                "both",
            ):
                own.append(thread.thread_id)
        for name, pairs in (
            ("rule alone", [(labels[i], findings[i].by_rule) for i in own]),
            ("rule and question", [(labels[i], findings[i].rejected) for i in own]),
        ):
            print(language, name, json.dumps(agreement(pairs)))
    for thread_id, label in labels.items():
        if thread_id in findings and findings[thread_id].rejected is not label:
            print(f"differs: {thread_id}: reader {label}, {findings[thread_id]}")


def main() -> int:
    """Draw, judge and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", type=int, help="print so many threads' ids and stop")
    parser.add_argument("--threads", type=int, default=60, help="how many are judged")
    parser.add_argument("--replies", type=Path, help="a folder that keeps the replies")
    args = parser.parse_args()
    if not REAL_DATA.exists():
        print("the real threads are not beside the repository: nothing is measured")
        return 3
    threads = draw((args.draw or args.threads) // 2)
    if args.draw:
        print(*(thread.thread_id for thread in threads), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="medlive-bench-") as work:
        folder = args.replies or Path(work)
        show(threads, asyncio.run(judge_all(threads, read_settings(), folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
