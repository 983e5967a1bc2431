"""`medlive canary`: whether a model has seen a snapshot."""

from typing import Annotated

import typer
from typer import Argument, Option

from medlive.cli.evaluation.options import KeyOption
from medlive.cli.options import JsonOption
from medlive.cli.output import (
    attributes,
    echo,
    print_result,
    print_table,
    progress,
    say,
    wait_for,
)
from medlive.config import RoleSettings, load_settings
from medlive.errors import CheckFailed, EndpointUnavailable
from medlive.evaluation.canary import CanaryCheck, Outcome, Verdict

app = typer.Typer(no_args_is_help=True)


@app.command()
def check(
    snapshot: Annotated[
        str, Argument(help="A snapshot's folder, or the version of one frozen here.")
    ],
    model: Annotated[str, Option(metavar="ID", help="The model's id at the endpoint.")],
    base_url: Annotated[
        str, Option(metavar="URL", help="The endpoint, ending in /v1.")
    ],
    api_key_env: KeyOption = None,
    samples: Annotated[
        int, Option(min=1, max=100, help="How often each probe is asked.")
    ] = 1,
    lineage: Annotated[
        bool, Option("--all", help="Look for its ancestors' canaries too.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a model for a snapshot's canary GUID; exit status 1 when digits come back that it was not given.

    Each probe has a control: the same words for a release that never was, or for a decoy GUID, made
    from the canary by uuid5. A model that can search the web or run tools may look the canary up; this says
    nothing about its training then.
    """
    from medlive.evaluation.canary import check_canary, earlier, read_marked
    from medlive.service.paths import snapshot_folder
    from medlive.service.wiring import open_endpoint
    from medlive.snapshot.identity import canary_of

    settings = load_settings().settings
    own, ancestors = read_marked(snapshot_folder(settings, snapshot))
    wanted = [
        own,
        *(
            earlier(own, version, canary_of(version))
            for version in reversed(ancestors)
            if lineage
        ),
    ]

    async def work() -> list[CanaryCheck]:
        endpoint = RoleSettings(
            engine="openai",
            model=model,
            base_url=base_url,
            api_key_env=api_key_env,
            concurrency=4,
            max_retries=2,
        )
        engine = open_endpoint(endpoint, settings.prices.get(model))
        done: list[CanaryCheck] = []
        try:
            for marked in wanted:
                with progress(f"probes of {marked.version}") as tick:
                    done.append(
                        await check_canary(
                            marked, engine.complete, samples=samples, progress=tick
                        )
                    )
                if not done[-1].reached():
                    break
        finally:
            await engine.aclose()
        return done

    done = wait_for(work())
    print_result([_row(result) for result in done], as_json, lambda: _print(done))
    if not any(result.reached() for result in done):
        raise EndpointUnavailable(f"no probe was answered: {done[0].why}")
    if shown := [
        result.marked.version for result in done if result.verdict is Verdict.SHOWN
    ]:
        hint = "it has seen the snapshot, or can look it up: its scores on those cases are no evidence"
        raise CheckFailed(f"{model} knows the canary of {', '.join(shown)}", hint=hint)


def _print(done: list[CanaryCheck]) -> None:
    def counts(result: CanaryCheck, control: bool) -> str:
        return ", ".join(
            f"{n} {name}" for name, n in result.tally(control=control).items()
        )

    rows = [
        [
            one.marked.version,
            one.verdict,
            f"{one.run} of 16",
            *(counts(one, control) for control in (False, True)),
        ]
        for one in done
    ]
    print_table(["release", "verdict", "unseen digits", "probes", "controls"], rows)
    for result in done:
        echo(
            f"{result.marked.version}: canary {result.marked.canary}, decoy {result.marked.decoy}"
        )
    for result in done:
        if result.reached():
            say(f"{result.marked.version}: {result.verdict}: {result.why}")
        if result.verdict is Verdict.SHOWN:
            say(
                f"{result.marked.version}: a guess does as well with a chance of {result.odds:.1g} at most"
            )
    say(
        "A decoy is uuid5(canary, 'decoy'); a control without digits names a release that never was."
    )


def _row(result: CanaryCheck) -> dict[str, object]:
    probe = "wording=probe.wording characters_given=probe.given control=probe.control"
    asked = [seen for seen in result.seen if seen.outcome is not Outcome.NOT_ASKED]
    return attributes(result.marked, "version canary decoy control_version=never") | {
        "decoy_made_by": "uuid5(canary, 'decoy')",
        **attributes(result, "verdict why longest_run=run"),
        "unseen_digits": 16,
        "odds_of_a_guess": result.odds if result.verdict is Verdict.SHOWN else None,
        "probes": result.tally(control=False),
        "controls": result.tally(control=True),
        "replies": [
            attributes(seen, f"{probe} outcome run decoy_run offered said")
            for seen in asked
        ],
    }
