"""`medlive snapshot withdraw`: take back what was released."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medlive.cli.database import with_database
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, say
from medlive.config import load_settings
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.service.release.withdraw import WithdrawResult


def withdraw(
    case_id: Annotated[str, typer.Argument(help="The case's id.")],
    kind: Annotated[str, typer.Option("--kind", help="erratum, takedown or privacy.")],
    reason: Annotated[str, typer.Option("--reason", help="Why, in up to 500 characters; it is published.")],
    criterion: Annotated[
        str | None, typer.Option("--criterion", metavar="ID", help="Only this criterion: <case id>-c3, or c3.")
    ] = None,
    revision: Annotated[
        int | None, typer.Option("--revision", min=1, help="The case's revision that the criterion's id is of.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who withdraws; not published.")] = None,
    signing_key: Annotated[
        Path | None, typer.Option("--signing-key", metavar="FILE", help="Sign errata.json with this key.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Withdraw a case, or a criterion of one, with a public reason.

    Later snapshots drop the case, or hold it without the criterion. Frozen ones stay as they are: errata.json
    beside them says which of them hold what was withdrawn.
    """
    from medlive.service.release.withdraw import withdraw as withdraw_it
    from medlive.snapshot.errata import WithdrawalKind

    if kind not in set(WithdrawalKind):
        raise UsageError(f"--kind {kind}: choose erratum, takedown or privacy")
    if revision is not None and criterion is None:
        raise UsageError("--revision says which criterion is meant, and needs --criterion")
    settings = load_settings().settings
    done = with_database(
        settings,
        lambda database: withdraw_it(
            database, settings, case_id, WithdrawalKind(kind), reason, criterion_id=criterion,
            revision=revision, by=by, key_file=signing_key, dry_run=dry_run,
        ),
    )  # fmt: skip
    found = done.withdrawal
    what = found.case_id if found.criterion_id is None else f"{found.case_id}-{found.criterion_id}"
    value = {
        "number": None if dry_run and not done.already else found.number, "case_id": found.case_id,
        "criterion_id": None if found.criterion_id is None else what, "kind": found.kind.value,
        "reason": found.reason, "revision": found.revision, "new_revision": found.new_revision,
        "already": done.already, "dry_run": dry_run, "snapshots": list(done.snapshots),
        "errata": done.errata, "signed": done.signed,
    }  # fmt: skip
    print_result(value, as_json, lambda: _print(done, what, dry_run))


def _print(done: "WithdrawResult", what: str, dry_run: bool) -> None:
    found = done.withdrawal
    if done.already:
        print(
            f"{what} was withdrawn already on {found.withdrawn_at:%Y-%m-%d} ({found.kind.value}: {found.reason}); "
            "that stays"
        )
    else:
        print(f"{what} {'would be' if dry_run else 'is'} withdrawn ({found.kind.value}: {found.reason})")
    if found.new_revision is not None:
        print(f"its case goes on as revision {found.new_revision}")
    print(f"frozen snapshots that hold it: {', '.join(done.snapshots) or 'none'}")
    if done.errata is not None:
        say(f"{done.errata} is written" + ("" if done.signed else ", not signed: there is no signing key"))
