"""The tables of a store at the newest revision; `migrations` has the steps that lead to it."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

REVISION = "0003"
"""The newest revision; later ones compare greater."""
VERSION_TABLE = "modeldyno_revision"
KEY_LENGTH = 200
"""Characters of a name that are indexed: PostgreSQL's index entries must stay below 10 kB."""

METADATA = MetaData()
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
