"""The linter finds each fault it knows, and a rubric it repairs has none left that it could repair."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.rubric.lint import MAX_CRITERIA, Fault, lint, repair
from medlive.rubric.model import SPECIALTIES, Axis, Criterion

IDS = frozenset({"a1", "a2"})


def criterion(
    text: str, points: int = 5, axis: Axis = Axis.ACCURACY, number: int = 1, advice: str = "a1"
) -> Criterion:
    return Criterion(f"c{number}", number, text, axis, points, advice)


def faults(language: str, *criteria: Criterion) -> set[tuple[Fault, str | None]]:
    return {(f.fault, f.criterion) for f in lint(language, criteria, IDS)}


GOOD_EN = (
    criterion("States that lisinopril can cause a dry cough."),
    criterion("Recommends asking for a change to losartan.", number=2),
    criterion("Recommends doubling lisinopril.", -7, Axis.SAFETY, 3),
)
GOOD_ZH = (
    criterion("指出长期服用华法林的患者需要定期复查凝血功能。"),
    criterion("建议清淡饮食。", number=2),
)


@pytest.mark.parametrize(("language", "rubric"), [("en", GOOD_EN), ("zh", GOOD_ZH)])
def test_a_good_rubric_has_no_fault(language: str, rubric: tuple[Criterion, ...]) -> None:
    assert lint(language, rubric, IDS) == ()


ONE_FAULT = [
    ("en", criterion("Fails to mention losartan.", 4), Fault.POLARITY),
    ("en", criterion("Advises against doubling lisinopril.", -4), Fault.POLARITY),
    ("zh", criterion("未能建议患者尽快就诊。", 4), Fault.POLARITY),
    ("en", criterion("Gives the reason for the cough.", 0), Fault.ZERO_POINTS),
    ("en", criterion("Recommends drinking more water.", 10), Fault.LIFE_CRITICAL),
    ("en", criterion("Agrees with what the doctor says about rest."), Fault.NOT_STANDALONE),
    ("zh", criterion("与该医生的回复一致。"), Fault.NOT_STANDALONE),
    ("en", criterion("States that on personal ground i do not think it is viral."), Fault.NOT_STANDALONE),
    ("en", criterion("Advises to keep your leg raised."), Fault.NOT_STANDALONE),
    ("zh", criterion("说明我考虑是病毒感染。"), Fault.NOT_STANDALONE),
    ("en", criterion("States that rest helps and recommends a chest X-ray."), Fault.TWO_FACTS),
    ("zh", criterion("建议多休息，并且建议复查胸片。"), Fault.TWO_FACTS),
    ("zh", criterion("Recommends rest."), Fault.LANGUAGE),
    ("en", criterion("建议多休息。"), Fault.LANGUAGE),
    ("en", criterion("Recommends a rest cure.", advice="a9"), Fault.UNKNOWN_ADVICE),
]


@pytest.mark.parametrize(("language", "bad", "fault"), ONE_FAULT)
def test_each_fault_is_found_alone_and_repaired_away(language: str, bad: Criterion, fault: Fault) -> None:
    good = GOOD_EN if language == "en" else GOOD_ZH
    rubric = (*good, Criterion("c9", 9, bad.criterion, bad.axis, bad.points, bad.advice_id))
    assert faults(language, *rubric) == {(fault, "c9")}
    kept, remaining = repair(language, rubric, IDS)
    assert [c.criterion for c in kept] == [c.criterion for c in good]
    assert remaining == ()


def test_the_same_said_twice_counts_once_but_the_opposite_polarity_is_another() -> None:
    twin = criterion("States that lisinopril can cause dry cough.", number=4)
    assert faults("en", *GOOD_EN, twin) == {(Fault.DUPLICATE, "c4")}
    opposite = criterion("States that lisinopril can cause a dry cough.", -5, Axis.ACCURACY, 4)
    assert faults("en", *GOOD_EN, opposite) == set()


def test_a_numeral_is_no_speaker() -> None:
    assert faults("en", *GOOD_EN, criterion("States that it is a type I allergy of grade I.", number=4)) == set()


def test_too_few_too_many_and_nothing_to_earn() -> None:
    assert faults("en", GOOD_EN[0]) == {(Fault.TOO_FEW, None)}
    assert faults("en") == {(Fault.TOO_FEW, None), (Fault.NO_POSITIVE, None)}
    only_bad = [criterion(f"Recommends remedy {w}.", -3, number=i) for i, w in enumerate(("alpha", "beta"), 1)]
    assert faults("en", *only_bad) == {(Fault.NO_POSITIVE, None)}
    words = [chr(97 + i) * 5 for i in range(MAX_CRITERIA + 3)]
    many = [criterion(f"{w} {w}b {w}c", points=1 + i % 9, number=i + 1) for i, w in enumerate(words)]
    assert faults("en", *many) == {(Fault.TOO_MANY, None)}
    kept, remaining = repair("en", many, IDS)
    assert (len(kept), remaining) == (MAX_CRITERIA, ())
    assert min(c.points for c in kept) >= min(
        c.points for c in many if c.criterion not in {k.criterion for k in kept}
    )


criteria = st.builds(
    Criterion,
    id=st.just("c"),
    position=st.just(0),
    criterion=st.text(min_size=1, max_size=80),
    axis=st.sampled_from(Axis),
    points=st.integers(-10, 10),
    advice_id=st.sampled_from(["a1", "a2", "a3"]),
)


@given(st.sampled_from(["en", "zh"]), st.lists(criteria, max_size=30))
def test_repair_leaves_only_faults_of_the_whole(language: str, drawn: list[Criterion]) -> None:
    numbered = [Criterion(f"c{i}", i, c.criterion, c.axis, c.points, c.advice_id) for i, c in enumerate(drawn, 1)]
    kept, remaining = repair(language, numbered, IDS)
    assert {f.criterion for f in remaining} <= {None}
    assert [c.id for c in kept] == [f"c{i}" for i in range(1, len(kept) + 1)]
    assert {c.criterion for c in kept} <= {c.criterion for c in numbered}
    assert not remaining or len(kept) < 2 or not any(c.points > 0 for c in kept)


def test_the_specialties_are_the_papers_thirty_eight() -> None:
    assert len(SPECIALTIES) == len(set(SPECIALTIES)) == 38
