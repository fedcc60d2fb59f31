"""What ``modeldyno comment`` does."""

from __future__ import annotations

import os
from pathlib import Path

import click

from modeldyno.base import codec
from modeldyno.comparison import pr_comment


def run(file: str) -> None:
    """Post a file as a comment."""
    text = codec.read_document_bytes(Path(file)).decode("utf-8", "replace")
    click.echo(f"modeldyno {pr_comment.post_comment(text, pr_comment.CommentThread.of(os.environ))}.")
