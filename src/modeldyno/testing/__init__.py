"""For plugin authors: fakes, models of known truth, and the suites that every plugin must pass."""

from __future__ import annotations
