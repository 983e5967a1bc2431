"""Read a run's answers for harm (`read_run`): one typed question an answer to the reader, one a finding to the checker.

The log holds every reply of both judges, so that a run resumes where it stopped. Controls are read among a run's
answers, so that judges who find harm everywhere or nowhere are noticed: made-up cases with an excellent answer, and the
same answer with one dangerous statement planted (a slip).
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.harm import (
    HARM_CALLS,
    READINGS,
    UNCHECKED,
    Control,
    ControlFigures,
    HarmRow,
    control_figures,
    harm_key,
    material_of,
    read_rows,
)
from medlive.evaluation.model import Answer, CallsMade, EvaluationCase, gradable
from medlive.evaluation.runs.folder import RunFolder, open_run
from medlive.harm.model import HarmReading, JudgedHarm, Material
from medlive.harm.read import (
    PACKAGE,
    CheckReply,
    HarmReply,
    check_inputs,
    counted_findings,
    fault_of_check,
    fault_of_reading,
    fault_of_words,
    harm_inputs,
    judge_findings,
    same_statement,
)
from medlive.integrity.digest import digest_json
from medlive.integrity.log import lines_of, write_whole
from medlive.llm.engine import Engine, EngineIdentity, Finish, Reply, Usage
from medlive.llm.prompts import load_prompt

from .grade import planned_answers
from .questions import (
    JudgeReplies,
    Question,
    QuestionsAsked,
    ask_questions,
    plan_questions,
    read_findings,
)

CONTROLS = 0.05
"""Controls that are read, as a share of the run's answers."""
LEAST_CONTROLS = 4
"""Two slips and two excellent answers, however short the run."""


@dataclass(frozen=True)
class HarmItem:
    """An answer, or a control, that is read for harm."""

    id: str
    """For the log; the judge never sees it."""
    material: Material
    planted: str | None = None
    """A control's dangerous words, "" for an excellent answer; None: an answer of the run."""

    @property
    def reading(self) -> Question:
        """The reader's question: what is false or harmful in the answer?"""
        return Question(
            case_id=self.id,
            part="answer",
            inputs=harm_inputs(self.material),
            reply=HarmReply,
            check=partial(fault_of_reading, self.material),
            check_text=partial(fault_of_words, self.material.answer),
        )

    def checks(self, reply: HarmReply) -> list[Question]:
        """The checker's questions: is each counted finding (moderate or severe) harmful?"""
        questions = []
        for number, finding in enumerate(counted_findings(reply), start=1):
            question = Question(
                case_id=self.id,
                part=f"finding {number}",
                inputs=check_inputs(self.material, finding.quote),
                reply=CheckReply,
                check=fault_of_check,
                check_text=partial(fault_of_words, self.material.answer),
            )
            questions.append(question)
        return questions

    def reread(self, raws: Sequence[str]) -> tuple[JudgedHarm, ...]:
        """The findings in `raws`: the reader's reply, then the checker's. Raises Unusable or ValueError."""
        first, *others = [
            Reply(
                raw,
                Finish.STOP,
                Usage(),
                "",
            )
            for raw in raws
        ]
        reply = self.reading.read(first)
        assert isinstance(reply, HarmReply)
        questions = self.checks(reply)
        if len(others) != len(questions):
            raise ValueError(f"expected {1 + len(questions)} replies, got {len(raws)}")
        checked = []
        for question, other in zip(questions, others, strict=True):
            ruling = question.read(other)
            assert isinstance(ruling, CheckReply)
            checked.append(ruling)
        return judge_findings(reply, checked)

    def row(
        self,
        readings: JudgeReplies,
        checks: JudgeReplies,
        judge: str,
    ) -> HarmRow:
        """The row of two judges' replies on record; `judge` is the digest of both."""
        control: Control | None = None
        if self.planted is not None:
            control = "slip" if self.planted else "excellent"
        row = HarmRow(
            case_id=self.id,
            key=harm_key(self.material, judge),
            judge=judge,
            reader=readings.identity.model,
            checker=checks.identity.model,
            control=control,
        )
        reading = self.reading
        if (reply := readings.get(reading, HarmReply)) is None:
            return replace(row, missing=readings.why_open(reading))
        checked, raws = [], [readings.row(reading).raw]
        for question in self.checks(reply):
            if (ruling := checks.get(question, CheckReply)) is None:
                why = f"{UNCHECKED}{checks.why_open(question)}"
                return replace(row, missing=why)
            checked.append(ruling)
            raws.append(checks.row(question).raw)
        row = replace(row, harms=judge_findings(reply, checked), raws=tuple(raws))
        return replace(row, hit=self.hit(row.reading))

    def hit(self, reading: HarmReading) -> bool | None:
        """Whether harm is confirmed in a control, in a slip in its planted words; None if not read, or no control."""
        if self.planted is None or not reading.is_read:
            return None
        if not self.planted:
            return bool(reading.confirmed)
        quotes = [harm.finding.quote for harm in reading.confirmed]
        return any(same_statement(quote, self.planted) for quote in quotes)


@cache
def control_items() -> Mapping[str, HarmItem]:
    """Every shipped control by its id, as it is read: of each made-up case the excellent answer, then the slip."""
    text = files("medlive.harm").joinpath("data", "controls.jsonl").read_text("utf-8")
    items = {}
    for number, line in enumerate(text.splitlines(), start=1):
        row = json.loads(line)
        question = f"{row['narrative']}\n\n{row['query']}"
        for kind, planted in (("sound", ""), ("slip", row["planted"])):
            answer = row["answer"]
            if planted:
                answer = answer.replace(row["sound"], planted)
            material = Material(
                language=row["language"],
                question=question,
                answer=answer,
                advice=row["advice"],
            )
            item = HarmItem(f"control-{number}-{kind}", material, planted)
            items[item.id] = item
    return items


def items_of(
    cases: Iterable[EvaluationCase],
    answers: Mapping[str, Answer],
) -> list[HarmItem]:
    """The gradable answers, as items to read."""
    items = []
    for case, answer in gradable(cases, answers):
        items.append(HarmItem(case.case_id, material_of(case, answer)))
    return items


def choose_controls(run: RunFolder, answers: int) -> list[HarmItem]:
    """The controls of a run: as many slips as excellent answers, in its cases' languages, drawn by their digest."""
    languages = {case.language for case in run.cases}
    wanted = max(LEAST_CONTROLS, math.ceil(CONTROLS * answers)) if answers else 0
    by_kind: dict[bool, list[HarmItem]] = {True: [], False: []}
    for item in control_items().values():
        if item.material.language in languages:
            by_kind[bool(item.planted)].append(item)
    chosen: list[HarmItem] = []
    for of_kind in by_kind.values():
        of_kind.sort(key=lambda item: digest_json([run.info.cases.rows, item.id]))
        chosen += of_kind[: math.ceil(wanted / 2)]
    return chosen


@dataclass(frozen=True, kw_only=True)
class HarmResult(CallsMade):
    """The state of a run after reading it for harm."""

    path: Path
    answers: int
    controls: ControlFigures
    reasons: Mapping[str, int]
    """Why answers are not read."""

    @property
    def read(self) -> int:
        """How many answers were read."""
        return self.answers - self.left


async def ask_judges(
    items: Sequence[HarmItem],
    log: Path,
    reader: Engine,
    checker: Engine,
    **how: Any,
) -> list[QuestionsAsked]:
    """Ask the reader about every item not read yet, then the checker about every finding not checked; how each ended.

    The checker is not asked where the reader was stopped by a budget. `how` are arguments of `ask_questions`, whose
    errors are raised.
    """

    def checks(_: JudgeReplies) -> Iterator[Question]:
        readings, _notes = read_findings(log, reader.identity)
        for item in items:
            if (reply := readings.get(item.reading, HarmReply)) is not None:
                yield from item.checks(reply)

    read = await ask_questions(
        lambda _: (item.reading for item in items), log, reader, **how
    )
    if read.stopped is not None:
        return [read]
    return [read, await ask_questions(checks, log, checker, **how)]


def read_results(
    items: Iterable[HarmItem],
    log: Path,
    reader: EngineIdentity,
    checker: EngineIdentity,
) -> list[HarmRow]:
    """The row of each item, by what a log holds of these two judges."""
    readings, _ = read_findings(log, reader)
    checks, _ = read_findings(log, checker)
    prompts = [load_prompt(PACKAGE, reply.task) for reply in (HarmReply, CheckReply)]
    # What makes two pairs of judges one: their engines, models, parameters and prompts.
    both = [reader.as_json(), checker.as_json()]
    judge = digest_json([*both, *(prompt.digest for prompt in prompts)])
    return [item.row(readings, checks, judge) for item in items]


async def read_run(
    run_dir: Path,
    reader: Engine,
    checker: Engine,
    **how: Any,
) -> HarmResult:
    """Read every answer of a run that can be graded and is not read yet by these judges, with controls among them.

    Args:
        run_dir: The run's folder.
        reader: Names findings.
        checker: Confirms or clears them; may be the same engine.
        how: Arguments of `ask_questions`, whose errors are raised; what was answered by then is kept.
    """
    log = run_dir / HARM_CALLS
    run = open_run(run_dir)
    items = items_of(run.cases, run.answers()[0])
    controls = choose_controls(run, len(items))
    # The controls lie at even distances among the answers.
    among = list(items)
    for number, control in enumerate(controls):
        among.insert(number * (len(among) + 1) // len(controls), control)
    try:
        stages = await ask_judges(among, log, reader, checker, **how)
    finally:
        judges = reader.identity, checker.identity
        rows = read_results([*items, *controls], log, *judges)
        _write_rows(run_dir / READINGS, rows)
    done = [row for row in rows if row.control is None]
    silences = [stage.silence for stage in stages if stage.calls]
    reasons = Counter(row.missing for row in done if row.missing)
    return HarmResult(
        path=run_dir,
        answers=len(items),
        left=sum(not row.reading.is_read for row in done),
        controls=control_figures(row for row in rows if row.control is not None),
        reasons=dict(reasons.most_common()),
        notes=stages[0].notes,
        calls=sum(stage.calls for stage in stages),
        stopped=stages[-1].stopped,
        silence=silences[-1] if silences and all(silences) else None,
    )


def _write_rows(path: Path, rows: Sequence[HarmRow]) -> None:
    """Write the rows of two judges after those of other judges, in place of their earlier ones."""
    own = {row.judge for row in rows}
    others = [row for row in read_rows(path)[0] if row.judge not in own]
    write_whole(path, lines_of(row.row() for row in [*others, *rows]))


def plan_run(
    run_dir: Path,
    reader: EngineIdentity,
    *,
    ahead: Sequence[EvaluationCase] = (),
    **how: Any,
) -> Plan:
    """What the readings of `read_run` would take, without checks, whose findings are not known yet.

    `ahead` is as in `planned_answers`.
    """
    items = items_of(*planned_answers(run_dir, ahead))
    return plan_questions(
        lambda _: (item.reading for item in items), run_dir / HARM_CALLS, reader, **how
    )
