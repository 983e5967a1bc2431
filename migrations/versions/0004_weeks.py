"""Which threads a week waits for, since when its steps wait, and what a run logged."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"

HERE = Path(__file__).parent


def upgrade() -> None:
    op.execute(
        (HERE / "0004_weeks.sql").read_text(encoding="utf-8").replace(":", r"\:")
    )
