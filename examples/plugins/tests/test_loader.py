"""The loader passes its suite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modeldyno.plugin import ModelRef
from modeldyno.testing.loaders import LoaderSuite


def save(path: Path, *, factor: float = 1.0) -> ModelRef:
    """Write a layer of four inputs and two outputs."""
    weights = [[factor, 2.0, 3.0, 4.0], [0.5, 0.0, -1.0, 1.0]]
    path.write_text(json.dumps({"linear": {"weights": weights, "bias": [1.0, -1.0]}}), encoding="utf-8")
    return ModelRef(scheme="linear", locator=str(path))


class TestLoader(LoaderSuite):
    scheme = "linear"

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        return save(tmp_path / "m.linear")

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        return save(tmp_path / "o.linear", factor=7.0)

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        path = tmp_path / "d.linear"
        ref = save(path)
        path.write_bytes(path.read_bytes()[:-9])
        return ref

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path:
        return Path(save(tmp_path / "c.linear").locator)
