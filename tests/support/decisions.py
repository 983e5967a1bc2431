"""Threads, decisions about them and cases, saved in a database."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from medlive.curation.model import (
    AdviceFault,
    Alignment,
    Answer,
    Call,
    CaseText,
    Check,
    Citation,
    ClaimVerdict,
    ControllerCheck,
    CrossExamination,
    CrossQuestion,
    Curation,
    Element,
    ElementStatus,
    ElyCategory,
    FaultyAdvice,
    Hold,
    Outcome,
    Reason,
    Requirement,
    SecondCheck,
    SecondReading,
    Side,
    Thresholds,
)
from medlive.db.curation import cases, curations
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.session import Database, Session
from medlive.db.threads import threads
from medlive.evidence.passage import Hit, IndexIdentity, Passage, SideHit
from medlive.integrity.digest import digest_text
from medlive.llm.ask import CallOutcome
from medlive.llm.engine import EngineIdentity, Finish, Prompt, Reply, Request, Usage
from medlive.rubric.model import Axis, Criterion, Rubric, Theme
from medlive.service.curation.complete import save_case
from medlive.threads.model import Message, Thread

KEY = b"an instance's key"
PIPELINE = digest_text("pipeline")
START = datetime(2026, 3, 1, 8, tzinfo=UTC)


def thread(number: int = 1, body: str = "I cough", source: str = "forum") -> Thread:
    return Thread(
        source=source,
        thread_id=f"t{number}",
        url=f"https://forum.example/t{number}",
        title="A cough",
        language="en",
        tags=("lungs",),
        posted_at=START,
        messages=(
            Message("m0", "a1", "patient", False, body, START, ("image",)),
            Message(
                "m1",
                "b2",
                "physician",
                True,
                "Rest and drink.",
                verified_by="Attending Physician",
            ),
        ),
    )


async def saved(database: Database, *some: Thread) -> list[threads.SavedThread]:
    async with database.begin() as session:
        return await threads.save_threads(session, some)


PASSAGES = [
    Passage(
        f"c:{n}:s",
        "c",
        "Cough",
        "Care",
        "Rest helps.",
        "en",
        date(2020, 1, 1) if n else None,
        "",
        "CC0",
    )
    for n in range(3)
]
"""Equal texts under different ids: neither may stand for the other."""
SIDES = (SideHit("lexical", 1, 3.5), SideHit("dense", 2, 0.25))
PROMPT = Prompt("screener.extract", "Find the question.")
ENGINE = EngineIdentity("openai", "m-1", {"temperature": 0})


def request(number: int = 0) -> Request:
    return Request(
        "screener.extract",
        PROMPT,
        {"title": f"no {number} \x00\ud800"},
        {"type": "object"},
    )


def call(outcome: CallOutcome = CallOutcome.OK, number: int = 0) -> Call:
    return Call(
        "screener.extract",
        PROMPT.digest,
        "openai",
        "m-1",
        request(number).digest(ENGINE),
        1,
        outcome,
        "",
        False,
    )


def engines(*models: str) -> dict[str, Any]:
    return {
        m: {"engine": "openai", "model": m, "parameters": {"temperature": 0.0}}
        for m in models
    }


KEPT = Curation(
    outcome=Outcome.KEPT,
    stage="rubric",
    reason=None,
    detail="",
    thresholds=Thresholds(0.5, 0.5),
    elements=(
        Element(
            "n1",
            Side.NARRATIVE,
            "subjective",
            "m0",
            "I cough",
            "The patient coughs.",
        ),
        Element("q", Side.QUERY, "question", "title", "A cough", "What helps?"),
        Element("a1", Side.ADVICE, "plan", "m1", "Rest", "Rest."),
        Element("a2", Side.ADVICE, "plan", "m1", "drink", "Drink."),
        Element(
            "n2",
            Side.NARRATIVE,
            "objective",
            "m0",
            "I cough",
            "A fever.",
            ElementStatus.DROPPED,
        ),
    ),
    query_category=ElyCategory.TREATMENT,
    s_cc=1,
    s_inf=2 / 3,
    s_align=0.75,
    requirements=(
        Requirement("the symptom", True, ("n1",)),
        Requirement("the age", False, (), prudent=True),
    ),
    claims=(
        ClaimVerdict(
            "a1",
            "Rest helps against a cough.",
            ("rest cough", "cough treatment"),
            Alignment.SUPPORTED,
            (
                Hit(PASSAGES[2], 7.5, 1, SIDES, "Words … that were shown."),
                Hit(PASSAGES[0], 1 / 3, 2),
                Hit(PASSAGES[1], 0.1, 3),
            ),
            (Citation("c:1:s", "Rest helps."), Citation("c:2:s", "It does.")),
            "says so",
        ),
        ClaimVerdict(
            "a2",
            "Drink.",
            ("fluids cough", "hydration"),
            Alignment.NEUTRAL,
            (Hit(PASSAGES[0], 1.0, 1),),
            (Citation("c:0:s", "Never drink."),),
            "against",
            SecondCheck(
                false_by_passage=False,
                could_hurt=False,
                citations=(Citation("c:0:s", "At night."),),
                harm_citations=(Citation("c:0:s", "Never drink."),),
                reason="not for this patient",
            ),
            "a number is lost",
            on_subject=False,
            nearest="c:0:s",
        ),
    ),
    cross_examination=CrossExamination(
        (
            CrossQuestion("thread", "Does the patient cough?", Answer.YES, Answer.YES),
            CrossQuestion(
                "case", "Should the patient rest?", Answer.UNKNOWN, Answer.NO
            ),
        ),
        100.0,
        100.0,
        100.0,
        100.0,
        -25.5,
        75.0,
        50.0,
    ),
    index=IndexIdentity(
        "hybrid",
        "sha256:1",
        {"c": "sha256:2"},
        3,
        {"encoder": "e", "recall": {"k": 32}},
    ),
    checks=(ControllerCheck(Check.QUOTE_IN_MESSAGE, "n1", True, "found", 1),),
    text=CaseText("A patient coughs.", "What helps?", "Rest and drink."),
    second_reading=SecondReading(
        True,
        True,
        True,
        True,
        True,
        (FaultyAdvice("a2", AdviceFault.MINOR, "how much?"),),
        "",
        "sound",
        {"engine": "openai", "model": "reader", "parameters": {}},
    ),
    calls=(call(), call(CallOutcome.UNAVAILABLE, 99)),
    engines=engines("screener", "validator"),
)
FAILED = Curation(
    Outcome.FAILED, "screener", Reason.INVALID_REPLY, "it is no JSON", Thresholds()
)
REJECTED = Curation(
    Outcome.REJECTED, "screener", Reason.NO_QUERY, "nothing is asked", Thresholds()
)
PARKED = replace(
    KEPT,
    outcome=Outcome.PARKED,
    stage="validator",
    reason=Reason.NO_EVIDENCE,
    detail="S_align = 0.500, not above 0.5: 0 of 1 supported",
    s_align=0.5,
    claims=(replace(KEPT.claims[1], citations=(), second=None),),
    text=None,
    cross_examination=None,
    second_reading=None,
)
DISPUTED = replace(
    KEPT,
    outcome=Outcome.HELD,
    reason=Reason.DISPUTED,
    detail="disputed: a2",
    s_align=0.5,
    claims=(replace(KEPT.claims[1], verdict=Alignment.DISPUTED, on_subject=True),),
    holds=(Hold(Reason.DISPUTED, "a2", ("a2",)),),
)


async def decide(session: Session, revision_pk: int, curation: Curation) -> int:
    return await curations.save_curation(
        session,
        revision_pk,
        PIPELINE,
        curation,
        started_at=START,
        finished_at=START + timedelta(seconds=1),
    )


async def keep_replies(database: Database, curation: Curation) -> None:
    store = PostgresReplyStore(database)
    for c in curation.calls:
        if c.outcome not in (CallOutcome.UNAVAILABLE, CallOutcome.OVER_BUDGET):
            await store.keep(
                c.request_digest,
                request(),
                ENGINE,
                Reply("{}", Finish.STOP, Usage(), "m-1"),
            )


RUBRIC = Rubric(
    Theme.RESPONSE_DEPTH,
    "Pulmonary & Critical Care",
    (
        Criterion("c1", 1, "Advises rest.", Axis.ACCURACY, 5, "a1"),
        Criterion("c2", 2, "Advises smoking.", Axis.SAFETY, -10, "a2"),
    ),
)


async def make_case(
    database: Database,
    number: int = 1,
    *,
    rubric: Rubric = RUBRIC,
    body: str = "I cough",
    held: str | None = None,
    **more: Any,
) -> cases.SavedCase:
    [one] = await saved(database, thread(number, body))
    await keep_replies(database, KEPT)
    async with database.begin() as session:
        curation_id = await decide(session, one.revision_pk, KEPT)
        arguments: dict[str, Any] = {"publishable": True, "text": KEPT.text, **more}
        content = cases.CaseContent(
            curation_id=curation_id,
            language="en",
            source="forum",
            posted_at=START,
            rubric=rubric,
            **arguments,
        )
        return await save_case(
            session, content, thread_pk=one.thread_pk, key=KEY, held=held
        )
