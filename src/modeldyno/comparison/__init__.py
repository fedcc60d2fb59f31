"""Use case: compare models or results: compare, gate, check, doctor, advise, trend."""

from __future__ import annotations
