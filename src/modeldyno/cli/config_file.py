"""Defaults of the command line: built in < ``modeldyno.toml`` < environment < flag.

This module only reads the file; click tracks the source of each value. Tables of the file are commands, keys
are their options: ``[profile]``, ``max-time = "10s"``, ``set = ["threads=2"]``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

FILE = "modeldyno.toml"


def read_defaults(
    command: str | None,
    options: Mapping[str, str | None],
    lists: Collection[str | None],
    commands: Sequence[str],
) -> dict[str, Any]:
    """Read a command's table from ``modeldyno.toml`` in this directory or its nearest parent that has one.

    Allowed are the tables of the `commands`, and as keys the `options`, each with the parameter that it sets;
    those among `lists` take several values.

    Raises:
        UnknownName: a table or a key is unknown.
        RequestError: the file cannot be read, or has a key outside a table, a number such as NaN, or several
            values where one is taken.
    """
    folders = (Path.cwd(), *Path.cwd().parents)
    path = next((folder / FILE for folder in folders if (folder / FILE).is_file()), None)
    if path is None:
        return {}
    import tomllib  # slow at start-up, and often there is no file

    from modeldyno.base.codec.numbers import check_numbers  # as above

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RequestError(f"Cannot read {path}: {error}.") from error
    check_numbers(tables, f"file {path}")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise RequestError(
                f"{path}: '{name}' is outside a table; move it under [profile] or another command."
            )
        if name not in commands:
            raise UnknownName.among(f"command, in {path},", name, commands)
    table = {key.replace("-", "_"): value for key, value in tables.get(command or "", {}).items()}
    defaults: dict[str, Any] = {}
    for key, value in table.items():
        if key not in options:
            raise UnknownName.among(f"option of [{command}], in {path},", key, options)
        several = options[key] in lists
        if isinstance(value, dict) or (isinstance(value, list) and not several):
            given = "a table" if isinstance(value, dict) else "a list"
            takes = "values in a list" if several else "one value"
            raise RequestError(f"{path}: '{key}' of [{command}] takes {takes}, not {given}.")
        defaults[str(options[key])] = [value] if several and not isinstance(value, list) else value
    return defaults
