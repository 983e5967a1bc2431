"""Write blank sheets to rate a run's answers, and adjudication sheets for disagreements.

Sheets are blind: no model, verdict, points or other ratings. A row is one criterion of one answer. Its `item` is
a digest of everything rated, so that ratings of changed answers or criteria are recognised and left out. The
order of cases, and of criteria in a case, is drawn for each rater.
"""

import csv
import io
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medlive.digest import digest_json
from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.humans import HumanRatings, Place
from medlive.evaluation.model import Answer, EvaluationCase, EvaluationCriterion
from medlive.evaluation.runs.folder import open_run

COLUMNS: Final = (
    "item", "rater", "number", "case", "language", "question", "answer", "criterion", "met", "comment",
)  # fmt: skip
MOST_CELL: Final = 32_767
"""The most characters of a spreadsheet cell; spreadsheets cut longer text."""

_FORMULA: Final = ("=", "+", "-", "@", "\t")
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_NAME: Final = re.compile(r"[^\w.-]+")

GUIDE: Final = """\
How to rate

Each row is one criterion of one answer. The rows of one answer follow each other, and the question and the
answer stand in the first of them. Read both, then decide for each criterion whether the answer meets it, and
write yes or no into the column "met". Judge the answer as it stands, not what its author may have meant. A
criterion can describe something bad: then yes means that the answer does it. Leave "met" empty where you cannot
decide, and say why under "comment". Change no other column. Work alone: do not compare with another rater
before both are done. If the answer says which program wrote it, let that not count. Save as "CSV UTF-8" and
send the file back.

评分说明

每行是一份回答的一条标准。同一份回答的各行相邻，问题和回答写在其中的第一行。
请先阅读问题和回答，再逐条判断回答是否满足该标准，在 “met” 列填写“是”或“否”。
只依据回答本身的文字判断，不要推测作者的意图。
有的标准描述的是不应出现的内容：此时“是”表示回答中出现了该内容。
无法判断时请留空，并在 “comment” 列说明原因。请勿改动其他列。
请独立完成，在双方都完成之前不要与其他评分者讨论。
如果回答中提到它由哪个程序生成，请不要因此影响判断。
完成后请另存为 “CSV UTF-8” 并发回。
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One criterion of one answer."""

    id: str
    case: EvaluationCase
    answer: Answer
    criterion: EvaluationCriterion

    @property
    def place(self) -> Place:
        """The criterion that the item rates."""
        return self.case.case_id, self.criterion.id


@dataclass(frozen=True, slots=True)
class Sheets:
    """The written files and their size."""

    files: tuple[Path, ...]
    items: int
    """On each sheet."""
    cases: int
    cut: int
    """Cells too long for a spreadsheet."""


def items_of(cases: Iterable[EvaluationCase], answers: Mapping[str, Answer]) -> tuple[Item, ...]:
    """Every criterion of every gradable answer."""
    return tuple(
        Item(_item_id(case, answers[case.case_id], criterion), case, answers[case.case_id], criterion)
        for case in cases
        if case.case_id in answers and answers[case.case_id].gradable
        for criterion in case.criteria
    )


def places_of(items: Iterable[Item]) -> dict[str, Place]:
    """The criteria by item id."""
    return {item.id: item.place for item in items}


def write_sheets(
    run_dir: Path, folder: Path, raters: Sequence[str], *, sample: int | None = None, seed: int = 0
) -> Sheets:
    """Write a sheet for each rater, with the same cases, and `how-to-rate.txt` in English and Chinese.

    Args:
        run_dir: The run whose answers are rated.
        folder: Where to write.
        raters: The raters' names.
        sample: How many of the answered cases to draw; by default all.
        seed: Seed of the sample and the order.

    Raises:
        UsageError: If there is no rater, a duplicate name, or no answer.
        BadInput: If a file exists already, since it may contain ratings.
    """
    items = _items(run_dir)
    chosen = draw_cases({item.case.case_id for item in items}, sample, seed)
    return _write(folder, raters, [item for item in items if item.case.case_id in chosen], seed)


def draw_cases(ids: Iterable[str], sample: int | None, seed: int) -> frozenset[str]:
    """Draw a sample of the ids; all of them if there are no more."""
    known = sorted(set(ids))
    return frozenset(
        known if sample is None or sample >= len(known) else random.Random(seed).sample(known, sample)
    )


def write_adjudication(
    run_dir: Path, folder: Path, adjudicator: str, humans: HumanRatings, *, seed: int = 0
) -> Sheets:
    """Write a blind sheet of the criteria on which raters disagreed or one of several could not decide.

    Raises:
        UsageError: If the adjudicator is one of the raters, or the raters agree on everything.
        BadInput: If the file exists already.
    """
    if adjudicator in humans.raters:
        raise UsageError(f"{adjudicator!r} is one of the raters of {humans.name}")
    disputed = {
        place for place, given in humans.verdicts.items() if len(given) > 1 and len(set(given.values())) > 1
    }
    items = tuple(item for item in _items(run_dir) if item.place in disputed)
    if not items:
        raise UsageError(f"{humans.name}: the raters agree on all answers of this run: nothing to adjudicate")
    return _write(folder, [adjudicator], items, seed)


def _items(run_dir: Path) -> tuple[Item, ...]:
    run = open_run(run_dir)
    items = items_of(run.cases, run.answers()[0])
    if not items:
        raise UsageError(f"{run_dir} has no answer to rate", hint="run medlive eval run first")
    return items


def _item_id(case: EvaluationCase, answer: Answer, criterion: EvaluationCriterion) -> str:
    """An id that spreadsheets do not mistake for a number or a date."""
    digest = digest_json([case.case_id, case.question, answer.digest, criterion.id, criterion.criterion])
    return "i-" + digest.partition(":")[2][:16]


def _write(folder: Path, raters: Sequence[str], items: Sequence[Item], seed: int) -> Sheets:
    files = put_sheets(folder, raters, GUIDE, lambda name: _sheet(name, _ordered(items, f"{seed}/{name}")))
    cells = {text for item in items for text in (item.case.question, item.answer.response)}
    return Sheets(
        files,
        len(items),
        len({item.case.case_id for item in items}),
        sum(1 for text in cells if len(text) >= MOST_CELL),
    )


def put_sheets(
    folder: Path, raters: Sequence[str], guide: str, sheet_of: Callable[[str], str]
) -> tuple[Path, ...]:
    """Write a guide and each rater's sheet to a folder. Raises the errors of `write_sheets`."""
    named = [name.strip() for name in raters if name.strip()]
    paths = [folder / f"ratings-{_NAME.sub('-', name)}.csv" for name in named]
    if not named:
        raise UsageError("expected at least one rater", hint="add --rater NAME, once for each rater")
    if len({path.name.casefold() for path in paths}) < len(paths):
        raise UsageError("two raters have the same name")
    if existing := [path for path in paths if path.exists()]:
        raise BadInput(f"{existing[0]} already exists and may contain ratings", hint="name another folder")
    texts = [sheet_of(name) for name in named]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "how-to-rate.txt").write_text(guide, encoding="utf-8-sig")
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8-sig", newline="")
    except OSError as exc:
        raise BadInput(f"{folder} cannot be written: {exc.strerror or exc}") from exc
    return folder / "how-to-rate.txt", *paths


def _ordered(items: Sequence[Item], seed: str) -> list[Item]:
    """Shuffle the cases, and the criteria within each case."""
    draw = random.Random(seed)
    cases: dict[str, list[Item]] = {}
    for item in items:
        cases.setdefault(item.case.case_id, []).append(item)
    groups = list(cases.values())
    draw.shuffle(groups)
    return [item for group in groups for item in draw.sample(group, len(group))]


def _sheet(rater: str, items: Sequence[Item]) -> str:
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(COLUMNS)
    case, before = 0, ""
    for number, item in enumerate(items, start=1):
        first = item.case.case_id != before
        case, before = case + first, item.case.case_id
        shown = (item.case.question, item.answer.response) if first else ("", "")
        texts = (item.case.language, *shown, item.criterion.criterion)
        table.writerow([item.id, cell(rater), number, case, *map(cell, texts), "", ""])
    return out.getvalue()


def cell(text: str) -> str:
    """A text as a safe cell: no formulas, no control characters except line ends and tabs."""
    clean = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n"))
    return f"'{clean}" if clean.startswith(_FORMULA) else clean
