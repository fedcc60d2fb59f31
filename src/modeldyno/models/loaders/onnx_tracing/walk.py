"""Walks through an ONNX graph and records its operators in execution order."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.base.errors import SizesRefused
from modeldyno.models.flops import Formula, count_op
from modeldyno.models.flops.onnx_formulas import OF_WEIGHT
from modeldyno.models.loaders.onnx_tracing import ml_operators
from modeldyno.models.loaders.onnx_tracing import ops as onnx_tracing_ops
from modeldyno.models.loaders.onnx_tracing import shapes as onnx_tracing_shapes
from modeldyno.models.loaders.onnx_tracing.nodes import (
    Body,
    GraphValue,
    OnnxConstant,
    OnnxNode,
    read_function,
)
from modeldyno.models.loaders.onnx_tracing.schema_inference import read_type
from modeldyno.models.loaders.onnx_tracing.shape_checks import rejection_reason
from modeldyno.models.loaders.onnx_tracing.shapes import UNKNOWN
from modeldyno.models.loaders.onnx_tracing.tensors import Proto, is_placeholder_name
from modeldyno.models.loaders.unrolling import Unrolling
from modeldyno.models.static.graph import Op, Role, Tensor

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.base.job.input_spec import InputSpec

_MIN_UNROLLED = 64
_MAX_ITERATIONS = 10_000
"""Maximum iterations of a loop without a known end."""
_UNBOUNDED_TRIPS = 2**31
"""Trip count that exporters write where only the condition ends the loop."""

Env = MutableMapping[str, GraphValue | None]
Note = tuple[str, str, str]
"""An operator, what was assumed of it, and the node."""
Segment = tuple[list[Op], list["StorageRecord"], list[Note]]


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """A storage whose lifetime is not known yet."""

    bytes: int
    role: Role
    scope: str = ""


@dataclass(slots=True)
class GraphWalk:
    """One pass over a model."""

    functions: Mapping[tuple[str, str, str], Proto]
    formulas: Mapping[str, Formula]
    """Costs that decide which branch of an If is more expensive."""
    classes: dict[str, str] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    memory: list[StorageRecord] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    """Assumptions."""
    noted: set[Note] = field(default_factory=set)
    """Those that are made once for each node."""
    places: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    """Location of external data to its storage: tied weights share it."""
    constants: dict[int, GraphValue] = field(default_factory=dict)
    bodies: dict[tuple[tuple[str, str, str], str, bytes], Body] = field(default_factory=dict)
    """Of functions, by the way they are called; kept, as `constants` is keyed by identity."""
    unrolling: Unrolling = field(default_factory=Unrolling)

    # -- inputs and weights --

    def begin(self, body: Body, env: Env, specs: Mapping[str, InputSpec], sizes: Mapping[str, int]) -> None:
        """Bind inputs and weights, including those of nested bodies."""
        self._add_constants(body)
        self._add_learned_attributes(body)
        initialised = {constant.name for constant in body.constants}
        for name in body.inputs:
            if name not in initialised:
                env[name] = self._bind_input(body.types[name], specs.get(name), sizes)

    def _bind_input(self, value_type: Proto, spec: InputSpec | None, sizes: Mapping[str, int]) -> GraphValue:
        declared_type = read_type(value_type)
        if declared_type.sequence or value_type.WhichOneof("value") != "tensor_type":
            return GraphValue(None, declared_type.dtype, sequence=True)
        dims = value_type.tensor_type.shape.dim if value_type.tensor_type.HasField("shape") else ()
        declared = (
            None
            if declared_type.dims is None
            else tuple(
                dim.dim_param if n is None else n for dim, n in zip(dims, declared_type.dims, strict=True)
            )
        )
        dims_or_names = declared if spec is None or spec.shape is None else spec.shape
        if dims_or_names is None:
            return GraphValue(None, declared_type.dtype)
        shape = tuple(dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in dims_or_names)
        for dim, length in zip(dims, shape, strict=False):
            if not is_placeholder_name(dim.dim_param):
                self.symbols[dim.dim_param] = length
        dtype = declared_type.dtype or (spec.dtype if spec is not None else None) or "float32"
        data = None if spec is None else _fixed_value(spec, shape, dtype)
        return GraphValue(shape, dtype, self._allocate(Tensor(shape, dtype).bytes, Role.INPUT, ""), data)

    def _add_constants(self, body: Body) -> None:
        """Allocate the initialisers of a body and of those within it."""
        for constant in body.constants:
            if id(constant) in self.constants:
                continue
            shared = self.places.get(constant.place) if constant.place else None
            scope = constant.name.rpartition(".")[0]
            size = constant.bytes if constant.read else 0
            index = self._allocate(size, Role.WEIGHT, scope) if shared is None else shared
            if constant.place:
                self.places[constant.place] = index
            self.constants[id(constant)] = _constant(constant, index)
        for node in body.nodes:
            for inner in node.bodies.values():
                self._add_constants(inner)

    def _add_learned_attributes(self, body: Body) -> None:
        """Allocate what the classical operators of a body, and of those within it, keep in attributes."""
        for node in body.nodes:
            if node.domain == ml_operators.DOMAIN and node.outputs:
                for weight in ml_operators.learned_weights(node.proto):
                    self._allocate(weight.bytes, Role.WEIGHT, node.scope)
            for inner in node.bodies.values():
                self._add_learned_attributes(inner)

    def _allocate(self, size: int, role: Role, scope: str) -> int:
        self.memory.append(StorageRecord(size, role, scope))
        return len(self.memory) - 1

    # -- running nodes --

    def run(self, body: Body, env: Env) -> None:
        """Run the nodes in order."""
        for constant in body.constants:
            env[constant.name] = self.constants[id(constant)]
        with self.unrolling.body():
            for node in body.nodes:
                self.unrolling.step()
                values = [env.get(name, UNKNOWN) if name else None for name in node.inputs]
                outputs = self._run_node(node, values, env, body)
                env.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)

    def _run_node(
        self, node: OnnxNode, values: list[GraphValue | None], env: Env, body: Body
    ) -> Sequence[GraphValue | None]:
        if node.function in self.functions:
            return self._inline_function(node, values)
        if not node.domain and node.kind in _CONTROL and node.bodies:
            control_outputs = _CONTROL[node.kind](self, node, values, env)
            if control_outputs is not None:
                return control_outputs
        if not node.domain and node.kind == "Constant":
            return [self._constant_value(node)]
        if not self.notes and (reason := rejection_reason(node, values)):
            location = f" '{node.name}'" if node.name else ""
            raise SizesRefused(
                "The model does not accept these sizes: "
                f"{onnx_tracing_ops.operator_kind(node)}{location} {reason}."
            )
        outputs = onnx_tracing_shapes.infer_node_outputs(node, values, body.types, self.symbols, self._note)
        if outputs and all(value.folded for value in outputs):
            return outputs
        return self._record(node, values, outputs)

    def _inline_function(self, node: OnnxNode, values: list[GraphValue | None]) -> list[GraphValue | None]:
        """Inline a function of the file."""
        attributes = b"".join(attribute.SerializeToString() for attribute in node.proto.attribute)
        key = (node.function, node.scope, attributes)
        if key not in self.bodies or node.bodies:
            self.bodies[key] = read_function(self.functions[node.function], node, self.classes)
        body = self.bodies[key]
        self._add_constants(body)
        env: Env = dict(zip(body.inputs, [*values, *[None] * len(body.inputs)], strict=False))
        self.run(body, env)
        return [env.get(name) for name in body.outputs]

    def _constant_value(self, node: OnnxNode) -> GraphValue:
        """Return the value of a Constant node."""
        if node.constant is not None:
            constant, key = node.constant, id(node.constant)
            is_small = constant.data is not None and (
                constant.data.size == 1 or constant.data.dtype.kind in "iub"
            )
            if key not in self.constants:
                index = -1 if is_small else self._allocate(constant.bytes, Role.WEIGHT, node.scope)
                self.constants[key] = _constant(node.constant, index)
            return self.constants[key]
        name, value = next(iter(node.attributes.items()), ("", None))
        if value is None or name not in {"value_int", "value_ints", "value_float", "value_floats"}:
            return GraphValue((), "string") if name == "value_string" else UNKNOWN
        data = np.array(value, np.float32 if "float" in name else np.int64)
        return GraphValue(data.shape, data.dtype.name, data=data, folded=True)

    def _note(self, text: str, node: OnnxNode) -> None:
        name = node.name or (node.outputs or ("",))[0]
        self.notes.append((onnx_tracing_ops.operator_kind(node), text, name))

    def _record(
        self, node: OnnxNode, values: list[GraphValue | None], outputs: list[GraphValue]
    ) -> list[GraphValue]:
        """Record an operator, and give its outputs their storages."""
        view = onnx_tracing_shapes.is_view(node, values)
        stored: list[GraphValue] = []
        for position, value in enumerate(outputs):
            first = values[0] if view and position == 0 else None
            stored.append(replace(value, storage=first.storage) if first else self._with_storage(value, node))
        named = [value for name, value in zip(node.outputs, stored, strict=False) if name]
        arguments = onnx_tracing_ops.operator_arguments(node, values)
        if node.kind == "DequantizeLinear":
            arguments[OF_WEIGHT] = self._is_weight(values[0])
        self._append_op(node, arguments, values, named)
        return stored

    def _is_weight(self, value: GraphValue | None) -> bool:
        return value is not None and value.storage >= 0 and self.memory[value.storage].role is Role.WEIGHT

    def _append_op(
        self,
        node: OnnxNode,
        arguments: Mapping[str, Any],
        values: Sequence[GraphValue | None],
        outputs: Sequence[GraphValue | None],
    ) -> None:
        """Add an operator, marked as unsized where some of its shapes are unknown."""
        shaped = [value for value in outputs if value is not None and onnx_tracing_ops.has_known_shape(value)]
        tensors = tuple(tensor for value in shaped for tensor in onnx_tracing_ops.operands(value))
        sized = all(value is None or onnx_tracing_ops.has_known_shape(value) for value in (*values, *outputs))
        name = next(filter(None, node.outputs), "")
        self.ops.append(
            Op(onnx_tracing_ops.operator_kind(node), arguments, tensors, node.scope, sized=sized, name=name)
        )

    def _with_storage(self, value: GraphValue, node: OnnxNode) -> GraphValue:
        if value.items is not None:
            return replace(value, items=tuple(self._with_storage(item, node) for item in value.items))
        if value.storage >= 0 or value.folded or value.shape is None:
            return value
        return replace(
            value, storage=self._allocate(onnx_tracing_ops.operand(value).bytes, Role.ACTIVATION, node.scope)
        )

    # -- bodies --

    def _run_body(
        self, body: Body, arguments: Sequence[GraphValue | None], env: Env
    ) -> list[GraphValue | None]:
        inner: Env = ChainMap({}, env)
        inner.update(zip(body.inputs, arguments, strict=False))
        self.run(body, inner)
        return [inner.get(name, UNKNOWN) for name in body.outputs]

    def branch(
        self, node: OnnxNode, values: list[GraphValue | None], env: Env
    ) -> list[GraphValue | None] | None:
        """Take the branch of an If that its condition selects, or the one that may cost more."""
        condition = _known_number(values[0]) if values else None
        if condition is not None:
            return self._run_body(node.bodies["then_branch" if condition else "else_branch"], (), env)
        candidates: list[tuple[float, float, str, list[GraphValue | None], Segment]] = []
        rejections: list[SizesRefused] = []
        for name in ("then_branch", "else_branch"):
            start = self._mark()
            try:
                outputs = self._run_body(node.bodies[name], (), env)
            except SizesRefused as error:
                rejections.append(error)
                self._undo(start)
            else:
                segment = self._undo(start)
                cost, bound = self._cost(segment[0])
                candidates.append((cost + bound, cost, name, outputs, segment))
        if not candidates:
            raise rejections[0]
        _, cost, name, outputs, (ops, memory, notes) = max(candidates, key=lambda candidate: candidate[:2])
        self.ops += ops
        self.memory += memory
        self.notes += notes
        certain = cost >= max(
            (candidate[0] for candidate in candidates if candidate[2] != name), default=cost
        )
        reason = f"{'the' if certain else 'which may be the'} more expensive one"
        self._note(
            f"takes its {name}, {'the only one that accepts these sizes' if rejections else reason}", node
        )
        return outputs

    def _cost(self, ops: Iterable[Op]) -> tuple[float, float]:
        """Return the operations of the counted operators, and the upper bound of the others."""
        counted = [count_op(op, self.formulas) for op in ops]
        bound = sum(2 * (inf if cost.most is None else cost.most) for cost in counted)
        return sum(2 * cost.macs + cost.elementwise for cost in counted), bound

    def _mark(self) -> tuple[int, ...]:
        """Return what `_undo` goes back to."""
        return len(self.ops), len(self.memory), len(self.notes), len(self.constants), len(self.places)

    def _undo(self, mark: tuple[int, ...]) -> Segment:
        """Undo what was recorded since a mark, in a time that depends on that alone."""
        ops, memory, notes, constants, places = mark
        removed = self.ops[ops:], self.memory[memory:], self.notes[notes:]
        del self.ops[ops:], self.memory[memory:], self.notes[notes:]
        for recorded, count in ((self.constants, constants), (self.places, places)):
            while len(recorded) > count:
                recorded.popitem()
        return removed

    def loop(
        self, node: OnnxNode, values: list[GraphValue | None], env: Env
    ) -> list[GraphValue | None] | None:
        """Unroll a Loop; once where its trip count depends on data."""
        limit, condition, *carried = [*values, None, None][: max(2, len(values))]
        trips = _known_number(limit)
        if limit is not None and trips is None:
            self._note("is assumed to run once, as its trip count depends on data", node)
            trips = 1
        if trips is None or trips >= _UNBOUNDED_TRIPS:
            trips = -1
        state = [_TRUE if condition is None else condition, *carried]

        def next_inputs(i: int, state: list[GraphValue | None]) -> list[GraphValue | None] | None:
            condition = _known_number(state[0])
            if i == trips or condition == 0:
                return None
            if trips < 0 and (i == _MAX_ITERATIONS or (condition is None and i)):
                self._note("is assumed to end here, as its condition depends on data", node)
                return None
            if trips > 0 and condition is None:
                self._note_once("is assumed to use its whole trip count", node)
            counter = np.asarray(i, np.int64)
            return [GraphValue((), "int64", data=counter, folded=True), *state]

        rounds, state, last = self._iterate(node, env, next_inputs, state, max(trips, 0))
        return [*state[1:], *self._gather(node, last, rounds, [0] * len(node.outputs), len(state) - 1)]

    def scan(
        self, node: OnnxNode, values: list[GraphValue | None], env: Env
    ) -> list[GraphValue | None] | None:
        """Unroll a Scan over the axes of its inputs, except that of opset 8, which has a batch."""
        scanned = node.attributes.get("num_scan_inputs")
        if scanned is None or node.schema is None or node.schema.since_version < 9:
            return None
        sources = values[len(values) - scanned :]
        axes = node.attributes.get("scan_input_axes", (0,) * scanned)
        pairs = zip(sources, axes, strict=True)
        lengths = {value.shape[a] for value, a in pairs if value is not None and value.shape is not None}
        if len(lengths) != 1:
            return None
        trips = lengths.pop()
        slices = [_slice(value, axis) for value, axis in zip(sources, axes, strict=True)]
        state = values[: len(values) - scanned]

        def next_inputs(i: int, state: list[GraphValue | None]) -> list[GraphValue | None] | None:
            return None if i == trips else [*state, *slices]

        rounds, state, last = self._iterate(node, env, next_inputs, state, trips)
        output_axes = node.attributes.get("scan_output_axes", (0,) * len(node.outputs))
        return [*state, *self._gather(node, last, rounds, output_axes, len(state))]

    def sequence_map(
        self, node: OnnxNode, values: list[GraphValue | None], env: Env
    ) -> list[GraphValue | None] | None:
        """Run the body of a SequenceMap for each item."""
        items = None if not values or values[0] is None else values[0].items
        if items is None:
            return None
        results = []
        for i in range(len(items)):
            arguments = [v.items[i] if v is not None and v.items else v for v in values]
            results.append(self._run_body(node.bodies["body"], arguments, env))
        columns = [tuple(row[k] or UNKNOWN for row in results) for k in range(len(node.outputs))]
        return [GraphValue(None, c[0].dtype if c else "", items=c, sequence=True) for c in columns]

    def _iterate(
        self,
        node: OnnxNode,
        env: Env,
        next_inputs: Callable[[int, list[GraphValue | None]], list[GraphValue | None] | None],
        state: list[GraphValue | None],
        trips: int,
    ) -> tuple[int, list[GraphValue | None], list[GraphValue | None]]:
        """Repeat a body; return the iterations, the final state, and the other outputs of the last one."""
        body, i, others = node.bodies["body"], 0, list[GraphValue | None]()
        previous_ops: list[Op] = []
        while (inputs := next_inputs(i, state)) is not None:
            start = len(self.ops)
            outputs = self._run_body(body, inputs, env)
            is_stable = _same_types(state, outputs)
            state, others = outputs[: len(state)], outputs[len(state) :]
            ops = self.ops[start:]
            i += 1
            if i >= _MIN_UNROLLED and i < trips and is_stable and _signature(ops) == _signature(previous_ops):
                self.unrolling.step((trips - i) * len(ops))
                self.ops += ops * (trips - i)
                i = trips
                break
            previous_ops = ops
        return i, state, others

    def _note_once(self, text: str, node: OnnxNode) -> None:
        note = (onnx_tracing_ops.operator_kind(node), text, node.name)
        if note not in self.noted:
            self.noted.add(note)
            self._note(text, node)

    def _gather(
        self, node: OnnxNode, last: list[GraphValue | None], rounds: int, axes: Sequence[int], skipped: int
    ) -> list[GraphValue | None]:
        """Stack the outputs of all iterations along a new axis."""
        if not last:
            missing = max(0, len(node.outputs) - skipped)
            return list[GraphValue | None]([UNKNOWN] * missing)
        stacked: list[GraphValue | None] = []
        for value, axis in zip(last, axes, strict=False):
            if value is None or value.shape is None:
                stacked.append(value)
                continue
            shape = list(value.shape)
            shape.insert(axis if axis >= 0 else axis + len(shape) + 1, rounds)
            stacked.append(self._with_storage(GraphValue(tuple(shape), value.dtype), node))
        known_values = [
            value for value in last if value is not None and onnx_tracing_ops.has_known_shape(value)
        ]
        parts = [tensor for value in known_values for tensor in onnx_tracing_ops.operands(value)]
        self._append_op(node, {"last": parts}, last, stacked)
        return stacked


_TRUE = GraphValue((), "bool", data=np.asarray(True), folded=True)
_CONTROL: dict[
    str, Callable[[GraphWalk, OnnxNode, list[GraphValue | None], Env], list[GraphValue | None] | None]
] = {
    "If": GraphWalk.branch,
    "Loop": GraphWalk.loop,
    "Scan": GraphWalk.scan,
    "SequenceMap": GraphWalk.sequence_map,
}


# -- parts ----------------------------------------------------------------------------------------------


def _constant(constant: OnnxConstant, index: int) -> GraphValue:
    is_known = constant.data is not None
    return GraphValue(constant.shape, constant.dtype, index, constant.data, folded=is_known)


def _fixed_value(spec: InputSpec, shape: tuple[int, ...], dtype: str) -> ndarray | None:
    """Return the value of a one-element integer or flag input whose range allows only one value."""
    if spec.low is None or spec.low != spec.high or prod(shape) != 1:
        return None
    return np.full(shape, spec.low, dtype) if dtype.startswith(("int", "uint", "bool")) else None


def _known_number(value: GraphValue | None) -> int | None:
    """Return a known number; None where it depends on data."""
    return None if value is None or value.data is None or not value.data.size else int(value.data.ravel()[0])


def _slice(value: GraphValue | None, axis: int) -> GraphValue | None:
    """Return one slice, which shares the memory of the whole."""
    if value is None or value.shape is None:
        return value
    shape = list(value.shape)
    del shape[axis]
    return GraphValue(tuple(shape), value.dtype, value.storage)


def _same_types(before: Sequence[GraphValue | None], after: Sequence[GraphValue | None]) -> bool:
    def form(value: GraphValue | None) -> object:
        return None if value is None else (value.shape, value.dtype, value.items)

    return list(map(form, before)) == list(map(form, after[: len(before)]))


def _signature(ops: Iterable[Op]) -> list[tuple[Any, ...]]:
    return [(op.kind, *((t.shape, t.dtype) for t in (*op.tensors(), *op.outputs))) for op in ops]
