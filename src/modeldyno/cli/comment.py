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
    """Put FILE, as --markdown of check and profile writes it, on the pull or merge request of this pipeline.

    The comment of an earlier run is replaced. GITHUB_TOKEN or GITLAB_TOKEN says whose comment it is; give it
    to this step alone, as no model runs in it.
    """
    text = codec.content(Path(file)).decode("utf-8", "replace")
    click.echo(f"modeldyno {pr_comment.comment(text, pr_comment.Thread.of(os.environ))}.")
