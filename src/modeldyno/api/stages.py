"""Stages around a model: what makes its inputs, and what is made of its outputs, measured with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from modeldyno.api.profile import profile
from modeldyno.api.result_dict import Figures, Section
from modeldyno.core.stats.statistics import load_numpy
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.core.metrics.measurement_plan import Plan

_MS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """The functions before and after a model; None where there is none."""

    preprocess: Callable[[Any], Any] | None = None
    postprocess: Callable[[Any], Any] | None = None

    def __bool__(self) -> bool:
        return self.preprocess is not None or self.postprocess is not None

    def prepare(self, raw: Any) -> Any:
        """Return the inputs of the model that `preprocess` makes.

        Raises:
            RequestError: there is nothing that it could make them of.
        """
        if self.preprocess is None:
            return raw
        if raw is None:
            raise RequestError("preprocess makes inputs of input_data; give some to profile().")
        return self.preprocess(raw)

    def add_to(self, figures: Figures, raw: Any, outputs: Callable[[], Any], plan: Plan) -> Figures:
        """Measure the functions in this process, and add the section ``stages``: means in ms, and their sum.

        Args:
            figures: of the model.
            raw: what `preprocess` is called with.
            outputs: returns what `postprocess` is called with.
            plan: how carefully to measure.

        Raises:
            RequestError: a function fails.
        """
        stages: dict[str, float] = {}
        if self.preprocess is not None:
            stages["preprocess"] = _mean("preprocess", lambda: self.preprocess(raw), plan)  # type: ignore[misc]
        stages["model"] = figures["latency"]["mean"]
        if self.postprocess is not None:
            given = outputs()
            stages["postprocess"] = _mean("postprocess", lambda: self.postprocess(given), plan)  # type: ignore[misc]
        stages["end_to_end"] = sum(stages.values())
        return figures.with_sections({"stages": Section(stages)})


def _mean(name: str, function: Callable[[], Any], plan: Plan) -> float:
    """Return the mean milliseconds of a function."""
    result = profile(
        function, probes=("latency",), plan=replace(plan, processes=1), store=False, progress=False, name=name
    )
    if result.failure is not None:
        raise RequestError(f"{name} failed: {result.failure.message}.")
    mean = result["latency.mean"]
    assert mean is not None
    return mean * _MS


def read_outputs(path: Path) -> Any:
    """Return the outputs in a file that ``profile(outputs=)`` wrote: the only one, or a dict by name."""
    with load_numpy().load(path) as file:
        arrays = {name.partition("/")[2]: file[name] for name in file.files if name.startswith("output")}
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays
