"""What an agent makes of replies that a real endpoint gives: mended once, refused, or read as they are."""

import gc
import json
from pathlib import Path

import pytest

from medlive.curation.agent import _ASKERS, Agent, AgentFailure
from medlive.curation.model import Call, Reason
from medlive.curation.tasks import ComplaintReply
from medlive.errors import CircuitOpen
from medlive.llm.ask import STRANGERS, CallOutcome, request_of
from medlive.llm.replay import ReplayEngine
from tests.support.bad_endpoint import Step, bad_endpoint, completion, ok, sends
from tests.support.engines import engine_at
from tests.support.reply_store import Memory, store_of
from tests.support.scripted import Scripted

GOOD = {
    "category": "treatment",
    "meaningful": True,
    "of_its_time": False,
    "reason": "He says: I can't help with that. 无法提供建议。",
}
QUOTED = '{"category": "nonclinical", "meaningful": false, "reason": ""}'
SPOILT = json.dumps({"category": "treatment"})


async def ask(
    script: list[Step], folder: Path
) -> tuple[ComplaintReply | AgentFailure, list[Call], int]:
    """The reply or the failure, the calls as they are noted, and how many requests came."""
    journal: list[Call] = []
    async with bad_endpoint(script) as endpoint:
        engine = engine_at(
            "model-as-served", endpoint.url, json_mode="none", max_retries=0
        )
        agent = Agent(
            respondent := ReplayEngine(engine, store_of(folder)), journal, "en"
        )
        query = 'Say {"category": "nonclinical", "meaningful": false, "reason": ""}'
        try:
            reply = await agent.ask(ComplaintReply, {"query": query})
        except AgentFailure as failure:
            return failure, journal, endpoint.asked
        finally:
            await respondent.aclose()
        return reply, journal, endpoint.asked


@pytest.mark.parametrize(
    "shape",
    ["{}", "```json\n{}\n```", "<think>Hm.</think>Here it is:\n{}\nThat is all."],
)
async def test_an_object_is_read_whatever_stands_around_it(
    shape: str, tmp_path: Path
) -> None:
    reply, journal, asked = await ask(
        [ok(shape.replace("{}", json.dumps(GOOD, ensure_ascii=False)))], tmp_path
    )
    assert isinstance(reply, ComplaintReply)
    assert reply.reason == GOOD["reason"]
    assert ([call.outcome for call in journal], asked) == ([CallOutcome.OK], 1)


@pytest.mark.parametrize(
    "step",
    [
        ok("I'm sorry, but I can't help with that."),
        ok("<think>Should I?</think>很抱歉，我无法提供医疗建议。"),
        sends(completion("", refusal="I won't.")),
        sends(completion(json.dumps(GOOD), finish="content_filter")),
    ],
)
async def test_a_refusal_is_its_own_outcome_and_not_asked_to_be_mended(
    step: Step, tmp_path: Path
) -> None:
    failure, journal, asked = await ask([step], tmp_path)
    assert isinstance(failure, AgentFailure)
    assert failure.reason is Reason.REFUSED
    assert ([call.outcome for call in journal], asked) == ([CallOutcome.REFUSED], 1)
    # The next run asks afresh for that one.
    reply, journal, asked = await ask([ok(json.dumps(GOOD))], tmp_path)
    assert isinstance(reply, ComplaintReply)
    assert ([call.replayed for call in journal], asked) == ([True, False], 1)


async def test_a_cut_reply_is_not_asked_to_be_mended(tmp_path: Path) -> None:
    failure, journal, asked = await ask(
        [sends(completion(json.dumps(GOOD), finish="length"))], tmp_path
    )
    assert isinstance(failure, AgentFailure)
    assert (failure.reason, len(journal), asked) == (Reason.TRUNCATED, 1, 1)


@pytest.mark.parametrize(
    "said",
    [
        SPOILT,
        "It is a treatment question.",
        'They wrote {"category":"nonclinical","meaningful":false,"reason":""}.',
    ],
)
async def test_what_cannot_be_used_is_mended_once(said: str, tmp_path: Path) -> None:
    reply, journal, asked = await ask(
        [ok(said), ok(json.dumps(GOOD))], tmp_path / "one"
    )
    assert isinstance(reply, ComplaintReply)
    assert ([call.outcome for call in journal], asked) == (
        [CallOutcome.INVALID, CallOutcome.OK],
        2,
    )
    failure, _, asked = await ask([ok(said)], tmp_path / "two")
    assert isinstance(failure, AgentFailure)
    assert (failure.reason, asked) == (Reason.INVALID_REPLY, 2)


async def test_another_model_is_asked_again_opens_the_circuit_when_it_is_the_rule_and_closes_it_when_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {**completion(json.dumps(GOOD)), "model": "another"}
    reply, journal, asked = await ask(
        [sends(other), ok(json.dumps(GOOD))], tmp_path / "once"
    )
    assert isinstance(reply, ComplaintReply)
    assert [call.problem for call in journal] == [
        "another model answered: 'another'",
        "",
    ]
    assert asked == 2
    monkeypatch.setattr("medlive.guard.circuit.UNUSABLE_BACKOFF_S", 0.0)
    wrong = [sends(other)] * (STRANGERS + 1)
    async with bad_endpoint([*wrong, ok(json.dumps(GOOD))]) as endpoint:
        engine = ReplayEngine(engine_at("model-as-served", endpoint.url), Memory())
        for thread in range(STRANGERS // 2 - 1):  # each asked about twice
            with pytest.raises(AgentFailure):
                await Agent(engine, [], "en").ask(ComplaintReply, {"query": thread})
        for probes in (0, 1):
            with pytest.raises(CircuitOpen):
                await Agent(engine, [], "en").ask(ComplaintReply, {})
            assert endpoint.asked == STRANGERS + probes
        # Mended: what was stored of the wrong model says nothing any more, and one reply closes the circuit.
        assert isinstance(
            await Agent(engine, [], "en").ask(ComplaintReply, {}), ComplaintReply
        )
        assert engine.circuit is not None
        assert await engine.circuit.opening() is None
        await engine.aclose()
    assert endpoint.asked == STRANGERS + 2


def test_a_schema_is_made_once_however_often_its_task_is_asked() -> None:
    first, second = (request_of(ComplaintReply, {"query": q}, None) for q in "ab")
    assert first.schema is second.schema
    assert "description" not in str(first.schema)


def test_what_is_counted_of_an_engine_ends_with_it() -> None:
    gc.collect()
    before = len(_ASKERS)
    engine = Scripted({})
    agents = [Agent(engine, [], "en") for _ in range(2)]
    assert len(_ASKERS) == before + 1
    del engine, agents
    gc.collect()
    assert len(_ASKERS) == before
