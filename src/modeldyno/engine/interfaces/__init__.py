"""What backends, sessions, probes, samplers and executors offer."""

from __future__ import annotations
