"""Options of ``docker run`` and ``podman run`` that users add to those with which a server is started."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "container."
HOST = "host"
"""The network that a container shares with its machine."""
_OURS = frozenset(
    {"name", "rm", "init", "publish", "publish-all", "detach", "interactive", "tty", "entrypoint"}
)
"""Options with which a container is found, reached and ended."""
_PAIRS = ("env", "label")
"""Options whose values are ``NAME=VALUE``; the name may follow the option: ``container.env.NAME=VALUE``."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")


def container_options(config: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return the options below ``container.`` by docker's names, each with all of its values.

    A JSON list is several values.

    Raises:
        RequestError: an option is one that ModelDyno sets itself, or none at all.
    """
    options: dict[str, tuple[str, ...]] = {}
    for knob, value in config.items():
        if not knob.startswith(PREFIX):
            continue
        name, _, key = knob.removeprefix(PREFIX).partition(".")
        name = name.replace("_", "-")
        if name in _OURS:
            raise RequestError(f"ModelDyno sets --{name} of the container itself; leave out {knob}.")
        if not _NAME.fullmatch(name) or (key and name not in _PAIRS):
            raise RequestError(
                f"{knob} is no option of a container; write container.shm_size=2g, container.env.NAME=VALUE "
                "or another long option of docker run."
            )
        values = _values(value)
        options[name] = (*options.get(name, ()), *(f"{key}={text}" if key else text for text in values))
    return options


def option_words(options: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the words of a command line."""
    return [f"--{name}={value}" for name, values in options.items() for value in values]


def _values(value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (str(value).lower(),)
    text = str(value)
    if text.lstrip().startswith("["):
        try:
            return tuple(map(str, json.loads(text)))
        except ValueError:
            pass
    return (text,)
