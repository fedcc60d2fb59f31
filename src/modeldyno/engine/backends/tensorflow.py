"""TensorFlow backend: calls Keras models and SavedModels through a compiled `tf.function`, on a device.

The inputs are copied to the device before; a call ends when its outputs are in the host's memory, as NumPy
arrays. What floats are computed in belongs to the model; the layers of a Keras model can be made anew in
another precision.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, short_reason
from modeldyno.base.job.devices import is_cpu
from modeldyno.base.job.knob import BATCH_SIZE, Knob, count_knob
from modeldyno.engine.backends.output_leaves import leaves
from modeldyno.engine.backends.tensorflow_operators import watch_operators
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.trace.op_events import WatchedCalls
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ("tensorflow",)
accepts = frozenset({Form.TENSORFLOW})
knobs: tuple[Knob, ...] = (
    Knob(
        name="device",
        sentence="Where to run: cpu, gpu or gpu:1; TensorFlow's default is the first GPU, if there is one.",
    ),
    Knob(
        name="precision",
        choices=("fp32", "fp16", "bf16"),
        sentence="Convert the weights of a Keras model, and compute in them. As stored if not set.",
        aliases=("dtype",),
    ),
    count_knob(
        "threads",
        "Threads within an operator; TensorFlow's default is one per core.",
        aliases=("intra_threads", "intra_op_parallelism_threads"),
    ),
    count_knob(
        "inter_threads",
        "Operators that run at once; TensorFlow's default is one per core.",
        aliases=("inter_op_parallelism_threads",),
    ),
    Knob(
        name="jit_compile",
        kind=bool,
        default=False,
        sentence="Compile the whole call with XLA, within the first call.",
        aliases=("xla",),
    ),
    BATCH_SIZE,
)
space = ("batch_size=1..32*2", "threads=1..{cores}*2", "precision=fp32,bf16")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_DEVICE = re.compile(r"(?P<kind>cpu|gpu)(?::(?P<index>\d+))?", re.IGNORECASE)


class TensorFlowSession(LocalSession):
    """A compiled function of TensorFlow and its device."""

    def __init__(
        self,
        function: Callable[..., Any],
        device: str,
        usual: str,
        layer_of: Callable[[str], str],
        *,
        compiled: bool,
    ) -> None:
        self._function = function
        self._device = device
        self._layer_of = layer_of
        self._compiled = compiled
        self.device = device or usual
        self.converted = ""
        """The precision that the weights were converted to; empty if they were not."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the inputs to the device; a call returns the outputs as arrays of the host."""
        import tensorflow as tf  # optional, and heavy

        with tf.device(self._device or None):
            tensors = {name: tf.identity(tf.constant(array)) for name, array in feed.items()}

        function, single = self._function, tf.Tensor

        def run() -> Any:
            output = function(**tensors)
            # Walking a structure takes 4 % of the call of a small model, so a single output is not walked.
            return output.numpy() if isinstance(output, single) else tf.nest.map_structure(_to_host, output)

        return run

    def operators(self, feed: Feed, calls: int, trace: Path | None) -> WatchedCalls:
        """Make calls under TensorFlow's profiler.

        Raises:
            RequestError: the calls run elsewhere than on the CPU, or are compiled as a whole.
        """
        if self._compiled:
            raise RequestError(
                "A call that XLA compiles is one operator; leave jit_compile off to see those of the model."
            )
        if not is_cpu(self.device):
            raise RequestError("TensorFlow's operators are watched on the CPU only; set device to cpu.")
        call = self.prepare(feed)
        call()
        return watch_operators(call, calls, trace, self._layer_of)

    def arrays(self, output: Any) -> Feed:
        """Return the outputs by name."""
        import numpy as np  # slow to import

        return {name: np.asarray(array) for name, array in leaves(output)}


def _scope_of(name: str) -> str:
    """Return the name scope of an operator as a path, where no layers are known."""
    return name.rpartition("/")[0].replace("/", ".")


def _to_host(tensor: Any) -> Any:
    return tensor.numpy()


def _place_call(call: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Return a call whose operators are placed on a device as they are traced, which costs no later call."""
    import tensorflow as tf  # optional, and heavy

    def run(**inputs: Any) -> Any:
        with tf.device(device):
            return call(**inputs)

    return run


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse a word that is no device."""
    if "device" in config and _DEVICE.fullmatch(str(config["device"])) is None:
        raise RequestError(f"The knob device takes cpu, gpu or gpu:1, not '{config['device']}'.")


def configure_process(config: Mapping[str, KnobValue]) -> None:
    """Set the threads, and hide the devices that are not asked for, before the model makes its variables.

    Raises:
        RequestError: the device is not there, or TensorFlow was started with other settings.
    """
    import tensorflow as tf  # optional, and heavy

    _device_name(config)
    threading = tf.config.threading
    try:
        if "threads" in config:
            threading.set_intra_op_parallelism_threads(int(config["threads"]))
        if "inter_threads" in config:
            threading.set_inter_op_parallelism_threads(int(config["inter_threads"]))
        if is_cpu(str(config.get("device", ""))):
            tf.config.set_visible_devices([], "GPU")
    except RuntimeError as error:
        raise RequestError(
            "TensorFlow is running in this process with other threads or devices, which cannot change any "
            "more; set them with tf.config first, or give the path of a model, which gets its own process."
        ) from error


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[TensorFlowSession]:
    """Compile the function; it is traced by its first call.

    Raises:
        RequestError: the device is not there, TensorFlow was started with other settings, or the model cannot
            be made in the precision.
    """
    import tensorflow as tf  # optional, and heavy

    configure_process(config)
    call, device = model.value, _device_name(config)
    precision = str(config.get("precision", ""))
    if precision:
        call = _call_in_precision(call, _DTYPES[precision])
    function = tf.function(
        _place_call(call, device) if device else call, jit_compile=bool(config.get("jit_compile")) or None
    )
    session = TensorFlowSession(
        function,
        device,
        "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0",
        getattr(call, "layer_of", _scope_of),
        compiled=bool(config.get("jit_compile")),
    )
    if precision and any(weight.dtype != _DTYPES[precision] for weight in model.value.model.weights):
        session.converted = precision
    yield session


def _call_in_precision(call: Any, dtype: str) -> Any:
    """Return the call of a copy of a Keras model whose layers compute in a dtype."""
    import keras  # optional, and heavy

    model = getattr(call, "model", None)
    if not isinstance(model, keras.Model):
        raise RequestError("The knob precision is for models of Keras, and this is none; leave it out.")

    def convert_layer(layer: Any) -> Any:
        return type(layer).from_config({**layer.get_config(), "dtype": dtype})

    try:
        copy = keras.models.clone_model(model, clone_function=convert_layer, recursive=True)
        copy.set_weights(model.get_weights())
    except (ValueError, TypeError, NotImplementedError, AttributeError) as error:
        raise RequestError(
            f"{type(model).__name__} cannot be made in {dtype} ({short_reason(error)}); set its dtype "
            "policy in the code that makes it, and leave precision out."
        ) from error
    return replace(call, model=copy)


def _device_name(config: Mapping[str, KnobValue]) -> str:
    """Return TensorFlow's name of the device, such as ``GPU:0``; empty for its own choice."""
    if "device" not in config:
        return ""
    import tensorflow as tf  # optional, and heavy

    match = _DEVICE.fullmatch(str(config["device"]))
    assert match is not None
    kind, index = match["kind"].upper(), int(match["index"] or 0)
    if index >= len(tf.config.list_physical_devices(kind)):
        names = [
            device.name.removeprefix("/physical_device:") for device in tf.config.list_physical_devices()
        ]
        raise RequestError(
            f"TensorFlow finds no device {config['device']} here; available: "
            f"{', '.join(name.lower() for name in names)}."
        )
    return f"{kind}:{index}"
