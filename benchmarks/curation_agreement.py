"""How far the configured engine decides as a careful curator does, step by step.

Run: `python benchmarks/curation_agreement.py [--json] [--replies FOLDER] [--draw]`. The threads, the protocol and
who read them: docs/yardstick.md. Filters, agents and rubric are those of `medlive curate` under the same settings;
the date rule and duplicates are left out, as readers leave them out, and all of S_cc, S_inf and S_align are
computed even where one fails. The evidence is the index of the settings, or, where there is none, one built for
the run from PubMedQA and MedQuAD. Nothing here has a target: the figures say how an engine reads. Exit status 3
where the real threads are absent.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from curator_decisions import DECISIONS, SECOND, Decision, Key, Place, draw, read_decisions

from medlive.clock import now
from medlive.config import Settings, load_settings
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.chain import CurationSettings, curate
from medlive.curation.model import Alignment, Call, Curation, Outcome, Reason, Side, Stage, Thresholds
from medlive.errors import BadInput, IndexMissing, MedliveError
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.passage import Retriever
from medlive.filters.chain import FilterChain
from medlive.llm.budget import Budget
from medlive.llm.replay import FileReplyStore, ReplayEngine
from medlive.rubric.write import write_rubric
from medlive.service.endpoints import build_engine
from medlive.service.paths import index_path
from medlive.service.wiring import CURATION_ROLES, build_filters, open_retriever
from medlive.sources.files import ImportedThread, read_threads
from medlive.statistics.agreement import ac1
from medlive.threads.model import Thread
from medlive.threads.prepare import deidentified, normalised, thread_language

REAL_DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "realdata"
EVIDENCE: Final = ("pubmedqa_ori_pqal.json", "medquad_xml_1-9.tar.gz")
IGNORED_RULES: Final = frozenset(("posted_before", "duplicate"))
Z_95: Final = 1.959964


@dataclass(frozen=True, slots=True)
class Judged:
    """What one side, reader or engine, says of one thread at each step; None where it says nothing."""

    steps: Mapping[str, Hashable | None]
    why: str


STEPS: Final = (
    "filters pass", "narrative", "query", "advice", "screener passes", "query only in title", "S_cc", "category",
    "sufficient", "alignment", "contradicted", "keep", "decided at",
)  # fmt: skip
"""In the order of the curation; the last two are the outcome."""


def of_reader(decision: Decision) -> Judged:
    """A reader's line as steps."""
    s, v = decision.screener, decision.validator
    contradicted = None if v.advice_judgement is None else v.advice_judgement == "contradicted" or v.advice_harmful
    return Judged(
        {
            "filters pass": decision.filter.passes,
            "narrative": s.has_narrative,
            "query": s.has_query,
            "advice": s.has_advice,
            "screener passes": s.has_narrative and s.has_query and s.has_advice,
            "query only in title": s.query_in_title if s.has_query else None,
            "S_cc": v.s_cc,
            "category": v.category,
            "sufficient": v.sufficient,
            "alignment": v.advice_judgement,
            "contradicted": contradicted,
            "keep": decision.keep,
            "decided at": decision.decided_at,
        },
        f"{decision.why} ({decision.confidence})",
    )


_PLACES: Final[Mapping[Reason, Place]] = {
    Reason.NO_NARRATIVE: "screener",
    Reason.NO_QUERY: "screener",
    Reason.NO_ADVICE: "screener",
    Reason.QUERY_NOT_CLINICAL: "validator.query",
    Reason.INSUFFICIENT_NARRATIVE: "validator.sufficiency",
    Reason.CONTRADICTED: "validator.alignment",
    Reason.NOT_ALIGNED: "validator.alignment",
    Reason.UNSUPPORTED_ELEMENT: "controller",
    Reason.NUMBERS_CHANGED: "controller",
    Reason.RUBRIC_LINT: "rubric",
}


class Bench:
    """The stages of `medlive curate` on single threads, without a database."""

    def __init__(self, settings: Settings, retriever: Retriever, store: FileReplyStore) -> None:
        section = settings.curation
        limits = settings.budget
        budget = Budget(max_calls=limits.max_calls, max_usd=limits.max_usd, max_tokens=limits.max_tokens)
        self.respondents = {
            role: ReplayEngine(build_engine(role, getattr(settings.roles, role)), store, budget)
            for role in CURATION_ROLES
        }
        self._retriever = retriever
        self._filters: FilterChain = build_filters(settings)
        self._curation = CurationSettings(
            Thresholds(section.sufficiency, section.alignment),
            top_k=section.top_k,
            confirm_veto=section.confirm_veto,
            cross_questions=section.cross_questions,
            exhaustive=True,
        )
        self._at_once = asyncio.Semaphore(section.concurrency)

    async def aclose(self) -> None:
        """Let go of connections."""
        for respondent in self.respondents.values():
            await respondent.aclose()

    async def judge(self, thread: Thread) -> Judged:
        """What the filters and the engine say of a thread; the agents are asked even where a filter fails."""
        raw = normalised(thread)
        verdicts = self._filters.judge(raw, duplicate_of=None, now=now()).verdicts
        failed = next((v for v in verdicts if not v.passed and v.rule not in IGNORED_RULES), None)
        language = thread_language(raw)
        async with self._at_once:
            curation = await curate(
                deidentified(raw, language), language, self.respondents, self._retriever, self._curation,
                run_date=now().date(),
            )  # fmt: skip
            place, why = await self._end(curation, language)
        if failed is not None:
            place, why = "filters", f"{failed.reason} {dict(failed.evidence)}"
        return Judged(self._steps(curation, failed is None, place), why)

    async def _end(self, curation: Curation, language: str) -> tuple[Place | None, str]:
        """Where a thread's way ended and why; None for a failure of ours, which decides nothing."""
        if curation.outcome is Outcome.KEPT and curation.text is not None:
            journal: list[Call] = []
            agent = Agent(self.respondents["rubric"], journal)
            try:
                written = await write_rubric(language, curation.text, curation.side(Side.ADVICE), agent)
            except AgentFailure as failure:
                return None, f"failed: {failure}"
            faults = "; ".join(f"{f.fault.value}: {f.detail}" for f in written.remaining)
            return ("rubric", f"rubric_lint: {faults}") if faults else ("kept", "kept")
        if curation.reason is None or curation.outcome is Outcome.FAILED:
            return None, f"failed: {curation.reason}: {curation.detail}"
        return _PLACES[curation.reason], f"{curation.reason}: {curation.detail}"

    def _steps(self, curation: Curation, passed: bool, place: Place | None) -> dict[str, Hashable | None]:
        """The engine's side of every step; None for what was never reached."""
        screened = curation.stage is not Stage.SCREENER or curation.outcome is not Outcome.FAILED
        sides = {side: bool(curation.side(side)) for side in Side}
        query = next(iter(curation.side(Side.QUERY)), None)
        verdicts = [c.verdict for c in curation.claims]
        alignment: str | None = None
        if curation.s_align is not None:
            if Alignment.CONTRADICTED in verdicts:
                alignment = "contradicted"
            else:
                over = curation.s_align > curation.thresholds.alignment
                alignment = "supported" if over else "neutral"
        limit = curation.thresholds.sufficiency
        return {
            "filters pass": passed,
            "narrative": sides[Side.NARRATIVE] if screened else None,
            "query": sides[Side.QUERY] if screened else None,
            "advice": sides[Side.ADVICE] if screened else None,
            "screener passes": all(sides.values()) if screened else None,
            "query only in title": query.message_id == "title" if query else None,
            "S_cc": curation.s_cc,
            "category": curation.query_category.value if curation.query_category else None,
            "sufficient": curation.s_inf > limit if curation.s_inf is not None else None,
            "alignment": alignment,
            "contradicted": alignment == "contradicted" if alignment else None,
            "keep": place == "kept" if place else None,
            "decided at": place,
        }


def wilson(hits: int, n: int) -> tuple[float, float] | None:
    """Wilson's 95 % interval of a share; None without an item."""
    if not n:
        return None
    p, z = hits / n, Z_95
    middle, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (middle - spread) / (1 + z * z / n)), min(1.0, (middle + spread) / (1 + z * z / n))


def kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa; None without an item, and where chance alone agrees always (one label on both sides)."""
    n = len(first)
    if not n:
        return None
    a, b = Counter(first), Counter(second)
    chance = sum(a[label] * b[label] for label in a) / n**2
    agreed = sum(x == y for x, y in zip(first, second, strict=True)) / n
    return None if chance == 1 else (agreed - chance) / (1 - chance)


def measure(pairs: Sequence[tuple[Key, Judged, Judged]]) -> dict[str, Any]:
    """Per step: n, agreement with interval, kappa, AC1, the table of labels and the ids that differ.

    `constant` is the share that one and the same answer to every thread would reach, the first side's commonest.
    """
    found: dict[str, Any] = {}
    for step in STEPS:
        both = [
            (key, a.steps[step], b.steps[step])
            for key, a, b in pairs
            if a.steps[step] is not None and b.steps[step] is not None
        ]
        first, second = [a for _, a, _ in both], [b for _, _, b in both]
        agreed = sum(a == b for a, b in zip(first, second, strict=True))
        found[step] = {
            "n": len(both),
            "agreed": agreed,
            "share": agreed / len(both) if both else None,
            "constant": Counter(first).most_common(1)[0][1] / len(both) if both else None,
            "wilson_95": wilson(agreed, len(both)),
            "kappa": kappa(first, second),
            "ac1": ac1(first, second),
            "table": [
                {"reader": str(a), "other": str(b), "threads": n}
                for (a, b), n in sorted(
                    Counter(zip(first, second, strict=True)).items(), key=lambda item: (-item[1], str(item[0]))
                )
            ],
            "differ": [f"{file} {thread_id}" for (file, thread_id), a, b in both if a != b],
        }
    return found


def compared(first: Mapping[Key, Judged], second: Mapping[Key, Judged], languages: Mapping[Key, str]) -> Any:
    """The measures of two sides over all threads that both judged, and per language."""
    pairs = [(key, first[key], second[key]) for key in first if key in second]
    return {
        group: measure([p for p in pairs if group in ("all", languages[p[0]])]) for group in ("all", "en", "zh")
    }


def differences(readers: Mapping[Key, Judged], engine: Mapping[Key, Judged]) -> list[dict[str, Any]]:
    """The threads that the two sides end at different steps, with both reasons."""
    return [
        {
            "file": key[0],
            "thread_id": key[1],
            "reader": readers[key].steps["decided at"],
            "reader_why": readers[key].why,
            "other": engine[key].steps["decided at"] or "failed",
            "other_why": engine[key].why[:300],
        }
        for key in readers
        if key in engine and readers[key].steps["decided at"] != engine[key].steps["decided at"]
    ]


def show(title: str, found: Any, other: str, tell: Callable[[str], None]) -> None:
    """A table of steps for each group, and the tables of the outcome over all."""
    tell(f"\n{title}")
    number = "{:>6.2f}".format
    for group, steps in found.items():
        tell(f"\n  {group:<20}   n   agree  95 % Wilson  constant   kappa    AC1")
        for step, m in steps.items():
            if not m["n"]:
                tell(f"  {step:<20}{0:>4}       -")
                continue
            low, high = m["wilson_95"]
            kappa_told = "     -" if m["kappa"] is None else number(m["kappa"])
            tell(
                f"  {step:<20}{m['n']:>4}{m['share'] * 100:>7.1f} %  {low * 100:>4.0f} to {high * 100:>3.0f}"
                f"  {m['constant'] * 100:>7.1f} %  {kappa_told} {number(m['ac1'])}"
            )
    for step in ("keep", "decided at", "alignment"):
        tell(f"\n  {step}: reader → {other}")
        for row in found["all"][step]["table"]:
            tell(f"    {row['reader']:<24}{row['other']:<24}{row['threads']:>4}")


def load(keys: Sequence[Key], folder: Path) -> dict[Key, Thread]:
    """The threads by key; where an id occurs several times in a file, its first line. Raises BadInput."""
    found: dict[Key, Thread] = {}
    wanted = set(keys)
    for name in dict.fromkeys(name for name, _ in keys):
        for item in read_threads(folder / name, handle_key=b"benchmark"):
            if isinstance(item, ImportedThread) and (key := (name, item.thread.thread_id)) in wanted:
                found.setdefault(key, item.thread)
    if missing := wanted - found.keys():
        raise BadInput(f"{len(missing)} threads are not in {folder.name}, the first {min(missing)}")
    return found


async def run_engine(
    threads: Mapping[Key, Thread], settings: Settings, replies: Path | None, evidence: Path
) -> tuple[dict[Key, Judged], dict[str, Any]]:
    """The engine's side of every thread, and which engines and index gave it."""
    with tempfile.TemporaryDirectory(prefix="medlive-bench-") as work:
        try:
            retriever, built = open_retriever(settings), False
        except IndexMissing:
            made = settings.model_copy(update={"home": Path(work)})
            build_index([open_corpus(evidence / name) for name in EVIDENCE], index_path(made))
            retriever, built = open_retriever(made), True
        with FileReplyStore(replies or Path(work) / "replies") as store:
            bench = Bench(settings, retriever, store)
            try:
                judged = await asyncio.gather(*(bench.judge(t) for t in threads.values()))
            finally:
                await bench.aclose()
            who = {
                role: f"{r.identity.engine} {r.identity.model}".strip() for role, r in bench.respondents.items()
            }
        about = {
            "engines": who,
            "index": retriever.identity.index_digest,
            "index_built_for_the_run": built,
            "failed": sum(j.steps["decided at"] is None for j in judged),
        }
    return dict(zip(threads, judged, strict=True)), about


def report(arguments: argparse.Namespace, folder: Path) -> None:
    """Judge, compare, and print."""
    decisions = read_decisions(DECISIONS)
    drawn = draw(folder)
    if strangers := decisions.keys() ^ set(drawn):
        raise BadInput(f"{DECISIONS.name} and the draw differ in {len(strangers)} threads, e.g. {min(strangers)}")
    languages = {key: d.language for key, d in decisions.items()}
    readers = {key: of_reader(decisions[key]) for key in drawn}
    threads = load(drawn, folder)
    engine, about = asyncio.run(
        run_engine(threads, load_settings().settings, arguments.replies, REAL_DATA / "evidence")
    )
    result: dict[str, Any] = {
        **about,
        "threads": len(drawn),
        "engine": compared(readers, engine, languages),
        "differences": differences(readers, engine),
    }
    second: dict[Key, Judged] = {}
    if SECOND.is_file():
        others = read_decisions(SECOND)
        second = {key: of_reader(others[key]) for key in drawn if key in others}
        result["second_reader_threads"] = len(second)
        result["readers"] = compared(readers, second, languages)
        result["engine_against_second"] = compared(second, engine, languages)
        result["reader_differences"] = differences(readers, second)
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False, indent=1))
        return
    kept = sum(j.steps["keep"] is True for j in readers.values())
    engine_kept = sum(j.steps["keep"] is True for j in engine.values())
    print(f"{len(drawn)} threads; engines: {', '.join(f'{r}: {e}' for r, e in about['engines'].items())}")
    print(f"evidence: {about['index']}{' (built for this run)' if about['index_built_for_the_run'] else ''}")
    print(f"kept by the first reader {kept}, by the engine {engine_kept}; engine failed on {about['failed']}")
    show("first reader against engine", result["engine"], "engine", print)
    if second:
        show(f"readers against each other ({len(second)} threads)", result["readers"], "second", print)
        show("second reader against engine", result["engine_against_second"], "engine", print)
    listed = [("engine", result["differences"]), ("second reader", result.get("reader_differences", []))]
    for other, rows in listed:
        if rows:
            print(f"\nthreads that the first reader and the {other} end at different steps: {len(rows)}")
        for row in rows:
            print(f"  {row['file']} {row['thread_id']}: {row['reader']} → {row['other']}")
            print(f"    reader: {row['reader_why']}\n    {other}: {' '.join(row['other_why'].split())}")


def main() -> int:
    """Draw or measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="print the threads to read and stop")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--replies", type=Path, help="folder that keeps an endpoint's replies between runs")
    arguments = parser.parse_args()
    folder = REAL_DATA / "threads"
    if not folder.is_dir():
        print("real threads are not here: nothing to measure (../shared/realdata is absent)", file=sys.stderr)
        return 3
    if arguments.draw:
        for name, thread_id in draw(folder):
            print(f"{name}\t{thread_id}")
        return 0
    try:
        report(arguments, folder)
    except MedliveError as error:
        print(error.message, *([error.hint] if error.hint else []), sep="\n", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
