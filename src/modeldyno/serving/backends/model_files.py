"""Writes a model as files for a server: the ONNX file itself, TorchScript, or a torch.export archive.

A torch module is exported, so that the server does not need its code; `serving.servers.inside_server.runner`
runs it there.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.engine.backends.output_leaves import leaves
from modeldyno.engine.data.batches import build_payloads
from modeldyno.models.interface import Form
from modeldyno.models.static.source_line import PADDED_INSTEAD, describe_packed_layer
from modeldyno.models.torch_signature import Forward
from modeldyno.serving.backends import export_cache
from modeldyno.serving.servers.file_cache import link_or_copy

if TYPE_CHECKING:
    from torch.nn import Module

    from modeldyno.models.interface import Feed, Model

accepts = frozenset({Form.ONNX, Form.TORCH})
_EXAMPLE_SAMPLES = 2
"""Samples of the example input for the export: torch.export would specialise on a size of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedModel:
    """A model's files on disk, ready for a server."""

    file: str
    """Name of the file in the folder that it was written to."""
    runtime: str
    """Runtime that runs it: ``onnxruntime`` or ``torch``."""
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    """With names, dtypes and shapes; dynamic dimensions have names."""

    @property
    def batched(self) -> bool:
        """Whether the first axis of every input and output is a dynamic batch axis."""
        return all(
            spec.shape[:1] == (BATCH,) for spec in (*self.inputs, *self.outputs) if spec.shape is not None
        )


def deploy(model: Model, folder: Path) -> DeployedModel:
    """Write the model into a folder.

    Raises:
        RequestError: the model cannot be written in a format that a server loads.
    """
    return _deploy_onnx(model, folder) if model.form == Form.ONNX else _deploy_torch(model, folder)


# -- ONNX ----------------------------------------------------------------------------------------


def _deploy_onnx(model: Model, folder: Path) -> DeployedModel:
    import onnx  # optional, and heavy

    path = Path(model.value)
    proto = onnx.load(path, load_external_data=False)
    link_or_copy(path, folder / "model.onnx")
    for name in sorted(_external_data_files(proto)):
        link_or_copy(path.parent / name, folder / name)
    symbols = _batch_symbols(model, proto)
    outputs = tuple(_output_spec(value, symbols) for value in proto.graph.output)
    return DeployedModel(file="model.onnx", runtime="onnxruntime", inputs=model.inputs, outputs=outputs)


def _external_data_files(proto: Any) -> set[str]:
    """Return the names of the external data files; refuse those outside of the model's directory."""
    from onnx.external_data_helper import _get_all_tensors  # visits all tensors

    names = {
        entry.value
        for tensor in _get_all_tensors(proto)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise RequestError(
                f"The model's external data are outside of its directory, in '{name}'; export it again."
            )
    return names


def _batch_symbols(model: Model, proto: Any) -> set[str]:
    """Return the file's symbols for the dimension that `Model.inputs` calls the batch."""
    declared = {value.name: value.type.tensor_type.shape.dim for value in proto.graph.input}
    return {
        declared[spec.name][0].dim_param
        for spec in model.inputs
        if spec.shape and spec.shape[0] == BATCH and declared.get(spec.name)
    }


def _output_spec(value: Any, symbols: set[str]) -> InputSpec:
    import onnx  # optional, and heavy

    kind = value.type.tensor_type
    if not kind.elem_type:
        raise RequestError(
            f"The output '{value.name}' is not a tensor, and a server can only return tensors."
        )
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    shape = tuple(
        dim.dim_value or (BATCH if axis == 0 and dim.dim_param in symbols else dim.dim_param or f"dim{axis}")
        for axis, dim in enumerate(kind.shape.dim)
    )
    return InputSpec(
        name=value.name,
        shape=shape if kind.HasField("shape") else None,
        dtype="string" if dtype == "object" else dtype,
    )


# -- torch ---------------------------------------------------------------------------------------


def _deploy_torch(model: Model, folder: Path) -> DeployedModel:
    """Export the module, or reuse a cached export of the same model."""
    example = _example_inputs(model, _EXAMPLE_SAMPLES)
    inputs = _input_specs(model, example)
    if isinstance(model.value, export_cache.Recalled):
        file = model.value.file
        outputs = export_cache.fetch(export_cache.key(model, inputs, example), folder / file)
        if outputs is None:
            return _deploy_torch(model.value.load(), folder)
        return DeployedModel(file=file, runtime="torch", inputs=inputs, outputs=outputs)
    import torch  # heavy

    scripted = isinstance(model.value, torch.jit.ScriptModule)
    file = "model.pt" if scripted else "model.pt2"
    key = export_cache.key(model, inputs, example)
    outputs = export_cache.fetch(key, folder / file)
    if outputs is None:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # deprecation warnings of torch's own code
            if scripted:
                torch.jit.save(model.value, str(folder / file))
            else:
                _export(model.value, inputs, example, folder / file)
            outputs = _output_specs(
                *(_run_outputs(model, size) for size in (_EXAMPLE_SAMPLES, _EXAMPLE_SAMPLES + 1))
            )
        export_cache.store(key, folder / file, outputs)
    export_cache.remember(model, folder / file)
    return DeployedModel(file=file, runtime="torch", inputs=inputs, outputs=outputs)


def _example_inputs(model: Model, samples: int) -> Feed:
    """Build inputs of so many samples, or of the model's fixed batch size."""
    unknown = [spec.name for spec in model.inputs if spec.shape is None]
    if model.example is None and (unknown or not model.inputs):
        which = f"input '{unknown[0]}'" if unknown else "its inputs"
        raise RequestError(
            f"The shape of {which} is unknown, and a server needs it in advance; return "
            "example inputs along with the module, or export it to ONNX."
        )
    if nested := next((spec.name for spec in model.inputs if spec.dtype == "object"), ""):
        raise RequestError(
            f"The input '{nested}' is a list or dict, and a server takes tensors only; wrap the module in "
            "one that takes each tensor as an input of its own."
        )
    fixed = any(spec.shape and spec.shape[0] != BATCH for spec in model.inputs)
    return build_payloads(model, (), batch_size=None if fixed else samples, seed=0).feeds[0]


def _input_specs(model: Model, example: Feed) -> tuple[InputSpec, ...]:
    """Return the inputs in the order of the example, each with a shape and a dtype."""
    declared = {spec.name: spec for spec in model.inputs}
    return tuple(
        declared[name]
        if name in declared and declared[name].shape is not None and declared[name].dtype
        else InputSpec(name=name, shape=(BATCH, *array.shape[1:]), dtype=str(array.dtype))
        for name, array in example.items()
    )


def _export(module: Module, inputs: tuple[InputSpec, ...], example: Feed, path: Path) -> None:
    import torch  # heavy

    names = tuple(example)

    class Flat(torch.nn.Module):
        """Takes tensors by position and returns a tuple of tensors: loading that needs no user classes."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return _call(self.inner, dict(zip(names, tensors, strict=True)))

    auto = torch.export.Dim.AUTO
    dynamic = tuple(
        {axis: auto for axis, size in enumerate(spec.shape or ()) if isinstance(size, str)} for spec in inputs
    )
    tensors = tuple(torch.from_numpy(array) for array in example.values())
    try:
        program = torch.export.export(Flat().eval(), tensors, dynamic_shapes=(dynamic,), strict=False)
    except Exception as error:
        if packed := describe_packed_layer(error):
            raise RequestError(f"{packed}; for a server {PADDED_INSTEAD}.") from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RequestError(
            f"torch.export cannot export this module for a server ({reason}); "
            "export it to ONNX or TorchScript yourself."
        ) from error
    _check_dynamic_batch(program, inputs)
    torch.export.save(program, path)


def _check_dynamic_batch(program: Any, inputs: tuple[InputSpec, ...]) -> None:
    """Refuse an export with a fixed batch size of a model that takes any."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for spec, name in zip(inputs, program.graph_signature.user_inputs, strict=True):
        if spec.shape and spec.shape[0] == BATCH and isinstance(values[name].shape[0], int):
            raise RequestError(
                f"torch.export fixed input '{spec.name}' to {_EXAMPLE_SAMPLES} samples, as if the code "
                "depended on their number; export it to ONNX or TorchScript yourself."
            )


def _call(module: Module, tensors: dict[str, Any]) -> tuple[Any, ...]:
    import torch  # heavy

    args, kwargs = Forward.of(module).arguments(tensors)
    return tuple(leaf for _, leaf in leaves(module(*args, **kwargs)) if isinstance(leaf, torch.Tensor))


def _run_outputs(model: Model, samples: int) -> tuple[tuple[str, Any], ...]:
    import torch  # heavy

    tensors = {name: torch.from_numpy(array) for name, array in _example_inputs(model, samples).items()}
    args, kwargs = Forward.of(model.value).arguments(tensors)
    outputs = leaves(model.value(*args, **kwargs))
    return tuple((name, leaf) for name, leaf in outputs if isinstance(leaf, torch.Tensor))


def _output_specs(
    outputs: tuple[tuple[str, Any], ...], other_outputs: tuple[tuple[str, Any], ...]
) -> tuple[InputSpec, ...]:
    """Derive output specs from two batch sizes: dimensions that differ are dynamic."""
    return tuple(
        InputSpec(
            name=name,
            shape=tuple(
                (BATCH if axis == 0 else f"dim{axis}") if one != other or axis else one
                for axis, (one, other) in enumerate(zip(first.shape, second.shape, strict=True))
            ),
            dtype=str(first.dtype).removeprefix("torch."),
        )
        for (name, first), (_, second) in zip(outputs, other_outputs, strict=True)
    )
