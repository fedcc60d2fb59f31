"""Indices by which versions are found by their framework and by what they were made from."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_index("versions_framework", "versions", ["model", "framework", "number"])
    op.create_index("versions_parent", "versions", ["parent", "model", "number"])
