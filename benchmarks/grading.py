"""How fast `medlive eval grade` asks an endpoint, beside what the machine and other clients can do.

An endpoint in a process of its own answers grader requests after 50 ms or 2 s; it reads no more of a request than
it must. Against it, in the same run and in turns: a bare aiohttp session that sends the same bytes (the ceiling of
client, endpoint and machine together), the official client's typed call on its default transport (the peer), and
`grade_run` on a run folder of as many criteria as LiveMedBench has, from rendering to the log's last line. Every
measured part has a process of its own, so that its peak memory is its own. A protocol's questions about the same
answers are asked too. Then the same folder is graded again, with nothing left to ask. Exits 1 when a target is missed.
Run: `python benchmarks/grading.py [--quick] [--criteria 16702]`.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web
from openai import AsyncOpenAI

from medlive.cli.output import COLLECT_AT
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.grading.grade import Work, grade_run
from medlive.evaluation.grading.questions import ask_questions
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.evaluation.protocols.checklist import Checklist
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.grader.judge import Judge, Mode
from medlive.integrity.digest import canonical_json
from medlive.llm.openai import OpenAIEngine
from medlive.llm.registry import RoleEndpoint

CRITERIA: Final = 16_702
"""LiveMedBench's."""
PER_CASE: Final = 6
GRADER: Final = "grader-1"
QUOTE: Final = "Rest the foot and drink enough water."
TIMES_DEFAULT, OF_IDEAL, WARM_S, HELP_S, GROWTH = 1.0, 1.05, 3.0, 0.5, 1.25
"""The targets; GROWTH is what the peak memory at full size may be of that at a quarter."""
DISTINCT: Final = 240
"""So many different bodies the other clients send, in turn."""

Call = Callable[[int], Awaitable[object]]


class Measured(NamedTuple):
    """One measured part."""

    calls: int
    seconds: float
    cpu_s: float
    peak_mb: float

    @property
    def per_second(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds

    @property
    def cpu_ms(self) -> float:
        """The client's CPU a call."""
        return self.cpu_s * 1000 / self.calls


def cases(criteria: int) -> CaseSet:
    """Synthetic cases of the size of real ones; every other one Chinese."""
    made: list[EvaluationCase] = []
    for number in range(-(-criteria // PER_CASE)):
        zh = number % 2 == 1
        story = (
            "患者两天前开始右足拇趾红肿热痛，夜间加重，既往有高血压病史。"
            if zh
            else (
                "The patient has had a red, hot and painful big toe for two days and takes a diuretic. "
            )
        )
        made.append(
            EvaluationCase(
                case_id=f"case-{number:05d}",
                language="zh" if zh else "en",
                narrative=f"{number}. " + story * (12 if zh else 8),
                query="需要怎么处理？"
                if zh
                else "What is it, and what should she do now?",
                advice="This is gout.",
                criteria=tuple(
                    EvaluationCriterion(
                        f"k{k}",
                        f"States for case {number} that finding {k} speaks for gout and says what to do about it.",
                        float((5, 3, -4, 2, 1, -2)[k]),
                        "Accuracy",
                    )
                    for k in range(min(PER_CASE, criteria - number * PER_CASE))
                ),
                post_time="2026-01-02T00:00:00",
                month="2026-01",
            )
        )
    return CaseSet(tuple(made), "livemedbench", "synthetic", "sha256:" + "0" * 64, True)


def make_run(folder: Path, criteria: int) -> Path:
    """A run folder with an answer for every case, none graded."""
    found = cases(criteria)
    text = {
        "en": "This looks like gout. It is best to see a physician this week, since the joint should be tapped. "
        * 14,
        "zh": "这很可能是痛风，建议本周就医，必要时做关节穿刺检查。" * 24,
    }
    answers = [
        Answer(
            c.case_id,
            AnswerState.OK,
            f"{c.case_id}: {text[c.language]}{QUOTE}",
            "stop",
            "candidate",
        )
        for c in found.cases
    ]
    import_answers(
        folder, found, answers, "candidate", datetime(2026, 11, 21, tzinfo=UTC)
    )
    return folder


def _completions() -> tuple[bytes, bytes]:
    said = (
        "The answer names the finding and what follows from it, in words that leave no doubt. "
        * 3
    )
    return tuple(  # type: ignore[return-value]
        _completion(
            json.dumps({"quote": QUOTE if met else "", "reasoning": said, "met": met})
        )
        for met in (False, True)
    )


def _completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text, "refusal": None}
    usage = {"prompt_tokens": 900, "completion_tokens": 90, "total_tokens": 990}
    return json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": GRADER,
            "usage": usage,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": message,
                    "logprobs": None,
                }
            ],
        }
    ).encode()


def endpoint(url: Connection) -> None:
    """Serve `/<milliseconds>/v1/chat/completions` until the process is ended."""
    single, scored = (
        _completions(),
        _completion(json.dumps({"reasoning": "It says so.", "score": 4})),
    )
    rubrics: dict[int, bytes] = {}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if b'\\"core\\":' in body:
            reply = scored
        elif (n := body.count(b'{\\"id\\":')) == 0:
            reply = single[len(body) % 2]
        elif (known := rubrics.get(n)) is not None:
            reply = known
        else:
            one = {"met": True, "quote": QUOTE, "reasoning": "It says so."}
            grades = [{"id": f"k{k}", **one} for k in range(n)]
            reply = rubrics[n] = _completion(json.dumps({"grades": grades}))
        await asyncio.sleep(int(request.path.split("/")[1]) / 1000)
        return web.Response(body=reply, content_type="application/json")

    async def run() -> None:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        url.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    asyncio.run(run())


def bodies(mode: Mode = Mode.CRITERION) -> list[bytes]:
    """What `grade_run` sends for the first criteria, ready made."""
    found = cases(DISTINCT)
    engine = OpenAIEngine(RoleEndpoint(model=GRADER, base_url="http://127.0.0.1:9/v1"))
    judge = Judge(engine.identity, mode)
    answer = Answer("", AnswerState.OK, QUOTE * 35, "stop", "candidate")
    works = (
        Work(c, answer, part) for c in found.cases for part in judge.parts(c.criteria)
    )
    return [
        canonical_json(engine.body(work.call(judge).request)).encode() for work in works
    ]


async def _many(call: Call, concurrency: int, calls: int) -> None:
    left = iter(range(calls))

    async def worker() -> None:
        for number in left:
            await call(number)

    await asyncio.gather(*(worker() for _ in range(concurrency)))


async def bare(url: str, concurrency: int, calls: int) -> None:
    """A bare aiohttp session that reads the replies as JSON and looks at nothing."""
    sent = bodies()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, headers={"Content-Type": "application/json"}
    ) as session:

        async def call(number: int) -> object:
            async with session.post(
                f"{url}/chat/completions", data=sent[number % len(sent)]
            ) as response:
                return json.loads(await response.read())

        await _many(call, concurrency, calls)


async def official(url: str, concurrency: int, calls: int) -> None:
    """The official client as its manual says."""
    sent = [json.loads(body) for body in bodies()]
    async with AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:

        async def call(number: int) -> object:
            return await client.chat.completions.create(**sent[number % len(sent)])

        await _many(call, concurrency, calls)


async def grade(url: str, concurrency: int, run: str, mode: str = "criterion") -> None:
    """`medlive eval grade`, but for its command line."""
    engine = OpenAIEngine(
        RoleEndpoint(model=GRADER, base_url=url, concurrency=concurrency)
    )
    try:
        result = await grade_run(
            Path(run), engine, mode=Mode(mode), concurrency=concurrency
        )
    finally:
        await engine.aclose()
    if result.ungraded:
        raise RuntimeError(
            f"{result.ungraded} ungraded: {result.reasons}; {result.notes}"
        )


async def checklist(url: str, concurrency: int, run: str) -> None:
    """`medlive eval protocol run checklist` with a round for each criterion, but for its command line."""
    engine = OpenAIEngine(
        RoleEndpoint(model=GRADER, base_url=url, concurrency=concurrency)
    )
    material, out = [load_graded(Path(run))], Path(f"{run}-protocols")
    try:
        result = await ask_questions(
            *Checklist(rounds=PER_CASE).work(material, out),
            engine,
            concurrency=concurrency,
        )
    finally:
        await engine.aclose()
    if result.settled < result.questions:
        raise RuntimeError(
            f"{result.questions - result.settled} ungraded: {result.reasons}; {result.notes}"
        )


def _measured(
    work: Callable[..., Awaitable[None]], arguments: tuple[object, ...], out: Connection
) -> None:
    gc.freeze()  # as the command does, and so its thresholds
    gc.set_threshold(*COLLECT_AT)

    async def run() -> tuple[float, float]:
        started, cpu = time.perf_counter(), time.process_time()
        await work(*arguments)
        return time.perf_counter() - started, time.process_time() - cpu

    seconds, cpu_s = asyncio.run(run())
    status = Path("/proc/self/status").read_text("ascii")
    peak = next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
    )
    out.send((seconds, cpu_s, peak / 1024))


def measure(
    work: Callable[..., Awaitable[None]], calls: int, *arguments: object
) -> Measured:
    """Do the work in a new process."""
    here, there = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_measured, args=(work, arguments, there))
    process.start()
    there.close()
    try:
        seconds, cpu_s, peak = here.recv()
    except EOFError:
        raise SystemExit(f"{work.__name__} failed") from None
    finally:
        process.join()
    return Measured(calls, seconds, cpu_s, peak)


def started() -> tuple[str, BaseProcess]:
    """The endpoint in a process of its own: its address, and the process."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=endpoint, args=(there,), daemon=True
    )
    process.start()
    return here.recv(), process


def command(*arguments: str) -> float:
    """Seconds that a `medlive` command takes from start to end."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "medlive", *arguments], check=True, capture_output=True
    )
    seconds = time.perf_counter() - began
    if "--json" in arguments and (calls := json.loads(done.stdout)["calls"]):
        raise RuntimeError(f"{calls} calls were made where none was left to make")
    return seconds


class Verdicts:
    """Targets and whether they were reached."""

    def __init__(self) -> None:
        self.missed = False

    def check(self, reached: bool, told: str) -> None:
        """Print one, with its mark."""
        self.missed = self.missed or not reached
        print(f"{'reached' if reached else 'MISSED '}  {told}")


def row(name: str, one: Measured, ceiling: float) -> None:
    """Print one part."""
    print(
        f"  {name:34} {one.per_second:6.0f}/s  {one.per_second / ceiling:5.2f} of bare  "
        f"{one.cpu_ms:5.2f} CPU ms a call  peak {one.peak_mb:4.0f} MB"
    )


def cpu_of(process: BaseProcess) -> float:
    """CPU seconds of the endpoint so far."""
    fields = (
        Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    )
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def throughput(
    base: str, server: BaseProcess, folder: Path, criteria: int, verdicts: Verdicts
) -> Path:
    """The 50 ms part; the graded folder."""
    url, quarter, at_once = f"{base}/50/v1", criteria // 4, 128
    print(
        f"50 ms, {at_once} at once, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    ceilings: list[Measured] = []
    ours: list[Measured] = []
    before = cpu_of(server)
    for number in range(2):
        ceilings.append(measure(bare, quarter, url, at_once, quarter))
        small = make_run(folder / f"quarter{number}", quarter)
        ours.append(measure(grade, quarter, url, at_once, str(small)))
    protocol = measure(checklist, quarter, url, at_once, str(small))
    a_call = (cpu_of(server) - before) * 1000 / (5 * quarter)
    whole = make_run(folder / "whole", criteria)
    full = measure(grade, criteria, url, at_once, str(whole))
    ceilings.append(measure(bare, quarter, url, at_once, quarter))
    few = max(200, quarter // 6)
    peer = measure(official, few, url, at_once, few)
    ceiling = statistics.median(one.per_second for one in ceilings)
    print(
        f"  the endpoint takes {a_call:.2f} CPU ms a request: at most {1000 / a_call:.0f}/s on a core"
    )
    for one in ceilings:
        row("bare aiohttp", one, ceiling)
    for one in ours:
        row(f"grade, {quarter} criteria", one, ceiling)
    row(f"grade, {criteria} criteria", full, ceiling)
    row(f"checklist, {quarter} questions", protocol, ceiling)
    row("official client", peer, ceiling)
    times = full.per_second / peer.per_second
    verdicts.check(
        times >= TIMES_DEFAULT,
        f"{times:.1f} times the official client (at least {TIMES_DEFAULT:g})",
    )
    growth = full.peak_mb / max(one.peak_mb for one in ours)
    verdicts.check(
        growth <= GROWTH,
        f"peak memory {growth:.2f} times that at a quarter (at most {GROWTH})",
    )
    return whole


def ideal(base: str, folder: Path, criteria: int, verdicts: Verdicts) -> None:
    """The 2 s part: against n·latency/concurrency, after the three round trips in which the limit grows."""
    for n in (500, criteria):
        run = make_run(folder / f"ideal{n}", n)
        one = measure(grade, n, f"{base}/2000/v1", 256, str(run))
        share = one.seconds / (n * 2 / 256 + 3 * 2)
        told = f"2 s, 256 at once, {n} criteria: {one.seconds:.1f} s, {share:.3f} of the ideal"
        if n == criteria:
            verdicts.check(share <= OF_IDEAL, f"{told} (at most {OF_IDEAL})")
        else:
            print(f"         {told}")
    calls = -(-criteria // PER_CASE)
    run = make_run(folder / "rubric", criteria)
    one = measure(grade, calls, f"{base}/50/v1", 128, str(run), "rubric")
    print(
        f"         rubric mode, 50 ms: {one.per_second:.0f} calls/s, {criteria / one.seconds:.0f} criteria/s, "
        f"{one.cpu_ms:.2f} CPU ms a call"
    )


def warm(base: str, run: Path, criteria: int, verdicts: Verdicts) -> None:
    """Grading again what is graded, as a function and as a command; and the help of `eval score`."""
    url = f"{base}/50/v1"
    again = measure(grade, criteria, url, 128, str(run))
    size = (run / "grades.jsonl").stat().st_size / 2**20
    told = f"warm re-grade of {len(open_run(run).cases)} cases, {size:.0f} MB: {again.seconds:.2f} s"
    verdicts.check(again.seconds < WARM_S, f"{told} (under {WARM_S:g})")
    whole = command(
        "eval",
        "grade",
        str(run),
        "--grader",
        GRADER,
        "--base-url",
        url,
        "--mode",
        "criterion",
        "--no-harm",
        "--json",
    )
    verdicts.check(
        whole < WARM_S,
        f"the same as a command, with its start: {whole:.2f} s (under {WARM_S:g})",
    )
    helped = min(command("eval", "score", "--help") for _ in range(3))
    verdicts.check(
        helped < HELP_S, f"eval score --help: {helped:.2f} s (under {HELP_S:g})"
    )


def main() -> int:
    """Print the tables; the exit status says whether every target was reached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--criteria", type=int, default=CRITERIA)
    parser.add_argument(
        "--quick", action="store_true", help="2,400 criteria; its figures are rough"
    )
    arguments = parser.parse_args()
    criteria = 2400 if arguments.quick else arguments.criteria
    verdicts = Verdicts()
    base, server = started()
    try:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            run = throughput(base, server, folder, criteria, verdicts)
            warm(base, run, criteria, verdicts)
            ideal(base, folder, criteria, verdicts)
    finally:
        server.terminate()
        server.join()
    return 1 if verdicts.missed else 0


if __name__ == "__main__":
    sys.exit(main())
