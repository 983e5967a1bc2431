"""`medlive canary`: whether a model has seen a snapshot."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import Annotated

from typer import Option

from medlive.cli.evaluation.options import KeyOption
from medlive.cli.options import Commands, SnapshotArgument
from medlive.cli.output import Grid, Result, fields_of, progress, wait_for
from medlive.config import RoleSettings, load_settings
from medlive.errors import CheckFailed, EndpointUnavailable, MedliveError
from medlive.evaluation.canary import CanaryCheck, Outcome, Verdict

app = Commands()


@app.command()
def check(
    snapshot: SnapshotArgument,
    model: Annotated[str, Option(metavar="ID")],
    base_url: Annotated[str, Option(metavar="URL")],
    api_key_env: KeyOption = None,
    samples: Annotated[int, Option(min=1, max=100)] = 1,
    lineage: Annotated[bool, Option("--all")] = False,
) -> Result:
    """Ask a model for a snapshot's canary GUID; exit status 1 when digits come back that it was not given.

    Each probe has a control: the same words for a release that never was, or for a decoy GUID, made
    from the canary by uuid5. A model that can search the web or run tools may look the canary up; this says
    nothing about its training then.

    Args:
        model: The model's id at the endpoint.
        base_url: The endpoint, ending in /v1.
        samples: How often each probe is asked.
        lineage: Look for its ancestors' canaries too.
    """
    from medlive.evaluation.canary import check_canary, earlier, read_marked
    from medlive.service.paths import snapshot_folder
    from medlive.service.wiring import open_endpoint
    from medlive.snapshot.identity import canary_of

    settings = load_settings().settings
    own, ancestors = read_marked(snapshot_folder(settings, snapshot))
    wanted = [own]
    for version in reversed(ancestors) if lineage else ():
        wanted.append(earlier(own, version, canary_of(version)))

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
        async with aclosing(engine):
            for marked in wanted:
                with progress(f"probes of {marked.version}") as tick:
                    result = await check_canary(
                        marked, engine.complete, samples=samples, progress=tick
                    )
                done.append(result)
                if not result.reached():
                    break
        return done

    done = wait_for(work())
    failure: MedliveError | None = None
    shown = [
        result.marked.version for result in done if result.verdict is Verdict.SHOWN
    ]
    if not any(result.reached() for result in done):
        failure = EndpointUnavailable(f"no probe was answered: {done[0].why}")
    elif shown:
        hint = "it has seen the snapshot, or can look it up: its scores on those cases are no evidence"
        what = f"{model} knows the canary of {', '.join(shown)}"
        failure = CheckFailed(what, hint=hint)
    return Result(list(map(_row, done)), _describe(done), _remarks(done), failure)


def _describe(done: list[CanaryCheck]) -> Iterator[Grid | str]:
    rows = []
    for one in done:
        counts = []
        for control in (False, True):
            tally = one.tally(control=control)
            counts.append([f"{n} {name}" for name, n in tally.items()])
        digits = f"{one.run} of 16"
        rows.append([one.marked.version, one.verdict, digits, *counts])
    yield Grid(["release", "verdict", "unseen digits", "probes", "controls"], rows)
    for one in done:
        marked = one.marked
        yield f"{marked.version}: canary {marked.canary}, decoy {marked.decoy}"


def _remarks(done: list[CanaryCheck]) -> Iterator[str]:
    for result in done:
        version = result.marked.version
        if result.reached():
            yield f"{version}: {result.verdict}: {result.why}"
        if result.verdict is Verdict.SHOWN:
            yield f"{version}: a guess does as well with a chance of {result.odds:.1g} at most"
    yield "A decoy is uuid5(canary, 'decoy'); a control without digits names a release that never was."


def _row(result: CanaryCheck) -> dict[str, object]:
    marked = result.marked
    replies = []
    for seen in result.seen:
        if seen.outcome is not Outcome.NOT_ASKED:
            probe = {
                "wording": seen.probe.wording,
                "characters_given": seen.probe.given,
                "control": seen.probe.control,
            }
            names = ("outcome", "run", "decoy_run", "offered", "said")
            replies.append(probe | fields_of(seen, names))
    return {
        "version": marked.version,
        "canary": marked.canary,
        "decoy": marked.decoy,
        "control_version": marked.never,
        "decoy_made_by": "uuid5(canary, 'decoy')",
        "verdict": result.verdict,
        "why": result.why,
        "longest_run": result.run,
        "unseen_digits": 16,
        "odds_of_a_guess": result.odds if result.verdict is Verdict.SHOWN else None,
        "probes": result.tally(control=False),
        "controls": result.tally(control=True),
        "replies": replies,
    }
