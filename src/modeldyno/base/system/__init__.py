"""Processes, time limits, environment variables and folders of the operating system."""

from __future__ import annotations
