"""What a stranger's file may hold: JSON of every kind, documents altered in one place, damaged bytes."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

DEEP = "[" * 100_000
"""JSON that is nested more deeply than any parser follows."""

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        [
            10**400,
            -(2**63) - 1,
            2**31,
            1e308,
            float("inf"),
            float("-inf"),
            float("nan"),
            -0.0,
        ]
    ),
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            "\x00",
            "\ud800",
            "\x1b[2J",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "../x",
            "/etc",
        ]
    ),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(st.text(max_size=8), below, max_size=4)
    ),
    max_leaves=8,
)
"""What JSON can hold, as Python reads it."""


def as_json(value: Any) -> bytes:
    """Spell a value as JSON, lone surrogates as escapes, NaN and infinity as Python does."""
    return json.dumps(value).encode("ascii")


def altered(document: Any) -> st.SearchStrategy[Any]:
    """The document with one value replaced by any other, left out, or put in beside it."""

    @st.composite
    def change(draw: st.DrawFn) -> Any:
        value = json.loads(json.dumps(document))
        places = list(_places(value))
        if not places:
            return draw(VALUES)
        holder, key = draw(st.sampled_from(places))
        kind = draw(st.sampled_from(["replace", "remove", "add"]))
        if kind == "remove":
            del holder[key]
        elif kind == "add" and isinstance(holder, dict):
            holder[draw(st.text(max_size=8))] = draw(VALUES)
        else:
            holder[key] = draw(VALUES)
        return value

    return change()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a document, as what holds it and its key there."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    found = [(value, key) for key in keys]
    for key in keys:
        found += _places(value[key])
    return found


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes as they are, cut off, with some of them changed, put in, or taken out."""

    @st.composite
    def damage(draw: st.DrawFn) -> bytes:
        hurt = bytearray(data)
        for _ in range(draw(st.integers(0, 3))):
            place = draw(st.integers(0, max(len(hurt) - 1, 0)))
            change = draw(st.sampled_from(_CHANGES))
            change(hurt, place, draw(st.binary(min_size=1, max_size=8)))
        return bytes(hurt)

    return damage()


def _cut(data: bytearray, place: int, _: bytes) -> None:
    del data[place:]


def _overwrite(data: bytearray, place: int, piece: bytes) -> None:
    data[place : place + len(piece)] = piece


def _insert(data: bytearray, place: int, piece: bytes) -> None:
    data[place:place] = piece


def _take_out(data: bytearray, place: int, piece: bytes) -> None:
    del data[place : place + len(piece)]


_CHANGES: tuple[Callable[[bytearray, int, bytes], None], ...] = (
    _cut,
    _overwrite,
    _insert,
    _take_out,
)
