"""`medlive review`: what people decide about cases, rejected threads and disputes."""

from pathlib import Path
from typing import Annotated

from pydantic import ValidationError
from typer import Argument, Option

from medlive.cli.options import (
    ByOption,
    DecisionOption,
    ThreadArgument,
    split_name,
)
from medlive.cli.output import (
    Result,
    echo,
    fields_of,
    list_result,
    print_json,
    say,
    with_database,
    with_instance,
    with_session,
)
from medlive.config import Settings
from medlive.curation.model import Curation
from medlive.db.curation.cases import find_case
from medlive.db.curation.reviews import list_disputes, list_held
from medlive.db.session import Database
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.errors import UsageError, first_fault
from medlive.instance.loading import read_settings
from medlive.integrity.log import read_bytes
from medlive.rubric.model import unproved_words
from medlive.service.curation import review
from medlive.service.curation.complete import queue_proof
from medlive.service.curation.editing import (
    CaseEdit,
    edit_case,
    load_edit,
    redact_case,
)
from medlive.service.curation.inspect import inspect_case
from medlive.service.wiring import open_pipeline

from .thread import describe_thread

CaseArgument = Annotated[str, Argument(metavar="CASE", help="The case's id.")]
_DISPUTE = (
    "number",
    "case_id",
    "criterion_id",
    "reason",
    "opened_at",
    "opened_by",
    "resolution",
)
RevisionOption = Annotated[
    int | None,
    Option(help="The revision that you saw; refuse if there is a newer one."),
]
ReasonOption = Annotated[str, Option(help="Why; it stays in the database.")]


def list_() -> Result:
    """List the held cases, the one that has waited longest first."""
    held = with_session(list_held)
    note = "no case waits for a person"
    if held:
        note = "medlive review show CASE shows one; approve, reject, edit or drop-element decide it"
    names = ("case_id", "held_since", "language", "source", "reasons", "query")
    listed = list_result(held, names, "revision", "status_reason")
    return listed._replace(notes=[note])


def show(
    case_id: CaseArgument,
    decision: DecisionOption = None,
) -> Result:
    """Show a case with its thread, everything that was decided about it, and why it is held."""
    case = with_session(inspect_case, case_id, decision=decision)
    name = f"{case['thread']['source']}/{case['thread']['thread_id']}"
    return Result(case, describe_thread(name, case))


def approve(
    case_id: CaseArgument,
    *,
    reason: ReasonOption,
    revision: RevisionOption = None,
    by: ByOption = None,
) -> None:
    """Let a held case enter the next freeze as it is; a rejected one too."""
    action = ReviewAction.APPROVE
    with_database(review.decide_case, case_id, action, reason, of=revision, by=by)
    echo(f"{case_id} is approved: the next freeze takes it")
    case = with_session(inspect_case, case_id)["case"]
    if unproved := unproved_words(case["unproved_since"]):
        say(f"its rubric is {unproved}: medlive review prove {case_id}")


def reject(
    case_id: CaseArgument,
    *,
    reason: ReasonOption,
    revision: RevisionOption = None,
    by: ByOption = None,
) -> None:
    """Keep a held or ready case out of every freeze, until its content changes."""
    action = ReviewAction.REJECT
    with_database(review.decide_case, case_id, action, reason, of=revision, by=by)
    echo(f"{case_id} is rejected: no freeze takes it")


def edit(
    case_id: CaseArgument,
    file: Path | None = None,
    reason: str = "",
    by: ByOption = None,
) -> None:
    """Give a case another wording, rubric or kind, as a new revision. A held case stays held until it is approved.

    The file has any of narrative, query, advice, theme, specialty, difficulty, dialogue_register, no_negative, asked
    (the parts of the query), and criteria: the whole rubric. A criterion that is left out is retired, one without an
    id is new. `revision` is the one that was edited: if the case has a newer one, nothing is saved, exit status 1.

    Args:
        file: JSON with what changes, and the revision. Without it the case is printed as such a file.
        reason: Why; it stays in the database.
    """
    if file is None:
        print_json(with_database(load_edit, case_id).model_dump(mode="json"))
        return
    hint = "`medlive review edit CASE` prints such a file, with the revision"
    try:
        edited = CaseEdit.model_validate_json(read_bytes(file))
    except ValidationError as exc:
        why = f"{file} is not an edited case: {first_fault(exc)}"
        raise UsageError(why, hint=hint) from exc
    if edited.revision is None:
        raise UsageError(f"{file} has no revision", hint=hint)
    done = with_database(edit_case, case_id, edited, reason, of=edited.revision, by=by)
    echo(f"{case_id} has revision {done.revision}")


def overrule(
    thread: ThreadArgument,
    reason: Annotated[
        str,
        Option(
            help="Why; about a confirmed contradiction it is published with the case."
        ),
    ],
    by: ByOption = None,
) -> None:
    """Let a rejected or parked thread go on past the step that stopped it, in `medlive curate` or a worker.

    Overruling a contradiction that the second check confirmed takes two people ([curation] veto_people); their reasons
    are published with the case.
    """
    row, agreed = with_database(
        review.overrule_rejection,
        *split_name(thread),
        reason,
        by=by,
        people=read_settings().curation.veto_people,
    )
    if agreed:
        echo(
            f"{thread} is no longer rejected for {row.overruled}: the next curate continues it"
        )
    else:
        echo(
            f"{thread} is still rejected for {row.overruled}: a second person has to agree"
        )


def redact(
    case_id: CaseArgument,
    words: str,
    reason: ReasonOption,
    by: ByOption = None,
) -> None:
    """Replace words by [redacted] in every text of a case, as a new revision. Frozen snapshots keep them.

    Args:
        words: The words, as the case has them.
    """
    done = with_database(redact_case, case_id, words, reason, by=by)
    echo(f"{case_id} has revision {done.revision}")


def drop_element(
    case_id: CaseArgument,
    element: str,
    reason: ReasonOption,
    by: ByOption = None,
) -> None:
    """Write a held case again without one of its advice elements; the engines of config/models.toml are asked.

    Args:
        element: The advice element's id, e.g. a3.
    """

    async def work(database: Database, settings: Settings) -> Curation:
        async with open_pipeline(settings, database) as pipeline:
            return await review.drop_element(pipeline, case_id, element, reason, by=by)

    with_instance(work)
    case = with_session(find_case, case_id)
    state = "nothing holds it now: the next freeze takes it"
    if case.status is CaseStatus.HELD:
        state = f"it is still held: {case.status_reason}"
    echo(f"{case_id} was written anew without {element}; {state}")


def prove(case_id: CaseArgument) -> None:
    """Queue a new proof of a case's rubric, as after an edit; the next `medlive curate` or a worker does it."""
    revision, already = with_instance(queue_proof, case_id)
    state = "waits already" if already else "is queued"
    echo(
        f"the proof of revision {revision} of {case_id} {state}: "
        "the next `medlive curate` or a worker does it"
    )


def dispute(
    case_id: CaseArgument,
    *,
    reason: str,
    criterion: str | None = None,
    by: ByOption = None,
) -> Result:
    """Dispute a case, or one of its criteria: the case stays out of new snapshots until the dispute is resolved.

    Args:
        reason: What is wrong; it stays in the database.
        criterion: About this criterion: CASE-c3, or c3.
    """
    done = with_database(
        review.dispute_case, case_id, reason, criterion_id=criterion, by=by
    )
    text = f"dispute {done.number} about {case_id} is open"
    return Result(fields_of(done, _DISPUTE), [text])


def resolve(
    number: Annotated[int, Argument(min=1, max=2**31 - 1)],
    *,
    resolution: str,
    by: ByOption = None,
) -> Result:
    """Close a dispute. This withdraws nothing: `medlive snapshot withdraw` does.

    Args:
        number: The dispute's number.
        resolution: How it was resolved.
    """
    done = with_database(review.resolve_dispute, number, resolution, by=by)
    text = f"dispute {number} about {done.case_id} is closed: {resolution}"
    return Result(fields_of(done, _DISPUTE), [text])


def disputes(
    all_: bool = False,
) -> Result:
    """List the open disputes, oldest first.

    Args:
        all_: Closed ones too.
    """
    disputed = with_session(list_disputes, closed=all_)
    return list_result(disputed, _DISPUTE, "closed_at", "closed_by")
