"""Studies and their trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    bytewise = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "studies",
        sa.Column("id", bytewise, primary_key=True),
        sa.Column("created", bytewise, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("name_key", sa.String(200), nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("headline", sa.Text, nullable=False),
        sa.Column("schema", sa.Integer, nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("studies_created", "studies", ["created", "id"])
    op.create_index("studies_name_key", "studies", ["name_key", "created"])
    of_study = sa.ForeignKey("studies.id", ondelete="CASCADE")
    of_result = sa.ForeignKey("results.id", ondelete="SET NULL")
    op.create_table(
        "trials",
        sa.Column("study_id", bytewise, of_study, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("skipped", sa.Boolean, nullable=False),
        sa.Column("result_id", bytewise, of_result),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("trials_result_id", "trials", ["result_id"])
