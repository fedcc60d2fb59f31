"""TensorFlow Lite backend: runs .tflite files with the interpreter of LiteRT, on the processor.

A call copies the inputs into the interpreter, runs it, and copies the outputs, as its users do. Operators
that XNNPACK knows run there, as by default. A change of the batch size plans the memory anew.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, short_reason
from modeldyno.base.job.input_spec import symbols_of
from modeldyno.base.job.knob import BATCH_SIZE, Knob, count_knob
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ("ai_edge_litert",)
accepts = frozenset({Form.TFLITE})
knobs: tuple[Knob, ...] = (
    count_knob(
        "threads",
        "Threads of the interpreter; its default is one.",
        aliases=("num_threads",),
    ),
    BATCH_SIZE,
)
space = ("batch_size=1..32*2", "threads=1..{cores}*2")


class TfliteSession(LocalSession):
    """An interpreter, and the inputs of its file by name."""

    def __init__(self, interpreter: Any, names: tuple[str, ...]) -> None:
        self._interpreter = interpreter
        self._places = {
            name: int(detail["index"])
            for name, detail in zip(names, interpreter.get_input_details(), strict=True)
        }
        self._shapes: dict[str, tuple[int, ...]] = {}

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the inputs; a call returns copies of the outputs by name."""
        import numpy as np  # slow to import

        arrays = {name: np.array(array, order="C") for name, array in feed.items()}
        shapes = {name: array.shape for name, array in arrays.items()}

        def run() -> Feed:
            if shapes != self._shapes:
                for name, shape in shapes.items():
                    self._interpreter.resize_tensor_input(self._places[name], shape)
                self._interpreter.allocate_tensors()
                self._shapes = shapes
            for name, array in arrays.items():
                self._interpreter.set_tensor(self._places[name], array)
            self._interpreter.invoke()
            return {
                detail["name"]: self._interpreter.get_tensor(detail["index"])
                for detail in self._interpreter.get_output_details()
            }

        return run

    def arrays(self, output: Any) -> Feed:
        """Return the outputs by name."""
        return dict(output)


def check(config: Mapping[str, KnobValue]) -> None:
    """Accept every configuration: no knob excludes another."""
    del config


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[TfliteSession]:
    """Read the file; memory is planned by the first call.

    Raises:
        RequestError: LiteRT cannot read it, or lacks one of its operators.
    """
    from ai_edge_litert.interpreter import Interpreter  # optional, and heavy

    threads = config.get("threads")
    try:
        interpreter = Interpreter(
            model_path=str(model.value), num_threads=None if threads is None else int(threads)
        )
        if not any(symbols_of(spec) for spec in model.inputs):  # else the sizes of the file may not fit
            interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise RequestError(
            f"LiteRT cannot run {model.value}: {short_reason(error)}; convert it with built-in operators "
            "only."
        ) from error
    yield TfliteSession(interpreter, tuple(spec.name for spec in model.inputs))
