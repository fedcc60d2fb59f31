"""Builds engines of TensorRT and of TensorRT for RTX from the ONNX file of a source."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import CannotRunHere
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.conversion.converters import onnx_fp16
from modeldyno.conversion.converters.onnx_float_file import SOURCES, float_file
from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models import tensorrt_engine

if TYPE_CHECKING:
    from modeldyno.conversion.interface import ConversionSource
    from modeldyno.models.tensorrt_engine import Package

FILE = "model.engine"
LARGEST_BATCH = 32
"""The largest batch of an engine whose batch is free."""
_WIDEST = 4
"""The largest size of another free dimension, in usual ones, unless the model has a limit."""


def sources_of(package: str) -> dict[str, tuple[str, ...]]:
    """Return the kinds of source, with the importable names that a build and the check after it need."""
    return {kind: (*modules, package, "cuda") for kind, modules in SOURCES.items()}


def build_engine(
    source: ConversionSource, path: Path, *, opset: int | None, package: str, half: bool
) -> ConvertedFile:
    """Write an engine, which computes in float32 and not in TF32 unless in half, and its inputs beside it.

    Args:
        source: the model; its ONNX file is made first, unless it is one.
        path: where to write.
        opset: of that ONNX file.
        package: importable name of the package that builds.
        half: whether to compute in half precision, from an ONNX file in it.

    Raises:
        CannotRunHere: the package builds on the GPU that the engine is for, and there is none.
        RuntimeError: TensorRT does not build it, with what it says.
    """
    builds_with = tensorrt_engine.import_package(package)
    with tempfile.TemporaryDirectory(prefix="modeldyno-tensorrt-") as folder:
        if half:
            graph = Path(folder) / "half.onnx"
            programs: tuple[str, ...] = (onnx_fp16.convert(source, graph, opset=opset).converter,)
        else:
            graph, programs = float_file(source, folder, opset)
        builds_with.log.messages.clear()
        engine = _build(builds_with, graph, source, half=half)
    path.write_bytes(engine)
    tensorrt_engine.write_inputs(path, source.inputs)
    return ConvertedFile(converter=", ".join((*programs, builds_with.name)))


def _build(package: Package, graph: Path, source: ConversionSource, *, half: bool) -> Any:
    api = package.api
    try:
        builder = api.Builder(package.log)
    except (TypeError, RuntimeError) as error:  # pybind11, of a constructor that returned nothing
        raise CannotRunHere(
            f"{package.name} builds an engine on the NVIDIA GPU that it is for, and can use none here: "
            f"{package.last_error()}."
        ) from error
    network = builder.create_network(_network_flags(api))
    parser = api.OnnxParser(network, package.log)
    if not parser.parse_from_file(str(graph)):
        raise RuntimeError("\n".join(_parse_errors(parser, graph)) or package.last_error())
    settings = builder.create_builder_config()
    flags = api.BuilderFlag
    with suppress(AttributeError):  # a newer version reads all types from the graph
        settings.clear_flag(flags.TF32)
    if half and hasattr(flags, "FP16"):
        settings.set_flag(flags.FP16)
    _add_sizes(builder, network, settings, source)
    engine = builder.build_serialized_network(network, settings)
    if engine is None:
        raise RuntimeError(package.last_error())
    return engine


def _network_flags(api: Any) -> int:
    """Return the flags of a network whose batch is an axis as any other, which was once not the default."""
    flag = getattr(api.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    return 0 if flag is None else 1 << int(flag)


def _parse_errors(parser: Any, graph: Path) -> list[str]:
    """Return what is wrong with the graph; unsupported operators by name."""
    import onnx  # optional, and heavy

    nodes = dict(enumerate(onnx.load(str(graph), load_external_data=False).graph.node))
    errors = [parser.get_error(number) for number in range(parser.num_errors)]
    unsupported = [
        nodes[error.node()].op_type
        for error in errors
        if error.node() in nodes and ("UNSUPPORTED_NODE" in str(error.code()) or _NO_PLUGIN in error.desc())
    ]
    if unsupported:
        return [f"could not find operator {operator}" for operator in dict.fromkeys(unsupported)]
    return [error.desc() for error in errors]


_NO_PLUGIN = "Plugin not found"
"""What the parser says of an operator that it does not know, as it could be a plugin's."""


def _add_sizes(builder: Any, network: Any, settings: Any, source: ConversionSource) -> None:
    """Tell TensorRT the sizes of free dimensions: the smallest, the usual and the largest."""
    inputs = [network.get_input(number) for number in range(network.num_inputs)]
    if not any(-1 in tuple(tensor.shape) for tensor in inputs):
        return
    named = {spec.name: spec for spec in source.inputs}
    profile = builder.create_optimization_profile()
    for tensor in inputs:
        ranges = [
            (size, size, size) if size != -1 else _range(_name(named.get(tensor.name), axis), source)
            for axis, size in enumerate(tuple(tensor.shape))
        ]
        profile.set_shape(tensor.name, *(tuple(sizes) for sizes in zip(*ranges, strict=True)))
    settings.add_optimization_profile(profile)


def _name(spec: InputSpec | None, axis: int) -> str:
    size = spec.shape[axis] if spec is not None and spec.shape else BATCH
    return str(size)


def _range(name: str, source: ConversionSource) -> tuple[int, int, int]:
    """Return the smallest, the usual and the largest size of a free dimension."""
    if name == BATCH:
        return 1, LARGEST_BATCH // 4, LARGEST_BATCH
    usual = next(
        (
            source.example[spec.name].shape[axis]
            for spec in source.inputs
            for axis, size in enumerate(spec.shape or ())
            if str(size) == name and spec.name in source.example
        ),
        1,
    )
    largest = source.model.limits.get(name, usual * _WIDEST)
    return 1, min(usual, largest), max(usual, largest)
