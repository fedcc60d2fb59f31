"""Resolves plugin names to implementations by entry points; only the resolved plugin is imported.

Anybody can install a plugin, so each is compared with the base of its kind when it is resolved. One that
a user names and that is faulty is an error with its name and that of its package; where all plugins of a kind
are asked, such as which loader reads a file, it is left out with a warning. Those of ModelDyno are asked
first, so that another package changes nothing that works without it.

`importlib.metadata` is imported on first use, as its import takes longer than the rest of the command line's
start-up.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from modeldyno.base.errors import (
    FaultyPlugin,
    FaultyPluginWarning,
    MissingExtra,
    ModelDynoError,
    RequestError,
    UnknownName,
)
from modeldyno.base.job.knob import Knob
from modeldyno.base.metrics.metric import METRICS
from modeldyno.base.plugins.contract import complete, instance, what_is_wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.metadata import EntryPoint, EntryPoints, SelectableGroups

    from modeldyno.base.metrics.metric import MetricRow
    from modeldyno.conversion.interface import Converter
    from modeldyno.engine.interfaces.backend import Backend
    from modeldyno.engine.interfaces.probe import Probe
    from modeldyno.engine.interfaces.sampler import Sampler
    from modeldyno.exchange.interface import Exporter, Importer
    from modeldyno.models.flops import Formula
    from modeldyno.models.interface import Loader, OffersObjects
    from modeldyno.reports.interface import DrawsInTerminal, Reporter, WritesHtml
    from modeldyno.serving.interfaces.client import Client
    from modeldyno.stores.interface import Store
    from modeldyno.sweeps.interface import Strategy

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
    "converter",
)

_BESIDE = ("metric", "formula", "document")
"""What packages may bring besides plugins: tables of metrics and formulas, and kinds of documents."""
_OWN = "modeldyno"
_LONGEST = 200
"""Characters of another's error that are shown."""
Answer = TypeVar("Answer")

STORE_VARIABLE = "MODELDYNO_STORE"

PACKAGES: dict[str, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime"),
    "onnxruntime": ("onnx", "onnxruntime"),
    "psycopg": ("psycopg[binary]",),
    "mlflow": ("mlflow-skinny",),
    "pynvml": ("nvidia-ml-py",),
    "python_multipart": ("python-multipart",),
    "sklearn": ("scikit-learn",),
    "ai_edge_litert": ("ai-edge-litert",),
    "cuda": ("cuda-bindings",),
    "tensorrt_rtx": ("tensorrt-rtx",),
    "hummingbird.ml": ("hummingbird-ml",),
    "onnxconverter_common": ("onnxconverter-common",),
}
"""Importable name to the packages to install, if they have other names or need further packages.

Messages name these packages, not an extra of ModelDyno, so that the command works in any environment.
"""


def names(kind: str) -> tuple[str, ...]:
    """List the plugins of a kind, sorted."""
    return tuple(sorted(_entry_points(kind)))


def answers(kind: str, question: Callable[[Any], Answer]) -> Iterator[tuple[str, Answer]]:
    """Ask every plugin of a kind in turn, those of ModelDyno first, and yield its name and its answer.

    One of another package that is faulty, lacks a package, or raises an error is left out with a warning; an
    error about the request is raised.
    """
    for name in sorted(names(kind), key=lambda name: not is_own(kind, name)):
        try:
            answer = question(resolve(kind, name))
        except Exception as error:
            if isinstance(error, RequestError) or is_own(kind, name):
                raise
            leave_out(kind, name, error)
        else:
            yield name, answer


def usable(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the plugin of every one of a kind that is not left out, those of ModelDyno first."""
    return answers(kind, lambda plugin: plugin)


def left_out(*kinds: str) -> tuple[str, ...]:
    """Return what is wrong with the plugins of these kinds that this process has left out so far."""
    return tuple(text for (kind, _), text in _left_out.items() if kind in kinds)


_left_out: dict[tuple[str, str], str] = {}


def leave_out(kind: str, name: str, error: Exception) -> None:
    """Warn that a plugin of another package is left out for an error, once in a process."""
    if (kind, name) not in _left_out:
        is_told = isinstance(error, FaultyPlugin | MissingExtra)
        problem = str(error if is_told else _faulty(kind, name, _failure(error)))
        _left_out[kind, name] = problem
        warnings.warn(f"{problem} It is left out.", FaultyPluginWarning, stacklevel=4)


def resolve(kind: str, name: str) -> Any:
    """Import a plugin; what it leaves out has the default of its kind.

    Raises:
        UnknownName: no plugin of this kind has this name.
        MissingExtra: its import failed, because a package or one of its own modules is missing.
        FaultyPlugin: it belongs to another package, and cannot be imported or is not as its kind must be.
    """
    entries = _entry_points(kind)
    if name not in entries:
        raise UnknownName.among(kind, name, entries)
    entry = entries[name]
    plugin = _import(kind, name, entry)
    if not _is_own(entry) and (wrong := what_is_wrong(kind, plugin)):
        raise _faulty(kind, name, wrong)
    return complete(kind, plugin)


def _import(kind: str, name: str, entry: EntryPoint) -> Any:
    try:
        return instance(kind, entry.load())
    except ModuleNotFoundError as error:
        missing_module, package = error.name or name, _package_name(entry.module)
        if _package_name(missing_module) != package:
            of = "" if _is_own(entry) else f" of {_package_of(entry)}"
            raise MissingExtra(missing_message((missing_module,), f"{kind} '{name}'{of}")) from error
        if missing_module == _OWN:
            raise MissingExtra(
                f"The {kind} '{name}' cannot be imported any more: code that ran here, such as the "
                "model's, has emptied sys.path or sys.modules; let it leave them as they are."
            ) from error
        raise MissingExtra(
            f"The {kind} '{name}' is registered, but {missing_module} is missing: {package} has changed "
            "since it was installed; reinstall it."
        ) from error
    except (Exception, SystemExit) as error:
        if _is_own(entry):
            raise
        raise _faulty(kind, name, f"importing it raises {_failure(error)}") from error


def _faulty(kind: str, name: str, wrong: str) -> FaultyPlugin:
    package = _package_of(_entry_points(kind)[name])
    return FaultyPlugin(
        f"The {kind} '{name}' of {package} is faulty: {wrong.rstrip('.')}; update {package.split()[0]}, or "
        "uninstall it."
    )


def _package_of(entry: EntryPoint) -> str:
    """Return the name and version of the package that a plugin is of."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else _package_name(entry.module)


def is_own(kind: str, name: str) -> bool:
    """Return whether a plugin is one of ModelDyno."""
    return _is_own(_entry_points(kind)[name])


def _is_own(entry: EntryPoint) -> bool:
    return _package_name(entry.module) == _OWN


def _package_name(module: str) -> str:
    return module.partition(".")[0]


def _failure(error: BaseException) -> str:
    """Describe an error that the code of a plugin raised, with the line."""
    frame = next(reversed(traceback.extract_tb(error.__traceback__)), None)
    where = f" ({'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno})" if frame else ""
    words = " ".join(str(error).split())[:_LONGEST].rstrip(".")
    return f"{type(error).__name__}: {words}".rstrip(": ") + where


def blame(error: BaseException) -> str:
    """Return a sentence about an error that a plugin of another package raised; empty if none did."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    foreign = [
        (kind, entry)
        for kind in (*KINDS, *_BESIDE)
        for entry in _entry_points(kind).values()
        if not _is_own(entry)
    ]
    for shorten in (str, _package_name):  # the plugin itself, or else one of the same package
        for module in reversed(modules):
            for kind, entry in foreign:
                if shorten(module) == shorten(entry.module):
                    return (
                        f"The {kind} '{entry.name}' of {_package_of(entry)} failed: {_failure(error)}; "
                        "report it to its authors."
                    )
    return ""


def describe(kind: str, name: str) -> str:
    """Return the first line of the docstring of a plugin's module.

    Raises:
        UnknownName: no plugin of this kind has this name.
        MissingExtra: it cannot be imported.
    """
    resolve(kind, name)
    module = sys.modules[_entry_points(kind)[name].module]
    sentence = (module.__doc__ or "").strip().partition("\n")[0].replace("`", "")
    for prefix in (f"The {kind} {name}: ", f"{name}: "):
        if sentence.startswith(prefix):
            summary = sentence.removeprefix(prefix)
            return summary[:1].upper() + summary[1:]
    return sentence


def require(modules: Iterable[str], wanted_by: str) -> None:
    """Check, without importing them, that optional packages are installed.

    Raises:
        MissingExtra: one is not installed.
    """
    if missing_modules := missing(modules):
        raise MissingExtra(missing_message(missing_modules, wanted_by))


def missing(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the optional packages that are not installed, importing none but a parent package."""
    return tuple(module for module in modules if not _is_installed(module))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


def missing_message(modules: tuple[str, ...], wanted_by: str) -> str:
    """Return a sentence that says what to install."""
    return f"The {wanted_by} needs {', '.join(modules)}; install it with: {install_command(modules)}"


def install_command(modules: Iterable[str]) -> str:
    """Return the command that installs the packages of these importable names."""
    packages = (package for module in modules for package in PACKAGES.get(module, (module,)))
    return f"pip install {shlex.join(dict.fromkeys(packages))}"


loader: Callable[[str], Loader] = partial(resolve, "loader")
"""Return a loader by its scheme."""
objects: Callable[[], OffersObjects] = partial(resolve, "loader", "object")
"""Return the loader of live objects."""
backend: Callable[[str], Backend] = partial(resolve, "backend")
"""Return a backend by its name."""
client: Callable[[str], Client] = partial(resolve, "client")
"""Return the client of a protocol by its name."""
probe: Callable[[str], Probe] = partial(resolve, "probe")
"""Return a probe by its name."""
sampler: Callable[[str], Sampler] = partial(resolve, "sampler")
"""Return a sampler by its name."""
strategy: Callable[[str], Strategy] = partial(resolve, "strategy")
"""Return a strategy by its name."""
reporter: Callable[[str], Reporter] = partial(resolve, "reporter")
"""Return a reporter by its name."""
terminal: Callable[[], DrawsInTerminal] = partial(resolve, "reporter", "terminal")
"""Return the reporter that draws in a terminal."""
html: Callable[[], WritesHtml] = partial(resolve, "reporter", "html")
"""Return the reporter that writes pages and fragments of HTML."""
exporter: Callable[[str], Exporter] = partial(resolve, "exporter")
"""Return an exporter by the name of its tool."""
converter: Callable[[str], Converter] = partial(resolve, "converter")
"""Return a converter by the name of its recipe."""
importer: Callable[[str], Importer] = partial(resolve, "importer")
"""Return an importer by the name of its tool."""


def knobs(name: str) -> tuple[Knob, ...]:
    """Return the knobs of a backend; none if it is not installed here."""
    with suppress(ModelDynoError):
        return backend(name).knobs
    return ()


def serves(name: str) -> bool:
    """Return whether a backend runs models in a server."""
    return backend(name).serves


def reporter_for(path: Path) -> Reporter:
    """Return the reporter that writes files with the suffix of `path`.

    Raises:
        RequestError: there is none.
    """
    others = []
    for name, plugin in usable("reporter"):
        if name != "terminal" and plugin.suffix == path.suffix:
            return cast("Reporter", plugin)
        others += [plugin.suffix] if name != "terminal" else []
    raise RequestError(f"No reporter writes '{path.name}'; use one of {', '.join(sorted(others))}.")


def check_reporter(path: Path) -> None:
    """Check before measuring that files with the suffix of `path` can be written here.

    Raises:
        RequestError: no reporter writes them.
        MissingExtra: what it writes them with is not installed.
    """
    reporter_for(path).check_tools()


def formulas() -> dict[str, Formula]:
    """Collect the FLOPs formulas of plugins: each entry point of ``modeldyno.formulas`` is a mapping."""
    return {kind: formula for _, table in usable("formula") for kind, formula in table.items()}


def metrics() -> dict[str, MetricRow]:
    """Collect the metrics of plugins: each entry point of ``modeldyno.metrics`` is a mapping."""
    rows: dict[str, MetricRow] = {}
    for name, table in usable("metric"):
        try:
            for metric, row in table.items():
                METRICS.check(metric, row)
        except RequestError as error:
            leave_out("metric", name, _faulty("metric", name, str(error)))
        else:
            rows |= table
    return rows


METRICS.complete_from(metrics)


def probes_of(queried: Iterable[str]) -> tuple[str, ...]:
    """Return the probes of other packages that declare to measure some of these metrics."""
    metrics_of_others = {row.name for row in METRICS.further(queried)}
    probes = usable("probe") if metrics_of_others else ()
    return tuple(name for name, probe in probes if metrics_of_others & {*probe.metrics})


def register_metric(row: MetricRow) -> None:
    """Add a metric of a script to the table, after those of the plugins.

    Raises:
        RequestError: its name is taken or invalid, or its unit is no base unit.
    """
    METRICS.register(row)


def store(url: str | None = None) -> Store:
    """Open the store named by `url` or MODELDYNO_STORE; by default an SQLite file.

    Raises:
        RequestError: the address is not a URL.
        UnknownName: no plugin opens such URLs.
        StoreError: the store cannot be opened.
    """
    address = url or os.environ.get(STORE_VARIABLE)
    scheme = address.partition(":")[0].partition("+")[0] if address else "sqlite"
    if address and "://" not in address and scheme not in names("store"):
        raise RequestError(
            f"The store '{address}' is not a URL; for a file, write {STORE_VARIABLE}=sqlite:///{address}"
        )
    plugin = resolve("store", scheme)
    return cast("Store", plugin.open(address or plugin.default_url()))


@lru_cache(maxsize=len(KINDS) + len(_BESIDE))
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    """Return the plugins of a kind by name; of several of one name ours, else that of the first package."""
    entries = sorted(_registered(kind), key=lambda entry: (not _is_own(entry), _package_of(entry)))
    return {entry.name: entry for entry in reversed(entries)}


def _registered(kind: str) -> EntryPoints | tuple[EntryPoint, ...]:
    return _all_entry_points().select(group=f"modeldyno.{plural(kind)}")


@cache
def _all_entry_points() -> EntryPoints | SelectableGroups:
    """Read the entry points of everything that is installed: a file a package, so once for all kinds."""
    from importlib.metadata import entry_points  # slow at start-up

    return entry_points()


def plural(kind: str) -> str:
    """Return the plural of a kind of plugin."""
    return _IRREGULAR_PLURALS.get(kind, f"{kind}s")


_IRREGULAR_PLURALS = {"strategy": "strategies"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPlugin:
    """A plugin, a knob of a backend, or a metric, in a list of them."""

    kind: str
    """``knob``, ``metric``, or the kind of plugin."""
    name: str
    sentences: tuple[str, ...]
    """What it is; of a plugin also what it lacks here, and the names of its knobs."""
    knob: Knob | None = None

    @property
    def sentence(self) -> str:
        """What it is."""
        return self.sentences[0]


def list_plugins(name: str | None = None) -> tuple[ListedPlugin, ...]:
    """List the plugins of a kind, named in the plural, the knobs of a backend, or all ``metrics``.

    Raises:
        UnknownName: there is no backend or kind of plugin of this name.
    """
    kinds = {plural(kind): kind for kind in KINDS}
    backends = names("backend")
    if name is None or name in kinds:
        chosen = KINDS if name is None else (kinds[name],)
        return tuple(
            ListedPlugin(kind=kind, name=plugin, sentences=tuple(_describe_state(kind, plugin)))
            for kind in chosen
            for plugin in names(kind)
        )
    if name == _METRICS:
        METRICS.complete()
        return tuple(
            ListedPlugin(kind="metric", name=row.name, sentences=(row.sentence,)) for row in METRICS.values()
        )
    if name in backends:
        return tuple(
            ListedPlugin(kind="knob", name=knob.name, sentences=(knob.sentence,), knob=knob)
            for knob in backend(name).knobs
        )
    raise UnknownName.among("backend or kind of plugin", name, (*backends, *kinds, _METRICS))


_METRICS = "metrics"


def _describe_state(kind: str, name: str) -> Iterator[str]:
    """Describe a plugin: its summary, the packages it lacks, and the knobs of a backend."""
    try:
        plugin = resolve(kind, name)
        yield describe(kind, name)
    except (FaultyPlugin, MissingExtra) as error:
        yield str(error)
        return
    if lacking := missing(getattr(plugin, "requires", ())):
        yield f"Not usable yet: {install_command(lacking)}"
    if kind == "backend" and plugin.knobs:
        yield f"knobs: {', '.join(knob.name for knob in plugin.knobs)}"
    yield from _hidden(kind, name)


def _hidden(kind: str, name: str) -> Iterator[str]:
    """Describe the plugins of other packages that have the name of this one, which is used."""
    used = _entry_points(kind)[name]
    for entry in _registered(kind):
        if entry.name == name and entry.value != used.value:
            yield (
                f"The {kind} '{name}' of {_package_of(entry)} is left out, as {_package_of(used)} has one of "
                "this name; it needs another name."
            )


def broken() -> tuple[str, ...]:
    """Return what is wrong with each installed plugin of other packages that cannot be used."""
    every = ((kind, name) for kind in (*KINDS, *_BESIDE) for name in names(kind))
    return tuple(problem for kind, name in every for problem in _wrong(kind, name))


def _wrong(kind: str, name: str) -> Iterator[str]:
    try:
        resolve(kind, name)
    except FaultyPlugin as error:
        yield str(error)
    except MissingExtra:
        pass
    yield from _hidden(kind, name)
