"""``modeldyno.open_model``: call a model from one's own code, as it was measured or converted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.comparison.change.choice import Optimized
from modeldyno.conversion.agreement.conversion import Converted
from modeldyno.conversion.opened_model import OpenModel
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.registry.records.answer import RegistryAnswer

if TYPE_CHECKING:
    from modeldyno.base.job.knob import KnobValue

_BATCH = "batch_size"
"""A setting of what was measured that the caller's arrays decide here."""


@reword_errors
def open_model(
    model: str | Path | Converted | Optimized | RegistryAnswer,
    *,
    backend: str | None = None,
    trust: bool = False,
    **settings: Any,
) -> OpenModel:
    """Load a model in this process, to call it with the settings with which it was measured.

    Args:
        model: a path, a reference, a registered name, or a package of `optimize`; what `optimize` has
            returned, a form of a conversion (``conversion["openvino"]``), or what `answer` has found: the
            variant and the settings of its best figure.
        backend: what runs it; by default that of its format, or of the answer.
        trust: allow files that run code when loaded.
        **settings: knobs of the backend, such as ``threads=2``; they replace those of an answer. It computes
            in full precision unless they say otherwise, as it does where forms are compared.

    Returns:
        The model: ``open_model("m.onnx")(x)`` gives its outputs by name.

    Raises:
        RequestError: there is no such model, a form is not the model any more, an answer found nothing, or
            what was found is served.
        MissingExtra: the backend is not installed.
    """
    chosen: dict[str, KnobValue] = dict(settings)
    if isinstance(model, RegistryAnswer):
        if model.best is None:
            raise RequestError(f"There is no answer for {model.model}: {model.state}; measure it first.")
        figure = model.best.figure
        if figure.measure.concurrency is not None:
            raise RequestError(
                f"The answer for {model.model} is a server; export it, or start it with serve(model)."
            )
        backend = backend or figure.measure.backend or None
        measured = {name: value for name, value in figure.measure.settings.items() if name != _BATCH}
        chosen = measured | chosen
        name = f"{figure.model}/{figure.number}"
        reference = name if figure.recipe == "source" else f"{name} {figure.recipe}"
    elif isinstance(model, Converted):
        if not model.usable:
            raise RequestError(
                f"The form {model.recipe} is not the model ({model.verdict}); open one that agrees."
            )
        reference = model.path
    elif isinstance(model, Optimized):
        if not model.path:
            raise RequestError(f"No form of {model.conversion.name} was chosen; call the model itself.")
        reference = model.path
    else:
        if not isinstance(model, str | Path):
            raise RequestError(f"A {type(model).__name__} of this process is open already: call it.")
        reference = str(model)
    return OpenModel(reference, backend or "", chosen, trust=trust)
