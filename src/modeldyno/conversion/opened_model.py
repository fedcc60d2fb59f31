"""A model that is loaded in this process and can be called, as it was measured or converted."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import configure
from modeldyno.conversion.reference import STEADY
from modeldyno.conversion.stand_in import make_stand_in
from modeldyno.engine.interfaces.session import LocalSession
from modeldyno.models.interface import Form
from modeldyno.profiling.api.arrays import to_array
from modeldyno.profiling.packages import read_samples
from modeldyno.profiling.resolve_model import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from modeldyno.base.job.knob import KnobValue


Returned = TypeVar("Returned")


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
        resolved = resolve_model(reference)
        ref = resolved.ref
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
        # What backends set of a thread, such as torch's inference mode, does not reach that of the caller.
        self._thread, self._process = ThreadPoolExecutor(1, "modeldyno-open-model"), os.getpid()
        self._held = ExitStack()
        try:
            session: object = self._in_thread(
                lambda: self._held.enter_context(runtime.open(model, self.settings))
            )
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        assert isinstance(session, LocalSession)  # as it starts no server
        self.reference, self._session = ref.argument, session
        self.inputs = tuple(spec.name for spec in (*model.inputs, *model.optional))
        """Names of the inputs, in order."""
        self._samples = read_samples(resolved.inputs)

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Call the model with arrays or tensors, in order or by name; return its outputs by name.

        The first axis is the batch. Arrays are copied to the device and back, and one call is made.

        Raises:
            RequestError: an array has no input, an input has no such name, or is given twice; the model is
                closed, or was opened in another process.
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
        session = self._session
        return self._in_thread(lambda: dict(session.arrays(session.prepare(feed)())))

    def _in_thread(self, call: Callable[[], Returned]) -> Returned:
        """Call in the thread of this model."""
        if os.getpid() != self._process:  # a fork has no thread but that which forked
            raise RequestError("The model was opened in another process; open it in this one.")
        try:
            answer = self._thread.submit(call)
        except RuntimeError:
            raise RequestError("The model is closed; open it again.") from None
        return answer.result()

    def as_module(self, like: Any = None, example: Any = None) -> Any:
        """Return a ``torch.nn.Module`` that calls this model: tensors in, tensors out, without gradients.

        Put it where the original was: ``pipe.unet = open_model("unet.zip").as_module(pipe.unet)``.

        Args:
            like: the original module. Calls take its arguments and return what it returns: a tuple, a dict, a
                class of its own; attributes that are not of the new module are its own.
            example: what the original is called with once, to see what it returns: an array, a tuple of them,
                or a dict by name. A package of `optimize` has one.

        Raises:
            RequestError: the original returns another number of tensors, or there is no example for it.
        """
        return make_stand_in(self, like, self._samples if example is None else example)

    def close(self) -> None:
        """Give back what the model holds."""
        with suppress(RequestError):  # it is closed, or of another process
            self._in_thread(self._held.close)
            self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OpenModel: {self.reference} on {self.backend}>"
