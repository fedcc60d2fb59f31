"""``object:<name>-<hex>``: a live object of this process, registered by `offer`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import LIVE, ModelIdentity, ModelRef
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.loaders import (
    call,
    estimator,
    keras_model,
    python_source,
    torch_inputs,
    torch_module,
    torch_weights,
)
from modeldyno.models.loaders import torch as torch_loader

if TYPE_CHECKING:
    from pathlib import Path


requires: tuple[str, ...] = ()
executes = Executes.NAMED
backend = "torch"
"""For modules; `backend_of` returns what an object needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedObject:
    """A live object, its display name, and example inputs for it."""

    value: Any
    name: str
    example: Any = None


_OFFERS: dict[str, OfferedObject] = {}
"""By locator; an offer is kept until it is withdrawn."""

NOT_ISOLATED = Doubt(
    code="not-isolated",
    seen="the model is a live object and ran inside the calling process, together with whatever else runs "
    "there; process_memory is what was added to that process, without the model's own weights",
    advice="save it or name a factory (torch:file.py:factory), so that it runs in a process of its own",
)


def offer(value: Any, name: str | None = None, example: Any = None) -> ModelRef:
    """Register a live object in this process, and return the reference by which it can be profiled.

    Raises:
        RequestError: it cannot be called here.
    """
    backend_of(value)
    label = name or _label(value)
    locator = f"{label}-{secrets.token_hex(4)}"
    _OFFERS[locator] = OfferedObject(value=value, name=label, example=example)
    return ModelRef(scheme=LIVE, locator=locator)


def withdraw(ref: ModelRef) -> None:
    """Forget an object, so that it can be freed."""
    _OFFERS.pop(ref.locator, None)


def backend_of(value: Any) -> str:
    """Return the backend of a live object.

    Raises:
        RequestError: it cannot be called here.
    """
    if keras_model.is_keras_model(value):
        return keras_model.backend_of()
    if _is_module(value):
        return "torch"
    if type(value).__module__.partition(".")[0] == "onnxruntime":
        raise RequestError(
            f"{type(value).__name__} is an onnxruntime session, whose options are already fixed; "
            "give the path of its .onnx file, and set the options as knobs."
        )
    if estimator.framework_of(value) is not None:
        return "python"
    if isinstance(value, tuple) and value and (callable(value[0]) or hasattr(value[0], "predict")):
        raise RequestError(
            f"This is a tuple that begins with a {type(value[0]).__name__}; give the model alone, and its "
            "inputs as example=."
        )
    if not callable(value):
        raise RequestError(
            f"{type(value).__name__} is neither a torch.nn.Module, an estimator nor callable; give a "
            "module, a function, or the path of a model."
        )
    return "jax" if (type(value).__module__.partition(".")[0] in {"jax", "jaxlib"}) else "python"


def claims(path: Path) -> bool:
    """Claim nothing: no path names an object."""
    del path
    return False


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Look up the object."""
    del seed, trust  # it is already built
    if ref.locator not in _OFFERS:
        raise RequestError(
            f"There is no live object '{ref.locator}' in this process; give a file or a factory instead, "
            "such as torch:file.py:factory."
        )
    registered = _OFFERS[ref.locator]
    if keras_model.is_keras_model(registered.value):
        model = keras_model.describe_model(
            registered.value,
            registered.name,
            keras_model.model_digest(registered.value),
            registered.example,
        )
        return replace(model, doubts=(NOT_ISOLATED,), borrowed=True)
    if _is_module(registered.value):
        return _of_module(registered)
    if estimator.framework_of(registered.value) is not None:
        model = estimator.describe_estimator(registered.value, registered.name, example=registered.example)
        return replace(model, doubts=(NOT_ISOLATED,), borrowed=True)
    return _of_callable(registered)


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Look up the object for analysis only."""
    return replace(load(ref, seed=seed, trust=trust), doubts=())


def _of_module(offered: OfferedObject) -> Model:
    module = offered.value
    if lazy := torch_weights.lazy_parts(module):
        raise RequestError(
            f"'{offered.name}' has lazy parts, such as {lazy[0]}, which get their shapes by a first call; "
            "call it once first."
        )
    taken = torch_loader.describe_inputs(module, offered.example, f"object '{offered.name}'")
    return replace(
        taken.of_model(
            torch_module.describe_module(module, offered.name, torch_module.module_digest(module))
        ),
        converts=True,
        candidates=lambda: torch_inputs.candidate_inputs(module),
        doubts=(NOT_ISOLATED,),
        borrowed=True,
    )


def _of_callable(offered: OfferedObject) -> Model:
    example = offered.example
    feed = None if example is None else call.example_feed(offered.value, example)
    return Model(
        identity=ModelIdentity(
            name=offered.name,
            digest=call.callable_digest(offered.value),
            framework=backend_of(offered.value),
        ),
        form=Form.CALLABLE,
        value=offered.value,
        inputs=call.declare_inputs(offered.value, feed),
        optional=call.optional_inputs(offered.value, feed),
        undeclared=python_source.takes_others(offered.value),
        example=feed,
        doubts=(NOT_ISOLATED,),
        borrowed=True,
    )


def _is_module(value: Any) -> bool:
    """Whether it is an nn.Module; checked by class name, so that torch is not imported for it."""
    return any(
        kind.__module__.startswith("torch.nn.") and kind.__name__ == "Module" for kind in type(value).__mro__
    )


def _label(value: Any) -> str:
    inner = getattr(value, "func", value)
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in str(name)).strip("_") or "object"
