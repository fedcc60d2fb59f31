"""Profilers of models of one framework; what they share and what differs is in `frameworks`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from modeldyno.compat.deeplite.forward_pass import DataLoader, ForwardPass
from modeldyno.compat.deeplite.frameworks import FILE, KERAS, TORCH, Framework
from modeldyno.compat.deeplite.profiler import MetricProfiler
from modeldyno.compat.deeplite.status_metrics import InvalidStatus

if TYPE_CHECKING:
    from typing import ClassVar


class _FrameworkProfiler(MetricProfiler):
    _framework: ClassVar[Framework]
    _models: ClassVar[str]

    def __init__(self, model: Any, data_splits: Mapping[str, Any] | None, *more: Any, **named: Any) -> None:
        super().__init__(model, data_splits, *more, **named)
        if not self._framework.claims(model):
            raise InvalidStatus(
                f"{type(self).__name__} takes {self._models}, not {type(model).__name__}; MetricProfiler "
                "takes any model."
            )

    @classmethod
    def dl_cls(cls) -> type[DataLoader]:
        """Return the class of loaders."""
        return DataLoader

    @classmethod
    def fp_cls(cls) -> type[ForwardPass]:
        """Return the class of forward passes."""
        return ForwardPass

    @classmethod
    def enable_forward_pass_data_splits(
        cls,
        data_splits: Mapping[str, Any],
        forward_pass: ForwardPass | Mapping[str, ForwardPass] | None = None,
    ) -> dict[str, DataLoader]:
        """Return the splits as loaders with a forward pass, by default one for batches of (inputs, labels).

        Args:
            data_splits: a loader by name of split.
            forward_pass: one of which each split gets a copy, or one for each by its name.
        """
        if isinstance(forward_pass, Mapping):
            return {name: cls.dl_cls()(dl, forward_pass.get(name)) for name, dl in data_splits.items()}
        chosen = forward_pass or cls.fp_cls()(model_input_pattern=(0, "_"))
        return {name: cls.dl_cls()(dl, copy(chosen)) for name, dl in data_splits.items()}


class TorchProfiler(_FrameworkProfiler):
    """A MetricProfiler of a ``torch.nn.Module``; data splits hold loaders of (inputs, labels)."""

    backend = "TorchBackend"
    _framework, _models = TORCH, "a torch.nn.Module"


class TFProfiler(_FrameworkProfiler):
    """A MetricProfiler of a model of Keras 3, on TensorFlow, PyTorch or JAX.

    Data splits hold ``tf.data.Dataset`` or other iterables of batches (inputs, labels).
    """

    backend = "TFBackend"
    _framework, _models = KERAS, "a model of Keras 3"


KerasProfiler = TFProfiler


class TFLiteProfiler(_FrameworkProfiler):
    """A MetricProfiler of a ``.tflite`` file, given by its path, which LiteRT runs on the processor."""

    backend = "TFLiteBackend"
    _framework, _models = FILE, "the path of a .tflite file"
