"""Logs go to stderr, as text or as JSON lines, each with the ids of the work it is about."""

import json
import logging
from collections.abc import Iterator

import pytest

from medlive import logs
from tests.support.instance import Instance

pytestmark = pytest.mark.whole


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers, root.level, logs.REMARKS.level)
    yield
    root.handlers = before[0]
    root.setLevel(before[1])
    logs.REMARKS.setLevel(before[2])


def _log() -> None:
    logging.getLogger("medlive.service").debug("detail")
    logs.REMARKS.info("a remark")
    library = logging.getLogger("procrastinate.worker")
    library.info("a job begins")
    with logs.bound(run=7, thread="icliniq/a1"):
        library.warning("a job is late: %d s", 3)
    try:
        raise ValueError("broken")
    except ValueError:
        library.exception("a job failed")
    logs.report_error("cannot go on", "try again")


LATE = "warning: procrastinate.worker: a job is late: 3 s run=7 thread=icliniq/a1"
FAILED = "error: procrastinate.worker: a job failed: ValueError: broken"
END = ["error: cannot go on", "  try again"]


def test_people_read_remarks_and_what_goes_wrong_in_libraries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure()
    _log()
    assert capsys.readouterr().err.splitlines() == ["a remark", LATE, FAILED, *END]


def test_quiet_leaves_remarks_out(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning")
    _log()
    assert capsys.readouterr().err.splitlines() == [LATE, FAILED, *END]
    assert not logs.for_people()


def test_verbose_adds_details_libraries_and_traces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("debug")
    _log()
    lines = capsys.readouterr().err.splitlines()
    assert lines[:4] == [
        "debug: medlive.service: detail",
        "a remark",
        "info: procrastinate.worker: a job begins",
        LATE,
    ]
    assert "  Traceback (most recent call last):" in lines


def test_a_level_holds_for_medlive_and_libraries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("error")
    _log()
    assert capsys.readouterr().err.splitlines() == [FAILED, *END]


def test_json_lines_carry_level_logger_time_ids_and_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(as_json=True)
    _log()
    remark, late, failed, end = map(json.loads, capsys.readouterr().err.splitlines())
    assert remark.pop("timestamp").endswith("Z")
    assert remark == {"event": "a remark", "level": "info", "logger": "medlive"}
    assert (late["run"], late["thread"], late["event"]) == (
        7,
        "icliniq/a1",
        "a job is late: 3 s",
    )
    assert failed["exception"].startswith("Traceback")
    assert "run" not in failed
    assert (end["level"], end["event"], end["hint"]) == (
        "error",
        "cannot go on",
        "try again",
    )


HOSTILE = "\x1b[2J\x9b31m\u202eevil\r\nerror: forged\u2028error: forged"
"""Moves the cursor, turns the direction round, and would begin lines of its own."""


def _log_hostile() -> None:
    library = logging.getLogger("theirs")
    logs.REMARKS.info("a model is called %s", HOSTILE)
    with logs.bound(thread=HOSTILE):
        library.warning("%s asked", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        library.exception("failed")
    logs.report_error(f"unknown {HOSTILE}", f"try {HOSTILE}")


def _has_no_power(line: str) -> bool:
    return line.isprintable() and not line.startswith("error: forged")


@pytest.mark.parametrize("level", ["info", "debug"])
def test_no_line_moves_the_cursor_or_is_forged(
    capsys: pytest.CaptureFixture[str], level: str
) -> None:
    logs.configure(level)
    _log_hostile()
    shown = capsys.readouterr().err
    assert all(_has_no_power(line) for line in shown.split("\n"))
    assert shown.count("evil") >= 5


def test_json_lines_hold_a_strangers_text_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(as_json=True)
    _log_hostile()
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert all(map(_has_no_power, lines))
    remark, asked, *_ = map(json.loads, lines)
    assert remark["event"] == f"a model is called {HOSTILE}"
    assert asked["thread"] == HOSTILE


def test_options_before_the_command_and_variables_choose_how_is_logged(
    instance: Instance,
) -> None:
    arguments = ["evidence", "search", "aspirin"]
    found = instance.here("--log-format", "json", *arguments, status=3)
    assert json.loads(found.err)["level"] == "error"
    chosen = Instance(
        instance.home,
        instance.url,
        {"MEDLIVE_LOG_FORMAT": "json", "MEDLIVE_LOG_LEVEL": "error"},
    )
    assert json.loads(chosen.here(*arguments, status=3).err)["hint"]
    assert instance.here(*arguments, status=3).err.startswith("error: ")
    assert (
        "--log-level" in instance.here("--log-level", "loud", *arguments, status=2).err
    )
    for option, level in (("-v", logging.DEBUG), ("-q", logging.WARNING)):
        instance.here(option, *arguments, status=3)
        assert logs.REMARKS.level == level


def test_a_line_whose_arguments_do_not_fit_ends_no_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with logs.kept_lines() as lines:
        logging.getLogger("library").warning("%d of %d", 1)
        logging.getLogger("library").warning("%d of %d", 1, 2)
    (kept,) = lines
    assert kept.endswith("warning 1 of 2")
