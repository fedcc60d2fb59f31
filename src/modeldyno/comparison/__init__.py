"""Use case: is one better than the other? compare, gate, check, doctor, advise, trend."""

from __future__ import annotations
