"""Workers and what keeps them, why jobs failed, and what each thread waits for."""

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

TIME = sa.DateTime(timezone=True)
JSON = sa.dialects.postgresql.JSONB()


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column(
            "id", sa.Integer, sa.Identity(always=True), comment="The worker's number"
        ),
        sa.Column("host", sa.Text, nullable=False, comment="The name of its machine"),
        sa.Column("pid", sa.Integer, nullable=False, comment="Its process there"),
        sa.Column("queues", JSON, nullable=False, comment="The queues that it serves"),
        sa.Column(
            "paused",
            JSON,
            nullable=False,
            comment="Those of them whose jobs it does not take now",
        ),
        sa.Column(
            "began_at",
            TIME,
            nullable=False,
            server_default=sa.func.now(),
            comment="When it started",
        ),
        sa.Column(
            "heard_at",
            TIME,
            nullable=False,
            server_default=sa.func.now(),
            comment="Its last sign of life, by the database's clock",
        ),
        sa.Column(
            "state", sa.Text, nullable=False, comment="working, waiting or stopping"
        ),
        sa.Column("reason", sa.Text, comment="Why it waits; NULL: it does not"),
        sa.Column(
            "since",
            TIME,
            nullable=False,
            server_default=sa.func.now(),
            comment="Since when it is in this state for this reason",
        ),
        sa.CheckConstraint(
            "state IN ('working', 'waiting', 'stopping')", name="state_known"
        ),
        sa.CheckConstraint(
            "(state = 'waiting') = (reason IS NOT NULL)", name="waiting_has_a_reason"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
        comment="Worker processes; one that ends in order removes its row, a killed one is no longer heard of",
    )
    op.create_table(
        "job_failures",
        sa.Column("job_id", sa.BigInteger, autoincrement=False, comment="The job"),
        sa.Column("queue", sa.Text, nullable=False, comment="Its queue"),
        sa.Column(
            "reason",
            sa.Text,
            nullable=False,
            comment="What went wrong, in one line without secrets",
        ),
        sa.Column(
            "failed_at",
            TIME,
            nullable=False,
            server_default=sa.func.now(),
            comment="When",
        ),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_failures"),
        comment="Why jobs failed, which the job queue itself does not keep",
    )
    op.create_index(
        "ix_thread_standings_pending",
        "thread_standings",
        ["thread_id"],
        postgresql_where=sa.text("outcome = 'pending'"),
    )
    function = Path(__file__).parent / "0007_waiting.sql"
    op.execute(function.read_text(encoding="utf-8").replace(":", r"\:"))
