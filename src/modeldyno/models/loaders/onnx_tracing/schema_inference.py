"""Shapes of one ONNX operator at a time, by the schema inference of the onnx package."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from modeldyno.models.loaders.onnx_tracing.nodes import GraphValue, element_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.models.loaders.onnx_tracing.tensors import Proto

_INFERENCE_ERRORS = (RuntimeError, ValueError, TypeError, KeyError)
_MAX_DATA = 1024
"""Elements of an input whose values inference may read."""


class InferredType(NamedTuple):
    """Inferred type of an output."""

    dims: tuple[int | None, ...] | None
    dtype: str = ""
    sequence: bool = False

    @property
    def known(self) -> bool:
        """Whether every dimension is known."""
        return self.dims is not None and None not in self.dims


NOTHING = InferredType(None)


def infer_outputs(schema: Any, proto: Proto, values: Sequence[GraphValue | None]) -> list[InferredType]:
    """Infer the outputs of a node, in order; NOTHING where its schema cannot tell."""
    from onnx import checker, shape_inference  # optional

    if any(name and value is None for name, value in zip(proto.input, values, strict=True)):
        trimmed = type(proto)()
        trimmed.CopyFrom(proto)
        trimmed.input[:] = [
            "" if value is None else name for name, value in zip(proto.input, values, strict=True)
        ]
        proto = trimmed
    types, data = {}, {}
    for name, value in zip(proto.input, values, strict=True):
        if name and value is not None:
            types[name] = _type_of(value)
            if value.data is not None and value.data.size <= _MAX_DATA:
                data[name] = _to_tensor_proto(value.data)
    try:
        inferred_types = shape_inference.infer_node_outputs(schema, proto, types, data)
    except (*_INFERENCE_ERRORS, shape_inference.InferenceError, checker.ValidationError):
        return [NOTHING] * len(proto.output)
    return [read_type(inferred_types[name]) if name in inferred_types else NOTHING for name in proto.output]


def infer_as(
    kind: str, values: Sequence[GraphValue | None], attributes: Iterable[Proto], outputs: int = 1
) -> list[InferredType]:
    """Infer as an operator of the default domain, with the attributes that it has."""
    import onnx  # optional

    schema = onnx.defs.get_schema(kind)
    proto = onnx.NodeProto(op_type=kind)
    proto.input.extend("" if value is None else f"i{n}" for n, value in enumerate(values))
    proto.output.extend(f"o{n}" for n in range(outputs))
    proto.attribute.extend(attribute for attribute in attributes if attribute.name in schema.attributes)
    return infer_outputs(schema, proto, values)


def read_type(type_proto: Proto) -> InferredType:
    """Read a type of the file or of the inference; only tensors and sequences of them are supported."""
    variant = type_proto.WhichOneof("value")
    if variant in {"sequence_type", "optional_type"}:
        inner = read_type(getattr(type_proto, variant).elem_type)
        return InferredType(None, inner.dtype, sequence=variant == "sequence_type" or inner.sequence)
    if variant != "tensor_type":
        return NOTHING
    tensor = type_proto.tensor_type
    if not tensor.HasField("shape"):
        return InferredType(None, element_dtype(tensor.elem_type))
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    if any(length is not None and length < 0 for length in dims):
        return InferredType(None, element_dtype(tensor.elem_type))
    return InferredType(dims, element_dtype(tensor.elem_type))


def _to_tensor_proto(data: Any) -> Proto:
    from onnx import numpy_helper  # optional

    return numpy_helper.from_array(data)


def _type_of(value: GraphValue) -> Proto:
    if not value.sequence:
        return _tensor_type(value.shape, value.dtype)
    from onnx import helper  # optional

    shapes = {item.shape for item in value.items or ()}
    return helper.make_sequence_type_proto(
        _tensor_type(shapes.pop() if len(shapes) == 1 else None, value.dtype)
    )


@lru_cache(maxsize=4096)
def _tensor_type(shape: tuple[int, ...] | None, kind: str) -> Proto:
    from onnx import helper  # optional

    return helper.make_tensor_type_proto(_dtype_numbers().get(kind, 0), shape)


@lru_cache(maxsize=1)
def _dtype_numbers() -> dict[str, int]:
    return {element_dtype(number): number for number in range(1, 64) if element_dtype(number)}
