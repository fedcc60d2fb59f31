"""The store passes its suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dyno_plugins import store

from modeldyno.plugin import Store
from modeldyno.testing.stores import StoreSuite


class TestStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        (tmp_path / "pyproject.toml").touch()
        with store.open(f"project://{tmp_path}") as opened:
            yield opened
