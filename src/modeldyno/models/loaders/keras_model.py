"""Keras models of any backend: how they are called, their inputs, weights, layers and operators.

On TensorFlow a model is a function of tensors, which a traced graph describes; on PyTorch it is a module of
torch; on JAX a jitted function, whose operators are not counted. A parameter is a variable that a layer
trains unless it is frozen; moving averages and the like are buffers, as in PyTorch.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.size_guesses import guess_sizes
from modeldyno.models.interface import Form, Model
from modeldyno.models.loaders import call, digest, torch_module
from modeldyno.models.static.graph import bits_per_element
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from modeldyno.models.interface import Feed, Tracing
    from modeldyno.models.static.graph import Graph

BACKENDS = {"tensorflow": "tensorflow", "torch": "torch", "jax": "jax"}
"""Keras' name of what computes to the backend here."""
_REPEATED = re.compile(r"_\d+$")
"""What TensorFlow adds to a name scope that was entered before."""
_MOST_INTEGER = 9
"""Largest random integer of an input that no embedding bounds."""


def is_keras_model(value: Any) -> bool:
    """Whether it is a layer or model of Keras 3; checked by class names, so that Keras is not imported."""
    return any(
        kind.__module__.startswith("keras.") and kind.__name__ == "Layer" for kind in type(value).__mro__
    )


def backend_of() -> str:
    """Return the backend here for what Keras computes with in this process.

    Raises:
        RequestError: none runs it.
    """
    import keras  # optional, and heavy

    name = keras.config.backend()
    if name not in BACKENDS:
        raise RequestError(
            f"Keras computes with {name} here, which no backend runs; set KERAS_BACKEND to one of "
            f"{', '.join(BACKENDS)}."
        )
    return BACKENDS[name]


def describe_model(model: Any, name: str, content_digest: str, example: Any = None) -> Model:
    """Return the description of a model of Keras.

    Args:
        model: a keras.Model or Layer.
        name: for people.
        content_digest: the digest of its content.
        example: an input for it, or None.

    Raises:
        RequestError: it was never built and there is no example to call it with, or no backend runs it.
    """
    backend = backend_of()
    feed = None if example is None else _example_feed(model, example)
    inputs = _inputs(model, feed, name)
    make_call = _TracedCall if backend == "tensorflow" else _Call
    call_model = make_call(model, tuple(spec.name for spec in inputs), getattr(model, "input", None))
    described = Model(
        identity=ModelIdentity(name=name, digest=content_digest, framework="keras"),
        form={"tensorflow": Form.TENSORFLOW, "torch": Form.TORCH, "jax": Form.CALLABLE}[backend],
        value=call_model,
        inputs=inputs,
        weights=lambda: tuple(_weights(model)),
        example=feed,
        guesses=partial(guess_sizes, inputs),
    )
    if isinstance(call_model, _TracedCall):
        return replace(described, graph=partial(_trace, call_model))
    if backend == "torch":
        module = _torch_module(call_model)
        return replace(described, value=module, graph=torch_module.make_tracer(module))
    return replace(described, value=_jitted(call_model))


def model_digest(model: Any) -> str:
    """Digest a live model by its configuration and the values of its weights."""
    import numpy as np  # slow to import

    try:
        config = json.dumps(model.get_config(), sort_keys=True, default=str)
    except NotImplementedError:  # a subclass that does not say how it is made
        config = type(model).__qualname__
    arrays = (np.ascontiguousarray(array) for array in model.get_weights())
    return digest.digest_parts(
        (config, *(part for array in arrays for part in (f"{array.dtype}{array.shape}", array.tobytes())))
    )


@dataclass(frozen=True, eq=False)  # tf.function hashes it, and keeps a weak reference
class _Call:
    """A model as a function of inputs by name."""

    model: Any
    names: tuple[str, ...]
    structure: Any
    """The symbolic inputs as the model takes them: one, a list or a dict; None if it does not say."""

    def arrange(self, named: dict[str, Any]) -> Any:
        """Return the inputs in the structure that the model takes."""
        import keras  # optional, and heavy

        values = [named[name] for name in self.names]
        if self.structure is not None:
            return keras.tree.pack_sequence_as(self.structure, values)
        return values[0] if len(values) == 1 else values

    def __call__(self, **named: Any) -> Any:
        """Call the model as at inference."""
        return self.model(self.arrange(named), training=False)


@dataclass(frozen=True, eq=False)
class _TracedCall(_Call):
    """A model that TensorFlow traces, which knows the layer of each operator of the latest trace."""

    entered: dict[str, str] = field(default_factory=dict, init=False)
    """The name scope in which a call of a layer ran, to the path of the layer."""

    def __call__(self, **named: Any) -> Any:
        """Call the model as at inference, and take down the scopes of its layers."""
        self.entered.clear()
        with _record_scopes(self.model, self.entered):
            return super().__call__(**named)

    def layer_of(self, name: str) -> str:
        """Return the path of the layer that an operator belongs to."""
        scope = name
        while "/" in scope:
            scope = scope.rpartition("/")[0]
            if scope in self.entered:
                return self.entered[scope]
        return _layer_by_name(name, {path for path, _ in _layers(self.model)})  # in a loop names begin anew


def _torch_module(function: _Call) -> Any:
    """Return a module of torch that takes the inputs by name."""
    import torch  # heavy

    class KerasModel(torch.nn.Module):
        """A model of Keras that computes with torch."""

        def __init__(self) -> None:
            super().__init__()
            self.model = function.model

        def forward(self, *arguments: Any, **named: Any) -> Any:
            return function(**dict(zip(function.names, arguments, strict=False)), **named)

    return KerasModel().eval()


def _jitted(function: _Call) -> Any:
    """Return a jitted function of JAX that reads the weights as arguments, as Keras' own does."""
    import jax  # optional, and heavy

    model = function.model

    @jax.jit  # type: ignore[untyped-decorator]  # jax is optional
    def compute(weights: Any, named: Any) -> Any:
        outputs, _ = model.stateless_call(*weights, function.arrange(named), training=False)
        return outputs

    def call_model(**named: Any) -> Any:
        weights = (
            [variable.value for variable in model.trainable_variables],
            [variable.value for variable in model.non_trainable_variables],
        )
        return compute(weights, named)

    return call_model


# -- inputs -------------------------------------------------------------------------------------------------


def _declared(model: Any) -> Any:
    """Return the symbolic inputs of a model, flat; None if it has none, as a subclass of keras.Model."""
    return getattr(model, "inputs", None) or None  # a Sequential that was not built raises AttributeError


def _inputs(model: Any, feed: Feed | None, name: str) -> tuple[InputSpec, ...]:
    declared = _declared(model)
    if declared is None:
        if feed is None:
            raise RequestError(
                f"'{name}' does not declare its inputs, as it was not built from keras.Input; return it with "
                "an example from a factory: (model, inputs)."
            )
        return call.declare_inputs(model, feed)
    rows = [layer.input_dim for _, layer in _layers(model) if type(layer).__name__ == "Embedding"]
    return tuple(_input(tensor, rows) for tensor in declared)


def _input(tensor: Any, rows: list[int]) -> InputSpec:
    shape = tuple(
        size if size is not None else f"{tensor.name}_dim{axis}" if axis else BATCH
        for axis, size in enumerate(tensor.shape)
    )
    bounds = (0, min(rows, default=_MOST_INTEGER + 1) - 1) if "int" in str(tensor.dtype) else (None, None)
    return InputSpec(name=tensor.name, shape=shape, dtype=str(tensor.dtype), low=bounds[0], high=bounds[1])


def _example_feed(model: Any, example: Any) -> Feed:
    """Return an example by the names of the inputs; a model that declares none is called once."""
    import keras  # optional, and heavy

    declared = _declared(model)
    values = keras.tree.flatten(example)
    if declared is None:
        model(example, training=False)
    names = [tensor.name for tensor in declared or ()] or [f"input_{index}" for index in range(len(values))]
    if len(names) != len(values):
        raise RequestError(
            f"The example has {len(values)} arrays, and the model takes {len(names)}: {', '.join(names)}."
        )
    return {name: keras.ops.convert_to_numpy(value) for name, value in zip(names, values, strict=True)}


# -- layers and weights -------------------------------------------------------------------------------------


def _layers(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the layers within a layer with their paths, each after the one that holds it."""
    children: Any = getattr(layer, "layers", None) or getattr(layer, "_layers", ())
    for child in children:
        if type(child).__name__ == "InputLayer":
            continue
        where = f"{path}.{_part(child)}" if path else _part(child)
        yield where, child
        yield from _layers(child, where)


def _part(layer: Any) -> str:
    """Return the name of a layer as a part of a path, in which a dot separates parts."""
    return str(layer.name).replace(".", "_")


def _weights(model: Any) -> Iterator[Weight]:
    import numpy as np  # slow to import

    scopes = {id(each): "" for each in model.weights}
    trained = {id(each) for each in getattr(model, "_trainable_variables", ())}
    for path, layer in _layers(model):
        scopes |= {id(each): path for each in layer.weights}
        trained |= {id(each) for each in getattr(layer, "_trainable_variables", ())}
    for index, variable in enumerate(model.weights):
        scope, size = scopes[id(variable)], int(np.prod(variable.shape))
        yield Weight(
            name=f"{scope}.{variable.name}".lstrip("."),
            shape=tuple(variable.shape),
            dtype=str(variable.dtype),
            size=size,
            bytes=(size * bits_per_element(str(variable.dtype)) + 7) // 8,
            storage=f"variable {index}",
            parameter=id(variable) in trained,
            trainable=bool(variable.trainable),
            scope=scope,
        )


# -- operators ----------------------------------------------------------------------------------------------


def _trace(called: _TracedCall, tracing: Tracing) -> Graph:
    from modeldyno.models.loaders.tensorflow_tracing import trace_function  # it imports TensorFlow

    layers = {"": called.model, **dict(_layers(called.model))}
    modules = {path: type(layer).__name__ for path, layer in layers.items()}
    return trace_function(called, tracing, modules, called.layer_of)


@contextmanager
def _record_scopes(model: Any, entered: dict[str, str]) -> Iterator[None]:
    """Add the name scope in which each call of a layer runs, and the path of the layer, to `entered`.

    TensorFlow numbers a scope that was entered before, so the scope of a layer ``dense`` may be called
    ``dense_1``, as another layer is.
    """
    import tensorflow as tf  # optional, and heavy

    def recording(path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def recording_call(*args: Any, **kwargs: Any) -> Any:
            entered.setdefault(tf.get_current_name_scope(), path)
            return call(*args, **kwargs)

        return recording_call

    replaced: dict[int, Any] = {}
    for path, layer in (("", model), *_layers(model)):
        if id(layer) not in replaced and "call" not in vars(layer):
            replaced[id(layer)] = layer
            # Keras' own setter would track the function.
            object.__setattr__(layer, "call", recording(path, layer.call))
    try:
        yield
    finally:
        for layer in replaced.values():
            object.__delattr__(layer, "call")


def _layer_by_name(name: str, paths: Container[str]) -> str:
    """Return the path of the layer whose name stands in that of an operator."""
    scope = ""
    for part in name.replace(".", "_").split("/")[:-1]:
        for candidate in (part, _REPEATED.sub("", part)):
            path = f"{scope}.{candidate}" if scope else candidate
            if path in paths:
                scope = path
                break
    return scope
