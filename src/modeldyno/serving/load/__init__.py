"""A load on a server: requests, their log, curves of latency, capacity, cost."""

from __future__ import annotations
