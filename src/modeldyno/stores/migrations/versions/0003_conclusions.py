"""What was concluded from several results: comparisons, ladders of loads, searches for the largest one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    bytewise = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "conclusions",
        sa.Column("id", bytewise, primary_key=True),
        sa.Column("created", bytewise, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("name_key", sa.String(200), nullable=False),
        sa.Column("headline", sa.Text, nullable=False),
        sa.Column("schema", sa.Integer, nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("conclusions_created", "conclusions", ["created", "id"])
    op.create_index("conclusions_name_key", "conclusions", ["name_key", "created"])
