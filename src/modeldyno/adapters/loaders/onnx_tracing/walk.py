"""The walk through an ONNX graph: operators written down in the order in which they run."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.adapters.loaders.onnx_tracing import ops as onnx_tracing_ops
from modeldyno.adapters.loaders.onnx_tracing import shapes as onnx_tracing_shapes
from modeldyno.adapters.loaders.onnx_tracing.nodes import Body, Constant, Node, Value, function
from modeldyno.adapters.loaders.onnx_tracing.schema_inference import read
from modeldyno.adapters.loaders.onnx_tracing.shape_checks import refusal
from modeldyno.adapters.loaders.onnx_tracing.shapes import UNKNOWN
from modeldyno.adapters.loaders.onnx_tracing.tensors import Proto, names_nothing
from modeldyno.core.static.flops import Formula, count
from modeldyno.core.static.graph import Op, Role, Tensor
from modeldyno.errors import RequestError, SizesRefused

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.core.spec.input_spec import InputSpec

_MOST_OPS = 1_000_000
_DEPTH = 64
_UNROLLED = 64
_MOST_ROUNDS = 10_000
"""Of a loop that nothing ends."""
_ENDLESS = 2**31
"""Trips that a loop is given when only its condition shall end it."""

Env = MutableMapping[str, Value | None]
Segment = tuple[list[Op], list["Memory"], dict[tuple[str, str], list[str]]]


@dataclass(frozen=True, slots=True)
class Memory:
    """A storage, before it is known when it begins and ends."""

    bytes: int
    role: Role
    scope: str = ""


@dataclass(slots=True)
class Walk:
    """One pass over a model."""

    functions: Mapping[tuple[str, str, str], Proto]
    formulas: Mapping[str, Formula]
    """What decides which branch of an If is the dearer."""
    classes: dict[str, str] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    notes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """What is taken for granted: operator and text to the nodes."""
    places: dict[tuple[tuple[str, str], ...], int] = field(default_factory=dict)
    """Where external data lie, to their storage: tied weights share it."""
    constants: dict[int, Value] = field(default_factory=dict)
    bodies: dict[tuple[tuple[str, str, str], str, bytes], Body] = field(default_factory=dict)
    """Of functions, by the way they are called; kept, as `constants` goes by identity."""
    depth: int = 0
    steps: int = 0

    # -- the beginning --

    def begin(self, body: Body, env: Env, specs: Mapping[str, InputSpec], sizes: Mapping[str, int]) -> None:
        """Bind inputs and weights, those of all bodies."""
        self._hold(body)
        initialised = {constant.name for constant in body.constants}
        for name in body.inputs:
            if name not in initialised:
                env[name] = self._input(body.types[name], specs.get(name), sizes)

    def _input(self, kind: Proto, spec: InputSpec | None, sizes: Mapping[str, int]) -> Value:
        said = read(kind)
        if said.sequence or kind.WhichOneof("value") != "tensor_type":
            return Value(None, said.dtype, sequence=True)
        dims = kind.tensor_type.shape.dim if kind.tensor_type.HasField("shape") else ()
        declared = (
            None
            if said.dims is None
            else tuple(dim.dim_param if n is None else n for dim, n in zip(dims, said.dims, strict=True))
        )
        given = declared if spec is None or spec.shape is None else spec.shape
        if given is None:
            return Value(None, said.dtype)
        shape = tuple(dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in given)
        for dim, length in zip(dims, shape, strict=False):
            if not names_nothing(dim.dim_param):
                self.symbols[dim.dim_param] = length
        dtype = said.dtype or (spec.dtype if spec is not None else None) or "float32"
        data = None if spec is None else _single(spec, shape, dtype)
        return Value(shape, dtype, self._allocate(Tensor(shape, dtype).bytes, Role.INPUT, ""), data)

    def _hold(self, body: Body) -> None:
        """Allocate the initialisers of a body and of those within it."""
        for constant in body.constants:
            if id(constant) in self.constants:
                continue
            place = self.places.get(constant.place) if constant.place else None
            scope = constant.name.rpartition(".")[0]
            index = self._allocate(constant.bytes, Role.WEIGHT, scope) if place is None else place
            if constant.place:
                self.places[constant.place] = index
            self.constants[id(constant)] = _constant(constant, index)
        for node in body.nodes:
            for inner in node.bodies.values():
                self._hold(inner)

    def _allocate(self, size: int, role: Role, scope: str) -> int:
        self.memory.append(Memory(size, role, scope))
        return len(self.memory) - 1

    # -- the course --

    def run(self, body: Body, env: Env) -> None:
        """Go through the nodes in their order."""
        self.depth += 1
        if self.depth > _DEPTH:
            raise RequestError(
                f"Functions and bodies of the graph lie in each other more than {_DEPTH} deep."
            )
        for constant in body.constants:
            env[constant.name] = self.constants[id(constant)]
        for node in body.nodes:
            self.steps += 1
            if max(self.steps, len(self.ops)) > _MOST_OPS:
                raise RequestError(
                    f"The graph has more than {_MOST_OPS:,} operators once its loops and functions are "
                    "unrolled, which is too many to analyse."
                )
            values = [env.get(name, UNKNOWN) if name else None for name in node.inputs]
            outputs = self._step(node, values, env, body)
            env.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)
        self.depth -= 1

    def _step(self, node: Node, values: list[Value | None], env: Env, body: Body) -> Sequence[Value | None]:
        if node.function in self.functions:
            return self._call(node, values)
        if not node.domain and node.kind in _CONTROL and node.bodies:
            found = _CONTROL[node.kind](self, node, values, env)
            if found is not None:
                return found
        if not node.domain and node.kind == "Constant":
            return [self._given(node)]
        if not self.notes and (reason := refusal(node, values)):
            place = f" '{node.name}'" if node.name else ""
            raise SizesRefused(
                f"The network does not take these sizes: {onnx_tracing_ops.kind(node)}{place} {reason}."
            )
        outputs = onnx_tracing_shapes.outputs(node, values, body.types, self.symbols, self._note)
        if outputs and all(value.folded for value in outputs):
            return outputs
        return self._emit(node, values, outputs)

    def _call(self, node: Node, values: list[Value | None]) -> list[Value | None]:
        """Inline a function of the file."""
        given = b"".join(attribute.SerializeToString() for attribute in node.proto.attribute)
        key = (node.function, node.scope, given)
        if key not in self.bodies or node.bodies:
            self.bodies[key] = function(self.functions[node.function], node, self.classes)
        body = self.bodies[key]
        self._hold(body)
        env: Env = dict(zip(body.inputs, [*values, *[None] * len(body.inputs)], strict=False))
        self.run(body, env)
        return [env.get(name) for name in body.outputs]

    def _given(self, node: Node) -> Value:
        """Give what a Constant holds."""
        if node.constant is not None:
            held, key = node.constant, id(node.constant)
            number = held.data is not None and (held.data.size == 1 or held.data.dtype.kind in "iub")
            if key not in self.constants:
                index = -1 if number else self._allocate(held.bytes, Role.WEIGHT, node.scope)
                self.constants[key] = _constant(node.constant, index)
            return self.constants[key]
        name, value = next(iter(node.attributes.items()), ("", None))
        if value is None or name not in {"value_int", "value_ints", "value_float", "value_floats"}:
            return Value((), "string") if name == "value_string" else UNKNOWN
        data = np.array(value, np.float32 if "float" in name else np.int64)
        return Value(data.shape, data.dtype.name, data=data, folded=True)

    def _note(self, text: str, node: Node) -> None:
        self.notes.setdefault((onnx_tracing_ops.kind(node), text), []).append(
            node.name or (node.outputs or ("",))[0]
        )

    def _emit(self, node: Node, values: list[Value | None], outputs: list[Value]) -> list[Value]:
        """Write an operator down, and give its outputs their storages."""
        view = onnx_tracing_shapes.is_view(node, values)
        found: list[Value] = []
        for place, value in enumerate(outputs):
            first = values[0] if view and place == 0 else None
            found.append(replace(value, storage=first.storage) if first else self._stored(value, node))
        named = [value for name, value in zip(node.outputs, found, strict=False) if name]
        self._write(node, onnx_tracing_ops.arguments(node, values), values, named)
        return found

    def _write(
        self,
        node: Node,
        arguments: Mapping[str, Any],
        values: Sequence[Value | None],
        outputs: Sequence[Value | None],
    ) -> None:
        """Add an operator; a formula must not take what is known of its sizes for the whole."""
        made = [value for value in outputs if value is not None and onnx_tracing_ops.is_known(value)]
        tensors = tuple(tensor for value in made for tensor in onnx_tracing_ops.tensors(value))
        sized = all(value is None or onnx_tracing_ops.is_known(value) for value in (*values, *outputs))
        name = next(filter(None, node.outputs), "")
        self.ops.append(
            Op(onnx_tracing_ops.kind(node), arguments, tensors, node.scope, sized=sized, name=name)
        )

    def _stored(self, value: Value, node: Node) -> Value:
        if value.items is not None:
            return replace(value, items=tuple(self._stored(item, node) for item in value.items))
        if value.storage >= 0 or value.folded or value.shape is None:
            return value
        return replace(
            value, storage=self._allocate(onnx_tracing_ops.tensor(value).bytes, Role.ACTIVATION, node.scope)
        )

    # -- bodies --

    def _inner(self, body: Body, given: Sequence[Value | None], env: Env) -> list[Value | None]:
        inner: Env = ChainMap({}, env)
        inner.update(zip(body.inputs, given, strict=False))
        self.run(body, inner)
        return [inner.get(name, UNKNOWN) for name in body.outputs]

    def branch(self, node: Node, values: list[Value | None], env: Env) -> list[Value | None] | None:
        """Take the branch of an If that its condition chooses, or the one that may cost more."""
        chosen = _number(values[0]) if values else None
        if chosen is not None:
            return self._inner(node.bodies["then_branch" if chosen else "else_branch"], (), env)
        tried: list[tuple[float, float, str, list[Value | None], Segment]] = []
        refused: list[SizesRefused] = []
        for name in ("then_branch", "else_branch"):
            start, depth = (len(self.ops), len(self.memory)), self.depth
            notes = {key: list(found) for key, found in self.notes.items()}
            try:
                outputs = self._inner(node.bodies[name], (), env)
            except SizesRefused as error:
                refused.append(error)
                self._cut(*start)
            else:
                cost, open_ = self._cost(self.ops[start[0] :])
                tried.append((cost + open_, cost, name, outputs, self._cut(*start)))
            self.notes, self.depth = notes, depth
        if not tried:
            raise refused[0]
        _, cost, name, outputs, (ops, memory, notes) = max(tried, key=lambda each: each[:2])
        self.ops += ops
        self.memory += memory
        self.notes = notes
        surely = cost >= max((each[0] for each in tried if each[2] != name), default=cost)
        why = f"{'the' if surely else 'which may be the'} dearer one"
        self._note(f"takes its {name}, {'the only one that takes these sizes' if refused else why}", node)
        return outputs

    def _cost(self, ops: Iterable[Op]) -> tuple[float, float]:
        """Give the operations of those that are counted, and the most that the others can take."""
        counted = [count(op, self.formulas) for op in ops]
        open_ = sum(2 * (inf if cost.most is None else cost.most) for cost in counted)
        return sum(2 * cost.macs + cost.elementwise for cost in counted), open_

    def _cut(self, ops: int, memory: int) -> Segment:
        """Take back what was written from here on."""
        taken = self.ops[ops:], self.memory[memory:], self.notes
        del self.ops[ops:], self.memory[memory:]
        self.constants = {k: v for k, v in self.constants.items() if v.storage < memory}
        self.places = {k: v for k, v in self.places.items() if v < memory}
        return taken

    def loop(self, node: Node, values: list[Value | None], env: Env) -> list[Value | None] | None:
        """Unroll a Loop; once where its trip count depends on data."""
        limit, goes, *carried = [*values, None, None][: max(2, len(values))]
        trips = _number(limit)
        if limit is not None and trips is None:
            self._note("is taken to go round once, for its trip count depends on data", node)
            trips = 1
        if trips is None or trips >= _ENDLESS:
            trips = -1
        state = [_TRUE if goes is None else goes, *carried]

        def given(i: int, now: list[Value | None]) -> list[Value | None] | None:
            known = _number(now[0])
            if i == trips or known == 0:
                return None
            if trips < 0 and (i == _MOST_ROUNDS or (known is None and i)):
                self._note("is taken to end here, for its condition depends on data", node)
                return None
            if trips > 0 and known is None:
                self._once("is taken to use up its trip count", node)
            counter = np.asarray(i, np.int64)
            return [Value((), "int64", data=counter, folded=True), *now]

        done, now, gathered = self._rounds(node, env, given, state, max(trips, 0))
        return [*now[1:], *self._gather(node, gathered, done, [0] * len(node.outputs), len(now) - 1)]

    def scan(self, node: Node, values: list[Value | None], env: Env) -> list[Value | None] | None:
        """Unroll a Scan over the axes of its inputs; not the one of opset 8, which has a batch."""
        scanned = node.attributes.get("num_scan_inputs")
        if scanned is None or node.schema is None or node.schema.since_version < 9:  # noqa: PLR2004
            return None
        sources = values[len(values) - scanned :]
        axes = node.attributes.get("scan_input_axes", (0,) * scanned)
        pairs = zip(sources, axes, strict=True)
        lengths = {value.shape[a] for value, a in pairs if value is not None and value.shape is not None}
        if len(lengths) != 1:
            return None
        trips = lengths.pop()
        slices = [_sliced(value, axis) for value, axis in zip(sources, axes, strict=True)]
        state = values[: len(values) - scanned]

        def given(i: int, now: list[Value | None]) -> list[Value | None] | None:
            return None if i == trips else [*now, *slices]

        done, now, gathered = self._rounds(node, env, given, state, trips)
        into = node.attributes.get("scan_output_axes", (0,) * len(node.outputs))
        return [*now, *self._gather(node, gathered, done, into, len(now))]

    def each(self, node: Node, values: list[Value | None], env: Env) -> list[Value | None] | None:
        """Carry a SequenceMap out for each item."""
        items = None if not values or values[0] is None else values[0].items
        if items is None:
            return None
        results = []
        for i in range(len(items)):
            given = [v.items[i] if v is not None and v.items else v for v in values]
            results.append(self._inner(node.bodies["body"], given, env))
        columns = [tuple(row[k] or UNKNOWN for row in results) for k in range(len(node.outputs))]
        return [Value(None, c[0].dtype if c else "", items=c, sequence=True) for c in columns]

    def _rounds(
        self,
        node: Node,
        env: Env,
        given: Callable[[int, list[Value | None]], list[Value | None] | None],
        state: list[Value | None],
        trips: int,
    ) -> tuple[int, list[Value | None], list[Value | None]]:
        """Repeat a body; give the rounds, the state in the end, and what the last one gave beside it."""
        body, i, gathered = node.bodies["body"], 0, list[Value | None]()
        before: list[Op] = []
        while (inputs := given(i, state)) is not None:
            start = len(self.ops)
            outputs = self._inner(body, inputs, env)
            same = _alike(state, outputs)
            state, gathered = outputs[: len(state)], outputs[len(state) :]
            ops = self.ops[start:]
            i += 1
            if i >= _UNROLLED and i < trips and same and _signature(ops) == _signature(before):
                if len(self.ops) + (trips - i) * len(ops) > _MOST_OPS:
                    self.steps = _MOST_OPS
                    raise RequestError(
                        f"The graph has more than {_MOST_OPS:,} operators once its loops are unrolled, "
                        "which is too many to analyse."
                    )
                self.ops += ops * (trips - i)
                i = trips
                break
            before = ops
        return i, state, gathered

    def _once(self, text: str, node: Node) -> None:
        if node.name not in self.notes.get((onnx_tracing_ops.kind(node), text), ()):
            self._note(text, node)

    def _gather(
        self, node: Node, last: list[Value | None], rounds: int, axes: Sequence[int], skipped: int
    ) -> list[Value | None]:
        """Put together what each round gave, along a new axis."""
        if not last:
            left = max(0, len(node.outputs) - skipped)
            return list[Value | None]([UNKNOWN] * left)
        found: list[Value | None] = []
        for value, axis in zip(last, axes, strict=False):
            if value is None or value.shape is None:
                found.append(value)
                continue
            shape = list(value.shape)
            shape.insert(axis if axis >= 0 else axis + len(shape) + 1, rounds)
            found.append(self._stored(Value(tuple(shape), value.dtype), node))
        given = [value for value in last if value is not None and onnx_tracing_ops.is_known(value)]
        parts = [tensor for value in given for tensor in onnx_tracing_ops.tensors(value)]
        self._write(node, {"last": parts}, last, found)
        return found


_TRUE = Value((), "bool", data=np.asarray(True), folded=True)
_CONTROL: dict[str, Callable[[Walk, Node, list[Value | None], Env], list[Value | None] | None]] = {
    "If": Walk.branch,
    "Loop": Walk.loop,
    "Scan": Walk.scan,
    "SequenceMap": Walk.each,
}


# -- parts ----------------------------------------------------------------------------------------------


def _constant(constant: Constant, index: int) -> Value:
    known = constant.data is not None
    return Value(constant.shape, constant.dtype, index, constant.data, folded=known)


def _single(spec: InputSpec, shape: tuple[int, ...], dtype: str) -> ndarray | None:
    """Give the value of an input of one whole number or flag, where its range leaves one only."""
    if spec.low is None or spec.low != spec.high or prod(shape) != 1:
        return None
    return np.full(shape, spec.low, dtype) if dtype.startswith(("int", "uint", "bool")) else None


def _number(value: Value | None) -> int | None:
    """Give a known number; None where it depends on data."""
    return None if value is None or value.data is None or not value.data.size else int(value.data.ravel()[0])


def _sliced(value: Value | None, axis: int) -> Value | None:
    """Give one slice, which lies in the memory of the whole."""
    if value is None or value.shape is None:
        return value
    shape = list(value.shape)
    del shape[axis]
    return Value(tuple(shape), value.dtype, value.storage)


def _alike(before: Sequence[Value | None], after: Sequence[Value | None]) -> bool:
    def form(value: Value | None) -> object:
        return None if value is None else (value.shape, value.dtype, value.items)

    return list(map(form, before)) == list(map(form, after[: len(before)]))


def _signature(ops: Iterable[Op]) -> list[tuple[Any, ...]]:
    return [(op.kind, *((t.shape, t.dtype) for t in (*op.tensors(), *op.outputs))) for op in ops]
