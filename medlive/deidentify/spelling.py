"""Names of drugs, diseases and scores in which a place's name stands, spelt right or wrong by one character.

`[drugs near a place]` of `chinese.txt` holds the drugs of the evidence room's `drugs_zh.txt` that one wrong
character would give a listed city, with at least two other characters right; a test derives them again. The names
in which a city rightly stands were written for this project.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

_MINIMUM_RIGHT = 2
"""Characters outside the place that must be spelt right: fewer could be any words beside a place."""


class Surroundings(NamedTuple):
    """What stands before and after the place in a name; `exact` if nothing there may be misspelt."""

    before: str
    after: str
    exact: bool


Places = dict[str, list[Surroundings]]
"""Each place with the names in which it stands."""


def misspelt_as(name: str, place: str) -> list[int]:
    """Return where one wrong character in the name would make the place of it."""
    if len(name) - len(place) < _MINIMUM_RIGHT:
        return []
    starts = []
    for start in range(len(name) - len(place) + 1):
        wrong = sum(
            a != b for a, b in zip(name[start : start + len(place)], place, strict=True)
        )
        if wrong == 1:
            starts.append(start)
    return starts


def containing(
    names: Iterable[str],
    places: Iterable[str],
    *,
    longest_exact: int,
) -> Places:
    """Find the names that contain a place.

    Args:
        names: Names of drugs, diseases and the like.
        places: The places to look for.
        longest_exact: How many characters a name may have besides the place and still allow none to be wrong: a
            short word with a wrong letter is any word.
    """
    surroundings: Places = defaultdict(list)
    listed = tuple(names)
    for place in places:
        for name in listed:
            before, separator, after = name.partition(place)
            if separator:
                exact = len(before) + len(after) <= longest_exact
                surroundings[place].append(Surroundings(before, after, exact))
    return dict(surroundings)


def near(names: Iterable[str], places: Iterable[str]) -> Places:
    """Find the names that would contain a place with one wrong character."""
    surroundings: Places = defaultdict(list)
    listed = tuple(names)
    for place in places:
        for name in listed:
            for start in misspelt_as(name, place):
                parts = Surroundings(
                    name[:start],
                    name[start + len(place) :],
                    exact=True,
                )
                surroundings[place].append(parts)
    return dict(surroundings)


def is_part_of_name(
    text: str,
    start: int,
    end: int,
    names: Iterable[Surroundings],
) -> bool:
    """Whether the place at these offsets is a part of one of the names, with at most one character wrong."""
    for name in names:
        begins = text.endswith(name.before, 0, start)
        ends = text.startswith(name.after, end)
        if begins and ends:
            return True
        if name.exact or not (begins or ends):
            continue
        # One character may be wrong, missing or too many on the other side.
        expected = name.before if ends else name.after
        for length in range(max(0, len(expected) - 1), len(expected) + 2):
            before = text[max(0, start - length) : start]
            after = text[end : end + length]
            if is_one_edit(expected, before if ends else after):
                return True
    return False


def is_one_edit(first: str, second: str) -> bool:
    """Whether the words are equal, or one character replaced, added or left out makes one of the other."""
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    rest, other = first[same:], second[same:]
    return other[1:] in (rest, rest[1:]) or rest[1:] == other
