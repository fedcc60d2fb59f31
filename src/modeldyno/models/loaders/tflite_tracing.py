"""Trace a .tflite file into the neutral Graph at given sizes; weights are not read.

Where a size is free, the shapes that the file declares are placeholders. LiteRT runs it once on zeros then,
without XNNPACK, which gives the shape of every tensor. What follows from constants and shapes alone is no
operator: LiteRT computes it once. A loop counts once, of two branches the one with more MACs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, SizesRefused, short_reason
from modeldyno.base.job.input_spec import format_shape
from modeldyno.base.job.static_options import Mode
from modeldyno.models.flops import Formula, count_op
from modeldyno.models.flops.registry import formulas
from modeldyno.models.loaders.operator_memory import OperatorMemory, scopes
from modeldyno.models.loaders.tflite_file import TFLiteFile
from modeldyno.models.loaders.unrolling import Unrolling
from modeldyno.models.static.graph import Graph, Op, Role, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modeldyno.models.interface import Tracing
    from modeldyno.models.loaders.tflite_file import FileOperator, TensorForm

Shapes = list[list[tuple[int, ...]]]
"""The shape of each tensor of each subgraph."""

_SAME_MEMORY = frozenset({"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
"""Operators whose output is their input, in another shape."""
_SIZES = frozenset({"RANK", "SHAPE"})
_CONVOLUTION = ("input", "filter", "bias")
_TRANSPOSED = ("output_shape", "filter", "input", "bias")
_OPERANDS: dict[str, tuple[str, ...]] = {
    "BATCH_MATMUL": ("x", "y"),
    "CONV_2D": _CONVOLUTION,
    "CONV_3D": _CONVOLUTION,
    "CONV_3D_TRANSPOSE": _TRANSPOSED,
    "DEPTHWISE_CONV_2D": _CONVOLUTION,
    "EMBEDDING_LOOKUP": ("indices", "params"),
    "FULLY_CONNECTED": _CONVOLUTION,
    "GATHER": ("params", "indices"),
    "GATHER_ND": ("params", "indices"),
    "TRANSPOSE_CONV": _TRANSPOSED,
}
"""Names of operands that formulas read; the schema has none."""
_RECURRENT = {"LSTM": 18, "RNN": 4, "UNIDIRECTIONAL_SEQUENCE_LSTM": 18, "UNIDIRECTIONAL_SEQUENCE_RNN": 4}
"""Recurrent layers, and the first of their operands that is no weight; the first of all is the input."""
_WINDOWS = frozenset({"AVERAGE_POOL_2D", "CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D"})
_PROBED = (2, 4)
"""Batches at which shapes are taken to be linear in the batch, with that of the file."""


def trace_tflite(file: TFLiteFile, path: Path, tracing: Tracing) -> Graph:
    """Return the Graph of a file.

    Raises:
        RequestError: it cannot be analysed at these sizes.
    """
    if tracing.mode is not Mode.INFERENCE:
        raise RequestError(
            "A file of TensorFlow Lite holds no backward pass; inspect it with mode 'inference'."
        )
    main = file.subgraphs[0]
    shapes = (tuple(map(int, spec.shape or ())) for spec in tracing.inputs)
    shape_by_input = dict(zip(main.inputs, shapes, strict=True))
    walk = _Walk(file=file, shapes=_shapes(file, path, shape_by_input), formulas=formulas(plugins.formulas()))
    values = [walk.computed(0, index, Role.INPUT) for index in main.inputs]
    outputs = walk.run(0, values)
    returned = {value.storage for value in outputs if value is not None}
    return Graph(
        ops=tuple(walk.ops),
        storages=tuple(walk.memory.lifetimes(walk.ops, returned)),
        sizes=dict(tracing.sizes),
        modules=scopes(walk.ops),
        assumptions=tuple(dict.fromkeys(walk.notes)),
    )


@dataclass(kw_only=True)
class _Walk:
    """Visits operators in the order of the file, in which they run, and records them and their memory."""

    file: TFLiteFile
    shapes: Shapes
    formulas: Mapping[str, Formula]
    ops: list[Op] = field(default_factory=list)
    memory: OperatorMemory = field(default_factory=OperatorMemory)
    weights: dict[int, int] = field(default_factory=dict)
    """Number of a buffer to its storage."""
    notes: list[str] = field(default_factory=list)
    unrolling: Unrolling = field(default_factory=Unrolling)

    def run(self, number: int, values: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Visit the operators of a subgraph; return the values of its outputs."""
        with self.unrolling.body():
            return self._run(number, values)

    def _run(self, number: int, values: Sequence[Tensor | None]) -> list[Tensor | None]:
        graph = self.file.subgraphs[number]
        env: dict[int, Tensor | None] = dict(zip(graph.inputs, values, strict=False))
        constant = {index for index, tensor in enumerate(graph.tensors) if tensor.stored}
        for index in constant:
            env.setdefault(index, self._stored(number, index))
        for operator in graph.operators:
            self.unrolling.step()
            indices = [index for index in operator.inputs if index >= 0]
            for index in indices:
                if index not in env:  # a state that the interpreter keeps between calls
                    env[index] = self.computed(number, index, Role.WEIGHT)
            operands = [env[index] if index >= 0 else None for index in operator.inputs]
            results: Sequence[Tensor | None]
            if operator.kind in _SIZES or (indices and constant.issuperset(indices)):
                constant.update(operator.outputs)
                results = [self._same(number, index, operands[0]) for index in operator.outputs]
            else:
                results = self._visit(number, operator, operands)
            env.update(zip(operator.outputs, results, strict=False))
        return [env.get(index) for index in graph.outputs]

    def computed(self, number: int, index: int, role: Role, scope: str = "") -> Tensor:
        """Return a tensor with memory of its own."""
        form = self.file.subgraphs[number].tensors[index]
        return self.memory.new_tensor(self.shapes[number][index], form.dtype, role, scope)

    def _stored(self, number: int, index: int) -> Tensor:
        form = self.file.subgraphs[number].tensors[index]
        if form.buffer not in self.weights:
            self.weights[form.buffer] = self.memory.add(form.stored, Role.WEIGHT)
        return Tensor(form.shape, form.dtype, self.weights[form.buffer])

    def _same(self, number: int, index: int, operand: Tensor | None) -> Tensor:
        """Return the value of an output in the memory of an operand."""
        form = self.file.subgraphs[number].tensors[index]
        return Tensor(self.shapes[number][index], form.dtype, -1 if operand is None else operand.storage)

    def _visit(
        self, number: int, operator: FileOperator, operands: list[Tensor | None]
    ) -> Sequence[Tensor | None]:
        options = operator.options
        if operator.kind in _SAME_MEMORY:
            return [self._same(number, index, operands[0]) for index in operator.outputs]
        if operator.kind == "WHILE":
            self.notes.append("a loop (WHILE) is counted once, as its rounds depend on data")
            return self.run(options["body_subgraph_index"], operands)
        if operator.kind == "STABLEHLO_COMPOSITE":
            return self.run(options["decomposition_subgraph_index"], operands)
        if operator.kind == "IF":
            return self._branch(options, operands[1:])
        return self._record(number, operator, operands)

    def _branch(self, options: Mapping[str, Any], operands: list[Tensor | None]) -> list[Tensor | None]:
        """Count the branch with more MACs."""
        tries = []
        for name in ("then_subgraph_index", "else_subgraph_index"):
            mark = len(self.ops)
            results = self.run(options[name], operands)
            ops, self.ops[mark:] = self.ops[mark:], []
            tries.append((sum(count_op(each, self.formulas).macs for each in ops), ops, results))
        _, ops, results = max(tries, key=lambda each: each[0])
        self.ops += ops
        self.notes.append("of a condition (IF) the branch with more MACs is counted")
        return results

    def _record(self, number: int, operator: FileOperator, operands: list[Tensor | None]) -> list[Tensor]:
        graph = self.file.subgraphs[number]
        scope = graph.scope_of(operator)
        outputs = [self.computed(number, index, Role.ACTIVATION, scope) for index in operator.outputs]
        forms = [graph.tensors[index] for index in operator.outputs]
        arguments = _arguments(operator, operands) | {"quantized": any(form.scaled for form in forms)}
        name = forms[0].name if forms else ""
        self.ops.append(Op(f"tflite.{operator.kind}", arguments, tuple(outputs), scope, name=name))
        return outputs


def _arguments(operator: FileOperator, operands: list[Tensor | None]) -> dict[str, Any]:
    """Return operands by name, and the options of the operator."""
    if operator.kind in _RECURRENT:
        weights = [tensor for tensor in operands[1 : _RECURRENT[operator.kind]] if tensor is not None]
        return {"input": operands[0], "weights": weights, **operator.options}
    names = _OPERANDS.get(operator.kind, ())
    arguments: dict[str, Any] = {
        names[place] if place < len(names) else f"input_{place}": tensor
        for place, tensor in enumerate(operands)
    }
    return arguments | operator.options


# -- shapes at other sizes ----------------------------------------------------------------------------------


def _shapes(file: TFLiteFile, path: Path, shape_by_input: dict[int, tuple[int, ...]]) -> Shapes:
    """Return the shapes of all tensors where the inputs of the model have the shapes `shape_by_input`."""
    declared: Shapes = [[tensor.shape for tensor in graph.tensors] for graph in file.subgraphs]
    fixed = all(-1 not in tensor.signature for graph in file.subgraphs for tensor in graph.tensors)
    if fixed and all(declared[0][index] == shape for index, shape in shape_by_input.items()):
        return declared
    batch = _common_batch(declared[0], shape_by_input)
    if batch is not None and batch > max(_PROBED):
        two, four = (
            _shapes_of_a_run(
                file, path, {index: (size, *shape[1:]) for index, shape in shape_by_input.items()}
            )
            for size in _PROBED
        )
        if (linear := _extrapolate(two, four, batch)) is not None:
            return linear
    return _shapes_of_a_run(file, path, shape_by_input)


def _common_batch(declared: list[tuple[int, ...]], shape_by_input: dict[int, tuple[int, ...]]) -> int | None:
    """Return the first size of all inputs, if they differ from the file's in nothing else; else None."""
    firsts = {shape[0] for shape in shape_by_input.values() if shape}
    same = all(declared[index][1:] == shape[1:] for index, shape in shape_by_input.items())
    return firsts.pop() if same and len(firsts) == 1 else None


def _extrapolate(two: Shapes, four: Shapes, batch: int) -> Shapes | None:
    """Return the shapes at another batch if each size is fixed or a multiple of the batch; else None."""

    def size(small: int, large: int) -> int | None:
        if small == large:
            return small
        return small // 2 * batch if large == 2 * small and not small % 2 else None

    result = [
        [tuple(size(*pair) for pair in zip(a, b, strict=False)) for a, b in zip(first, second, strict=True)]
        for first, second in zip(two, four, strict=True)
    ]
    complete = all(None not in shape for shapes in result for shape in shapes)
    return result if complete else None  # type: ignore[return-value]  # as there is no None in it


def _shapes_of_a_run(file: TFLiteFile, path: Path, shape_by_input: dict[int, tuple[int, ...]]) -> Shapes:
    import numpy as np  # slow to import
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # optional, and heavy

    try:
        interpreter = Interpreter(
            model_path=str(path),
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        for index, shape in shape_by_input.items():
            interpreter.resize_tensor_input(index, shape)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
        interpreter.invoke()
        details = [interpreter.get_tensor_details()] + [
            interpreter.get_tensor_details(subgraph_index=number) for number in range(1, len(file.subgraphs))
        ]
    except (ValueError, RuntimeError) as error:
        raise SizesRefused(
            f"LiteRT cannot run {path} with inputs of these sizes: {short_reason(error)}; inspect it at the "
            "sizes it was converted for."
        ) from error
    shapes = [_by_index(graph.tensors, listed) for graph, listed in zip(file.subgraphs, details, strict=True)]
    _check_windows(file, shapes[0])
    return shapes


def _check_windows(file: TFLiteFile, shapes: list[tuple[int, ...]]) -> None:
    """Refuse sizes at which a window is larger than what it slides over, of which LiteRT makes nothing."""
    for operator in file.subgraphs[0].operators:
        if operator.kind in _WINDOWS and 0 in shapes[operator.outputs[0]]:
            data, *window = (format_shape(shapes[index]) for index in operator.inputs[:2])
            size = f" of {window[0]}" if window else ""
            raise SizesRefused(f"{operator.kind} cannot slide a window{size} over {data}: nothing is left.")


def _by_index(tensors: Sequence[TensorForm], details: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    shapes = {detail["index"]: tuple(map(int, detail["shape"])) for detail in details}
    return [shapes.get(index, tensor.shape) for index, tensor in enumerate(tensors)]
