"""The survey decides as a plain reading of the whole corpus would."""

import random
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.evidence.corpora.survey import REPEATED_IN, Survey
from medlive.evidence.passage import Passage


def passage(identity: str, title: str, text: str, licence: str = "x") -> Passage:
    return Passage(f"c:{identity}", "c", title, "s", text, "en", None, "", licence)


def kept(folder: Path, passages: list[Passage]) -> tuple[set[Passage], str]:
    survey = Survey(folder)
    for each in passages:
        survey.add(each)
    found = list(survey.kept())
    assert len({each.id for each in found}) == len(found)
    folder.unlink()
    return set(found), survey.digest


def plainly(passages: list[Passage]) -> set[tuple[str, str, str]]:
    """(id without its mark, title, text) of what the rules keep, by comparing everything with everything."""
    contents: dict[tuple[str, str], list[Passage]] = defaultdict(list)
    titles: dict[str, set[str]] = defaultdict(set)
    for each in passages:
        contents[each.title, each.text].append(each)
        if not each.id.endswith(".1"):
            titles[each.text].add(each.title)
    smallest = [min(group, key=lambda each: each.id) for group in contents.values()]
    return {
        (each.id, each.title, each.text)
        for each in smallest
        if each.id.endswith(".1") or len(titles[each.text]) < REPEATED_IN
    }


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            passage,
            st.builds("{}:s.{}".format, st.integers(0, 9), st.integers(1, 2)),
            st.integers(0, 2 * REPEATED_IN).map("Title {}".format),
            st.sampled_from(["one", "two"]),
            st.sampled_from(["x", "y"]),
        ),
        max_size=120,
    ),
    st.randoms(use_true_random=False),
)
def test_decisions_are_those_of_a_plain_reading_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    passages: list[Passage],
    rng: random.Random,
) -> None:
    folder = tmp_path_factory.mktemp("s") / "survey"
    found, digest = kept(folder, passages)
    assert {
        (each.id.split("~")[0], each.title, each.text) for each in found
    } == plainly(passages)
    texts: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for each in passages:
        texts[each.id].add((each.title, each.text))
    assert all(
        ("~" in each.id) == (len(texts[each.id.split("~")[0]]) > 1) for each in found
    )
    shuffled = rng.sample(passages, len(passages))
    assert kept(folder, shuffled) == (found, digest)
