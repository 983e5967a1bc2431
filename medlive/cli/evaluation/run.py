"""`medlive eval run|import|export`: answers, from a model or from files."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

from medlive.cli.evaluation.batch import check_batch_out, written_result
from medlive.cli.evaluation.options import (
    Calls,
    CasesOption,
    JudgeOption,
    LimitOption,
    ModeOption,
    ParametersOption,
    RunArgument,
    find_incomplete,
    plan_result,
    read_parameters,
    read_price,
)
from medlive.cli.options import (
    CaseFilter,
    ReplaceOption,
    UnverifiedOption,
    one_of,
    read_settings,
)
from medlive.cli.output import (
    Grid,
    Result,
    fields_of,
    new_file,
    progress,
    say,
    wait_for,
)
from medlive.clock import now
from medlive.errors import BadInput, CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.config import RoleSettings, Settings
    from medlive.evaluation.asking.batch import BatchWritten
    from medlive.evaluation.asking.open_book import OpenBook
    from medlive.evaluation.asking.plan import Plan
    from medlive.evaluation.asking.run import RunResult
    from medlive.evaluation.cases.benchmarks import Format
    from medlive.evaluation.model import CaseSet
    from medlive.llm.budget import Budget

ArmOption = Annotated[
    str | None, Option("--arm", help="What sets this run apart [closed, or open-book].")
]
INSPECT: Final = "inspect"
_MOST_NOTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked of the model, and which model that is.

    Attributes:
        model: The model: a name in models.toml, or its id.
        base_url: The endpoint, ending in /v1 [as in models.toml].
        template: clinical, livemedbench-v1, open, open-book or as-is [by the cases].
        evidence: The open book's index [default].
        top_k: Snippets before a question.
        undated: Let in snippets without a date.
        raw: Ask in the threads' own words; needs their database.
    """

    model: Annotated[str, Option()]
    base_url: str | None = None
    template: str | None = None
    evidence: Annotated[str | None, Option(metavar="NAME|PATH")] = None
    top_k: Annotated[int, Option(min=1, max=50)] = 5
    undated: bool = False
    arm: ArmOption = None
    raw: bool = False

    def candidate(self, settings: "Settings", calls: Calls) -> "RoleSettings":
        """The model that is asked, with its endpoint and parameters."""
        from medlive.instance.opening import check_priced, choose_candidate

        if not self.model.strip():
            raise UsageError("--model is empty")
        chosen = choose_candidate(
            settings,
            self.model,
            base_url=self.base_url,
            api_key_env=calls.api_key_env,
            parameters=read_parameters(calls.parameters),
        )
        if {"max_tokens", "max_completion_tokens"} <= chosen.parameters.keys():
            hint = "take one away with null: --parameters '{\"max_tokens\": null}'"
            raise UsageError(
                "max_tokens, max_completion_tokens: one limit by two names, give one",
                hint=hint,
            )
        if (price := read_price(calls.price)) is not None:
            chosen = chosen.model_copy(update={"price": price})
        check_priced(calls.max_usd, {self.model: chosen.price})
        return chosen

    def book(self, settings: "Settings") -> "OpenBook | None":
        """What is put before each question; None for a closed book."""
        if self.template != "open-book":
            if self.evidence is not None or self.undated:
                raise UsageError(
                    "--evidence and --undated belong to --template open-book"
                )
            return None
        from medlive.evaluation.asking.open_book import OpenBook
        from medlive.evidence.passage import Retriever
        from medlive.instance.opening import (
            DEFAULT_INDEX,
            evidence_folder,
            open_retriever,
        )

        named = self.evidence or DEFAULT_INDEX

        async def open_index() -> Retriever:
            folder = evidence_folder(settings, named)
            return await asyncio.to_thread(open_retriever, settings, folder)

        name = os.path.basename(os.path.normpath(named))
        return OpenBook(name, self.top_k, self.undated, open_index)


def run(
    cases: CasesOption,
    out: Annotated[Path, Option()],
    *,
    asking: Asking,
    part: CaseFilter,
    limit: LimitOption = None,
    unverified: UnverifiedOption = False,
    calls: Calls,
    batch: Path | None = None,
    replace_: ReplaceOption = False,
) -> Result:
    """Ask a model about every case. The same command goes on where it stopped, and asks again for answers that
    failed or were empty.

    Args:
        out: The run folder; an existing one is continued.
        batch: Write the calls as a batch; send nothing.
    """
    from medlive.evaluation.asking.batch import BatchWritten
    from medlive.evaluation.asking.plan import Plan

    settings = read_settings()
    chosen = asking.candidate(settings, calls)
    book = asking.book(settings)
    case_set, arm = select_cases(
        settings, load_set(settings, cases, unverified), part, limit, asking
    )
    _check_batch(out, batch, replace_, calls.dry_run)
    budget = calls.budget(out)
    outcome = wait_for(
        ask_model(case_set, out, asking, chosen, book, arm, calls, budget, batch)
    )
    if isinstance(outcome, Plan):
        result = plan_result(outcome.about, outcome, budget)
        return result._replace(notes=[*result.notes, *_some(_notes_on(case_set))])
    if isinstance(outcome, BatchWritten):
        return written_result(outcome, "every case has an answer: no file was written")
    return answers_result(outcome, case_set, budget)


def _notes_on(cases: "CaseSet") -> list[str]:
    """What to know about the cases; of a snapshot why it is not publishable."""
    about = "not publishable: " if cases.publishable is False else ""
    notes = [f"{about}{note}" for note in cases.notes]
    if cases.newer:
        notes.append(f"{cases.origin} {cases.name}: {cases.newer}")
    return notes


def answers_result(outcome: "RunResult", cases: "CaseSet", budget: "Budget") -> Result:
    """The state of a run; its failure where answers are missing."""
    done = replace(outcome, notes=(*_notes_on(cases), *outcome.notes))
    result = _describe_answers(done, budget)
    failure = find_incomplete(
        _unanswered(done),
        "cases have no answer",
        [done],
        "the same command asks for them again",
    )
    return result._replace(failure=failure)


def select_cases(
    settings: "Settings",
    cases: "CaseSet",
    part: CaseFilter,
    limit: int | None,
    asking: Asking,
) -> "tuple[CaseSet, str | None]":
    """The cases that are asked about, and the arm of the run."""
    from medlive.evaluation.cases.selection import Selection, select
    from medlive.evaluation.runs.folder import RAW

    selected = select(cases, Selection(**part.given(), limit=limit))
    if not asking.raw:
        return selected, asking.arm
    if asking.arm not in (None, RAW):
        raise UsageError(f"--raw is the arm {RAW}, and --arm says {asking.arm}")
    return _in_own_words(settings, selected), RAW


def _in_own_words(settings: "Settings", cases: "CaseSet") -> "CaseSet":
    """A snapshot's cases in their threads' own words. Raises UsageError for cases of no snapshot of this database."""
    from medlive.evaluation.cases.load import in_own_words
    from medlive.service.case_threads import threads_of_cases

    if cases.origin != "snapshot":
        raise UsageError(
            "--raw needs a snapshot's folder or version as --cases, not a file"
        )
    ids = [case.case_id for case in cases.cases]
    return in_own_words(cases, wait_for(threads_of_cases(settings, cases.name, ids)))


def _check_batch(out: Path, batch: Path | None, replace: bool, dry_run: bool) -> None:
    if batch is None:
        return
    if dry_run:
        raise UsageError("--dry-run and --batch exclude each other")
    if out.resolve() in batch.resolve().parents:
        raise UsageError(
            f"{batch} would lie in the run folder {out}", hint="name a file elsewhere"
        )
    check_batch_out(batch, replace)


async def ask_model(
    cases: "CaseSet",
    out: Path,
    asking: Asking,
    chosen: "RoleSettings",
    book: "OpenBook | None",
    arm: str | None,
    calls: Calls,
    budget: "Budget",
    batch: Path | None,
) -> "Plan | RunResult | BatchWritten":
    """Plan the run, write its batch or ask, whichever is wanted."""
    from medlive.api import model_use
    from medlive.evaluation.asking.batch import write_answers
    from medlive.evaluation.asking.run import Spending, begin_run, plan_run, run_model
    from medlive.evaluation.runs.templates import default_template, load_template
    from medlive.instance.opening import open_endpoint

    model, price = asking.model, chosen.price
    template = asking.template or default_template(cases)
    how = {
        "concurrency": calls.concurrency,
        "timeout_s": calls.timeout or chosen.timeout_s,
    }
    engine = open_endpoint(chosen.model_copy(update=how))
    use = model_use(model, chosen, engine, arm)
    async with aclosing(engine):
        if calls.dry_run:
            return await plan_run(
                cases,
                out,
                use=use,
                created_at=now(),
                template=template,
                open_book=book,
                price=price,
            )
        if batch is not None:
            prompt = load_template(template)
            await begin_run(
                cases, out, use=use, created_at=now(), prompt=prompt, open_book=book
            )
            return write_answers(out, batch)
        with progress(f"answers of {model}", budget) as tick:
            return await run_model(
                cases,
                engine.complete,
                out,
                use=use,
                created_at=now(),
                template=template,
                concurrency=calls.concurrency,
                progress=tick,
                open_book=book,
                spending=Spending(budget, engine.estimate_chat),
            )


def load_set(
    settings: "Settings", cases: str, unverified: bool, format_: "Format | None" = None
) -> "CaseSet":
    """The cases at a path or of a version, verified unless that is not wanted. Raises BadInput, CheckFailed."""
    from medlive.evaluation.cases.load import load_cases

    try:
        case_set = load_cases(
            _place(settings, cases), verify=not unverified, format_=format_
        )
    except CheckFailed as exc:
        raise CheckFailed(
            exc.message,
            hint="fetch it again, or say --unverified to take it all the same",
        ) from exc
    if case_set.verified is False:
        say(f"{case_set.name} was not verified; run.json says so")
    return case_set


def _place(settings: "Settings", cases: str) -> Path:
    """Where the cases lie. Raises BadInput where nothing does."""
    from medlive.instance.paths import snapshot_folder
    from medlive.snapshot.model import week_end

    version = cases.removeprefix("medlive-")
    named = not cases or "\0" in cases or version == "latest" or week_end(version)
    if not named and not os.path.lexists(cases):
        hint = "give a benchmark's file of cases, a snapshot's folder, 2026.W47, say, or latest"
        raise BadInput(
            f"{cases} is neither a file or folder nor the version of a snapshot",
            hint=hint,
        )
    return snapshot_folder(settings, cases)


def _some(notes: Sequence[str]) -> list[str]:
    shown = list(notes[:_MOST_NOTES])
    if (more := len(notes) - _MOST_NOTES) > 0:
        shown.append(f"and {more} more (--json has them all)")
    return shown


def _describe_answers(done: "RunResult", budget: "Budget | None" = None) -> Result:
    """How the answers stand."""
    states = {state.value: n for state, n in done.states.items()}
    names = ("path", "cases", "calls", "missing", "stopped", "notes")
    value = fields_of(done, names) | {"states": states, "asked": done.calls}
    del value["calls"]
    if budget:
        value["spent"] = budget.as_json()
    columns = ["run", "cases", "asked now" if budget else "new", *states]
    row = [done.path, done.cases, done.calls, *states.values()]
    return Result(value, [Grid(columns, [row])], _some(done.notes))


def _unanswered(done: "RunResult") -> int:
    """How many cases have no answer."""
    open_ = done.missing
    for state, n in done.states.items():
        if state.value in ("failed", "empty"):
            open_ += n
    return open_


def import_(
    cases: CasesOption,
    responses: Annotated[Path, Option()],
    out: Annotated[Path, Option()],
    *,
    model: str | None = None,
    format_: str | None = None,
    grades: Path | None = None,
    part: CaseFilter,
    template: str | None = None,
    parameters: ParametersOption = "{}",
    grader: str | None = None,
    mode: ModeOption = "rubric",
    arm: ArmOption = None,
    response_field: str = "model_response",
    unverified: UnverifiedOption = False,
) -> Result:
    """Make a run folder of answers, and gradings, that were made elsewhere: with LiveMedBench's scripts, in a log of
    Inspect, or for HealthBench, K-QA or a benchmark of your own (docs/harnesses.md, docs/importing.md).

    Args:
        responses: The answers: the benchmark's own format, JSON, or JSON Lines.
        out: The run folder to make.
        model: The name of the model that answered [as Inspect's log says].
        format_: livemedbench, healthbench, kqa, jsonl or inspect [as the file looks].
        grades: The benchmark's verdicts, or people's.
        template: What they were asked with, for eval run to go on.
        grader: Who made the grades, for eval grade to go on.
        response_field: The field that holds the answer.
    """
    from medlive.evaluation.agreement.humans import read_humans
    from medlive.evaluation.cases.benchmarks import Format, gradings_of
    from medlive.evaluation.cases.selection import Selection, select
    from medlive.evaluation.grading.imports import import_run
    from medlive.grader.judge import Judge, Mode
    from medlive.instance.opening import grader_identity

    settings = read_settings()
    if format_ == INSPECT:
        own = {
            "--model": model,
            "--grades": grades,
            "--template": template,
            "--grader": grader,
            "--arm": arm,
        }
        _check_in_log(own)
        case_set = load_set(settings, cases, unverified)
        return _import_log(case_set, part, responses, out)
    if model is None:
        raise UsageError("--model is missing", hint="name the model that answered")
    form = one_of("--format", Format, format_) if format_ else None
    case_set = select(
        load_set(settings, cases, unverified, form), Selection(**part.given())
    )
    form = (
        Format.LIVEMEDBENCH
        if case_set.origin == "snapshot"
        else Format(case_set.origin)
    )
    place = _place(settings, cases)
    judge = None
    if grader:
        identity = grader_identity(settings.roles.grader, grader)
        judge = Judge(identity, one_of("--mode", Mode, mode))
    ratings = None
    if grades and form not in (Format.LIVEMEDBENCH, Format.HEALTHBENCH):
        ratings = gradings_of(case_set.cases, read_humans(grades).verdicts)
    done = import_run(
        case_set,
        responses,
        out,
        model=model,
        created_at=now(),
        grades=grades,
        template=template,
        parameters=read_parameters(parameters),
        arm=arm,
        judge=judge,
        benchmark=place / "livemedbench.json" if place.is_dir() else place,
        response_field=response_field,
        format_=form,
        ratings=ratings,
    )
    result = _describe_answers(replace(done.run, notes=done.notes))
    if not (open_ := _unanswered(done.run)):
        return result
    anew = "with the same" if template else "after an import into a new folder with"
    note = f"{open_} cases have no answer; medlive eval run asks for them, {anew} --template and --parameters"
    return result._replace(notes=[*result.notes, note])


def _check_in_log(options: Mapping[str, object]) -> None:
    """Raise UsageError for an option whose value is in Inspect's log."""
    named = [name for name, value in options.items() if value is not None]
    if named:
        raise UsageError(
            f"{', '.join(named)}: --format {INSPECT} takes this from the log",
            hint="leave it out",
        )


def _import_log(cases: "CaseSet", part: CaseFilter, log: Path, out: Path) -> Result:
    from medlive.evaluation.cases.selection import Selection, select
    from medlive.integrations import check_inspect

    check_inspect()
    from medlive.integrations.inspect_logs import import_log

    done = import_log(log, select(cases, Selection(**part.given())), out)
    result = _describe_answers(done)
    if not (open_ := _unanswered(done)):
        return result
    note = f"{open_} cases have no answer in {log}"
    return result._replace(notes=[*result.notes, note])


def export(
    run_dir: RunArgument,
    out: Annotated[Path, Option()],
    format_: str = "livemedbench",
    judge: JudgeOption = None,
    replace_: ReplaceOption = False,
) -> Result:
    """Write a run as LiveMedBench's responses and evaluation_results files, or as a log for `inspect view`.

    Args:
        out: The folder to write; for inspect the log, .eval or .json.
        format_: livemedbench or inspect.
    """
    from medlive.api import load_run
    from medlive.evaluation.grading.imports import export_run, left_out

    if format_ not in ("livemedbench", INSPECT):
        raise UsageError(f"--format {format_}: choose livemedbench or {INSPECT}")
    if format_ == INSPECT:
        _export_log(run_dir, out, judge, replace_)
        return Result([out], [str(out)])
    graded = load_run(run_dir, judge=judge)
    paths = export_run(graded, out, overwrite=replace_)
    notes = _some([*graded.notes, *left_out(graded)])
    return Result(paths, map(str, paths), notes)


def _export_log(run_dir: Path, out: Path, judge: str | None, replace: bool) -> None:
    from medlive.integrations import check_inspect

    if out.suffix not in (".eval", ".json"):
        raise UsageError(
            f"--out {out} is not the name of a log",
            hint="name a file that ends in .eval or .json",
        )
    new_file(out, replace)
    check_inspect()
    from medlive.integrations.inspect_logs import export_run

    export_run(run_dir, out, judge=judge)
