"""The acts that a page offers an admin (`Actions`, `case_actions`), and `perform`, which does one."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from medlive.db.tables.people import Act
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.errors import UsageError
from medlive.web.pages import TEMPLATES
from medlive.web.site import Site

LABELS = {
    Act.APPROVE: "Approve for the next freeze",
    Act.REJECT: "Reject",
    Act.OVERRULE: "Overrule the rejection",
    Act.DISPUTE: "Dispute",
    Act.REINSTATE: "Undo the withdrawal",
}
_ON_CASES: Mapping[str, tuple[Act, ...]] = {
    CaseStatus.HELD: (Act.APPROVE, Act.REJECT),
    CaseStatus.READY: (Act.REJECT,),
    CaseStatus.REJECTED: (Act.APPROVE,),
    CaseStatus.WITHDRAWN: (Act.REINSTATE,),
}
"""Status of a case → the acts that need a reason and nothing else."""
TEMPLATES.globals |= {"act_labels": LABELS}


@dataclass(frozen=True)
class Actions:
    """What `audit/_actions.html` offers an admin about a subject; the page passes it as `actions`."""

    subject: str  # case/ID or thread/SOURCE/ID: the end of the form's address
    plain: tuple[Act, ...]  # Those that need a reason and nothing else
    criteria: tuple[str, ...] = ()
    """Ids of a case's criteria, where it or they may be disputed, redacted or withdrawn; else empty."""
    revision: int | None = None  # The shown revision of a case
    veto: bool = False
    """Whether the rejection is a veto that the second check confirmed."""
    back: str = ""  # Where an act leads to; "": the subject's own page
    unproved_since: int | None = None  # Of a case: the revision; None: it is proved


def case_actions(
    case_id: str,
    status: str,
    revision: int,
    criteria: tuple[str, ...],
    *,
    unproved_since: int | None,
    back: str = "",
) -> Actions:
    """The acts on a case."""
    used = status != CaseStatus.WITHDRAWN
    return Actions(
        subject=f"case/{case_id}",
        plain=_ON_CASES[status],
        criteria=criteria if used else (),
        revision=revision,
        back=back,
        unproved_since=unproved_since if used else None,
    )


class ActForm(BaseModel):
    """The form of an act."""

    act: str = ""
    reason: str = ""
    criterion: str = ""  # Of a case; empty for the whole
    words: str = ""  # What is redacted
    back: str = ""  # Where it leads to; "": the case's page
    revision: int | None = None  # Of the case, as the page showed it


async def perform(site: Site, by: str, kind: str, subject: str, form: ActForm) -> None:
    """Do what a form asks.

    Args:
        site: The site.
        by: The account.
        kind: What the act is on: case, thread, source, step or dispute.
        subject: The id of what it is on; of a thread `SOURCE/ID`.
        form: The act, its reason, and what else it needs.

    Raises:
        UsageError: If there is no such act or subject; and whatever the act raises.
    """
    from medlive.service.curation import editing, review
    from medlive.service.harvest import takedown
    from medlive.service.harvest.harvest import lift_source_quarantine
    from medlive.service.release import withdraw
    from medlive.service.schedule.rerun import clear_step

    database, settings = site.database, site.settings
    source, _, thread_id = subject.partition("/")
    criterion = form.criterion or None
    reason = form.reason.strip()
    match kind, form.act:
        case "case", Act.APPROVE | Act.REJECT:
            action = ReviewAction(form.act)
            await review.decide_case(
                database, subject, action, reason, of=form.revision, by=by
            )
        case "case", Act.DISPUTE:
            await review.dispute_case(
                database, subject, reason, criterion_id=criterion, by=by
            )
        case "case", Act.REDACT:
            await editing.redact_case(database, subject, form.words, reason, by=by)
        case "case", Act.REINSTATE:
            await withdraw.reinstate(
                database, settings, subject, reason, criterion_id=criterion, by=by
            )
        case "thread", Act.OVERRULE:
            people = settings.curation.veto_people
            await review.overrule_rejection(
                database, source, thread_id, reason, by=by, people=people
            )
        case "thread", Act.LIFT_TAKEDOWN:
            await takedown.allow_return(database, source, thread_id, reason, by=by)
        case "source", Act.LIFT_QUARANTINE:
            await lift_source_quarantine(
                database, subject, compare_anew=False, reason=reason, by=by
            )
        case "step", Act.CLEAR_STEP:
            await clear_step(database, settings, subject, reason=reason, by=by)
        case "dispute", Act.RESOLVE:
            number = parse_number(subject) or 0  # No dispute has this number
            await review.resolve_dispute(database, number, reason, by=by)
        case _:
            raise UsageError(f"unknown act {form.act[:40]!r}")


def parse_number(text: str) -> int | None:
    """The number that a form or an address holds; None where it holds none that a row may have."""
    return int(text) if text.isdecimal() and len(text) < 10 else None
