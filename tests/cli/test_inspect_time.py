"""``inspect`` keeps to its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno import inspect
from modeldyno.base.errors import OutOfTime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import CommandResult


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """Name a model whose loading takes a minute."""
    path = tmp_path / "slow.py"
    path.write_text("import time\ntime.sleep(60)\n\ndef f(x):\n    return x\n")
    return f"call:{path}:f"


def test_an_analysis_ends_at_its_limit(slow: str, modeldyno: Callable[..., CommandResult]) -> None:
    """With exit code 4, and a sentence that says what took long, and which option allows more."""
    result = modeldyno("inspect", slow, "--max-time", "3s")
    assert result.code == OutOfTime.exit_code
    assert "Nothing could be measured within 3 s" in result.err
    assert "the stage 'load' had begun" in result.err
    assert "--max-time" in result.err


@pytest.mark.slow
def test_in_python_too(slow: str) -> None:
    """As an error."""
    with pytest.raises(OutOfTime, match=r"the stage 'load' had begun.*max_time"):
        inspect(slow, max_time=3.0, progress=False, store=False)
