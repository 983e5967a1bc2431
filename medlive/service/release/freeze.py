"""Freeze a week (`freeze`): select its cases in one transaction, then build the folder from the selected rows.

An interrupted freeze resumes with the cases it had selected, so the folder is the one that would have been built
then.
"""

import asyncio
import functools
import hashlib
import hmac
import json
import logging
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TypeVar

from medlive import __version__
from medlive.clock import iso_week, now, week_bounds
from medlive.config import Settings
from medlive.db.audit.spending import week_cost
from medlive.db.audit_log import read_head, record
from medlive.db.release import snapshots
from medlive.db.release.fixing import (
    add_members,
    count_unchecked,
    judge,
    keep_changes,
    never_shown,
    save_verdicts,
    unchecked,
)
from medlive.db.release.rows import Interrupted, read_snapshots
from medlive.db.release.snapshots import latest_frozen
from medlive.db.release.weeks import settle_week, week_standing
from medlive.db.release.withdrawals import holds_withdrawn
from medlive.db.session import Database, Session, advisory_lock
from medlive.db.tables.people import Act
from medlive.db.tables.release import SnapshotRow
from medlive.db.threads.takedowns import no_takedown
from medlive.errors import CheckFailed, UsageError
from medlive.instance.paths import snapshots_path
from medlive.integrity.digest import digest_text
from medlive.integrity.folder import SIGNATURE_COMMENT
from medlive.integrity.log import Locked
from medlive.integrity.signing import SecretKey, sign
from medlive.service.database import handle_key
from medlive.snapshot.freeze import Sign
from medlive.snapshot.gates import (
    GateHit,
    content_hits,
    gates_digest,
    release_faults,
    row_hits,
)
from medlive.snapshot.manifest import AuditLogHead, Partial, Signing, moment_text
from medlive.snapshot.model import commitment, folder_name, week_end

from .folder import (
    build_folder,
    lineage_of,
    restore_folder,
)
from .withdraw import check_person_name, write_errata

T = TypeVar("T")
_log = logging.getLogger(__name__)
Tick = Callable[[int, int], None]
"""Called with (cases checked, cases in all)."""

_LOCK = "medlive snapshot freeze"
_PAGE = 5_000  # Cases whose verdicts are stored together


@dataclass(frozen=True)
class FreezeResult:
    """A frozen snapshot: its counts, and what was kept out."""

    version: str
    path: Path
    cases: int
    criteria: int
    publishable: bool
    why_not: tuple[str, ...]  # Why it is not publishable; empty if it is
    kept_out: tuple[GateHit, ...]
    held: int  # Held-out cases: the folder has their commitments
    # Cases held out until now and published with this snapshot, with proof
    revealed: int
    dropped: int  # Cases held out until now and withdrawn without being published
    key_id: str | None  # The signing key; None for an unsigned snapshot
    already: bool  # Whether the week had been frozen before; its rows stay as they were
    built_again: bool  # Whether its folder was missing and was rebuilt
    # As the manifest states it; None: frozen before it was noted
    audit_log: AuditLogHead | None
    partial: Partial | None  # How far the week was; None: whole


class WeekIncomplete(CheckFailed):
    """Threads that were queued for the week are not decided."""


BY_PERSON = "frozen so by a person"
"""The reason where a person wants a week frozen that is not whole; the audit log records such a freeze."""


async def freeze(
    database: Database,
    settings: Settings,
    week: str | None = None,
    *,
    key: SecretKey | None = None,
    partial: str | None = None,
    by: str | None = None,
    tick: Tick = lambda _done, _total: None,
) -> FreezeResult:
    """Freeze a week, build its folder, and write the errata. Of a frozen week the folder is rebuilt if it is missing.

    Args:
        week: ISO week such as 2026.W47; None for the current week.
        key: Signing key; None leaves the snapshot unsigned.
        partial: Why the week is frozen even if threads queued for it are not decided, such as BY_PERSON, which is
            published; None: it is not frozen then.
        by: The person, for the audit log; not published.

    Raises UsageError if the week cannot be frozen, WeekIncomplete if it is not whole, CheckFailed if no case
    passes the gates or selected cases were withdrawn meanwhile, DiskFull, and Locked if another process is
    freezing.
    """
    by = check_person_name(by)
    version = iso_week(now()) if week is None else week
    if week_end(version) is None:
        raise UsageError(f"expected an ISO week such as 2026.W47, not {version!r}")
    async with advisory_lock(database, _LOCK) as acquired:
        if not acquired:
            raise Locked(
                "another process is freezing a snapshot",
                hint="run this again when it has ended",
            )
        info = await database.ask(snapshots.find_snapshot, version)
        folder = snapshots_path(settings) / folder_name(version)
        already = info is not None and info.state == "frozen"
        is_missing = already and not folder.exists()
        if info and already:
            if is_missing:
                _log.warning("%s is missing: it is built again", folder)
                await restore_folder(database, settings, info)
        else:
            if not await _can_resume(database, version):
                parent = await database.ask(latest_frozen)
                if key is None and parent and parent.signature is not None:
                    _log.warning(
                        "%s was signed, and %s will not be: no key is set",
                        parent.version,
                        version,
                    )
                await remove_unfrozen(database, settings)
                is_selected = False
                while not is_selected:
                    await check_cases(database, tick)
                    is_selected = await _select(
                        database, settings, version, key, partial, by
                    )
            info = await _build(database, settings, version, key)
        # The process that froze the week may have ended before it wrote the errata.
        await write_errata(database, settings, key=key)
        return await _result(database, settings, info, already, is_missing)


async def _can_resume(database: Database, version: str) -> bool:
    """Whether an unfinished freeze of the week has selected cases, and all are still there."""
    async with database.begin() as session:
        fixed = await snapshots.load_fixed(session, version)
        if fixed is None:
            return False
        is_same = await snapshots.count_members(session, version) == fixed.numbers
        return is_same and not await holds_withdrawn(session, version)


async def remove_unfrozen(database: Database, settings: Settings) -> None:
    """Remove the folders of unfinished freezes. Raises CheckFailed for one that another freeze made."""
    for info in await database.ask(snapshots.list_snapshots):
        if info.state != "frozen":
            await asyncio.to_thread(_remove_unfrozen, settings, info)


async def _select(
    database: Database,
    settings: Settings,
    version: str,
    key: SecretKey | None,
    because: str | None,
    by: str | None,
) -> bool:
    """Select the week's cases and store the snapshot's metadata, in one transaction; `because` is freeze's `partial`.

    False, with nothing stored, where cases came in that the gates have not read.
    """
    release, digest = settings.release, gates_digest()
    async with database.begin() as session:
        # A takedown runs before this transaction, or after it and then sees the members.
        await no_takedown(session)
        info = await snapshots.begin_snapshot(session, version)
        standing = await week_standing(
            session, version, failure_share=settings.schedule.failure_share
        )
        partial = None
        if not standing.whole:
            if because is None:
                raise WeekIncomplete(
                    f"{version} is not whole: {standing.in_short}",
                    hint="medlive week show shows what it waits for; --partial freezes it as it is",
                )
            partial = Partial(
                decided=standing.decided + standing.held,
                queued=standing.queued,
                because=f"{standing.because}; {because}",
            )
        await settle_week(session, standing)
        if await judge(
            session,
            version,
            info.parent,
            digest,
            publishable_only=release.publishable_only,
            hold_unproved=release.unproved == "hold",
        ):
            await session.rollback()
            return False
        await _hold_out(database, session, settings, version, info.parent)
        await keep_changes(session, version, info.parent)
        numbers = await snapshots.count_members(session, version)
        if not numbers.cases:
            hits = await snapshots.load_kept_out(session, version)
            kept_out = len({hit.case_id for hit in hits})
            raise CheckFailed(
                f"no case is ready for {version}: {kept_out} were kept out, {numbers.held} are held out",
                hint="medlive status shows where the threads are",
            )
        provenance = await snapshots.load_provenance(
            session, version, code_version=__version__
        )
        why_not = release_faults(provenance, numbers.cases, release.minimum_cases)
        signing = None
        if key:
            public = key.public
            signing = Signing(key_id=public.id_text(), public_key=public.line())
        meta = snapshots.FixedMeta(
            lineage=await lineage_of(session, version),
            signing=signing,
            provenance=provenance,
            why_not=tuple(why_not),
            numbers=numbers,
            hold_out=release.hold_out,
            gates_digest=digest,
            audit_log=await read_head(session),
            partial=partial,
            cost=await week_cost(session, version),
            standing=standing.counts,
        )
        info.meta = meta.model_dump(mode="json")
        await session.flush()
        if partial and because == BY_PERSON:
            await record(
                session,
                Act.FREEZE_PARTIAL,
                f"snapshot:{version}",
                by=by,
                decided=partial.decided,
                queued=partial.queued,
            )
    return True


async def _hold_out(
    database: Database,
    session: Session,
    settings: Settings,
    version: str,
    parent: str | None,
) -> None:
    """Add the members: hold out the share of the new cases, and publish held-out cases whose time has come."""
    key, release = handle_key(settings), settings.release
    selected, due = [], []
    for case in await never_shown(session) if release.hold_out else []:
        if is_held_out(case[0], release.hold_out, key):
            selected.append(case)
    held_out = await asyncio.to_thread(_commit, database, selected)
    for week in await snapshots.held_weeks(session, parent):
        if weeks_between(week, version) >= release.hold_out_weeks:
            due.append(week)
    await add_members(session, version, due=due, held_out=held_out)


async def _build(
    database: Database, settings: Settings, version: str, key: SecretKey | None
) -> SnapshotRow:
    """Build the folder of the selected cases, and freeze it."""
    async with database.begin() as session:
        info = await snapshots.find_snapshot(session, version)
        fixed = await snapshots.load_fixed(session, version)
    if info is None or fixed is None:
        raise snapshots.MembersGone
    signer: Sign | None = None
    if fixed.signing:
        if key is None or key.public.line() != fixed.signing.public_key:
            raise UsageError(
                f"{version} was begun with signing key {fixed.signing.key_id}, which is not set",
                hint="set MEDLIVE_SIGNING_KEY_FILE to it, or freeze the next week with another key",
            )
        signer = lambda data, comment: sign(data, key, comment, SIGNATURE_COMMENT)  # noqa: E731
    # A folder built but not frozen may come from another version of medlive.
    await asyncio.to_thread(_remove_unfrozen, settings, info)
    build = functools.partial(
        build_folder, database, info, fixed, snapshots_path(settings), signer
    )
    built = await finish_in_thread(build)
    manifest = built.manifest
    try:
        async with database.begin() as session:
            if await holds_withdrawn(session, version):
                raise snapshots.MembersGone(
                    hint="run this command again: it selects the cases again"
                )
            made = SnapshotRow(
                version=version,
                manifest=manifest.model_dump(mode="json"),
                manifest_digest=digest_text(manifest.text()),
                sums_digest=built.digest,
                signature=built.signature,
                path=str(built.path),
                publishable=manifest.publishable,
                why_not=list(manifest.why_not),
            )
            return await snapshots.freeze_snapshot(session, made)
    except snapshots.MembersGone:
        # It holds what was taken back, and could be published.
        await asyncio.to_thread(_remove_unfrozen, settings, info)
        raise


async def _result(
    database: Database,
    settings: Settings,
    info: SnapshotRow,
    already: bool,
    built_again: bool,
) -> FreezeResult:
    """The result of a freeze, by the stored rows."""
    version = info.version
    async with database.begin() as session:
        fixed = await snapshots.load_fixed(session, version)
        assert fixed
        return FreezeResult(
            version=version,
            path=snapshots_path(settings) / folder_name(version),
            publishable=bool(info.publishable),
            why_not=tuple(info.why_not or ()),
            kept_out=tuple(await snapshots.load_kept_out(session, version)),
            key_id=fixed.signing.key_id if fixed.signing else None,
            already=already,
            built_again=built_again,
            audit_log=fixed.audit_log,
            partial=fixed.partial,
            **fixed.numbers.model_dump(),
        )


def is_held_out(case_id: str, share: float, key: bytes) -> bool:
    """Whether a case belongs to the held-out share; deterministic under this instance's key."""
    number = hmac.new(key, b"held out: " + case_id.encode(), hashlib.sha256).digest()
    return int.from_bytes(number[:8]) < share * 2**64


def weeks_between(earlier: str, later: str) -> int:
    """The number of weeks from one ISO week to another."""
    return (week_bounds(later)[0] - week_bounds(earlier)[0]) // timedelta(weeks=1)


def _commit(
    database: Database, selected: Sequence[tuple[str, int]]
) -> list[dict[str, object]]:
    """Draw a salt and compute a commitment for each selected case that still exists; columns of SnapshotMemberRow."""
    held_out = []
    with read_snapshots(database.engine.url) as reader:
        for case in reader.revisions(selected):
            salt = secrets.token_hex(32)
            held_out.append(
                {
                    "case_id": case.case_id,
                    "revision": case.revision,
                    "salt": salt,
                    "commitment": commitment(case, salt),
                }
            )
    return held_out


def _remove_unfrozen(settings: Settings, info: SnapshotRow) -> None:
    """Remove the folder of an unfinished freeze, if it exists.

    Raises CheckFailed for a folder that another freeze made: it may have been published.
    """
    folder = snapshots_path(settings) / folder_name(info.version)
    if not folder.exists():
        return
    made_at = None
    with suppress(OSError, ValueError, AttributeError):
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        made_at = manifest.get("created_at")
    if made_at != moment_text(info.created_at):
        raise CheckFailed(
            f"{folder} exists and does not belong to the interrupted freeze of {info.version}",
            hint="move the folder away by hand",
        )
    # Renamed first, so that the removal is atomic; the next build removes leftovers.
    gone = folder.with_name(f".{folder.name}-unfrozen.partial")
    folder.rename(gone)
    shutil.rmtree(gone)


async def check_cases(
    database: Database, tick: Tick = lambda _done, _total: None
) -> int:
    """Check the candidates of the next release that today's gates have not read; how many.

    Verdicts are stored page by page, so that a kill loses at most one.
    """
    digest = await asyncio.to_thread(gates_digest)
    async with database.begin() as session:
        latest = await latest_frozen(session)
        parent = latest.version if latest else None
        total = await count_unchecked(session, parent, digest)
    done, after = 0, ""
    while done < total:
        page = await database.ask(unchecked, parent, digest, after=after, most=_PAGE)
        if not page:
            break
        verdicts = await finish_in_thread(
            functools.partial(_check_page, database, page)
        )
        await database.ask(save_verdicts, digest, verdicts)
        after, done = page[-1][0], done + len(verdicts)
        tick(done, total)
    return done


def _check_page(
    database: Database, page: Sequence[tuple[str, int]], stop: Event
) -> list[tuple[str, int, list[GateHit]]]:
    """Run the gates on these (case, revision) pairs; blocking. Raises Interrupted once `stop` is set."""
    with read_snapshots(database.engine.url, stop) as reader:
        cases = list(reader.revisions(page))
    verdicts = []
    for case in cases:
        if stop.is_set():
            raise Interrupted
        hits = [*row_hits(case), *content_hits(case)]
        verdicts.append((case.case_id, case.revision, hits))
    return verdicts


async def finish_in_thread(work: Callable[[Event], T]) -> T:
    """Run blocking work in a thread; on cancellation, set the work's event and wait for its end."""
    stop = Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(running, return_exceptions=True)
        raise
