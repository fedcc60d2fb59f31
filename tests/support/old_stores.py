"""Databases as an earlier ModelDyno has made them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from modeldyno.stores import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection


@contextmanager
def migrated_to(url: str, revision: str) -> Iterator[Connection]:
    """Yield a connection to a database that an older ModelDyno has made."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    config = Config()
    config.set_main_option("script_location", str(Path(sql.__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        yield connection
    engine.dispose()
