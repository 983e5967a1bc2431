"""The database's roles with the least rights that each process needs.

The owner migrates, takes threads down and grants; `medlive_worker` writes what the week's steps write;
`medlive_web` reads, and writes what people do on pages: accounts, acts on cases and threads, studies, counts of
downloads. Neither owns a table, so neither can alter one, switch off the triggers that keep frozen rows, or empty
one; where rows are only added, neither may change a row.
"""

from typing import Final

from sqlalchemy import Connection, text

from medlive.db.migrate import IMMUTABLE, connect

WEB: Final = "medlive_web"
WORKER: Final = "medlive_worker"

_ACCOUNTS: Final = ("accounts", "account_sessions", "sign_in_attempts", "saved_views")
_ADDED_BY_WEB: Final = (
    "audit_log", "reviews", "overrules", "withdrawals", "reinstatements", "case_revisions", "criteria",
    "study_items",
    "thread_counts", "procrastinate_jobs", "procrastinate_events",
)  # fmt: skip
_CHANGED_BY_WEB: Final = {
    "disputes": "closed_at, closed_by, resolution",
    "studies": "closed_at",
    "study_ratings": "rating, comment, rated_at",
}
"""Table → the columns that change after a row was added."""
_MIGRATED: Final = ("alembic_version", "components")
"""What only a migration writes."""
_LOCK: Final = "UPDATE (id)"
"""To lock a row takes the right to change a column; the trigger refuses the change."""
_TABLES: Final = text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename")


def grant(url: str) -> list[str]:
    """Create both roles, without a login, give them their rights anew, and return their names.

    To be repeated after every upgrade. Raises DatabaseUnavailable, and DatabaseForbidden for who may not do it.
    """
    with connect(url) as connection:
        for role in (WEB, WORKER):
            _create(connection, role)
        for role, rights in expected_rights(set(connection.scalars(_TABLES))).items():
            _replace(connection, role, rights)
        connection.commit()
    return [WEB, WORKER]


def expected_rights(tables: set[str]) -> dict[str, dict[str, str]]:
    """Role → table → the rights that `grant` gives, as they are written in GRANT."""
    return {WEB: _web_rights(tables), WORKER: _worker_rights(tables)}


def _web_rights(tables: set[str]) -> dict[str, str]:
    return {
        **dict.fromkeys(tables, "SELECT"),
        **dict.fromkeys(_ACCOUNTS, "SELECT, INSERT, UPDATE, DELETE"),
        **dict.fromkeys(_ADDED_BY_WEB, "SELECT, INSERT"),
        **{table: f"SELECT, INSERT, UPDATE ({columns})" for table, columns in _CHANGED_BY_WEB.items()},
        "downloads": "SELECT, INSERT, UPDATE",
        "sources": "SELECT, UPDATE (quarantined_at, quarantine_reason, compared_since)",
        "cases": "SELECT, UPDATE (status, status_reason)",
        "thread_revisions": f"SELECT, {_LOCK}",
        "thread_standings": "SELECT, INSERT, UPDATE",  # by the triggers of the others
    }


def _worker_rights(tables: set[str]) -> dict[str, str]:
    return {
        **dict.fromkeys(tables - set(_ACCOUNTS), "SELECT, INSERT, UPDATE, DELETE"),
        **dict.fromkeys((*IMMUTABLE, "audit_log"), "SELECT, INSERT"),
        **dict.fromkeys(_MIGRATED, "SELECT"),
        "thread_revisions": f"SELECT, INSERT, {_LOCK}",
        "bands": "SELECT, INSERT, UPDATE, DELETE, TRUNCATE",  # made anew for another scheme
    }


def _create(connection: Connection, role: str) -> None:
    # Roles belong to the server: another database may make the same one at the same time.
    connection.execute(
        text(
            f"DO $$ BEGIN IF to_regrole('{role}') IS NULL THEN CREATE ROLE {role} NOLOGIN; END IF; "
            "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        )
    )


def _replace(connection: Connection, role: str, rights: dict[str, str]) -> None:
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    connection.execute(text(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}"))
    connection.execute(text(f"GRANT USAGE ON SCHEMA {schema} TO {role}"))
    connection.execute(text(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"))
    for table, given in rights.items():
        connection.execute(text(f'GRANT {given} ON "{table}" TO {role}'))
