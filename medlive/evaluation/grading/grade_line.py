"""A verdict as its line of `grades.jsonl`: what most verdicts of a run share is spelt once."""

from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final

from medlive.digest import canonical_json
from medlive.evaluation.model import Grade, Mode, Origin

_MET: Final = {True: "true", False: "false", None: "null"}
_MEMBERS: Final = ("cached_tokens", "cost_usd", "input_tokens", "latency_ms", "output_tokens")
"""Of a call's usage, in their order."""
_COUNTED: Final = frozenset(_MEMBERS)
_SPELT: Final = "{" + ",".join(f'"{name}":%s' for name in _MEMBERS) + "}"


def grade_line(grade: Grade) -> bytes:
    """The canonical JSON of `Grade.row()` and a line's end, byte for byte as `LogWriter.add` writes it."""
    judge, asked = _shared(
        grade.engine, grade.grader, grade.judge, grade.mode, grade.model, grade.origin, grade.prompt
    )
    text = encode_basestring
    return (
        f'{{"case_id":{text(grade.case_id)},"criterion_id":{text(grade.criterion_id)},{judge}'
        f'"key":{text(grade.key)},"met":{_MET[grade.met]},{asked}"quote":{text(grade.quote)},'
        f'"raw":{text(grade.raw)},"reason":{text(grade.reason)},"reasoning":{text(grade.reasoning)},'
        f'"usage":{_usage(grade.usage)}}}\n'
    ).encode("utf-8", "backslashreplace")


@lru_cache(maxsize=64)
def _shared(
    engine: str, grader: str, judge: str, mode: Mode, model: str, origin: Origin, prompt: str
) -> tuple[str, str]:
    """The members that stand before `key`, and those between `met` and `quote`."""
    before = canonical_json({"engine": engine, "grader": grader, "judge": judge})
    between = canonical_json({"mode": mode, "model": model, "origin": origin, "prompt": prompt})
    return before[1:-1] + ",", between[1:-1] + ","


def _usage(usage: Mapping[str, Any]) -> str:
    if not usage:
        return "{}"
    if usage.keys() == _COUNTED:
        numbers = [usage[name] for name in _MEMBERS]
        if all(one is None or type(one) is int or (type(one) is float and isfinite(one)) for one in numbers):
            return _SPELT % tuple("null" if one is None else repr(one) for one in numbers)
    return canonical_json(dict(usage))
