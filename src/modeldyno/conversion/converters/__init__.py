"""Converters, one a file: they write a model in another form, and judge nothing."""

from __future__ import annotations
