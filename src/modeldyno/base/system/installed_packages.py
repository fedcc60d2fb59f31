"""What can be imported here, as far as a folder tells without importing it."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGES = frozenset({"site-packages", "dist-packages"})
_DESCRIPTIONS = (".dist-info", ".egg-info", ".egg-link", ".pth")
_CODE = (".py", ".pyc", ".so")


def installed_folders() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages."""
    own = [
        path
        for name, path in sysconfig.get_paths().items()
        if name in {"stdlib", "platstdlib", "purelib", "platlib"}
    ]
    others = [path for path in sys.path if Path(path).name in _PACKAGES]
    return tuple(dict.fromkeys(str(Path(path).resolve()) for path in (*own, *others)))


def describe_importable() -> Iterator[str]:
    """Yield the version of Python, and what each folder of `sys.path` has, in order.

    Of installed packages these are names with versions, and when each was installed; of other folders the
    names that can be imported, so that a new file that hides a package is seen.
    """
    yield sys.version
    installed = installed_folders()
    for path in map(Path, sys.path):
        if not path.is_dir():
            continue
        folder = path.resolve()
        yield str(folder)
        for entry in sorted(folder.iterdir()):
            if str(folder) in installed:
                if entry.name.endswith(_DESCRIPTIONS):
                    yield f"{entry.name} {entry.stat().st_mtime_ns}"
            elif entry.name.endswith(_CODE) or (entry.name.isidentifier() and _has_code(entry)):
                yield entry.name


def _has_code(folder: Path) -> bool:
    return folder.is_dir() and any(file.name.endswith(_CODE) for file in folder.iterdir())
