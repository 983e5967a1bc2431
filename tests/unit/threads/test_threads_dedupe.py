"""Exact and near duplicates, whatever order the texts came in."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.threads.dedupe import DuplicateIndex, jaccard, patient_text, shingles
from medlive.threads.model import Message, Role, Thread

_ENGLISH = (
    "I have had a dry cough and a low fever for five days, my chest hurts when I breathe in deeply and I feel "
    "very tired, should I see a doctor or can I wait until the weekend is over and take paracetamol at home"
)
_CHINESE = (
    "我妈妈今年六十五岁，高血压十年，最近一周头晕乏力，早上起床血压一百六十，"
    "吃了降压药也不管用，请问需要去医院做哪些检查"
)


def test_case_width_and_space_make_no_other_text() -> None:
    index = DuplicateIndex()
    index.add("a", _ENGLISH)
    match = index.find(_ENGLISH.upper().replace(" ", "\n "))
    assert match is not None
    assert (match.key, match.exact, match.similarity) == ("a", True, 1.0)


def test_a_small_edit_is_near_and_another_text_is_none() -> None:
    index = DuplicateIndex()
    index.add("en", _ENGLISH)
    index.add("zh", _CHINESE)
    near = index.find(_ENGLISH.replace("five days", "six days"))
    assert near is not None
    assert near.key == "en"
    assert not near.exact
    assert 0.8 <= near.similarity < 1
    chinese = index.find(_CHINESE + "谢谢")
    assert chinese is not None
    assert chinese.key == "zh"
    assert index.find("My knee hurts after running and I would like to know what to do about it") is None
    assert index.find("") is None
    assert index.find("！？") is None


def test_half_the_words_changed_is_another_question() -> None:
    words = _ENGLISH.split()
    for changed in range(4, 12):  # similarity from about 0.7 down
        edited = list(words)
        edited[5 : 5 + changed] = [f"other{n}" for n in range(changed)]
        text = " ".join(edited)
        index = DuplicateIndex()
        index.add("a", _ENGLISH)
        assert (index.find(text) is None) == (jaccard(shingles(text), shingles(_ENGLISH)) < 0.8)
        assert index.find(text) is None


def test_its_own_key_does_not_count_and_a_new_text_replaces_the_old() -> None:
    index = DuplicateIndex()
    index.add("a", _ENGLISH)
    assert index.find(_ENGLISH, ignore="a") is None
    index.add("a", _CHINESE)
    assert index.find(_ENGLISH) is None
    assert len(index) == 1


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_the_answer_does_not_depend_on_the_order(seed: int) -> None:
    words = _ENGLISH.split()
    texts = {f"k{i}": " ".join(words[: len(words) - i]) for i in range(5)}
    texts |= {"k5": _ENGLISH, "z": _CHINESE}
    order = sorted(texts)
    random.Random(seed).shuffle(order)
    index = DuplicateIndex()
    for key in order:
        index.add(key, texts[key])
    exact, near = index.find(_ENGLISH), index.find(_ENGLISH + " please help")
    assert exact is not None
    assert near is not None
    assert (exact.key, exact.exact, near.key) == ("k0", True, "k0")


@given(st.text(max_size=80), st.text(max_size=80))
def test_similarity_is_a_symmetric_share(first: str, second: str) -> None:
    a, b = shingles(first), shingles(second)
    assert jaccard(a, b) == jaccard(b, a)
    assert 0 <= jaccard(a, b) <= 1
    assert jaccard(a, a) == (1.0 if a.size else 0.0)


def test_recall_of_near_duplicates_over_many_texts() -> None:
    rng = random.Random(7)
    words = [
        "pain",
        "knee",
        "fever",
        "cough",
        "rash",
        "week",
        "tablet",
        "doctor",
        "blood",
        "test",
        "night",
        "morning",
        "left",
        "right",
        "severe",
        "mild",
    ]
    texts = [" ".join(rng.choices(words, k=80)) for _ in range(200)]
    index = DuplicateIndex()
    for number, text in enumerate(texts):
        index.add(str(number), text)
    found = 0
    for number, text in enumerate(texts):
        edited = text.split()
        edited[40] = "swollen"  # 3 of 78 shingles change: similarity about 0.93
        match = index.find(" ".join(edited))
        found += match is not None and match.key == str(number)
    assert found >= 196


def test_a_doubled_opening_counts_once() -> None:
    opening = Message("m0", "asker", Role.PATIENT, False, _ENGLISH)
    reply = Message("m1", "doctor", Role.PHYSICIAN, True, "See a doctor.")
    once = Thread("s", "1", "", "", "en", (), None, (opening, reply))
    twice = Thread("s", "2", "", "", "en", (), None, (opening, opening, reply))
    assert patient_text(once) == patient_text(twice) == _ENGLISH
