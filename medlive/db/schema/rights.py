"""The rights of the database's roles, as `docs/builders/database-rights.md` lists them; `replace_rights` grants them.

`SELECT` is given on every table, also on one that a later migration adds, except the accounts' tables to the worker.
All else is listed here by table, and by column where rows are changed in a few columns only.

The owner migrates, takes threads down and grants; `medlive_worker` writes what the week's steps write;
`medlive_web` reads, and writes what people do on pages: accounts, acts on cases and threads, studies. Neither owns a
table, so neither can alter one, switch off the triggers that keep frozen rows, or empty one; where rows are only
added, neither may change a row.
"""

from sqlalchemy import Connection, text

WEB = "medlive_web"
WORKER = "medlive_worker"

IMMUTABLE = (
    "thread_revisions",
    "prompts",
    "replies",
    "curations",
    "overrules",
    "agent_calls",
    "elements",
    "requirements",
    "passages",
    "claim_verdicts",
    "claim_evidence",
    "controller_checks",
    "cross_examinations",
    "cross_questions",
    "second_readings",
    "rubric_proofs",
    "rubric_probes",
    "holds",
    "case_revisions",
    "criteria",
    "withdrawals",
    "reinstatements",
    "reviews",
    "identifier_scans",
)
"""Tables whose rows are only ever added; triggers refuse the rest."""
_ADDED = "INSERT"
_LOCKED = "UPDATE (id)"
"""Locking a row needs the right to change a column; a trigger refuses the change."""
_LOG = 'INSERT (at, "by", action, subject, reason, details)'
"""The database assigns an entry's number, salt and digests."""
_STATUS = "UPDATE (status, status_reason)"
_CLOSE_DISPUTE = "UPDATE (closed_at, closed_by, resolution)"
_ACTS = {
    "audit_log": _LOG,
    "case_revisions": _ADDED,
    "criteria": _ADDED,
    "disputes": f"INSERT, {_CLOSE_DISPUTE}",
    "overrules": _ADDED,
    "reinstatements": _ADDED,
    "reviews": _ADDED,
    "withdrawals": _ADDED,
    "procrastinate_events": _ADDED,  # By triggers of the jobs
    "thread_standings": "INSERT, UPDATE",  # By triggers of the other tables
}
"""Table → what acts write, on pages and by command."""
_WEB = _ACTS | {
    "account_sessions": "INSERT, UPDATE, DELETE",
    "accounts": "INSERT, UPDATE",
    "cases": _STATUS,
    "procrastinate_jobs": _ADDED,
    "sign_in_attempts": "INSERT, UPDATE, DELETE",
    "sources": "UPDATE (quarantined_at, quarantine_reason, compared_since)",
    "studies": "INSERT, UPDATE (closed_at)",
    "pipeline_runs": "UPDATE (outcome, finished_at, counts)",  # A step is cleared
    "harvest_runs": "UPDATE (outcome, finished_at)",
    "step_waits": "DELETE",
    "week_threads": "INSERT, UPDATE",  # An overruled thread is queued
    "study_items": _ADDED,
    "study_ratings": "INSERT (study, item, rater, rating, comment)",
    "thread_revisions": _LOCKED,
}
_ADDED_BY_WORKER = (
    *IMMUTABLE,
    "case_gates",
    "evidence_indexes",
    "filter_results",
    "harvest_robots",
    "identifiers",
)
_CHANGED_BY_WORKER = (
    "archives",
    "evaluation_runs",
    "fetches",
    "frontier",
    "harvest_runs",
    "import_runs",
    "pipeline_runs",
    "sources",
    "threads",
)
_REPLACED_BY_WORKER = (
    "band_schemes",
    "harvest_measures",
    "snapshot_changes",
    "snapshot_kept_out",
    "snapshot_members",
)
_KEPT_BY_WORKER = (
    "snapshots",  # Triggers keep what is frozen
    "circuits",
    "job_failures",
    "list_cursors",
    "literature_answers",
    "observations",
    "open_problems",
    "outbox",
    "procrastinate_jobs",
    "procrastinate_workers",
    "step_waits",
    "workers",
)
_WORKER = (
    _ACTS
    | dict.fromkeys(_ADDED_BY_WORKER, _ADDED)
    | dict.fromkeys(_CHANGED_BY_WORKER, "INSERT, UPDATE")
    | dict.fromkeys(_REPLACED_BY_WORKER, "INSERT, DELETE")
    | dict.fromkeys(_KEPT_BY_WORKER, "INSERT, UPDATE, DELETE")
    | {
        "bands": "INSERT, TRUNCATE",  # Made anew for another scheme
        "cases": "INSERT, UPDATE (thread_id, status, status_reason)",
        "literature_turns": "INSERT, UPDATE",
        "procrastinate_periodic_defers": "UPDATE (job_id)",  # By a trigger of the jobs
        "week_threads": "INSERT, UPDATE",
        "thread_revisions": f"INSERT, {_LOCKED}",
    }
)
_TABLES = {WEB: _WEB, WORKER: _WORKER}
_UNREAD = {WEB: (), WORKER: ("accounts", "account_sessions", "sign_in_attempts")}
_SEQUENCES = ("procrastinate_jobs_id_seq", "procrastinate_events_id_seq")
"""Sequences that a column's default names; identity columns need no right, and nobody can skip their numbers."""
_CALLED = (
    # By triggers
    "medlive_canonical",
    "medlive_original_bytes",
    "medlive_refresh_standings",
    "medlive_words",
    # By both roles
    "medlive_waiting_threads",
)
_FUNCTIONS = {
    WEB: (*_CALLED, "procrastinate_defer_jobs%"),
    WORKER: (*_CALLED, "procrastinate_%"),
}
"""Patterns of names; functions of triggers need no right."""
_OWN_FUNCTIONS = ("medlive_%", "procrastinate_%")
_NAMED_TABLES = text(
    "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
)
_NAMED_FUNCTIONS = text("""
    SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = to_regnamespace(current_schema())
    AND prokind = 'f' AND proname LIKE ANY (:patterns) AND (:triggers OR prorettype <> 'trigger'::regtype)
""")
_HAS_RIGHTS = text("""
    SELECT EXISTS (SELECT FROM pg_class, aclexplode(relacl) AS acl
    WHERE relnamespace = to_regnamespace(current_schema()) AND acl.grantee = to_regrole(:role))
""")


_LARGE_OBJECTS = text(
    "SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
    r" AND (proname LIKE 'lo\_%' OR proname IN ('loread', 'lowrite')) AND pg_has_role(proowner, 'USAGE')"
)
"""Functions by which anybody could store data that no table shows, as far as this user may revoke them."""
_OWN_DATABASE = text(
    "SELECT quote_ident(datname) FROM pg_database WHERE datname = current_database() AND pg_has_role(datdba, 'USAGE')"
)


def expected_rights(tables: set[str]) -> dict[str, dict[str, str]]:
    """Role → table → the rights that the role is given on it, as they are written in GRANT."""
    expected: dict[str, dict[str, str]] = {}
    for role, granted in _TABLES.items():
        readable = tables.difference(_UNREAD[role])
        expected[role] = dict.fromkeys(readable, "SELECT")
        for table, rights in granted.items():
            expected[role][table] = f"SELECT, {rights}" if table in readable else rights
    return expected


def replace_rights(connection: Connection, role: str) -> None:
    """Give a role the rights that are listed here, in place of all rights that it has in the schema."""
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    connection.exec_driver_sql(f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {role}")
    for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        connection.exec_driver_sql(
            f"REVOKE ALL ON ALL {kind} IN SCHEMA {schema} FROM {role}"
        )
    connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    for table in connection.scalars(_NAMED_TABLES).all():
        if table not in _UNREAD[role]:
            connection.exec_driver_sql(f"GRANT SELECT ON {table} TO {role}")
    for table, rights in _TABLES[role].items():
        connection.exec_driver_sql(f"GRANT {rights} ON {table} TO {role}")
    for sequence in _SEQUENCES:
        connection.exec_driver_sql(f"GRANT USAGE ON SEQUENCE {sequence} TO {role}")
    for function in _functions(connection, _OWN_FUNCTIONS, triggers=True):
        connection.exec_driver_sql(f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
    for function in _functions(connection, _FUNCTIONS[role], triggers=False):
        connection.exec_driver_sql(f"GRANT EXECUTE ON FUNCTION {function} TO {role}")


def close_database(connection: Connection) -> None:
    """Revoke large objects and temporary tables from everybody; the worker keeps temporary tables, to freeze."""
    for function in connection.scalars(_LARGE_OBJECTS).all():
        statement = f"REVOKE ALL ON FUNCTION pg_catalog.{function} FROM PUBLIC"
        connection.exec_driver_sql(statement)
    if name := connection.scalar(_OWN_DATABASE):
        connection.execute(text(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC"))
        connection.execute(text(f"GRANT TEMPORARY ON DATABASE {name} TO {WORKER}"))


def renew_rights(connection: Connection) -> None:
    """Replace the rights of the roles that have any in the schema, so that rights this version no longer gives end."""
    for role in (WEB, WORKER):
        if connection.scalar(_HAS_RIGHTS, {"role": role}):
            replace_rights(connection, role)
            if role == WORKER:
                close_database(connection)
    connection.commit()


def _functions(
    connection: Connection, patterns: tuple[str, ...], *, triggers: bool
) -> list[str]:
    # In LIKE an underscore is any character, which is of no matter for these names.
    return list(
        connection.scalars(
            _NAMED_FUNCTIONS, {"patterns": list(patterns), "triggers": triggers}
        )
    )
