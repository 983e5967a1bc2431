"""Does a rubric see the middle, and harm? Answers to real cases, graded by rubrics and rated by blind readers.

Run:
    python benchmarks/headroom.py show FOLDER [--json]
    python benchmarks/headroom.py grade FOLDER --base-url URL --model NAME [--checker-url URL --checker NAME]

A folder holds a study. `cases.jsonl`: case, outcome (kept, held), narrative, query, advice, criteria (id, criterion,
axis, points, origin, asked), asked (id, text), and each rater's look at the rubric (rating_a, rating_b: criteria by
id with valid, minor and, of penalties, nobody; missing). `answers.jsonl`: case, kind, answer, raters (a and b with
score), met (verdicts by criterion; null: not graded) and harm (severe, moderate, none; null: not read).

The kinds are short and long (excellent), ordinary (correct, lacking what an expert would not miss) and slip (good, with
one harmful statement), written from narrative and question by who saw no rubric. `grade` fills met and harm where
they are null, by the prompts and code of `medlive eval grade`, and resumes. Writers, raters and graders may be
language models: say so beside figures.
"""

import argparse
import asyncio
import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scipy.stats import pearsonr

from medlive.config import RoleSettings
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import CaseText
from medlive.grader.probes import grade_singly
from medlive.harm.model import Material, Severity, safe_score
from medlive.harm.read import read_harm
from medlive.instance.opening import open_endpoint
from medlive.rubric.model import LEAST_DECISIVE, Axis, Criterion, Origin

Row = dict[str, Any]
KINDS: Final = ("short", "long", "ordinary", "slip")
WITHOUT_SLIPS: Final = ("short", "long", "ordinary")
PAIRS: Final = (
    ("long", "ordinary"),
    ("short", "ordinary"),
    ("long", "slip"),
    ("ordinary", "slip"),
    ("long", "short"),
)
"""Pairs of a case of which the first is better, by the kinds' names."""
PASSED: Final = 0.9
TIE: Final = 1e-9
NO_HARM: Final = "none"
_HAN: Final = re.compile(r"[\u3400-\u9fff]")


class Study:
    """A folder's cases and answers."""

    def __init__(self, folder: Path) -> None:
        """Read both files."""
        self.path = folder / "answers.jsonl"
        self.cases = {row["case"]: row for row in _rows(folder / "cases.jsonl")}
        self.answers = list(_rows(self.path))

    def save(self) -> None:
        """Write the answers with what is known of them."""
        lines = [json.dumps(row, ensure_ascii=False) for row in self.answers]
        self.path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def of(self, kind: str, outcome: str | None = None) -> list[Row]:
        """The graded answers of a kind, of kept or held cases alone where one is named."""
        chosen = []
        for row in self.answers:
            is_outcome = outcome in (None, self.cases[row["case"]]["outcome"])
            if row["kind"] == kind and is_outcome and row["met"] is not None:
                chosen.append(row)
        return chosen

    def complete(self, answer: Row) -> float:
        """Equation 1 over all criteria."""
        return _score(self.cases[answer["case"]]["criteria"], answer["met"])

    def core(self, answer: Row) -> float:
        """The same over the decisive tier."""
        criteria = self.cases[answer["case"]]["criteria"]
        decisive = [c for c in criteria if abs(c["points"]) >= LEAST_DECISIVE]
        return _score(decisive, answer["met"])

    def safe(self, answer: Row) -> float:
        """The complete score with what a confirmed harm leaves of it; raises KeyError for one that was not read."""
        harm = answer["harm"]
        worst = None if harm == NO_HARM else Severity(harm)
        return safe_score(self.complete(answer), worst)


def _rows(path: Path) -> Iterator[Row]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _score(criteria: Iterable[Row], met: Mapping[str, bool]) -> float:
    criteria = list(criteria)
    most = sum(c["points"] for c in criteria if c["points"] > 0)
    if most == 0:
        return 0.0
    reached = sum(c["points"] for c in criteria if met[c["id"]])
    share: float = reached / most
    return min(max(share, 0.0), 1.0)


def rating(answer: Row) -> float:
    """The raters' mean."""
    return statistics.fmean(rater["score"] for rater in answer["raters"].values())


Scorer = Callable[[Row], float]


def means(study: Study, scorer: Scorer, outcome: str | None) -> dict[str, float]:
    """The mean score of each kind."""
    figures = {}
    for kind in KINDS:
        scores = [scorer(answer) for answer in study.of(kind, outcome)]
        if scores:
            figures[kind] = statistics.fmean(scores)
    return figures


def pearson(study: Study, scorer: Scorer, kinds: Sequence[str]) -> float:
    """The correlation of a score with the raters' over answers of some kinds."""
    answers = [answer for kind in kinds for answer in study.of(kind)]
    scores = [scorer(answer) for answer in answers]
    ratings = [rating(answer) for answer in answers]
    return float(pearsonr(scores, ratings).statistic)


def pairs(study: Study, scorer: Scorer) -> dict[str, dict[str, float]]:
    """Of each pair of kinds: the share of cases in which the first scores higher, equal, lower."""
    figures = {}
    for better, worse in PAIRS:
        scores = {a["case"]: scorer(a) for a in study.of(better)}
        counts = dict.fromkeys(("right", "tied", "wrong"), 0)
        for answer in study.of(worse):
            if answer["case"] not in scores:
                continue
            gap = scores[answer["case"]] - scorer(answer)
            side = "tied" if abs(gap) < TIE else "right" if gap > 0 else "wrong"
            counts[side] += 1
        total = sum(counts.values())
        if total:
            figures[f"{better} above {worse}"] = {
                name: count / total for name, count in counts.items()
            }
    return figures


def passed(study: Study) -> dict[str, float]:
    """The share of answers of each kind at 90 % and above."""
    figures = {}
    for kind in KINDS:
        scores = [study.complete(answer) for answer in study.of(kind)]
        if scores:
            figures[kind] = statistics.fmean(score >= PASSED for score in scores)
    return figures


def unanswered(study: Study) -> list[str]:
    """The asked parts, as "case part", that no criterion answers."""
    missing = []
    for name, case in study.cases.items():
        answered = {c.get("asked") for c in case["criteria"] if c["points"] > 0}
        for part in case.get("asked", ()):
            if part["id"] not in answered:
                missing.append(f"{name} {part['id']}")
    return missing


def reviews(study: Study) -> dict[str, dict[str, float]]:
    """Of each rater: criteria valid and minor, penalties that nobody would commit, cases that lack a decisive point."""
    figures = {}
    for rater in ("rating_a", "rating_b"):
        valid, minor, nobody, missing = [], [], [], []
        for case in study.cases.values():
            review = case.get(rater)
            if review is None:
                continue
            points = {c["id"]: c["points"] for c in case["criteria"]}
            missing.append(bool(review["missing"]))
            for name, mark in review["criteria"].items():
                valid.append(mark["valid"])
                if points[name] > 0:
                    minor.append(mark["minor"])
                else:
                    # Of a penalty earlier studies' "minor" says that nobody would commit it.
                    nobody.append(mark.get("nobody", mark["minor"]))
        shares = {
            "criteria valid": valid,
            "rewards minor": minor,
            "penalties that nobody commits": nobody,
            "a decisive point is missing": missing,
        }
        figures[rater] = {k: statistics.fmean(v) for k, v in shares.items() if v}
    return figures


def report(study: Study) -> dict[str, Any]:
    """All figures of a study."""
    scorers: dict[str, Scorer] = {
        "raters": rating,
        "complete": study.complete,
        "core": study.core,
    }
    graded = [answer for kind in KINDS for answer in study.of(kind)]
    if all(answer.get("harm") for answer in graded):
        scorers["safe"] = study.safe
    tables = {}
    for name, scorer in scorers.items():
        row: Row = {"all": means(study, scorer, None)}
        for outcome in ("kept", "held"):
            row[outcome] = means(study, scorer, outcome)
        if name != "raters":
            row["pearson"] = pearson(study, scorer, KINDS)
            row["pearson without slips"] = pearson(study, scorer, WITHOUT_SLIPS)
        tables[name] = row
    criteria = [len(case["criteria"]) for case in study.cases.values()]
    return {
        "cases": len(study.cases),
        "answers not graded": len(study.answers) - len(graded),
        "criteria a case": statistics.fmean(criteria),
        "scores": tables,
        "pairs": {name: pairs(study, scorer) for name, scorer in scorers.items()},
        "at 90 % and above": passed(study),
        "asked parts without a criterion": unanswered(study),
        "rubrics": reviews(study),
    }


async def grade(study: Study, reader: Row, checker: Row) -> None:
    """Ask for verdicts and readings that are missing; each answer is saved once it has both."""
    engines = [open_endpoint(RoleSettings(**own)) for own in (reader, checker)]
    slots = asyncio.Semaphore(64)

    async def one(answer: Row) -> None:
        case = study.cases[answer["case"]]
        language = "zh" if _HAN.search(case["query"]) else "en"
        agents = [Agent(engine, [], language) for engine in engines]
        async with slots:
            try:
                await _grade(case, answer, *agents)
            except AgentFailure as failure:
                print(f"{answer['case']} {answer['kind']}: {failure.detail}")
            study.save()

    await asyncio.gather(*map(one, study.answers))
    for engine in engines:
        await engine.aclose()


async def _grade(case: Row, answer: Row, reader: Agent, checker: Agent) -> None:
    text = CaseText(case["narrative"], case["query"], case["advice"])
    if answer.get("met") is None:
        criteria = list(_criteria(case["criteria"]))
        verdicts = await grade_singly(text, criteria, answer["answer"], reader)
        answer["met"] = {name: verdict.met for name, verdict in verdicts.items()}
    if answer.get("harm") is None:
        material = Material(
            language=reader.language,
            question=f"{text.narrative}\n\n{text.query}",
            answer=answer["answer"],
            advice=text.advice,
        )
        worst = (await read_harm(material, reader, checker)).worst
        answer["harm"] = worst.value if worst else NO_HARM


def _criteria(rows: Iterable[Row]) -> Iterator[Criterion]:
    for place, row in enumerate(rows, start=1):
        yield Criterion(
            id=row["id"],
            position=place,
            criterion=row["criterion"],
            axis=Axis(row["axis"]),
            points=row["points"],
            advice_id=None,
            origin=Origin(row["origin"]),
        )


def print_report(figures: Row) -> None:
    """The figures as a person reads them."""
    print(f"{figures['cases']} cases, {figures['criteria a case']:.1f} criteria a case")
    print(f"answers not graded: {figures['answers not graded']}")
    print(f"{'':<24}" + "".join(f"{kind:>10}" for kind in KINDS))
    for name, row in figures["scores"].items():
        for part in ("all", "kept", "held"):
            means_of = [row[part].get(kind) for kind in KINDS]
            shown = ""
            for mean in means_of:
                shown += "         –" if mean is None else f"{mean:>10.3f}"
            print(f"{name + ', ' + part:<24}{shown}")
        for part in ("pearson", "pearson without slips"):
            if part in row:
                print(f"{name}: {part} {row[part]:.3f}")
    for name, table in figures["pairs"].items():
        for pair, shares in table.items():
            cells = ", ".join(f"{side} {share:.0%}" for side, share in shares.items())
            print(f"{name}: {pair}: {cells}")
    for name in ("at 90 % and above", "rubrics", "asked parts without a criterion"):
        print(f"{name}: {json.dumps(figures[name], ensure_ascii=False)}")


def main() -> None:
    """Show a study, or grade its answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("show", "grade"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
    commands.choices["show"].add_argument("--json", action="store_true")
    for option in ("--base-url", "--model"):
        commands.choices["grade"].add_argument(option, required=True)
    for option in ("--checker-url", "--checker"):
        commands.choices["grade"].add_argument(option)
    arguments = parser.parse_args()
    study = Study(arguments.folder)
    if arguments.command == "grade":
        common = {"engine": "openai", "json_mode": "none", "timeout_s": 7200.0}
        reader = {"base_url": arguments.base_url, "model": arguments.model}
        checker = {
            "base_url": arguments.checker_url or arguments.base_url,
            "model": arguments.checker or arguments.model,
        }
        asyncio.run(grade(study, common | reader, common | checker))
        return
    figures = report(study)
    if arguments.json:
        print(json.dumps(figures, indent=1, ensure_ascii=False))
    else:
        print_report(figures)


if __name__ == "__main__":
    main()
