"""The registry: models, versions, variants, aliases, policies, targets, workers, tasks, figures, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_OPEN = sa.text("state IN ('queued', 'leased', 'deferred')")


def upgrade() -> None:
    bytewise = sa.String().with_variant(sa.String(collation="C"), "postgresql")

    def text(name: str) -> sa.Column[str]:
        return sa.Column(name, sa.Text, nullable=False)

    def word(name: str) -> sa.Column[str]:
        return sa.Column(name, sa.String, nullable=False)

    def sorted_word(name: str) -> sa.Column[str]:
        return sa.Column(name, bytewise, nullable=False)

    def number(name: str) -> sa.Column[int]:
        return sa.Column(name, sa.Integer, nullable=False)

    def document() -> sa.Column[bytes]:
        return sa.Column("document", sa.LargeBinary, nullable=False)

    def of_version() -> sa.ForeignKeyConstraint:
        return sa.ForeignKeyConstraint(
            ["model", "number"], ["versions.model", "versions.number"], ondelete="CASCADE"
        )

    def of_model(*, primary_key: bool) -> sa.Column[str]:
        models = sa.ForeignKey("models.name", ondelete="CASCADE")
        return sa.Column("model", bytewise, models, primary_key=primary_key, nullable=False)

    op.create_table(
        "models",
        sa.Column("name", bytewise, primary_key=True),
        sorted_word("created"), number("newest"), number("versions"), number("latest"), word("framework"),
        text("task"), sorted_word("touched"),
    )  # fmt: skip
    op.create_index("models_touched", "models", ["touched", "name"])
    op.create_table(
        "versions",
        of_model(primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        word("digest"), sorted_word("created"), word("framework"), text("task"), text("dataset"),
        word("parent"), document(),
    )  # fmt: skip
    op.create_index("versions_digest", "versions", ["digest", "model", "number"])
    op.create_index("versions_created", "versions", ["created"])
    op.create_table(
        "variants",
        sa.Column("id", bytewise, primary_key=True),
        sorted_word("model"), number("number"), word("recipe"), word("state"), word("digest"), document(),
        of_version(),
        sa.UniqueConstraint("model", "number", "recipe", name="variants_once"),
    )  # fmt: skip
    op.create_index("variants_digest", "variants", ["digest"])
    op.create_table(
        "aliases",
        of_model(primary_key=True),
        sa.Column("alias", sa.String, primary_key=True),
        number("number"),
    )
    op.create_table(
        "alias_moves",
        sa.Column("id", sa.Integer, primary_key=True),
        of_model(primary_key=False),
        word("alias"), sa.Column("before", sa.Integer), sa.Column("after", sa.Integer), sorted_word("at"),
        text("actor"),
    )  # fmt: skip
    op.create_index("alias_moves_model", "alias_moves", ["model", "alias", "id"])
    op.create_table("policies", sa.Column("name", bytewise, primary_key=True), document())
    op.create_table(
        "targets", sa.Column("id", bytewise, primary_key=True), text("name"), word("device"), document()
    )
    op.create_table(
        "workers",
        sa.Column("id", bytewise, primary_key=True),
        sa.Column("target", bytewise, sa.ForeignKey("targets.id", ondelete="CASCADE"), nullable=False),
        sa.Column("seen", sa.Float, nullable=False), word("boot"), document(),
    )  # fmt: skip
    op.create_table(
        "tasks",
        sa.Column("id", sa.Integer, primary_key=True),
        word("key"), word("kind"), sorted_word("model"), number("number"), word("recipe"),
        sorted_word("target"), number("priority"), word("state"), number("attempts"), number("deferrals"),
        number("token"), word("worker"), sa.Column("until", sa.Float, nullable=False), word("boot"),
        text("why"), word("result"), sorted_word("created"), document(), of_version(),
    )  # fmt: skip
    op.create_index("tasks_order", "tasks", ["state", "priority", "id"])
    op.create_index("tasks_version", "tasks", ["model", "number"])
    op.create_index("tasks_once", "tasks", ["key"], unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN)
    op.create_table(
        "figures",
        sa.Column("key", sa.String, primary_key=True),
        sorted_word("model"), number("number"), word("recipe"), sorted_word("target"), word("state"),
        sorted_word("taken"), word("result"), document(), of_version(),
    )  # fmt: skip
    op.create_index("figures_version", "figures", ["model", "number"])
    op.create_index("figures_target", "figures", ["target", "state"])
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True),
        sorted_word("at"), text("actor"), word("kind"), sorted_word("model"), sorted_word("subject"),
        text("detail"), word("before"), word("hash"),
    )  # fmt: skip
    op.create_index("events_model", "events", ["model", "id"])
    op.create_index("events_subject", "events", ["subject", "id"])
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Integer, primary_key=True),
        text("url"), text("secret"), text("kinds"), text("model"),
    )  # fmt: skip
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("webhook", sa.Integer, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("event", sa.Integer, sa.ForeignKey("events.id", ondelete="CASCADE"), nullable=False),
        word("state"), number("attempts"), number("token"), sa.Column("until", sa.Float, nullable=False),
        word("boot"), text("why"),
    )  # fmt: skip
    op.create_index("deliveries_due", "deliveries", ["state", "until", "id"])
    op.create_index("deliveries_webhook", "deliveries", ["webhook"])
    op.create_index("deliveries_event", "deliveries", ["event"])
    op.create_index("results_digest", "results", ["digest", "created"])
    op.create_index("studies_digest", "studies", ["digest", "created"])
