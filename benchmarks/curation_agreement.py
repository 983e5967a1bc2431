"""How far the configured engines decide as a careful reader does, step by step, and what it costs in tokens.

Run: `python benchmarks/curation_agreement.py [--labelled] [--json] [--replies FOLDER] [--draw]`. Threads: the sixty
of docs/builders/measurements/yardstick.md, or with `--labelled` the thirty of `../shared/realdata/replies`, whose
labels name elements too. Filters, agents and rubric are those of `medlive curate` under the same settings; the date
rule and
duplicates are left out, as readers leave them out. The evidence is the index of the settings, or, where there is
none, one built for the run from every corpus of the real data. Nothing here has a target: the figures say how an
engine reads. Exit status 3 where the real threads are absent.
"""

import argparse
import asyncio
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from curator_decisions import DECISIONS, SECOND, Decision, Key, draw, read_decisions
from reply_file import FileReplyStore

from medlive.clock import now
from medlive.config import Settings
from medlive.curation.chain import CurationSettings, curate
from medlive.curation.model import (
    Alignment,
    Check,
    Curation,
    ElementStatus,
    Outcome,
    Reason,
    Side,
    Thresholds,
)
from medlive.errors import BadInput, IndexMissing, MedliveError
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.passage import Retriever
from medlive.instance.loading import read_settings
from medlive.instance.opening import build_engine, open_retriever
from medlive.instance.paths import index_path
from medlive.llm.budget import Budget
from medlive.llm.replay import ReplayEngine
from medlive.service.curation.complete import complete_case
from medlive.service.wiring import CURATION_ROLES, build_filters
from medlive.sources.files import ImportedThread, read_threads
from medlive.statistics.agreement import kappa_of_tables
from medlive.text.normalise import fold
from medlive.threads.model import Thread
from medlive.threads.prepare import deidentified, normalised, thread_language

REAL_DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "realdata"
LABELLED: Final = REAL_DATA / "replies"
EVIDENCE: Final = (
    "pubmedqa_ori_pqal.json",
    "medquad_xml_1-9.tar.gz",
    "ngc_guidelines.jsonl.gz",
    "ddi_interactions.jsonl",
    "covid_articles.jsonl",
)
IGNORED_RULES: Final = frozenset(("posted_before", "duplicate"))
SHARED: Final = 0.5
"""Share of a label's character triples that an element must hold to be the same one."""


@dataclass(frozen=True, slots=True)
class Careful:
    """What a reader decides of a thread; None for a step that has no object."""

    keep: bool
    steps: Mapping[str, Hashable | None]
    grounds: frozenset[str]
    """What speaks against keeping: "screener", "query", "history", "harm", "neutral" (advice), "text"."""
    why: str
    elements: Mapping[Side, Sequence[str]] = field(default_factory=dict)
    """Their words and quotes, where they are labelled."""


GROUNDS: Final[Mapping[Reason, frozenset[str]]] = {
    Reason.QUESTION_DOUBTED: frozenset(("query", "screener")),
    Reason.HISTORY_DOUBTED: frozenset(("history", "screener")),
    Reason.QUESTION_UNANSWERED: frozenset(("neutral", "query", "screener")),
    Reason.ADVICE_WRONG: frozenset(("harm",)),
    Reason.ADVICE_HARMFUL: frozenset(("harm",)),
    Reason.DANGER_UNANSWERED: frozenset(("harm",)),
    Reason.NOT_STANDARD: frozenset(("harm", "neutral")),
    Reason.DISPUTED: frozenset(("harm", "neutral")),
    Reason.UNSUPPORTED_ELEMENT: frozenset(("text",)),
    Reason.TEXT_UNFAITHFUL: frozenset(("text",)),
    Reason.NOT_UNDERSTANDABLE: frozenset(("text", "screener")),
}
"""Why a case is held → which of a reader's grounds is the same reason."""


def of_decision(d: Decision) -> Careful:
    """A line of the yardstick."""
    v, harm = (
        d.validator,
        d.validator.advice_judgement == "contradicted" or d.validator.advice_harmful,
    )
    forward = (
        d.screener.has_narrative and d.screener.has_query and d.screener.has_advice
    )
    grounds = {
        "filters": not d.filter.passes,
        "screener": not forward,
        "query": v.s_cc == 0,
        "history": v.sufficient is False,
        "harm": harm or v.alarming_sign_unanswered,
        "neutral": v.advice_judgement == "neutral",
        "text": d.decided_at == "controller",
    }
    return Careful(
        d.keep,
        {
            "filters pass": d.filter.passes,
            "screener passes": forward,
            "S_cc": v.s_cc,
            "S_inf > 0.5": v.sufficient,
            "vetoed": (harm or v.alarming_sign_unanswered) if forward else None,
            "keep": d.keep,
        },
        frozenset(name for name, holds in grounds.items() if holds),
        f"{d.decided_at}: {d.why} ({d.confidence})",
    )


def of_label(row: Mapping[str, Any]) -> Careful:
    """A line of the labelled threads."""
    vetoed = any(a["verdict"] == "contradicted" for a in row["advice_elements"])
    forward = row["screener_forward"]
    sufficient = None if row["s_inf"] is None else row["s_inf"] > 0.5
    grounds = {
        "screener": not forward,
        "query": row["s_cc"] == 0,
        "history": sufficient is False,
        "harm": vetoed,
        "neutral": row["s_align"] is not None and row["s_align"] <= 0.5,
    }
    return Careful(
        row["keep"],
        {
            "filters pass": None,
            "screener passes": forward,
            "S_cc": row["s_cc"] if forward else None,
            "S_inf > 0.5": sufficient if forward else None,
            "vetoed": vetoed if forward else None,
            "keep": row["keep"],
        },
        frozenset(name for name, holds in grounds.items() if holds),
        row["reason"],
        {
            Side.NARRATIVE: [
                f"{e['text']} {e['quote']}" for e in row["narrative_facts"]
            ],
            Side.ADVICE: [f"{e['text']} {e['quote']}" for e in row["advice_elements"]],
        },
    )


@dataclass(frozen=True, slots=True)
class Made:
    """What the engines made of a thread."""

    curation: Curation | None
    """None where a filter let it not pass."""
    rule: str = ""
    """The filter."""
    input_tokens: int = 0
    calls: int = 0

    @property
    def steps(self) -> dict[str, Hashable | None]:
        """The same steps as a reader's; None for what was not reached."""
        c = self.curation
        if c is None or c.outcome is Outcome.FAILED:
            return {"filters pass": c is not None, "keep": None if c else False}
        screened = not (c.stage == "screener" and c.outcome is Outcome.REJECTED)
        vetoed = c.reason is Reason.CONTRADICTED or any(
            "harm" in GROUNDS.get(h.reason, ()) for h in c.holds
        )
        return {
            "filters pass": True,
            "screener passes": screened,
            "S_cc": c.s_cc,
            "S_inf > 0.5": None
            if c.s_inf is None
            else c.s_inf > c.thresholds.sufficiency,
            "vetoed": vetoed if c.s_align is not None else None,
            "keep": c.outcome is Outcome.KEPT,
        }

    @property
    def told(self) -> str:
        """Where it ended and why."""
        c = self.curation
        if c is None:
            return f"filters: {self.rule}"
        reasons = ", ".join(h.reason.value for h in c.holds) or (
            c.reason.value if c.reason else ""
        )
        return f"{c.outcome.value} {reasons}: {c.detail[:300]}".strip(" :")

    def agrees(self, reader: Careful) -> bool | None:
        """Whether it ends as the reader does; a hold does where it names one of the reader's grounds.

        None for a thread that failed or is parked, which is neither kept nor rejected.
        """
        if self.curation is None:
            return not reader.keep
        match self.curation.outcome:
            case Outcome.KEPT:
                return reader.keep
            case Outcome.REJECTED:
                return not reader.keep
            case Outcome.HELD:
                grounds = {
                    g for h in self.curation.holds for g in GROUNDS.get(h.reason, ())
                }
                return not reader.keep and bool(grounds & reader.grounds)
            case _:
                return None


class Bench:
    """The stages of `medlive curate` on single threads, without a database."""

    def __init__(
        self, settings: Settings, retriever: Retriever, store: FileReplyStore
    ) -> None:
        section, limits = settings.curation, settings.budget
        budget = Budget(
            max_calls=limits.max_calls,
            max_usd=limits.max_usd,
            max_tokens=limits.max_tokens,
        )
        self.respondents = {
            role: ReplayEngine(
                build_engine(getattr(settings.roles, role)), store, budget
            )
            for role in CURATION_ROLES
        }
        self._store, self._retriever, self._filters = (
            store,
            retriever,
            build_filters(settings),
        )
        self._curation = CurationSettings(
            Thresholds(section.sufficiency, section.alignment),
            top_k=section.top_k,
            evidence_tokens=section.evidence_tokens,
            confirm_veto=section.confirm_veto,
            cross_questions=section.cross_questions,
            strict=section.strict,
        )
        self._at_once = asyncio.Semaphore(section.concurrency)

    async def make(self, thread: Thread) -> Made:
        """What the filters and the engines make of a thread."""
        raw = normalised(thread)
        verdicts = self._filters.judge(raw, duplicate_of=None, now=now())
        failed = next(
            (v for v in verdicts if not v.passed and v.rule not in IGNORED_RULES), None
        )
        if failed is not None:
            return Made(None, str(failed.reason))
        language = thread_language(raw)
        async with self._at_once:
            curation = await curate(
                deidentified(raw, language),
                language,
                self.respondents,
                self._retriever,
                self._curation,
                run_date=now().date(),
            )
            if curation.outcome in (Outcome.KEPT, Outcome.HELD):
                curation, *_ = await complete_case(curation, language, self.respondents)
        stored = [await self._store.find(c.request_digest) for c in curation.calls]
        tokens = sum(reply.usage.input_tokens for reply in stored if reply)
        return Made(curation, input_tokens=tokens, calls=len(curation.calls))


def agreement(
    pairs: Sequence[tuple[Hashable | None, Hashable | None]],
) -> dict[str, Any]:
    """n, the share of equal pairs and Cohen's kappa, of the pairs that both sides decided."""
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    equal = sum(a == b for a, b in both)
    labels = list(dict.fromkeys(label for pair in both for label in pair))
    table = np.array(
        [[sum((a, b) == pair for pair in both) for b in labels] for a in labels],
        dtype=np.float64,
    )
    kappa = float(kappa_of_tables(table)) if both else math.nan
    return {
        "n": len(both),
        "share": equal / len(both) if both else None,
        "kappa": None if math.isnan(kappa) else kappa,
        "table": {
            f"{a} → {b}": n for (a, b), n in sorted(Counter(both).items(), key=str)
        },
    }


def compared(
    readers: Mapping[Key, Careful], made: Mapping[Key, Made]
) -> dict[str, Any]:
    """Every figure of one reader against the engines."""
    pairs = [(readers[key], made[key]) for key in readers]
    steps = {
        step: agreement(
            [(reader.steps[step], m.steps.get(step)) for reader, m in pairs]
        )
        for step in ("filters pass", "screener passes", "S_cc", "S_inf > 0.5", "vetoed")
    }
    # A hold for the reader's own reason counts as the reader's decision.
    decided = [
        (r.keep, r.keep if m.agrees(r) else not r.keep)
        for r, m in pairs
        if m.agrees(r) is not None
    ]
    vetoed = [m for reader, m in pairs if reader.steps["vetoed"]]
    parked = [reader for reader, m in pairs if _ended(m) == Outcome.PARKED]
    return {
        "keep or reject": agreement(decided),
        "steps": steps,
        "kept by the reader": sum(r.keep for r, _ in pairs),
        "parked": {"keep": sum(r.keep for r in parked), "of": len(parked)},
        "what became of those that the reader vetoes": dict(
            Counter(_ended(m) for m in vetoed)
        ),
        "elements": {
            side.value: _elements(pairs, side) for side in (Side.NARRATIVE, Side.ADVICE)
        },
        "differ": [
            {
                "thread": "/".join(key),
                "reader": readers[key].why,
                "engine": made[key].told,
            }
            for key in readers
            if made[key].agrees(readers[key]) is not True
            and _ended(made[key]) != Outcome.PARKED
        ],
    }


def _ended(made: Made) -> str:
    return "rejected" if made.curation is None else made.curation.outcome.value


def _elements(pairs: Sequence[tuple[Careful, Made]], side: Side) -> dict[str, Any]:
    """Recall and precision of elements: two are the same where the words of one hold half of the other's."""
    labelled = found = extracted = right = 0
    for reader, made in pairs:
        if side not in reader.elements or made.curation is None:
            continue
        labels = [_triples(text) for text in reader.elements[side]]
        ours = [_triples(f"{e.statement} {e.quote}") for e in made.curation.side(side)]
        labelled, extracted = labelled + len(labels), extracted + len(ours)
        found += sum(any(_same(a, b) for b in ours) for a in labels)
        right += sum(any(_same(a, b) for b in labels) for a in ours)
    return {
        "recall": found / labelled if labelled else None,
        "precision": right / extracted if extracted and labelled else None,
        "labelled": labelled,
        "extracted": extracted,
    }


def _triples(text: str) -> frozenset[str]:
    folded = fold(text)
    return frozenset(folded[i : i + 3] for i in range(max(1, len(folded) - 2)))


def _same(a: frozenset[str], b: frozenset[str]) -> bool:
    return len(a & b) >= SHARED * min(len(a), len(b))


def alone(made: Mapping[Key, Made]) -> dict[str, Any]:
    """What the engines did, without any reader: outcomes, holds, objections by control, tokens."""
    curations = [m.curation for m in made.values() if m.curation]
    objections = Counter(
        check.check.value
        for c in curations
        for check in c.checks
        if not check.passed and check.round == 0
    )
    reached = [
        c
        for c in curations
        if any(check.check is Check.SUPPORTED for check in c.checks)
    ]
    refused = [
        e for c in curations for e in c.elements if e.status is not ElementStatus.KEPT
    ]
    aligned = [c for c in curations if c.s_align is not None]
    claims = Counter(claim.verdict.value for c in aligned for claim in c.claims)
    return {
        "outcomes": dict(Counter(_ended(m) for m in made.values())),
        "rejected for": dict(
            Counter(
                c.reason.value
                for c in curations
                if c.reason and c.outcome is Outcome.REJECTED
            )
        ),
        "held for": dict(Counter(h.reason.value for c in curations for h in c.holds)),
        "failed for": dict(
            Counter(c.detail[:80] for c in curations if c.outcome is Outcome.FAILED)
        ),
        "elements": sum(len(c.elements) for c in curations),
        "threads whose elements were judged": len(reached),
        "objections to first drafts, by control": dict(objections),
        "elements refused in the end": [f"{e.id}: {e.statement}" for e in refused],
        "claims": {alignment.value: claims[alignment.value] for alignment in Alignment},
        "claims without a passage on their subject": sum(
            not claim.on_subject for c in aligned for claim in c.claims
        ),
        "parked, of those that reached S_align": [
            sum(c.outcome is Outcome.PARKED for c in aligned),
            len(aligned),
        ],
        "S_inf, mean": _mean([c.s_inf for c in curations if c.s_inf is not None]),
        "S_align, mean": _mean([c.s_align for c in aligned if c.s_align is not None]),
        "input tokens a thread": _mean(
            [m.input_tokens for m in made.values() if m.curation]
        ),
        "calls a thread": _mean([m.calls for m in made.values() if m.curation]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def yardstick() -> tuple[dict[Key, Thread], dict[str, dict[Key, Careful]]]:
    """The sixty threads and what each reader decides of them. Raises BadInput."""
    folder = REAL_DATA / "threads"
    drawn = draw(folder)
    readers = {}
    for path in (DECISIONS, SECOND):
        decisions = read_decisions(path)
        if strangers := decisions.keys() ^ set(drawn):
            raise BadInput(
                f"{path.name} and the draw differ in {len(strangers)} threads, e.g. {min(strangers)}"
            )
        readers[path.stem] = {key: of_decision(decisions[key]) for key in drawn}
    return load(drawn, folder), readers


def labelled() -> tuple[dict[Key, Thread], dict[str, dict[Key, Careful]]]:
    """The thirty labelled threads."""
    rows = [
        json.loads(line)
        for line in (LABELLED / "labels.jsonl").read_text("utf-8").splitlines()
    ]
    labels = {("threads.jsonl", str(row["thread_id"])): of_label(row) for row in rows}
    return load(list(labels), LABELLED), {"labels": labels}


def load(keys: Sequence[Key], folder: Path) -> dict[Key, Thread]:
    """The threads by key; where an id occurs several times in a file, its first line. Raises BadInput."""
    found: dict[Key, Thread] = {}
    wanted = set(keys)
    for name in dict.fromkeys(name for name, _ in keys):
        for item in read_threads(folder / name, handle_key=b"benchmark"):
            if (
                isinstance(item, ImportedThread)
                and (key := (name, item.thread.thread_id)) in wanted
            ):
                found.setdefault(key, item.thread)
    if missing := wanted - found.keys():
        raise BadInput(
            f"{len(missing)} threads are not in {folder.name}, the first {min(missing)}"
        )
    return {key: found[key] for key in keys}


async def run_engines(
    threads: Mapping[Key, Thread], settings: Settings, replies: Path | None
) -> tuple[dict[Key, Made], dict[str, Any]]:
    """What the engines make of every thread, and which engines and index they were."""
    with tempfile.TemporaryDirectory(prefix="medlive-bench-") as work:
        try:
            retriever = open_retriever(settings)
        except IndexMissing:
            settings = settings.model_copy(update={"home": Path(work)})
            build_index(
                [open_corpus(REAL_DATA / "evidence" / name) for name in EVIDENCE],
                index_path(settings),
            )
            retriever = open_retriever(settings)
        bench = Bench(
            settings,
            retriever,
            FileReplyStore((replies or Path(work)) / "replies.jsonl"),
        )
        try:
            made = await asyncio.gather(
                *(bench.make(thread) for thread in threads.values())
            )
        finally:
            for respondent in bench.respondents.values():
                await respondent.aclose()
        who = {
            role: f"{r.identity.engine} {r.identity.model}"
            for role, r in bench.respondents.items()
        }
        about = {"engines": who, "index": retriever.identity.index_digest}
    return dict(zip(threads, made, strict=True)), about


def show(result: Mapping[str, Any]) -> None:
    """The figures for reading."""
    print(
        f"{result['threads']} threads; "
        + ", ".join(f"{r}: {e}" for r, e in result["engines"].items())
    )
    for name, value in result["alone"].items():
        _show_one(name, value)
    for reader, found in result["readers"].items():
        print(f"\nagainst {reader}, who keeps {found['kept by the reader']}:")
        for step, m in (
            ("keep or reject", found["keep or reject"]),
            *found["steps"].items(),
        ):
            share = "-" if m["share"] is None else f"{m['share']:.2f}"
            print(
                f"  {step:<18} n {m['n']:>3}  agree {share}  kappa {_round(m['kappa'])}  {m['table']}"
            )
        parked = found["parked"]
        print(f"  parked, left out of n: {parked['of']}, {parked['keep']} kept by it")
        print(
            f"  vetoed by the reader: {found['what became of those that the reader vetoes']}"
        )
        for side, m in found["elements"].items():
            if m["labelled"]:
                print(
                    f"  {side}: recall {_round(m['recall'])}, precision {_round(m['precision'])}",
                    m,
                )
        for row in found["differ"]:
            print(
                f"  {row['thread']}\n    reader: {row['reader']}\n    engine: {row['engine']}"
            )
    if "between readers" in result:
        print("\nthe readers against each other")
        for step, m in result["between readers"].items():
            print(
                f"  {step:<18} n {m['n']:>3}  agree {_round(m['share'])}  kappa {_round(m['kappa'])}"
            )


def _show_one(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        print(f"{name}: " + (", ".join(f"{k} {n}" for k, n in value.items()) or "none"))
    elif isinstance(value, list):
        print(f"{name}: {len(value)}", *value, sep="\n  ")
    else:
        print(
            f"{name}: {value if value is None or isinstance(value, int) else round(value, 3)}"
        )


def _round(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main() -> int:
    """Draw or measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--draw", action="store_true", help="print the yardstick's threads and stop"
    )
    parser.add_argument(
        "--labelled",
        action="store_true",
        help="the thirty labelled threads, not the yardstick",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--replies",
        type=Path,
        help="folder that keeps an endpoint's replies between runs",
    )
    arguments = parser.parse_args()
    if not (REAL_DATA / "threads").is_dir():
        print(
            "real threads are not here: nothing to measure (../shared/realdata is absent)",
            file=sys.stderr,
        )
        return 3
    if arguments.draw:
        print("\n".join("\t".join(key) for key in draw(REAL_DATA / "threads")))
        return 0
    try:
        threads, readers = labelled() if arguments.labelled else yardstick()
        made, about = asyncio.run(
            run_engines(threads, read_settings(), arguments.replies)
        )
    except MedliveError as error:
        print(
            error.message,
            *([error.hint] if error.hint else []),
            sep="\n",
            file=sys.stderr,
        )
        return error.exit_status
    result: dict[str, Any] = {
        **about,
        "threads": len(threads),
        "alone": alone(made),
        "readers": {
            name: compared(decisions, made) for name, decisions in readers.items()
        },
    }
    if len(readers) == 2:
        one, other = readers.values()
        result["between readers"] = {
            step: agreement(
                [(one[key].steps[step], other[key].steps[step]) for key in one]
            )
            for step in next(iter(one.values())).steps
        }
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False, indent=1))
    else:
        show(result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
