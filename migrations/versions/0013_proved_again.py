"""A rubric that a person edited can be proved again: a proof is of a decision, or of a later revision of its case."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

COMMENT = (
    "The case's revision that was proved again; 0: the proof was made with the decision"
)


def upgrade() -> None:
    op.drop_constraint("fk_rubric_probes_curation_id", "rubric_probes")
    for table, key in (
        ("rubric_proofs", ["curation_id", "revision"]),
        ("rubric_probes", ["curation_id", "revision", "position"]),
    ):
        column = sa.Column(
            "revision",
            sa.Integer,
            nullable=False,
            server_default="0",
            comment=COMMENT,
        )
        op.add_column(table, column)
        op.drop_constraint(f"pk_{table}", table)
        op.create_primary_key(f"pk_{table}", table, key)
    op.create_foreign_key(
        "fk_rubric_probes_curation_id_revision",
        "rubric_probes",
        "rubric_proofs",
        ["curation_id", "revision"],
        ["curation_id", "revision"],
    )
