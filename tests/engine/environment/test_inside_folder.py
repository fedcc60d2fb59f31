"""Links that lead out of a folder, in each form that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.system.inside_folder import check_inside

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder of a model beside a secret."""
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "model" / "weights").mkdir(parents=True)
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


def files(folder: Path) -> list[Path]:
    """Return what a registration copies."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


@pytest.mark.parametrize("target", ["{root}/secret", "../../secret", "/etc/passwd", "up/secret", "/dev/null"])
def test_a_link_that_leads_out_is_refused(folder: Path, target: str) -> None:
    """Absolute, relative, by another link, and to what is no regular file."""
    (folder / "weights" / "up").symlink_to(folder.parent)
    link = folder / "weights" / "model.bin"
    link.symlink_to(target.format(root=folder.parent))

    with pytest.raises(RequestError, match=r"bin is a link that leads out of its folder, to /.*; copy"):
        check_inside([link], folder, "copy it")


def test_a_link_within_the_folder_is_fine(folder: Path) -> None:
    """Also where the folder itself is a link."""
    (folder / "weights" / "again.json").symlink_to("../config.json")
    named = folder.parent / "current"
    named.symlink_to(folder)

    check_inside(files(folder), folder, "copy it")
    check_inside([named / "weights" / "again.json"], named, "copy it")


def test_the_cache_of_hugging_face_is_one_folder(tmp_path: Path) -> None:
    """Its snapshots hold links to its blobs, and to nothing else of it."""
    cache = tmp_path / "models--org--net"
    snapshot = cache / "snapshots" / "abc"
    (snapshot / "sub").mkdir(parents=True)
    (cache / "blobs").mkdir()
    (cache / "blobs" / "b1").write_text("weights")
    (cache / "refs").write_text("x")
    (snapshot / "model.safetensors").symlink_to("../../blobs/b1")
    (snapshot / "sub" / "other").symlink_to("../../../blobs/b1")
    check_inside(files(snapshot), snapshot, "copy it")

    for target in ("../../refs", "../../blobs/../../secret", "../other/b1"):
        link = snapshot / "bad"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with pytest.raises(RequestError, match="leads out of its folder"):
            check_inside([link], snapshot, "copy it")
