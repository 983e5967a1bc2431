"""A thread may become again what it was: the same content as a later revision."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let a content stand in more than one revision of its thread."""
    op.drop_constraint(op.f("uq_thread_revisions_thread_id_digest"), "thread_revisions", type_="unique")
