"""A model as the files that a server loads: the ONNX file itself, TorchScript, or an archive of torch.export.

A torch module is exported, so that the server needs none of its code; `servers.inside_server.runner` runs it
there.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import data
from modeldyno.adapters.backends.output_leaves import leaves
from modeldyno.adapters.backends.served import export_cache
from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.data.torch_signature import Forward
from modeldyno.errors import RequestError
from modeldyno.interfaces import Form
from modeldyno.servers.file_cache import link

if TYPE_CHECKING:
    from torch.nn import Module

    from modeldyno.interfaces import Feed, Model

accepts = frozenset({Form.ONNX, Form.TORCH})
_EXAMPLE = 2
"""Samples of the example that a module is exported with: a size of 1 would be taken for fixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A model on disk, ready for a server."""

    file: str
    """Name of the file in the folder that it was written to."""
    runtime: str
    """What runs it: ``onnxruntime`` or ``torch``."""
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    """With names, dtypes and shapes; dimensions that are free have names."""

    @property
    def batched(self) -> bool:
        """Whether the first axis of every input and output is the batch, of any size."""
        return all(
            each.shape[:1] == (BATCH,) for each in (*self.inputs, *self.outputs) if each.shape is not None
        )


def deploy(model: Model, folder: Path) -> Deployed:
    """Write the model into a folder.

    Raises:
        RequestError: it cannot be written in a form that a server loads.
    """
    return _onnx(model, folder) if model.form == Form.ONNX else _torch(model, folder)


# -- ONNX ----------------------------------------------------------------------------------------


def _onnx(model: Model, folder: Path) -> Deployed:
    import onnx  # noqa: PLC0415 - optional, and heavy

    path = Path(model.value)
    proto = onnx.load(path, load_external_data=False)
    link(path, folder / "model.onnx")
    for name in sorted(_external(proto)):
        link(path.parent / name, folder / name)
    symbols = _batch_symbols(model, proto)
    outputs = tuple(_output(value, symbols) for value in proto.graph.output)
    return Deployed(file="model.onnx", runtime="onnxruntime", inputs=model.inputs, outputs=outputs)


def _external(proto: Any) -> set[str]:
    """Name the files beside the model that hold its weights; none may lie elsewhere."""
    from onnx.external_data_helper import _get_all_tensors  # noqa: PLC0415 - the one walk over all tensors

    names = {
        entry.value
        for tensor in _get_all_tensors(proto)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise RequestError(
                f"The model's data lie outside its own directory, in '{name}'; export it again."
            )
    return names


def _batch_symbols(model: Model, proto: Any) -> set[str]:
    """Find what the file calls the dimension that `Model.inputs` calls the batch."""
    declared = {value.name: value.type.tensor_type.shape.dim for value in proto.graph.input}
    return {
        declared[spec.name][0].dim_param
        for spec in model.inputs
        if spec.shape and spec.shape[0] == BATCH and declared.get(spec.name)
    }


def _output(value: Any, symbols: set[str]) -> InputSpec:
    import onnx  # noqa: PLC0415 - optional, and heavy

    kind = value.type.tensor_type
    if not kind.elem_type:
        raise RequestError(f"The output '{value.name}' is no tensor, and a server answers with tensors only.")
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


def _torch(model: Model, folder: Path) -> Deployed:
    """Export it, or take what was exported of the same model before."""
    import torch  # noqa: PLC0415 - heavy

    example = _example(model, _EXAMPLE)
    inputs = _declared(model, example)
    scripted = isinstance(model.value, torch.jit.ScriptModule)
    file = "model.pt" if scripted else "model.pt2"
    key = export_cache.key(model, inputs, example)
    outputs = export_cache.fetch(key, folder / file)
    if outputs is None:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch deprecates what it still does
            if scripted:
                torch.jit.save(model.value, str(folder / file))
            else:
                _export(model.value, inputs, example, folder / file)
            outputs = _varying(*(_outputs(model, size) for size in (_EXAMPLE, _EXAMPLE + 1)))
        export_cache.store(key, folder / file, outputs)
    return Deployed(file=file, runtime="torch", inputs=inputs, outputs=outputs)


def _example(model: Model, samples: int) -> Feed:
    """Make inputs of so many samples, or of as many as the model takes."""
    unknown = [spec.name for spec in model.inputs if spec.shape is None]
    if model.example is None and (unknown or not model.inputs):
        which = f"input '{unknown[0]}'" if unknown else "its inputs"
        raise RequestError(
            f"The shape of {which} is not known, and a server is told of shapes before it runs; return "
            "example inputs beside the module, or export it to ONNX."
        )
    if nested := next((spec.name for spec in model.inputs if spec.dtype == "object"), ""):
        raise RequestError(
            f"The input '{nested}' is a list or dict, and a server takes tensors only; wrap the module in "
            "one that takes each tensor by itself."
        )
    fixed = any(spec.shape and spec.shape[0] != BATCH for spec in model.inputs)
    return data.build(model, (), batch_size=None if fixed else samples, seed=0).feeds[0]


def _declared(model: Model, example: Feed) -> tuple[InputSpec, ...]:
    """Give the inputs in the order of the example, each with a shape and a dtype."""
    known = {spec.name: spec for spec in model.inputs}
    return tuple(
        known[name]
        if name in known and known[name].shape is not None and known[name].dtype
        else InputSpec(name=name, shape=(BATCH, *array.shape[1:]), dtype=str(array.dtype))
        for name, array in example.items()
    )


def _export(module: Module, inputs: tuple[InputSpec, ...], example: Feed, path: Path) -> None:
    import torch  # noqa: PLC0415 - heavy

    names = tuple(example)

    class Flat(torch.nn.Module):
        """Takes tensors by position and gives a tuple of them: that needs none of the module's classes."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return _called(self.inner, dict(zip(names, tensors, strict=True)))

    auto = torch.export.Dim.AUTO
    dynamic = tuple(
        {axis: auto for axis, size in enumerate(spec.shape or ()) if isinstance(size, str)} for spec in inputs
    )
    tensors = tuple(torch.from_numpy(array) for array in example.values())
    try:
        program = torch.export.export(Flat().eval(), tensors, dynamic_shapes=(dynamic,), strict=False)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RequestError(
            f"torch.export cannot take this module out of Python, which a server needs ({reason}); "
            "export it to ONNX or TorchScript yourself."
        ) from error
    _check_free(program, inputs)
    torch.export.save(program, path)


def _check_free(program: Any, inputs: tuple[InputSpec, ...]) -> None:
    """Refuse an export that takes one size only where the model takes any."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for spec, name in zip(inputs, program.graph_signature.user_inputs, strict=True):
        if spec.shape and spec.shape[0] == BATCH and isinstance(values[name].shape[0], int):
            raise RequestError(
                f"torch.export takes input '{spec.name}' for one of {_EXAMPLE} samples always, as if code "
                "depended on their number; export it to ONNX or TorchScript yourself."
            )


def _called(module: Module, tensors: dict[str, Any]) -> tuple[Any, ...]:
    import torch  # noqa: PLC0415 - heavy

    args, kwargs = Forward.of(module).arguments(tensors)
    return tuple(leaf for _, leaf in leaves(module(*args, **kwargs)) if isinstance(leaf, torch.Tensor))


def _outputs(model: Model, samples: int) -> tuple[tuple[str, Any], ...]:
    import torch  # noqa: PLC0415 - heavy

    tensors = {name: torch.from_numpy(array) for name, array in _example(model, samples).items()}
    args, kwargs = Forward.of(model.value).arguments(tensors)
    found = leaves(model.value(*args, **kwargs))
    return tuple((name, leaf) for name, leaf in found if isinstance(leaf, torch.Tensor))


def _varying(two: tuple[tuple[str, Any], ...], three: tuple[tuple[str, Any], ...]) -> tuple[InputSpec, ...]:
    """Describe the outputs of two batches: what differs is free."""
    return tuple(
        InputSpec(
            name=name,
            shape=tuple(
                (BATCH if axis == 0 else f"dim{axis}") if one != other or axis else one
                for axis, (one, other) in enumerate(zip(first.shape, second.shape, strict=True))
            ),
            dtype=str(first.dtype).removeprefix("torch."),
        )
        for (name, first), (_, second) in zip(two, three, strict=True)
    )
