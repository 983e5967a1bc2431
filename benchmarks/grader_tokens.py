"""Tokens of a graded criterion in rubric mode against criterion mode, on runs of a snapshot.

Grades copies of run folders in both modes by the rules engine behind a real local endpoint, which counts what
comes and what it says: the whole messages with the reply's shape on one side, the reply on the other. Characters
count by script for both modes alike (medlive.evaluation.asking.plan), with the bytes beside them. Also the share
of what is sent that the call before sent as its beginning: what an endpoint's prefix cache can hold. Exits 1 when
rubric mode takes more than 0.4 of the tokens of criterion mode.
Run: `python benchmarks/grader_tokens.py [RUN_DIR...]`; without one, on the demo's samples as the rules engine
curates them, answered by a sample candidate.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from medlive.clock import now
from medlive.curation.chain import ROLES, CurationSettings, curate
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.evaluation.asking.plan import estimate_tokens
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.evaluation.runs.folder import GRADES
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.index import open_index
from medlive.grader.judge import Mode
from medlive.guard.serving import serve_app
from medlive.integrity.digest import canonical_json, digest_json
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.openai import OpenAIEngine
from medlive.llm.registry import RoleEndpoint
from medlive.llm.replay import ReplayEngine
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.rules.server import build_app, generic_answer
from medlive.service.curation.complete import complete_case
from medlive.threads.model import Message, Thread
from medlive.threads.prepare import deidentified, normalised, thread_language

MOST: float = 0.4


class Forgetful:
    """A store of replies that keeps none."""

    async def find(self, request_digest: str) -> Reply | None:
        """None."""
        return None

    async def keep(
        self,
        request_digest: str,
        request: Request,
        identity: EngineIdentity,
        reply: Reply,
    ) -> None:
        """Let it go."""


def common_beginning(first: str, second: str) -> str:
    """What two texts begin with alike."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return first[:place]
    return min(first, second, key=len)


@dataclass
class Counted:
    """What came to the endpoint in one mode, and what it said."""

    requests: int = 0
    asked: int = 0
    cacheable: int = 0
    answered: int = 0
    bytes: int = 0
    before: str = ""

    def take(self, body: dict[str, Any], reply: dict[str, Any]) -> None:
        """Count one exchange."""
        sent = "\n".join(
            [
                canonical_json(body.get("response_format")),
                *(message["content"] for message in body["messages"]),
            ]
        )
        said = reply["choices"][0]["message"]["content"]
        tokens, shared = (
            estimate_tokens(sent),
            estimate_tokens(common_beginning(self.before, sent)),
        )
        self.requests, self.before = self.requests + 1, sent
        self.asked, self.cacheable = self.asked + tokens, self.cacheable + shared
        self.answered += estimate_tokens(said)
        self.bytes += len(sent.encode("utf-8", "replace")) + len(
            said.encode("utf-8", "replace")
        )


@asynccontextmanager
async def counting(counted: Counted) -> AsyncIterator[str]:
    """The rules engine as an endpoint that counts; its base URL."""

    async def count(request: HttpRequest, answer: RequestResponseEndpoint) -> Response:
        asked = await request.json()
        response = await answer(request)
        replied = b"".join([bytes(part) async for part in response.body_iterator])  # type: ignore[attr-defined]
        counted.take(asked, json.loads(replied))
        return Response(replied, media_type="application/json")

    engine = RulesEngine()
    app = build_app(engine)
    app.add_middleware(BaseHTTPMiddleware, dispatch=count)
    try:
        async with serve_app(app, "127.0.0.1", 0) as address:
            yield f"{address}/v1"
    finally:
        await engine.aclose()


async def measure(runs: Sequence[Path], mode: Mode) -> tuple[Counted, int]:
    """What grading the runs afresh takes in a mode; and the criteria graded."""
    counted, criteria = Counted(), 0
    with tempfile.TemporaryDirectory() as folder:
        async with counting(counted) as url:
            engine = OpenAIEngine(RoleEndpoint(model="rules", base_url=url))
            for number, run in enumerate(runs):
                copy = Path(folder) / str(number)
                shutil.copytree(run, copy)
                (copy / GRADES).unlink(missing_ok=True)
                # One call at a time: what the call before sent is then in the endpoint's cache.
                done = await grade_run(copy, engine, mode=mode, concurrency=1)
                if done.ungraded:
                    raise SystemExit(
                        f"{run}: {done.ungraded} criteria stay ungraded in {mode} mode"
                    )
                criteria += done.criteria
            await engine.aclose()
    return counted, criteria


async def sample_run(folder: Path) -> Path:
    """A run folder of the demo's samples: cases as the rules engine curates them, a sample candidate's answers."""
    build_index([open_corpus(sample_evidence_path(), name="demo")], folder / "index")
    retriever = open_index(folder / "index")
    cases = []
    for sample in load_sample_threads():
        messages = tuple(
            Message(f"m{i}", m.author, m.role, m.verified, m.text, m.posted_at, m.media)
            for i, m in enumerate(sample.messages)
        )
        thread = Thread(
            "sample",
            sample.thread_id,
            sample.url,
            sample.title,
            sample.language,
            sample.tags,
            sample.posted_at,
            messages,
        )
        thread = normalised(thread)
        language = thread_language(thread)
        thread = deidentified(thread, language)
        rules = dict.fromkeys(
            (*ROLES, "rubric"), ReplayEngine(RulesEngine(), Forgetful())
        )
        curation = await curate(
            thread,
            language,
            rules,
            retriever,
            CurationSettings(),
            run_date=date(2026, 1, 1),
        )
        if curation.text is None:
            continue
        done, rubric, _ = await complete_case(curation, language, rules)
        text = done.text
        assert text is not None
        assert rubric is not None
        criteria = tuple(
            EvaluationCriterion(
                f"{sample.thread_id}-{c.id}", c.criterion, c.points, c.axis
            )
            for c in rubric.criteria
        )
        cases.append(
            EvaluationCase(
                sample.thread_id,
                language,
                text.narrative,
                text.query,
                text.advice,
                criteria,
                "",
                None,
            )
        )
    out = folder / "run"
    answers = [
        Answer(
            c.case_id,
            AnswerState.OK,
            generic_answer(c.question),
            "stop",
            "sample-generic",
        )
        for c in cases
    ]
    made = CaseSet(
        tuple(cases),
        "snapshot",
        "samples",
        digest_json([c.row() for c in cases]),
        False,
    )
    import_answers(out, made, answers, "sample-generic", now())
    return out


def main() -> int:
    """Print both modes and their ratio; the exit status says whether it is small enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN_DIR")
    runs = parser.parse_args().runs
    made = tempfile.TemporaryDirectory()
    if not runs:
        runs = [asyncio.run(sample_run(Path(made.name)))]
    print(
        "tokens a criterion: sent, the share of it that can be cached, said, all, all that is not cached; bytes"
    )
    print(
        "mode         calls  criteria    sent  cacheable   said    all  uncached   bytes"
    )
    whole: dict[Mode, float] = {}
    for mode in Mode:
        counted, criteria = asyncio.run(measure(runs, mode))
        sent, said, held = (
            n / criteria for n in (counted.asked, counted.answered, counted.cacheable)
        )
        whole[mode] = sent + said
        print(
            f"{mode:10} {counted.requests:>7} {criteria:>9} {sent:>7.0f} {held / sent:>10.1%} {said:>6.0f}"
            f" {whole[mode]:>6.0f} {whole[mode] - held:>9.0f} {counted.bytes / criteria:>7.0f}"
        )
    made.cleanup()
    ratio = whole[Mode.RUBRIC] / whole[Mode.CRITERION]
    print(
        f"rubric mode against criterion mode, tokens a criterion: {ratio:.3f} (at most {MOST})"
    )
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
