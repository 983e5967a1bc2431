"""Lines that could not be imported are printed and no longer kept; bands are filled in by one transaction."""

from alembic import op

revision = "0020"
down_revision = "0019"

OUTCOMES = "running, done, partial or failed"


def upgrade() -> None:
    """Drop what nothing writes any more; name every outcome of a run."""
    op.drop_table("import_problems")
    op.drop_column("band_schemes", "filled_to")
    for table in ("harvest_runs", "import_runs", "pipeline_runs"):
        op.execute(f"COMMENT ON COLUMN {table}.outcome IS '{OUTCOMES}'")
