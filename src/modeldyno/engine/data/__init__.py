"""Payloads: model inputs, random or real."""

from __future__ import annotations
