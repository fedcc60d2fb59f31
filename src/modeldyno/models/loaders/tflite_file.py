"""The content of a .tflite file, as LiteRT's own classes of the schema read it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MARK = b"TFL3"
"""What follows the first four bytes of a file."""
_PRODUCT = re.compile(r"/(?:convolution|depthwise|conv\w*|matmul|einsum)[^/]*$", re.IGNORECASE)
_PREFIXES = re.compile(r"^(?:Stateful)?PartitionedCall[^/]*/")


@dataclass(frozen=True, slots=True)
class TensorForm:
    """A tensor of a subgraph as the file declares it."""

    name: str
    """The path of what made it, such as ``net/dense/MatMul``."""
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    """The same with -1 where a size is free; empty where none is."""
    dtype: str
    buffer: int
    stored: int
    """Bytes in the file; 0 for what is computed."""
    scaled: bool
    """Whether it holds integers with a scale."""
    scope: str
    """The layer that made it, as a path with dots; empty if its name says none."""


@dataclass(frozen=True, slots=True)
class FileOperator:
    """One call of an operator; tensors are numbers in its subgraph, -1 where one is left out."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any]
    """By their names in the schema; an activation is the name of it."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A function of the file."""

    tensors: tuple[TensorForm, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def scope_of(self, operator: FileOperator) -> str:
        """Return the layer of an operator: that of its output, or else of one of its weights."""
        own = (self.tensors[index].scope for index in operator.outputs)
        weights = (self.tensors[index] for index in operator.inputs if index >= 0)
        return next(filter(None, (*own, *(tensor.scope for tensor in weights if tensor.stored))), "")

    def scopes_of_buffers(self) -> dict[int, str]:
        """Return the layer of the first operator that reads a buffer, by its number."""
        scopes: dict[int, str] = {}
        for operator in self.operators:
            for index in operator.inputs:
                if index >= 0 and self.tensors[index].stored:
                    scopes.setdefault(self.tensors[index].buffer, self.scope_of(operator))
        return scopes


@dataclass(frozen=True, slots=True)
class TFLiteFile:
    """The subgraphs of a file, of which the first is the model."""

    subgraphs: tuple[Subgraph, ...]
    input_names: dict[int, str]
    """Names of the inputs in the signature, by tensor."""


def read_tflite(data: bytes) -> TFLiteFile:
    """Return the content of a file.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, struct.error: it is damaged.
    """
    from ai_edge_litert import schema_py_generated as schema  # optional, and large

    if data[4:8] != MARK:
        raise ValueError(MARK)
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    kinds = [_kind(code) for code in model.operatorCodes]
    names = {
        entry.tensorIndex: entry.name.decode()
        for signature in (model.signatureDefs or ())[:1]
        if not signature.subgraphIndex
        for entry in signature.inputs or ()
    }
    return TFLiteFile(tuple(_subgraph(graph, kinds, model.buffers) for graph in model.subgraphs), names)


def _subgraph(graph: Any, kinds: list[str], buffers: Any) -> Subgraph:
    return Subgraph(
        tensors=tuple(_tensor(tensor, buffers) for tensor in graph.tensors),
        operators=tuple(
            FileOperator(
                kind=kinds[operator.opcodeIndex],
                inputs=_numbers(operator.inputs),
                outputs=_numbers(operator.outputs),
                options=_options(operator),
            )
            for operator in graph.operators or ()
        ),
        inputs=_numbers(graph.inputs),
        outputs=_numbers(graph.outputs),
    )


def _tensor(tensor: Any, buffers: Any) -> TensorForm:
    buffer, scale = buffers[tensor.buffer], getattr(tensor.quantization, "scale", None)
    dtype = _members("TensorType")[tensor.type].lower()
    names = [_PREFIXES.sub("", part) for part in tensor.name.decode().split(";")] if tensor.name else [""]
    return TensorForm(
        name=names[0],
        shape=_numbers(tensor.shape),
        signature=_numbers(tensor.shapeSignature),
        dtype=dtype,
        buffer=tensor.buffer,
        stored=len(buffer.data) if buffer.data is not None else int(buffer.size or 0),
        scaled="int" in dtype and scale is not None and len(scale) > 0,
        scope=_layer(names),
    )


def _layer(names: list[str]) -> str:
    """Return the layer of a tensor that operators of those names made, fused: that of their product."""
    chosen = next((name for name in names if _PRODUCT.search(name)), names[0])
    return ".".join(chosen.replace(".", "_").split("/")[:-1])


def _kind(code: Any) -> str:
    """Return the name of an operator; a custom one has its own."""
    number = max(code.builtinCode, code.deprecatedBuiltinCode)
    name = _members("BuiltinOperator").get(number, str(number))
    return code.customCode.decode() if name == "CUSTOM" and code.customCode else name


def _options(operator: Any) -> dict[str, Any]:
    fields = vars(operator.builtinOptions) if operator.builtinOptions is not None else {}
    options = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower(): value for name, value in fields.items()}
    if "fused_activation_function" in options:
        activation = options["fused_activation_function"]
        options["fused_activation_function"] = _members("ActivationFunctionType")[activation]
    return options


def _numbers(values: Any) -> tuple[int, ...]:
    return () if values is None else tuple(int(value) for value in values)


@lru_cache
def _members(name: str) -> dict[int, str]:
    """Return the names of the members of an enumeration of the schema."""
    from ai_edge_litert import schema_py_generated as schema  # optional, and large

    return {
        number: member for member, number in vars(getattr(schema, name)).items() if isinstance(number, int)
    }
