"""``object:<name>-<hex>``: a live object of this process, which `offer` was given."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.loaders import call, torch_module
from modeldyno.adapters.loaders import torch as torch_loader
from modeldyno.core.metrics.doubt import Doubt
from modeldyno.core.spec.model_ref import ModelIdentity, ModelRef
from modeldyno.errors import RequestError
from modeldyno.interfaces import Executes, Form, Model

if TYPE_CHECKING:
    from pathlib import Path

SCHEME = "object"

requires: tuple[str, ...] = ()
tools: tuple[str, ...] = ()
executes = Executes.NAMED
backend = "torch"
"""Of modules; `backend_of` tells what an object needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A live object, what to call it, and example inputs for it."""

    value: Any
    name: str
    example: Any = None


_OFFERS: dict[str, Offer] = {}
"""By locator; an offer is kept until it is withdrawn."""

NOT_ISOLATED = Doubt(
    code="not-isolated",
    seen="the model is a live object and ran inside the calling process, beside whatever else runs there; "
    "process_memory is what was added to that process, the model's own weights not among it",
    advice="save it or name a factory (torch:file.py:factory), so that it runs in a process of its own",
)


def offer(value: Any, name: str | None = None, example: Any = None) -> ModelRef:
    """Make a live object known to this process, and give the reference by which it can be profiled.

    Raises:
        RequestError: it is nothing that can be called here.
    """
    backend_of(value)
    label = name or _label(value)
    locator = f"{label}-{secrets.token_hex(4)}"
    _OFFERS[locator] = Offer(value=value, name=label, example=example)
    return ModelRef(scheme=SCHEME, locator=locator)


def withdraw(ref: ModelRef) -> None:
    """Forget an object, so that it can be freed."""
    _OFFERS.pop(ref.locator, None)


def backend_of(value: Any) -> str:
    """Name the backend for a live object.

    Raises:
        RequestError: it is nothing that can be called here.
    """
    if _is_module(value):
        return "torch"
    if type(value).__module__.partition(".")[0] == "onnxruntime":
        raise RequestError(
            f"{type(value).__name__} is a session of onnxruntime, which its options already shaped; "
            "give the path of its .onnx file, and set the options as knobs."
        )
    if not callable(value):
        raise RequestError(
            f"{type(value).__name__} is neither a torch.nn.Module nor callable; give a module, a function, "
            "or the path of a model."
        )
    return "python"


def claims(path: Path) -> bool:
    """Claim nothing: no path names an object."""
    del path
    return False


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Look the object up."""
    del seed, trust  # it is alive already
    if ref.locator not in _OFFERS:
        raise RequestError(
            f"There is no live object '{ref.locator}' in this process; give a file or a factory instead, "
            "such as torch:file.py:factory."
        )
    found = _OFFERS[ref.locator]
    return _of_module(found) if _is_module(found.value) else _of_callable(found)


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Look the object up, to be analysed and not run."""
    return replace(load(ref, seed=seed, trust=trust), doubts=())


def _of_module(found: Offer) -> Model:
    module = found.value
    if lazy := torch_module.lazy_parts(module):
        raise RequestError(
            f"'{found.name}' has lazy parts, such as {lazy[0]}, which get their shapes by a first call; "
            "call it once before."
        )
    feed, inputs = torch_loader.described(module, found.example, f"object '{found.name}'")
    return Model(
        identity=ModelIdentity(name=found.name, digest=torch_module.module_digest(module), framework="torch"),
        form=Form.TORCH,
        value=module,
        inputs=inputs,
        weights=lambda: torch_module.weights(module),
        graph=torch_module.grapher(module),
        example=feed,
        candidates=lambda: torch_module.candidates(module),
        doubts=(NOT_ISOLATED,),
        borrowed=True,
    )


def _of_callable(found: Offer) -> Model:
    example = found.example
    feed = None if example is None else call.example_feed(found.value, example)
    return Model(
        identity=ModelIdentity(name=found.name, digest=call.callable_digest(found.value), framework="python"),
        form=Form.CALLABLE,
        value=found.value,
        inputs=call.inputs(found.value, feed),
        example=feed,
        doubts=(NOT_ISOLATED,),
        borrowed=True,
    )


def _is_module(value: Any) -> bool:
    """Whether it is an nn.Module; asked of its classes by name, so that torch is not imported for it."""
    return any(
        kind.__module__.startswith("torch.nn.") and kind.__name__ == "Module" for kind in type(value).__mro__
    )


def _label(value: Any) -> str:
    inner = getattr(value, "func", value)
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in str(name)).strip("_") or "object"
