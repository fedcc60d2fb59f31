"""What the functions of Python have in common: errors name arguments, and objects stand for their names."""

from __future__ import annotations

import re
import warnings
from difflib import get_close_matches
from functools import wraps
from inspect import Signature, signature, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from modeldyno.base import plugins
from modeldyno.base.document import Document
from modeldyno.base.errors import ModelDynoError, RequestError, UnknownName
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.option_spelling import names_field, spell_for_python
from modeldyno.profiling.api import options
from modeldyno.profiling.api.settings import PlannedKnobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

P = ParamSpec("P")
R = TypeVar("R")

_UNPACKED = re.compile(r"Unpack\[(\w+)\]")
_ALMOST = 0.8
"""Likeness of two names, as difflib has it, from which one is the other misspelt."""
_OF_MODELCI = {
    "architecture": "name",
    "architecture_name": "name",
    "metric": "metrics",
    "parent_model_id": "parent",
}
"""Arguments of ModelCI, and what they are called here."""
_EXAMPLE_HINT = "A live object also takes its inputs as example=."


class _Text:
    """An annotation that prints as its source; ``help()`` would quote a plain string."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def reword_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose first argument is a model: reword its errors for Python.

    Any argument may be a server that `serve` or `servers.list` returned, for which its URL is given, or a
    version that `register` or `retrieve` returned, for which its name is.
    """
    named = {
        n: str(p.annotation) for n, p in signature(function).parameters.items() if p.kind != p.VAR_KEYWORD
    }
    annotations = named | keywords_of(function)
    parameters = annotations.keys() - PlannedKnobs.__annotations__.keys() | named.keys()
    takes_knobs = "settings" in signature(function).parameters

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        kwargs.update(_read_old_words(function.__name__, kwargs))
        try:
            unknown = [name for name in kwargs if name not in parameters]
            _check_spelling(unknown, parameters)
            if unknown and not takes_knobs:
                known = parameters - {"self"}
                raise UnknownName.among("argument", unknown[0], known, meant=_OF_MODELCI.get(unknown[0]))
            _check_no_document(
                function.__name__, annotations, dict(zip(annotations, args, strict=False)) | kwargs
            )
            return function(*map(as_reference, args), **{n: as_reference(v) for n, v in kwargs.items()})
        except ModelDynoError as error:
            model = args[0] if args else kwargs.get("model")
            error.args = (reword_for_python(str(error), live=not isinstance(model, str | Path | None)),)
            raise

    wrapper.__signature__ = readable_signature(function)  # type: ignore[attr-defined]
    return wrapper


_OLD_WORDS = {"convert": {"timeout": "max_time"}}
"""Function to the former names of its parameters, and their names."""


def _read_old_words(function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments with former names out of others, and return them by their names, with a warning."""
    words = {old: new for old, new in _OLD_WORDS.get(function, {}).items() if old in arguments}
    for old, new in words.items():
        warnings.warn(f"{function}: {old}= is {new}= now.", DeprecationWarning, stacklevel=3)
    return {new: arguments.pop(old) for old, new in words.items()}


def _check_spelling(names: Sequence[str], parameters: Collection[str]) -> None:
    """Refuse a keyword that is almost that of a parameter or a field of Plan, and is no knob.

    Raises:
        UnknownName: there is one; the message has the name that was meant.
    """
    known = {*parameters, *Plan.__dataclass_fields__}
    for name in names:
        near = get_close_matches(name, known, n=1, cutoff=_ALMOST) if name not in known else ()
        if near and not any(
            name in knob.names for _, backend in plugins.usable("backend") for knob in backend.knobs
        ):
            raise UnknownName.among("argument", name, known, meant=near[0])


def _check_no_document(function: str, annotations: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    """Refuse a document where a name is taken: its whole report would be taken for the name of a file.

    Raises:
        RequestError: there is one.
    """
    for name, value in arguments.items():
        annotation = annotations.get(name, "Any")
        if isinstance(value, Document) and annotation.split(" | ")[:2] in (["str", "Path"], ["str"]):
            kind = type(value).__name__
            taken = {*annotation.split(" | ")}
            if not {kind, "Document", "StoredDocument"} & taken:
                asks = (
                    "give a path or a reference of a model" if name == "model" else "give its file or its id"
                )
                hint = _INSTEAD.get(function, asks)
                raise RequestError(f"{function} takes no {kind} as {name}; {hint}.")


_INSTEAD = {"gate": "it measures a model, and check judges a Result that was measured before"}
"""Function to what a document is given to instead."""


def as_reference(value: Any) -> Any:
    """Return the URL of a server, or the name of a registered version; anything else as it is."""
    return getattr(getattr(value, "record", value), "reference_text", value)


def reference_of(model: Any) -> str:
    """Return the text of a path or a reference; of a live object, say what to give instead.

    Raises:
        RequestError: it is an object of this process.
    """
    if isinstance(model, str | Path):
        return str(model)
    if isinstance(model, tuple) and model and not isinstance(model[0], str | Path):
        return reference_of(model[0])  # with its example, as the other functions take it
    code, name = getattr(model, "__code__", None), getattr(model, "__qualname__", "")
    if code is not None and name.isidentifier():  # a lambda or an inner function is in no file
        instead = f"a reference, 'call:{code.co_filename}:{name}'"
    elif callable(model):
        instead = "a function of a file that makes it, 'torch:file.py:factory'"
    else:
        raise RequestError(
            f"A {type(model).__name__} is no model; give a reference, 'torch:file.py:factory', or a path."
        )
    raise RequestError(
        f"The model runs in fresh processes, which have no {name or type(model).__name__} of this one; give "
        f"{instead}, or the path of a saved model, such as modeldyno.convert(model, to='onnx') writes."
    )


def keywords_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return the keywords of ``**settings: Unpack[Keywords]`` with their types as text."""
    texts = (str(parameter.annotation) for parameter in signature(function).parameters.values())
    for match in filter(None, map(_UNPACKED.fullmatch, texts)):
        kinds = (vars(options) | unwrap(function).__globals__)[match[1]].__annotations__
        return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in kinds.items()}
    return {}


def readable_signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of a function with unquoted type annotations, for ``help()``."""
    original = signature(function)
    parameters = [
        parameter.replace(annotation=_Text(parameter.annotation))
        if isinstance(parameter.annotation, str)
        else parameter
        for parameter in original.parameters.values()
    ]
    return_type = original.return_annotation
    return original.replace(
        parameters=parameters,
        return_annotation=_Text(return_type) if isinstance(return_type, str) else return_type,
    )


def reword_for_python(text: str, *, live: bool) -> str:
    """Name arguments (``vary=`` for `vary`); mention ``example=`` for a live object."""
    reworded = spell_for_python(text)
    return f"{reworded} {_EXAMPLE_HINT}" if live and names_field(text, "inputs") else reworded
