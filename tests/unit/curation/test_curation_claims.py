"""Claims that stand alone, their English, and the cross-examination: checked in code whatever engine answers."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted import Memory, OnePassage, Scripted, changed, honest, run

from medlive.curation.chain import ROLES, CurationSettings, curate
from medlive.curation.cross_examination import count_words, score
from medlive.curation.model import Answer, CrossQuestion, Curation, Made, Outcome, Reason
from medlive.evidence.passage import Hit, Query
from medlive.llm.replay import ReplayEngine
from medlive.threads.model import Message, Role, Thread


def claims(*statements: str) -> dict[str, Any]:
    return {"claims": [{"id": f"a{n}", "statement": s} for n, s in enumerate(statements, 1)]}


FIRST = "Lisinopril can cause a dry cough."
NOT_ONE_EACH = [claims(FIRST), claims(FIRST, "Ask for losartan 50 mg.", "Another.")]


@pytest.mark.parametrize("reply", NOT_ONE_EACH)
async def test_each_advice_is_claimed_once(reply: dict[str, Any]) -> None:
    curation = await run(changed(validator__claims=reply))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)


@pytest.mark.parametrize(
    "claim",
    [
        "Losartan instead of lisinopril.",
        "Losartan 100 mg in place of lisinopril, not 50 mg.",
        "Do not ask for losartan 50 mg.",
        "Ginseng root 50 mg cures hypertension.",
        "A dry cough for 3 weeks is common, and 50 mg is a dose.",
    ],
)
async def test_a_claim_that_is_not_its_advice_is_replaced_by_the_advice(claim: str) -> None:
    engine = Scripted(changed(validator__claims=claims(FIRST, claim)))
    curation = await run({}, engine=engine)
    assert [c.claim for c in curation.claims] == [FIRST, "Ask for losartan 50 mg."]
    judged = [r.inputs["claim"]["statement"] for r in engine.requests if r.task == "validator.alignment"]
    assert claim not in judged


async def test_a_claim_of_another_advice_does_not_stand_for_one_that_points() -> None:
    script = changed(validator__claims=claims(FIRST, FIRST))
    script["screener.advice"]["elements"][1] |= {
        "quote": "Stop lisinopril and ask",
        "statement": "Stop this at once.",
    }
    script["validator.alignment"] = {"verdict": "neutral", "evidence": [], "reason": ""}
    curation = await run(script)
    assert [c.claim for c in curation.claims] == [FIRST, "Stop this at once."]


async def test_a_claim_may_name_what_the_case_names() -> None:
    named = claims(FIRST, "In a 34-year-old with cough for 3 weeks, losartan 50 mg can be taken.")
    curation = await run(changed(validator__claims=named))
    assert curation.outcome is Outcome.KEPT
    assert [c.claim for c in curation.claims] == [item["statement"] for item in named["claims"]]


CHINESE = Thread(
    source="test", thread_id="2", url="", title="咳嗽", language="zh", tags=(), posted_at=None,
    messages=(
        Message("m0", "u_1", Role.PATIENT, False, "我34岁，干咳3周，正在吃赖诺普利10毫克，是什么原因？"),
        Message("m1", "u_2", Role.PHYSICIAN, True, "赖诺普利可以引起干咳。建议换成氯沙坦50毫克。"),
    ),
)  # fmt: skip


def chinese(**tasks: Any) -> dict[str, Any]:
    script = honest() | {
        "screener.narrative": {
            "elements": [
                {"message_id": "m0", "quote": "我34岁", "statement": "患者34岁。", "kind": "subjective"},
                {"message_id": "m0", "quote": "干咳3周", "statement": "干咳3周。", "kind": "subjective"},
            ]
        },
        "screener.query": {
            "query": {"message_id": "m0", "quote": "是什么原因", "question": "干咳3周是什么原因？"}
        },
        "screener.advice": {
            "elements": [
                {"message_id": "m1", "quote": "赖诺普利可以引起干咳", "statement": "赖诺普利可以引起干咳。",
                 "kind": "assessment"},
            ]
        },
        "validator.translate": {"translations": [{"id": "a1", "english": "Lisinopril can cause a dry cough."}]},
        "controller.write": {"narrative": "患者34岁，干咳3周。", "advice": "赖诺普利可以引起干咳。"},
    }  # fmt: skip
    return script | {name.replace("__", "."): value for name, value in tasks.items()}


class Asked(OnePassage):
    def __init__(self) -> None:
        self.queries: list[Query] = []

    async def search(
        self,
        queries: Sequence[Query],
        *,
        k: int,
        not_after: date | None = None,
        corpora: Collection[str] | None = None,
    ) -> list[list[Hit]]:
        self.queries += queries
        return await super().search(queries, k=k, not_after=not_after, corpora=corpora)


async def curate_chinese(script: Mapping[str, Any], retriever: OnePassage | None = None) -> Curation:
    answering = ReplayEngine(Scripted(dict(script)), Memory())
    return await curate(
        CHINESE, "zh", dict.fromkeys(ROLES, answering), retriever or OnePassage(), CurationSettings(),
        run_date=date(2026, 11, 21),
    )  # fmt: skip


async def test_a_chinese_claim_is_searched_in_both_languages_and_its_english_is_stored() -> None:
    retriever = Asked()
    curation = await curate_chinese(chinese(), retriever)
    assert curation.outcome is Outcome.KEPT, curation.detail
    assert retriever.queries == [Query("赖诺普利可以引起干咳。", "Lisinopril can cause a dry cough.")]
    assert curation.claims[0].english == "Lisinopril can cause a dry cough."


async def test_a_claim_that_cannot_be_translated_is_searched_as_it_is() -> None:
    retriever = Asked()
    script = chinese(validator__translate={"translations": [{"id": "a1", "english": ""}]})
    curation = await curate_chinese(script, retriever)
    assert retriever.queries == [Query("赖诺普利可以引起干咳。", None)]
    assert curation.claims[0].english is None


@pytest.mark.parametrize("english", ["赖诺普利 can cause a dry cough.", "Lisinopril 20 mg can cause a dry cough."])
async def test_a_translation_that_is_none_is_left_out(english: str) -> None:
    found = {"translations": [{"id": "a1", "english": english}]}
    curation = await curate_chinese(chinese(validator__translate=found))
    assert (curation.outcome, curation.claims[0].english) == (Outcome.KEPT, None)


async def test_a_number_in_a_name_is_no_number_that_a_translation_adds() -> None:
    english = "Lisinopril can cause a dry cough (CYP2D6), and SARS-CoV-2 too."
    curation = await curate_chinese(
        chinese(validator__translate={"translations": [{"id": "a1", "english": english}]})
    )
    assert curation.claims[0].english == english


async def test_each_claim_is_translated_once() -> None:
    curation = await curate_chinese(chinese(validator__translate={"translations": []}))
    assert (curation.outcome, curation.reason) == (Outcome.FAILED, Reason.INVALID_REPLY)


async def test_an_english_case_is_not_translated() -> None:
    engine = Scripted(honest())
    curation = await run({}, engine=engine)
    assert "validator.translate" not in {r.task for r in engine.requests}
    assert all(c.english is None for c in curation.claims)


async def test_each_text_answers_the_questions_of_both() -> None:
    engine = Scripted(honest())
    curation = await run({}, engine=engine)
    found = curation.cross_examination
    assert found is not None
    assert [q.made_from for q in found.questions] == [Made.THREAD, Made.CASE]
    assert (found.coverage, found.conformity, found.consistency, found.stability) == (100, 100, 100, 100)
    thread, case = (r.inputs["text"] for r in engine.requests if r.task == "controller.questions")
    assert "Stop lisinopril" in thread
    assert "bleach" not in thread
    narrative, advice = case.split("\n")
    assert narrative == "Aged 34 years, with a dry cough for 3 weeks."
    assert advice == "Lisinopril can cause a dry cough. Ask for losartan 50 mg."
    assert found.conciseness == pytest.approx(100 * (1 - count_words(case) / count_words(thread)))


async def test_without_questions_there_is_no_cross_examination() -> None:
    engine = Scripted(honest())
    curation = await run({}, engine=engine, settings=CurationSettings(cross_questions=0))
    assert curation.cross_examination is None
    assert "controller.questions" not in {r.task for r in engine.requests}


answers = st.lists(st.sampled_from(list(Answer)), min_size=1, max_size=12)


@given(of_thread=answers, of_case=answers, long=st.integers(1, 500), short=st.integers(0, 900))
def test_scores_are_those_of_the_method(
    of_thread: list[Answer], of_case: list[Answer], long: int, short: int
) -> None:
    asked = [CrossQuestion(Made.THREAD, "?", Answer.YES, a) for a in of_thread]
    asked += [CrossQuestion(Made.CASE, "?", Answer.NO, a) for a in of_case]
    found = score(asked, thread_words=long, case_words=short)
    percent = {a: 100 * of_thread.count(a) / len(of_thread) for a in Answer}
    assert found.coverage == pytest.approx(percent[Answer.YES] + percent[Answer.NO])
    assert found.conformity == pytest.approx(percent[Answer.YES] + percent[Answer.UNKNOWN])
    assert found.conformity_strict == pytest.approx(percent[Answer.YES])
    known = sum(a is not Answer.UNKNOWN for a in of_case)
    assert found.consistency == pytest.approx(100 * known / len(of_case))
    assert found.conciseness == pytest.approx(100 - 100 * short / long)
    balance = 0.0
    if found.coverage > 0 and found.conciseness > 0:
        balance = 2 / (1 / found.coverage + 1 / found.conciseness)
    expected = (found.coverage + found.conformity + found.consistency + balance) / 4
    assert found.summary == pytest.approx(expected)
    assert found.stability == pytest.approx(100 * len(of_thread) / (len(of_thread) + len(of_case)))
    assert 0 <= found.summary <= 100
