"""Accounts, their one-time links and sessions, and the count of attempts to sign in.

Tokens are random and given out once; the database holds their digests. Passwords arrive here hashed.
"""

import re
import secrets
from datetime import datetime, timedelta

from sqlalchemy.exc import IntegrityError

from medlive.clock import now
from medlive.errors import CheckFailed, UsageError
from medlive.integrity.digest import digest_text

from .audit_log import record
from .session import Session
from .tables.accounts import (
    AccountRow,
    Role,
    SessionRow,
)
from .tables.people import Act

Account = AccountRow
LINK_LASTS = timedelta(hours=48)
SESSION_IDLE = timedelta(hours=2)
SESSION_LASTS = timedelta(hours=12)
ATTEMPTS_WINDOW = timedelta(minutes=15)
_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")


def account_name(text: str) -> str | None:
    """A name as accounts spell it: lower case, no spaces around; None if no account can have it."""
    name = text.strip().lower()
    return name if _NAME.fullmatch(name) else None


async def invite(session: Session, name: str, role: Role) -> str:
    """Make an account; return the token of the link that sets its password within `LINK_LASTS`.

    Raises:
        UsageError: If the name cannot be one, or is taken.
    """
    if (spelled := account_name(name)) is None:
        raise UsageError(
            f"{name!r} cannot be an account's name",
            hint="up to 64 of a-z 0-9 . _ @ + -, the first a letter or a digit",
        )
    account = AccountRow(name=spelled, role=role)
    if not await _add(session, account):
        raise UsageError(
            f"account {spelled} exists",
            hint=f"medlive user reset {spelled} makes a new link",
        )
    token = _give_link(account)
    await record(session, Act.INVITE, f"account:{spelled}", by=None, role=role)
    return token


async def reset(session: Session, name: str) -> str | None:
    """Forget an account's password, sessions, count of attempts and disabling; return a new link's token.

    For an account that signs in at an identity provider only the disabling ends; returns None.

    Raises UsageError if there is no such account.
    """
    account, token = await _find(session, name), None
    if account.subject is None:
        account.password_hash = None
        token = _give_link(account)
        await end_sessions(session, account)
        await forget_attempts(session, account)
    account.disabled_at = None
    await record(session, Act.RESET, f"account:{account.name}", by=None)
    return token


async def set_role(session: Session, name: str, role: Role) -> None:
    """Give an account another role, from its next request on. Raises UsageError if there is none of the name."""
    account = await _find(session, name)
    account.role = role
    await record(session, Act.SET_ROLE, f"account:{account.name}", by=None, role=role)


async def disable(session: Session, name: str) -> None:
    """End an account's sessions and links; it cannot sign in. Raises UsageError if there is none of the name."""
    account = await _find(session, name)
    account.disabled_at = now()
    account.link_digest = account.link_expires_at = None
    await end_sessions(session, account)
    await record(session, Act.DISABLE, f"account:{account.name}", by=None)


async def list_accounts(session: Session) -> list[Account]:
    """Every account, by name."""
    return await session.rows(AccountRow, "ORDER BY name")


async def has_accounts(session: Session) -> bool:
    """Whether any account can sign in, or has an open link to set its password."""
    usable = """
        WHERE disabled_at IS NULL
        AND (password_hash IS NOT NULL OR subject IS NOT NULL OR link_expires_at > now()) LIMIT 1
    """
    return await session.first(AccountRow, usable) is not None


async def find_invited(session: Session, token: str) -> Account | None:
    """The account that a one-time link is for; None for a link that is used, expired or unknown."""
    digest = digest_text(token)
    return await session.first(AccountRow, _HAS_LINK, digest=digest)


async def use_link(session: Session, token: str, password_hash: str) -> Account | None:
    """Set the password by a one-time link, and end the link; None for a link that is used, expired or unknown."""
    account = await session.first(
        AccountRow, f"{_HAS_LINK} FOR UPDATE", digest=digest_text(token)
    )
    if account is not None:
        account.password_hash = password_hash
        account.link_digest = account.link_expires_at = None
        name = account.name
        await record(session, Act.SET_PASSWORD, f"account:{name}", by=name)
    return account


_HAS_LINK = "WHERE link_digest = :digest AND link_expires_at > now()"


async def find_with_password(session: Session, name: str) -> Account | None:
    """An account that signs in by password; None where there is none, or it is disabled."""
    return await session.first(
        AccountRow,
        "WHERE name = :name AND disabled_at IS NULL AND password_hash IS NOT NULL",
        name=name,
    )


async def set_password(session: Session, account: Account, password_hash: str) -> None:
    """Change the password; every session of the account ends."""
    await session.run(
        "UPDATE accounts SET password_hash = :hash WHERE id = :id",
        id=account.id,
        hash=password_hash,
    )
    account.password_hash = password_hash
    await end_sessions(session, account)
    await record(session, Act.SET_PASSWORD, f"account:{account.name}", by=account.name)


async def save_external(
    session: Session, subject: str, name: str, role: Role
) -> Account | None:
    """The account of `subject` at the identity provider, made at the first sign-in, with the role it has there now.

    Returns None if it is disabled. Raises CheckFailed for a name that cannot be one or belongs to another account.
    """
    own = "WHERE subject = :subject FOR UPDATE"
    account = await session.first(AccountRow, own, subject=subject)
    act = Act.SET_ROLE
    if account is None:
        if (spelled := account_name(name)) is None:
            raise CheckFailed(f"{name!r} cannot be an account's name")
        account, act = AccountRow(name=spelled, subject=subject, role=role), Act.INVITE
        if not await _add(session, account):
            # Perhaps the same person has just made it in another window.
            account = await session.first(AccountRow, own, subject=subject)
            if account is None:
                raise CheckFailed(f"the name {name} belongs to another account")
            return account if account.disabled_at is None else None
    if act is Act.INVITE or account.role is not role:
        account.role = role
        by, about = "the identity provider", f"account:{account.name}"
        await record(session, act, about, by=by, role=role)
    return account if account.disabled_at is None else None


# Rows that another transaction has locked are left to the next sign-in, so that none waits.
_REMOVE_EXPIRED = (
    """
    DELETE FROM account_sessions WHERE digest IN (
        SELECT digest FROM account_sessions
        WHERE used_at <= now() - CAST(:idle AS interval) OR created_at <= now() - CAST(:lasts AS interval)
        FOR UPDATE SKIP LOCKED
    )
    """,
    """
    DELETE FROM sign_in_attempts WHERE subject IN (
        SELECT subject FROM sign_in_attempts WHERE until < now() FOR UPDATE SKIP LOCKED
    )
    """,
)


async def is_current(session: Session, account: Account) -> bool:
    """Whether `account` is enabled and its password unchanged since it was read; locks it for the transaction."""
    own = """
        WHERE id = :id AND disabled_at IS NULL AND password_hash IS NOT DISTINCT FROM CAST(:hash AS text) FOR UPDATE
    """
    known = {"id": account.id, "hash": account.password_hash}
    return await session.first(AccountRow, own, **known) is not None


async def start_session(session: Session, account: Account) -> str:
    """Begin a session; return its token. Everybody's expired sessions and attempt counts are removed."""
    for expired in _REMOVE_EXPIRED:
        await session.run(expired, idle=SESSION_IDLE, lasts=SESSION_LASTS)
    await session.run(
        "UPDATE accounts SET signed_in_at = now() WHERE id = :id", id=account.id
    )
    token = secrets.token_urlsafe(32)
    session.add(SessionRow(digest=digest_text(token), account_id=account.id))
    return token


async def find_session(session: Session, token: str) -> Account | None:
    """The account of a session's token; None if it ended, expired (`SESSION_IDLE`, `SESSION_LASTS`) or never was."""
    digest = digest_text(token)
    account = await session.first(
        AccountRow,
        """
        WHERE disabled_at IS NULL AND id = (
            SELECT account_id FROM account_sessions WHERE digest = :digest
                AND used_at > now() - CAST(:idle AS interval) AND created_at > now() - CAST(:lasts AS interval)
        )
        """,
        digest=digest,
        idle=SESSION_IDLE,
        lasts=SESSION_LASTS,
    )
    if account is not None:
        await session.run(
            """
            UPDATE account_sessions SET used_at = now() WHERE digest = :digest AND used_at < now() - interval '1 minute'
            """,
            digest=digest,
        )
    return account


async def end_session(session: Session, token: str) -> None:
    """Sign out one browser."""
    await session.run(
        "DELETE FROM account_sessions WHERE digest = :digest", digest=digest_text(token)
    )


async def end_sessions(session: Session, account: Account) -> None:
    """Sign out every browser of an account."""
    await session.run(
        "DELETE FROM account_sessions WHERE account_id = :id", id=account.id
    )


async def count_attempt(session: Session, subject: str) -> tuple[int, datetime]:
    """Count an attempt to sign in; return how many this window has, with it, and when the window ends.

    One statement counts, so that attempts in several processes at once all count. Commit it by itself, before the
    password is tried.
    """
    [counted] = await session.records(
        """
        INSERT INTO sign_in_attempts AS known (subject, attempts, until)
        VALUES (:subject, 1, now() + CAST(:window AS interval))
        ON CONFLICT (subject) DO UPDATE SET attempts = CASE WHEN known.until < now() THEN 1 ELSE known.attempts + 1 END,
            until = CASE WHEN known.until < now() THEN excluded.until ELSE known.until END
        RETURNING attempts, until
        """,
        subject=subject,
        window=ATTEMPTS_WINDOW,
    )
    return counted.attempts, counted.until


def attempts_subject(name: str, network: str | None = None) -> str:
    """The subject under which attempts on an account are counted: from `network`, or from anywhere (None)."""
    return f"account:{name}" if network is None else f"account:{name} from {network}"


async def forget_attempts(
    session: Session, account: Account, network: str | None = None
) -> None:
    """Remove an account's counts of attempts; with `network` that network's alone, after a sign-in from there."""
    forgotten = """
        DELETE FROM sign_in_attempts WHERE subject = :subject
        OR (:everywhere AND starts_with(subject, concat(:subject, ' from ')))
    """
    subject = attempts_subject(account.name, network)
    everywhere = network is None
    await session.run(forgotten, subject=subject, everywhere=everywhere)


async def _find(session: Session, name: str) -> Account:
    spelled = name.strip().lower()
    account = await session.first(
        AccountRow, "WHERE name = :name FOR UPDATE", name=spelled
    )
    if account is None:
        raise UsageError(
            f"there is no account {name}", hint="medlive user list shows them"
        )
    return account


async def _add(session: Session, account: Account) -> bool:
    """Insert an account; False if another has its name or subject."""
    try:
        async with session.begin_nested():
            session.add(account)
    except IntegrityError:
        return False
    return True


def _give_link(account: Account) -> str:
    """Give an account a one-time link instead of the one that it has; return its token."""
    token = secrets.token_urlsafe(32)
    account.link_digest = digest_text(token)
    account.link_expires_at = now() + LINK_LASTS
    return token
