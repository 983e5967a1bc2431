"""Does the reading for harm find what is planted, and pass over what is sound?

Run, each from the repository's root:

    python benchmarks/harm.py prepare instrument OUT.jsonl    # answers of known quality, with raters' scores
    python benchmarks/harm.py prepare kqa OUT.jsonl           # answers that physicians compared with statements
    python benchmarks/harm.py read ITEMS.jsonl FOLDER --base-url URL --model NAME [--checker NAME]
    python benchmarks/harm.py score ITEMS.jsonl FOLDER... [--json]

`read` asks both judges exactly as `medlive eval grade` does and goes on where it stopped. `score` prints what each
folder's judges found. An item has case, language, narrative, query, advice (or null), passages, kind (short, long,
ordinary, slip …), answer; a slip also harm_kind, hard, quote (the planted words), part (tuned or apart) and, where
its writer said so, severity; an answer that was rated also rating and complete. The data of `prepare` lie beside
the repository and are never copied into it.
"""

import argparse
import asyncio
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from scipy.stats import binomtest, pearsonr

from medlive.config import RoleSettings
from medlive.evaluation.grading.harm import HarmItem, ask_judges, read_results
from medlive.evidence.passage import Passage
from medlive.harm.model import (
    HarmReading,
    Material,
    Severity,
    safe_score,
)
from medlive.harm.read import same_statement
from medlive.instance.opening import open_endpoint
from medlive.integrity.digest import digest_json
from medlive.llm.engine import Engine, EngineIdentity
from medlive.llm.prompts import load_prompt

DATA: Final = Path(__file__).resolve().parents[1].parent / "shared" / "realdata"
LOG: Final = "harm.jsonl"
JUDGES: Final = "judges.json"
MODELS: Final[Mapping[str, Mapping[str, float]]] = {
    "always long": {"long": 1.0},
    "always short": {"short": 1.0},
    "long, every fifth a slip": {"long": 0.8, "slip": 0.2},
    "half long, half ordinary": {"long": 0.5, "ordinary": 0.5},
    "always ordinary": {"ordinary": 1.0},
    "always a slip": {"slip": 1.0},
}
"""Made-up models: the share of each kind among their answers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One answer of the benchmark."""

    item: HarmItem
    fields: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Which kind of answer it is."""
        return str(self.fields["kind"])

    def hit(self, reading: HarmReading) -> bool:
        """Whether a confirmed finding quotes the planted words; any, where none are on record."""
        planted = self.fields.get("quote") or ""
        if not planted:
            return bool(reading.confirmed)
        return any(same_statement(h.finding.quote, planted) for h in reading.confirmed)

    def safe(self, reading: HarmReading) -> float:
        """The complete score with what harm leaves of it."""
        return safe_score(float(self.fields["complete"]), reading.worst)


def read_rows(path: Path) -> list[Row]:
    """The items of a file, each once."""
    rows: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        fields = json.loads(line)
        passages = []
        for passage in fields.get("passages") or ():
            passages.append(
                Passage(
                    id=passage["id"],
                    corpus="",
                    title=passage.get("title", ""),
                    section="",
                    text=passage.get("text", ""),
                    language=fields["language"],
                    published=None,
                    url="",
                    licence="",
                )
            )
        question = f"{fields['narrative']}\n\n{fields['query']}".strip()
        material = Material(
            language=fields["language"],
            question=question,
            answer=fields["answer"],
            advice=fields.get("advice") or None,
            passages=tuple(passages),
        )
        name = digest_json([fields["case"], fields["kind"], fields["answer"]])
        rows[name] = Row(HarmItem(name, material), fields)
    return list(rows.values())


def prepare_instrument() -> Iterator[dict[str, Any]]:
    """Four answers of known quality to each case, with what its raters and its rubric say."""
    folder = DATA / "instrument" / "second"
    cases = {}
    for line in (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        cases[case["case"]] = case
    for line in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)
        case = cases[answer["case"]]
        ratings = [rater["score"] for rater in answer["raters"].values()]
        han = any("\u3400" <= char <= "\u9fff" for char in case["narrative"])
        yield {
            "case": answer["case"],
            "language": "zh" if han else "en",
            "narrative": case["narrative"],
            "query": case["query"],
            "advice": case["advice"],
            "passages": [],
            "kind": answer["kind"],
            "answer": answer["answer"],
            "rating": fmean(ratings),
            "complete": complete_score(case["criteria"], answer["met"]),
        }


def complete_score(
    criteria: Sequence[Mapping[str, Any]], met: Mapping[str, bool]
) -> float:
    """Equation 1 over all criteria."""
    most = sum(max(c["points"], 0) for c in criteria)
    earned = sum(c["points"] for c in criteria if met[c["id"]])
    return float(max(0.0, min(1.0, earned / most)))


def prepare_kqa() -> Iterator[dict[str, Any]]:
    """Answers that contradict a physician's statement, and those that entail all of theirs."""
    file = DATA / "agreement" / "kqa_NLI_medical_annotator.csv"
    labels: dict[tuple[str, str], set[str]] = {}
    with file.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            key = row["Question"], row["answer"]
            labels.setdefault(key, set()).add(row["majority_label"])
    for number, ((question, answer), of_answer) in enumerate(labels.items()):
        if "Contradiction" in of_answer:
            kind = "contradicted"
        elif of_answer == {"Entailment"}:
            kind = "entailed"
        else:
            kind = "entailed or neutral"
        yield {
            "case": f"kqa{number}",
            "language": "en",
            "narrative": "",
            "query": question,
            "advice": None,
            "passages": [],
            "kind": kind,
            "answer": answer,
        }


def interval(hits: int, n: int) -> str:
    """A share with its Wilson interval."""
    if not n:
        return "–"
    low, high = binomtest(hits, n).proportion_ci(method="wilson")
    return f"{hits}/{n} = {hits / n:.3f} ({low:.3f} to {high:.3f})"


def table(rows: Sequence[Row], readings: Mapping[str, HarmReading]) -> dict[str, str]:
    """The figures of one pair of judges, by name."""
    read = [row for row in rows if readings[row.item.id].is_read]
    figures = {"read": f"{len(read)} of {len(rows)}"}
    slips = [row for row in read if row.kind == "slip"]
    parts: dict[str, list[Row]] = {"slips": slips}
    parts["slips, hard"] = [row for row in slips if row.fields.get("hard")]
    for name in ("severity", "harm_kind", "language", "part"):
        values = sorted({str(row.fields.get(name)) for row in slips})
        for value in values:
            if value != "None":
                parts[f"slips, {name} {value}"] = [
                    row for row in slips if str(row.fields.get(name)) == value
                ]
    for name, part in parts.items():
        hits = [row.hit(readings[row.item.id]) for row in part]
        figures[f"{name}: found"] = interval(sum(hits), len(hits))
    first = sum(_named(row, readings[row.item.id]) for row in slips)
    figures["slips: named by the first judge alone"] = interval(first, len(slips))
    worst = [readings[row.item.id].worst for row in slips]
    severe = worst.count(Severity.SEVERE)
    figures["slips: confirmed as severe"] = interval(severe, len(slips))
    others = sorted({row.kind for row in read if row.kind != "slip"})
    for kind in others:
        for language in ("", "en", "zh"):
            part = [
                row
                for row in read
                if row.kind == kind and language in ("", row.fields["language"])
            ]
            harmed = sum(bool(readings[row.item.id].confirmed) for row in part)
            if part:
                named = f"{kind}{', ' if language else ''}{language}"
                figures[f"{named}: called harmful"] = interval(harmed, len(part))
    excellent = [row for row in read if row.kind in ("short", "long")]
    false = sum(bool(readings[row.item.id].confirmed) for row in excellent)
    named_first = sum(_counted(readings[row.item.id]) for row in excellent)
    figures["excellent: called harmful"] = interval(false, len(excellent))
    figures["excellent: named by the first judge alone"] = interval(
        named_first, len(excellent)
    )
    unconfirmed = sum(len(readings[row.item.id].unconfirmed) for row in read)
    figures["unconfirmed findings"] = str(unconfirmed)
    return figures | rated(read, readings)


def _counted(reading: HarmReading) -> bool:
    return any(harm.finding.severity.counts for harm in reading.harms)


def _named(row: Row, reading: HarmReading) -> bool:
    planted = row.fields.get("quote") or ""
    if not planted:
        return _counted(reading)
    return any(
        same_statement(harm.finding.quote, planted)
        for harm in reading.harms
        if harm.finding.severity.counts
    )


def rated(rows: Sequence[Row], readings: Mapping[str, HarmReading]) -> dict[str, str]:
    """Complete and safe beside the raters, over the answers that were rated and graded."""
    known = [row for row in rows if "rating" in row.fields and "complete" in row.fields]
    if len(known) < 3:
        return {}
    ratings = [row.fields["rating"] for row in known]
    scores = {
        "complete": [float(row.fields["complete"]) for row in known],
        "safe": [row.safe(readings[row.item.id]) for row in known],
    }
    figures = {}
    for name, values in scores.items():
        r = pearsonr(values, ratings).statistic
        figures[f"{name}: Pearson with the raters (n {len(known)})"] = f"{r:.3f}"
        by_case: dict[tuple[str, str], float] = {}
        for row, value in zip(known, values, strict=True):
            by_case[row.fields["case"], row.kind] = value
        for better, worse in (("long", "slip"), ("ordinary", "slip")):
            figures[f"{name}: {better} above {worse}"] = pairs(by_case, better, worse)
        figures |= ranking(name, known, values)
    return figures


def pairs(by_case: Mapping[tuple[str, str], float], better: str, worse: str) -> str:
    """Cases in which one kind scores above, as, or below the other."""
    above = tied = n = 0
    for case, kind in by_case:
        if kind == better and (case, worse) in by_case:
            n += 1
            above += by_case[case, better] > by_case[case, worse]
            tied += by_case[case, better] == by_case[case, worse]
    return f"{above} of {n}, tied {tied}"


def ranking(name: str, rows: Sequence[Row], values: Sequence[float]) -> dict[str, str]:
    """Where a score puts made-up models."""
    by_kind: dict[str, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        by_kind.setdefault(row.kind, []).append(value)
    scores = {}
    for model, shares in MODELS.items():
        if shares.keys() <= by_kind.keys():
            score = 0.0
            for kind, share in shares.items():
                score += share * fmean(by_kind[kind])
            scores[model] = score
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    figures = {}
    for place, model in enumerate(ranked, start=1):
        figures[f"{name}: made-up model, place {place}"] = (
            f"{model} ({scores[model]:.3f})"
        )
    return figures


def _identity(row: Mapping[str, Any]) -> EngineIdentity:
    return EngineIdentity(row["engine"], row["model"], row["parameters"], pinned=False)


async def read(args: argparse.Namespace) -> int:
    """Ask both judges about every item."""
    rows = read_rows(args.items)
    parameters = json.loads(args.parameters)

    def engine(model: str, url: str) -> Engine:
        settings = RoleSettings(
            engine="openai",
            base_url=url,
            model=model,
            json_mode=args.json_mode,
            timeout_s=args.timeout,
            max_retries=1,
            concurrency=args.concurrency,
            parameters=parameters,
            allow_unpinned=args.allow_unpinned,
        )
        return open_endpoint(settings)

    reader = engine(args.model, args.base_url)
    checker = engine(args.checker or args.model, args.checker_base_url or args.base_url)
    args.folder.mkdir(parents=True, exist_ok=True)
    judges = {
        "reader": reader.identity.as_json(),
        "checker": checker.identity.as_json(),
        "prompts": [
            load_prompt("medlive.harm", task).digest
            for task in ("grader.harm", "grader.harm_check")
        ],
    }
    (args.folder / JUDGES).write_text(json.dumps(judges, indent=2), encoding="utf-8")
    try:
        stages = await ask_judges(
            [row.item for row in rows],
            args.folder / LOG,
            reader,
            checker,
            concurrency=args.concurrency,
        )
    finally:
        await reader.aclose()
        await checker.aclose()
    calls = sum(stage.calls for stage in stages)
    print(f"{calls} calls; {stages[0].settled} of {len(rows)} readings")
    for outcome in stages:
        if outcome is not None:
            for reason, n in outcome.reasons.items():
                print(f"  {n} open: {reason}")
    return 0


def score(args: argparse.Namespace) -> int:
    """Print the figures of each folder beside each other."""
    rows = read_rows(args.items)
    tables = {}
    for folder in args.folders:
        judges = json.loads((folder / JUDGES).read_text(encoding="utf-8"))
        results = read_results(
            (row.item for row in rows),
            folder / LOG,
            _identity(judges["reader"]),
            _identity(judges["checker"]),
        )
        readings = {}
        for row, result in zip(rows, results, strict=True):
            readings[row.item.id] = result.reading
        tables[folder.name] = table(rows, readings)
        if args.misses:
            show_misses(rows, readings)
    if args.json:
        print(json.dumps(tables, ensure_ascii=False, indent=2))
        return 0
    for name, figures in tables.items():
        print(f"\n{name}")
        for figure, value in figures.items():
            print(f"  {figure:58} {value}")
    return 0


def show_misses(rows: Iterable[Row], readings: Mapping[str, HarmReading]) -> None:
    """Print slips that were not found, and sound answers in which harm was confirmed."""
    for row in rows:
        reading = readings[row.item.id]
        if not reading.is_read:
            print(f"NOT READ {row.fields['case']} {row.kind}: {reading.missing}")
        elif (row.kind == "slip") is not row.hit(reading):
            print(f"{row.kind.upper()} {row.fields['case']} {row.fields.get('quote')}")
            for harm in reading.harms:
                check = harm.check
                found = asdict(harm.finding) | {
                    "ruling": check and check.ruling,
                    "check_severity": check and check.severity,
                    "check_reason": check.reason if check else "",
                    "confirmed": harm.confirmed,
                }
                print(f"   {json.dumps(found, ensure_ascii=False)}")


def main() -> int:
    """Run a subcommand."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare")
    preparing.add_argument("source", choices=("instrument", "kqa"))
    preparing.add_argument("out", type=Path)
    reading = commands.add_parser("read")
    reading.add_argument("items", type=Path)
    reading.add_argument("folder", type=Path)
    reading.add_argument("--base-url", required=True)
    reading.add_argument("--model", required=True)
    reading.add_argument(
        "--checker", help="the second judge's model (default: --model)"
    )
    reading.add_argument("--checker-base-url")
    reading.add_argument(
        "--parameters", default="{}", help="JSON fields of each request"
    )
    reading.add_argument(
        "--json-mode", default="none", choices=("schema", "object", "none")
    )
    reading.add_argument("--timeout", type=float, default=7200.0)
    reading.add_argument("--concurrency", type=int, default=64)
    reading.add_argument("--allow-unpinned", action="store_true")
    scoring = commands.add_parser("score")
    scoring.add_argument("items", type=Path)
    scoring.add_argument("folders", type=Path, nargs="+")
    scoring.add_argument("--json", action="store_true")
    scoring.add_argument("--misses", action="store_true", help="print what went wrong")
    args = parser.parse_args()
    if args.command == "prepare":
        if not DATA.is_dir():
            print(f"{DATA} is absent", file=sys.stderr)
            return 3
        source = prepare_instrument if args.source == "instrument" else prepare_kqa
        lines = [json.dumps(row, ensure_ascii=False) for row in source()]
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{len(lines)} items")
        return 0
    return asyncio.run(read(args)) if args.command == "read" else score(args)


if __name__ == "__main__":
    sys.exit(main())
