"""`medlive filter` and `curate`: filter and curate the threads that wait."""

from medlive.curation.model import Reason
from medlive.errors import (
    CheckFailed,
    ConfigError,
    EndpointUnavailable,
    MedliveError,
    ServiceUnavailable,
)
from medlive.instance.loading import read_settings
from medlive.llm.budget import BudgetSpent
from medlive.service.curation.curate import CurationRun, run_curation
from medlive.service.curation.filtering import run_filters
from medlive.service.wiring import find_dependent_judges

from .options import OptionalCount
from .output import (
    Grid,
    Result,
    progress,
    say,
    wait_for,
    with_instance,
)


def curate(
    limit: OptionalCount = None,
    retry_failed: bool = False,
    again: bool = False,
    exhaustive: bool = False,
) -> Result:
    """Filter and curate the threads that wait, and retry what failed.

    Parked threads are searched again where the library has changed. What was interrupted continues; no reply of an
    engine is paid for twice. Exit status 1 when the budget was spent before all was done, 3 when a model endpoint
    gave no answer to some.

    Args:
        limit: Judge at most so many new threads.
        retry_failed: Retry failed threads, however often they failed.
        again: Decide threads again that were decided with other engines or evidence.
        exhaustive: Compute all scores even when one fails.
    """
    settings = read_settings()
    for warning in find_dependent_judges(settings):
        say(f"warning: {warning} (docs/curation.md)")

    with progress("filtered") as filtered, progress("curated") as curated:
        work = run_curation(
            settings,
            limit=limit,
            retry_failed=retry_failed,
            again=again,
            exhaustive=exhaustive,
            on_filtered=filtered,
            on_curated=curated,
        )
        done = wait_for(work)
    value = done.as_json()
    spent = done.spent
    if spent["usd"] is None:  # A model has no price
        spent = {**spent, "usd": "unknown"}
    columns = ["stage", "outcome", "reason", "threads"]
    shown = [
        Grid(["what", "count"], (value | {"spent": spent}).items(), "This run"),
        Grid(columns, done.funnel, "All threads so far"),
    ]
    value["funnel"] = done.funnel
    return Result(value, shown, failure=_find_obstacle(done))


def filter_(
    limit: OptionalCount = None,
) -> Result:
    """Filter the threads that wait, and queue what passes for `medlive curate` or a worker; asks no model.

    Args:
        limit: Judge at most so many threads.
    """
    with progress("filtered") as tick:
        done = with_instance(run_filters, limit=limit, tick=tick)
    text = f"{done['passed']} passed the filters, {done['rejected']} did not"
    return Result(done, notes=[text])


def _find_obstacle(done: CurationRun) -> MedliveError | None:
    """The failure that says why threads were not curated; None where all were."""
    counts = done.counts
    waiting = f"threads that wait: {counts.left}"
    if counts.faults:
        return CheckFailed(
            f"threads that met a fault of medlive itself: {len(counts.faults)}",
            hint="medlive curate tries them again",
        )
    if wrong := counts.misconfigured:
        hint = "medlive curate goes on from there once the configuration or the endpoint is mended"
        return ConfigError(f"{wrong}; {waiting}", hint=hint)
    if stopped := done.spent["stopped"]:
        cut = counts.failures.get(Reason.BUDGET_SPENT, 0)
        return BudgetSpent(
            f"{stopped}; threads cut short: {cut}, not begun: {counts.left}",
            hint="medlive curate goes on from there once [budget] in config/medlive.toml allows it",
        )
    if obstacle := counts.stopped:
        hint = "the next medlive curate goes on from there; medlive circuit reset asks an endpoint again at once"
        return ServiceUnavailable(f"{obstacle}; {waiting}", hint=hint)
    if unanswered := counts.failures.get(Reason.ENDPOINT_UNAVAILABLE):
        return EndpointUnavailable(
            f"threads that a model endpoint or a literature service did not answer: {unanswered}",
            hint="medlive status shows the reason; the next medlive curate tries them again",
        )
    return None
