"""``modeldyno.registry.open_model``: call a model from one's own code, as it was measured or converted."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import configure
from modeldyno.conversion.agreement.conversion import Converted
from modeldyno.conversion.reference import STEADY
from modeldyno.engine.interfaces.session import CanCall
from modeldyno.models.interface import Form
from modeldyno.profiling.api.arrays import to_array
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.registry.records.answer import RegistryAnswer

if TYPE_CHECKING:
    import numpy as np

    from modeldyno.base.job.knob import KnobValue

_BATCH = "batch_size"
"""A setting of what was measured that the caller's arrays decide here."""


class OpenModel:
    """A model that is loaded and can be called; a ``with`` block, or `close`, gives back what it holds."""

    def __init__(self, reference: str, backend: str, settings: dict[str, KnobValue], *, trust: bool) -> None:
        """Load the model.

        Args:
            reference: of the model.
            backend: what runs it; empty for that of its format.
            settings: knobs of the backend; it computes in full precision unless they say otherwise, as it
                does where forms are compared.
            trust: allow files that run code when loaded.
        """
        ref = resolve_reference(reference)
        loader = plugins.loader(ref.scheme)
        self.backend = backend or loader.backend
        if loader.backend == Form.REMOTE:
            raise RequestError(f"{reference} is on a server, which is called by its protocol.")
        if plugins.serves(self.backend):
            raise RequestError(f"The backend '{self.backend}' starts a server; start it with serve(model).")
        runtime = plugins.backend(self.backend)
        self.settings = configure(runtime.knobs, STEADY.get(self.backend, {}) | settings)
        model = loader.load(ref, seed=0, trust=trust)
        if model.form not in runtime.accepts:
            raise RequestError(f"The backend '{self.backend}' does not run {reference}; leave backend= out.")
        self._held = ExitStack()
        session: object = self._held.enter_context(runtime.open(model, self.settings))
        assert isinstance(session, CanCall)  # as it starts no server
        self.reference, self._session = str(ref), session
        self.inputs = tuple(spec.name for spec in (*model.inputs, *model.optional))
        """Names of the inputs, in order."""

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Call the model with arrays or tensors, in order or by name; return its outputs by name.

        The first axis is the batch. Arrays are copied to the device and back, and one call is made.

        Raises:
            RequestError: an array has no input, an input has no such name, or is given twice.
        """
        if len(arrays) > len(self.inputs):
            raise RequestError(
                f"{self.reference} takes {', '.join(self.inputs) or 'no input'}, not {len(arrays)} arrays."
            )
        in_order = dict(zip(self.inputs, arrays, strict=False))
        if twice := in_order.keys() & named.keys():
            raise RequestError(f"The input '{min(twice)}' is given twice.")
        if unknown := [name for name in named if name not in self.inputs]:
            raise UnknownName.among("input", unknown[0], self.inputs)
        feed = {name: to_array(value) for name, value in (in_order | named).items()}
        return dict(self._session.arrays(self._session.prepare(feed)()))

    def close(self) -> None:
        """Give back what the model holds."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OpenModel: {self.reference} on {self.backend}>"


@reword_errors
def open_model(
    model: str | Path | Converted | RegistryAnswer,
    *,
    backend: str | None = None,
    trust: bool = False,
    **settings: Any,
) -> OpenModel:
    """Load a model in this process, to call it with the settings with which it was measured.

    Args:
        model: a path, a reference or a registered name, a form of a conversion (``conversion["openvino"]``),
            or what `answer` has found: the variant and the settings of its best figure.
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
    else:
        if not isinstance(model, str | Path):
            raise RequestError(f"A {type(model).__name__} of this process is open already: call it.")
        reference = str(model)
    return OpenModel(reference, backend or "", chosen, trust=trust)
