"""What all tests share: golden files, and no memory of another machine's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"
settings.register_profile("unhurried", settings(), deadline=None)  # a busy machine is no mistake
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a reader accept what reports look like now."""
    parser.addoption(
        "--overwrite-golden", action="store_true", help="write golden files anew; look at the diff"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Give a function that compares text with a golden file, or writes the file anew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--overwrite-golden"):
            path.write_bytes(text.encode())
        assert path.read_bytes().decode() == text, f"if {name} should look so now: pytest --overwrite-golden"

    return check
