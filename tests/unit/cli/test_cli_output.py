"""What commands say while they work."""

import json
import logging
import re
import time
from pathlib import Path

import pytest
from rich.text import Text

from medlive.cli import output
from medlive.cli.output import Result, refuse_existing, show_result, table_of
from medlive.errors import CheckFailed, UsageError


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "medlive")
    spent = ["1 call"]
    with output.progress("criteria", spent) as tick:
        tick(1, 9)
        monkeypatch.setattr(output, "_A_MINUTE", 0.0)
        time.sleep(0.001)
        tick(5, 9)
        spent[0] = "2 calls"
        tick(6)
    ends = "criteria: 6; ['2 calls']"
    assert caplog.messages == ["criteria: 5 of 9, 4 left; ['1 call']", ends, ends]


def test_a_result_is_written_over_nothing(
    tmp_path: Path,
) -> None:
    refuse_existing(tmp_path / "new" / "s.json")
    there = tmp_path / "there.json"
    there.write_text("{}", "utf-8")
    with pytest.raises(UsageError):
        refuse_existing(there)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        refuse_existing(tmp_path / "link")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_breaks_no_word_where_its_words_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    for name, value in {
        "COLUMNS": str(columns),
        "TERM": "xterm",
        "FORCE_COLOR": "1",
        "NO_COLOR": "1",
    }.items():
        monkeypatch.setenv(name, value)
    names = ["step", "last run (UTC)", "took", "outcome", "counts", "due (UTC)", "now"]
    counts = "cases 45, criteria 432, kept_out 1, audit_log_entries 2"
    row = [
        "harvest:icliniq",
        "Mon 2026-11-23 05:20",
        "5 s",
        "done",
        counts,
        "Sun 2026-11-29 18:00",
        "due",
    ]
    output.print_table(names, [row, [None] * len(row)], title="Steps")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, plain.splitlines())) <= columns
    shown = set(re.split(r"[\s│┃]+", plain))
    assert shown >= {word for cell in [*names, *row] for word in cell.split()}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_result_is_printed_once_in_one_form_and_then_fails(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of([{"what": "all", "n": 7}], ("what", "n"), "Figures")
    result = Result({"total": 7}, [table], failure=CheckFailed("too few"))
    with pytest.raises(CheckFailed):
        show_result(result, as_json)
    out = capsys.readouterr().out
    assert ("Figures" in out) is not as_json
    if as_json:
        assert json.loads(out) == {"total": 7}


def test_a_line_of_a_result_is_one_line_and_a_text_keeps_its_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_result(Result(None, ["a\nb", Text("c\nd")]))
    assert capsys.readouterr().out.splitlines()[-2:] == ["c", "d"]
    show_result(Result(None, ["a\nb"]))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_sets_and_rows_are_lists_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"set": {Path("b"), Path("a")}, "fixed": frozenset("ba"), "row": range(2)}
    output.print_json(value)
    lists = {"set": ["a", "b"], "fixed": ["a", "b"], "row": [0, 1]}
    assert json.loads(capsys.readouterr().out) == lists
