"""Models behind servers: start them, load them, explain their latency, find the largest load."""

from __future__ import annotations
