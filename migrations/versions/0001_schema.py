"""The first schema: tables, and what refuses to change what may not change."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None

HERE = Path(__file__).parent
# Table → why its rows are only ever added, what leads from a row to its thread, whose takedown alone may erase it,
# and which values that takedown may set in rows that a frozen snapshot needs.
ADDED_ONLY = {
    "thread_revisions": (
        "a thread revision is never changed; an edited thread becomes a new revision",
        "thread",
        '{"title": "", "tags": [], "messages": [], "fetch_id": null, "import_run_id": null}',
    ),
    "replies": (
        "a reply is never changed; it was paid for and decisions rest on it",
        "reply",
    ),
    "curations": (
        "a decision is never changed; another attempt or an overruling is added to it",
        "revision",
        '{"detail": "", "narrative": "", "query": "", "advice": ""}',
    ),
    "overrules": (
        "an overruling is never changed; another one is added to it",
        "revision",
    ),
    "agent_calls": ("the calls of a decision are never changed", "curation"),
    "elements": ("the elements of a decision are never changed", "curation"),
    "requirements": ("the checklist of a decision is never changed", "curation"),
    "claim_verdicts": ("the verdicts of a decision are never changed", "curation"),
    "claim_evidence": ("the evidence of a decision is never changed", "curation"),
    "controller_checks": ("the checks of a decision are never changed", "curation"),
    "cross_examinations": (
        "the cross-examination of a decision is never changed",
        "curation",
    ),
    "cross_questions": (
        "the cross-examination of a decision is never changed",
        "curation",
    ),
    "second_readings": (
        "the second reading of a decision is never changed",
        "curation",
    ),
    "holds": ("the holds of a decision are never changed", "curation"),
    "case_revisions": (
        "a case revision is never changed; another wording becomes a new revision",
        "case",
    ),
    "criteria": (
        "the criteria of a case revision are never changed; another rubric becomes a new revision",
        "case",
    ),
    "withdrawals": (
        "a withdrawal is never changed; another one is added to it",
        "case",
    ),
    "reinstatements": (
        "what was reinstated is never changed; it may be withdrawn again",
        "case",
    ),
    "reviews": (
        "what a person decided is never changed; another decision is added to it",
        "case",
        '{"reason": "(taken down)", "decided_by": null}',
    ),
    "identifier_scans": (
        "a look for identifiers is never changed; another one is added to it",
        "case",
    ),
    "prompts": ("a prompt is never changed; another text has another digest",),
    "passages": ("evidence that was seen is never changed",),
}
KEPT = {
    "audit_log": "what people did is never changed; a further entry undoes an act",
    "disputes": "a dispute stays, with what came of it",
    "takedowns": "a takedown stays, so that its thread does not come back",
    "snapshots": "snapshots are removed one by one, if at all",
    "snapshot_members": "snapshots are removed one by one, if at all",
    "snapshot_changes": "snapshots are removed one by one, if at all",
    "snapshot_kept_out": "snapshots are removed one by one, if at all",
}
OF_SNAPSHOTS = ("snapshot_members", "snapshot_changes", "snapshot_kept_out")


def upgrade() -> None:
    for name in ("tables", "functions", "standings"):
        op.execute(
            (HERE / f"0001_{name}.sql").read_text(encoding="utf-8").replace(":", r"\:")
        )
    for table, (why, *erased) in ADDED_ONLY.items():
        refuse = "medlive_refuse_unless_taken_down" if erased else "medlive_refuse"
        arguments = ", ".join(_quoted(value) for value in (why, *erased))
        _trigger(
            f"{table}_immutable",
            f"BEFORE DELETE OR UPDATE ON {table} FOR EACH ROW",
            f"{refuse}({arguments})",
        )
        _not_truncated(table, why)
    for table, why in KEPT.items():
        _not_truncated(table, why)
    row = "FOR EACH ROW"
    _trigger(
        "audit_log_immutable",
        f"BEFORE DELETE OR UPDATE ON audit_log {row}",
        f"medlive_keep_log({_quoted(KEPT['audit_log'])})",
    )
    _trigger(
        "disputes_closed", f"BEFORE UPDATE ON disputes {row}", "medlive_close_once()"
    )
    kept = f"medlive_refuse_unless_taken_down({_quoted(KEPT['disputes'])}, 'case')"
    _trigger("disputes_kept", f"BEFORE DELETE ON disputes {row}", kept)
    _trigger(
        "takedowns_noted",
        f"BEFORE INSERT OR UPDATE ON takedowns {row}",
        "medlive_note_takedown()",
    )
    _trigger(
        "takedowns_kept",
        f"BEFORE DELETE ON takedowns {row}",
        f"medlive_refuse({_quoted(KEPT['takedowns'])})",
    )
    _trigger(
        "snapshots_frozen",
        f"BEFORE DELETE OR UPDATE ON snapshots {row}",
        "medlive_refuse_frozen()",
    )
    for table in OF_SNAPSHOTS:
        touched = f"BEFORE DELETE OR UPDATE ON {table} {row}"
        _trigger(f"{table}_frozen", touched, "medlive_refuse_frozen_members()")
        added = (
            f"AFTER INSERT ON {table} REFERENCING NEW TABLE AS added FOR EACH STATEMENT"
        )
        _trigger(f"{table}_added", added, "medlive_refuse_frozen_added()")


def _not_truncated(table: str, why: str) -> None:
    truncated = f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
    _trigger(f"{table}_not_truncated", truncated, f"medlive_refuse({_quoted(why)})")


def _trigger(name: str, event: str, function: str) -> None:
    op.execute(
        f"CREATE TRIGGER {name} {event} EXECUTE FUNCTION {function}".replace(":", r"\:")
    )


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
