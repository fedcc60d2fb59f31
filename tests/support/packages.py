"""Which optional packages are installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def skip_module_without(package: str) -> None:
    """Skip the test module where a package is missing; only the tests that use the package import it."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
