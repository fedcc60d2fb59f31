"""What a plugin of each kind has: the members of its base, those with a default if it leaves them out.

A plugin is a subclass of the base, of which one object is made, or else a module or an object with its
members. One of another package is compared with the base when it is resolved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_BASES = {
    "loader": "models.interface:Loader",
    "backend": "engine.interfaces.backend:Backend",
    "client": "serving.interfaces.client:Client",
    "probe": "engine.interfaces.probe:Probe",
    "sampler": "engine.interfaces.sampler:Sampler",
    "store": "stores.interface:OpensStores",
    "reporter": "reports.interface:Reporter",
    "strategy": "sweeps.interface:Strategy",
    "importer": "exchange.interface:Importer",
    "exporter": "exchange.interface:Exporter",
    "converter": "conversion.interface:Converter",
}
"""Kind to the module and the class that documents it."""
_DOCUMENT = "document"
_TYPES: dict[str, tuple[Any, str]] = {
    "str": (str, "text"),
    "bool": (bool, "True or False"),
    "tuple": (Collection, "a tuple"),
    "frozenset": (Collection, "a frozenset"),
    "Mapping": (Mapping, "a mapping"),
    "type | None": (type | None, "a class or None"),
}
"""Beginning of an annotation to what an attribute must be, and its name in a message."""


def overrides(member: Any, default: object) -> bool:
    """Return whether a member of a plugin is its own, and not the `default` of its base."""
    return getattr(member, "__func__", member) is not default


def what_is_wrong(kind: str, plugin: object) -> str:
    """Describe the first attribute that a plugin lacks or has in another form; empty if there is none."""
    if kind == _DOCUMENT:
        from modeldyno.base.document_kind import DocumentKind  # slow at start-up

        return "" if isinstance(plugin, DocumentKind) else "it is no DocumentKind"
    if kind not in _BASES:
        return "" if isinstance(plugin, Mapping) else "it is no mapping"
    return next(_differences(_base(kind), plugin), "")


def instance(kind: str, plugin: Any) -> Any:
    """Return the one object of a plugin that is a class, and any other as it is."""
    return _object_of(plugin) if kind in _BASES and isinstance(plugin, type) else plugin


@cache
def _object_of(plugin: type) -> Any:
    return plugin()


def complete(kind: str, plugin: Any) -> Any:
    """Return a plugin with the defaults of its kind for what it leaves out."""
    if kind not in _BASES or isinstance(plugin, _base(kind)):
        return plugin
    return _completed(kind)(plugin)


@cache
def _base(kind: str) -> type:
    module, _, name = _BASES[kind].partition(":")
    base: type = getattr(import_module(f"modeldyno.{module}"), name)
    return base


@cache
def _completed(kind: str) -> type:
    """Return a subclass of the base of a kind, whose objects have what a plugin has first."""
    base: Any = _base(kind)

    class Completed(base):  # type: ignore[misc]
        def __init__(self, plugin: object) -> None:
            object.__setattr__(self, "_plugin", plugin)

        def __getattribute__(self, name: str) -> Any:
            if name.startswith("__"):
                return object.__getattribute__(self, name)
            try:
                return getattr(object.__getattribute__(self, "_plugin"), name)
            except AttributeError:
                return object.__getattribute__(self, name)

        def __setattr__(self, name: str, value: object) -> None:
            setattr(object.__getattribute__(self, "_plugin"), name, value)

    completed: Any = Completed
    completed.__abstractmethods__ = frozenset()  # the plugin has them
    return Completed


def _differences(base: type, plugin: object) -> Iterator[str]:
    words = vars(import_module(base.__module__))
    optional = vars(base)
    for name, annotation in base.__annotations__.items():
        enum = words.get(annotation)
        if not hasattr(plugin, name):
            if name not in optional:
                yield f"it has no '{name}'"
        elif enum is not None and not isinstance(getattr(plugin, name), enum):
            yield f"its '{name}' is {getattr(plugin, name)!r:.60}, not a value of {annotation}"
        elif wrong := _wrong_value(getattr(plugin, name), str(annotation)):
            yield f"its '{name}' {wrong}"
    for name, method in vars(base).items():
        is_public = isinstance(method, FunctionType) and not name.startswith("_")
        if is_public and (getattr(method, "__isabstractmethod__", False) or hasattr(plugin, name)):
            yield from _wrong_function(name, method, plugin)


def _wrong_value(value: Any, annotation: str) -> str:
    """Describe how a value differs from an annotation; empty if it does not, or the annotation is another."""
    outer, _, inner = annotation.partition("[")
    if outer not in _TYPES or (value is None and annotation.endswith("| None")):
        return ""
    expected, words = _TYPES[outer]
    if not isinstance(value, expected) or (expected is Collection and isinstance(value, str)):
        return f"is {value!r:.60}, not {words}"
    if expected is Collection and inner.startswith("str"):
        other = next((item for item in value if not isinstance(item, str)), None)
        return "" if other is None else f"has {other!r:.60} in it, which is no text"
    return ""


def _wrong_function(name: str, method: FunctionType, plugin: object) -> Iterator[str]:
    """Describe how a function of a plugin differs from that of the base: it must take what that takes."""
    function = getattr(plugin, name, None)
    if function is None:
        yield f"it has no function '{name}'"
        return
    if not callable(function):
        yield f"its '{name}' is {function!r:.60}, not a function"
        return
    taken = list(signature(method).parameters.values())[1:]  # without self
    try:
        own = signature(function)
    except (TypeError, ValueError):  # written in C
        return
    try:
        own.bind(
            *(None for each in taken if each.kind is not Parameter.KEYWORD_ONLY),
            **{each.name: None for each in taken if each.kind is Parameter.KEYWORD_ONLY},
        )
    except TypeError as error:
        yield f"its '{name}{own}' cannot be called as {name}{_call(taken)}: {error}"


def _call(taken: list[Parameter]) -> str:
    words = (f"{each.name}=..." if each.kind is Parameter.KEYWORD_ONLY else each.name for each in taken)
    return f"({', '.join(words)})"
