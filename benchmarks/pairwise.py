"""Adaptive matching beside a full round robin: the widths of the ratings' intervals for half of the calls.

A judge is simulated: each answer has a quality of its own around its model's strength, the judge sees it with
noise, prefers the first place a little, and calls near ones equal. Exit status 1 where the mean width exceeds the
round robin's by more than 10 %.
"""

import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

from medlive.evaluation.model import Answer, AnswerState, EvaluationCase
from medlive.evaluation.protocols.model import Subject
from medlive.evaluation.protocols.pairwise import CRITERIA, Pairwise, Schedule
from medlive.evaluation.protocols.runner import read_findings, run_protocol
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage

CASES = 60
SPREAD = 600.0
OWN = 200.0
"""Elo by which answers of one model differ."""
NOISE, PLACE, EQUAL = 120.0, 40.0, 60.0
MOST = 1.1


class SimulatedJudge:
    """Prefers by the quality that an answer's text states."""

    identity = EngineIdentity("simulated", "judge")

    async def answer(self, request: Request) -> Reply:
        """A preference; the same for the same request."""
        first, second = (
            float(str(request.inputs[side])) for side in ("first", "second")
        )
        rng = random.Random(f"{request.inputs['question']} {first} {second}")
        gap = first - second + rng.gauss(0, NOISE) + PLACE
        better = "equal" if abs(gap) < EQUAL else "first" if gap > 0 else "second"
        text = json.dumps(
            {"reasoning": "", **dict.fromkeys(CRITERIA, better), "better": better}
        )
        return Reply(text, Finish.STOP, Usage(), "judge")

    async def aclose(self) -> None:
        """Nothing to let go of."""


def subjects(models: int) -> list[Subject]:
    """Models of evenly spread strength, each with an answer to every case."""
    cases = tuple(
        EvaluationCase(f"c{n}", "en", "", f"question {n}", "advice", (), "", None)
        for n in range(CASES)
    )
    rng = random.Random(1)
    found = []
    for place in range(models):
        strength = SPREAD * place / (models - 1)
        answers = {
            case.case_id: Answer(
                case.case_id,
                AnswerState.OK,
                f"{rng.gauss(strength, OWN):.3f}",
                "stop",
                "m",
            )
            for case in cases
        }
        found.append(Subject(f"m{place}", cases, answers))
    return found


def measure(models: int, schedule: Schedule) -> tuple[int, float]:
    """Calls, and the mean width of the intervals in Elo points."""
    material, judge, protocol = (
        subjects(models),
        SimulatedJudge(),
        Pairwise(schedule=schedule, draws=300),
    )
    with tempfile.TemporaryDirectory() as folder:
        done = asyncio.run(run_protocol(protocol, material, Path(folder), judge))
        found, _ = read_findings(protocol, Path(folder), judge.identity)
        rows = protocol.results(material, found).tables[0].rows
    return done.calls, sum(
        float(row[3] or 0) - float(row[2] or 0) for row in rows
    ) / models


def main() -> int:
    """Print a line for each number of models."""
    worst = 0.0
    for models in (6, 12):
        whole, full = measure(models, Schedule.ROUND_ROBIN)
        calls, width = measure(models, Schedule.ADAPTIVE)
        both = CASES * models * (models - 1)
        worst = max(worst, width / full)
        print(
            f"{models} models, {CASES} cases. Round robin in both orders: {both} calls ({whole} as a first equal "
            f"ends a match), width {full:.1f} Elo. Adaptive: {calls} calls, {calls / both:.2f} of them, width "
            f"{width:.1f}, {width / full:.2f} of it (limit {MOST})"
        )
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
