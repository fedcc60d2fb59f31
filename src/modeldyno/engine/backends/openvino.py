"""OpenVINO backend: runs ONNX files, and those of OpenVINO's own format, in this process.

A call is that of a `CompiledModel`, which is what users of OpenVINO call: it waits for the device and copies
the outputs. Unset knobs keep OpenVINO's defaults for a single caller: the hint ``LATENCY``, one stream, as
many threads as cores.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE, Knob, count_knob
from modeldyno.base.system.variables import without_telemetry
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Feed, Model

requires = ("openvino",)
accepts = frozenset({Form.ONNX, Form.OPENVINO})
knobs = (
    Knob(name="device", default="cpu", sentence="Where to run: cpu, gpu, gpu.1, npu or auto."),
    count_knob(
        "threads",
        "Threads of all streams together; OpenVINO's default is one per core.",
        aliases=("inference_num_threads", "intra_threads"),
    ),
    count_knob(
        "streams",
        "Requests that run at once, which share the threads; a single caller uses one of them.",
        aliases=("num_streams",),
        usual=1,
    ),
    Knob(
        name="precision",
        choices=("f32", "bf16", "f16"),
        sentence="What floats are computed in; OpenVINO's default is the device's fastest.",
        aliases=("inference_precision_hint",),
    ),
    BATCH_SIZE,
)
space = ("batch_size=1..32*2", "threads=1..{cores}*2")

_DEVICE = re.compile(r"(?P<name>[a-z]+)(?:[.:](?P<index>\d+))?", re.IGNORECASE)
_UNCONVERTED = {"", "f32", "dynamic", "undefined"}
"""Precisions that leave the floats of a usual model as they are."""
_MAX_REASON = 160
"""Characters of OpenVINO's own words that an error repeats."""


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse an unknown device, a precision that cannot be verified, and fewer threads than streams."""
    if _device(str(config.get("device", "cpu"))) == "AUTO" and "precision" in config:
        raise RequestError(
            "With device=auto it is not known what OpenVINO computes in; name the device, such as cpu, to "
            "set the precision."
        )
    threads, streams = config.get("threads"), config.get("streams")
    if threads is not None and streams is not None and int(threads) < int(streams):
        raise RequestError(
            f"{streams} streams cannot share {threads} thread{'' if threads == 1 else 's'}; "
            "set at least as many threads as streams."
        )


@cache
def open_core() -> Any:
    """Return the one Core of this process, which stays open.

    OpenVINO gives the thread a signal stack of its own with each Core. If one of two is closed before the
    other, the thread is left with one that is gone, and the next signal ends the process.
    """
    with without_telemetry():
        import openvino  # optional, and heavy

    return openvino.Core()


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[_Session]:
    """Compile the model.

    Raises:
        RequestError: the device is not there, does not compute in the precision, or cannot run the model.
    """
    core, device = open_core(), _device(str(config.get("device", "cpu")))
    available = core.available_devices
    if device != "AUTO" and device.partition(".")[0] not in {name.partition(".")[0] for name in available}:
        raise RequestError(
            f"OpenVINO finds no device {device} here; available: {', '.join(sorted(available)) or 'none'}."
        )
    properties = {prop: config[knob] for knob, prop in _PROPERTIES.items() if knob in config}
    try:
        compiled = core.compile_model(str(model.value), device, properties)
    except RuntimeError as error:
        raise RequestError(
            f"OpenVINO cannot run {model.value} on {device}: {_reason(error)}; try `backend=onnxruntime`."
        ) from error
    computed = _floating_type(compiled)
    if (precision := config.get("precision", computed)) != computed:
        raise RequestError(
            f"The {device} of this machine does not compute in {precision}: OpenVINO would use {computed} "
            "instead; leave the knob precision out."
        )
    yield _Session(compiled=compiled, converted="" if computed in _UNCONVERTED else computed)


@dataclass(frozen=True, slots=True)
class _Session(LocalSession):
    compiled: Any
    converted: str = ""
    """What floats are computed in, such as bf16; empty if they are left as they are stored."""

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Make the arrays contiguous: a call then reads them where they are."""
        import numpy as np  # slow to import

        dense = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in feed.items()}
        return partial(self.compiled, dense)

    def arrays(self, output: Any) -> Feed:
        """Return the outputs by name, those without one by their place."""
        return {
            port.get_any_name() if port.get_names() else f"output_{place}": array
            for place, (port, array) in enumerate(output.items())
        }


def _device(text: str) -> str:
    """Return OpenVINO's name of a device: ``gpu:1`` is ``GPU.1``."""
    match = _DEVICE.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"The knob device takes a device of OpenVINO, such as cpu or gpu.1, not '{text}'.")
    return match["name"].upper() + (f".{match['index']}" if match["index"] else "")


_PROPERTIES = {
    "threads": "INFERENCE_NUM_THREADS",
    "streams": "NUM_STREAMS",
    "precision": "INFERENCE_PRECISION_HINT",
}
"""Knob to OpenVINO's property."""


def _floating_type(compiled: Any) -> str:
    """Return what floats are computed in, whatever was asked for; empty if it is not known."""
    hint = "INFERENCE_PRECISION_HINT"
    try:
        return str(compiled.get_property(hint).to_string())
    except RuntimeError:  # of AUTO, which answers for each device that it may turn to
        of_devices = compiled.get_property("DEVICE_PROPERTIES").values()
        types = {of_device[hint].to_string() for of_device in of_devices if hint in of_device}
        return types.pop() if len(types) == 1 else ""


def _reason(error: Exception) -> str:
    """Return the last line that OpenVINO says, which is the cause; the others are places in its code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:_MAX_REASON].rstrip(".")
