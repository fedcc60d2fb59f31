"""Documents from and for others: import, export, reconcile, verify, job files."""

from __future__ import annotations
