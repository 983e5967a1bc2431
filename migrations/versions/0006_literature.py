"""What literature services answered, and when each may be asked next."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "literature_answers",
        sa.Column("key", sa.Text, comment="The digest of service, address and form"),
        sa.Column(
            "service",
            sa.Text,
            nullable=False,
            comment="The service: pubmed or europepmc",
        ),
        sa.Column(
            "body",
            sa.LargeBinary,
            nullable=False,
            comment="What was read from the answer, without the words that were searched",
        ),
        sa.Column(
            "fetched_at",
            TIME,
            nullable=False,
            server_default=sa.func.now(),
            comment="When it was asked",
        ),
        sa.PrimaryKeyConstraint("key", name="pk_literature_answers"),
        sa.CheckConstraint(
            "key ~ '^sha256:[0-9a-f]{64}$'",
            name=op.f("ck_literature_answers_key_is_digest"),
        ),
        comment="What literature services answered, by request and by article, so that nothing is asked twice",
    )
    op.create_index(
        "ix_literature_answers_fetched_at", "literature_answers", ["fetched_at"]
    )
    op.create_table(
        "literature_turns",
        sa.Column("service", sa.Text, comment="The service"),
        sa.Column(
            "next_at", TIME, nullable=False, comment="When the next request may be made"
        ),
        sa.PrimaryKeyConstraint("service", name="pk_literature_turns"),
        comment="When each literature service may be asked next, over all workers",
    )
