"""`medlive filter` and `curate`: filter and curate the threads that wait."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, progress, say, wait_for
from medlive.config import load_settings
from medlive.errors import (
    CheckFailed,
    ConfigError,
    EndpointUnavailable,
    ServiceUnavailable,
)

if TYPE_CHECKING:
    from medlive.service.curation.curate import CurationRun


def command(
    limit: Annotated[
        int | None, Option(min=1, help="Judge at most so many new threads.")
    ] = None,
    retry_failed: Annotated[
        bool, Option("--retry-failed", help="Retry what failed, however often.")
    ] = False,
    again: Annotated[
        bool,
        Option("--again", help="Decide again what other engines or evidence decided."),
    ] = False,
    parked: Annotated[
        bool,
        Option(
            "--parked",
            help="Search parked threads again where the library has changed.",
        ),
    ] = False,
    exhaustive: Annotated[
        bool, Option("--exhaustive", help="Compute all scores even when one fails.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Filter and curate the threads that wait, and retry what failed.

    What was interrupted continues; no reply of an engine is paid for twice. Exit status 1 when the budget was
    spent before all was done, 3 when a model endpoint gave no answer to some.
    """
    from medlive.service.curation.curate import run_curation
    from medlive.service.wiring import find_dependent_judges

    settings = load_settings().settings
    for warning in find_dependent_judges(settings):
        say(f"warning: {warning} (docs/curation.md)")

    async def run() -> "CurationRun":
        with progress("filtered") as filtered, progress("curated") as curated:
            return await run_curation(
                settings,
                limit=limit,
                retry_failed=retry_failed,
                again=again,
                parked=parked,
                exhaustive=exhaustive,
                on_filtered=filtered,
                on_curated=curated,
                on_wait=lambda n: say(
                    f"{n} threads are with another worker; waiting for it or its heartbeat"
                ),
            )

    done = wait_for(run())
    notes = done.counts.faults
    print_result(done.as_json(), as_json, lambda: _print(done), notes=notes)
    _check(done)


def filter_threads(
    limit: Annotated[
        int | None, Option(min=1, help="Judge at most so many threads.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Filter the threads that wait, and queue what passes for `medlive curate` or a worker; asks no model."""
    from medlive.service.curation.filtering import run_filters

    settings = load_settings().settings

    async def run() -> dict[str, int]:
        with progress("filtered") as tick:
            return await run_filters(settings, limit=limit, tick=tick)

    done = wait_for(run())
    print_result(
        done,
        as_json,
        lambda: say(f"{done['passed']} passed the filters, {done['rejected']} did not"),
    )


def _check(done: "CurationRun") -> None:
    """Raises CheckFailed, ConfigError, BudgetSpent or ServiceUnavailable where threads were not curated."""
    from medlive.curation.model import Reason
    from medlive.llm.budget import BudgetSpent

    counts = done.counts
    if counts.faults:
        hint = "medlive curate tries them again"
        raise CheckFailed(
            f"{len(counts.faults)} threads met a fault of medlive itself", hint=hint
        )
    if wrong := counts.misconfigured:
        hint = "medlive curate goes on from there once the configuration or the endpoint is mended"
        raise ConfigError(f"{wrong}: {counts.left} threads wait", hint=hint)
    if stopped := done.spent["stopped"]:
        cut = counts.failures.get(Reason.BUDGET_SPENT, 0)
        hint = "medlive curate goes on from there once [budget] in config/medlive.toml allows it"
        raise BudgetSpent(
            f"{stopped}: {cut} threads were cut short and {counts.left} not begun",
            hint=hint,
        )
    if obstacle := counts.stopped:
        hint = "the next medlive curate goes on from there; medlive circuit reset asks an endpoint again at once"
        raise ServiceUnavailable(f"{obstacle}; {counts.left} threads wait", hint=hint)
    if unanswered := counts.failures.get(Reason.ENDPOINT_UNAVAILABLE):
        hint = (
            "medlive status shows the reason; the next medlive curate tries them again"
        )
        cause = "a model endpoint or a literature service gave no answer"
        raise EndpointUnavailable(f"{unanswered} threads failed: {cause}", hint=hint)
    if failed := counts.outcomes.get("failed"):
        say(
            f"{failed} threads failed for want of a usable reply; the next medlive curate tries them again"
        )


def _print(done: "CurationRun") -> None:
    print_table(
        ["stage", "outcome", "reason", "threads"],
        [row.cells for row in done.funnel],
        title="All threads so far",
    )
    say(
        f"this run: {done.passed} passed the filters, {done.rejected} did not; "
        + (
            ", ".join(f"{n} {outcome}" for outcome, n in done.counts.outcomes.items())
            or "nothing to curate"
        )
        + f"; {done.counts.calls} calls, {done.counts.replayed} of them replayed"
    )
    if expired := done.parked_too_long:
        say(f"{expired} threads were parked for too long, and are rejected")
    if redacted := done.rescanned.get("redacted", 0):
        say(
            f"{redacted} earlier cases were revised: identifiers of people were removed"
        )
    _say_spent(done)


def _say_spent(done: "CurationRun") -> None:
    spent = done.spent
    if not spent["calls"]:
        return
    money = (
        "cost unknown: a model has no price"
        if spent["usd"] is None
        else f"{spent['usd']:.4f} USD"
    )
    guessed = (
        f", {spent['estimated_calls']} of the calls by an upper bound"
        if spent["estimated_calls"]
        else ""
    )
    say(f"spent: {spent['calls']} calls, {spent['tokens']} tokens, {money}{guessed}")
    for state in done.endpoints:
        if state.limited or state.overloaded or state.lowest < state.most:
            say(
                f"{state.endpoint}: {state.limit} calls at once at last, {state.lowest} at the least, "
                f"{state.most} allowed; {state.limited} times 429, {state.overloaded} times overloaded"
            )
