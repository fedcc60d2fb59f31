"""Defaults of the command line: built in < ``modeldyno.toml`` < environment < flag.

click keeps the source of each value; this module only reads the file. Its tables are commands, its
keys are their options: ``[profile]``, ``max-time = "10s"``, ``set = ["threads=2"]``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = "modeldyno.toml"


def defaults(
    command: str | None,
    options: Mapping[str, str | None],
    commands: Sequence[str],
    directory: Path | None = None,
) -> dict[str, Any]:
    """Read the table of a command in ``modeldyno.toml`` of the directory, or the nearest above it.

    Args:
        command: whose table.
        options: what may stand in it, each with the parameter that it sets.
        commands: what tables there may be.
        directory: where to begin; the current one by default.

    Raises:
        UnknownName: a table or a key means nothing.
        RequestError: the file cannot be read, or is not TOML of tables.
    """
    path = _nearest(directory or Path.cwd())
    if path is None:
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"Cannot read {path}: {error}.") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise RequestError(
                f"{path}: '{name}' stands outside a table; write it under [profile] or another command."
            )
        if name not in commands:
            raise UnknownName.among(f"command, in {path},", name, commands)
    found = {key.replace("-", "_"): value for key, value in tables.get(command or "", {}).items()}
    for key in found:
        if key not in options:
            raise UnknownName.among(f"option of [{command}], in {path},", key, options)
    return {str(options[key]): value for key, value in found.items()}


def _nearest(directory: Path) -> Path | None:
    for folder in (directory, *directory.parents):
        path = folder / FILE
        if path.is_file():
            return path
    return None
