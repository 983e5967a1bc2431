"""Withdraw or reinstate cases and criteria, and write the errata beside the frozen snapshots, which stay unchanged.

Also checks the reasons and names that people give: `check_public_reason`, `check_reason`, `check_person_name`.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from medlive.config import Settings
from medlive.curation.agent import by_id
from medlive.db.curation import cases
from medlive.db.release import withdrawals
from medlive.db.release.snapshots import list_memberships
from medlive.db.session import Database, Session
from medlive.db.tables.release import CaseStatus, WithdrawalRow
from medlive.db.threads.takedowns import find_takedown
from medlive.db.threads.threads import thread_of_case
from medlive.errors import CheckFailed, UsageError
from medlive.instance.paths import snapshots_path
from medlive.integrity.signing import SecretKey, load_signing_key, sign
from medlive.rubric.model import Criterion
from medlive.snapshot.errata import (
    MOST_REASON,
    PUBLIC_ERRATA,
    Errata,
    WithdrawalKind,
    trusted_comment,
    write_errata_file,
)
from medlive.snapshot.verify.text_checks import (
    as_read,
    find_contact,
    find_disguise,
    find_unstorable,
)

MOST_LOGGED = 2_000
"""The most characters of a reason that is not published."""
TAKEN_DOWN_REASON = "taken down"
"""The public reason of every takedown; the reason given is not published."""


@dataclass(frozen=True)
class WithdrawResult:
    """A withdrawal, whether it was `already` made, the frozen snapshots concerned, and the rewritten errata."""

    withdrawal: WithdrawalRow
    already: bool
    snapshots: tuple[str, ...]
    errata: Path | None  # None in a dry run
    signed: bool


async def withdraw(
    database: Database,
    settings: Settings,
    case_id: str,
    kind: WithdrawalKind,
    reason: str,
    *,
    criterion_id: str | None = None,
    revision: int | None = None,
    by: str | None = None,
    dry_run: bool = False,
) -> WithdrawResult:
    """Withdraw a case, or one criterion of it, and rewrite the errata; repeating it changes nothing.

    The reason is published. A criterion is named `c3` or `<case id>-c3`, in the latest revision, one that a frozen
    snapshot contains, or `revision`. `dry_run` stores nothing. Raises UsageError for an unknown id or a reason that
    cannot be published, and CheckFailed if too few criteria would be left.
    """
    reason = check_public_reason(reason)
    by = check_person_name(by)
    key = load_signing_key(os.environ)
    async with database.begin() as session:
        await cases.lock_case(session, case_id)
        part = None
        if criterion_id is not None:
            part = await find_criterion(session, case_id, criterion_id, revision)
        withdrawal, already = await _withdraw(
            session, case_id, kind, reason, by=by, part=part
        )
        entries = (await withdrawals.load_errata(session)).entries
        if dry_run:
            session.expunge_all()  # Rows loaded before stay as they were
            await session.rollback()
    snapshots: set[str] = set()
    for entry in entries:
        if entry.id == withdrawal.number:
            snapshots.update(entry.snapshots)
    return WithdrawResult(
        withdrawal=withdrawal,
        already=already,
        snapshots=tuple(sorted(snapshots)),
        errata=None if dry_run else await write_errata(database, settings, key=key),
        signed=key is not None and not dry_run,
    )


async def reinstate(
    database: Database,
    settings: Settings,
    case_id: str,
    reason: str,
    *,
    criterion_id: str | None = None,
    by: str | None = None,
) -> list[WithdrawalRow]:
    """Undo the withdrawals of a case, which then waits for a person's approval, or of a criterion of it.

    The criterion comes back in a new revision where the latest lacks it; the case is held if words were redacted
    since, as the criterion may still contain them. The errata keep their entries and say when each was undone; the
    reason stays in the log. Raises UsageError for an unknown case, and CheckFailed for what is not withdrawn or whose
    thread is taken down.
    """
    reason = check_reason(reason)
    by, key = check_person_name(by), load_signing_key(os.environ)
    part = None if criterion_id is None else criterion_id.removeprefix(f"{case_id}-")
    async with database.begin() as session:
        status = await cases.lock_case(session, case_id)
        thread = await thread_of_case(session, case_id)
        if await find_takedown(session, *thread):
            raise CheckFailed(
                f"{'/'.join(thread)}, the thread of {case_id}, is taken down",
                hint="medlive thread lift-takedown comes first",
            )
        reinstated = await withdrawals.reinstate(session, case_id, part, reason, by=by)
        if not reinstated:
            raise CheckFailed(
                f"{case_id if part is None else f'{case_id}-{part}'} is not withdrawn"
            )
        if part is None:
            why = f"reinstated by a person: {reason}"[:1000]
            await cases.set_status(
                session, case_id, CaseStatus.HELD, why, withdrawn=True
            )
        else:
            # One id may have named several criteria, in revisions of their own.
            for withdrawal in reinstated:
                earlier = await cases.criteria_of(session, case_id, withdrawal.revision)
                await _bring_back(session, case_id, by_id(earlier)[part])
                if status is CaseStatus.READY and await withdrawals.was_redacted(
                    session, case_id, withdrawal.revision
                ):
                    why = f"{part} is reinstated from before words were redacted"
                    await cases.set_status(session, case_id, CaseStatus.HELD, why)
    await write_errata(database, settings, key=key)
    return reinstated


async def _bring_back(session: Session, case_id: str, criterion: Criterion) -> None:
    """Give a case a revision with a criterion at the rubric's end, unless the latest has its text."""
    latest, digest = await load_latest_case(session, case_id), withdrawals.text_digest
    rubric, known = latest.rubric, by_id(latest.rubric.criteria)
    if digest(criterion.criterion) in [digest(c.criterion) for c in rubric.criteria]:
        return
    name = criterion.id
    if name in known:
        name = f"c{max(int(number[1:]) for number in known) + 1}"
    back = replace(criterion, id=name, position=len(known) + 1)
    rubric = replace(rubric.unproved(), criteria=(*rubric.criteria, back))
    await cases.add_revision(session, case_id, replace(latest, rubric=rubric))


async def record_takedown(session: Session, case_ids: Iterable[str]) -> None:
    """Withdraw the cases of a thread that is taken down; the reason given is not published."""
    for case_id in sorted(set(case_ids)):
        await _withdraw(session, case_id, WithdrawalKind.TAKEDOWN, TAKEN_DOWN_REASON)


async def write_errata(
    database: Database, settings: Settings, *, key: SecretKey | None = None
) -> Path:
    """Write `errata.json` beside the frozen snapshots, signed when there is a key (default: `load_signing_key`).

    `errata-public.json` beside it names neither snapshots that are not publishable nor what they alone hold.
    Called after each freeze and withdrawal; the same rows give the same bytes. Raises BadInput when the folder
    cannot be written.
    """
    key = key or load_signing_key(os.environ)
    async with database.begin() as session:
        errata = await withdrawals.load_errata(session)
        public = await withdrawals.load_errata(session, public=True)
        # Written under the lock that reading took, so that the latest state is written last.
        folder, write = snapshots_path(settings), write_errata_file
        await asyncio.to_thread(
            write, folder, public, _signer(public, key), PUBLIC_ERRATA
        )
        return await asyncio.to_thread(write, folder, errata, _signer(errata, key))


def _signer(
    errata: Errata,
    key: SecretKey | None,
) -> Callable[[bytes], str] | None:
    """What signs the errata's bytes; None without a key."""
    if key is None:
        return None
    about = f"medlive errata, key {key.public.id_text()}"
    return lambda data: sign(data, key, trusted_comment(errata), about)


def check_public_reason(reason: str) -> str:
    """Return a reason as it is published, on one line.

    Raises UsageError for an empty or long reason, and for one with a person's identifier or look-alike characters.
    """
    from medlive.deidentify.detect import find_identifiers

    reason = " ".join(reason.split())
    if not 1 <= len(reason) <= MOST_REASON:
        raise UsageError(
            f"a withdrawal needs a public reason of 1 to {MOST_REASON} characters"
        )
    if (character := find_unstorable(reason) or find_disguise(reason)) is not None:
        raise UsageError(f"the reason is published and contains {character}")
    kinds = set[str]()
    for text in (reason, as_read(reason)):
        for identifier in (
            *find_identifiers(text, "en"),
            *find_identifiers(text, "zh"),
        ):
            kinds.add(str(identifier.kind))
        if contact := find_contact(text):
            kinds.add(contact)
    if kinds:
        raise UsageError(
            f"the reason is published and contains an identifier: {', '.join(sorted(kinds))}",
            hint="describe the error without naming a person",
        )
    return reason


def check_reason(reason: str) -> str:
    """Return a reason that is logged and not published, stripped. Raises UsageError for none, or a long one."""
    reason = reason.strip()
    if not 1 <= len(reason) <= MOST_LOGGED:
        raise UsageError(f"expected a reason of 1 to {MOST_LOGGED:,} characters")
    return reason


def check_given_reason(reason: str | None) -> str | None:
    """A reason that may be left out, as `check_reason` returns it."""
    return None if reason is None else check_reason(reason)


def check_person_name(name: str | None) -> str | None:
    """Return a person's name stripped, or None. Raises UsageError for an invalid name."""
    if name is None:
        return None
    name = name.strip()
    if not 1 <= len(name) <= 200 or find_unstorable(name) is not None:
        raise UsageError(
            "a name must have 1 to 200 characters and no control characters"
        )
    return name


async def find_criterion(
    session: Session, case_id: str, criterion_id: str, revision: int | None = None
) -> tuple[int, Criterion]:
    """Find a case's criterion by its id, with or without the case id before it; (revision, criterion).

    Searches `revision`, or else the latest revision, those in frozen snapshots and those that a criterion of this
    id was withdrawn from. Raises UsageError for an unknown or ambiguous id.
    """
    number = criterion_id.removeprefix(f"{case_id}-")
    latest = await load_latest_case(session, case_id)
    places = [latest.revision if revision is None else revision]
    if revision is None:
        for member in await list_memberships(session, case_id):
            if member.first_release is not None and member.frozen_at is not None:
                places.append(member.revision)
        places += await withdrawals.withdrawn_from(session, case_id, number)
    by_text: dict[str, tuple[int, Criterion]] = {}
    for place in dict.fromkeys(places):
        criteria = by_id(await cases.criteria_of(session, case_id, place))
        if criterion := criteria.get(number):
            digest = withdrawals.text_digest(criterion.criterion)
            by_text.setdefault(digest, (place, criterion))
    if not by_text:
        raise UsageError(
            f"case {case_id} has no criterion {criterion_id[:100]!r}",
            hint=f"medlive case show {case_id} lists those of its latest revision",
        )
    if len(by_text) > 1:
        choices = " or ".join(
            f"--revision {place}: {c.criterion[:80]!r}" for place, c in by_text.values()
        )
        raise UsageError(
            f"{case_id}-{number} names different criteria in different revisions",
            hint=choices,
        )
    return next(iter(by_text.values()))


async def _withdraw(
    session: Session,
    case_id: str,
    kind: WithdrawalKind,
    reason: str,
    *,
    by: str | None = None,
    part: tuple[int, Criterion] | None = None,
) -> tuple[WithdrawalRow, bool]:
    """Withdraw a case or a part of it, (revision, criterion); and whether that was done before."""
    status = await cases.lock_case(session, case_id)
    digest = withdrawals.text_digest(part[1].criterion) if part else None
    known = await withdrawals.find_withdrawal(session, case_id, kind, digest)
    if known:
        return known, True
    latest = await load_latest_case(session, case_id)
    revision, criterion, new_revision = latest.revision, None, None
    if part:
        if status is CaseStatus.WITHDRAWN:
            raise CheckFailed(f"the whole case {case_id} is withdrawn already")
        revision, criterion = part
        left = withdrawals.without_criteria(
            latest.rubric, {withdrawals.text_digest(criterion.criterion)}
        )
        if len(left.criteria) < len(latest.rubric.criteria):
            if thin := withdrawals.too_thin(left):
                raise CheckFailed(
                    f"without {case_id}-{criterion.id} the rubric would have {thin}",
                    hint="withdraw the case instead, without --criterion",
                )
            saved = await cases.add_revision(
                session, case_id, replace(latest, rubric=left)
            )
            new_revision = saved.revision
    elif status is not CaseStatus.WITHDRAWN:
        await cases.set_status(session, case_id, CaseStatus.WITHDRAWN, reason)
    made = WithdrawalRow(
        case_id=case_id,
        revision=revision,
        new_revision=new_revision,
        kind=kind,
        reason=reason,
        withdrawn_by=by,
    )
    return await withdrawals.add_withdrawal(session, made, criterion), False


async def load_latest_case(session: Session, case_id: str) -> cases.CaseContent:
    """The latest revision of a case. Raises UsageError if it has none."""
    case = await cases.latest_case(session, case_id)
    if case is None:
        raise UsageError(f"case {case_id} has no revision")
    return case
