"""Reporters: write a Result in a format for people or programs; one module per format.

A reporter has a `suffix` and a `render`; most only format the blocks that the
kind of a document lays out.
"""

from __future__ import annotations
