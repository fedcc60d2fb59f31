"""The converter passes its suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from modeldyno.plugin import ModelRef
from modeldyno.testing.converters import ConverterSuite


class TestConverter(ConverterSuite):
    recipe = "linear"

    @pytest.fixture
    def source(self, tmp_path: Path) -> ModelRef:
        pytest.importorskip("torch")
        file = tmp_path / "net.py"
        file.write_text(
            "import torch\n\n\ndef make():\n"
            "    torch.manual_seed(0)\n"
            "    return torch.nn.Linear(4, 2).eval(), torch.ones(2, 4)\n"
        )
        return ModelRef(scheme="torch", locator=f"{file}:make")
