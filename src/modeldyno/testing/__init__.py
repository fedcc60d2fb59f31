"""For plugin authors: fakes, models with known behaviour, and the test suites every plugin must pass."""

from __future__ import annotations
