"""Withdraws cases and criteria, and keeps the errata beside the frozen snapshots, which stay as they are."""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from medlive.config import Settings
from medlive.db.curation.cases import StoredCase, add_revision, criteria_of, latest_case, withdraw_case
from medlive.db.release.cases import lock_case, shown_revisions
from medlive.db.release.withdrawals import (
    Withdrawal,
    add_withdrawal,
    find_withdrawal,
    load_errata,
    text_digest,
    too_thin,
    withdrawn_from,
    without_criteria,
)
from medlive.db.session import Database, Session
from medlive.db.tables import CaseStatus
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.signing import SecretKey, load_signing_key, sign
from medlive.rubric.model import Criterion
from medlive.service.paths import snapshots_path
from medlive.snapshot.errata import MOST_REASON, Errata, WithdrawalKind, trusted_comment, write_errata_file
from medlive.snapshot.gates import standard_scanner
from medlive.snapshot.verify.disguise import as_read, find_disguise
from medlive.snapshot.verify.leaks import find_contact, find_unstorable

TAKEN_DOWN_REASON = "taken down"
"""The public reason of every takedown: the one that was given is nobody's business."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What a withdrawal did."""

    withdrawal: Withdrawal
    already: bool
    """True when it was withdrawn before for a reason of this kind: nothing was changed, the first reason stays."""
    snapshots: tuple[str, ...]
    """The frozen snapshots that hold what was withdrawn, oldest first."""
    errata: Path | None
    """The errata's file, written anew; None in a dry run."""
    signed: bool


@dataclass(frozen=True, slots=True)
class WrittenErrata:
    """The errata's file as it was written."""

    path: Path
    errata: Errata
    signed: bool


class _DryRun(Exception):
    """Undoes a transaction that was only to be looked at."""


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
    key_file: Path | None = None,
    dry_run: bool = False,
) -> Withdrawn:
    """Withdraw a case, or a criterion of it, and write the errata anew; the same again changes nothing.

    `criterion_id` is `c3` or, as in snapshots, `<case id>-c3`, in the case's latest revision or one that a frozen
    snapshot shows; `revision` says which where these have it with different words. `reason` is published.
    The errata are signed when there is a key (`medlive.integrity.signing.load_signing_key`). Raises UsageError for
    an unknown id, with those that are near, or a reason that cannot be published, and CheckFailed when too few
    criteria would be left.
    """
    reason = public_reason(reason)
    by = person(by)
    key = load_signing_key(os.environ, key_file)
    try:
        async with database.begin() as session:
            status = await lock_case(session, case_id)
            if criterion_id is None:
                found, already = await _withdraw_case(session, case_id, status, kind, reason, by)
            else:
                part = await find_criterion(session, case_id, criterion_id, revision)
                found, already = await _withdraw_criterion(session, case_id, status, part, kind, reason, by)
            snapshots = _snapshots_of(await load_errata(session), found.number)
            if dry_run:
                raise _DryRun
    except _DryRun:
        return Withdrawn(found, already, snapshots, None, False)
    written = await write_errata(database, settings, key=key)
    return Withdrawn(found, already, snapshots, written.path, written.signed)


async def record_takedown(session: Session, case_ids: Iterable[str]) -> None:
    """Withdraw cases whose thread is being taken down; nothing of the reason that was given becomes public."""
    for case_id in sorted(set(case_ids)):
        status = await lock_case(session, case_id)
        await _withdraw_case(session, case_id, status, WithdrawalKind.TAKEDOWN, TAKEN_DOWN_REASON, None)


async def write_errata(
    database: Database, settings: Settings, *, key: SecretKey | None = None, key_file: Path | None = None
) -> WrittenErrata:
    """Write `errata.json` beside the frozen snapshots as the database stands, signed when there is a key.

    `key` is used as it is; without it `load_signing_key` looks for one. To be called after each freeze and each
    withdrawal; the same withdrawals and snapshots make the same bytes. Writers take turns. Raises BadInput when
    the folder cannot be written.
    """
    key = key or load_signing_key(os.environ, key_file)
    async with database.begin() as session:
        errata = await load_errata(session)
        signed = _signer(errata, key)
        # Still under the lock that reading took: what was read last is what is written last.
        path = await asyncio.to_thread(write_errata_file, snapshots_path(settings), errata, signed)
    return WrittenErrata(path, errata, key is not None)


def _signer(errata: Errata, key: SecretKey | None) -> Callable[[bytes], str] | None:
    if key is None:
        return None
    return lambda data: sign(data, key, trusted_comment(errata), f"medlive errata, key {key.public.id_text()}")


def public_reason(reason: str) -> str:
    """A reason as it is published, on one line. Raises UsageError for one that is empty or too long, or that holds
    an identifier of a person or characters that are not what they seem."""
    reason = " ".join(reason.split())
    if not 1 <= len(reason) <= MOST_REASON:
        raise UsageError(f"a withdrawal needs a reason of 1 to {MOST_REASON} characters; it is published")
    if (character := find_unstorable(reason) or find_disguise(reason)) is not None:
        raise UsageError(f"the reason is published and holds {character}")
    scan = standard_scanner()
    for text in (reason, as_read(reason)):
        kinds = {str(found.kind) for language in ("en", "zh") for found in scan(text, language)}
        if contact := find_contact(text):
            kinds.add(contact)
        if kinds:
            raise UsageError(
                f"the reason is published and holds an identifier: {', '.join(sorted(kinds))}",
                hint="say what is wrong without naming anybody",
            )
    return reason


def person(name: str | None) -> str | None:
    """Who did something, as it is recorded; None where it is not told. Raises UsageError for an odd name."""
    if name is None:
        return None
    name = name.strip()
    if not 1 <= len(name) <= 200 or find_unstorable(name) is not None:
        raise UsageError("a name has 1 to 200 characters, and no control characters")
    return name


async def find_criterion(
    session: Session, case_id: str, criterion_id: str, revision: int | None = None
) -> tuple[int, Criterion]:
    """(revision, criterion) of a case by the criterion's id, with or without the case's id before it.

    Looked for in the latest revision, those that frozen snapshots show and those that a criterion of this id was
    withdrawn from, or in `revision` alone. Raises UsageError for no such criterion, with those there are, and
    where the id stands for different criteria.
    """
    number = criterion_id.removeprefix(f"{case_id}-")
    latest = await latest_case(session, case_id)
    if latest is None:
        raise UsageError(f"case {case_id} has no revision")
    places = [] if revision is None else [revision]
    if revision is None:
        places = [latest.revision, *await shown_revisions(session, case_id)]
        places += await withdrawn_from(session, case_id, number)
    known: set[str] = set()
    found: dict[str, tuple[int, Criterion]] = {}
    for place in dict.fromkeys(places):
        for criterion in (await criteria_of(session, {case_id: place})).get(case_id, ()):
            known.add(criterion.id)
            if criterion.id == number:
                found.setdefault(text_digest(criterion.criterion), (place, criterion))
    if not found:
        where = f"revision {revision} of case {case_id}" if revision is not None else f"case {case_id}"
        listed = ", ".join(f"{case_id}-{i}" for i in sorted(known, key=lambda i: (len(i), i)))
        raise UsageError(
            f"{where} has no criterion {criterion_id[:100]!r}",
            hint=f"it has {listed}" if known else "there is no such revision",
        )
    if len(found) > 1:
        told = " or ".join(f"--revision {place}: {c.criterion[:80]!r}" for place, c in found.values())
        raise UsageError(f"{case_id}-{number} is not the same criterion in every revision", hint=told)
    return next(iter(found.values()))


async def _withdraw_case(
    session: Session, case_id: str, status: CaseStatus, kind: WithdrawalKind, reason: str, by: str | None
) -> tuple[Withdrawal, bool]:
    if (known := await find_withdrawal(session, case_id, kind)) is not None:
        return known, True
    latest = await _latest(session, case_id)
    if status is not CaseStatus.WITHDRAWN:
        await withdraw_case(session, case_id, reason)
    made = await add_withdrawal(
        session, case_id=case_id, revision=latest.revision, kind=kind, reason=reason, withdrawn_by=by
    )
    return made, False


async def _withdraw_criterion(
    session: Session,
    case_id: str,
    status: CaseStatus,
    part: tuple[int, Criterion],
    kind: WithdrawalKind,
    reason: str,
    by: str | None,
) -> tuple[Withdrawal, bool]:
    revision, criterion = part
    digest = text_digest(criterion.criterion)
    if (known := await find_withdrawal(session, case_id, kind, digest)) is not None:
        return known, True
    if status is CaseStatus.WITHDRAWN:
        raise CheckFailed(f"the whole case {case_id} is withdrawn, and its criteria with it")
    latest = await _latest(session, case_id)
    left = without_criteria(latest.rubric, {digest})
    new_revision = None
    if len(left.criteria) < len(latest.rubric.criteria):
        if (thin := too_thin(left)) is not None:
            raise CheckFailed(
                f"without {case_id}-{criterion.id} the rubric would have {thin}",
                hint="withdraw the case instead: leave --criterion out",
            )
        saved = await add_revision(
            session,
            case_id,
            curation_id=latest.curation_id,
            language=latest.language,
            source=latest.source,
            posted_at=latest.posted_at,
            rubric=left,
            text=latest.text,
            publishable=latest.publishable,
            unpublishable_reason=latest.unpublishable_reason,
        )
        new_revision = saved.revision
    made = await add_withdrawal(
        session,
        case_id=case_id,
        revision=revision,
        criterion=criterion,
        new_revision=new_revision,
        kind=kind,
        reason=reason,
        withdrawn_by=by,
    )
    return made, False


async def _latest(session: Session, case_id: str) -> StoredCase:
    found = await latest_case(session, case_id)
    if found is None:
        raise UsageError(f"case {case_id} has no revision")
    return found


def _snapshots_of(errata: Errata, number: int) -> tuple[str, ...]:
    return tuple(sorted({v for entry in errata.entries if entry.id == number for v in entry.snapshots}))
