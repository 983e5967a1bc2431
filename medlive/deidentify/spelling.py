"""Names of drugs, diseases and scores in which a place's name stands, spelt right or wrong by one character.

`[drugs near a place]` of `chinese.txt` holds the drugs of the evidence room's `drugs_zh.txt` that one wrong
character would give a listed city, with at least two other characters right; a test derives them again. The names
in which a city rightly stands were written for this project.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable

_MINIMUM_RIGHT = 2
"""Characters outside the place that must be spelt right: fewer could be any words beside a place."""


Surroundings = tuple[str, str, bool]
"""What stands before and after the place in a name, and whether nothing there may be misspelt."""
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


def standing_in(name: str, place: str) -> list[int]:
    """Return where the place first stands in the name."""
    return [name.index(place)] if place in name else []


def surroundings(
    names: Iterable[str],
    places: Iterable[str],
    *,
    starts: Callable[[str, str], list[int]] = standing_in,
    longest_exact: int = sys.maxsize,
) -> Places:
    """Find the names in which a place stands.

    Args:
        names: Names of drugs, diseases and the like.
        places: The places to look for.
        starts: Says where a place stands in a name.
        longest_exact: How many characters a name may have besides the place and still allow none to be wrong: a
            short word with a wrong letter is any word.
    """
    found: Places = defaultdict(list)
    listed = tuple(names)
    for place in places:
        for name in listed:
            for start in starts(name, place):
                before, after = name[:start], name[start + len(place) :]
                exact = len(before) + len(after) <= longest_exact
                found[place].append((before, after, exact))
    return dict(found)


def is_part_of_name(
    text: str,
    start: int,
    end: int,
    names: Iterable[Surroundings],
) -> bool:
    """Whether the place at these offsets is a part of one of the names, with at most one character wrong."""
    for before, after, exact in names:
        begins = text.endswith(before, 0, start)
        ends = text.startswith(after, end)
        if begins and ends:
            return True
        if exact or not (begins or ends):
            continue
        # One character may be wrong, missing or too many on the other side.
        expected = before if ends else after
        for length in range(max(0, len(expected) - 1), len(expected) + 2):
            written = text[end : end + length]
            if ends:
                written = text[max(0, start - length) : start]
            if is_one_edit(expected, written):
                return True
    return False


def is_one_edit(first: str, second: str) -> bool:
    """Whether the words are equal, or one character replaced, added or left out makes one of the other."""
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    rest, other = first[same:], second[same:]
    return other[1:] in (rest, rest[1:]) or rest[1:] == other
