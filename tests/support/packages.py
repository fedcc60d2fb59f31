"""Which optional packages are installed, and packages that are built and installed for a test."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def skip_module_without(package: str) -> None:
    """Skip the test module where a package is missing; only the tests that use the package import it."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)


def built_wheel(folder: Path, source: Path = ROOT, name: str = "modeldyno") -> Path:
    """Build the wheel of a package, install it into a folder of its own, and return that."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    wheels, site = folder / "wheels", folder / "site"
    for words in (
        ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source),
        ("install", "--no-deps", "--no-index", "--find-links", wheels, "--target", site, name),
    ):
        done = subprocess.run((*pip, *map(str, words)), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return site
