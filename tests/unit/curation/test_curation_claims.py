"""Claims that stand alone, what is searched for them, how they are batched, and the cross-examination."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.curation.chain import ROLES, CurationSettings, curate
from medlive.curation.cross_examination import count_words, score
from medlive.curation.model import Answer, CrossQuestion, Outcome, Reason
from medlive.evidence.passage import Hit, Passage, Phrases
from medlive.llm.replay import ReplayEngine
from medlive.text.tokens import estimate_tokens
from medlive.threads.model import Message, Thread
from tests.support.scripted import (
    THREAD,
    Memory,
    OnePassage,
    Scripted,
    changed,
    honest,
    judged,
    run,
)

FIRST = "Lisinopril can cause a dry cough."


def claims(*statements: str) -> dict[str, Any]:
    return {
        "claims": [
            {
                "id": f"a{n}",
                "statement": s,
                "queries": ["lisinopril cough", "losartan cough"],
            }
            for n, s in enumerate(statements, 1)
        ]
    }


NOT_ONE_EACH = [claims(FIRST), claims(FIRST, "Ask for losartan 50 mg.", "Another.")]


@pytest.mark.parametrize("reply", NOT_ONE_EACH)
async def test_each_advice_is_claimed_once(reply: dict[str, Any]) -> None:
    curation = await run(changed(validator__claims=reply))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)


WRONG_NUMBER = "Losartan 100 mg in place of lisinopril, not 50 mg."


async def test_a_claim_with_a_number_of_its_own_goes_back_and_is_mended() -> None:
    right = claims(FIRST, "Losartan 50 mg may be asked for.")
    engine = Scripted(changed(validator__claims=[claims(FIRST, WRONG_NUMBER), right]))
    curation = await run({}, engine=engine)
    asked = [
        r.inputs.get("findings")
        for r in engine.requests
        if r.task == "validator.claims"
    ]
    assert asked == [None, ["a2: the case does not state 100 mg"]]
    assert [(c.claim, c.flag) for c in curation.claims] == [
        (FIRST, ""),
        ("Losartan 50 mg may be asked for.", ""),
    ]


async def test_a_claim_that_keeps_its_own_number_is_flagged_and_never_replaced() -> (
    None
):
    curation = await run(changed(validator__claims=claims(FIRST, WRONG_NUMBER)))
    assert [(c.claim, bool(c.flag)) for c in curation.claims] == [
        (FIRST, False),
        (WRONG_NUMBER, True),
    ]


async def test_a_claim_may_spell_an_abbreviation_out() -> None:
    named = claims(
        "Lisinopril (an ACE inhibitor, CYP2D6) can cause a dry cough.",
        "Losartan 50 mg may be asked for.",
    )
    curation = await run(changed(validator__claims=named))
    assert [c.claim for c in curation.claims] == [
        item["statement"] for item in named["claims"]
    ]
    assert not any(c.flag for c in curation.claims)


class Asked(OnePassage):
    def __init__(self) -> None:
        self.queries: list[Phrases] = []

    async def search(
        self,
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        self.queries += queries
        return await super().search(queries, k=k, not_after=not_after)


CHINESE = Thread(
    source="test",
    thread_id="2",
    url="",
    title="咳嗽",
    language="zh",
    tags=(),
    posted_at=None,
    messages=(
        Message(
            "m0",
            "u_1",
            "patient",
            False,
            "我34岁，干咳3周，正在吃赖诺普利10毫克，是什么原因？",
        ),
        Message(
            "m1",
            "u_2",
            "physician",
            True,
            "赖诺普利可以引起干咳。建议换成氯沙坦50毫克。",
        ),
    ),
)
IN_CHINESE: Mapping[str, Any] = {
    "screener.extract": {
        "narrative": [
            {
                "message_id": "m0",
                "quote": "我34岁",
                "statement": "患者34岁。",
                "kind": "subjective",
            },
            {
                "message_id": "m0",
                "quote": "干咳3周",
                "statement": "患者干咳3周。",
                "kind": "subjective",
            },
        ],
        "query": {
            "message_id": "m0",
            "quote": "是什么原因",
            "question": "干咳3周是什么原因？",
        },
        "advice": [
            {
                "message_id": "m1",
                "quote": "赖诺普利可以引起干咳",
                "statement": "赖诺普利可以引起干咳。",
                "kind": "assessment",
            },
        ],
    },
    "validator.claims": claims("赖诺普利可以引起干咳。"),
    "controller.write": {
        "narrative": "患者34岁，干咳3周。",
        "advice": "赖诺普利可以引起干咳。",
    },
}


async def test_a_chinese_claim_is_searched_by_english_phrases_and_by_itself() -> None:
    retriever = Asked()
    answering = ReplayEngine(Scripted({**honest(), **IN_CHINESE}), Memory())
    curation = await curate(
        CHINESE,
        "zh",
        dict.fromkeys(ROLES, answering),
        retriever,
        CurationSettings(),
        run_date=date(2026, 11, 21),
    )
    assert curation.outcome is Outcome.KEPT, curation.detail
    assert retriever.queries == [
        ("lisinopril cough", "losartan cough", "赖诺普利可以引起干咳。")
    ]
    assert curation.claims[0].queries == retriever.queries[0]


async def test_an_english_claim_is_searched_by_its_phrases_alone() -> None:
    curation = await run(honest())
    assert all(c.queries == ("lisinopril cough", "losartan") for c in curation.claims)


class Many(OnePassage):
    """Finds as many passages as are asked for, of each claim every one but the first its own."""

    async def search(
        self,
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        text = (
            "ACE inhibitors such as lisinopril often cause a dry cough. "
            + "Nothing else is said here. " * 60
        )
        return [
            [
                Hit(
                    Passage(
                        id=f"c:{n if i else 0}:{i}",
                        corpus="c",
                        title="t",
                        section="",
                        text=text.replace("said", f"said of case {n if i else 0}.{i}"),
                        language="en",
                        published=None,
                        url="",
                        licence="",
                    ),
                    1.0,
                    i + 1,
                )
                for i in range(k)
            ]
            for n in range(len(queries))
        ]


@pytest.mark.parametrize("advice", [1, 6])
async def test_claims_share_one_call_and_each_passage_is_shown_once(
    advice: int,
) -> None:
    script = honest()
    script["screener.extract"]["advice"] = (
        script["screener.extract"]["advice"][:1] * advice
    )
    script["controller.write"] = {"narrative": "Aged 34 years.", "advice": FIRST}
    engine = Scripted(script)
    answering = ReplayEngine(engine, Memory())
    curation = await curate(
        THREAD,
        "en",
        dict.fromkeys(ROLES, answering),
        Many(),
        CurationSettings(),
        run_date=date(2026, 11, 21),
    )
    assert curation.outcome is Outcome.KEPT, curation.detail
    asked = [r.inputs for r in engine.requests if r.task == "validator.alignment"]
    assert len(asked) == 1
    assert [c["id"] for i in asked for c in i["claims"]] == [
        c.element_id for c in curation.claims
    ]
    for inputs in asked:
        ids = [p["id"] for p in inputs["passages"]]
        assert len(ids) == len(set(ids)) > 0
        assert all("dry cough" in p["text"] for p in inputs["passages"])
        words = "".join(p["title"] + p["text"] for p in inputs["passages"])
        assert estimate_tokens(words) <= CurationSettings().evidence_tokens
    # The first passage is every claim's, and each claim has one: the budget is shared.
    shown = [{h.passage.id for h in c.hits if h.shown} for c in curation.claims]
    assert all(shown)
    assert len(shown) == 1 or set.intersection(*shown)


async def test_a_quote_must_stand_in_what_is_shown_of_a_passage() -> None:
    hidden = "Nothing else is said of case 0.0 here."
    limits = CurationSettings(evidence_tokens=40)
    script = honest() | {"validator.alignment": judged("supported", hidden)}
    for settings, outcome in (
        (CurationSettings(), Outcome.KEPT),
        (limits, Outcome.FAILED),
    ):
        curation = await curate(
            THREAD,
            "en",
            dict.fromkeys(ROLES, ReplayEngine(Scripted(script), Memory())),
            Many(),
            settings,
            run_date=date(2026, 11, 21),
        )
        assert curation.outcome is outcome, curation.detail
    assert "a quote is not in passage" in curation.detail


async def test_a_passage_that_another_claim_found_may_decide_this_one() -> None:
    script = honest()
    script["validator.alignment"] = judged(
        "supported", "lisinopril often cause a dry cough", passage="p1"
    )

    answering = ReplayEngine(Scripted(script), Memory())
    curation = await curate(
        THREAD,
        "en",
        dict.fromkeys(ROLES, answering),
        Many(),
        CurationSettings(),
        run_date=date(2026, 11, 21),
    )
    for claim in curation.claims:
        assert {c.passage_id for c in claim.citations} <= {
            h.passage.id for h in claim.hits
        }


async def test_each_text_answers_the_questions_of_both() -> None:
    engine = Scripted(honest())
    curation = await run({}, engine=engine)
    found = curation.cross_examination
    assert [q.made_from for q in found.questions] == ["thread", "case"]
    assert (found.coverage, found.conformity, found.consistency, found.stability) == (
        100,
        100,
        100,
        100,
    )
    thread, case = (
        r.inputs["text"] for r in engine.requests if r.task == "controller.questions"
    )
    assert "Stop lisinopril" in thread
    assert "bleach" not in thread
    narrative, advice = case.split("\n")
    assert narrative == "Aged 34 years, with a dry cough for 3 weeks."
    assert advice == "Lisinopril can cause a dry cough. Ask for losartan 50 mg."
    assert found.conciseness == pytest.approx(
        100 * (1 - count_words(case) / count_words(thread))
    )


async def test_without_questions_there_is_no_cross_examination() -> None:
    engine = Scripted(honest())
    curation = await run(
        {}, engine=engine, settings=CurationSettings(cross_questions=0)
    )
    assert curation.cross_examination is None
    assert "controller.questions" not in {r.task for r in engine.requests}


answers = st.lists(st.sampled_from(list(Answer)), min_size=1, max_size=12)


@given(
    of_thread=answers,
    of_case=answers,
    long=st.integers(1, 500),
    short=st.integers(0, 900),
)
def test_scores_are_those_of_the_method(
    of_thread: list[Answer], of_case: list[Answer], long: int, short: int
) -> None:
    asked = [CrossQuestion("thread", "?", Answer.YES, a) for a in of_thread]
    asked += [CrossQuestion("case", "?", Answer.NO, a) for a in of_case]
    found = score(asked, thread_words=long, case_words=short)
    percent = {a: 100 * of_thread.count(a) / len(of_thread) for a in Answer}
    assert found.coverage == pytest.approx(percent[Answer.YES] + percent[Answer.NO])
    assert found.conformity == pytest.approx(
        percent[Answer.YES] + percent[Answer.UNKNOWN]
    )
    assert found.conformity_strict == pytest.approx(percent[Answer.YES])
    known = sum(a is not Answer.UNKNOWN for a in of_case)
    assert found.consistency == pytest.approx(100 * known / len(of_case))
    assert found.conciseness == pytest.approx(100 - 100 * short / long)
    balance = 0.0
    if found.coverage > 0 and found.conciseness > 0:
        balance = 2 / (1 / found.coverage + 1 / found.conciseness)
    expected = (found.coverage + found.conformity + found.consistency + balance) / 4
    assert found.summary == pytest.approx(expected)
    assert found.stability == pytest.approx(
        100 * len(of_thread) / (len(of_thread) + len(of_case))
    )
    assert 0 <= found.summary <= 100
