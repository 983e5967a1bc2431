"""Exact and near duplicates, whatever order the texts came in."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.threads.model import Message, Thread
from medlive.threads.near_duplicates import (
    BANDS,
    DuplicateIndex,
    Sketch,
    jaccard,
    patient_text,
    scheme,
    shingles,
    sketches,
)

_ENGLISH = (
    "I have had a dry cough and a low fever for five days, my chest hurts when I breathe in deeply and I feel "
    "very tired, should I see a doctor or can I wait until the weekend is over and take paracetamol at home"
)
_CHINESE = (
    "我妈妈今年六十五岁，高血压十年，最近一周头晕乏力，早上起床血压一百六十，"
    "吃了降压药也不管用，请问需要去医院做哪些检查"
)


def sketch(text: str) -> Sketch:
    return sketches([text])[0]


def test_case_width_and_space_make_no_other_text() -> None:
    index = DuplicateIndex()
    index.add("a", sketch(_ENGLISH))
    match = index.find(sketch(_ENGLISH.upper().replace(" ", "\n ")))
    assert (match.key, match.exact, match.similarity) == ("a", True, 1.0)


def test_a_small_edit_is_near_and_another_text_is_none() -> None:
    index = DuplicateIndex()
    index.add("en", sketch(_ENGLISH))
    index.add("zh", sketch(_CHINESE))
    near = index.find(sketch(_ENGLISH.replace("five days", "six days")))
    assert near.key == "en"
    assert not near.exact
    assert 0.8 <= near.similarity < 1
    chinese = index.find(sketch(_CHINESE + "谢谢"))
    assert chinese.key == "zh"
    assert (
        index.find(
            sketch(
                "My knee hurts after running and I would like to know what to do about it"
            )
        )
        is None
    )
    assert index.find(sketch("")) is None
    assert index.find(sketch("！？")) is None


def test_half_the_words_changed_is_another_question() -> None:
    words = _ENGLISH.split()
    for changed in range(4, 12):  # similarity from about 0.7 down
        edited = list(words)
        edited[5 : 5 + changed] = [f"other{n}" for n in range(changed)]
        text = " ".join(edited)
        index = DuplicateIndex()
        index.add("a", sketch(_ENGLISH))
        assert (index.find(sketch(text)) is None) == (
            jaccard(shingles(text), shingles(_ENGLISH)) < 0.8
        )
        assert index.find(sketch(text)) is None


def test_its_own_key_does_not_count_and_a_new_text_replaces_the_old() -> None:
    index = DuplicateIndex()
    index.add("a", sketch(_ENGLISH))
    assert index.find(sketch(_ENGLISH), ignore="a") is None
    index.add("a", sketch(_CHINESE))
    assert index.find(sketch(_ENGLISH)) is None


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
        index.add(key, sketch(texts[key]))
    exact, near = (
        index.find(sketch(_ENGLISH)),
        index.find(sketch(_ENGLISH + " please help")),
    )
    assert exact is not None
    assert (exact.key, exact.exact, near.key) == ("k0", True, "k0")


@given(st.text(max_size=80), st.text(max_size=80))
def test_similarity_is_a_symmetric_share(first: str, second: str) -> None:
    a, b = shingles(first), shingles(second)
    assert jaccard(a, b) == jaccard(b, a)
    assert 0 <= jaccard(a, b) <= 1
    assert jaccard(a, a) == (1.0 if a.size else 0.0)


def test_a_doubled_opening_counts_once() -> None:
    opening = Message("m0", "asker", "patient", False, _ENGLISH)
    reply = Message("m1", "doctor", "physician", True, "See a doctor.")
    once = Thread("s", "1", "", "", "en", (), None, (opening, reply))
    twice = Thread("s", "2", "", "", "en", (), None, (opening, opening, reply))
    assert patient_text(once) == patient_text(twice) == _ENGLISH


def test_the_smallest_number_is_named_first() -> None:
    index = DuplicateIndex()
    for key in ("10", "9", "11"):
        index.add(key, sketch(_ENGLISH))
    match = index.find(sketch(_ENGLISH))
    assert match.key == "9"


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=60), max_size=6))
def test_a_text_has_one_sketch_in_whatever_company(texts: list[str]) -> None:
    for text, found in zip(texts, sketches(texts), strict=True):
        alone = sketch(text)
        assert (found.digest, found.bands) == (alone.digest, alone.bands)
        assert (
            found.shingles.tolist()
            == alone.shingles.tolist()
            == shingles(text).tolist()
        )
        assert len(found.bands) == (BANDS + 1 if found.shingles.size else 0)
        assert all(-(2**63) <= band < 2**63 for band in found.bands)


def _edited(words: list[str], rng: random.Random) -> list[str]:
    """The units with some replaced, put in or left out, here and there."""
    edited = list(words)
    for _ in range(rng.randint(1, max(1, len(words) // 12))):
        at = rng.randrange(len(edited))
        edited[at : at + rng.randint(0, 1)] = [
            rng.choice(words) for _ in range(rng.randint(0, 2))
        ]
    return edited


@pytest.mark.parametrize("join", [" ", ""], ids=["words", "characters"])
def test_random_edits_that_stay_near_are_met(join: str) -> None:
    rng = random.Random(11)
    units = (
        [f"w{n}" for n in range(400)] if join else [chr(0x4E00 + n) for n in range(400)]
    )
    near = met = 0
    for _ in range(200):
        text = rng.choices(units, k=rng.randint(20, 120))
        first, second = sketches([join.join(text), join.join(_edited(text, rng))])
        if jaccard(first.shingles, second.shingles) >= 0.8:
            near += 1
            met += not set(first.bands).isdisjoint(second.bands)
    assert near > 40
    assert met >= 0.98 * near


def test_far_texts_seldom_meet() -> None:
    rng = random.Random(12)
    drawn = sketches(
        [" ".join(f"w{rng.randrange(2000)}" for _ in range(60)) for _ in range(500)]
    )
    keys = [band for s in drawn for band in s.bands]
    assert len(set(keys)) == len(keys)


def test_full_width_is_the_same_text_and_another_script_is_another() -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in _ENGLISH)
    assert sketch(wide).bands == sketch(_ENGLISH).bands
    traditional = "我媽媽今年六十五歲，高血壓十年，最近一週頭暈乏力，早上起床血壓一百六十，請問需要去醫院做哪些檢查"
    assert sketch(traditional).digest != sketch(_CHINESE).digest
    index = DuplicateIndex()
    index.add("simplified", sketch(_CHINESE))
    assert index.find(sketch(traditional)) is None


def test_sketches_are_the_same_in_every_process() -> None:
    # What is stored was made by another process, on another day: these values may change only with the scheme.
    assert scheme() == "minhash/20x5/adc14f0d8068537d"
    assert sketch("I have a cough.").bands[:3] == (
        -270957968337961512,
        -4086395423725348182,
        4323155311823203386,
    )


@pytest.mark.parametrize(
    "text", ["\x00\ud800", "_ _", "\u202e\U0001f600", "a" * 50_000, "痛 " * 25_000]
)
def test_strange_texts_have_sketches(text: str) -> None:
    found = sketch(text)
    assert bool(found.bands) == bool(found.shingles.size)
    assert not found.bands or found.bands[0] != found.bands[1]
