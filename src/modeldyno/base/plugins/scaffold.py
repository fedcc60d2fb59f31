"""A new package of plugins: the files of ``examples/plugins`` for some kinds, under another name."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.plugins import names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

EXAMPLE = Path(__file__).with_name("example")
"""The package ``examples/plugins`` of the repository: a plugin of each kind, with its tests."""
_SETTINGS = "pyproject.toml"
_DISTRIBUTION, _IMPORTED = "dyno-plugins", "dyno_plugins"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_METRICS = "modeldyno.metrics"
_COMPANIONS = {"converter": "loader"}
"""Kind to another that it is of no use without: what a converter writes must be read."""


def write_package(name: str, kinds: Collection[str], folder: Path) -> tuple[Path, ...]:
    """Write a package whose plugins work and pass their conformance suites, for its author to change.

    Args:
        name: of the package, of its plugins and of what they measure, such as ``my-probe``.
        kinds: of its plugins, such as ``probe``; a converter brings a loader of what it writes.
        folder: a new one.

    Returns:
        The files that were written.

    Raises:
        RequestError: the name cannot be that of a package, or is taken; or the folder exists.
    """
    chosen = {*kinds} | {_COMPANIONS[kind] for kind in kinds if kind in _COMPANIONS}
    _check(name, chosen)
    if folder.exists():
        raise RequestError(f"'{folder}' exists; give another folder, or remove it.")
    settings = (EXAMPLE / _SETTINGS).read_text(encoding="utf-8")
    plugins = _plugins(settings)
    texts = {
        EXAMPLE / _SETTINGS: _rename(_select(settings, chosen), [plugins[kind] for kind in chosen], name)
    }
    for path in sorted(path for room in ("src", "tests") for path in (EXAMPLE / room).rglob("*.*")):
        kind = path.stem.removeprefix("test_")
        if kind in chosen or path.name == "__init__.py":
            used = [plugins[kind]] if kind in chosen else []
            texts[path] = _rename(path.read_text(encoding="utf-8"), used, name)
    return tuple(
        _write(folder / str(path.relative_to(EXAMPLE)).replace(_IMPORTED, name.replace("-", "_")), text)
        for path, text in texts.items()
    )


def _check(name: str, kinds: set[str]) -> None:
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or iskeyword(module):
        raise RequestError(
            f"'{name}' cannot name a package; use small letters, digits and dashes, such as my-probe."
        )
    if find_spec(module) is not None:
        raise RequestError(f"There is a module '{module}' here; give the package another name.")
    if kind := next((kind for kind in sorted(kinds) if name in names(kind)), None):
        raise RequestError(f"There is a {kind} '{name}'; give the package another name.")
    if module in METRICS and kinds & {"probe", "sampler"}:
        raise RequestError(f"There is a metric '{module}'; give the package another name.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    """A plugin of the example."""

    kind: str
    name: str
    class_name: str

    def renamed_class(self, name: str) -> str:
        """Return what its class is called in a package of another name."""
        words = "".join(word.capitalize() for word in name.split("-"))
        kind = self.kind.capitalize()
        return words if words.endswith(kind) else words + kind


def _plugins(settings: str) -> Mapping[str, _Plugin]:
    """Kind to the example's plugin of it."""
    groups = tomllib.loads(settings)["project"]["entry-points"]
    plugins = (
        _Plugin(kind=module.rpartition(".")[2], name=name, class_name=class_name)
        for title, group in groups.items()
        if title != _METRICS
        for name, (module, _, class_name) in ((name, text.partition(":")) for name, text in group.items())
    )
    return {plugin.kind: plugin for plugin in plugins}


def _select(settings: str, kinds: Collection[str]) -> str:
    """Leave out the entry points of other kinds, and the groups that have none then."""
    lines = [
        line
        for line in settings.splitlines()
        if not (entry := re.fullmatch(rf'\S+ = "{_IMPORTED}\.(\w+)(:\w+)?"', line)) or entry[1] in kinds
    ]
    return re.sub(r"\[project\.entry-points\S+\n(\n|$)", "", "\n".join(lines) + "\n")


def _rename(text: str, plugins: Collection[_Plugin], name: str) -> str:
    """Give a package, its plugins and their metrics another name; a plugin's is quoted, or begins a line."""
    for plugin in plugins:
        text = re.sub(rf"\b{plugin.class_name}\b", plugin.renamed_class(name), text)
        for old, new in ((plugin.name, name), (plugin.name.replace("-", "_"), name.replace("-", "_"))):
            text = re.sub(
                rf"""(?<=["`]){old}(?=["`:])|^{old}(?= = "{_IMPORTED})""", new, text, flags=re.MULTILINE
            )
    return text.replace(_DISTRIBUTION, name).replace(_IMPORTED, name.replace("-", "_"))


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
