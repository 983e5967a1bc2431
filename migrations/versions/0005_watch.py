"""Open problems and their acknowledgements, messages on their way, observations; tokens counted by a bound."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"

HERE = Path(__file__).parent


def upgrade() -> None:
    op.execute(
        (HERE / "0005_watch.sql").read_text(encoding="utf-8").replace(":", r"\:")
    )
