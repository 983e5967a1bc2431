"""The acts that a page offers, and what each does."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from medlive.curation.chain import RERUNS
from medlive.curation.model import Stage
from medlive.db.accounts import Account
from medlive.db.tables.accounts import Role
from medlive.db.tables.people import Act
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.errors import UsageError
from medlive.snapshot.errata import WithdrawalKind
from medlive.web.site import Site

LABELS: Final[Mapping[Act, str]] = {
    Act.CONFIRM: "Confirm the decision",
    Act.APPROVE: "Approve for the next freeze",
    Act.REJECT: "Reject",
    Act.OVERRULE: "Overrule the rejection",
    Act.DISPUTE: "Dispute",
    Act.WITHDRAW: "Withdraw",
    Act.REINSTATE: "Undo the withdrawal",
    Act.TAKE_DOWN: "Take the thread down for good",
}
KINDS: Final = tuple(kind.value for kind in WithdrawalKind if kind is not WithdrawalKind.TAKEDOWN)


@dataclass(frozen=True, slots=True)
class Actions:
    """What `audit/_actions.html` offers about a subject; the page passes it as `actions`."""

    subject: str  # case/ID or thread/SOURCE/ID: the end of the form's address
    plain: tuple[Act, ...]  # Those that need a reason and nothing else
    criteria: tuple[str, ...] = ()  # Of a case that may be disputed, redacted or withdrawn, or whose criteria may
    again: bool = False  # Whether it can be curated again
    back: str = ""  # Where an act leads to; "": the subject's own page
    labels: Mapping[Act, str] = field(default_factory=lambda: LABELS)
    kinds: tuple[str, ...] = KINDS
    stages: tuple[str, ...] = tuple(RERUNS)


def case_actions(account: Account, case_id: str, status: str, criteria: tuple[str, ...]) -> Actions | None:
    """The acts on a case; None for who may not act."""
    by_status: Mapping[str, tuple[Act, ...]] = {
        CaseStatus.HELD: (Act.APPROVE, Act.REJECT),
        CaseStatus.READY: (Act.CONFIRM, Act.REJECT),
        CaseStatus.REJECTED: (Act.APPROVE, Act.CONFIRM),
        CaseStatus.WITHDRAWN: (Act.REINSTATE,),
    }
    if not account.may(Role.ADMIN):
        return None
    used = status != CaseStatus.WITHDRAWN
    return Actions(f"case/{case_id}", by_status[CaseStatus(status)], criteria if used else (), again=used)


def thread_actions(account: Account, source: str, thread_id: str, outcome: str, back: str) -> Actions | None:
    """The acts on a thread of this outcome (`rejected`, `failed`, …), after which `back` is shown."""
    if not account.may(Role.ADMIN):
        return None
    rejected = (Act.CONFIRM, Act.OVERRULE) if outcome == "rejected" else ()
    return Actions(f"thread/{source}/{thread_id}", (*rejected, Act.TAKE_DOWN), again=True, back=back)


@dataclass(frozen=True, slots=True)
class Asked:
    """A form that asks for an act."""

    site: Site
    by: str
    subject: str  # What follows `case/`, `thread/`, `source/` or `dispute/`
    reason: str
    criterion: str | None = None
    kind: str = ""
    words: str = ""
    stage: str = ""

    @property
    def thread(self) -> tuple[str, str]:
        """Source and id of a thread. Raises UsageError."""
        source, slash, thread_id = self.subject.partition("/")
        if not slash:
            raise UsageError(f"unknown thread {self.subject}")
        return source, thread_id


async def perform(kind: str, act: str, asked: Asked) -> None:
    """Do what is asked. Raises UsageError for an act that there is not, and whatever the act raises."""
    if (does := _ACTS.get((kind, act))) is None:
        raise UsageError(f"unknown act {act[:40]!r}")
    await does(replace(asked, criterion=asked.criterion or None))


async def _decide(asked: Asked, action: ReviewAction) -> None:
    from medlive.service.curation.review import decide_case

    await decide_case(asked.site.database, asked.subject, action, asked.reason, by=asked.by)


async def _confirm_case(asked: Asked) -> None:
    from medlive.service.curation.review import confirm_case

    await confirm_case(asked.site.database, asked.subject, asked.reason, by=asked.by)


async def _curate_case_again(asked: Asked) -> None:
    from medlive.service.curation.review import thread_of_case

    thread = await thread_of_case(asked.site.database, asked.subject)
    await _curate_again(replace(asked, subject="/".join(thread)))


async def _dispute(asked: Asked) -> None:
    from medlive.service.curation.review import dispute_case

    await dispute_case(asked.site.database, asked.subject, asked.reason, criterion_id=asked.criterion, by=asked.by)


async def _redact(asked: Asked) -> None:
    from medlive.service.curation.review import redact_case

    await redact_case(asked.site.database, asked.subject, asked.words, asked.reason, by=asked.by)


async def _withdraw(asked: Asked) -> None:
    from medlive.service.release.withdraw import withdraw

    if asked.kind not in KINDS:
        raise UsageError(f"unknown kind of withdrawal {asked.kind[:40]!r}")
    site, kind = asked.site, WithdrawalKind(asked.kind)
    await withdraw(
        site.database, site.settings, asked.subject, kind, asked.reason, criterion_id=asked.criterion, by=asked.by
    )


async def _reinstate(asked: Asked) -> None:
    from medlive.service.release.withdraw import reinstate

    site = asked.site
    await reinstate(
        site.database, site.settings, asked.subject, asked.reason, criterion_id=asked.criterion, by=asked.by
    )


async def _confirm_thread(asked: Asked) -> None:
    from medlive.service.curation.review import confirm_rejection

    await confirm_rejection(asked.site.database, *asked.thread, asked.reason, by=asked.by)


async def _overrule(asked: Asked) -> None:
    from medlive.service.curation.review import overrule_rejection

    await overrule_rejection(asked.site.database, *asked.thread, asked.reason, by=asked.by)


async def _curate_again(asked: Asked) -> None:
    from medlive.service.curation.review import curate_again

    if asked.stage and asked.stage not in RERUNS:
        raise UsageError(f"unknown stage {asked.stage[:40]!r}")
    stage = Stage(asked.stage) if asked.stage else None
    await curate_again(asked.site.database, *asked.thread, asked.reason, stage=stage, by=asked.by)


async def _take_down(asked: Asked) -> None:
    from medlive.service.harvest.takedown import take_down

    await take_down(asked.site.database, asked.site.settings, *asked.thread, asked.reason, by=asked.by)


async def _lift_takedown(asked: Asked) -> None:
    from medlive.service.harvest.takedown import allow_return

    await allow_return(asked.site.database, *asked.thread, asked.reason, by=asked.by)


async def _resolve(asked: Asked) -> None:
    from medlive.service.curation.review import resolve_dispute

    if not asked.subject.isdecimal() or len(asked.subject) > 9:
        raise UsageError(f"unknown dispute {asked.subject[:40]!r}")
    await resolve_dispute(asked.site.database, int(asked.subject), asked.reason, by=asked.by)


async def _lift(asked: Asked) -> None:
    from medlive.service.harvest.harvest import lift_source_quarantine

    await lift_source_quarantine(
        asked.site.database, asked.subject, compare_anew=False, reason=asked.reason, by=asked.by
    )


_ACTS: Final[Mapping[tuple[str, str], Callable[[Asked], Awaitable[None]]]] = {
    ("case", Act.APPROVE): lambda asked: _decide(asked, ReviewAction.APPROVE),
    ("case", Act.REJECT): lambda asked: _decide(asked, ReviewAction.REJECT),
    ("case", Act.CONFIRM): _confirm_case,
    ("case", Act.CURATE_AGAIN): _curate_case_again,
    ("case", Act.DISPUTE): _dispute,
    ("case", Act.REDACT): _redact,
    ("case", Act.WITHDRAW): _withdraw,
    ("case", Act.REINSTATE): _reinstate,
    ("thread", Act.CONFIRM): _confirm_thread,
    ("thread", Act.OVERRULE): _overrule,
    ("thread", Act.CURATE_AGAIN): _curate_again,
    ("thread", Act.TAKE_DOWN): _take_down,
    ("thread", Act.LIFT_TAKEDOWN): _lift_takedown,
    ("source", Act.LIFT_QUARANTINE): _lift,
    ("dispute", Act.RESOLVE): _resolve,
}
