"""Whether the files of a folder are in it: a link would give away the content of any file of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def check_inside(files: Iterable[Path], root: Path, advice: str) -> None:
    """Check that files lie in their folder, wherever links lead.

    The cache of Hugging Face is one folder: its ``snapshots/REVISION`` hold links to its ``blobs``.

    Args:
        files: all below `root`.
        root: the folder that is copied.
        advice: what to do instead, as the end of a sentence.

    Raises:
        RequestError: one is a link that leads elsewhere, or leads nowhere.
    """
    folder = root.resolve()
    allowed = [folder]
    if folder.parent.name == "snapshots":
        allowed.append(folder.parent.parent / "blobs")
    for file in files:
        target = file.resolve()
        if not any(target.is_relative_to(place) for place in allowed):
            raise RequestError(f"{file} is a link that leads out of its folder, to {target}; {advice}.")
