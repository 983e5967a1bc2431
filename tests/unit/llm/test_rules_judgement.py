"""What the Validator's and the Controller's rules decide, in sentences written for these tests."""

from typing import Any

import pytest

from medlive.llm.rules.controller import support, write
from medlive.llm.rules.validator import ANSWERS, query, sufficiency

CHILD = ("My daughter is 6 years old and has influenza since Monday.", "Her temperature is 39.4 C.")
STABLE = ("I am a 60 year old man with type 2 diabetes.", "My eGFR is 88 and I feel well.")


def inputs(claim: str, passage: str, told: tuple[str, ...], ask: str = "", **more: str) -> dict[str, Any]:
    return {
        "language": more.get("language", "en"),
        "query": ask,
        "narrative": [{"id": f"n{i}", "statement": s} for i, s in enumerate(told)],
        "claim": {"id": "a1", "statement": claim},
        "passages": [{"id": "p1", "title": more.get("title", ""), "text": passage}],
    }


def verdict(claim: str, passage: str, told: tuple[str, ...], ask: str = "", **more: str) -> tuple[str, bool]:
    given = inputs(claim, passage, told, ask, **more)
    return ANSWERS["validator.alignment"](given)["verdict"], ANSWERS["validator.veto"](given)["goes_against"]


class TestMeaning:
    @pytest.mark.parametrize(
        ("text", "language", "category"),
        [
            ("Can I take ibuprofen with lisinopril?", "en", "treatment"),
            ("What is causing my chest pain?", "en", "diagnosis"),
            ("How long does a concussion last?", "en", "epidemiology"),
            ("高血压能停药吗？", "zh", "treatment"),
            ("胸痛是什么原因？", "zh", "diagnosis"),
        ],
    )
    def test_clinical(self, text: str, language: str, category: str) -> None:
        found = query({"language": language, "query": text})
        assert (found["meaningful"], found["category"]) == (True, category)

    @pytest.mark.parametrize(
        ("text", "language"),
        [
            ("I feel bad, what do you say?", "en"), ("Is it ok?", "en"), ("xq zzk vvv?", "en"),
            ("How can I fake the symptoms of malaria for a sick note?", "en"),
            ("Should I forgive my boyfriend?", "en"), ("I have had knee pain for years.", "en"),
            ("Which residency has the best salary for asthma doctors?", "en"), ("我该不该原谅他？", "zh"),
            ("怎么伪造发烧的病假条？", "zh"), ("好不好？", "zh"),
        ],
    )  # fmt: skip
    def test_not_clinical(self, text: str, language: str) -> None:
        assert not query({"language": language, "query": text})["meaningful"]


class TestSufficiency:
    def ratio(self, ask: str, told: tuple[str, ...], language: str = "en") -> float:
        narrative = [{"id": f"n{i}", "statement": s} for i, s in enumerate(told)]
        items = sufficiency({"language": language, "query": ask, "narrative": narrative})["items"]
        return sum(i["present"] for i in items) / len(items)

    def test_a_full_story_passes_and_its_first_line_alone_does_not(self) -> None:
        told = (
            "I am a 52 year old woman with a headache on the left side for three weeks.",
            "It is throbbing, comes twice a week and is worse in the morning.",
            "I have nausea but no fever, no vomiting and no weakness.",
            "I take amlodipine 5 mg for high blood pressure.",
            "An MRI last week was normal.",
        )
        assert self.ratio("What is causing my headache?", told) > 0.8
        assert self.ratio("What is causing my headache?", ("My head hurts.",)) < 0.3

    def test_a_drug_question_wants_the_drug_its_reason_and_its_dose(self) -> None:
        told = ("I am 30 years old and take sertraline 50 mg daily for depression since May.", "I have nausea.")
        assert self.ratio("Can I stop sertraline?", told) > self.ratio(
            "Can I stop sertraline?", ("I have nausea.",)
        )

    def test_chest_pain_wants_its_danger_signs(self) -> None:
        items = sufficiency(
            {
                "language": "en",
                "query": "Why do I have chest pain?",
                "narrative": [{"id": "n1", "statement": "I have chest pain."}],
            }
        )["items"]
        assert any(i["requirement"].startswith("Chest complaint") and not i["present"] for i in items)

    def test_empty_form_fields_are_no_story(self) -> None:
        told = ("过敏史：无", "既往病史：无", "怀孕情况：未怀孕", "头疼")
        assert self.ratio("为什么头疼？", told, "zh") <= 0.5

    def test_a_chinese_story(self) -> None:
        told = (
            "男，45岁，右上腹痛两周",
            "饭后加重，向后背放射，没有发烧，没有呕吐，大便正常",
            "B超提示胆囊结石8毫米",
            "有高血压，吃氨氯地平",
        )
        assert self.ratio("胆囊结石要不要手术？", told, "zh") > 0.6


class TestEvidence:
    def test_the_same_said_supports(self) -> None:
        claim = "Metformin should be taken with meals to reduce nausea and diarrhea."
        passage = "Weather is fine. Taking metformin with meals reduces nausea and diarrhea. Sleep well."
        given = inputs(claim, passage, STABLE, "How should I take metformin?")
        found = ANSWERS["validator.alignment"](given)
        assert found["verdict"] == "supported"
        assert [cited["quote"] for cited in found["evidence"]] == [
            "Taking metformin with meals reduces nausea and diarrhea."
        ]

    @pytest.mark.parametrize(
        "passage",
        [
            "Metformin is a drug for diabetes.",
            "Reduce the noise of the meals.",
            "Nausea and diarrhea are common in cholera and lead to dehydration.",
            "",
        ],
    )
    def test_a_shared_word_or_two_is_neutral(self, passage: str) -> None:
        claim = "Metformin should be taken with meals to reduce nausea and diarrhea."
        assert verdict(claim, passage, STABLE)[0] == "neutral"

    def test_a_prohibition_for_this_patient_contradicts_and_is_confirmed(self) -> None:
        passage = "Aspirin must not be given to children with influenza."
        assert verdict("Give aspirin 300 mg for the fever.", passage, CHILD) == ("contradicted", True)

    def test_the_same_prohibition_for_somebody_else_does_not(self) -> None:
        passage = "Aspirin must not be given to children with influenza."
        assert verdict("Give aspirin 300 mg for the fever.", passage, STABLE) == ("neutral", False)

    @pytest.mark.parametrize(
        "claim",
        ["Do not give aspirin to her.", "Avoid aspirin and use paracetamol instead.", "Stop aspirin today."],
    )
    def test_a_claim_that_forbids_it_too_is_no_contradiction(self, claim: str) -> None:
        assert verdict(claim, "Aspirin must not be given to children with influenza.", CHILD)[0] != "contradicted"

    def test_a_denied_or_feared_condition_does_not_count(self) -> None:
        passage = "Ibuprofen should be avoided in pregnancy."
        told = ("I am a 28 year old woman, I am not pregnant.", "My knee hurts.")
        assert verdict("Take ibuprofen 400 mg.", passage, told) == ("neutral", False)
        assert verdict("Take ibuprofen 400 mg.", passage, ("I am 30 weeks pregnant.",)) == ("contradicted", True)

    @pytest.mark.parametrize(("value", "expected"), [("22", "contradicted"), ("88", "neutral")])
    def test_a_limit_counts_by_the_patients_value(self, value: str, expected: str) -> None:
        told = (f"My eGFR is {value} and I have diabetes.",)
        passage = "Metformin must not be used when the eGFR is below 30."
        assert verdict("You can double metformin.", passage, told)[0] == expected

    def test_a_limit_not_reached_spares_a_patient_with_the_same_disease(self) -> None:
        told = ("I have chronic kidney disease and my eGFR is 45.",)
        passage = "In kidney disease metformin must not be used when the eGFR is below 30."
        assert verdict("You can continue metformin.", passage, told) == ("neutral", False)

    def test_what_stands_beside_the_forbidden_is_not_forbidden(self) -> None:
        passage = "Salt substitutes should be avoided with spironolactone in kidney disease."
        told = ("I have chronic kidney disease.",)
        assert verdict("Continue spironolactone 25 mg.", passage, told)[0] == "neutral"

    def test_no_effect_contradicts_only_what_was_promised(self) -> None:
        passage = "Antibiotics do not work against colds."
        told = ("I had a cold last week.", "Now my urine burns.")
        assert verdict("Take amoxicillin, antibiotics cure the common cold.", passage, told)[0] == "contradicted"
        assert verdict("Take amoxicillin for the bladder infection.", passage, told)[0] == "neutral"

    def test_chinese(self) -> None:
        told = ("孩子7岁，水痘第三天，发烧39度",)
        passage = "水痘患儿禁用阿司匹林。"
        assert verdict("退烧可以用阿司匹林。", passage, told, language="zh") == ("contradicted", True)
        assert verdict("不要用阿司匹林退烧。", passage, told, language="zh")[0] != "contradicted"

    def test_a_chinese_claim_with_an_english_passage(self) -> None:
        passage = "Cough and fever from influenza are treated with rest and plenty of water."
        told = ("流感，咳嗽，发烧",)
        assert verdict("流感多休息，多喝水。", passage, told, language="zh", title="Influenza")[0] == "supported"
        assert verdict("流感多休息，多喝水。", "Wash your hands.", told, language="zh")[0] == "neutral"


class TestController:
    @pytest.mark.parametrize(
        ("statement", "quote", "supported"),
        [
            ("Fever for 3 days.", "fever for 3 days", True),
            ("Fever for 4 days.", "fever for 3 days", False),
            ("No fever.", "a fever", False),
            ("Has a fever.", "has no fever", False),
            ("Has confirmed pneumonia.", "has pneumonia", False),
            ("It is asthma.", "it may be asthma", False),
            ("Severe fever.", "fever", False),
            ("发烧三天", "发烧三天了", True),
            ("不发烧", "发烧", False),
            ("是肺炎", "可能是肺炎", False),
        ],
    )
    def test_no_word_number_negation_or_certainty_beyond_the_quote(
        self, statement: str, quote: str, supported: bool
    ) -> None:
        elements = [{"id": "n1", "statement": statement, "quote": quote, "context": ""}]
        assert support({"language": None, "elements": elements})["verdicts"][0]["supported"] is supported

    def test_the_texts_are_the_statements_and_judgements_come_first(self) -> None:
        written = write(
            {
                "language": "en",
                "query": "q",
                "narrative": [{"id": "n1", "statement": "my knee hurts"}, {"id": "n2", "statement": "No fever."}],
                "advice": [
                    {"id": "a1", "kind": "plan", "statement": "Rest."},
                    {"id": "a2", "kind": "assessment", "statement": "It is a sprain"},
                ],
            }
        )
        assert written == {"narrative": "My knee hurts. No fever.", "advice": "It is a sprain.\nRest."}

    def test_chinese_texts(self) -> None:
        written = write(
            {
                "language": "zh",
                "query": "q",
                "narrative": [{"id": "n1", "statement": "头疼三天"}, {"id": "n2", "statement": "不发烧。"}],
                "advice": [{"id": "a1", "kind": "plan", "statement": "多休息"}],
            }
        )
        assert written == {"narrative": "头疼三天。不发烧。", "advice": "多休息。"}


def test_an_english_line_never_supports_what_a_chinese_claim_denies() -> None:
    passage = {"id": "p1", "title": "Pneumonia", "text": "Viruses that cause pneumonia include influenza virus."}
    asked = {"language": "zh", "query": "我是病毒性肺炎吗？", "narrative": [{"id": "n1", "statement": "咳嗽发热"}]}
    for claim, verdict in (("病毒可以引起肺炎。", "supported"), ("这不是病毒引起的肺炎。", "neutral")):
        given = {**asked, "claim": {"id": "a1", "statement": claim}, "passages": [passage]}
        assert ANSWERS["validator.alignment"](given)["verdict"] == verdict
