"""`medlive eval run|import|export`: get answers from a model or from files, or write them to files."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from medlive.api import load_run, model_use
from medlive.cli.options import UnverifiedOption, option_group
from medlive.cli.output import (
    Grid,
    Result,
    fields_of,
    first_of,
    progress,
    refuse_existing,
    say,
    wait_for,
)
from medlive.clock import now
from medlive.config import RoleSettings
from medlive.errors import (
    CheckFailed,
    MedliveError,
    UsageError,
    require,
)
from medlive.evaluation.agreement.humans import read_humans
from medlive.evaluation.asking import run as asking_run
from medlive.evaluation.asking.open_book import OpenBook
from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.asking.run import RunResult
from medlive.evaluation.cases.benchmarks import Format
from medlive.evaluation.cases.load import in_own_words, load_cases
from medlive.evaluation.cases.selection import Selection, select
from medlive.evaluation.grading.imports import export_run, import_run, left_out
from medlive.evaluation.model import CaseSet
from medlive.evaluation.runs.folder import RAW
from medlive.evaluation.runs.templates import default_template
from medlive.evidence.passage import Retriever
from medlive.grader.judge import Judge, Mode
from medlive.instance.loading import read_settings
from medlive.instance.opening import (
    check_priced,
    choose_candidate,
    grader_identity,
    open_endpoint,
    open_retriever,
)
from medlive.instance.paths import index_path, snapshot_folder
from medlive.llm.budget import Budget

from .options import (
    Calls,
    CasesOption,
    JudgeOption,
    ModeOption,
    ParametersOption,
    RunArgument,
    find_incomplete,
    plans_result,
)

_MOST_NOTES = 40


@option_group
class Asking:
    """What is asked of which model, and how it is called.

    Attributes:
        model: The model: a name in models.toml, or its id.
        base_url: The endpoint, ending in /v1 [as in models.toml].
        template: clinical, livemedbench-v1, open, open-book or as-is [by the cases].
        evidence: The folder of the open book's index [this instance's].
        top_k: Snippets before a question.
        undated: Let in snippets without a date.
        raw: Ask in the threads' own words; needs their database.
        part: Which of the cases are asked about.
        calls: How the model is called, and what may be spent.
    """

    model: str
    base_url: str | None = None
    template: str | None = None
    evidence: Path | None = None
    top_k: Annotated[int, Option(min=1, max=50)] = 5
    undated: bool = False
    raw: bool = False
    part: Selection
    unverified: UnverifiedOption = False
    calls: Calls

    def candidate(self) -> RoleSettings:
        """The model that is asked, with its endpoint and parameters."""
        if not self.model.strip():
            raise UsageError("--model is empty")
        calls = self.calls
        chosen = choose_candidate(
            read_settings(),
            self.model,
            base_url=self.base_url,
            api_key_env=calls.api_key_env,
            parameters=calls.parameters,
        )
        price = calls.price or chosen.price
        check_priced(calls.max_usd, {self.model: price})
        how = {
            "price": price,
            "concurrency": calls.concurrency,
            "timeout_s": calls.timeout or chosen.timeout_s,
        }
        return chosen.model_copy(update=how)

    def book(self) -> OpenBook | None:
        """What is put before each question; None for a closed book."""
        if self.template != "open-book":
            if self.evidence is not None or self.undated:
                raise UsageError(
                    "--evidence and --undated belong to --template open-book"
                )
            return None
        settings = read_settings()
        folder = self.evidence or index_path(settings)

        async def open_index() -> Retriever:
            return await asyncio.to_thread(open_retriever, settings, folder)

        return OpenBook(folder.absolute().name, self.top_k, self.undated, open_index)

    def cases(self, named: str) -> CaseSet:
        """The cases that are asked about, with --raw in their threads' own words."""
        selected = select(load_set(named, self.unverified), self.part)
        if not self.raw:
            return selected
        from medlive.service.curation.inspect import threads_of_cases

        if selected.origin != "snapshot":
            raise UsageError(
                "--raw needs a snapshot's folder or version as --cases, not a file"
            )
        ids = [case.case_id for case in selected.cases]
        work = threads_of_cases(read_settings(), selected.name, ids)
        return in_own_words(selected, wait_for(work))

    async def ask(
        self,
        cases: CaseSet,
        out: Path,
        chosen: RoleSettings,
        book: OpenBook | None,
        budget: Budget,
        *,
        dry_run: bool,
    ) -> Plan | RunResult:
        """Ask the model about the cases, or with `dry_run` plan it."""
        engine = open_endpoint(chosen)
        # How run.json marks answers to the threads' own words
        arm = RAW if self.raw else None
        how: dict[str, Any] = {
            "use": model_use(self.model, chosen, engine, arm),
            "created_at": now(),
            "template": self.template or default_template(cases),
            "open_book": book,
        }
        async with aclosing(engine):
            if dry_run:
                return await asking_run.plan_run(cases, out, price=chosen.price, **how)
            with progress(f"answers of {self.model}", budget) as tick:
                return await asking_run.run_model(
                    cases,
                    engine.complete,
                    out,
                    progress=tick,
                    concurrency=chosen.concurrency,
                    budget=budget,
                    estimate=engine.estimate_chat,
                    **how,
                )


def run(
    *,
    cases: CasesOption,
    out: Path,
    asking: Asking,
) -> Result:
    """Ask a model about every case. The same command goes on where it stopped, and asks again for answers that
    failed or were empty.

    Args:
        out: The run folder; an existing one is continued.
    """
    chosen, book = asking.candidate(), asking.book()
    case_set = asking.cases(cases)
    budget, dry_run = asking.calls.budget_of(out), asking.calls.dry_run
    outcome = wait_for(asking.ask(case_set, out, chosen, book, budget, dry_run=dry_run))
    if isinstance(outcome, Plan):
        result = plans_result({"answers": outcome})
        notes = [*result.notes, *first_of(_notes_on(case_set), _MOST_NOTES)]
        return result._replace(notes=notes)
    return answers_result(outcome, case_set, budget)


def _notes_on(cases: CaseSet) -> list[str]:
    """The notes on the cases; for a snapshot why it is not publishable."""
    about = "not publishable: " if cases.publishable is False else ""
    return [f"{about}{note}" for note in cases.notes]


def answers_result(outcome: RunResult, cases: CaseSet, budget: Budget) -> Result:
    """The state of a run as a result, which fails where answers are missing."""
    failure = find_incomplete(outcome.left, "cases without an answer", [outcome])
    notes = [*_notes_on(cases), *outcome.notes]
    return _describe_answers(outcome, notes, budget, failure)


def load_set(cases: str, unverified: bool, format_: Format | None = None) -> CaseSet:
    """The cases at a path or of a version, verified unless `unverified`. Raises BadInput, CheckFailed."""
    place = snapshot_folder(read_settings(), cases)
    try:
        case_set = load_cases(place, verify=not unverified, format_=format_)
    except CheckFailed as exc:
        raise CheckFailed(
            exc.message,
            hint="fetch it again, or say --unverified to take it all the same",
        ) from exc
    if case_set.verified is False:
        say(f"{case_set.name} was not verified; run.json says so")
    return case_set


def _describe_answers(
    done: RunResult,
    notes: Sequence[str],
    budget: Budget | None = None,
    failure: MedliveError | None = None,
) -> Result:
    """A result that counts the answers of a run by their state."""
    states = {state.value: n for state, n in done.states.items()}
    value = fields_of(done, ("path", "cases", "missing", "stopped"))
    value |= {"notes": notes, "states": states, "asked": done.calls}
    if budget:
        value["spent"] = budget
    columns = ["run", "cases", "asked", *states]
    row = [done.path, done.cases, done.calls, *states.values()]
    table = Grid(columns, [row])
    return Result(value, [table], first_of(notes, _MOST_NOTES), failure)


def _describe_imported(done: RunResult) -> Result:
    """The state of an imported run, and what to do about cases without an answer."""
    notes = list(done.notes)
    if done.left:
        notes.insert(
            0,
            f"cases without an answer: {done.left}; medlive eval run asks for them if the import was given the "
            "template and parameters (--template, --parameters, or Inspect's log) that the others were asked with",
        )
    return _describe_answers(done, notes)


def import_(
    *,
    cases: CasesOption,
    responses: Path,
    out: Path,
    model: str | None = None,
    format_: Literal[Format, "inspect"] | None = None,
    grades: Path | None = None,
    part: Selection,
    template: str | None = None,
    parameters: ParametersOption = None,
    grader: str | None = None,
    mode: ModeOption = Mode.RUBRIC,
    unverified: UnverifiedOption = False,
) -> Result:
    """Make a run folder of answers, and gradings, that were made elsewhere: with LiveMedBench's scripts, in a log of
    Inspect, or for HealthBench, K-QA or a benchmark of your own (docs/harnesses.md, docs/importing.md).

    Args:
        responses: The answers: the benchmark's own format, JSON, or JSON Lines.
        out: The run folder to make.
        model: The name of the model that answered [as Inspect's log says].
        format_: The benchmark's format, or inspect for a log of Inspect [as the file of cases looks].
        grades: A file of the benchmark's verdicts, or people's.
        template: The template that the answers were asked with, so that eval run can go on.
        grader: The model that made the grades, so that eval grade can go on.
    """
    if format_ == "inspect":
        if any((model, grades, template, grader)):
            raise UsageError(
                "--format inspect takes model, grades, template and grader from the log",
                hint="leave these options out",
            )
        require("inspect_ai", "a log of Inspect", "inspect-ai")
        from medlive.integrations.inspect_task import import_log

        done = import_log(responses, select(load_set(cases, unverified), part), out)
        return _describe_imported(done)
    if model is None:
        raise UsageError("--model is missing", hint="name the model that answered")
    case_set = select(load_set(cases, unverified, format_), part)
    benchmark = "livemedbench" if case_set.origin == "snapshot" else case_set.origin
    judge = people = None
    if grader:
        identity = grader_identity(read_settings().roles.grader, grader)
        judge = Judge(identity, mode)
    if grades and benchmark not in ("livemedbench", "healthbench"):
        people = read_humans(grades).verdicts
    imported = import_run(
        case_set,
        responses,
        out,
        model=model,
        created_at=now(),
        grades=grades,
        template=template,
        parameters=parameters,
        judge=judge,
        place=snapshot_folder(read_settings(), cases),
        format_=benchmark,
        people=people,
    )
    return _describe_imported(imported)


def export(
    run_dir: RunArgument,
    *,
    out: Path,
    format_: Literal["livemedbench", "inspect"] = "livemedbench",
    judge: JudgeOption = None,
) -> Result:
    """Write a run as LiveMedBench's responses and evaluation_results files, or as a log for `inspect view`.

    Args:
        out: The folder to write; for inspect the log, .eval or .json.
        format_: The format to write.
    """
    if format_ == "livemedbench":
        graded = load_run(run_dir, judge=judge)
        paths = export_run(graded, out)
        notes = first_of([*graded.notes, *left_out(graded)], _MOST_NOTES)
        return Result(paths, map(str, paths), notes)
    if out.suffix not in (".eval", ".json"):
        raise UsageError(
            f"--out {out} is not the name of a log",
            hint="name a file that ends in .eval or .json",
        )
    refuse_existing(out)
    require("inspect_ai", "a log of Inspect", "inspect-ai")
    from medlive.integrations import inspect_task

    inspect_task.export_run(run_dir, out, judge=judge)
    return Result([out], [str(out)])
