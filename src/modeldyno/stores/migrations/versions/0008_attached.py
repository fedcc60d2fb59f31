"""Documents that are listed under a registered version: attached ones, and conclusions by their models."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    bytewise = sa.String().with_variant(sa.String(collation="C"), "postgresql")

    def place() -> tuple[sa.Column[Any], ...]:
        texts = (sa.Column(name, sa.Text, nullable=False) for name in ("host", "device", "engine"))
        return (*texts, sa.Column("batch_size", sa.Integer, nullable=False))

    op.create_table(
        "conclusion_models",
        sa.Column(
            "conclusion", bytewise, sa.ForeignKey("conclusions.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("digest", bytewise, primary_key=True),
        *place(),
        sqlite_with_rowid=False,
    )
    op.create_index("conclusion_models_digest", "conclusion_models", ["digest"])
    op.create_table(
        "attached",
        sa.Column("model", bytewise, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("document", bytewise, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        *place(),
        sa.ForeignKeyConstraint(
            ["model", "number"], ["versions.model", "versions.number"], ondelete="CASCADE"
        ),
    )
    op.create_index("attached_document", "attached", ["document"])
