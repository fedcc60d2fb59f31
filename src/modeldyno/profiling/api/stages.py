"""Stages around a model: what makes its inputs, and what is made of its outputs, measured with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.metric import CALL_SCOPES
from modeldyno.profiling.api.profile import profile
from modeldyno.profiling.api.result_dict import Figures, Section

if TYPE_CHECKING:
    from collections.abc import Mapping

_MS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """The functions before and after a model; None where there is none."""

    preprocess: Callable[[Any], Any] | None = None
    postprocess: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no function.

        Raises:
            RequestError: it is none.
        """
        for name, function in (("preprocess", self.preprocess), ("postprocess", self.postprocess)):
            if function is not None and not callable(function):
                raise RequestError(f"{name} takes a function, not {function!r}.")

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

    def add_to(self, figures: Figures, raw: Any, model: Any, arguments: Mapping[str, Any]) -> Figures:
        """Measure calls end to end in this process; add the section ``stages``: means in ms, and their sum.

        Args:
            figures: of the model.
            raw: what `preprocess` is called with.
            model: a reference or a live object.
            arguments: those of `profile` for its inputs and knobs, and how carefully to measure.

        Raises:
            RequestError: a function fails.
        """
        options = dict(arguments)
        if self.preprocess is not None:
            options["example"] = raw
            options.pop("inputs", None)
        result = profile(
            model, pre=self.preprocess, post=self.postprocess, probes="stages", inline=True, store=False,
            progress=False, **options,
        )  # fmt: skip
        if result.failure is not None:
            raise RequestError(f"A function around the model failed: {result.failure.message}.")
        scopes = [str(scope) for scope in CALL_SCOPES if result.find("latency", scope)]
        means = {scope: result[f"latency.mean@{scope}"] for scope in scopes}
        stages = {scope: mean * _MS for scope, mean in means.items() if mean is not None}
        return figures.with_sections({"stages": Section(stages)})
