"""Tables of who may use the private pages: accounts, their sessions, and counts of attempts to sign in."""

from enum import StrEnum

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped

from .base import (
    Base,
    Digest,
    checks,
    column,
    integer_column,
    key_column,
    moment_column,
    now_column,
    number_column,
    optional_moment,
    optional_text,
    text_column,
    text_key,
)


class Role(StrEnum):
    """What an account may do; `GRANTS` says which role includes which."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    PUBLISHER = "publisher"
    ADMIN = "admin"


GRANTS = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.REVIEWER: frozenset({Role.VIEWER, Role.REVIEWER}),
    Role.PUBLISHER: frozenset({Role.VIEWER, Role.PUBLISHER}),
    Role.ADMIN: frozenset(Role),
}
"""Role → the roles whose pages it may use."""


class AccountRow(Base):
    """The people who may use the private pages."""

    __tablename__ = "accounts"
    __table_args__ = checks(
        UniqueConstraint("name"),
        UniqueConstraint("subject"),
        UniqueConstraint("link_digest"),
        name_spelling="name ~ '^[a-z0-9][a-z0-9._@+-]{0,63}$'",
        password_is_hashed="password_hash LIKE '$argon2id$%'",
        one_way_in="subject IS NULL OR (password_hash IS NULL AND link_digest IS NULL)",
        link_is_whole="(link_digest IS NULL) = (link_expires_at IS NULL)",
    )
    id = number_column("The account's number")
    name = text_column("The name to sign in with")
    role: Mapped[Role] = column("viewer, reviewer, publisher or admin")
    password_hash = optional_text(
        "argon2id with its salt and parameters; NULL: no password is set"
    )
    subject = optional_text(
        "Issuer and subject at the identity provider; NULL: signs in here"
    )
    link_digest: Mapped[Digest | None] = column(
        "The digest of the one-time link's token; NULL: no link is open"
    )
    link_expires_at = optional_moment("Until when the link can be used")
    created_at = now_column("When it was made")
    signed_in_at = optional_moment("When it last signed in; NULL: never")
    disabled_at = optional_moment("Since when it cannot sign in; NULL: it can")

    def may(self, role: Role) -> bool:
        """Whether the account may use the pages of `role`."""
        return role in GRANTS[self.role]


class SessionRow(Base):
    """The sessions of signed-in browsers."""

    __tablename__ = "account_sessions"
    __table_args__ = (Index(None, "account_id"),)
    digest: Mapped[Digest] = key_column(
        "The digest of the token that the browser holds"
    )
    account_id = integer_column(
        "Whose it is", ForeignKey("accounts.id", ondelete="CASCADE")
    )
    created_at = now_column("When it began")
    used_at = now_column("When it was last used, to the minute")


class SignInAttemptsRow(Base):
    """Attempts to sign in, counted for a quarter of an hour by account, by address and by both."""

    __tablename__ = "sign_in_attempts"
    __table_args__ = checks(
        Index(None, "until"),
        attempts_positive="attempts >= 1",
    )
    subject = text_key("account:NAME, account:NAME from ADDRESS or address:ADDRESS")
    attempts = integer_column("How many there were")
    until = moment_column("When the count starts anew")
