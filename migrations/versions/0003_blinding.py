"""Whether a study's raters could look up what they were not to see."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE studies ADD COLUMN blinding text NOT NULL DEFAULT 'unrecorded'"
    )
    op.execute("ALTER TABLE studies ALTER COLUMN blinding DROP DEFAULT")
    op.execute(
        "ALTER TABLE studies ADD CONSTRAINT ck_studies_blinding_known"
        " CHECK (blinding IN ('blind', 'after_report', 'open', 'unrecorded'))"
    )
    op.execute(
        "COMMENT ON COLUMN studies.blinding IS 'blind, after_report, open or unrecorded'"
    )
