"""Figures that papers print, computed again from what they print or publish elsewhere.

Run `python benchmarks/published.py [--no-write]`; it writes
docs/builders/measurements/published.md. The papers' texts and LLMEval-Med's
dataset lie beside the repository, in shared/, and are never copied. A figure is the same where rounding accounts
for the difference. Exit status 3 where a file is absent.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from measured import measured_line

from medlive.evaluation.protocols.coverage import cacs, threshold

ROOT: Final = Path(__file__).resolve().parents[1]
SHARED: Final = ROOT.parent / "shared"
OUT: Final = ROOT / "docs" / "builders" / "measurements" / "published.md"
SEEDS: Final = {
    "ClinConsensus": "001_*.txt",
    "LLMEval-Med": "003_*.txt",
    "MEDIC": "004_*.txt",
}
DATASET: Final = Path("realdata") / "benchmarks" / "llmeval_med_dataset.json"
_MARKUP: Final = re.compile(r"</?[bui]>|</?p[^>]*>|\*\*|%|,(?=\d{3})")
_DIFFERENCES: Final = 6

Rows = Mapping[str, Sequence[str]]
"""A table's cells by the first of their line."""


@dataclass(frozen=True, slots=True)
class Check:
    """Printed figures beside recomputed ones."""

    paper: str
    what: str
    pairs: Sequence[tuple[str, str, float]]
    """What a figure is of, as printed, recomputed."""
    slack: float = 0.0
    """How far rounding of what it is computed from can move a recomputed figure."""

    def differing(self) -> list[tuple[str, str, float]]:
        """Those for whose difference rounding cannot account."""
        return [one for one in self.pairs if not rounds_to(one[1], one[2], self.slack)]


def rounds_to(printed: str, value: float, slack: float = 0.0) -> bool:
    """Whether a value known to within `slack` rounds to a printed number, whichever way a half goes."""
    places = len(printed.partition(".")[2])
    return abs(float(printed) - value) <= 0.5 * 0.1**places + slack + 1e-9


def rows(text: str, start: str, end: str) -> Rows:
    """The lines of cells, split by tabs or bars, between two texts. Raises ValueError where they are not there."""
    begin = text.index(start)
    lines = text[begin : text.index(end, begin + len(start))].splitlines()
    cut = (
        [cell.strip() for cell in re.split(r"\t|\|", _MARKUP.sub("", line).strip("| "))]
        for line in lines
    )
    return {
        cells[0]: cells[1:]
        for cells in cut
        if len(cells) > 1 and any(c[:1].isdigit() for c in cells[1:])
    }


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def clinconsensus(text: str) -> Iterator[Check]:
    """Seed 001."""

    def check(
        what: str, pairs: Iterable[tuple[str, str, float]], slack: float = 0.0
    ) -> Check:
        return Check("ClinConsensus", what, list(pairs), slack)

    hits = rows(text, "| Rubric hits |", "Table 10")
    yield check(
        "Table 9: rubric accuracy and CACS@10 by hits of 30, by medlive's formula",
        (
            (f"{name}, {k} hits", cells[place], 100 * value)
            for k, cells in hits.items()
            for name, place, value in (
                ("accuracy", 0, int(k) / 30),
                ("CACS@10", 2, cacs(int(k), 30, 10)),
            )
        ),
    )
    met, of = 2904, 285 * 30
    calibrated = [
        ("criteria rated", "8550", of),
        ("rate", "33.96", 100 * met / of),
        ("a case", "10.19", met / 285),
    ]
    yield check(
        "§4.3: calibration on 285 responses",
        [*calibrated, ("t", "10", threshold(round(met / 285) / 30, 30))],
    )
    people = rows(text, "| Model | Annotators", "Results.")
    yield check(
        "§6.1: mean of the physicians' macro-F1 of 11 models",
        [("mean", "0.772", fmean(float(cells[-1]) for cells in people.values()))],
    )
    judges = rows(text, "| Judge | Expert", "Table 4 and")
    yield check(
        "Table 4: average of two groups",
        (
            (name, cells[2], fmean(map(float, cells[:2])))
            for name, cells in judges.items()
        ),
        0.0005,
    )
    counts = rows(text, "| Slice | Count", "Appendix C")
    yield check(
        "Table 6: shares of 2,500 cases",
        ((name, cells[1], int(cells[0]) / 25) for name, cells in counts.items()),
    )
    lay, expert = (int(counts[f"{name}-facing"][0]) for name in ("Lay", "Professional"))
    of_all = {_letters(name): float(cells[1]) for name, cells in counts.items()}
    of_all["ie"] = of_all[_letters("Medical information extraction (IE)")]
    profile = re.findall(
        r"([A-Z][^;|(]+?|[a-z][^;|(]+?) \((\d+\.\d)%, (\d\.\d\d)\)", text
    )
    yield check(
        "Table 7: share in a level of difficulty over the share in all",
        (
            (name, ratio, float(share) / of_all[_letters(name)])
            for name, share, ratio in profile
        ),
        0.007,
    )
    registers = {
        name: [float(c) for c in cells]
        for name, cells in rows(text, "| Model | Lay", "Table 13").items()
    }
    yield check(
        "Table 12: difference of registers",
        (
            (name, f"{third:.1f}", second - first)
            for name, (first, second, third) in registers.items()
        ),
        0.1,
    )
    whole = {
        name: (lay * one + expert * other) / (lay + expert)
        for name, (one, other, _) in registers.items()
    }
    printed = {
        "GPT-5.2": "32.9",
        "Baichuan M3": "27.8",
        "Claude Opus 4.6": "26.9",
        "Grok 4.1 Fast": "17.8",
    }
    yield check(
        "§5.1: CACS@10 of all cases, from Table 12 weighted by Table 6",
        [(name, value, whole[name]) for name, value in printed.items()],
        0.05,
    )
    means = (
        (name, value, fmean(r[n] for r in registers.values()))
        for n, (name, value) in enumerate((("lay", "24.4"), ("professional", "23.9")))
    )
    yield check("§5.1: CACS@10 by register, mean of 11 models", means, 0.05)
    yield check(
        "§5.1: rubric accuracy less CACS@10, smallest and largest gap",
        [("GPT-5.2", "19.2", 52.1 - 32.9), ("Grok 4.1 Fast", "21.9", 39.6 - 17.8)],
        0.1,
    )


SECONDARY: Final = {
    # A table's columns as the dataset spells them.
    "MLU": (
        2,
        "Model\tTable Data",
        "Table 15",
        ("表格数据处理", "多轮对话", "翻译匹配", "文本分类", "信息抽取", "摘要总结"),
    ),
    "MR": (
        3,
        "Model\tInference",
        "Table 16",
        ("病症推断", "科学研究", "疗效评估", "治疗方案"),
    ),
    "MSE": (
        4,
        "Model\tSafety of",
        "Table 17",
        ("措施安全性", "药品安全", "医疗违禁", "医学伦理"),
    ),
    "MTG": (5, "Model\tRewriting", "Table 18", ("改写", "生成", "总结/摘要")),
}


def llmeval(
    text: str, dataset: Mapping[str, Sequence[Mapping[str, str]]]
) -> Iterator[Check]:
    """Seed 003 with the published questions."""
    overall = rows(text, "Model\tOP\tMK", "Table 2:")
    sizes = [
        len(dataset[name])
        for name in (
            "医疗知识",
            "医疗语言理解",
            "医疗推理",
            "医疗安全伦理",
            "医疗文本生成",
        )
    ]
    yield Check(
        "LLMEval-Med", "Dataset: questions (README)", [("all", "667", sum(sizes))]
    )
    values = {
        name: [float(cell) for cell in cells[1:]] for name, cells in overall.items()
    }
    yield Check(
        "LLMEval-Med",
        "Table 2: OP as the plain mean of the five categories",
        [(name, cells[0], fmean(values[name])) for name, cells in overall.items()],
        0.005,
    )
    yield Check(
        "LLMEval-Med",
        "Table 2: OP weighted by count, as the README defines it",
        [
            (name, cells[0], _weighted(cells[1:], sizes))
            for name, cells in overall.items()
        ],
        0.005,
    )
    for short, (place, start, end, kinds) in SECONDARY.items():
        of = Counter(
            row["category2"]
            for rows_ in dataset.values()
            for row in rows_
            if row["category2"] in kinds
        )
        parts = {
            _llmeval_name(name): cells for name, cells in rows(text, start, end).items()
        }
        yield Check(
            "LLMEval-Med",
            f"Table 2: {short} from {end}, weighted by the dataset's counts",
            [
                (
                    name,
                    cells[place],
                    _weighted(parts[_llmeval_name(name)], [of[kind] for kind in kinds]),
                )
                for name, cells in overall.items()
            ],
            0.005,
        )
    parts = {
        _llmeval_name(name): cells
        for name, cells in rows(text, "Model\tBasic", "Table 14").items()
    }
    yield Check(
        "LLMEval-Med",
        "Table 2: MK, or the nearest value between its parts in Table 14",
        [
            (name, cells[1], min(max(float(cells[1]), min(mine)), max(mine)))
            for name, cells in overall.items()
            if (mine := [float(cell) for cell in parts[_llmeval_name(name)]])
        ],
    )


def _llmeval_name(name: str) -> str:
    return _letters(name).replace("qwen25", "qwen")


def _weighted(cells: Sequence[str], counts: Sequence[int]) -> float:
    return sum(float(cell) * n for cell, n in zip(cells, counts, strict=True)) / sum(
        counts
    )


MODELS: Final = (
    "Llama-3-70B",
    "OpenBioLLM-70B",
    "Med42-v2-70B",
    "Med42-v2-8B",
    "Llama-3.1-Nemotron-70B",
    "Qwen2.5-72B",
    "Qwen3-8B",
    "Qwen3-235B-A22B",
    "Llama-4-Maverick",
    "GPT-OSS-20B",
    "GPT-OSS-120B",
    "DeepSeek-V3.1",
    "Kimi-K2-Thinking",
    "Mistral-Large-3-675B",
)
"""Table 5's columns; their heads are damaged in the text."""


def medic(text: str) -> Iterator[Check]:
    """Seed 004."""
    tasks = {
        task: {
            model: (cell.split(" ")[0], float(cell.split("(")[1].rstrip(")")))
            for model, cell in zip(MODELS, cells, strict=True)
            if cell != "NA"
        }
        for task, cells in rows(text, "ACT Bench", "Figure 7:").items()
    }
    yield Check(
        "MEDIC",
        "Table 5: ranks, from the scores beside them (equal scores leave a choice)",
        [
            (
                f"{task}, {model}",
                rank,
                _nearest_rank(int(rank), score, of.values(), task == "Med Safety"),
            )
            for task, of in tasks.items()
            for model, (rank, score) in of.items()
        ],
    )
    again = rows(text, "MedQA\tMedMCQA\tMedCalc", "In contrast, operational")
    places = (
        ("MedQA (USMLE)", 0, 100),
        ("MedMCQA", 1, 100),
        ("MedCalc", 2, 1),
        ("EHRSQL", 3, 1),
    )
    yield Check(
        "MEDIC",
        "Table 2, from Table 5",
        [
            (
                f"{task}, {model}",
                cells[place].strip("<u>/"),
                factor * tasks[task][model][1],
            )
            for model, cells in again.items()
            for task, place, factor in places
        ],
    )
    yield Check(
        "MEDIC",
        "Table 3: error flag accuracy, from Table 5",
        [
            (model, cells[0], tasks["MEDEC"][model][1])
            for model, cells in rows(text, "Rouge-L\tBLEU-4", "and localize").items()
            if model in MODELS
        ],
    )
    aligned = rows(text, "Error Type\tCount", "CEF aligns")
    yield Check(
        "MEDIC",
        "Table 10: alignment with human errors, and 3.4 times",
        [
            *(
                (name, cells[2], 100 * int(cells[1]) / int(cells[0]))
                for name, cells in aligned.items()
            ),
            (
                "semantic over non-semantic",
                "3.4",
                float(aligned["Semantic"][2]) / float(aligned["Non-semantic"][2]),
            ),
            (
                "overall count",
                aligned["Overall"][0],
                sum(int(aligned[n][0]) for n in ("Semantic", "Non-semantic")),
            ),
        ],
    )
    caught = rows(text, "Error Type\tCaught", "CEF excels")
    parts = [cells for name, cells in caught.items() if name != "OVERALL"]
    yield Check(
        "MEDIC",
        "Table 11: shares of FRANK's errors, and the totals of its rows",
        [
            *(
                (name, cells[2], 100 * int(cells[0]) / int(cells[1]))
                for name, cells in caught.items()
            ),
            *(
                (
                    f"{what}, OVERALL",
                    caught["OVERALL"][n],
                    sum(int(cells[n]) for cells in parts),
                )
                for n, what in enumerate(("caught", "total"))
            ),
        ],
    )
    yield from _stability(text)


def _stability(text: str) -> Iterator[Check]:
    """Table 12 is broken by its caption, so that its rows are found by their words."""
    found = re.findall(
        r"(?m)^\S*\t(YES|NO|IDK)\t([\d,]+)\t([\d,]+)\t([\d,]+)\t([\d.]+)%", text
    )
    table = [
        (name, [int(n.replace(",", "")) for n in counts], share)
        for name, *counts, share in found
    ]
    kept = [
        (name, share, 100 * counts[n] / sum(counts))
        for (name, counts, share), n in zip(table, (0, 0, 1, 2), strict=True)
    ]
    yield Check("MEDIC", "Table 12: stability", kept)
    to_yes = {name: 100 * counts[0] / sum(counts) for name, counts, _ in table[2:]}
    yield Check(
        "MEDIC",
        "A.4: share of NO and IDK questions that became YES",
        [("NO", "5.6", to_yes["NO"]), ("IDK", "22.3", to_yes["IDK"])],
    )


def _nearest_rank(
    printed: int, score: float, cells: Iterable[tuple[str, float]], lower: bool
) -> float:
    """The printed rank, or the nearest one that the scores of a row allow."""
    scores = [value for _, value in cells]
    better = sum(other < score if lower else other > score for other in scores)
    return min(max(printed, better + 1), better + scores.count(score))


def page(checks: Sequence[Check]) -> str:
    """The whole document."""
    lines = [
        "| paper | figure | same | where it is not: printed, recomputed |",
        "| --- | --- | --- | --- |",
    ]
    for check in checks:
        wrong = check.differing()
        named = [
            f"{of}: {printed}, {value:.{len(printed.partition('.')[2])}f}"
            for of, printed, value in wrong
        ]
        more = (
            [f"and {len(named) - _DIFFERENCES} more"]
            if len(named) > _DIFFERENCES
            else []
        )
        cells = (
            check.paper,
            check.what,
            f"{len(check.pairs) - len(wrong)} of {len(check.pairs)}",
        )
        lines.append(
            "| "
            + " | ".join((*cells, "; ".join([*named[:_DIFFERENCES], *more])))
            + " |"
        )
    return f"""# Published figures, computed again

{measured_line()}

Written by `benchmarks/published.py`; run it to make this page again. Of what ClinConsensus, LLMEval-Med and MEDIC
print, these figures follow from others that they print or publish. All else needs the answers and verdicts of
their models, which they do not publish. A figure is the same where rounding accounts for the difference.

{chr(10).join(lines)}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--shared", type=Path, default=SHARED, help="the folder of seeds and realdata"
    )
    parser.add_argument(
        "--no-write", action="store_true", help="print the page instead of writing it"
    )
    options = parser.parse_args(arguments)
    checks = published(options.shared)
    if checks is None:
        print(
            f"the papers' texts or {DATASET} are absent from {options.shared}",
            file=sys.stderr,
        )
        return 3
    if options.no_write:
        print(page(checks))
    else:
        OUT.write_text(page(checks), encoding="utf-8")
        print(OUT.relative_to(ROOT))
    return 0


def published(shared: Path) -> list[Check] | None:
    """Every figure that can be computed again; None where a file is absent."""
    texts = {
        name: next((shared / "seeds").glob(pattern), None)
        for name, pattern in SEEDS.items()
    }
    if None in texts.values() or not (shared / DATASET).is_file():
        return None
    clin, llm, med = (
        path.read_text(encoding="utf-8") for path in texts.values() if path
    )
    dataset = json.loads((shared / DATASET).read_text(encoding="utf-8"))
    return [*clinconsensus(clin), *llmeval(llm, dataset), *medic(med)]


if __name__ == "__main__":
    sys.exit(main())
