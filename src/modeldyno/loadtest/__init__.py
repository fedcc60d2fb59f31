"""Use case: what a server does under load."""

from __future__ import annotations
