"""The tables of a store at the newest revision; `migrations` has the steps that lead to it."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

REVISION = "0008"
"""The newest revision; later ones compare greater."""
VERSION_TABLE = "modeldyno_revision"
KEY_LENGTH = 200
"""Characters of a name that are indexed: PostgreSQL's index entries must stay below 10 kB."""

METADATA = MetaData()
REVISIONS = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""Alembic's own table, as it makes it."""
BYTEWISE = String().with_variant(String(collation="C"), "postgresql")
"""Text sorted by its bytes in every database: ids are looked up by range, times by order."""

RESULTS = Table(
    "results",
    METADATA,
    Column("id", BYTEWISE, primary_key=True),
    Column("created", BYTEWISE, nullable=False),
    Column("name", Text, nullable=False),
    Column("name_key", String(KEY_LENGTH), nullable=False),
    Column("digest", String, nullable=False),
    Column("backend", String, nullable=False),
    Column("config", Text, nullable=False),
    Column("headline", Text, nullable=False),
    Column("failed", Boolean, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("checksum", String(64), nullable=False),
    # Last, so that SQLite lists results without reading their documents.
    Column("document", LargeBinary, nullable=False),
    Index("results_created", "created", "id"),
    Index("results_name_key", "name_key", "created"),
    Index("results_digest", "digest", "created"),
)

NUMBERS = Table(
    "numbers",
    METADATA,
    Column("result_id", BYTEWISE, ForeignKey("results.id", ondelete="CASCADE"), primary_key=True),
    Column("query", BYTEWISE, primary_key=True),
    Column("value", Float(53)),
    Column("raw", Float(53)),
    Column("low", Float(53)),
    Column("high", Float(53)),
    sqlite_with_rowid=False,
)

FACTS = Table(
    "facts",
    METADATA,
    Column("result_id", BYTEWISE, ForeignKey("results.id", ondelete="CASCADE"), primary_key=True),
    Column("name", BYTEWISE, primary_key=True),
    Column("text", Text, nullable=False),
    Column("number", Float(53)),  # if it is one
    sqlite_with_rowid=False,
)

TAGS = Table(
    "tags",
    METADATA,
    Column("result_id", BYTEWISE, ForeignKey("results.id", ondelete="CASCADE"), nullable=False),
    Column("tag", String, nullable=False),
    UniqueConstraint("result_id", "tag", name="tags_once"),
    Index("tags_tag", "tag"),
)

ARTIFACTS = Table(
    "artifacts",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("result_id", BYTEWISE, ForeignKey("results.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("digest", String, nullable=False),
    Column("keep_until", String),
    Index("artifacts_result_id", "result_id"),
)

STUDIES = Table(
    "studies",
    METADATA,
    Column("id", BYTEWISE, primary_key=True),
    Column("created", BYTEWISE, nullable=False),
    Column("name", Text, nullable=False),
    Column("name_key", String(KEY_LENGTH), nullable=False),
    Column("digest", String, nullable=False),
    Column("headline", Text, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("checksum", String(64), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("studies_created", "created", "id"),
    Index("studies_name_key", "name_key", "created"),
    Index("studies_digest", "digest", "created"),
)

TRIALS = Table(
    "trials",
    METADATA,
    Column("study_id", BYTEWISE, ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("skipped", Boolean, nullable=False),
    Column("result_id", BYTEWISE, ForeignKey("results.id", ondelete="SET NULL")),
    Column("checksum", String(64), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("trials_result_id", "result_id"),
)

CONCLUSIONS = Table(
    "conclusions",
    METADATA,
    Column("id", BYTEWISE, primary_key=True),
    Column("created", BYTEWISE, nullable=False),
    Column("kind", String, nullable=False),
    Column("name", Text, nullable=False),
    Column("name_key", String(KEY_LENGTH), nullable=False),
    Column("headline", Text, nullable=False),
    Column("schema", Integer, nullable=False),
    Column("checksum", String(64), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("conclusions_created", "created", "id"),
    Index("conclusions_name_key", "name_key", "created"),
)

CONCLUSION_MODELS = Table(
    "conclusion_models",
    METADATA,
    Column("conclusion", BYTEWISE, ForeignKey("conclusions.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", BYTEWISE, primary_key=True),
    Column("host", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("batch_size", Integer, nullable=False),
    Index("conclusion_models_digest", "digest"),
    sqlite_with_rowid=False,
)
"""Of which models a conclusion has figures, and where they were measured."""

LIVE_LOADS = Table(
    "live_loads",
    METADATA,
    Column("id", BYTEWISE, primary_key=True),
    Column("created", BYTEWISE, nullable=False),
    Column("seen", Float(53), nullable=False),  # by the clock of `clock.now`
    Column("boot", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
)

# --- the registry ----------------------------------------------------------------------------------

MODELS = Table(
    "models",
    METADATA,
    Column("name", BYTEWISE, primary_key=True),
    Column("created", BYTEWISE, nullable=False),
    Column("newest", Integer, nullable=False),  # the last number that was given to a version
    Column("versions", Integer, nullable=False),
    Column("latest", Integer, nullable=False),  # the largest number that is there, with what lists filter by
    Column("framework", String, nullable=False),
    Column("task", Text, nullable=False),
    Column("touched", BYTEWISE, nullable=False),
    Index("models_touched", "touched", "name"),
)

VERSIONS = Table(
    "versions",
    METADATA,
    Column("model", BYTEWISE, ForeignKey("models.name", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("digest", String, nullable=False),
    Column("created", BYTEWISE, nullable=False),
    Column("framework", String, nullable=False),
    Column("task", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("parent", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Index("versions_digest", "digest", "model", "number"),
    Index("versions_created", "created"),
    Index("versions_framework", "model", "framework", "number"),
    Index("versions_parent", "parent", "model", "number"),
)

VARIANTS = Table(
    "variants",
    METADATA,
    Column("id", BYTEWISE, primary_key=True),
    Column("model", BYTEWISE, nullable=False),
    Column("number", Integer, nullable=False),
    Column("recipe", String, nullable=False),
    Column("state", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
    ForeignKeyConstraint(["model", "number"], ["versions.model", "versions.number"], ondelete="CASCADE"),
    UniqueConstraint("model", "number", "recipe", name="variants_once"),
    Index("variants_digest", "digest"),
)

ALIASES = Table(
    "aliases",
    METADATA,
    Column("model", BYTEWISE, ForeignKey("models.name", ondelete="CASCADE"), primary_key=True),
    Column("alias", String, primary_key=True),
    Column("number", Integer, nullable=False),
)

ALIAS_MOVES = Table(
    "alias_moves",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("model", BYTEWISE, ForeignKey("models.name", ondelete="CASCADE"), nullable=False),
    Column("alias", String, nullable=False),
    Column("before", Integer),
    Column("after", Integer),
    Column("at", BYTEWISE, nullable=False),
    Column("actor", Text, nullable=False),
    Index("alias_moves_model", "model", "alias", "id"),
)

POLICIES = Table(
    "policies",
    METADATA,
    Column("name", BYTEWISE, primary_key=True),
    Column("document", LargeBinary, nullable=False),
)

TARGETS = Table(
    "targets",
    METADATA,
    Column("id", BYTEWISE, primary_key=True),
    Column("name", Text, nullable=False),
    Column("device", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
)

WORKERS = Table(
    "workers",
    METADATA,
    Column("id", BYTEWISE, primary_key=True),
    Column("target", BYTEWISE, ForeignKey("targets.id", ondelete="CASCADE"), nullable=False),
    Column("seen", Float, nullable=False),  # by the clock of `clock.now`
    Column("boot", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
)

TASKS = Table(
    "tasks",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("model", BYTEWISE, nullable=False),
    Column("number", Integer, nullable=False),
    Column("recipe", String, nullable=False),
    Column("target", BYTEWISE, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("deferrals", Integer, nullable=False),
    Column("token", Integer, nullable=False),
    Column("worker", String, nullable=False),
    Column("until", Float, nullable=False),  # of the lease or deferral, by `clock.now`
    Column("boot", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("result", String, nullable=False),
    Column("created", BYTEWISE, nullable=False),
    Column("document", LargeBinary, nullable=False),
    ForeignKeyConstraint(["model", "number"], ["versions.model", "versions.number"], ondelete="CASCADE"),
    Index("tasks_order", "state", "priority", "id"),
    Index("tasks_version", "model", "number"),
)
_OPEN = TASKS.c.state.in_(("queued", "leased", "deferred"))
Index("tasks_once", TASKS.c.key, unique=True, sqlite_where=_OPEN)
"""Of open tasks only, in PostgreSQL as well: a revision makes it so, and naming that dialect imports it."""

FIGURES = Table(
    "figures",
    METADATA,
    Column("key", String, primary_key=True),
    Column("model", BYTEWISE, nullable=False),
    Column("number", Integer, nullable=False),
    Column("recipe", String, nullable=False),
    Column("target", BYTEWISE, nullable=False),
    Column("state", String, nullable=False),
    Column("taken", BYTEWISE, nullable=False),
    Column("result", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
    ForeignKeyConstraint(["model", "number"], ["versions.model", "versions.number"], ondelete="CASCADE"),
    Index("figures_version", "model", "number"),
    Index("figures_target", "target", "state"),
)

ATTACHED = Table(
    "attached",
    METADATA,
    Column("model", BYTEWISE, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("document", BYTEWISE, primary_key=True),
    Column("kind", String, nullable=False),
    Column("host", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("batch_size", Integer, nullable=False),
    ForeignKeyConstraint(["model", "number"], ["versions.model", "versions.number"], ondelete="CASCADE"),
    Index("attached_document", "document"),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("at", BYTEWISE, nullable=False),
    Column("actor", Text, nullable=False),
    Column("kind", String, nullable=False),
    Column("model", BYTEWISE, nullable=False),  # of the subject, before the first slash
    Column("subject", BYTEWISE, nullable=False),
    Column("detail", Text, nullable=False),
    Column("before", String, nullable=False),
    Column("hash", String, nullable=False),
    Index("events_model", "model", "id"),
    Index("events_subject", "subject", "id"),
)

WEBHOOKS = Table(
    "webhooks",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("kinds", Text, nullable=False),
    Column("model", Text, nullable=False),
)

DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("webhook", Integer, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("event", Integer, ForeignKey("events.id", ondelete="CASCADE"), nullable=False),
    Column("state", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("token", Integer, nullable=False),
    Column("until", Float, nullable=False),  # of the lease, or of the pause before the next attempt
    Column("boot", String, nullable=False),
    Column("why", Text, nullable=False),
    Index("deliveries_due", "state", "until", "id"),
    Index("deliveries_webhook", "webhook"),
    Index("deliveries_event", "event"),
)
