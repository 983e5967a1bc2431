"""Logs: Python's standard logging, rendered by structlog to stderr, for people or as JSON lines.

A module logs through `logging.getLogger(__name__)` and configures nothing. `bound(thread=…)` adds ids to every
line that is logged inside it, those of libraries too. Nothing in a line moves the cursor or forges another line,
whoever wrote it; every line loses its secrets last.
"""

import logging
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TextIO

import structlog
from structlog.contextvars import bound_contextvars as bound
from structlog.processors import JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import ProcessorFormatter, add_log_level, add_logger_name
from structlog.typing import EventDict, WrappedLogger

from .guard.printable import printable, printable_json, printable_lines
from .guard.redaction import hide_secrets

__all__ = ["REMARKS", "bound", "configure", "for_people", "kept_lines", "report_error"]

MOST_KEPT = 500
"""Characters of a line that is kept."""

REMARKS = logging.getLogger("medlive")
"""The remarks of a command to the person who started it."""


_keeper: ContextVar["_Keeper | None"] = ContextVar("medlive_keeper", default=None)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to the present `sys.stderr`, which a progress bar or a test may have replaced."""

    def __init__(self, as_json: bool) -> None:
        logging.Handler.__init__(self)
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line as the formatter makes it, without secrets."""
        return hide_secrets(super().format(record))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def configure(level: str = "info", *, as_json: bool = False) -> None:
    """Log to stderr; replaces what an earlier call configured.

    Args:
        level: The lowest level shown of medlive: debug, with tracebacks, info, warning or error. Libraries' lines are
            shown from warning on, or from info for debug.
        as_json: Print one JSON object per line instead of text.
    """
    own = logging.getLevelNamesMapping()[level.upper()]
    libraries = logging.INFO if own == logging.DEBUG else max(own, logging.WARNING)
    is_debug = own == logging.DEBUG
    shown: list[Any] = [partial(_text, traces=is_debug)]
    if as_json:
        shown = [
            TimeStamper(fmt="iso"),
            JSONRenderer(ensure_ascii=False, default=str),
            # JSON leaves C1 controls, line ends of Unicode and marks of direction as they are.
            lambda logger, name, line: printable_json(line),
        ]
    formatter = ProcessorFormatter(
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            add_log_level,
            add_logger_name,
            format_exc_info,
        ],
        processors=[ProcessorFormatter.remove_processors_meta, *shown],
    )
    handler = _Handler(as_json)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for other in list(root.handlers):
        if isinstance(other, _Handler):
            root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(libraries)
    REMARKS.setLevel(own)
    # These loggers repeat themselves while the database is away, which medlive says once.
    for name in ("psycopg.pool", "procrastinate.utils"):
        lowest = libraries if is_debug else logging.CRITICAL
        logging.getLogger(name).setLevel(lowest)


class _Keeper(logging.Handler):
    """Keeps the last lines that are logged inside its block, by whatever task or thread it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=20)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line with its time, level and message, without secrets."""
        if _keeper.get() is not self:
            return
        try:
            message = record.getMessage()
        except Exception:  # a library's arguments that do not fit its text
            self.handleError(record)
            return
        at = time.strftime("%H:%M:%S", time.gmtime(record.created))
        line = f"{at} {record.levelname.lower()} {message}"
        self.lines.append(hide_secrets(line)[:MOST_KEPT])


@contextmanager
def kept_lines() -> Iterator[deque[str]]:
    """The last 20 lines that are logged while the block runs, a line at most 500 characters long."""
    keeper = _Keeper()
    token = _keeper.set(keeper)
    logging.getLogger().addHandler(keeper)
    try:
        yield keeper.lines
    finally:
        logging.getLogger().removeHandler(keeper)
        _keeper.reset(token)


def for_people() -> bool:
    """Whether remarks are shown, and as text: a progress bar may be drawn between them."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler) and handler.as_json:
            return False
    return REMARKS.isEnabledFor(logging.INFO)


def report_error(message: str, hint: str | None) -> None:
    """Log why the command ends."""
    with bound(hint=hint):
        REMARKS.error(message)


def _text(
    logger: WrappedLogger,
    name: str,
    event: EventDict,
    *,
    traces: bool,
) -> str:
    """A remark as it is, an error with its hint below, any other line with its level, logger and ids.

    Each value is made printable by itself. Lines below the first, of traces and hints, are indented, so that none
    of them can be taken for a line of the log.
    """
    text = printable(str(event.pop("event")))
    level = printable(str(event.pop("level")))
    source = printable(str(event.pop("logger")))
    hint = event.pop("hint", None)
    raised = str(event.pop("exception", ""))
    if source != REMARKS.name:
        text = f"{level}: {source}: {text}"
        for key, value in sorted(event.items()):
            text += f" {printable(key)}={printable(str(value))}"
    elif level != "info":
        text = f"{level}: {text}"
    if raised:
        last_line = raised.rstrip("\n").rpartition("\n")[2]
        text += f"\n{_indented(raised)}" if traces else f": {printable(last_line)}"
    return f"{text}\n{_indented(str(hint))}" if hint else text


def _indented(text: str) -> str:
    return "  " + printable_lines(text).replace("\n", "\n  ")
