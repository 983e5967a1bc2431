"""AC1 and macro-F1 against figures worked out by hand and against their definitions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agreement import ac1, macro_f1


def test_ac1_of_a_table_worked_by_hand() -> None:
    # 118 yes-yes, 5 yes-no, 2 no-yes, 0 no-no: p_a = 118/125, π = (123 + 120) / 250, p_e = 2π(1 - π).
    first = ["yes"] * 123 + ["no"] * 2
    second = ["yes"] * 118 + ["no"] * 5 + ["yes"] * 2
    share = Fraction(243, 250)
    chance = 2 * share * (1 - share)
    expected = (Fraction(118, 125) - chance) / (1 - chance)
    assert ac1(first, second) == pytest.approx(float(expected))
    assert ac1(first, second) == pytest.approx(0.9408, abs=5e-5)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_ac1_is_symmetric_bounded_and_one_on_agreement(
    pairs: list[tuple[bool, bool]],
) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    value = ac1(first, second, 2)
    assert value is not None
    assert value == pytest.approx(ac1(second, first, 2))
    assert -1 <= value <= 1
    assert ac1(first, first, 2) == pytest.approx(1.0)


def test_odd_inputs() -> None:
    assert ac1([], []) is None
    assert ac1(["x"], ["x"]) == 1.0
    with pytest.raises(ValueError, match="ratings"):
        ac1([1], [])
    with pytest.raises(ValueError, match="categories"):
        ac1([1, 2], [2, 3], 2)


def test_macro_f1_worked_by_hand() -> None:
    truth = [True, True, True, False, False]
    said = [True, False, None, False, True]
    # met: 1 hit, 1 false alarm, 2 misses: 2/5. Not met: 1 hit, 1 false alarm, 1 miss: 2/4.
    assert macro_f1(truth, said, [True, False]) == pytest.approx((2 / 5 + 2 / 4) / 2)
    assert macro_f1(truth, truth, [True, False]) == 1.0
    assert macro_f1([], [], [True, False]) is None
