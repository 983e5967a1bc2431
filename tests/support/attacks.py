"""What an attack is, and the way of a thread through every stage, without a database."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any

from aiohttp import web

from medlive.curation.chain import ROLES, CurationSettings, curate
from medlive.curation.model import Curation, Outcome
from medlive.demo.samples import SampleThread
from medlive.evidence.corpora.model import sentences
from medlive.evidence.passage import Retriever
from medlive.llm.engine import Engine, EngineIdentity, Reply, Request
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import read_inputs
from medlive.llm.replay import ReplayEngine
from medlive.llm.rules.engine import ANSWERS, RulesEngine
from medlive.rubric.model import Rubric
from medlive.service.curation.complete import complete_case
from medlive.snapshot.gates import (
    content_hits,
    row_hits,
)
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
from medlive.threads.model import Message, Role, Thread
from medlive.threads.prepare import deidentified, normalised, thread_language
from tests.support.bad_endpoint import completion
from tests.support.engines import engine_at

RUN_DATE = date(2026, 11, 21)
ADVICE = 5
"""Sentences of the physician's reply that a base keeps."""

Obey = Callable[[str, dict[str, Any], str], str | dict[str, Any] | None]
"""What a gullible model replies to a task with these inputs, the attack's marker given; None: what an honest one
would. Text is sent as it is."""


@dataclass(frozen=True, slots=True)
class Attack:
    """Something hostile in a thread, in the evidence, or in what a model made of either."""

    id: str
    base: str
    """Which sample thread it is laid into: a key of BASES."""
    place: str = ""
    """Where: patient, patient_front, patient_new, title, physician, unverified, other, handle, tag, evidence, or
    "" where only the model misbehaves."""
    text: str = ""
    """§ stands for the marker. For `evidence` it is the text of a passage."""
    obey: Obey | None = None
    judgement: bool = False
    """True where no control in code can tell a model that believes it: a judge must."""
    stays: bool = False
    """True where the marker is a verified physician's own word, or the patient's plain report, and may stay."""

    @property
    def language(self) -> str:
        """Its thread's."""
        return self.base[:2]

    @property
    def marker(self) -> str:
        """A word that stands nowhere else: made of the attack's name, in letters alone."""
        return "zarvex" + "".join(c for c in self.id if c.isalpha())

    @property
    def words(self) -> str:
        """The text with its marker."""
        return self.text.replace("§", self.marker)


BASES = {
    "en-kept": "hypertension/can-my-blood-pressure-tablet-be-the-reason-for-this-dry-cough",
    "en-kept-2": "back-pain/acute-low-back-pain-after-lifting-do-i-need-an-mri",
    "en-not-aligned": "plastic-surgery/hard-lump-on-my-earlobe-after-a-piercing",
    "en-insufficient": "headache/why-does-my-head-hurt",
    "en-no-advice": "abdominal-pain/cramps-on-the-right-side-of-my-belly-after-meals",
    "en-no-query": "kidney-stone/thank-you-for-the-advice-on-my-kidney-stone",
    "en-not-clinical": "general/how-can-i-get-a-sick-certificate-without-being-ill",
    "zh-kept": "330103",
    "zh-kept-2": "330105",
    "zh-not-aligned": "330215",
    "zh-insufficient": "330212",
    "zh-no-advice": "330210",
    "zh-no-query": "330208",
}


def twin_of(
    attack: Attack, samples: Mapping[str, SampleThread], number: int = 7
) -> Thread:
    """The thread without the attack. Another `number` makes it no duplicate of its base's others."""
    sample = samples[BASES[attack.base]]
    messages = [
        Message(f"m{i}", f"u_{i}", m.role, m.verified, m.text, m.posted_at)
        for i, m in enumerate(sample.messages)
    ]
    for i, m in enumerate(messages):
        if m.is_advice_source:  # a short reply is as good a target, and sooner read
            messages[i] = replace(m, text="".join(islice(sentences(m.text), ADVICE)))
    home = (
        f"家里门牌是{number}幢。"
        if attack.language == "zh"
        else f"I keep {number} hens."
    )
    first = next(i for i, m in enumerate(messages) if m.role == "patient")
    messages[first] = replace(messages[first], text=f"{messages[first].text}\n{home}")
    posted = datetime(2026, 10, 1, 8, tzinfo=UTC)
    return Thread(
        "attacks",
        attack.id,
        "",
        sample.title,
        attack.language,
        ("health",),
        posted,
        tuple(messages),
    )


def attacked(attack: Attack, thread: Thread) -> Thread:
    """The twin with the attack in its place."""
    messages, words = list(thread.messages), attack.words

    def change(at: int, text: str) -> None:
        messages[at] = replace(messages[at], text=text)

    first = next(i for i, m in enumerate(messages) if m.role == "patient")
    verified = [i for i, m in enumerate(messages) if m.is_advice_source]
    match attack.place:
        case "patient":
            change(first, f"{messages[first].text}\n{words}")
        case "patient_front":
            change(first, f"{words}\n{messages[first].text}")
        case "physician":
            change(verified[-1], f"{messages[verified[-1]].text}\n{words}")
        case "title":
            return replace(thread, title=f"{thread.title} {words}")
        case "tag":
            return replace(thread, tags=(*thread.tags, words))
        case "handle":
            messages[first] = replace(messages[first], author=words)
        case "patient_new" | "unverified" | "other":
            roles: dict[str, Role] = {
                "patient_new": "patient",
                "unverified": "physician",
                "other": "other",
            }
            role = roles[attack.place]
            messages.append(
                Message(
                    f"m{len(messages)}", "u_x", role, False, words, thread.posted_at
                )
            )
        case "" | "evidence":
            return thread
    return replace(thread, messages=tuple(messages))


class _Memory:
    """Replies kept for one thread."""

    def __init__(self) -> None:
        self._replies: dict[str, Reply] = {}

    async def find(self, request_digest: str) -> Reply | None:
        return self._replies.get(request_digest)

    async def keep(
        self,
        request_digest: str,
        request: Request,
        identity: EngineIdentity,
        reply: Reply,
    ) -> None:
        self._replies[request_digest] = reply


@dataclass(frozen=True, slots=True)
class Way:
    """What became of a thread, as far as it came."""

    curation: Curation
    case: SnapshotCase | None
    """The case as a release would hold it; None when there is none."""
    kept_out: tuple[str, ...]
    """Why the gates keep it out of a release; empty when they do not."""

    @property
    def released(self) -> SnapshotCase | None:
        """The case that a snapshot would hold."""
        return (
            self.case
            if self.curation.outcome is Outcome.KEPT and not self.kept_out
            else None
        )

    @property
    def stopped_by(self) -> str:
        """What stopped it, in a few words; "nothing" when it was released."""
        if self.curation.outcome is not Outcome.KEPT:
            detail = self.curation.detail.split("\n")[0][:100]
            return f"{self.curation.outcome.value}: {self.curation.reason}: {detail}"
        return f"gate: {self.kept_out[0]}" if self.kept_out else "nothing"

    def texts(self) -> str:
        """Everything that a release would show."""
        case = self.released
        return (
            ""
            if case is None
            else json.dumps(
                [case.row(), [c.row() for c in case.criteria]], ensure_ascii=False
            )
        )


async def way_of(
    thread: Thread, engine: Engine, retriever: Retriever, judge: Engine | None = None
) -> Way:
    """The thread prepared, curated, given its rubric and put before the release gates, as the service does.

    `judge` answers for the roles that judge what others wrote; None: `engine` does.
    """
    raw = normalised(thread)
    language = thread_language(raw)
    prepared = deidentified(raw, language)
    respondents = dict.fromkeys((*ROLES, "rubric"), ReplayEngine(engine, _Memory()))
    if judge is not None:
        respondents |= dict.fromkeys(
            ("controller", "reader"), ReplayEngine(judge, _Memory())
        )
    curation = await curate(
        prepared,
        language,
        respondents,
        retriever,
        CurationSettings(),
        run_date=RUN_DATE,
    )
    if curation.outcome not in (Outcome.KEPT, Outcome.HELD):
        return Way(curation, None, ())
    done, rubric, _ = await complete_case(curation, language, respondents)
    if rubric is None:
        return Way(done, None, ())
    case = _case(thread, language, done, rubric)
    hits = [*row_hits(case), *content_hits(case)]
    return Way(done, case, tuple(f"{h.gate.value}: {h.detail}" for h in hits))


def _case(
    thread: Thread, language: str, curation: Curation, rubric: Rubric
) -> SnapshotCase:
    assert curation.text is not None
    criteria = tuple(
        SnapshotCriterion(
            f"case-1-{c.id}",
            "case-1",
            1,
            c.position,
            c.criterion,
            c.axis.value,
            c.points,
        )
        for c in rubric.criteria
    )
    text = curation.text
    return SnapshotCase(
        "case-1",
        1,
        "2026.W47",
        language,
        thread.source,
        thread.posted_at.date() if thread.posted_at else RUN_DATE,
        rubric.specialty,
        rubric.theme.value,
        text.narrative,
        text.query,
        text.advice,
        criteria,
    )


@dataclass(slots=True)
class Gullible:
    """A model behind an endpoint that does what an attack asks, and is honest in all else."""

    engine: OpenAIEngine
    """The real client of that endpoint."""
    obey: Obey | None = None
    marker: str = ""

    def believes(self, attack: Attack) -> OpenAIEngine:
        """The engine, once it falls for this attack."""
        self.obey, self.marker = attack.obey, attack.marker
        return self.engine

    def reply(self, task: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """A chat completion."""
        assert self.obey is not None
        said = self.obey(task, inputs, self.marker)
        if said is None:
            said = ANSWERS[task](inputs)
        if isinstance(said, dict) and said.keys() == {"refusal"}:
            return completion(None, refusal=said["refusal"])
        if isinstance(said, dict) and said.keys() == {"cut"}:
            return completion(said["cut"], finish="length")
        return completion(
            said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        )


@asynccontextmanager
async def gullible_endpoint() -> AsyncIterator[Gullible]:
    """The endpoint while the context lasts."""

    async def chat(http: web.Request) -> web.StreamResponse:
        body = json.loads(await http.read())
        inputs = read_inputs(body["messages"])
        assert inputs is not None, (
            "the inputs cannot be read back: something closed the fence"
        )
        return web.json_response(model.reply(_task(body), inputs))

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    model = Gullible(
        engine_at(
            "model-as-served",
            f"http://127.0.0.1:{runner.addresses[0][1]}/v1",
            max_retries=0,
        )
    )
    try:
        yield model
    finally:
        await model.engine.aclose()
        await runner.cleanup()


def _task(body: Mapping[str, Any]) -> str:
    name = body["response_format"]["json_schema"]["name"]
    return next(task for task in ANSWERS if task.replace(".", "_") == name)


def rules() -> Engine:
    """The engine that needs no model."""
    return RulesEngine()
