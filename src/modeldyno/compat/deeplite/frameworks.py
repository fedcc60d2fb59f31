"""What differs between the frameworks whose models have metrics here: one row each, of small functions."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.job.knob import configure
from modeldyno.compat.deeplite.device_name import Device
from modeldyno.compat.deeplite.status_metrics import InvalidStatus
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.profiling.api.arrays import to_array
from modeldyno.profiling.resolve_model import resolve_reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from modeldyno.models.interface import Model
    from modeldyno.models.static.weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How models of one framework are called and analysed."""

    claims: Callable[[Any], bool]
    """Whether a model is of this framework."""
    evaluating: Callable[[Any, Device], AbstractContextManager[Any]]
    """Return a context of a model on a device, which yields what is called; it restores the model."""
    call: Callable[[Any, Any], Any]
    """Return the outputs of a model for inputs: a tuple by position, or a mapping by name."""
    settings: Callable[[Device], dict[str, Any]]
    """Return the knobs of the backend that choose a device."""
    buffer_bytes: Callable[[Any, Any], Callable[[str], float]]
    """Return a function from the path of a layer to the bytes of its buffers, given an example of inputs."""


def framework_of(model: Any) -> Framework:
    """Return the framework of a model; a callable that none claims is called as it is."""
    return next((row for row in _FRAMEWORKS if row.claims(model)), _CALLABLE)


@contextmanager
def evaluation_mode(model: Any, device: Any) -> Iterator[Any]:
    """Yield what is called to evaluate a model on a device, and leave the model as it was."""
    with framework_of(model).evaluating(model, Device(device)) as called:
        yield called


def call_model(model: Any, inputs: Any) -> Any:
    """Call a model with a mapping by name, with anything else by position."""
    return framework_of(model).call(model, inputs)


def without_gradients() -> AbstractContextManager[Any]:
    """Return a context in which torch, if a model has imported it, keeps nothing for gradients."""
    torch: Any = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


def _plain_call(model: Any, inputs: Any) -> Any:
    if not isinstance(inputs, Mapping):
        return model(*inputs)
    return model(inputs) if _takes_whole(model, inputs) else model(**inputs)


def _takes_whole(model: Any, inputs: Mapping[Any, Any]) -> bool:
    """Whether a mapping is the one argument of a model: its only parameter, which is no name in it."""
    try:
        parameters = signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):  # a function of C that tells none
        return False
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [p.kind in places and p.name not in inputs for p in parameters] == [True]


def _class_name(model: Any, package: str, name: str) -> bool:
    """Whether a class of that package and name is among those of a model, which imports nothing."""
    return any(
        kind.__module__.partition(".")[0] == package and kind.__name__ == name for kind in type(model).__mro__
    )


def class_numbers(labels: Any, outputs: Any) -> Any:
    """Return labels as numbers of classes, (samples,).

    Labels may also be a column of them, one-hot rows, or rows of a score for each class, such as the
    probabilities of a teacher, of which the largest is the label. One-hot rows of fewer classes than the
    outputs have are taken with a warning, as numbers of so few classes would be without one.

    Raises:
        InvalidStatus: they have another shape, rows of 0 and 1 are not one-hot, or outputs are not
            (samples, classes).
    """
    are_rows = labels.ndim == outputs.ndim == 2 and len(labels) == len(outputs)
    if labels.shape[1:] == (1,):
        labels = labels[:, 0]
    elif are_rows and labels.shape[1] <= outputs.shape[1]:
        fewer, are_flags = labels.shape[1] < outputs.shape[1], ((labels == 0) | (labels == 1)).all()
        one_hot = are_flags and (labels.sum(axis=-1) == 1).all()
        if are_flags and not (one_hot or fewer):
            raise InvalidStatus(
                f"Labels of shape {tuple(labels.shape)} must be one-hot, a single 1 in each row, or the "
                "numbers of the classes, (samples,)."
            )
        if one_hot and fewer:
            text = f"Labels are of {labels.shape[1]} classes, outputs of {outputs.shape[1]}."
            warnings.warn(text, stacklevel=3)
        if one_hot or not fewer:
            return labels.argmax(axis=-1)
    if outputs.ndim != 2 or labels.shape != (len(outputs),):
        raise InvalidStatus(
            f"Labels of shape {tuple(labels.shape)} do not fit outputs of shape {tuple(outputs.shape)}; "
            "they must be (samples,) and (samples, classes)."
        )
    return labels


# -- PyTorch ------------------------------------------------------------------------------------------------


@contextmanager
def _torch_evaluation(model: Any, device: Device) -> Iterator[Any]:
    """Set every module to evaluation on a device, and restore the mode of each and the device of all."""
    modes = [(module, module.training) for module in model.modules()]
    before = next((tensor.device for tensor in model.parameters()), device)
    model.eval().to(device)
    try:
        yield model
    finally:
        model.to(before)
        for module, training in modes:
            module.training = training


def _torch_buffers(model: Any, example: Any) -> Callable[[str], float]:
    del example
    return lambda path: sum(b.numel() * b.element_size() for b in model.get_submodule(path).buffers())


# -- Keras --------------------------------------------------------------------------------------------------


@contextmanager
def _keras_evaluation(model: Any, device: Device) -> Iterator[Any]:
    import keras  # optional, and heavy

    name = _tensorflow_name(device) if keras.config.backend() == "tensorflow" else str(device)
    with keras.device(name):
        yield model


def _keras_call(model: Any, inputs: Any) -> Any:
    """Call a model as at inference, compiled where it can be; several inputs are a list, as for Keras."""
    argument = inputs
    if not isinstance(inputs, Mapping):
        argument = inputs[0] if len(inputs) == 1 else list(inputs)
    if hasattr(model, "predict_on_batch"):
        return model.predict_on_batch(argument)
    return model(argument, training=False)


def _keras_settings(device: Device) -> dict[str, Any]:
    import keras  # optional, and heavy

    names = {"tensorflow": _tensorflow_name(device), "torch": str(device)}
    name = names.get(keras.config.backend())
    return {} if name is None or device == "auto" else {"device": name}


def _tensorflow_name(device: Device) -> str:
    return str(device).replace("cuda", "gpu")


def _keras_buffers(model: Any, example: Any) -> Callable[[str], float]:
    objects = plugins.objects()
    ref = objects.offer(model, example=example)
    try:
        described = plugins.resolve("loader", ref.scheme).load(ref, seed=0, trust=False)
    finally:
        objects.withdraw(ref)
    return _described_buffers(described)


def _described_buffers(described: Model) -> Callable[[str], float]:
    assert described.weights is not None
    buffers = {
        weight.storage or weight.name: weight for weight in described.weights() if not weight.parameter
    }

    def of_layer(path: str) -> float:
        return sum(weight.bytes for weight in buffers.values() if not path or _is_within(weight, path))

    return of_layer


def _is_within(weight: Weight, path: str) -> bool:
    scope = weight.name.rpartition(".")[0] if weight.scope is None else weight.scope
    return scope == path or scope.startswith(f"{path}.")


# -- files, such as those of TensorFlow Lite ----------------------------------------------------------------


def load_file(path: Any) -> Model:
    """Return the description of the file of a model."""
    ref = resolve_reference(str(path))
    described: Model = plugins.resolve("loader", ref.scheme).load(ref, seed=0, trust=False)
    return described


@contextmanager
def _opened_file(path: Any, device: Device) -> Iterator[Callable[..., Any]]:
    """Yield a function of arrays that calls a file on the backend of its format."""
    described = load_file(path)
    backend = plugins.backend(plugins.resolve("loader", resolve_reference(str(path)).scheme).backend)
    with backend.open(described, configure(backend.knobs, _file_settings(device))) as session:
        assert isinstance(session, LocalSession)

        def call(*arguments: Any, **named: Any) -> Any:
            names = (spec.name for spec in described.inputs)
            feed = {
                name: to_array(value)
                for name, value in (*zip(names, arguments, strict=False), *named.items())
            }
            outputs = session.arrays(session.prepare(feed)())
            return next(iter(outputs.values())) if len(outputs) == 1 else tuple(outputs.values())

        yield call


def _file_call(path: Any, inputs: Any) -> Any:
    with _opened_file(path, Device.CPU) as call:
        return _plain_call(call, inputs)


def _file_settings(device: Device) -> dict[str, Any]:
    """Return no knob.

    Raises:
        InvalidStatus: it is not the processor.
    """
    if device not in ("cpu", "auto"):
        raise InvalidStatus(f"A model file runs on the processor here, not on '{device}'; use device='cpu'.")
    return {}


TORCH = Framework(
    claims=lambda model: _class_name(model, "torch", "Module"),
    evaluating=_torch_evaluation,
    call=_plain_call,
    settings=lambda device: {"device": str(device)},
    buffer_bytes=_torch_buffers,
)
KERAS = Framework(
    claims=lambda model: _class_name(model, "keras", "Layer"),
    evaluating=_keras_evaluation,
    call=_keras_call,
    settings=_keras_settings,
    buffer_bytes=_keras_buffers,
)
FILE = Framework(
    claims=lambda model: isinstance(model, str | Path),
    evaluating=_opened_file,
    call=_file_call,
    settings=_file_settings,
    buffer_bytes=lambda path, _: _described_buffers(load_file(path)),
)
_FRAMEWORKS = (KERAS, TORCH, FILE)  # a layer of Keras on PyTorch is a module, too
_CALLABLE = Framework(
    claims=callable,
    evaluating=lambda model, _: nullcontext(model),
    call=_plain_call,
    settings=lambda _: {},
    buffer_bytes=lambda *_: lambda _: 0,
)


def is_loss_of_keras(function: Any) -> bool:
    """Whether a loss is one of Keras, which takes labels before outputs."""
    kind = function if hasattr(function, "__name__") else type(function)
    modules: Iterable[str] = (each.__module__ for each in getattr(kind, "__mro__", (kind,)))
    return any(name.partition(".")[0] in {"keras", "tensorflow", "tf_keras"} for name in modules)
