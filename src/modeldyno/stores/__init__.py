"""Stores keep Results, Studies and Conclusions."""

from __future__ import annotations
