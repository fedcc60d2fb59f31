"""Public names of a package, imported on first use: what nobody asks for costs no time at start-up."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: module of `modeldyno` to the names that are taken from it, separated by blanks;
            ``list=list_models`` gives ``list_models`` the name ``list``.
    """
    places = {
        public: (module, name or public)
        for module, names in homes.items()
        for public, _, name in (text.partition("=") for text in names.split())
    }

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module, own = places[name]
        return getattr(import_module(f"modeldyno.{module}"), own)

    names = sorted(places)
    return names, get, lambda: [*names]
