"""Protocols for answers that need no judge: a number (`Number`), or the rows that a query returns (`Query`).

A number is right within a tolerance of the reference's (MedCalc: 5 %), in the same unit or one that can be
converted. A query is right where it returns what the reference's does on the user's SQLite database, opened
read-only with limits; an answer may abstain, RS(0) (EHRSQL; seed 004 appendix A.3). The case's `advice` holds the
reference.
"""

import re
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from pydantic import Field

from medlive.errors import BadInput
from medlive.evaluation.grading.questions import JudgeReplies
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.text.quantities import Quantity, measured, numbers

from .model import (
    Figures,
    Material,
    Protocol,
    Records,
    Results,
    Table,
    cases_of,
    mean,
)

_ANSWER = re.compile(r".*((?:answer|答案|结果).*)", re.IGNORECASE)
"""A line from its last "answer" on, with the word: a text that begins with "5." would be read as a list's."""
_BLOCK = re.compile(r"```(?:sql)?\s*(.*?)```", re.IGNORECASE | re.DOTALL)
_BARE = re.compile(
    r"\b(?:select\b|with\s+(?:recursive\s+)?\w+[^.]*?\bas\s*\().*",
    re.IGNORECASE | re.DOTALL,
)
"""A query outside a fenced block, to the end of the text."""
_ABSTAINS = re.compile(
    r"^\W*(?:null|none|n/?a|unanswerable)\W*$|\b(?:can ?not|can['’]t) be answered\b|[无無不][法能]回答",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that says only that there is no query, or such words anywhere."""
_ALONE = re.compile(r"[-+]?\d[\d.,]*\s*[^\s\d]{0,8}")
"""A number with its unit, if any."""
MOST_ROWS = 10_000


def final_number(text: str) -> Quantity | None:
    """The number that an answer ends on: of its last line that names an answer, else the last of all."""
    for line in reversed(text.splitlines()):
        match = _ANSWER.search(line)
        if match and (named := numbers(match[1])):
            return named[0]
    all_numbers = numbers(text)
    return all_numbers[-1] if all_numbers else None


def close(
    number: Quantity,
    reference: Quantity,
    tolerance: float,
) -> bool:
    """Whether a number is within `tolerance`, a share of the reference; where one has no unit, the other's counts.

    `tolerance` 0 asks for the same number.
    """
    (kind, value), (wanted, size) = measured(number), measured(reference)
    if kind is None or wanted is None:
        value, size = number.value, reference.value
    elif kind != wanted:
        return False
    return abs(value - size) <= (tolerance + 1e-9) * abs(size)


class Number(Protocol):
    """Answers that are a number, right within a tolerance."""

    name = "number"
    about = "numeric answers within a tolerance (MEDIC, MedCalc)"
    figure = "share right, 0 to 1"
    asks = False

    tolerance: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="share of the reference; 0: exact",
    )

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Whether the cases' references are a number and its unit, and nothing else."""
        return all(_ALONE.fullmatch(c.advice.strip()) for c in cases_of(material))

    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """Shares right, and answers without a number, which are wrong."""
        rows: Records = []
        figures: Figures = {}
        for run in material:
            right = silent = asked = 0
            for case, answer in run.answered():
                if (reference := final_number(case.advice)) is None:
                    continue
                asked += 1
                number = final_number(answer.response)
                silent += number is None
                right += number is not None and close(number, reference, self.tolerance)
            share = figures[run.label] = right / asked if asked else None
            rows.append(
                {
                    "model": run.label,
                    "answers": asked,
                    "right": share,
                    "no number": silent,
                    "left out": len(run.cases) - asked,
                }
            )
        within = f"within {100 * self.tolerance:g} % of the reference"
        note = f"Right: {within}. Left out: unanswered, or no number in `advice`."
        return Results([Table.of_rows("Numbers", rows, note)], figures)


QUERY_STATES = ("right", "wrong", "failed", "abstained")
"""The states of an answer; failed: its query could not be run, or reached a limit."""


def query_of(text: str) -> str | None:
    """The query of an answer: its last fenced block, or what begins with SELECT or WITH.

    "" for an answer that says that there is no query (null, "cannot be answered"); None where it does neither.
    """
    blocks = _BLOCK.findall(text)
    text = blocks[-1] if blocks else text
    bare = _BARE.search(text)
    # A query may hold the words, or a line NULL.
    if _ABSTAINS.search(text[: bare.start()] if bare else text):
        return ""
    query = text if blocks else bare[0] if bare else ""
    return query.strip().rstrip(";") or None


def run_query(
    database: Path,
    query: str,
    *,
    seconds: float = 5.0,
) -> Counter[tuple[object, ...]]:
    """The rows that a query returns from a SQLite file, in any order.

    The file is opened read-only and for one statement; functions that reach beyond it are not there. Raises
    sqlite3.Error for what does not run, takes longer, or returns more than 10,000 rows.
    """
    place = f"{database.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(place, uri=True)) as connection:
        connection.set_authorizer(only_reads)
        end = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        rows = connection.execute(query).fetchmany(MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise sqlite3.DataError(f"more than {MOST_ROWS} rows")
    counted: Counter[tuple[object, ...]] = Counter()
    for row in rows:
        plain = [round(v, 6) if isinstance(v, float) else v for v in row]
        counted[tuple(plain)] += 1
    return counted


_READS = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_FUNCTION,
)
_BEYOND = ("load_extension", "readfile", "writefile", "edit")
"""Functions that reach beyond the file."""


def only_reads(
    action: int,
    _: str | None,
    function: str | None,
    *__: object,
) -> int:
    """SQLite's authorizer: what reads the file is let through, all else denied."""
    denied = action not in _READS or function in _BEYOND
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK


class Query(Protocol):
    """Answers that are an SQL query, right if it returns the reference's rows."""

    name = "query"
    about = "SQL by what it returns, with abstention (MEDIC, EHRSQL)"
    figure = "RS(0): share right, abstentions included where the reference has none"
    asks = False

    database: Path = Field(description="the SQLite file that queries are run on")

    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """Reliability scores. Raises BadInput where the database or a reference's query cannot be run."""
        if not self.database.is_file():
            raise BadInput(f"{self.database} is not a file")
        rows: Records = []
        figures: Figures = {}
        for run in material:
            points: list[float] = []
            counts = dict.fromkeys(QUERY_STATES, 0)
            for case, answer in run.answered():
                state, answerable = self._state(case, answer)
                is_right = not answerable if state == "abstained" else state == "right"
                points.append(float(is_right))
                counts[state] += 1
            figures[run.label] = mean(points)
            rows.append(
                {
                    "model": run.label,
                    "answers": len(points),
                    "RS(0)": mean(points),
                    **counts,
                    "unanswered": len(run.cases) - len(points),
                }
            )
        note = (
            "An answer abstains by saying that there is no query: right where the reference does, and 0 points "
            "elsewhere. One without a query that does not say so is wrong."
        )
        return Results([Table.of_rows("Queries", rows, note)], figures)

    def _state(
        self,
        case: EvaluationCase,
        answer: Answer,
    ) -> tuple[str, bool]:
        """The state of an answer (`QUERY_STATES`), and whether its case can be answered."""
        wanted, query = query_of(case.advice), query_of(answer.response)
        if wanted is None:
            raise BadInput(
                f"case {case.case_id}: the reference is neither a query nor null"
            )
        if query == "":
            return "abstained", bool(wanted)
        if not query or not wanted:
            return "wrong", bool(wanted)
        try:
            expected = run_query(self.database, wanted)
        except sqlite3.Error as exc:
            raise BadInput(
                f"case {case.case_id}: the reference's query cannot be run: {exc}"
            ) from exc
        try:
            same = run_query(self.database, query) == expected
        except sqlite3.Error:
            return "failed", True
        return "right" if same else "wrong", True
