"""Names to implementations, by entry point; resolving a name imports only that plugin.

`importlib.metadata` is imported when a plugin is first asked for: it alone would cost more than the
whole start-up of the command line.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from modeldyno.core.metrics.metric import METRICS
from modeldyno.errors import MissingExtra, ModelDynoError, RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from modeldyno import interfaces
    from modeldyno.core.metrics.metric import Metric
    from modeldyno.core.spec.knob import Knob
    from modeldyno.core.static.flops import Formula

KINDS = (
    "loader",
    "backend",
    "client",
    "probe",
    "sampler",
    "store",
    "reporter",
    "strategy",
    "importer",
    "exporter",
)

STORE_VARIABLE = "MODELDYNO_STORE"

PACKAGES: dict[str, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime"),
    "onnxruntime": ("onnx", "onnxruntime"),
    "psycopg": ("psycopg[binary]",),
    "mlflow": ("mlflow-skinny",),
    "pynvml": ("nvidia-ml-py",),
}
"""Importable name to the packages to install, where these are called otherwise or one is of little use alone.

They are named, and not an extra of ModelDyno, so that the command works in any environment.
"""


def names(kind: str) -> tuple[str, ...]:
    """List the plugins of a kind, sorted."""
    return tuple(sorted(_entries(kind)))


def resolve(kind: str, name: str) -> Any:
    """Import a plugin.

    Raises:
        UnknownName: no plugin of this kind has this name.
        MissingExtra: its own import failed for want of a package, or of a part of its own.
    """
    entries = _entries(kind)
    if name not in entries:
        raise UnknownName.among(kind, name, entries)
    entry = entries[name]
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        lacking, owner = error.name or name, entry.module.partition(".")[0]
        if lacking.partition(".")[0] != owner:
            raise MissingExtra(missing((lacking,), f"{kind} '{name}'")) from error
        raise MissingExtra(
            f"The {kind} '{name}' is registered, but {lacking} is not there: {owner} has changed since it "
            "was installed; install it anew."
        ) from error


def describe(kind: str, name: str) -> str:
    """Give the first sentence of what a plugin's module says of itself.

    Raises:
        UnknownName: no plugin of this kind has this name.
        MissingExtra: it cannot be imported.
    """
    found = resolve(kind, name)
    module = found if isinstance(found, ModuleType) else sys.modules[_entries(kind)[name].module]
    sentence = (module.__doc__ or "").strip().partition("\n")[0].replace("`", "")
    for lead in (f"The {kind} {name}: ", f"{name}: "):
        if sentence.startswith(lead):
            said = sentence.removeprefix(lead)
            return said[:1].upper() + said[1:]
    return sentence


def require(modules: Iterable[str], wanted_by: str) -> None:
    """Check, without importing them, that optional packages are installed.

    Raises:
        MissingExtra: one is not.
    """
    absent = tuple(module for module in modules if find_spec(module) is None)
    if absent:
        raise MissingExtra(missing(absent, wanted_by))


def missing(modules: tuple[str, ...], wanted_by: str) -> str:
    """Say in one sentence what to install."""
    return f"The {wanted_by} needs {', '.join(modules)}; install it with: {install_command(modules)}"


def install_command(modules: Iterable[str]) -> str:
    """Write the command that installs what is imported by these names."""
    packages = (package for module in modules for package in PACKAGES.get(module, (module,)))
    return f"pip install {shlex.join(dict.fromkeys(packages))}"


def loader(name: str) -> interfaces.Loader:
    """Give a loader by its scheme."""
    return cast("interfaces.Loader", resolve("loader", name))


def backend(name: str) -> interfaces.Backend:
    """Give a backend by its name."""
    return cast("interfaces.Backend", resolve("backend", name))


def knobs(name: str) -> tuple[Knob, ...]:
    """Give what can be set on a backend; nothing of one that is not here, such as that of another machine."""
    with suppress(ModelDynoError):
        return backend(name).knobs
    return ()


def client(name: str) -> interfaces.Client:
    """Give the client of a protocol by its name."""
    return cast("interfaces.Client", resolve("client", name))


def probe(name: str) -> interfaces.Probe:
    """Give a probe by its name."""
    return cast("interfaces.Probe", resolve("probe", name))


def sampler(name: str) -> interfaces.Sampler:
    """Give a sampler by its name."""
    return cast("interfaces.Sampler", resolve("sampler", name))


def strategy(name: str) -> interfaces.Strategy:
    """Give a strategy by its name."""
    return cast("interfaces.Strategy", resolve("strategy", name))


def reporter(name: str) -> interfaces.Reporter:
    """Give a reporter by its name."""
    return cast("interfaces.Reporter", resolve("reporter", name))


def reporter_for(path: Path) -> interfaces.Reporter:
    """Give the reporter that writes files with the suffix of `path`.

    Raises:
        RequestError: none does.
    """
    formats = {reporter(name).suffix: name for name in names("reporter") if name != "terminal"}
    if path.suffix not in formats:
        raise RequestError(f"No reporter writes '{path.name}'; use one of {', '.join(sorted(formats))}.")
    return reporter(formats[path.suffix])


def exporter(name: str) -> interfaces.Exporter:
    """Give an exporter by the name of its tool."""
    return cast("interfaces.Exporter", resolve("exporter", name))


def importer(name: str) -> interfaces.Importer:
    """Give an importer by the name of its tool."""
    return cast("interfaces.Importer", resolve("importer", name))


def formulas() -> dict[str, Formula]:
    """Gather what plugins know of operators: each entry point of ``modeldyno.formulas`` is a mapping."""
    return {kind: formula for name in names("formula") for kind, formula in resolve("formula", name).items()}


def metrics() -> dict[str, Metric]:
    """Gather the metrics that plugins bring: each entry point of ``modeldyno.metrics`` is a mapping."""
    return {metric: row for name in names("metric") for metric, row in resolve("metric", name).items()}


METRICS.complete_from(metrics)


def store(url: str | None = None) -> interfaces.Store:
    """Open the store that `url`, or else MODELDYNO_STORE, names; by default a file of SQLite.

    Raises:
        RequestError: it is no URL.
        UnknownName: no plugin opens such URLs.
        StoreError: it cannot be opened.
    """
    address = url or os.environ.get(STORE_VARIABLE)
    scheme = address.partition(":")[0].partition("+")[0] if address else "sqlite"
    if address and "://" not in address and scheme not in names("store"):
        raise RequestError(
            f"The store '{address}' is no URL; for a file, write {STORE_VARIABLE}=sqlite:///{address}"
        )
    plugin = resolve("store", scheme)
    return cast("interfaces.Store", plugin.open(address or plugin.default_url()))


@lru_cache(maxsize=len(KINDS) + 2)
def _entries(kind: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - dear at start-up

    group = f"modeldyno.{plural(kind)}"
    return {entry.name: entry for entry in entry_points(group=group)}


def plural(kind: str) -> str:
    """Name several plugins of a kind."""
    return _PLURALS.get(kind, f"{kind}s")


_PLURALS = {"strategy": "strategies"}
