"""What clients of servers offer."""

from __future__ import annotations
