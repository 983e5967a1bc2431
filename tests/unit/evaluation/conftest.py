"""Cases, a scripted engine and a scripted model for the evaluation's tests."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import EndpointUnavailable
from medlive.evaluation.asking.run import RunResult
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.grading.imports import import_run
from medlive.evaluation.model import CaseSet, EvaluationCase, EvaluationCriterion
from medlive.evaluation.runs.folder import ModelUse
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage

AT = datetime(2026, 11, 21, tzinfo=UTC)
USE = ModelUse("cand-1")


def make_cases(n: int, criteria: int = 3) -> CaseSet:
    points = (5.0, -4.0, 3.0, 2.0, -1.0)
    axes = ("Accuracy", "Safety", "Completeness", "Accuracy", "Communication Quality")
    cases = tuple(
        EvaluationCase(
            case_id=f"c{i:03d}",
            language="zh" if i % 2 else "en",
            narrative=f"Narrative {i}: it costs $5 and ${{query}} hurts."
            if i % 2 == 0
            else f"病史 {i}",
            query="What now?" if i % 2 == 0 else "怎么办？",
            advice="Rest.",
            criteria=tuple(
                EvaluationCriterion(f"k{j}", f"criterion {i}.{j}", points[j], axes[j])
                for j in range(criteria)
            ),
            post_time=f"2025-{1 + i % 12:02d}-03T00:00:00",
            month=f"2025-{1 + i % 12:02d}",
            source="icliniq",
            theme="Response Depth",
            specialty="Cardiology",
            first_release="2026.W47",
        )
        for i in range(n)
    )
    return CaseSet(cases, "snapshot", "2026.W47", "sha256:" + "0" * 64, True)


def reply(text: str, finish: Finish = Finish.STOP, model: str = "judge-1") -> Reply:
    return Reply(text, finish, Usage(input_tokens=10, output_tokens=2), model)


class Model:
    """A model under evaluation that answers by a function of the prompt and may fail."""

    def __init__(
        self, answer: Callable[[str], Reply | Exception] | None = None
    ) -> None:
        self.prompts: list[str] = []
        self._answer = answer or (
            lambda prompt: reply(f"Drink water. {prompt[:20]}", model="cand-1")
        )

    async def __call__(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        await asyncio.sleep(0)
        self.prompts.append(messages[-1]["content"])
        said = self._answer(messages[-1]["content"])
        if isinstance(said, Exception):
            raise said
        return said


class Judge:
    """An engine that answers grader tasks by a function of the request."""

    def __init__(
        self,
        answer: Callable[[Request], Reply | str | Exception],
        engine: str = "openai",
        model: str = "judge-1",
    ) -> None:
        self.requests: list[Request] = []
        self._answer = answer
        self._engine, self._model = engine, model
        self.pinned = True

    @property
    def identity(self) -> EngineIdentity:
        parameters = {"temperature": 0}
        return EngineIdentity(self._engine, self._model, parameters, self.pinned)

    async def answer(self, request: Request) -> Reply:
        await asyncio.sleep(0)
        self.requests.append(request)
        said = self._answer(request)
        if isinstance(said, Exception):
            raise said
        return reply(said, model=self._model) if isinstance(said, str) else said

    async def aclose(self) -> None:
        return None


def verdict(met: bool, quote: str = "Drink water", **more: Any) -> str:
    return json.dumps(
        {"met": met, "quote": quote if met else "", "reasoning": "because"} | more
    )


def down() -> EndpointUnavailable:
    return EndpointUnavailable("the endpoint gave status 500")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def import_files(place: Path, responses: Path, out: Path, **how: Any) -> RunResult:
    """`import_run` of all cases of a file or a folder."""
    return import_run(load_cases(place), responses, out, place=place, **how)
