"""`medlive snapshot freeze`, `publish`, `withdraw`, `reinstate`: what a maintainer does."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from medlive.cli.options import (
    ByOption,
    DryRunOption,
    OptionalCount,
    PublicKeyOption,
    YesOption,
    confirm,
    confirm_by_name,
    is_terminal,
)
from medlive.cli.output import (
    Result,
    echo,
    fields_of,
    first_of,
    progress,
    say,
    with_instance,
)
from medlive.clock import iso_week, now
from medlive.errors import UsageError
from medlive.instance.loading import read_settings
from medlive.integrity.signing import load_signing_key
from medlive.snapshot.model import WithdrawalKind

if TYPE_CHECKING:
    from medlive.service.release.freeze import FreezeResult
    from medlive.service.release.withdraw import WithdrawResult

CriterionOption = Annotated[
    str | None, Option(metavar="ID", help="Only this criterion: CASE-c3, or c3.")
]
_MOST_REASONS = 50
"""Reasons on a terminal; --json has them all."""


def freeze(
    week: str | None = None,
    partial: bool = False,
    by: ByOption = None,
    key: Path | None = None,
    require_signature: bool = False,
    yes: YesOption = False,
) -> Result:
    """Freeze the cases that are ready into the week's snapshot and write its folder.

    An interrupted freeze resumes where it stopped. A frozen week stays as it is; its folder is built again
    where it is missing. Exit status 1 while threads that were queued for the week are not decided. A
    future week is refused; before the time of [schedule] freeze, the command asks first if started at a terminal.

    Args:
        week: The ISO week; default: the present one.
        partial: Freeze the week though threads queued for it wait; the snapshot says so.
        key: The signing key [MEDLIVE_SIGNING_KEY…].
        require_signature: Freeze nothing without a key.
    """
    from medlive.service.release.freeze import BY_PERSON
    from medlive.service.release.freeze import freeze as freeze_week

    if by is not None and not partial:
        raise UsageError("--by says who freezes a partial week, and needs --partial")
    signing_key = load_signing_key(os.environ, key)
    if require_signature and signing_key is None:
        raise UsageError(
            "no key is set, and --require-signature wants one: nothing was frozen",
            hint="medlive snapshot keygen makes one; --key, MEDLIVE_SIGNING_KEY or MEDLIVE_SIGNING_KEY_FILE names it",
        )
    _check_time(week, yes)
    with progress("cases read by the gates") as tick:
        done = with_instance(
            freeze_week,
            week,
            key=signing_key,
            partial=BY_PERSON if partial else None,
            by=by,
            tick=tick,
        )
    verb = "was frozen already" if done.already else "frozen"
    text = f"{done.version} {verb}: {done.cases} cases, {done.criteria} criteria, in {done.path}"
    return Result(done, [text], _remarks(done))


def _check_time(week: str | None, yes: bool) -> None:
    """Refuse a week that has not come, and ask at a terminal before the time at which weeks are frozen."""
    from medlive.service.schedule.steps import due_at

    moment = now()
    present = iso_week(moment)
    version = present if week is None else week
    if version > present:
        raise UsageError(
            f"{version} has not come: the present week is {present}",
            hint="a frozen week is never unmade; --week names one that has begun",
        )
    due = due_at(moment, read_settings().schedule.freeze)
    if version == present and moment < due and not yes and is_terminal():
        when = f"{due:%A %H:%M} UTC"
        confirm(
            f"{version} is due on {when}, and a frozen week is never unmade. Freeze it?"
        )


def _remarks(done: "FreezeResult") -> Iterator[str]:
    """Notes on a freeze: what was held out, why it is partial or not publishable, what gates kept out."""
    if done.built_again:
        yield "its folder was missing and was rebuilt, byte for byte as it was frozen"
    if done.held or done.revealed or done.dropped:
        yield f"held out: {done.held} cases; {done.revealed} are shown now, {done.dropped} were dropped unshown"
    if done.partial:
        yield f"partial: {done.partial.in_short}"
    yield (
        f"signed with key {done.key_id}" if done.key_id else "not signed: no key is set"
    )
    for reason in done.why_not:
        yield f"not publishable: {reason}"
    hits = []
    for hit in done.kept_out:
        hits.append(f"kept out: {hit.case_id}: {hit.gate.value}: {hit.detail}")
    yield from first_of(hits, _MOST_REASONS)


def publish(
    snapshot: Annotated[str | None, Argument()] = None,
    to: Literal["folder", "s3", "huggingface"] | None = None,
    at: str | None = None,
    endpoint_url: str | None = None,
    base_url: str | None = None,
    public_key: PublicKeyOption = None,
) -> Result:
    """Publish a verified snapshot; its files never change there, and a run that was cut off is resumed.

    Args:
        snapshot: A version or path; default: the newest.
        to: Kind of place [folder].
        at: The place: a folder, s3://bucket/prefix or org/name.
        endpoint_url: The store's or hub's address, if unusual.
        base_url: The address where readers find it, for links [relative links].
        public_key: Refuse what this minisign key has not signed.
    """
    from medlive.service.release.publish import find_folder, publish_snapshot

    settings = read_settings()
    folder = find_folder(settings, snapshot)
    options = {"to": to, "at": at, "endpoint_url": endpoint_url, "base_url": base_url}
    changed = {name: value for name, value in options.items() if value}
    section = settings.publish.model_copy(update=changed)
    done = publish_snapshot(section, folder, public_key)
    notes = []
    if not done.signed:
        notes.append("unsigned: its origin cannot be verified")
    text = (
        f"medlive {done.version} ({done.digest}) at {done.where}: {len(done.sent)} files sent; "
        f"{len(done.already)} were published before"
    )
    return Result(done, [text], notes)


def withdraw(
    case_id: str,
    *,
    kind: WithdrawalKind,
    reason: str,
    criterion: CriterionOption = None,
    revision: OptionalCount = None,
    by: ByOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> Result:
    """Withdraw a case, or a criterion of one, with a public reason, after asking for the case's id.

    Later snapshots drop the case, or hold it without the criterion. Frozen ones stay as they are: errata.json
    beside them says which of them hold what was withdrawn.

    Args:
        case_id: The case's id.
        kind: Why, in a word.
        reason: Why, in up to 500 characters; it is published.
        revision: The revision that has the criterion.
    """
    from medlive.service.release.withdraw import withdraw as withdraw_it

    if revision is not None and criterion is None:
        raise UsageError(
            "--revision says which criterion is meant, and needs --criterion"
        )

    def take(dry_run: bool) -> "WithdrawResult":
        return with_instance(
            withdraw_it,
            case_id,
            kind,
            reason,
            criterion_id=criterion,
            revision=revision,
            by=by,
            dry_run=dry_run,
        )

    if not dry_run and not yes:
        planned = take(dry_run=True)
        for line in _describe_withdrawn(planned, dry_run=True):
            say(line)
        if not planned.already:
            say("an erratum with the reason is published, and stays")
            confirm_by_name(case_id)
    done = take(dry_run=dry_run)
    names = ("case_id", "criterion_id", "kind", "reason", "revision", "new_revision")
    outcome = fields_of(done, ("already", "snapshots", "errata", "signed"))
    value = fields_of(done.withdrawal, names) | outcome
    notes = []
    if done.errata:
        unsigned = "" if done.signed else ", unsigned: no signing key is set"
        notes.append(f"{done.errata} is written{unsigned}")
    return Result(value, _describe_withdrawn(done, dry_run=dry_run), notes)


def reinstate(
    case_id: str,
    *,
    reason: str,
    criterion: CriterionOption = None,
    by: ByOption = None,
) -> None:
    """Undo the withdrawal of a case, or of a criterion of one; errata.json keeps its entry and says so.

    The case is held until `medlive review approve`. A snapshot that was frozen without it stays as it is.

    Args:
        case_id: The case's id.
        reason: Why; it stays in the audit log and is not published.
    """
    from medlive.service.release.withdraw import reinstate as reinstate_it

    with_instance(
        reinstate_it,
        case_id,
        reason,
        criterion_id=criterion,
        by=by,
    )
    if criterion is None:
        echo(
            f"{case_id} is no longer withdrawn: it is held until `medlive review approve`"
        )
    else:
        echo(f"criterion {criterion} of {case_id} is no longer withdrawn")


def _describe_withdrawn(done: "WithdrawResult", *, dry_run: bool) -> Iterator[str]:
    """What is withdrawn, or with `dry_run` would be, and which frozen snapshots hold it."""
    withdrawal = done.withdrawal
    what = withdrawal.case_id
    if withdrawal.criterion_id:
        what += f"-{withdrawal.criterion_id}"
    state = "would be withdrawn" if dry_run else "is withdrawn"
    if done.already:
        state = f"was already withdrawn on {withdrawal.withdrawn_at:%Y-%m-%d}"
    yield f"{what} {state} ({withdrawal.kind.value}: {withdrawal.reason})"
    if withdrawal.new_revision:
        yield f"its case goes on as revision {withdrawal.new_revision}"
    yield f"frozen snapshots that hold it: {', '.join(done.snapshots) or 'none'}"
