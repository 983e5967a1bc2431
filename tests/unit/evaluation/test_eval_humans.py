"""People's ratings as they come: tables, JSON and the files that others published."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput
from medlive.evaluation.agreement.humans import (
    HumanRatings,
    read_humans,
)

AGREEMENT = Path(__file__).parents[4] / "shared" / "realdata" / "agreement"
KQA = AGREEMENT / "kqa_NLI_medical_annotator.csv"
real = pytest.mark.skipif(
    not KQA.exists(), reason="../shared/realdata/agreement is absent"
)


def test_files_of_one_name_in_two_folders_are_both_read(tmp_path: Path) -> None:
    paths = [tmp_path / rater / "ratings.csv" for rater in ("ann", "bo")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(f"case_id,criterion_id,rater,met\nc1,k1,{path.parent.name},1\n")
    assert read_humans(*paths).raters == ("ann", "bo")


def read_ratings(data: bytes, name: str) -> HumanRatings:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        return read_humans(path)


TABLE = "case_id,criterion_id,rater,met,score\nc1,k1,安,true,\nc1,k2,安,0,\nc1,k3,安,,\nc1,,安,,0.25\n"


ENTRIES = [
    {"case_id": "c1", "criterion_id": f"k{i + 1}", "rater": "安", "met": met}
    for i, met in enumerate((True, False, None))
] + [{"case_id": "c1", "rater": "安", "score": 0.25}]


@pytest.mark.parametrize(
    "data",
    [
        TABLE.encode(),
        b"\xef\xbb\xbf" + TABLE.replace("\n", "\r\n").encode(),
        TABLE.replace("true", "Yes").encode("utf-8-sig"),
        b'{"case_id":"c1","criterion_id":"k1","rater":"\\u5b89","met":true}\r\n\n'
        b'{"case_id":"c1","criterion_id":"k2","rater":"\\u5b89","met":false}\n'
        b'{"case_id":"c1","criterion_id":"k3","rater":"\\u5b89","met":null}\n'
        b'{"case_id":"c1","rater":"\\u5b89","score":0.25,"page":7}',
        TABLE.replace("case_id,criterion_id", "case_id , criterion_id")
        .replace("true", "是")
        .encode(),
        TABLE.replace("score", "score,a;b;c;d;e;f;g")
        .replace("true", "YES")
        .replace(",0,", ",否,")
        .encode(),
        json.dumps(ENTRIES).encode(),
        json.dumps(ENTRIES, indent=1).encode(),
    ],
)
def test_a_table_is_read_in_every_spelling(data: bytes) -> None:
    found = read_ratings(data, "people")
    assert found.verdicts == {
        ("c1", "k1"): {"安": True},
        ("c1", "k2"): {"安": False},
        ("c1", "k3"): {"安": None},
    }
    assert found.scores == {"c1": {"安": 0.25}}
    assert any("no decision" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\ufeff \n", "is empty"),
        ("case_id,name\n", "line 1: no column rater"),
        ("case_id,rater,rater\n", "line 1: two columns"),
        ("case_id,rater,met\n", "has no ratings"),
        (
            "case_id,criterion_id,rater,met\nc,k,r,true\nc,k,s,maybe\n",
            "line 3: met must be true or false, found 'maybe'",
        ),
        (
            "case_id,criterion_id,rater,met\nc,k,r,nan\n",
            "line 2: met must be true or false, found 'nan'",
        ),
        (
            "case_id,criterion_id,rater,met\nc,k,r,true\n\nc,k,r,false\n",
            "line 4: 'r' on ('c', 'k')",
        ),
        (
            "case_id,criterion_id,rater,met\nc,,r,true\n",
            "line 2: expected criterion_id and met, or score",
        ),
        (
            "case_id,criterion_id,rater,met\nc,k,,true\n",
            "line 2: case_id (or item) and rater",
        ),
        (
            'case_id,rater,score\n"c\n1",r,1\nc,r,2\n',
            "line 4: score must be a number from 0 to 1, found '2'",
        ),
        (
            "case_id,rater,score\nc,r,nan\n",
            "line 2: score must be a number from 0 to 1, found 'nan'",
        ),
        ("case_id,rater,score\nc,r,1,2\n", "line 2: 4 fields"),
        (
            '{"case_id":"c","criterion_id":"k","rater":"r","met":NaN}',
            "entry 1: met must be true or false, found 'nan'",
        ),
        (
            "case_id,criterion_id,rater,met,score\nc,k,r,true,0.5\n",
            "line 2: a verdict and a score are two ratings",
        ),
        (
            '{"case_id":"c","rater":"r","score":true}',
            "entry 1: score must be a number from 0 to 1, found 'True'",
        ),
        (
            '[{"case_id":1,"rater":"r","score":1},\n{"case_id":2,"rater":"r","score":3}]',
            "entry 2: score must be a number from 0 to 1, found '3'",
        ),
        (
            '[[1],\n"x"]',
            "entry 1: expected an object, found a list, entry 2: expected an object, found a str",
        ),
        (
            'case_id,rater,score,note\nc,r,1,"open\nd,r,1,x\n',
            "line 2: a quote is not closed",
        ),
        (
            "item,rater,met\ni-1,r,1\n",
            "line 2: item 'i-1' can only be read together with its run",
        ),
        (
            '{"case_id":"c","rater":"r","score":1}\n[1]\n{"case',
            "line 2: expected an object, found a list, line 3: not valid JSON",
        ),
    ],
)
def test_what_is_no_rating_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_ratings(text.encode(), "people.csv")
    assert said in caught.value.message


def test_other_bytes(tmp_path: Path) -> None:
    for data, said in (
        (b"case_id,rater\n\xff,r\n", "not text in UTF-8"),
        (b"\xff\xfea", "not text in UTF-8"),
        (b"PK\x03\x04\x14\x00", "no column"),
    ):
        with pytest.raises(BadInput, match=said):
            read_ratings(data, "people.csv")
    with pytest.raises(BadInput):
        read_humans(tmp_path / "absent.csv")


cells = st.sampled_from(
    [
        "c1",
        "",
        "true",
        "0.5",
        "nan",
        '"',
        "é",
        "\x00",
        "\n",
        ",",
        "{}",
        "null",
        "[",
        "\ud83d",
    ]
)


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=80) | st.lists(cells, max_size=30).map(lambda c: _table(c)))
def test_nothing_crashes_the_reader(data: bytes) -> None:
    try:
        found = read_ratings(data, "any")
    except BadInput:
        return
    assert found.raters


def _table(fields: list[str]) -> bytes:
    rows = [",".join(fields[i : i + 4]) for i in range(0, len(fields), 4)]
    return ("case_id,criterion_id,rater,met\n" + "\n".join(rows)).encode(
        "utf-8", "surrogatepass"
    )


def test_files_of_several_people_are_one_and_contradict_nowhere(tmp_path: Path) -> None:
    head = "case_id,criterion_id,rater,met\n"
    one, two, three = (tmp_path / name for name in ("one.csv", "two.csv", "three.csv"))
    one.write_text(head + "c,k,ann,yes\nc,l,ann,\nc,m,ann,no\n")
    two.write_text(head + "c,k,bo,no\nc,l,ann,no\nc,k,Bo,no\n")
    found = read_humans(one, two)
    assert found.raters == ("ann", "bo", "Bo")
    assert found.verdicts == {
        ("c", "k"): {"ann": True, "bo": False, "Bo": False},
        ("c", "l"): {"ann": False},
        ("c", "m"): {"ann": False},
    }
    three.write_text(head + "c,m,ann,yes\n")
    with pytest.raises(BadInput, match=r"three\.csv line 2"):
        read_humans(one, two, three)


def test_kqa_labels_that_are_none_are_said(tmp_path: Path) -> None:
    head = ",Question,llm_x,answer,claim,category_x,majority_label,label_0,label_1\n"
    path = tmp_path / "kqa.csv"
    path.write_text(
        head
        + "1,Q?,m,A.,S,Must_have,Neutral,Entailment,Neutral\n2,Q?,m,A.,T,Nice_to_have,x,,Unclear\n"
    )
    with pytest.raises(BadInput, match="label_1: 'Unclear' is not a K-QA label"):
        read_humans(path)
    path.write_text(path.read_text().replace("Unclear", "Contradiction"))
    found = read_humans(path)
    ((case_id, first), (_, second)) = found.verdicts
    assert found.verdicts[case_id, first] == {"label_0": True, "label_1": False}
    assert found.verdicts[case_id, second] == {"label_0": None, "label_1": False}
    path.write_text(head + "1,Q?,m,A.,S,Must_have,Neutral,Entailment,Neutral\n2,Q2?\n")
    assert list(read_humans(path).verdicts) == [(case_id, "r1")]


@real
def test_the_published_file_is_read_whole() -> None:
    labels: list[Any] = [
        met for by in read_humans(KQA).verdicts.values() for met in by.values()
    ]
    assert (len(labels), sum(labels)) == (
        597,
        KQA.read_text("utf-8-sig").count("Entailment") - 72,
    )
