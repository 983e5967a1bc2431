"""`medlive eval run|import|export`: answers, from a model or from LiveMedBench's files."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from medlive.cli.evaluation_options import CasesOption, ConcurrencyOption, KeyOption, RunArgument
from medlive.cli.output import JsonOption, print_json, print_table, progress, say, wait_for
from medlive.clock import now
from medlive.config import load_settings
from medlive.errors import CheckFailed, UsageError


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


def export(run_dir: RunArgument, out: Annotated[Path, typer.Option("--out", help="The folder to write.")]) -> None:
    """Write a run as LiveMedBench's responses and evaluation_results files."""
    from medlive.evaluation.imports import export_run

    for path in export_run(run_dir, out):
        print(path)
