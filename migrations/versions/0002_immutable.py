"""What may not change: rows that are only ever added, and frozen snapshots."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ADDED_ONLY = {
    "thread_revisions": "a thread revision is never changed; an edited thread becomes a new revision",
    "prompts": "a prompt is never changed; another text has another digest",
    "replies": "a reply is never changed; it was paid for and decisions rest on it",
    "curations": "a decision is never changed; another attempt or an overruling is added to it",
    "agent_calls": "the calls of a decision are never changed",
    "elements": "the elements of a decision are never changed",
    "requirements": "the checklist of a decision is never changed",
    "passages": "evidence that was seen is never changed",
    "claim_verdicts": "the verdicts of a decision are never changed",
    "claim_evidence": "the evidence of a decision is never changed",
    "controller_checks": "the checks of a decision are never changed",
    "case_revisions": "a case revision is never changed; another wording becomes a new revision",
    "criteria": "the criteria of a case revision are never changed; another rubric becomes a new revision",
}

REFUSE = """
CREATE FUNCTION medlive_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'integrity_constraint_violation';
END $$
"""

# The row of the snapshot is locked while members are added: freezing waits for them, and they for it.
MEMBERS = """
CREATE FUNCTION medlive_refuse_frozen_members() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    touched text[] := ARRAY[]::text[];
    frozen text;
BEGIN
    IF TG_OP <> 'INSERT' THEN touched := touched || OLD.version; END IF;
    IF TG_OP <> 'DELETE' THEN touched := touched || NEW.version; END IF;
    PERFORM 1 FROM snapshots WHERE version = ANY (touched) ORDER BY version FOR SHARE;
    SELECT version INTO frozen FROM snapshots
        WHERE version = ANY (touched) AND state = 'frozen' ORDER BY version LIMIT 1;
    IF frozen IS NOT NULL THEN
        RAISE EXCEPTION '% of snapshot_members refused: snapshot % is frozen', TG_OP, frozen
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$
"""

SNAPSHOT = """
CREATE FUNCTION medlive_refuse_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'frozen' THEN
        RAISE EXCEPTION '% of snapshots refused: snapshot % is frozen', TG_OP, OLD.version
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$
"""


def upgrade() -> None:
    """Make the functions and their triggers."""
    for function in (REFUSE, MEMBERS, SNAPSHOT):
        op.execute(function)
    for table, rule in ADDED_ONLY.items():
        op.execute(
            f"CREATE TRIGGER {table}_immutable BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION medlive_refuse('{rule}')"
        )
        op.execute(
            f"CREATE TRIGGER {table}_not_truncated BEFORE TRUNCATE ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION medlive_refuse('{rule}')"
        )
    op.execute(
        "CREATE TRIGGER snapshots_frozen BEFORE UPDATE OR DELETE ON snapshots "
        "FOR EACH ROW EXECUTE FUNCTION medlive_refuse_frozen()"
    )
    op.execute(
        "CREATE TRIGGER snapshot_members_frozen BEFORE INSERT OR UPDATE OR DELETE ON snapshot_members "
        "FOR EACH ROW EXECUTE FUNCTION medlive_refuse_frozen_members()"
    )
    for table in ("snapshots", "snapshot_members"):
        op.execute(
            f"CREATE TRIGGER {table}_not_truncated BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION medlive_refuse('snapshots are removed one by one, if at all')"
        )
