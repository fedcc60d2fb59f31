"""``modeldyno comment``."""

from __future__ import annotations

import click

from modeldyno.cli import actions


@click.command(name="comment")
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
def command(file: str) -> None:
    """Post FILE, written by --markdown of check or profile, on the pull or merge request of this pipeline.

    It replaces the comment of an earlier run. It needs GITHUB_TOKEN or GITLAB_TOKEN; give the token to this
    step only, which runs no model.
    """
    actions.comment.run(file)
