"""Use case: measure a server under a series of loads."""

from __future__ import annotations
