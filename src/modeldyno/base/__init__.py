"""What everything is built on: values, statistics, metrics, results, documents, plugins."""

from __future__ import annotations
