"""Physicians' ratings of a published set against each other and against graders.

Run `python benchmarks/grader_agreement.py [--draws 1000] [--no-write]`; it writes
docs/builders/measurements/grader-agreement.md.
K-QA: three physicians on whether an answer entails a statement, which is a grader's task, beside the rules
grader and recorded verdicts of language models. The file lies beside the repository, in
shared/realdata/agreement, and is never copied. The figures have no target. Exit status 3 where the file is absent.
"""

import argparse
import asyncio
import csv
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
from measured import measured_line

from medlive.evaluation.agreement.meta import Meta, meta_run
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.grading.imports import import_run
from medlive.evaluation.scoring.refusals import Allow
from medlive.llm.rules.engine import RulesEngine
from medlive.statistics.agreement import ac1_of_tables, macro_f1_of_tables
from medlive.statistics.estimate import Estimate, estimate
from medlive.statistics.intervals import Floats
from medlive.statistics.raters import (
    MET,
    NOT_MET,
    Codes,
    PairAgreement,
    tables,
)

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = ROOT.parent / "shared" / "realdata" / "agreement"
OUT: Final = ROOT / "docs" / "builders" / "measurements" / "grader-agreement.md"
READERS: Final = ROOT / "benchmarks" / "data" / "kqa_readers.csv"
"""By row of K-QA's file, whether a reader called the statement met (1, 0)."""
FILE: Final = "kqa_NLI_medical_annotator.csv"


def kqa(folder: Path, draws: int) -> Meta:
    """K-QA's answers as a run, graded by the rules engine as any run is, against its physicians."""
    file = folder / FILE
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "kqa"
        import_run(
            load_cases(file),
            file,
            run,
            place=file,
            model="four models",
            created_at=datetime.now(UTC),
            format_="kqa",
        )
        asyncio.run(grade_run(run, RulesEngine()))
        return meta_run(
            run, human=[folder / FILE], draws=draws, allow=[Allow.NOT_PUBLISHABLE]
        )


Pairs = Sequence[tuple[Codes, Codes]]
JUDGES: Final = {
    "rubric": "rubric mode",
    "rubric_again": "rubric mode, a second reader",
    "criterion": "criterion mode",
    "rules": "the prompts of 23 November, one reader",
    "no_undecided": "today's prompts, without “undecided”, another reader",
}


def mean_of(
    statistic: Callable[[Floats], Floats],
    pairs: Pairs,
    less: Pairs,
    clusters: Sequence[int],
    draws: int,
) -> str:
    """The mean of a statistic of two raters over pairs, less that over other pairs, over draws of clusters."""
    cells = np.stack([tables(*pair)[..., :2] for pair in (*pairs, *less)], axis=1)

    def mean(sums: Floats) -> Floats:
        each = statistic(sums)
        other = each[..., len(pairs) :].mean(axis=-1) if less else 0.0
        return np.asarray(each[..., : len(pairs)].mean(axis=-1) - other)

    return figure(estimate(cells, mean, clusters, draws=draws))


def share_met(sums: Floats) -> Floats:
    """The share that the second rater of a table calls met."""
    return np.asarray(sums[..., MET].sum(axis=-1) / sums.sum(axis=(-2, -1)))


def judges_rows(
    name: str,
    items: Sequence[Mapping[str, str]],
    read: Sequence[Mapping[str, str]],
    draws: int,
) -> Iterator[list[str]]:
    """Physicians with one another, each reader with them and less them, and readers with one another."""
    answers = [(item["Question"], item["llm_x"]) for item in items]
    places = {answer: place for place, answer in enumerate(dict.fromkeys(answers))}
    clusters = [places[answer] for answer in answers]
    people = [
        codes(item[f"label_{k}"] == "Entailment" for item in items) for k in range(3)
    ]
    judges = {
        who: codes(row[who] == "1" for row in read) for who in JUDGES if read[0][who]
    }
    among, self_pairs = list(combinations(people, 2)), [(one, one) for one in people]

    def figures(
        pairs: Pairs, less: Pairs = (), rates: Pairs = (), less_rates: Pairs = ()
    ) -> list[str]:
        agreed = [
            mean_of(f, pairs, less, clusters, draws)
            for f in (macro_f1_of_tables, ac1_of_tables)
        ]
        return [
            *agreed,
            mean_of(share_met, rates, less_rates, clusters, draws) if rates else "",
        ]

    yield [name, "physicians with one another", *figures(among, rates=self_pairs)]
    for who, judge in judges.items():
        pairs, rate = [(one, judge) for one in people], [(judge, judge)]
        yield [name, f"{JUDGES[who]}, with physicians", *figures(pairs, rates=rate)]
        yield [
            name,
            f"{JUDGES[who]}, less physicians",
            *figures(pairs, among, rate, self_pairs),
        ]
    for (a, one), (b, two) in combinations(judges.items(), 2):
        yield [name, f"{JUDGES[a]} with {JUDGES[b]}", *figures([(one, two)])]


def judges_text(folder: Path, draws: int) -> str:
    """The part on language models as judges."""
    with (folder / FILE).open(newline="", encoding="utf-8") as file:
        labelled = list(csv.DictReader(file))
    with READERS.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    rows: list[list[str]] = []
    for name in ("held-out", "tuning"):
        part = [row for row in read if row["set"] == name]
        items = [labelled[int(row["row"])] for row in part]
        rows += judges_rows(f"{name}, {len(part)}", items, part, draws)
    return f"""## K-QA: language models with medlive's prompts

The same statements in two halves by answer. The first rules of the prompts were written on the *tuning* half; the
*held-out* half was then read once. The judges were language models at a desk (readers): each read the rendered
prompts at a local endpoint and wrote the replies, a fresh reader for each line. No vendor's API was asked, no model
was pinned, and the readers may be one model, so that their agreement with one another says little of two models. The
tuning half was read with the prompts before their last change. Two replies of criterion mode on the held-out half
were ungraded that day, as their quotes of K-QA's damaged text were not found; they count as they are read since that
was mended: met.

*The prompts of 23 November* have rules for conditions, absolute words, lists and classes besides. One more reader
applied them, without seeing labels or earlier verdicts and without an endpoint: it gave verdicts alone, so that the
line says nothing of quotes, and read in one mode. The held-out half came first, with a draft whose rule for lists
("most of them") was too strict and which counted how a thing is done; three statements showed it, both rules were
changed, and the half was not read again. The tuning half was read with the rules as they are.

*Today's prompts* offer no “undecided” and have rows for a plan with a fallback and for conditions. The line is of
readers at an endpoint, in rubric mode with quotes, through `medlive eval grade` (28 November 2026); both halves had
been seen by then while prompts were written, though not while these were changed.

{table(["statements", "who", "macro-F1", "AC1", "share met"], rows)}

The verdicts are in `benchmarks/data/kqa_readers.csv`. With so few statements the table shows that such readers
agree with physicians about as physicians do with one another, and no more.
"""


def codes(met: Iterable[bool]) -> Codes:
    """Codes of verdicts."""
    return np.array([MET if one else NOT_MET for one in met])


def figure(e: Estimate) -> str:
    """A value with its interval."""
    if e.value is None:
        return f"none: {e.why}"
    return f"{e.value:.3f}" + (
        f" ({e.low:.3f} to {e.high:.3f})" if e.low is not None else ""
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell) for cell in line) + " |" for line in lines
    )


def pairs_table(pairs: Sequence[PairAgreement]) -> str:
    """Pairs of raters with every figure of theirs."""
    columns = [
        "first",
        "second",
        "n",
        "equal",
        "AC1",
        "kappa",
        "macro-F1",
        "met: first",
        "met: second",
    ]
    rows = [
        [
            p.first,
            p.second,
            p.equal.n,
            *(figure(e) for e in (p.equal, p.ac1, p.kappa, p.macro_f1)),
            *(
                f"{e.value:.3f}" if e.value is not None else "none"
                for e in (p.first_rate, p.second_rate)
            ),
        ]
        for p in pairs
    ]
    return table(columns, rows)


def kqa_text(meta: Meta) -> str:
    """The part on K-QA."""
    c, coverage = meta.criteria, meta.coverage
    if (
        c is None
        or coverage is None
        or c.by_case is None
        or c.strictness is None
        or c.majority is None
    ):
        raise SystemExit("the K-QA file holds no ratings")
    rubric = meta.cases[0]
    k = c.majority.confusion
    name = meta.grader["model"]
    summary: list[tuple[str, Estimate]] = [
        ("AC1, the three physicians at once", c.people_ac1),
        ("macro-F1, mean over pairs of physicians", c.people_macro_f1),
        ("AC1, rules grader, mean over physicians", c.grader_ac1),
        ("macro-F1, rules grader, mean over physicians", c.grader_macro_f1),
        ("macro-F1 by case, mean", c.by_case.mean),
        ("share of cases under 0.6", c.by_case.below),
        ("share met, rules grader", c.strictness.grader),
        ("share met, physicians", c.strictness.people),
        ("rules grader less physicians", c.strictness.difference),
    ]
    return f"""## K-QA: three physicians on what an answer says

{coverage["rated"]} statements about {coverage["cases_rated"]} answers of four models, each labelled by three physicians
(`label_0` to `label_2`). Entailment counts as met, Neutral and Contradiction as not met: a rubric grader's two
verdicts. An answer is a case, a statement a criterion.

### Physicians with each other

{pairs_table(c.people)}

### The rules grader with each physician

`{name}`. It compares words and judges nothing. The share of words that it asks for was tuned on
answers that physicians had labelled (`medlive/llm/rules/grader.py`), these among them, so that the figures may
flatter it; and they say nothing of a language model.

{pairs_table([*c.grader, c.majority])}

Against the majority of the three: {k.both_met} met by both, {k.first_only} by the physicians alone,
{k.second_only} by the grader alone, {k.neither} by neither; {coverage["invalid"]} invalid, {coverage["ungraded"]}
ungraded.

### In short

{table(["figure", "value", "n"], [[what, figure(e), e.n] for what, e in summary])}

### Scores of whole answers

Nobody scored these answers as a whole. Both sides are K-QA's comprehensiveness, the share of what an answer must
have that it entails; people's is the mean of the three, and answers without a must-have statement are out. Pearson
{figure(rubric.pearson)}, p = {rubric.pearson.p:.3f}; Spearman {figure(rubric.spearman)}, p =
{rubric.spearman.p:.3f}; n = {rubric.pearson.n} cases. There is no direct judge to compare with, for want of a
language model.
"""


def page(meta: Meta, judges: str, draws: int) -> str:
    """The whole document."""
    return f"""# How far graders and people agree

{measured_line()}

Written by `benchmarks/grader_agreement.py`; run it to make this page again. The definitions are in
[meta.md](../../meta.md). Every interval is a 95 % percentile interval over {draws:,} bootstrap draws of cases, seed 0.
The formulas are medlive's own and are checked against irrCAC (AC1 of two and more raters, with gaps), scikit-learn
(kappa, macro-F1) and scipy (Pearson, Spearman, Kendall, p-values of the first two, and correlations of resampled items)
on generated input, ties, gaps, single categories and constant columns among it
(`tests/unit/statistics/test_stats_agreement_oracles.py`).

{judges}
{kqa_text(meta)}
## What is not here

A pinned model of a vendor as grader, a language model as direct judge, and physicians' ratings of medlive's own
cases: all need what no file here holds. `medlive eval meta` computes them when they are there.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument(
        "--no-write", action="store_true", help="print the page instead of writing it"
    )
    options = parser.parse_args(arguments)
    if not (DATA / FILE).is_file():
        print(f"absent from shared/realdata/agreement: {FILE}", file=sys.stderr)
        return 3
    text = page(
        kqa(DATA, options.draws), judges_text(DATA, options.draws), options.draws
    )
    if options.no_write:
        print(text)
    else:
        OUT.write_text(text, encoding="utf-8")
        print(OUT.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
