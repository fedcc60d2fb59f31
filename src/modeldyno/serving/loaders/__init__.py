"""Models that are on a server, or in a server's repository."""

from __future__ import annotations
