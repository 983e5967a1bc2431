"""A verdict is written as any row of a log is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.digest import canonical_json
from medlive.evaluation.grading.grade_line import grade_line
from medlive.evaluation.model import Grade, Mode, Origin

TEXTS = st.text(st.characters(codec=None, categories=None), max_size=12)
NUMBERS = st.one_of(st.none(), st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))
COUNTED = st.fixed_dictionaries(
    dict.fromkeys(["cached_tokens", "cost_usd", "input_tokens", "latency_ms", "output_tokens"], NUMBERS)
)
GRADES = st.builds(
    Grade, TEXTS, TEXTS, TEXTS, st.sampled_from([True, False, None]), *[TEXTS] * 7, st.sampled_from(list(Mode)),
    TEXTS, TEXTS, st.one_of(COUNTED, st.dictionaries(TEXTS, NUMBERS, max_size=2)), st.sampled_from(list(Origin)),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(GRADES)
def test_a_verdicts_line_is_its_row_as_canonical_json(grade: Grade) -> None:
    assert grade_line(grade) == canonical_json(grade.row()).encode("utf-8", "backslashreplace") + b"\n"
