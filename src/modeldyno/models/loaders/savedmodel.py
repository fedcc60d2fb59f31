"""``savedmodel:folder`` and ``savedmodel:folder#signature``: a SavedModel of TensorFlow, by its signature.

Its graph may read and write files when it is called. Variables that were saved as trainable are parameters,
others buffers: a SavedModel does not tell frozen weights from moving averages.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName, short_reason
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.size_guesses import guess_sizes
from modeldyno.models.interface import Executes, Form, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest
from modeldyno.models.static.graph import Tensor
from modeldyno.models.static.weights import Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.models.interface import Tracing
    from modeldyno.models.static.graph import Graph

requires: tuple[str, ...] = ("tensorflow",)
executes = Executes.NAMED
backend = "tensorflow"

_GRAPH = "saved_model.pb"
_USUAL = "serving_default"


def claims(path: Path) -> bool:
    """Claim a folder that holds the graph of a SavedModel."""
    return (path / _GRAPH).is_file()


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the folder.

    Raises:
        RequestError: the folder is missing or damaged, or has no such signature.
    """
    del seed, trust  # its weights are in the files, and no Python code is
    locator, _, signature = ref.locator.partition("#")
    path = Path(locator)
    if not claims(path):
        raise RequestError(f"'{path}' holds no {_GRAPH}; give the folder of a SavedModel.")
    function = _read(path, signature)
    inputs = tuple(_inputs(function))
    files = [file for file in path.rglob("*") if file.is_file()]
    with describing():
        return Model(
            identity=ModelIdentity(
                name=path.resolve().name,
                digest=digest.digest_parts((function.name, digest.digest_files(files))),
                framework="tensorflow",
            ),
            form=Form.TENSORFLOW,
            value=function,
            inputs=inputs,
            weights=lambda: tuple(_weights(function)),
            graph=lambda tracing: _trace(function, tracing),
            guesses=partial(guess_sizes, inputs),
            file_bytes=sum(file.stat().st_size for file in files),
        )


look = load
"""Nothing is known of such a model without loading it."""


@dataclass(frozen=True, eq=False)
class _Signature:
    """A signature, and the model whose variables live as long as it does."""

    model: Any
    name: str
    folder: Path
    """Of its files."""

    @property
    def function(self) -> Any:
        """The function of the signature, which takes tensors by keyword."""
        return self.model.signatures[self.name]

    def __call__(self, **named: Any) -> Any:
        """Call the signature."""
        return self.function(**named)


def _read(path: Path, signature: str) -> _Signature:
    import tensorflow as tf  # optional, and heavy

    _know_optimizers()
    try:
        model = tf.saved_model.load(str(path))
    except Exception as error:
        raise RequestError(
            f"TensorFlow {tf.__version__} cannot load '{path}': {short_reason(error)}; save it again."
        ) from error
    names = tuple(model.signatures)
    if not names:
        raise RequestError(
            f"'{path}' has no signature to call; save it with signatures=, or with model.export of Keras."
        )
    name = signature or (_USUAL if _USUAL in names else names[0])
    if name not in names:
        raise UnknownName.among("signature", name, names)
    return _Signature(model, name, path)


def _know_optimizers() -> None:
    """Have TensorFlow load optimizers of Keras 2 that were saved with a model; Keras 3 does not."""
    import tensorflow as tf  # optional, and heavy

    loading = tf.__internal__.saved_model.load
    if _OPTIMIZER in loading.registered_identifiers() or importlib.util.find_spec("tf_keras"):
        return  # that package registers its own when it is needed

    class Optimizer(tf.Module):  # type: ignore[misc]  # tensorflow is optional
        """Has what the moments of weights are restored into."""

        def add_slot(self, var: Any, slot_name: str, **_: Any) -> Any:
            return tf.Variable(tf.zeros_like(var), name=slot_name)

    version = loading.VersionedTypeRegistration(
        object_factory=lambda _: Optimizer(), version=2, min_producer_version=1, min_consumer_version=1
    )
    loading.register_revived_type(_OPTIMIZER, lambda value: isinstance(value, Optimizer), [version])


_OPTIMIZER = "optimizer"


def _inputs(signature: _Signature) -> Iterator[InputSpec]:
    for name, spec in signature.function.structured_input_signature[1].items():
        shape = None
        if spec.shape.rank is not None:
            shape = tuple(
                size if size is not None else f"{name}_dim{axis}" if axis else BATCH
                for axis, size in enumerate(spec.shape)
            )
        yield InputSpec(name=name, shape=shape, dtype=spec.dtype.name)


def _weights(signature: _Signature) -> Iterator[Weight]:
    for index, variable in enumerate(signature.function.variables):
        tensor = Tensor(tuple(variable.shape), variable.dtype.name)
        name = variable.name.removesuffix(":0").replace(".", "_").replace("/", ".")
        yield Weight(
            name=name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            size=tensor.size,
            bytes=tensor.bytes,
            storage=f"variable {index}",
            parameter=variable.trainable,
            trainable=variable.trainable,
        )


def _trace(signature: _Signature, tracing: Tracing) -> Graph:
    from modeldyno.models.loaders.tensorflow_tracing import trace_function  # heavy

    return trace_function(signature, tracing, {}, _scope)


def _scope(name: str) -> str:
    """Return the name scope of an operator, as a path."""
    return ".".join(name.replace(".", "_").split("/")[:-1])
