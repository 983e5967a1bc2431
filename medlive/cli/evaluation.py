"""`medlive eval`: run a model on cases, grade its answers, score and report them; no database needed."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from medlive.cli.output import JsonOption, print_json, print_table, progress, say, wait_for
from medlive.clock import now
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed, UsageError

app = typer.Typer(no_args_is_help=True)

CasesOption = Annotated[
    str, typer.Option("--cases", help="A snapshot's folder or version, or a LiveMedBench JSON.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run folder.")]
RunsArgument = Annotated[list[Path], typer.Argument(help="Run folders.")]
ConcurrencyOption = Annotated[int, typer.Option("--concurrency", min=1, max=1024, help="Calls at once.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="The variable that holds the key [OPENAI_API_KEY]."),
]
MetricOption = Annotated[
    str, typer.Option("--metric", help="paper (Equation 1) or published (LiveMedBench's metric_calc.py).")
]
ErrataOption = Annotated[
    str, typer.Option("--errata", help="Of what was withdrawn since: warn, apply (leave it out) or ignore.")
]
ErrataFileOption = Annotated[
    Path | None, typer.Option("--errata-file", metavar="FILE", help="These errata [those beside the snapshot].")
]
PublicKeyOption = Annotated[
    str | None,
    typer.Option("--public-key", metavar="KEY", help="minisign's key, or its file, that must have signed them."),
]


@app.command()
def run(
    cases: CasesOption,
    model: Annotated[str, typer.Option("--model", help="The model's id at the endpoint.")],
    base_url: Annotated[str, typer.Option("--base-url", help="The endpoint, ending in /v1.")],
    out: Annotated[Path, typer.Option("--out", help="The run folder; an existing one is continued.")],
    template: Annotated[
        str, typer.Option("--template", help="The prompt template: livemedbench-v1 or open.")
    ] = "livemedbench-v1",
    parameters: Annotated[
        str, typer.Option("--parameters", metavar="JSON", help="E.g. '{\"temperature\": 0}'.")
    ] = "{}",
    concurrency: ConcurrencyOption = 16,
    api_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a model about every case; answers that failed are asked again when the run is started again."""
    from medlive.evaluation.cases import load_cases
    from medlive.evaluation.run import ModelUse, RunResult, run_model
    from medlive.service.endpoints import open_endpoint
    from medlive.service.paths import snapshot_folder

    try:
        sent = json.loads(parameters)
    except ValueError as exc:
        raise UsageError(f"--parameters is no JSON: {exc}") from exc
    if not isinstance(sent, dict):
        raise UsageError("--parameters is a JSON object")
    settings = load_settings().settings
    case_set = load_cases(snapshot_folder(settings, cases))

    async def work() -> RunResult:
        engine = open_endpoint(
            model, base_url, api_key_env=api_key_env, parameters=sent, concurrency=concurrency,
            price=settings.prices.get(model),
        )  # fmt: skip
        try:
            with progress(f"answers of {model}") as tick:
                use = ModelUse(model, engine.identity.engine, base_url, sent)
                return await run_model(
                    case_set, engine.complete, out, use=use, created_at=now(), template=template,
                    concurrency=concurrency, progress=tick,
                )  # fmt: skip
        finally:
            await engine.aclose()

    done = wait_for(work())
    _tell_answers(done, as_json)


def _tell_answers(done: Any, as_json: bool) -> None:
    states = {state.value: n for state, n in done.states.items()}
    if as_json:
        print_json({"path": done.path, "cases": done.cases, "asked": done.asked, "states": states,
                    "missing": done.missing, "notes": done.notes})  # fmt: skip
    else:
        print_table(
            ["run", "cases", "asked now", *states], [[done.path, done.cases, done.asked, *states.values()]]
        )
    for note in done.notes:
        say(note)
    unanswered = states.get("failed", 0) + done.missing
    if unanswered:
        raise CheckFailed(f"{unanswered} cases have no answer", hint="the same command asks for them again")


@app.command()
def grade(
    run_dir: RunArgument,
    grader: Annotated[str | None, typer.Option("--grader", help="The grader's model id.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="The grader's endpoint.")] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="criterion: a call each; rubric: a call per case.")
    ] = "criterion",
    allow_unpinned: Annotated[
        bool, typer.Option("--allow-unpinned", help="Accept replies that name another model than --grader.")
    ] = False,
    concurrency: ConcurrencyOption = 16,
    api_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grade a run's answers; without --grader by the role of config/models.toml. Exit status 1 while criteria
    are ungraded."""
    from medlive.evaluation.grade import GradeResult, grade_run
    from medlive.evaluation.model import Mode
    from medlive.service.endpoints import grader_engine

    if mode not in set(Mode):
        raise UsageError(f"--mode {mode}: choose criterion or rubric")
    settings = load_settings().settings

    async def work() -> GradeResult:
        engine = grader_engine(
            settings.roles.grader, model=grader, base_url=base_url, api_key_env=api_key_env,
            concurrency=concurrency, prices=settings.prices,
        )  # fmt: skip
        try:
            with progress("criteria") as tick:
                return await grade_run(
                    run_dir, engine, mode=Mode(mode), concurrency=concurrency, allow_unpinned=allow_unpinned,
                    progress=tick,
                )  # fmt: skip
        finally:
            await engine.aclose()

    done = wait_for(work())
    if as_json:
        print_json(
            {"path": done.path, "criteria": done.criteria, "met": done.met, "not_met": done.not_met,
             "ungraded": done.ungraded, "reused": done.reused, "calls": done.calls,
             "unanswered": done.unanswered, "reasons": dict(done.reasons), "notes": done.notes}
        )  # fmt: skip
    else:
        print_table(
            ["run", "criteria", "met", "not met", "ungraded", "reused", "calls", "unanswered cases"],
            [[done.path, done.criteria, done.met, done.not_met, done.ungraded, done.reused, done.calls,
              len(done.unanswered)]],
        )  # fmt: skip
    for reason, n in done.reasons.items():
        say(f"ungraded: {n}: {reason}")
    if done.ungraded:
        raise CheckFailed(f"{done.ungraded} criteria are ungraded", hint="the same command grades them again")


def _scored(runs: list[Path], metric: str, errata: str, errata_file: Path | None, public_key: str | None) -> Any:
    from medlive.evaluation.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.evaluation.metrics import Metric
    from medlive.evaluation.score import load_graded, score_runs
    from medlive.service.paths import snapshots_path

    if metric not in set(Metric):
        raise UsageError(f"--metric {metric}: choose paper or published")
    if errata not in set(ErrataMode):
        raise UsageError(f"--errata {errata}: choose warn, apply or ignore")
    mode = ErrataMode(errata)
    search = ErrataSearch(
        errata_file, snapshots_path(load_settings().settings), _public_key(public_key), mode is ErrataMode.IGNORE
    )
    graded = [load_graded(path) for path in runs]
    use = use_errata([run.run for run in graded], mode, search)
    return score_runs(graded, metric=Metric(metric), errata=use)


def _public_key(text: str | None) -> Any:
    """The key in a file of that name, or in the text itself; None for none."""
    from medlive.snapshot.signing import PublicKey

    if text is None:
        return None
    try:
        return PublicKey.parse(Path(text).read_text(encoding="utf-8") if Path(text).is_file() else text)
    except (OSError, UnicodeDecodeError) as exc:
        raise BadInput(f"{text} cannot be read: {exc}") from exc


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"


@app.command()
def score(
    runs: RunsArgument,
    metric: MetricOption = "paper",
    format_: Annotated[
        str, typer.Option("--format", help="table, tsv (as LiveMedBench prints it), or json.")
    ] = "table",
    errata: ErrataOption = "warn",
    errata_file: ErrataFileOption = None,
    public_key: PublicKeyOption = None,
) -> None:
    """Score runs side by side, with intervals, bounds and what is missing.

    What was withdrawn since a run's snapshot was frozen stands in the errata.json beside it; without one there, in
    that of the snapshots frozen here.
    """
    table = _scored(runs, metric, errata, errata_file, public_key)
    if format_ == "tsv":
        print(table.tsv(), end="")
    elif format_ == "json":
        from medlive.report.tables import scores_json

        print_json(scores_json(table))
    elif format_ == "table":
        print_scores(table)
    else:
        raise UsageError(f"--format {format_}: choose table, tsv or json")


def print_scores(table: Any, *, warnings: bool = True) -> None:
    """The score table for people; its warnings go to stderr."""
    print_table(
        ["model", "score %", "95 % interval", "n", "bounds %", "tie group", "unanswered", "ungraded criteria"],
        [
            [
                m.label, _percent(m.overall.mean), f"{_percent(m.overall.low)} to {_percent(m.overall.high)}",
                m.overall.n, f"{_percent(m.overall.least)} to {_percent(m.overall.most)}",
                m.standing.group if m.standing else None, m.rates.unanswered, m.rates.ungraded,
            ]
            for m in table.models
        ],
        title=f"{table.metric.value} metric, {table.common} common cases, bootstrap of {table.draws} draws",
    )  # fmt: skip
    for warning in table.warnings if warnings else ():
        say(warning)


@app.command()
def report(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    metric: MetricOption = "paper",
    errata: ErrataOption = "warn",
    errata_file: ErrataFileOption = None,
    public_key: PublicKeyOption = None,
) -> None:
    """Write a report of runs: one page to read offline, and the figures as JSON and CSV."""
    from medlive.report.render import write_report

    print(write_report(_scored(runs, metric, errata, errata_file, public_key), out))


@app.command("import")
def import_(
    cases: CasesOption,
    responses: Annotated[Path, typer.Option("--responses", help="LiveMedBench's responses file.")],
    model: Annotated[str, typer.Option("--model", help="The name of the model that answered.")],
    out: Annotated[Path, typer.Option("--out", help="The run folder to make.")],
    grades: Annotated[
        Path | None, typer.Option("--grades", help="LiveMedBench's evaluation_results file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a run folder of answers, and gradings, that were made with LiveMedBench's scripts."""
    from medlive.evaluation.imports import import_run
    from medlive.service.paths import snapshot_folder

    folder = snapshot_folder(load_settings().settings, cases)
    done = import_run(folder, responses, out, model=model, created_at=now(), grades=grades)
    for note in done.notes:
        say(note)
    _tell_answers(done.run, as_json)


@app.command()
def export(run_dir: RunArgument, out: Annotated[Path, typer.Option("--out", help="The folder to write.")]) -> None:
    """Write a run as LiveMedBench's responses and evaluation_results files."""
    from medlive.evaluation.imports import export_run

    for path in export_run(run_dir, out):
        print(path)
