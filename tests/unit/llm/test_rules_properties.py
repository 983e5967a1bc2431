"""What holds for the rules' answers on any text whatever: shape, verbatim quotes, whose words, sameness, time."""

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from medlive.curation import tasks
from medlive.errors import UsageError
from medlive.llm.ask import each_reply
from medlive.llm.engine import Finish, Prompt, Request
from medlive.llm.rules.engine import ANSWERS, RulesEngine
from medlive.llm.rules.text import LONGEST, sentences
from medlive.rubric.completion import CompleteReply
from medlive.rubric.make import ClassifyReply
from medlive.rubric.review import ReviewReply
from medlive.rubric.write import RubricReply

REPLIES: dict[str, type[BaseModel]] = {
    "screener.extract": tasks.ExtractReply,
    "validator.query": tasks.ComplaintReply,
    "validator.sufficiency": tasks.SufficiencyReply,
    "validator.claims": each_reply(tasks.ClaimItem),
    "validator.alignment": each_reply(tasks.AlignmentItem),
    "validator.veto": each_reply(tasks.VetoItem),
    "controller.support": each_reply(tasks.SupportItem),
    "screener.revise": each_reply(tasks.RevisedItem),
    "controller.write": tasks.WriteReply,
    "controller.questions": tasks.QuestionsReply,
    "controller.answers": tasks.AnswersReply,
    "reader.text": tasks.TextReply,
    "reader.case": tasks.CaseReply,
    "reader.identifiers": tasks.IdentifiersReply,
    "reader.rubric": ReviewReply,
    "rubric.write": RubricReply,
    "rubric.complete": CompleteReply,
    "rubric.classify": ClassifyReply,
}

# Sentences that the rules have something to say about, so that random text is not always nothing.
SEEDS = (
    *(
        "Hello doctor,",
        "I have had a sharp pain in my left knee for 3 weeks.",
        "No fever.",
        "What should I do?",
    ),
    *(
        "Please advise.",
        "Take ibuprofen 400 mg twice daily.",
        "If it swells, see a doctor.",
        "My knee hurts?",
    ),
    *(
        "Sorry, I meant the right knee.",
        "1. rest 2. ice",
        "investigations to be done:1. mri. 2. esr.",
        "yes",
    ),
    *(
        "Do you have fever?",
        "疾病：肺炎",
        "病情描述：发烧三天，最高38.5度，不咳嗽",
        "请问怎么办？",
        "没有",
    ),
    *(
        "过敏史：无（2020-03-25填写）",
        "建议口服布洛芬，一天三次。",
        "体温怎样的",
        "刚才说错了，是左腿疼",
    ),
    *(
        "考虑是感冒引起的。",
        "感谢您的信任",
        "\u202e",
        "😀",
        "\x00",
        "\ud800",
        "١٢٣",
        "()[]{}",
        "\n",
    ),
)
TEXT = st.one_of(
    st.text(max_size=300),
    st.text(st.characters(), max_size=80),
    st.lists(st.one_of(st.sampled_from(SEEDS), st.text(max_size=12)), max_size=14).map(
        " ".join
    ),
    st.lists(st.sampled_from(SEEDS), max_size=14).map("".join),
)
LANGUAGE = st.sampled_from(("en", "zh", None))


@st.composite
def threads(draw: st.DrawFn) -> dict[str, Any]:
    said = draw(
        st.lists(
            st.tuples(st.sampled_from(("patient", "physician", "other")), TEXT),
            max_size=6,
        )
    )
    return {
        "language": draw(LANGUAGE),
        "title": draw(TEXT),
        "messages": [
            {"id": f"m{i}", "role": role, "text": text}
            for i, (role, text) in enumerate(said)
        ],
    }


def ask(task: str, inputs: dict[str, Any]) -> Any:
    """The answer, checked against the shape that the agents demand, as they read it: out of JSON."""
    return REPLIES[task].model_validate_json(json.dumps(ANSWERS[task](inputs)))


@settings(max_examples=15, deadline=None)
@given(threads())
def test_every_quote_stands_in_the_message_it_names(thread: dict[str, Any]) -> None:
    texts = {m["id"]: m for m in thread["messages"]}
    reply = ask("screener.extract", thread)
    for items, role in ((reply.narrative, "patient"), (reply.advice, "physician")):
        for item in items:
            assert texts[item.message_id]["role"] == role
            assert item.quote in texts[item.message_id]["text"]
    found = reply.query
    if found is not None:
        if found.message_id == "title":
            assert found.quote in thread["title"]
        else:
            assert texts[found.message_id]["role"] == "patient"
            assert found.quote in texts[found.message_id]["text"]


@settings(max_examples=15, deadline=None)
@given(
    LANGUAGE,
    TEXT,
    st.lists(TEXT, max_size=5),
    TEXT,
    st.lists(st.tuples(TEXT, TEXT), max_size=3),
)
def test_verdicts_cite_what_they_were_given(
    language: str | None,
    query: str,
    told: list[str],
    claim: str,
    found: list[tuple[str, str]],
) -> None:
    narrative = [{"id": f"n{i}", "statement": s} for i, s in enumerate(told)]
    ask("validator.query", {"language": language, "query": query})
    asked = {"language": language, "query": query, "narrative": narrative}
    for item in ask("validator.sufficiency", asked).required:
        assert item.present == bool(item.element_ids)
        assert set(item.element_ids) <= {e["id"] for e in narrative} | {"q"}
    inputs = {
        "language": language,
        "query": query,
        "narrative": narrative,
        "claims": [{"id": "a1", "statement": claim}],
        "passages": [
            {"id": f"p{i}", "title": title, "text": text}
            for i, (title, text) in enumerate(found)
        ],
    }
    passages = {f"p{i}": text for i, (_, text) in enumerate(found)}
    (first,) = ask("validator.alignment", inputs).verdicts
    assert bool(first.evidence) == (first.verdict == "supported")
    assert all(
        quote in passages[cited.passage_id]
        for cited in first.evidence
        for quote in cited.quotes
    )
    veto = ask("validator.veto", inputs).verdicts[0]
    assert not veto.false_by_passage
    assert not veto.could_hurt


@settings(max_examples=15, deadline=None)
@given(
    LANGUAGE,
    TEXT,
    st.lists(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200
        ).filter(lambda t: t.strip()),
        max_size=6,
    ),
)
def test_each_claim_is_its_advice(
    language: str | None, query: str, advice: list[str]
) -> None:
    elements = [
        {"id": f"a{i}", "kind": "plan", "statement": text}
        for i, text in enumerate(advice)
    ]
    claims = ask(
        "validator.claims", {"language": language, "query": query, "advice": elements}
    ).claims
    assert [c.id for c in claims] == [e["id"] for e in elements]
    assert all(
        c.statement == e["statement"].strip()
        for c, e in zip(claims, elements, strict=True)
    )


@settings(max_examples=15, deadline=None)
@given(
    LANGUAGE,
    st.lists(st.sampled_from(SEEDS[:8] + SEEDS[16:22]), min_size=1, max_size=10),
    st.integers(1, 20),
)
def test_a_text_answers_its_own_questions_with_yes(
    language: str | None, said: list[str], count: int
) -> None:
    text = " ".join([SEEDS[1], *said])
    questions = ask(
        "controller.questions", {"language": language, "count": count, "text": text}
    ).questions
    assert len(questions) <= count
    listed = [
        {"id": f"q{i}", "question": question} for i, question in enumerate(questions)
    ]
    answers = ask(
        "controller.answers", {"language": language, "text": text, "questions": listed}
    ).answers
    assert [(a.id, a.answer.value) for a in answers] == [
        (q["id"], "yes") for q in listed
    ]


@settings(max_examples=15, deadline=None)
@given(LANGUAGE, st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=6))
def test_the_controller_answers_for_each_element_once(
    language: str | None, given_: list[tuple[str, ...]]
) -> None:
    elements = [
        {"id": f"n{i}", "statement": s, "quote": q}
        for i, (s, q, c) in enumerate(given_)
    ]
    messages = [
        {"id": f"m{i}", "role": "patient", "text": c}
        for i, (_, _, c) in enumerate(given_)
    ]
    shown = {
        "language": language,
        "title": "",
        "messages": messages,
        "elements": elements,
    }
    assert [v.id for v in ask("controller.support", shown).verdicts] == [
        e["id"] for e in elements
    ]


@settings(max_examples=15, deadline=None)
@given(threads())
def test_what_the_screener_says_the_controller_supports(thread: dict[str, Any]) -> None:
    """Extraction adds nothing, so the Controller's own check must agree."""
    reply = ask("screener.extract", thread)
    items = [*reply.narrative, *reply.advice]
    elements = [
        {
            "id": str(i),
            "message_id": e.message_id,
            "statement": e.statement,
            "quote": e.quote,
        }
        for i, e in enumerate(items)
    ]
    for verdict in ask("controller.support", {**thread, "elements": elements}).verdicts:
        assert verdict.supported, (elements[int(verdict.id)], verdict.reason)


@settings(max_examples=10, deadline=None)
@given(threads())
def test_the_same_thread_gets_the_same_answer(thread: dict[str, Any]) -> None:
    rule = ANSWERS["screener.extract"]
    assert rule(thread) == rule(json.loads(json.dumps(thread)))


@given(TEXT)
def test_sentences_are_slices_in_order_that_lose_nothing(text: str) -> None:
    found = sentences(text)
    at = 0
    for one in found:
        assert len(one) <= LONGEST
        start = text.index(one, at)
        assert not text[at:start].strip()
        at = start + len(one)
    assert not text[at:].strip()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("language", "unit"),
    [
        ("en", "1"),
        ("en", "1. a "),
        ("en", "consult a "),
        ("en", "eGFR below "),
        ("zh", "发烧吗？"),
        ("zh", "您好，"),
    ],
)
def test_two_megabytes_take_seconds_not_minutes(language: str, unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    thread = {
        "language": language,
        "title": text[:400],
        "messages": [
            {"id": "m0", "role": r, "text": text} for r in ("patient", "physician")
        ],
    }
    began = time.process_time()
    ask("screener.extract", thread)
    ask(
        "validator.sufficiency",
        {
            "language": language,
            "query": text[:2000],
            "narrative": [{"id": "n1", "statement": text[:2000]}] * 20,
        },
    )
    # Quadratic behaviour on one of these took minutes; the bound only tells the two apart.
    assert time.process_time() - began < 15


def request(task: str, inputs: dict[str, Any]) -> Request:
    return Request(task=task, prompt=Prompt(task, "Do it."), inputs=inputs, schema={})


def test_the_engine_answers_as_json_at_no_cost_and_is_not_publishable() -> None:
    engine = RulesEngine()
    reply = asyncio.run(
        engine.answer(
            request("validator.query", {"language": "en", "query": "Is a rash normal?"})
        )
    )
    assert json.loads(reply.text)["meaningful"] is True
    assert reply.finish is Finish.STOP
    assert reply.usage.cost_usd == 0.0
    assert engine.identity.engine == "rules"
    assert reply.model == engine.identity.model
    assert not engine.identity.publishable


def test_a_task_without_rules_is_wrong_use() -> None:
    with pytest.raises(UsageError):
        asyncio.run(RulesEngine().answer(request("screener.poetry", {})))
