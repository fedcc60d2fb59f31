"""Everything that meets the world outside: one plugin a file, one package a kind; no kind knows another."""

from __future__ import annotations
