"""Run by Alembic: migrate over the connection, and in the transaction, that the store hands over."""

from __future__ import annotations

from alembic import context

from modeldyno.stores.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
context.run_migrations()
