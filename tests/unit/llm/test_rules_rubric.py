"""The rules' rubrics: always what the linter allows, taken from the advice, in the case's language."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.llm.rules import rubric_en, rubric_zh
from medlive.llm.rules.rubric import ANSWERS
from medlive.llm.rules.specialties import NAMES, UNKNOWN, specialty_of
from medlive.rubric.lint import lint
from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Axis, Criterion, RubricReply

write = ANSWERS["rubric.write"]


def case(language: str, *advice: tuple[str, str], query: str = "", narrative: str = "") -> dict[str, Any]:
    return {
        "language": language,
        "query": query,
        "narrative": narrative,
        "advice": [{"id": f"a{i}", "kind": k, "statement": s} for i, (k, s) in enumerate(advice, 1)],
    }


def checked(inputs: dict[str, Any]) -> tuple[RubricReply, tuple[Any, ...]]:
    """The reply as its model reads it, and what the linter finds in it."""
    reply = RubricReply.model_validate_json(json.dumps(write(inputs)))
    facts = {fact.id: fact.advice_id for fact in reply.facts}
    criteria = [
        Criterion(f"c{i}", i, c.criterion, Axis(c.axis), c.points, facts[c.fact_id])
        for i, c in enumerate(reply.criteria, 1)
    ]
    return reply, lint(inputs["language"], criteria, frozenset(a["id"] for a in inputs["advice"]))


def test_the_specialties_are_those_of_the_closed_list() -> None:
    assert frozenset(SPECIALTIES) == NAMES
    assert UNKNOWN == UNKNOWN_SPECIALTY


@pytest.mark.parametrize(
    ("clause", "criterion"),
    [
        ("You should stop ibuprofen.", "Advises the patient to stop ibuprofen."),
        ("I would suggest you to take paracetamol 500 mg.", "Advises the patient to take paracetamol 500 mg."),
        ("I recommend an MRI of your knee.", "Recommends an MRI of the patient's knee."),
        ("We advise against massage.", "Advises against massage."),
        ("Please do not drive for 24 hours.", "Advises the patient not to drive for 24 hours."),
        ("Avoid spicy food.", "Advises against spicy food."),
        ("You must not scratch the wound.", "Advises the patient not to scratch the wound."),
        ("It is better to repeat the test.", "Advises the patient to repeat the test."),
        ("Consult your doctor.", "Advises the patient to consult a physician."),
        ("You are having an allergy.", "States that the patient is having an allergy."),
        ("I think that you have gout.", "States that the patient has gout."),
        ("If you feel ill, take a pill.", "Advises the patient to take a pill if the patient feels ill."),
        ("Differential diagnosis: plantar fasciitis", "Names plantar fasciitis as differential diagnosis."),
        ("MRI is normal in your case.", "States that MRI is normal in the patient's case."),
    ],
)  # fmt: skip
def test_an_english_clause_becomes_a_criterion_in_the_third_person(clause: str, criterion: str) -> None:
    assert [phrase.positive for phrase in rubric_en.phrases(clause)] == [criterion]


@pytest.mark.parametrize(
    ("clause", "criterion"),
    [
        ("建议您口服奥美拉唑20mg。", "建议口服奥美拉唑20mg。"),
        ("不要吃辛辣食物。", "不建议吃辛辣食物。"),
        ("您的情况考虑是慢性胃炎。", "指出患者的情况考虑是慢性胃炎。"),
        ("需要复查肝功能。", "建议复查肝功能。"),
        ("尽快到医院就诊", "建议尽快到医院就诊。"),
        ("初步印象：普通肺炎", "指出初步印象为普通肺炎。"),
        ("我认为你是过敏性鼻炎", "指出患者是过敏性鼻炎。"),
    ],
)
def test_a_chinese_clause_becomes_a_criterion_about_the_patient(clause: str, criterion: str) -> None:
    assert [phrase.positive for phrase in rubric_zh.phrases(clause)] == [criterion]


def test_two_orders_joined_by_and_are_two_criteria() -> None:
    reply, findings = checked(case("en", ("plan", "Take cetirizine 10 mg at night and avoid peanuts.")))
    texts = [c.criterion for c in reply.criteria]
    assert texts == [
        "Advises the patient to take cetirizine 10 mg at night.",
        "Advises against peanuts.",
        "Recommends peanuts.",
    ]
    assert [c.points > 0 for c in reply.criteria] == [True, True, False]
    assert reply.criteria[2].axis is Axis.SAFETY
    assert findings == ()


def test_one_fact_still_makes_two_criteria_of_opposite_sign() -> None:
    for inputs in (
        case("en", ("assessment", "The rash is scabies.")),
        case("zh", ("plan", "建议做胃镜检查。")),
    ):
        reply, findings = checked(inputs)
        assert sorted(c.points > 0 for c in reply.criteria) == [False, True]
        assert findings == ()


def test_ten_points_are_for_emergencies_and_set_the_theme() -> None:
    inputs = case(
        "en",
        ("plan", "Go to the emergency department immediately."),
        ("plan", "Do not eat or drink anything."),
    )
    reply, findings = checked(inputs)
    assert reply.theme.value == "Emergency Referrals"
    assert (reply.criteria[0].points, reply.criteria[0].axis) == (10, Axis.SAFETY)
    assert findings == ()
    later, _ = checked(case("en", ("plan", "If the pain becomes severe, go to the emergency department."),
                            ("assessment", "This pain comes from a muscle of the chest wall.")))  # fmt: skip
    assert later.theme.value != "Emergency Referrals"
    assert all(c.points < 10 for c in later.criteria)


@pytest.mark.parametrize(
    ("language", "advice", "theme"),
    [
        ("en", "You need a thyroid function test and an ultrasound of the neck.", "Context-Seeking"),
        ("zh", "建议完善甲状腺功能检查。", "Context-Seeking"),
        ("en", "It could be a viral rash, but an allergy is also possible.", "Responding under Uncertainty"),
        ("zh", "可能是病毒引起的，不能确定。", "Responding under Uncertainty"),
        ("en", "Boiled water is safe for babies.", "Response Depth"),
    ],
)
def test_the_theme_follows_what_the_advice_chiefly_does(language: str, advice: str, theme: str) -> None:
    assert checked(case(language, ("plan", advice)))[0].theme.value == theme


@pytest.mark.parametrize(
    ("query", "narrative", "specialty"),
    [
        ("Is my psoriasis rash contagious?", "The patient has itchy skin.", "Dermatology"),
        ("血糖高怎么调整胰岛素？", "患者患糖尿病五年。", "Endocrinology & Metabolism"),
        ("What should I do?", "The patient feels odd.", UNKNOWN_SPECIALTY),
        ("", "", UNKNOWN_SPECIALTY),
    ],
)
def test_the_specialty_is_the_one_whose_words_are_used(query: str, narrative: str, specialty: str) -> None:
    assert specialty_of(query, narrative, "") == specialty


def test_a_criterion_that_was_refused_is_not_proposed_again() -> None:
    inputs = case("en", ("plan", "Take rest for two days. Drink plenty of boiled water."))
    first = [c["criterion"] for c in write(inputs)["criteria"]]
    again = write({**inputs, "findings": [{"criterion": first[0], "finding": "duplicate: …"}]})
    assert first[0] not in [c["criterion"] for c in again["criteria"] if c["points"] > 0]


def test_a_criterion_never_leans_on_the_doctor_or_the_thread() -> None:
    inputs = case(
        "en",
        ("assessment", "As you have mentioned, the doctor was right and this post is about gout."),
        ("plan", "Tell your doctor about the gout in your toe."),
        ("plan", "Take the tablets post dinner."),
    )
    reply, findings = checked(inputs)
    assert findings == ()
    assert not re.search(r"\b(?:doctor|post|you|your)\b", " ".join(c.criterion for c in reply.criteria))
    zh, findings = checked(case("zh", ("plan", "医生建议您复查血常规。"), ("plan", "楼主不要熬夜。")))
    assert findings == ()
    assert not re.search(r"医生|楼主|[您你]", "".join(c.criterion for c in zh.criteria))


PIECES = [
    "take ",
    "you ",
    "should ",
    "avoid ",
    " and ",
    "if ",
    ", ",
    ". ",
    "rest",
    "建议",
    "不要",
    "您",
    "，",
    "。",
    "\ud83d",
    "\x00",
]
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(
    st.sampled_from(list("aé 你不要建议。，；;.!?\n\t\x00\ud83d🙂ש1290%/-:：'\"<>{}ABtakeavoidandyou"))
    | st.characters(),
    max_size=300,
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["assessment", "plan"]), HOSTILE), max_size=6),
    st.sampled_from(["en", "zh"]),
)
def test_any_text_gives_a_reply_of_the_schema(advice: list[tuple[str, str]], language: str) -> None:
    reply = RubricReply.model_validate(write(case(language, *advice)))
    assert len(reply.criteria) <= 19
    ids = {f"a{i}" for i in range(1, len(advice) + 1)}
    facts = {fact.id: fact.advice_id for fact in reply.facts}
    assert set(facts.values()) <= ids
    assert len(facts) == len(reply.facts)
    assert all(c.fact_id in facts and c.points != 0 and abs(c.points) <= 10 for c in reply.criteria)
    assert len({c.criterion for c in reply.criteria}) == len(reply.criteria)


def test_a_very_long_statement_takes_no_time() -> None:
    for text in ("you should take rest and " * 20_000, "建议多喝水，" * 50_000, "a" * 1_000_000):
        RubricReply.model_validate(write(case("en", ("plan", text))))
        RubricReply.model_validate(write(case("zh", ("plan", text))))
