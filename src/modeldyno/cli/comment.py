"""``modeldyno comment``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from modeldyno import codec
from modeldyno.comparison import pr_comment


@click.command(name="comment")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
def command(file: str) -> None:
    """Post FILE, written by --markdown of check or profile, on the pull or merge request of this pipeline.

    It replaces the comment of an earlier run. It needs GITHUB_TOKEN or GITLAB_TOKEN; give the token to this
    step only, which runs no model.
    """
    text = codec.read_document_bytes(Path(file)).decode("utf-8", "replace")
    click.echo(f"modeldyno {pr_comment.post_comment(text, pr_comment.CommentThread.of(os.environ))}.")
