"""The first tables: results, their tags and their artifacts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    bytewise = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "results",
        sa.Column("id", bytewise, primary_key=True),
        sa.Column("created", bytewise, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("name_key", sa.String(200), nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("backend", sa.String, nullable=False),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("headline", sa.Text, nullable=False),
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("schema", sa.Integer, nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("results_created", "results", ["created", "id"])
    op.create_index("results_name_key", "results", ["name_key", "created"])
    op.create_table(
        "tags",
        _of_result(bytewise),
        sa.Column("tag", sa.String, nullable=False),
        sa.UniqueConstraint("result_id", "tag", name="tags_once"),
    )
    op.create_index("tags_tag", "tags", ["tag"])
    op.create_table(
        "artifacts",
        sa.Column("id", sa.Integer, primary_key=True),
        _of_result(bytewise),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("keep_until", sa.String),
    )
    op.create_index("artifacts_result_id", "artifacts", ["result_id"])


def _of_result(kind: sa.String) -> sa.Column[str]:
    owner = sa.ForeignKey("results.id", ondelete="CASCADE")
    return sa.Column("result_id", kind, owner, nullable=False)
