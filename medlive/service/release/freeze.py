"""Freezes a week: fixes in one transaction what its snapshot holds, and builds the folder from the fixed rows.

A freeze that was broken off at any point is taken up where it stopped: what was fixed stays fixed, so that the
folder that is built in the end is the one that would have been built then.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from medlive import __version__
from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.release.fixing import HeldOut, add_members, judge, keep_changes, keep_kept_out, never_shown
from medlive.db.release.rows import read_snapshots
from medlive.db.release.snapshots import (
    FixedMeta,
    MembersGone,
    SnapshotInfo,
    begin_snapshot,
    count_languages,
    count_members,
    find_snapshot,
    freeze_snapshot,
    held_weeks,
    latest_frozen,
    list_snapshots,
    load_fixed,
    load_kept_out,
    load_manifest,
    load_provenance,
    settle_snapshot,
)
from medlive.db.release.withdrawals import holds_withdrawn, reasons_for
from medlive.db.session import Database, advisory_lock
from medlive.db.tables import SnapshotState
from medlive.db.threads.takedowns import no_takedown
from medlive.digest import digest_text
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.folder import SIGNATURE_COMMENT, SUMS
from medlive.integrity.lock import Locked
from medlive.integrity.signing import SecretKey, sign
from medlive.service.database import handle_key
from medlive.service.paths import snapshots_path
from medlive.service.release.check import check_cases, in_thread
from medlive.service.release.rebuild import build, is_complete, lineage_of, put_back
from medlive.service.release.withdraw import write_errata
from medlive.snapshot.gates import GateHit, gates_digest, release_hits
from medlive.snapshot.identity import folder_name
from medlive.snapshot.manifest import Signing, moment_text
from medlive.snapshot.model import commitment, week_end

Tell = Callable[[str], None]
"""Tells a person what happens."""
Tick = Callable[[int, int], None]
"""Tells how many cases of how many were checked."""

_TURN: Final = "medlive snapshot freeze"
_PATIENCE_S: Final = 600.0
_MOST_AHEAD: Final = 260
"""Weeks, five years: a slip in a year is no week to freeze."""
_ATTEMPTS: Final = 5
"""How often a week is fixed anew because cases of it were taken down meanwhile."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A frozen snapshot: what it holds and what was kept out of it."""

    version: str
    path: Path
    cases: int
    criteria: int
    publishable: bool
    why_not: tuple[str, ...]
    kept_out: tuple[GateHit, ...]
    already: bool
    """True when the week had been frozen before; nothing was changed then."""
    held: int
    """Cases that are held out: the folder has their commitments."""
    revealed: int
    """Cases that were held out until now, and are shown with the proof of it."""
    dropped: int
    """Cases that were held out until now, and were withdrawn without being shown."""
    key_id: str | None
    """The key that signed it; None: nothing did."""
    built_again: bool = False
    """True when it was frozen before, and its folder was missing or not whole."""


class _Unread(Exception):
    """Cases came in that the gates have not read."""


def _say_nothing(_: str) -> None:
    pass


def _count_nothing(_done: int, _of: int) -> None:
    pass


async def freeze(
    database: Database,
    settings: Settings,
    week: str | None = None,
    *,
    key: SecretKey | None = None,
    hold_out: float | None = None,
    anew: bool = False,
    tell: Tell = _say_nothing,
    tick: Tick = _count_nothing,
) -> Frozen:
    """Freeze a week (default: the present ISO week) and build its folder; a frozen week is left as it is.

    `key` signs it; `hold_out` is the share of cases never shown before that is held out (default: the settings');
    `anew` drops what was fixed for the week and never frozen. A folder of a frozen week that is missing or not
    whole is built again. Raises UsageError for a week that cannot be made, CheckFailed when no case passes the
    gates, DiskFull, and Locked when another process has been freezing for ten minutes.
    """
    version = week or iso_week(now())
    if week_end(version) is None:
        raise UsageError(f"{version!r} is no ISO week such as 2026.W47")
    share = settings.release.hold_out if hold_out is None else hold_out
    if not 0 <= share < 1:
        raise UsageError(f"a share of {share} cannot be held out", hint="it is at least 0 and less than 1")
    async with _turn(database, tell):
        async with database.begin() as session:
            info = await find_snapshot(session, version)
        if info is not None and info.state is SnapshotState.FROZEN:
            if anew:
                raise UsageError(f"snapshot {version} is frozen", hint="freeze under another week")
            again = await _whole_again(database, settings, info, tell)
            return await _frozen(database, settings, info, already=True, built_again=again)
        if weeks_between(iso_week(now()), version) > _MOST_AHEAD:
            raise UsageError(
                f"{version} is more than {_MOST_AHEAD} weeks ahead",
                hint="once it were frozen, no week before it could be made",
            )
        for _ in range(_ATTEMPTS):
            fixed = None if anew else await _taken_up(database, settings, version, tell)
            if fixed is None:
                if key is None and (signed := await _signed_before(database)):
                    tell(f"{signed} was signed, and {version} will not be: no key is set")
                await _fix(database, settings, version, key, share, tick)
            try:
                info = await _build(database, settings, version, key)
            except MembersGone:
                tell(f"cases were taken back while {version} was built; it is fixed anew without them")
                anew = True
                continue
            await write_errata(database, settings, key=key)
            return await _frozen(database, settings, info, already=False)
    raise MembersGone(hint="run this again when nothing is being taken back")


@asynccontextmanager
async def _turn(database: Database, tell: Tell) -> AsyncIterator[None]:
    """Hold the right to freeze here, after whoever has it."""
    loop = asyncio.get_running_loop()
    began, told = loop.time(), False
    while True:
        async with advisory_lock(database, _TURN) as is_mine:
            if is_mine:
                yield
                return
        if loop.time() - began > _PATIENCE_S:
            raise Locked("another process is freezing a snapshot", hint="run this again when it has ended")
        if not told:
            tell("another process is freezing a snapshot; this one waits for it")
            told = True
        await asyncio.sleep(0.5)


async def _taken_up(database: Database, settings: Settings, version: str, tell: Tell) -> FixedMeta | None:
    """What was fixed for the week before, when nothing of it has gone since; None when it is to be fixed."""
    async with database.begin() as session:
        fixed = await load_fixed(session, version)
        if fixed is None:
            return None
        there = await count_members(session, version)
        taken_back = await holds_withdrawn(session, version)
    if there != fixed.numbers or taken_back:
        tell(f"cases that {version} was to hold were taken back since; it is fixed anew without them")
        return None
    tell(f"{version} was fixed before and not finished: it is built as it was fixed (--anew fixes it anew)")
    return fixed


async def _fix(
    database: Database, settings: Settings, version: str, key: SecretKey | None, share: float, tick: Tick
) -> None:
    """Fix the week's members and all that the snapshot says of itself, in one transaction."""
    await _clear(database, settings)
    instance_key, digest = handle_key(settings), await asyncio.to_thread(gates_digest)
    async with database.begin() as session:
        parent = await latest_frozen(session)
    while True:
        await check_cases(database, parent.version if parent else None, digest, tick)
        try:
            await _fix_once(database, settings, version, key, share, instance_key, digest)
        except _Unread:
            continue
        return


async def _fix_once(
    database: Database,
    settings: Settings,
    version: str,
    key: SecretKey | None,
    share: float,
    instance_key: bytes,
    digest: str,
) -> None:
    release = settings.release
    async with database.begin() as session:
        # A takedown comes before all of this, or after it and then sees the members.
        await no_takedown(session)
        info = await begin_snapshot(session, version)
        if await judge(session, version, info.parent, digest, publishable_only=release.publishable_only):
            raise _Unread
        await keep_kept_out(session, version, publishable_only=release.publishable_only)
        new = await never_shown(session) if share else []
        drawn = [one for one in new if is_drawn(one[0], share, instance_key)]
        held_out = await asyncio.to_thread(_commit, database, drawn)
        due = [
            week
            for week in await held_weeks(session, info.parent)
            if weeks_between(week, version) >= release.hold_out_weeks
        ]
        await add_members(session, version, due=due, held_out=held_out)
        await keep_changes(session, version, await reasons_for(session, info.parent) if info.parent else {})
        numbers = await count_members(session, version)
        if not numbers.cases:
            kept_out = {hit.case_id for hit in await load_kept_out(session, version)}
            raise CheckFailed(
                f"no case is ready for {version}"
                + (f"; {len(kept_out)} were kept out" if kept_out else "")
                + (f"; all {numbers.held} are held out" if numbers.held else ""),
                hint="medlive status shows where the threads are",
            )
        provenance = await load_provenance(session, version, code_version=__version__)
        refused = release_hits(
            provenance,
            numbers.cases,
            release.minimum_cases,
            by_language=await count_languages(session, version),
            minimum_by_language={str(k): n for k, n in release.minimum_by_language.items()},
        )
        meta = FixedMeta(
            lineage=await lineage_of(session, version),
            signing=None if key is None else Signing(key_id=key.public.id_text(), public_key=key.public.line()),
            provenance=provenance,
            why_not=tuple(hit.detail for hit in refused),
            numbers=numbers,
            hold_out=share,
            gates_digest=digest,
        )
        await settle_snapshot(session, version, meta)


def is_drawn(case_id: str, share: float, key: bytes) -> bool:
    """Whether a case belongs to the share that is held out: always the same under this instance's key."""
    if not share:
        return False
    drawn = hmac.new(key, b"held out: " + case_id.encode(), hashlib.sha256).digest()
    return int.from_bytes(drawn[:8]) < share * 2**64


def weeks_between(earlier: str, later: str) -> int:
    """How many weeks one ISO week comes after another."""
    one, other = week_end(earlier), week_end(later)
    if one is None or other is None:
        raise ValueError(f"{earlier!r} and {later!r} are not both ISO weeks")
    return (other - one).days // 7


def _commit(database: Database, drawn: Sequence[tuple[str, int]]) -> list[HeldOut]:
    """A salt and a commitment for each; a case that is gone is left out."""
    if not drawn:
        return []
    with read_snapshots(database.engine.url) as reader:
        return [
            HeldOut(case.case_id, case.revision, salt, commitment(case, salt))
            for case in reader.revisions(drawn)
            for salt in (secrets.token_hex(32),)
        ]


async def _build(database: Database, settings: Settings, version: str, key: SecretKey | None) -> SnapshotInfo:
    """Build the folder of what was fixed, and freeze it."""
    async with database.begin() as session:
        info, fixed = await find_snapshot(session, version), await load_fixed(session, version)
    if info is None or fixed is None:
        raise MembersGone
    signer = _signer(fixed, version, key)
    # Built and not frozen: another medlive may have built it, which lays out a card in other words.
    await asyncio.to_thread(_remove_unfrozen, settings, info)
    stop = Event()
    built = await in_thread(lambda: build(database, info, fixed, snapshots_path(settings), signer, stop), stop)
    manifest = built.manifest
    async with database.begin() as session:
        if await holds_withdrawn(session, version):
            raise MembersGone
        return await freeze_snapshot(
            session,
            version,
            manifest=manifest.model_dump(mode="json"),
            manifest_digest=digest_text(manifest.text()),
            sums_digest=built.digest,
            signature=built.signature,
            path=str(built.path),
            publishable=manifest.publishable,
            why_not=manifest.why_not,
        )


def _signer(fixed: FixedMeta, version: str, key: SecretKey | None) -> Callable[[bytes, str], str] | None:
    if fixed.signing is None:
        return None
    if key is None or key.public.line() != fixed.signing.public_key:
        raise UsageError(
            f"{version} was fixed to be signed with key {fixed.signing.key_id}, which is not set",
            hint="set MEDLIVE_SIGNING_KEY_FILE, or fix the week anew with --anew",
        )
    return lambda data, comment: sign(data, key, comment, SIGNATURE_COMMENT)


async def _signed_before(database: Database) -> str | None:
    """The latest frozen version, when it is signed."""
    async with database.begin() as session:
        parent = await latest_frozen(session)
    return parent.version if parent is not None and parent.signature is not None else None


async def _clear(database: Database, settings: Settings) -> None:
    """Remove the folders of weeks that were never frozen; their rows go when the next week is fixed."""
    async with database.begin() as session:
        unfinished = [s for s in await list_snapshots(session) if s.state is not SnapshotState.FROZEN]
    for info in unfinished:
        await asyncio.to_thread(_remove_unfrozen, settings, info)


def _remove_unfrozen(settings: Settings, info: SnapshotInfo) -> None:
    """Remove the folder of a snapshot that is not frozen, if it is there.

    Raises CheckFailed for one that was not made by the freeze that is recorded: it may have been published.
    """
    folder = snapshots_path(settings) / folder_name(info.version)
    if not folder.exists():
        return
    try:
        made_at = json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("created_at")
    except (OSError, ValueError, AttributeError):
        made_at = None
    if made_at != moment_text(info.created_at):
        raise CheckFailed(
            f"{folder} is there and is not of the freeze of {info.version} that was broken off",
            hint="move it away by hand",
        )
    # Out of sight in one step; what a kill leaves of it is cleared by the next build.
    gone = folder.with_name(f".{folder.name}-unfrozen.partial")
    folder.rename(gone)
    shutil.rmtree(gone)


async def _whole_again(database: Database, settings: Settings, info: SnapshotInfo, tell: Tell) -> bool:
    """Whether the folder of a frozen week had to be built again."""
    folder = snapshots_path(settings) / folder_name(info.version)
    if info.sums_digest is None or await asyncio.to_thread(is_complete, folder, info):
        return False
    missing = "is not whole" if (folder / SUMS).exists() else "is not there"
    tell(f"{folder} {missing}: it is built again from the frozen rows")
    await put_back(database, settings, info)
    return True


async def _frozen(
    database: Database, settings: Settings, info: SnapshotInfo, *, already: bool, built_again: bool = False
) -> Frozen:
    async with database.begin() as session:
        manifest = await load_manifest(session, info.version)
        fixed = await load_fixed(session, info.version)
        kept_out = await load_kept_out(session, info.version)
    counts = (manifest or {}).get("counts", {})
    return Frozen(
        version=info.version,
        path=snapshots_path(settings) / folder_name(info.version),
        cases=counts.get("cases", 0),
        criteria=counts.get("criteria", 0),
        publishable=bool(info.publishable),
        why_not=info.why_not or (),
        kept_out=tuple(kept_out),
        already=already,
        held=fixed.numbers.held if fixed else 0,
        revealed=fixed.numbers.revealed if fixed else 0,
        dropped=fixed.numbers.dropped if fixed else 0,
        key_id=fixed.signing.key_id if fixed and fixed.signing else None,
        built_again=built_again,
    )
