"""Payloads: what a model is fed with, random or real."""

from __future__ import annotations

from modeldyno.feeds.payload import Payload, build, shapes

__all__ = ["Payload", "build", "shapes"]
