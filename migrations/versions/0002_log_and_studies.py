"""The database makes the audit log's chain, a closed study stays closed, and ratings are only added."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"

FUNCTIONS = Path(__file__).with_suffix(".sql")
TABLES = (
    "ALTER TABLE audit_log ADD COLUMN salt TEXT",
    "ALTER TABLE audit_log ADD CONSTRAINT ck_audit_log_salt_is_hex CHECK (salt ~ '^[0-9a-f]{32}$')",
    "COMMENT ON COLUMN audit_log.salt IS 'A random number, so that nobody guesses a row by its digest; NULL: "
    "from before digests were published'",
    "COMMENT ON COLUMN audit_log.number IS 'Its place in the log, from 1 without a gap; the database assigns it'",
    "COMMENT ON COLUMN audit_log.digest IS 'Of the canonical JSON of all other columns but the reason,"
    " without a salt that is NULL'",
    "ALTER TABLE study_ratings DROP CONSTRAINT pk_study_ratings",
    "ALTER TABLE study_ratings ADD COLUMN id BIGINT GENERATED ALWAYS AS IDENTITY",
    "ALTER TABLE study_ratings ADD CONSTRAINT pk_study_ratings PRIMARY KEY (id)",
    "CREATE INDEX ix_study_ratings_study_item_rater_id ON study_ratings (study, item, rater, id)",
    "COMMENT ON TABLE study_ratings IS"
    " 'Ratings; while the study is open another one by the same rater replaces it'",
    "COMMENT ON COLUMN study_ratings.id IS"
    " 'The row''s number: of a rater''s ratings of an item the highest counts'",
    "COMMENT ON COLUMN study_ratings.rated_at IS 'When it was given'",
)
EACH_ROW = (
    ("audit_log_chained", "BEFORE INSERT ON audit_log", "medlive_chain_log()"),
    ("studies_closed", "BEFORE UPDATE ON studies", "medlive_close_study_once()"),
    ("studies_kept", "BEFORE DELETE ON studies", "medlive_refuse('a study stays')"),
    (
        "study_items_open",
        "BEFORE INSERT ON study_items",
        "medlive_refuse_closed_study()",
    ),
    (
        "study_items_kept",
        "BEFORE UPDATE ON study_items",
        "medlive_refuse('what is rated is never changed')",
    ),
    (
        "study_ratings_open",
        "BEFORE INSERT ON study_ratings",
        "medlive_refuse_closed_study()",
    ),
    (
        "study_ratings_kept",
        "BEFORE UPDATE ON study_ratings",
        "medlive_refuse('a rating is never changed; another one is added to it')",
    ),
)


def upgrade() -> None:
    for statement in TABLES:
        op.execute(statement)
    op.execute(FUNCTIONS.read_text(encoding="utf-8").replace(":", r"\:"))
    for name, event, function in EACH_ROW:
        op.execute(
            f"CREATE TRIGGER {name} {event} FOR EACH ROW EXECUTE FUNCTION {function}"
        )
