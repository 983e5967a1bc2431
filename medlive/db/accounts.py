"""Accounts, their one-time links and sessions, and the count of attempts to sign in.

Tokens are random and given out once; the database holds their digests. Passwords arrive here hashed.
"""

import re
import secrets
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, case, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import InstrumentedAttribute

from medlive.db.audit_log import record
from medlive.db.session import Session
from medlive.db.tables.accounts import (
    AccountRow,
    Role,
    SessionRow,
    SignInAttemptsRow,
)
from medlive.db.tables.people import Act
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.digest import digest_text

Account = AccountRow
LINK_LASTS: Final = timedelta(hours=48)
SESSION_IDLE: Final = timedelta(hours=2)
SESSION_LASTS: Final = timedelta(hours=12)
ATTEMPTS_WINDOW: Final = timedelta(minutes=15)
_TOUCHED_EVERY: Final = timedelta(minutes=1)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")


def account_name(text: str) -> str | None:
    """A name as accounts spell it: lower case, no spaces around; None if no account can have it."""
    name = text.strip().lower()
    return name if _NAME.fullmatch(name) else None


async def invite(
    session: Session, name: str, role: Role, *, by: str | None = None
) -> str:
    """Make an account; return the token of the link that sets its password within `LINK_LASTS`.

    Raises:
        UsageError: If the name cannot be one, or is taken.
    """
    if (spelled := account_name(name)) is None:
        raise UsageError(
            f"{name!r} cannot be an account's name",
            hint="up to 64 of a-z 0-9 . _ @ + -, the first a letter or a digit",
        )
    token = secrets.token_urlsafe(32)
    values = {"name": spelled, "role": role, **_link(token)}
    if await _add(session, values) is None:
        raise UsageError(
            f"account {spelled} exists",
            hint=f"medlive user reset {spelled} makes a new link",
        )
    await record(session, Act.INVITE, f"account:{spelled}", by=by, role=role.value)
    return token


async def reset(session: Session, name: str, *, by: str | None = None) -> str:
    """Forget an account's password, sessions, count of attempts and disabling; return a new link's token.

    Raises:
        UsageError: If there is no such account.
        CheckFailed: If it signs in at an identity provider.
    """
    if (account := await _find(session, name)).subject is not None:
        raise CheckFailed(
            f"{account.name} signs in at the identity provider, which keeps its password"
        )
    token = secrets.token_urlsafe(32)
    await _change(
        session, account, password_hash=None, disabled_at=None, **_link(token)
    )
    await end_sessions(session, account)
    await forget_attempts(session, account)
    await record(session, Act.RESET, f"account:{account.name}", by=by)
    return token


async def set_role(
    session: Session, name: str, role: Role, *, by: str | None = None
) -> None:
    """Give an account another role, from its next request on. Raises UsageError if there is none of the name."""
    account = await _find(session, name)
    await _change(session, account, role=role)
    await record(
        session, Act.SET_ROLE, f"account:{account.name}", by=by, role=role.value
    )


async def disable(session: Session, name: str, *, by: str | None = None) -> None:
    """End an account's sessions and links; it cannot sign in. Raises UsageError if there is none of the name."""
    account = await _find(session, name)
    await _change(
        session, account, disabled_at=func.now(), link_digest=None, link_expires_at=None
    )
    await end_sessions(session, account)
    await record(session, Act.DISABLE, f"account:{account.name}", by=by)


async def list_accounts(session: Session) -> list[Account]:
    """Every account, by name."""
    rows = await session.scalars(select(AccountRow).order_by(AccountRow.name))
    return list(rows)


async def has_accounts(session: Session) -> bool:
    """Whether an account can sign in, or has a link with which it will."""
    usable = (
        AccountRow.password_hash.is_not(None)
        | AccountRow.subject.is_not(None)
        | _link_is_open()
    )
    query = select(AccountRow.id).where(AccountRow.disabled_at.is_(None), usable)
    return await session.scalar(query.limit(1)) is not None


async def find_invited(session: Session, token: str) -> Account | None:
    """The account that a one-time link is for; None for a link that is used, expired or unknown."""
    return await session.scalar(select(AccountRow).where(_has_link(token)))


async def use_link(session: Session, token: str, password_hash: str) -> Account | None:
    """Set the password by a one-time link, which ends with it; None for one that is used, expired or unknown."""
    row = await session.scalar(
        update(AccountRow)
        .where(_has_link(token))
        .values(password_hash=password_hash, link_digest=None, link_expires_at=None)
        .returning(AccountRow)
    )
    if row is not None:
        await record(session, Act.SET_PASSWORD, f"account:{row.name}", by=row.name)
    return row


async def find_password(session: Session, name: str) -> tuple[Account, str] | None:
    """An account that signs in by password, and its hash; None where there is none, or it is disabled."""
    query = select(AccountRow).where(
        AccountRow.name == name, AccountRow.disabled_at.is_(None)
    )
    row = await session.scalar(query)
    if row is None or row.password_hash is None:
        return None
    return row, row.password_hash


async def set_password(session: Session, account: Account, password_hash: str) -> None:
    """Change the password; every session of the account ends."""
    await _change(session, account, password_hash=password_hash)
    await end_sessions(session, account)
    await record(session, Act.SET_PASSWORD, f"account:{account.name}", by=account.name)


async def save_external(
    session: Session, subject: str, name: str, role: Role
) -> Account | None:
    """The account of somebody whom the identity provider knows, made at the first time, with the role it has now.

    Returns None where it is disabled. Raises CheckFailed for a name that cannot be one or belongs to another.
    """
    row = await session.scalar(
        select(AccountRow).where(AccountRow.subject == subject).with_for_update()
    )
    act = None if row is None or row.role is role else Act.SET_ROLE
    if row is not None:
        row.role = role
    else:
        values = {"name": account_name(name), "subject": subject, "role": role}
        if values["name"] is None:
            raise CheckFailed(f"{name!r} cannot be an account's name")
        if (row := await _add(session, values)) is None:
            raise CheckFailed(f"the name {name} belongs to another account")
        act = Act.INVITE
    if act is not None:
        await record(
            session,
            act,
            f"account:{row.name}",
            by="the identity provider",
            role=role.value,
        )
    return None if row.disabled_at is not None else row


async def start_session(session: Session, account: Account) -> str:
    """Begin a session; return its token. What has expired, of whomever, is removed."""
    await _remove(session, SessionRow.digest, ~_is_current())
    await _remove(
        session, SignInAttemptsRow.subject, SignInAttemptsRow.until < func.now()
    )
    await _change(session, account, signed_in_at=func.now())
    token = secrets.token_urlsafe(32)
    session.add(SessionRow(digest=digest_text(token), account_id=account.id))
    return token


async def find_session(session: Session, token: str) -> Account | None:
    """Whose session it is; None if it ended, expired (`SESSION_IDLE`, `SESSION_LASTS`) or never was."""
    is_session = SessionRow.digest == digest_text(token)
    query = (
        select(AccountRow, SessionRow.used_at < func.now() - _TOUCHED_EVERY)
        .join(SessionRow, SessionRow.account_id == AccountRow.id)
        .where(is_session, _is_current(), AccountRow.disabled_at.is_(None))
    )
    if (row := (await session.execute(query)).one_or_none()) is None:
        return None
    account, is_old = row
    if is_old:
        await session.execute(
            update(SessionRow).where(is_session).values(used_at=func.now())
        )
    return account


async def end_session(session: Session, token: str) -> None:
    """Sign out one browser."""
    await session.execute(
        delete(SessionRow).where(SessionRow.digest == digest_text(token))
    )


async def end_sessions(session: Session, account: Account) -> None:
    """Sign out every browser of an account."""
    await session.execute(delete(SessionRow).where(SessionRow.account_id == account.id))


async def count_attempt(session: Session, subject: str) -> tuple[int, datetime]:
    """Count an attempt; return how many there were in this window, with it, and when the window ends.

    One statement counts, so that processes that try at once count each other. Commit it by itself,
    before the password is tried.
    """
    row = SignInAttemptsRow
    over, until = row.until < func.now(), func.now() + ATTEMPTS_WINDOW
    again = {
        "attempts": case((over, 1), else_=row.attempts + 1),
        "until": case((over, until), else_=row.until),
    }
    counted = await session.execute(
        upsert(row)
        .values(subject=subject, attempts=1, until=until)
        .on_conflict_do_update(index_elements=[row.subject], set_=again)
        .returning(row.attempts, row.until)
    )
    attempts, window_ends = counted.one()
    return attempts, window_ends


def attempts_subject(name: str, network: str | None = None) -> str:
    """What attempts on an account are counted under: those from one network, or those from anywhere."""
    return f"account:{name}" if network is None else f"account:{name} from {network}"


async def forget_attempts(
    session: Session, account: Account, network: str | None = None
) -> None:
    """Begin an account's counts anew; with `network` that network's alone, after the password was given there."""
    row, own = SignInAttemptsRow, attempts_subject(account.name)
    which: ColumnElement[bool] = row.subject == attempts_subject(account.name, network)
    if network is None:
        which |= row.subject.startswith(f"{own} from ", autoescape=True)
    await session.execute(delete(row).where(which))


async def _find(session: Session, name: str) -> Account:
    row = await session.scalar(
        select(AccountRow).where(AccountRow.name == name.strip().lower())
    )
    if row is None:
        raise UsageError(
            f"there is no account {name}", hint="medlive user list shows them"
        )
    return row


async def _add(session: Session, values: dict[str, Any]) -> AccountRow | None:
    """Make an account; None where one has its name."""
    statement = upsert(AccountRow).values(values).on_conflict_do_nothing()
    return await session.scalar(statement.returning(AccountRow))


async def _change(session: Session, account: Account, **values: Any) -> None:
    await session.execute(
        update(AccountRow).where(AccountRow.id == account.id).values(**values)
    )


async def _remove(
    session: Session, key: InstrumentedAttribute[str], which: ColumnElement[bool]
) -> None:
    """Delete rows; those that another transaction works on are left to the next time, so that none waits."""
    unlocked = select(key).where(which).with_for_update(skip_locked=True)
    await session.execute(delete(key.class_).where(key.in_(unlocked)))


def _link(token: str) -> dict[str, Any]:
    return {
        "link_digest": digest_text(token),
        "link_expires_at": func.now() + LINK_LASTS,
    }


def _link_is_open() -> ColumnElement[bool]:
    return AccountRow.link_expires_at > func.now()


def _has_link(token: str) -> ColumnElement[bool]:
    return (AccountRow.link_digest == digest_text(token)) & _link_is_open()


def _is_current() -> ColumnElement[bool]:
    row, now = SessionRow, func.now()
    return (row.used_at > now - SESSION_IDLE) & (row.created_at > now - SESSION_LASTS)
