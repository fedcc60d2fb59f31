"""Loads that go on, for pages that show them while they do."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    bytewise = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "live_loads",
        sa.Column("id", bytewise, primary_key=True),
        sa.Column("created", bytewise, nullable=False),
        sa.Column("seen", sa.Float(53), nullable=False),
        sa.Column("boot", sa.String, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
