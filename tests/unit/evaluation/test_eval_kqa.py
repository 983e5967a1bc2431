"""K-QA: read whole, and scored as its own script scores it."""

import csv
import json
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.runs.folder import open_run
from tests.support.foreign import lines, medlive

REAL = Path(__file__).parents[4] / "shared" / "realdata" / "agreement"
KQA = REAL / "kqa_NLI_medical_annotator.csv"
real = pytest.mark.skipif(
    not KQA.exists(), reason="../shared/realdata/agreement is absent"
)


HEAD = [
    "",
    "Question",
    "llm_x",
    "answer",
    "claim",
    "category_x",
    "majority_label",
    "label_0",
    "label_1",
    "label_2",
]


def labels(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        return list(csv.DictReader(handle))


def comprehensiveness(
    rows: Sequence[Mapping[str, str]], met: Mapping[str, set[str]], model: str = ""
) -> Fraction:
    """K-QA's `Comp_norm`: the share of what an answer must have that it entails, mean over answers."""
    must: dict[tuple[str, str], list[bool]] = {}
    for row in rows:
        if row["category_x"] == "Must_have" and model in ("", row["llm_x"]):
            entailed = sum(
                row[column] in words for column, words in met.items()
            ) * 2 > len(met)
            must.setdefault((row["Question"], row["llm_x"]), []).append(entailed)
    return sum(
        (Fraction(sum(one), len(one)) for one in must.values()), Fraction()
    ) / len(must)


def check_kqa(path: Path, run: Path) -> None:
    files = ("--cases", path, "--responses", path, "--grades", path)
    medlive("import", "--format", "kqa", *files, "--model", "all", "--out", run)
    rows = labels(path)
    raters = {f"label_{n}": {f"label_{n}": {"Entailment"}} for n in range(3)}
    for judge, met in raters.items():
        out = medlive("score", run, "--judge", judge, "--format", "json").stdout
        (model,) = json.loads(out)["models"]
        assert model["overall"]["mean"] == pytest.approx(
            float(comprehensiveness(rows, met)), abs=1e-12
        )
        by_model = {
            s["value"]: s["mean"] for s in model["slices"] if s["kind"] == "source"
        }
        assert by_model == pytest.approx(
            {m: float(comprehensiveness(rows, met, m)) for m in by_model}, abs=1e-12
        )
        assert by_model.keys() <= {row["llm_x"] for row in rows}


def test_kqas_labelled_statements_have_its_own_scripts_comprehensiveness(
    tmp_path: Path,
) -> None:
    rng, path = random.Random(1), tmp_path / "nli.csv"
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(HEAD)
        for n in range(40):
            question, kind = (
                f"Q{n // 4}?",
                rng.choice(["Must_have", "Must_have", "Nice_to_have"]),
            )
            given_ = [
                rng.choice(["Entailment", "Neutral", "Contradiction"]) for _ in range(3)
            ]
            model = "ab"[n // 4 % 2]
            writer.writerow(
                [
                    n,
                    question,
                    model,
                    f"Answer to {question}",
                    f"S{n}",
                    kind,
                    "?",
                    *given_,
                ]
            )
    check_kqa(path, tmp_path / "run")
    cases = open_run(tmp_path / "run").cases
    assert (len(cases), len({case.cluster for case in cases})) == (10, 10)
    only = tmp_path / "only"
    medlive(
        "import",
        "--cases",
        path,
        "--responses",
        path,
        "--source",
        "a",
        "--model",
        "a",
        "--out",
        only,
    )
    assert {case.source for case in open_run(only).cases} == {"a"}


def test_kqas_questions_are_scored_on_what_an_answer_must_have(tmp_path: Path) -> None:
    row = {
        "Question": "Why?",
        "Free_form_answer": "So.",
        "Must_have": ["A", "B"],
        "Nice_to_have": ["C", " "],
        "Sources": "x",
        "ICD_10_diag": "y",
    }
    cases = lines(
        tmp_path / "kqa.jsonl", [row, {**row, "Question": "What?", "Must_have": "A"}]
    )
    answers = tmp_path / "results.json"
    answers.write_text(json.dumps([{"Question": "Why?", "result": "A and C."}]))
    found = load_cases(cases)
    assert found.notes == ("kqa.jsonl, line 2: Must_have: expected a list; left out",)
    (case,) = found.cases
    assert [(c.criterion, c.points, c.axis) for c in case.criteria] == [
        ("A", 1.0, "Must_have"),
        ("B", 1.0, "Must_have"),
        ("C", 0.0, "Nice_to_have"),
    ]
    medlive(
        "import",
        "--cases",
        cases,
        "--responses",
        answers,
        "--model",
        "m",
        "--out",
        tmp_path / "run",
    )
    answers_ = open_run(tmp_path / "run").answers()[0]
    assert {name: answer.response for name, answer in answers_.items()} == {
        case.case_id: "A and C."
    }


@real
@pytest.mark.thorough
def test_the_published_sets_come_out_to_the_last_digit(tmp_path: Path) -> None:
    check_kqa(KQA, tmp_path / "kqa")
