"""The acts that a page offers, and what each does."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from medlive.config import Settings
from medlive.db.accounts import Account
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Act
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.errors import UsageError
from medlive.web.pages import TEMPLATES
from medlive.web.site import Site

LABELS: Final[Mapping[Act, str]] = {
    Act.APPROVE: "Approve for the next freeze",
    Act.REJECT: "Reject",
    Act.OVERRULE: "Overrule the rejection",
    Act.DISPUTE: "Dispute",
    Act.REINSTATE: "Undo the withdrawal",
}
TEMPLATES.globals |= {"act_labels": LABELS}


@dataclass(frozen=True, slots=True)
class Actions:
    """What `audit/_actions.html` offers about a subject; the page passes it as `actions`."""

    subject: str  # case/ID or thread/SOURCE/ID: the end of the form's address
    plain: tuple[Act, ...]  # Those that need a reason and nothing else
    criteria: tuple[
        str, ...
    ] = ()  # Of a case that may be disputed, redacted or withdrawn, or whose criteria may
    revision: int | None = None  # Of a case as it is shown
    waits: tuple[str, ...] = ()  # Who overruled a veto, which takes a further person
    veto: bool = (
        False  # Whether the rejection is a veto that the second check confirmed
    )
    back: str = ""  # Where an act leads to; "": the subject's own page
    unproved_since: int | None = None  # Of a case: the revision; None: it is proved
    held_unproved: bool = False  # Whether a freeze leaves such a case out
    provable: bool = False  # Whether models prove rubrics here
    final: str = ""  # The page of the act that cannot be undone; "": there is none
    final_label: str = ""


def case_actions(
    account: Account,
    case_id: str,
    status: str,
    revision: int,
    criteria: tuple[str, ...],
    *,
    unproved_since: int | None,
    settings: Settings,
) -> Actions | None:
    """The acts on a case; None for who may not act."""
    from medlive.service.wiring import proof_roles

    by_status: Mapping[str, tuple[Act, ...]] = {
        CaseStatus.HELD: (Act.APPROVE, Act.REJECT),
        CaseStatus.READY: (Act.REJECT,),
        CaseStatus.REJECTED: (Act.APPROVE,),
        CaseStatus.WITHDRAWN: (Act.REINSTATE,),
    }
    if not account.may(Role.ADMIN):
        return None
    used = status != CaseStatus.WITHDRAWN
    plain = by_status[CaseStatus(status)]
    return Actions(
        f"case/{case_id}",
        plain,
        criteria if used else (),
        revision=revision,
        unproved_since=unproved_since if used else None,
        held_unproved=settings.release.unproved == "hold",
        provable=bool(proof_roles(settings)),
        final=f"/acts/withdraw/{case_id}" if used else "",
        final_label="Withdraw the case or a criterion",
    )


def thread_actions(
    account: Account,
    source: str,
    thread_id: str,
    outcome: str,
    back: str,
    *,
    waits: tuple[str, ...] = (),
    veto: bool = False,
) -> Actions | None:
    """The acts on a thread of this outcome (`rejected`, `parked`, …), after which `back` is shown."""
    if not account.may(Role.ADMIN):
        return None
    own = {"rejected": (Act.OVERRULE,), "parked": (Act.OVERRULE,)}
    return Actions(
        f"thread/{source}/{thread_id}",
        own.get(outcome, ()),
        waits=waits,
        veto=veto,
        back=back,
        final=f"/acts/take-down/{source}/{thread_id}",
        final_label="Take the thread down",
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A form that asks for an act."""

    site: Site
    by: str
    subject: str  # What follows `case/`, `thread/`, `source/`, `step/` or `dispute/`
    reason: str
    criterion: str | None = None
    words: str = ""
    revision: int | None = None  # Of the case that the page showed

    @property
    def thread(self) -> tuple[str, str]:
        """Source and id of a thread. Raises UsageError."""
        source, slash, thread_id = self.subject.partition("/")
        if not slash:
            raise UsageError(f"unknown thread {self.subject}")
        return source, thread_id


async def perform(kind: str, act: str, asked: Asked) -> None:
    """Do what is asked. Raises UsageError for an act that there is not, and whatever the act raises."""
    from medlive.service.curation import editing, review
    from medlive.service.harvest import takedown
    from medlive.service.harvest.harvest import lift_source_quarantine as lift
    from medlive.service.release import withdraw
    from medlive.service.schedule.rerun import clear_step

    database, settings, subject = (
        asked.site.database,
        asked.site.settings,
        asked.subject,
    )
    why: dict[str, Any] = {"reason": asked.reason, "by": asked.by}
    part, seen = (
        why | {"criterion_id": asked.criterion or None},
        why | {"of": asked.revision},
    )

    acts: Mapping[tuple[str, str], Callable[[], Awaitable[object]]] = {
        ("case", Act.APPROVE): lambda: review.decide_case(
            database, subject, ReviewAction.APPROVE, **seen
        ),
        ("case", Act.REJECT): lambda: review.decide_case(
            database, subject, ReviewAction.REJECT, **seen
        ),
        ("case", Act.DISPUTE): lambda: review.dispute_case(database, subject, **part),
        ("case", Act.REDACT): lambda: editing.redact_case(
            database, subject, asked.words, **why
        ),
        ("case", Act.REINSTATE): lambda: withdraw.reinstate(
            database, settings, subject, **part
        ),
        ("thread", Act.OVERRULE): lambda: review.overrule_rejection(
            database, *asked.thread, people=settings.curation.veto_people, **why
        ),
        ("thread", Act.LIFT_TAKEDOWN): lambda: takedown.allow_return(
            database, *asked.thread, **why
        ),
        ("source", Act.LIFT_QUARANTINE): lambda: lift(
            database, subject, compare_anew=False, **why
        ),
        ("step", Act.CLEAR_STEP): lambda: clear_step(
            database, settings, subject, **why
        ),
        ("dispute", Act.RESOLVE): lambda: review.resolve_dispute(
            database, _number(subject), asked.reason, by=asked.by
        ),
    }
    if (does := acts.get((kind, act))) is None:
        raise UsageError(f"unknown act {act[:40]!r}")
    await does()


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"unknown dispute {text[:40]!r}")
    return int(text)
