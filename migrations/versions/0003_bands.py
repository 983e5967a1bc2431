"""Near-duplicates: the MinHash bands of accepted threads."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables; the bands of threads that are accepted already are filled in by the next filter run."""
    op.create_table(
        "band_schemes",
        sa.Column(
            "scheme",
            sa.Text(),
            nullable=False,
            comment="What bands are made of, and a check of what the library gives",
        ),
        sa.Column(
            "filled_to",
            sa.Integer(),
            server_default="0",
            nullable=False,
            comment="The last revision whose bands were filled in afterwards; 0: none yet",
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When its bands were begun",
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Since when every accepted thread has its bands; NULL while they are filled in",
        ),
        sa.CheckConstraint("char_length(scheme) BETWEEN 1 AND 200", name=op.f("ck_band_schemes_scheme_length")),
        sa.CheckConstraint("filled_to >= 0", name=op.f("ck_band_schemes_filled_to_not_negative")),
        sa.PrimaryKeyConstraint("scheme", name=op.f("pk_band_schemes")),
        comment="The way in which the bands here were made; another one has them made anew",
    )
    op.create_table(
        "bands",
        sa.Column(
            "key",
            sa.BigInteger(),
            autoincrement=False,
            nullable=False,
            comment="A hash of the band's place and its minima",
        ),
        sa.Column(
            "thread_id",
            sa.Integer(),
            autoincrement=False,
            nullable=False,
            comment="A thread of which some accepted revision has this band",
        ),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name=op.f("fk_bands_thread_id")),
        sa.PrimaryKeyConstraint("key", "thread_id", name=op.f("pk_bands")),
        comment="MinHash bands: threads that share one may be near-duplicates",
    )
