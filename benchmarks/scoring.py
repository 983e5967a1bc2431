"""How long it takes to score a leaderboard from its run folders, and its memory, against limits and peers.

Builds run folders of the published size (38 models, 2,756 cases, 16,702 criteria; made up, with answers and
reasoning of usual length) once, then scores them with `medlive eval score`: every slice, 1,000 draws. Beside it,
in the same run: the json module parsing the same logs line by line and keeping nothing, and the bootstrap as
simple-evals makes it, a numpy draw for each of 1,000 repetitions of each figure (measured on one model, times
their number). Exits 1 when 15 s, 2 GB or 0.5 s for `medlive eval score --help` are passed; the processor time
printed beside the first tells a slow run from a busy machine.
Run: `python benchmarks/scoring.py [--folder KEEP]`.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
    grade_keys,
)
from medlive.evaluation.runs.folder import ModelUse, TemplateUse, create_run
from medlive.evaluation.scoring.estimates import SLICES
from medlive.integrity.digest import canonical_json
from medlive.rubric.model import Axis

LIMIT_S: Final = 15.0
LIMIT_BYTES: Final = 2_000_000_000
HELP_LIMIT_S: Final = 0.5
DRAWS: Final = 1000
AXES: Final = tuple(Axis)
THEMES: Final = (
    "Emergency Referrals",
    "Context-Seeking",
    "Expertise-Tailored Communication",
    "Responding under Uncertainty",
    "Response Depth",
)
WORDS: Final = [
    "the",
    "patient",
    "should",
    "be",
    "seen",
    "within",
    "days",
    "because",
    "swelling",
    "of",
    "one",
    "leg",
    "after",
    "a",
    "long",
    "flight",
    "may",
    "be",
    "a",
    "clot",
    "and",
    "waiting",
    "is",
    "a",
    "risk",
    "while",
    "a",
    "scan",
    "is",
    "quick",
    "so",
    "the",
    "answer",
    "names",
    "it",
    "and",
    "says",
    "where",
    "to",
    "go",
    "and",
    "what",
    "to",
    "take",
    "along",
]


def made_cases(count: int, criteria: int) -> CaseSet:
    """So many cases, with so many criteria in all, over 36 months, 38 specialties and 4 sources."""
    rng = random.Random(0)
    each = [criteria // count + (place < criteria % count) for place in range(count)]
    cases = []
    for place, n in enumerate(each):
        month = f"20{23 + place % 36 // 12}-{place % 12 + 1:02d}"
        cases.append(
            EvaluationCase(
                case_id=f"case-{place:06d}",
                language="en",
                narrative=_text(rng, 150),
                query=_text(rng, 20),
                advice=_text(rng, 80),
                criteria=tuple(
                    EvaluationCriterion(
                        f"case-{place:06d}-c{k}",
                        f"{k} {_text(rng, 18)}",
                        float(
                            rng.choice((10, 8, 6, 5))
                            if k == 0 or rng.random() < 0.8
                            else -rng.choice((4, 8))
                        ),
                        rng.choice(AXES),
                    )
                    for k in range(n)
                ),
                post_time=f"{month}-10T00:00:00",
                month=month,
                source=f"source {place % 4}",
                theme=THEMES[place % 5],
                specialty=f"specialty {rng.randrange(38):02d}",
                first_release=f"2026.W{1 + place % 40:02d}",
            )
        )
    return CaseSet(
        tuple(cases), "livemedbench", "made-up.json", "sha256:" + "0" * 64, None
    )


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def build(folder: Path, models: int, cases: CaseSet) -> list[Path]:
    """The run folders, made where they are not there yet."""
    rng = random.Random(1)
    runs = []
    for number in range(models):
        path = folder / f"model-{number:02d}"
        runs.append(path)
        if (path / "grades.jsonl").exists():
            continue
        use = ModelUse(f"model-{number:02d}")
        at = datetime(2026, 11, 21, tzinfo=UTC)
        create_run(
            path, cases, use, TemplateUse(name="livemedbench-v1", digest=None), at
        )
        quality = 0.3 + 0.5 * number / models
        judge = "sha256:" + "1" * 64
        responses, grades = [], []
        for case in cases.cases:
            answer = Answer(
                case.case_id, AnswerState.OK, _text(rng, 250), "stop", use.model
            )
            responses.append(canonical_json(answer.row()) + "\n")
            for criterion, key in zip(
                case.criteria, grade_keys(case, answer, judge).values(), strict=True
            ):
                met = (rng.random() < quality) is (criterion.points > 0)
                reasoning, quote = _text(rng, 35), _text(rng, 8) if met else ""
                grades.append(
                    canonical_json(
                        {
                            "case_id": case.case_id,
                            "criterion_id": criterion.id,
                            "key": key,
                            "met": met,
                            "quote": quote,
                            "reasoning": reasoning,
                            "reason": "",
                            "grader": "judge-1",
                            "engine": "openai",
                            "raw": json.dumps(
                                {"met": met, "quote": quote, "reasoning": reasoning}
                            ),
                            "model": "judge-1",
                            "mode": "criterion",
                            "prompt": "sha256:" + "2" * 64,
                            "judge": judge,
                            "usage": {
                                "input_tokens": 900,
                                "output_tokens": 90,
                                "latency_ms": 900.0,
                            },
                        }
                    )
                    + "\n"
                )
        (path / "responses.jsonl").write_text("".join(responses), "utf-8")
        # The last file, so that a build that was cut off is taken up where it stopped.
        partial = path / "grades.partial"
        partial.write_text("".join(grades), "utf-8")
        partial.replace(path / "grades.jsonl")
    return runs


def parts(runs: list[Path]) -> dict[str, float]:
    """Seconds of each part, in this process."""
    from medlive.evaluation.scoring.graded import load_graded
    from medlive.evaluation.scoring.score import score_runs

    started = time.perf_counter()
    graded = [load_graded(path) for path in runs]
    read = time.perf_counter()
    score_runs(graded, draws=1)
    scored = time.perf_counter()
    score_runs(graded, draws=DRAWS)
    drawn = time.perf_counter()
    once = scored - read
    return {
        "reading": read - started,
        "scoring": once,
        "bootstrap": drawn - scored - once,
    }


def plain_parse_s(runs: list[Path]) -> float:
    """The json module over every line of the same logs."""
    started = time.perf_counter()
    for path in runs:
        for name in ("responses.jsonl", "grades.jsonl"):
            with (path / name).open("rb") as handle:
                for line in handle:
                    json.loads(line)
    return time.perf_counter() - started


def simple_bootstrap_s(figures: list[int], models: int) -> float:
    """simple-evals' way for one model's figures of these sizes, times the number of models."""
    rng = np.random.default_rng(0)
    columns = [rng.random(n) for n in figures]
    started = time.perf_counter()
    for values in columns:
        np.std([np.mean(np.random.choice(values, len(values))) for _ in range(DRAWS)])
    return (time.perf_counter() - started) * models


def command(arguments: list[str]) -> tuple[float, float, int]:
    """Seconds, seconds of processor, and the largest process's peak memory in bytes, of a command."""
    started = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(arguments[:4])} … exited {child.returncode}")
    return (
        time.perf_counter() - started,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
    )


def main() -> int:
    """Print the table; the exit status says whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, help="where the run folders are kept for the next time"
    )
    parser.add_argument("--models", type=int, default=38)
    parser.add_argument("--cases", type=int, default=2756)
    parser.add_argument("--criteria", type=int, default=16_702)
    parser.add_argument("--parts", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        cases = made_cases(chosen.cases, chosen.criteria)
        runs = build(folder, chosen.models, cases)
        if chosen.parts:
            print(json.dumps(parts(runs)))
            return 0
        return measure(folder, runs, cases, chosen)


def measure(folder: Path, runs: list[Path], cases: CaseSet, chosen: Any) -> int:
    """Time the command, its parts and the peers, and hold them against the limits."""
    size = sum(f.stat().st_size for run in runs for f in run.iterdir())
    print(
        f"{len(runs)} models, {len(cases)} cases, {chosen.criteria} criteria each, {size / 1e6:.0f} MB of logs"
    )
    whole, cpu, peak = command(
        ["-m", "medlive", "eval", "score", "--format", "json", *map(str, runs)]
    )
    print(
        f"medlive eval score  {whole:6.2f} s, {whole / LIMIT_S:.2f} of the limit of {LIMIT_S:g} s "
        f"({cpu:.1f} s of processor on {os.cpu_count()}, load {os.getloadavg()[0]:.1f}); "
        f"peak {peak / 1e6:.0f} MB, {peak / LIMIT_BYTES:.2f} of the limit of {LIMIT_BYTES / 1e9:g} GB"
    )
    own = [
        sys.executable,
        __file__,
        "--parts",
        "--folder",
        str(folder),
        "--models",
        str(chosen.models),
        "--cases",
        str(chosen.cases),
        "--criteria",
        str(chosen.criteria),
    ]
    took = json.loads(
        subprocess.run(own, check=True, capture_output=True, text=True).stdout
    )
    for name, seconds in took.items():
        print(f"  {name:17} {seconds:6.2f} s")
    plain = plain_parse_s(runs)
    print(
        f"json.loads of the same logs {plain:6.2f} s: reading takes {took['reading'] / plain:.2f} of it"
    )
    values: dict[tuple[str, str | None], int] = {}
    for case in cases.cases:
        for key in (
            ("", ""),
            *((kind, value_of(case)) for kind, value_of in SLICES.items()),
        ):
            values[key] = values.get(key, 0) + 1
    loop = simple_bootstrap_s(list(values.values()), len(runs))
    print(
        f"a numpy draw for each figure {loop:6.2f} s ({len(values)} figures, {len(runs)} models, no pairs): "
        f"the bootstrap takes {took['bootstrap'] / loop:.3f} of it"
    )
    starts = [
        command(["-m", "medlive", "eval", "score", "--help"])[0] for _ in range(6)
    ]
    start = statistics.median(starts[1:])
    print(
        f"medlive eval score --help {start:.3f} s, {start / HELP_LIMIT_S:.2f} of the limit of {HELP_LIMIT_S} s"
    )
    return (
        0 if whole <= LIMIT_S and peak <= LIMIT_BYTES and start <= HELP_LIMIT_S else 1
    )


if __name__ == "__main__":
    raise SystemExit(main())
