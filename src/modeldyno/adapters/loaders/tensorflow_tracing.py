"""Trace a function of TensorFlow into the neutral Graph at given sizes; no variable is read.

Only what the outputs depend on is counted: TensorFlow prunes the rest before it runs. What follows from
constants alone is no operator, nor is a change of shape. Functions are inlined, with the shapes of the call.
A loop counts as many times as its constant limit says, else once; of two branches the one with more MACs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeldyno import plugins
from modeldyno.adapters.loaders.operator_memory import OperatorMemory, scopes
from modeldyno.adapters.loaders.unrolling import Unrolling
from modeldyno.core.spec.static_options import Mode
from modeldyno.core.static.flops import Formula, count_op
from modeldyno.core.static.flops.registry import formulas
from modeldyno.core.static.graph import Graph, Op, Role, Tensor
from modeldyno.errors import RequestError, short_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.interfaces.loader import Tracing

_SAME_MEMORY = frozenset(
    {
        "Bitcast", "CheckNumerics", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "PreventGradient",
        "ReadVariableOp", "Reshape", "Snapshot", "Squeeze", "StopGradient", "TensorListFromTensor",
        "TensorListStack",
    }
)  # fmt: skip
"""Operators whose output is an input as it is, or in another shape."""
_CALLS = {"PartitionedCall": "f", "StatefulPartitionedCall": "f"}
_LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCHES = frozenset({"If", "StatelessIf"})
_ATTRIBUTES = ("transpose_a", "transpose_b", "adj_x", "adj_y", "equation", "data_format")
"""Attributes that formulas read."""


def trace_function(
    function: Callable[..., Any], tracing: Tracing, modules: dict[str, str], scope_of: Callable[[str], str]
) -> Graph:
    """Return the Graph of a function that takes tensors by keyword.

    Args:
        function: as in `Form.TENSORFLOW`.
        tracing: the inputs, whose shapes are concrete.
        modules: module path to the name of its class; empty to list the scopes of the operators.
        scope_of: returns the module of an operator, given its name.

    Raises:
        RequestError: it cannot be traced at these sizes.
    """
    import tensorflow as tf  # noqa: PLC0415 - optional, and heavy

    if tracing.mode is not Mode.INFERENCE:
        raise RequestError(
            "Of a model of TensorFlow only a call can be analysed; inspect it with mode 'inference'."
        )
    specs = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in tracing.inputs}
    try:
        traced = tf.function(function).get_concrete_function(**specs)
    except Exception as error:
        raise RequestError(
            f"The model cannot be called with inputs of these sizes: {short_reason(error, 200)}."
        ) from error
    walk = _Walk(formulas=formulas(plugins.formulas()), scope_of=scope_of)
    graph, variables = traced.graph, {id(each.handle): each for each in traced.graph.variables}
    captured = {inner.name: walk.captured(variables.get(id(outer)), inner) for outer, inner in graph.captures}
    values = [
        captured[tensor.name] if tensor.name in captured else walk.new_tensor(tensor, Role.INPUT)
        for tensor in graph.inputs
    ]
    outputs = walk.run(graph, values, graph.outputs)
    returned = {value.storage for value in outputs if isinstance(value, Tensor)}
    return Graph(
        ops=tuple(walk.ops),
        storages=tuple(walk.memory.lifetimes(walk.ops, returned)),
        sizes=dict(tracing.sizes),
        modules=modules or scopes(walk.ops),
        assumptions=tuple(dict.fromkeys(walk.notes)),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """The graph that is visited, and the one that has its functions."""

    graph: Any
    library: Any

    def function(self, op: Any, attribute: str) -> Any:
        """Return the graph of the function that an operator calls."""
        return self.library._get_function(op.get_attr(attribute).name).graph  # noqa: SLF001 - there is no public way


@dataclass(kw_only=True)
class _Walk:
    """Visits operators in the order in which they run, and records them and their memory."""

    formulas: Mapping[str, Formula]
    scope_of: Callable[[str], str]
    ops: list[Op] = field(default_factory=list)
    memory: OperatorMemory = field(default_factory=OperatorMemory)
    weights: dict[int, int] = field(default_factory=dict)
    """Identity of a variable to its storage."""
    notes: list[str] = field(default_factory=list)
    unrolling: Unrolling = field(default_factory=Unrolling)

    def run(self, graph: Any, values: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """Visit what the outputs of a graph depend on; return their values.

        A value is a Tensor, a variable, or None where it is neither.
        """
        sized, env, outputs = self._at_sizes(graph, values, outputs)
        needed = _ancestors(outputs)
        for op in sized.get_operations():
            if op.name in needed and not (op.outputs and op.outputs[0].name in env):
                self.unrolling.step()
                self._visit(_Place(sized, graph), op, env)
        return [env.get(tensor.name) for tensor in outputs]

    def new_tensor(self, tensor: Any, role: Role, scope: str = "") -> Tensor:
        """Return a tensor with memory of its own."""
        shape, dtype = _shape(tensor), tensor.dtype.base_dtype.name
        if shape is not None and dtype not in _HANDLES:
            return self.memory.new_tensor(shape, dtype, role, scope)
        return Tensor(shape or (), dtype, self.memory.add(0, role, scope))

    def captured(self, variable: Any, inner: Any) -> Any:
        """Return a variable that a function captured, or the tensor of a constant."""
        if variable is not None or inner.dtype.base_dtype.name in _HANDLES:
            return variable
        return self.new_tensor(inner, Role.WEIGHT)

    def _at_sizes(
        self, graph: Any, values: Sequence[Any], outputs: Sequence[Any]
    ) -> tuple[Any, dict[str, Any], Sequence[Any]]:
        """Return a graph with shapes that follow from those of the values, what is known, and its outputs."""
        values_by_name = {tensor.name: value for tensor, value in zip(graph.inputs, values, strict=True)}
        if all(_is_sized(tensor) for op in graph.get_operations() for tensor in op.outputs):
            return graph, values_by_name, outputs
        import tensorflow as tf  # noqa: PLC0415 - optional, and heavy

        env: dict[str, Any] = {}
        mapped: dict[str, Any] = {}

        def give(tensor: Any, value: Any) -> None:
            shape = value.shape if isinstance(value, Tensor) and value.dtype not in _HANDLES else tensor.shape
            mapped[tensor.name] = tf.compat.v1.placeholder(tensor.dtype, shape, name=f"given_{len(mapped)}")
            env[mapped[tensor.name].name] = value

        sized = tf.Graph()
        with sized.as_default():
            for tensor in graph.inputs:
                give(tensor, values_by_name[tensor.name])
            for op in graph.get_operations():
                value = values_by_name.get(op.inputs[0].name) if op.inputs else None
                if op.type == "ReadVariableOp" and value is not None:
                    give(op.outputs[0], self._same(value, op.outputs[0]))
                elif op.type == "TensorListGetItem" and isinstance(value, Tensor) and value.shape:
                    dtype = op.outputs[0].dtype.base_dtype.name
                    give(op.outputs[0], Tensor(value.shape[1:], dtype, value.storage))
            tf.graph_util.import_graph_def(graph.as_graph_def(), input_map=mapped, name="")
        named = {tensor.name: sized.get_tensor_by_name(tensor.name) for tensor in outputs} | mapped
        return sized, env, [named[tensor.name] for tensor in outputs]

    def _visit(self, place: _Place, op: Any, env: dict[str, Any]) -> None:
        values = [env.get(tensor.name) for tensor in op.inputs]
        if op.type in _CALLS:
            results = self._call(place.function(op, _CALLS[op.type]), values)
        elif op.type in _LOOPS:
            results = self._loop(place, op, values)
        elif op.type in _BRANCHES:
            results = self._branch(place, op, values)
        elif op.type == "Const" or (op.outputs and all(map(_is_constant, op.outputs))):
            results = [Tensor(_shape(tensor) or (), tensor.dtype.base_dtype.name) for tensor in op.outputs]
        elif op.type in _SAME_MEMORY and values:
            results = [self._same(value, tensor) for value, tensor in zip(values, op.outputs, strict=False)]
        else:
            results = self._record(op, values)
        env.update({tensor.name: value for tensor, value in zip(op.outputs, results, strict=False)})

    def _same(self, value: Any, output: Any) -> Any:
        """Return a value in the shape of an output; that of a variable where it is read."""
        if output.dtype.base_dtype.name == "resource":
            return value
        shape, dtype = _shape(output), output.dtype.base_dtype.name
        if isinstance(value, Tensor):
            if shape is None or dtype in _HANDLES:  # a list keeps the shape of all its elements
                shape = value.shape
            return Tensor(shape, dtype, value.storage)
        if value is None:
            return self.new_tensor(output, Role.WEIGHT)
        if id(value) not in self.weights:
            size = Tensor(tuple(value.shape), value.dtype.base_dtype.name).bytes
            self.weights[id(value)] = self.memory.add(size, Role.WEIGHT)
        return Tensor(tuple(value.shape), dtype, self.weights[id(value)])

    def _record(self, op: Any, values: list[Any]) -> list[Any]:
        if not op.outputs:
            return []
        scope = self.scope_of(op.name)
        outputs = [self.new_tensor(tensor, Role.ACTIVATION, scope) for tensor in op.outputs]
        sized = all(map(_is_sized, op.outputs)) and all(isinstance(value, Tensor) for value in values)
        kept = tuple(value for value in outputs if value.dtype not in _HANDLES)
        self.ops.append(Op(f"tf.{op.type}", _arguments(op, values), kept, scope, sized=sized, name=op.name))
        return outputs

    def _call(self, inner: Any, values: list[Any]) -> list[Any]:
        self.unrolling.step()  # of an empty body, too
        with self.unrolling.body():
            return self.run(inner, values, inner.outputs)

    def _loop(self, place: _Place, op: Any, values: list[Any]) -> list[Any]:
        body, rounds = place.function(op, "body"), _rounds(place, op)
        if rounds is None:
            self.notes.append(f"the loop {op.name} is counted once, as its rounds depend on data")
        for _ in range(1 if rounds is None else rounds):
            values = self._call(body, values)
        return values

    def _branch(self, place: _Place, op: Any, values: list[Any]) -> list[Any]:
        """Count the branch with more MACs."""
        tries = []
        for name in ("then_branch", "else_branch"):
            mark = len(self.ops)
            results = self._call(place.function(op, name), values[1:])
            ops, self.ops[mark:] = self.ops[mark:], []
            tries.append((sum(count_op(each, self.formulas).macs for each in ops), ops, results, name))
        _, ops, results, name = max(tries, key=lambda each: each[0])
        self.ops += ops
        self.notes.append(f"of the condition {op.name} the {name} is counted")
        return results


_HANDLES = frozenset({"resource", "variant"})
"""Types of handles, which have no size."""


def _shape(tensor: Any) -> tuple[int, ...] | None:
    """Return the shape of a symbolic tensor; None where it is not known."""
    return tuple(tensor.shape) if tensor.shape.is_fully_defined() else None


def _is_sized(tensor: Any) -> bool:
    return tensor.dtype.base_dtype.name in _HANDLES or tensor.shape.is_fully_defined()


def _is_constant(tensor: Any) -> bool:
    """Whether its value follows from constants, as far as TensorFlow's shape arithmetic can tell."""
    import tensorflow as tf  # noqa: PLC0415 - optional, and heavy

    return tensor.dtype.is_integer and tf.get_static_value(tensor) is not None


def _ancestors(outputs: Sequence[Any]) -> set[str]:
    """Return the names of the operators that outputs depend on."""
    names: set[str] = set()
    pending = [tensor.op for tensor in outputs]
    while pending:
        op = pending.pop()
        if op.name not in names:
            names.add(op.name)
            pending += [tensor.op for tensor in op.inputs]
    return names


def _rounds(place: _Place, op: Any) -> int | None:
    """Return the rounds of a loop of `tf.while_loop`: its second value limits its first, which counts."""
    condition = place.function(op, "cond")
    first, limit = condition.inputs[:2]
    if not any(
        each.type == "Less" and [tensor.name for tensor in each.inputs] == [first.name, limit.name]
        for each in condition.get_operations()
    ):
        return None
    begin, end = (_constant(place.graph, tensor) for tensor in op.inputs[:2])
    return None if begin is None or end is None else max(0, int(end) - int(begin))


def _constant(graph: Any, tensor: Any) -> Any:
    """Return the value of a scalar that follows from constants; None if it does not."""
    import tensorflow as tf  # noqa: PLC0415 - optional, and heavy

    if any(name for name in _ancestors([tensor]) if graph.get_operation_by_name(name).type == "Placeholder"):
        return None
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(tensor)


def _arguments(op: Any, values: list[Any]) -> dict[str, Any]:
    """Return operands by the names of the operator's schema, attributes that formulas read, the window."""
    arguments: dict[str, Any] = {}
    remaining = iter(
        value if isinstance(value, Tensor) and value.dtype not in _HANDLES else None for value in values
    )
    for argument in op.op_def.input_arg:
        if argument.number_attr:
            arguments[argument.name] = [next(remaining) for _ in range(op.get_attr(argument.number_attr))]
        elif argument.type_list_attr:
            arguments[argument.name] = [next(remaining) for _ in op.get_attr(argument.type_list_attr)]
        else:
            arguments[argument.name] = next(remaining)
    present = op.node_def.attr
    for name in _ATTRIBUTES:
        if name in present:
            attribute = op.get_attr(name)
            arguments[name] = attribute.decode() if isinstance(attribute, bytes) else attribute
    if "ksize" in present:
        channels_first = arguments.get("data_format", "NHWC").startswith("NC")
        sizes = tuple(op.get_attr("ksize"))
        arguments["kernel_size"] = sizes[2:] if channels_first else sizes[1:-1]
    if isinstance(weights := arguments.get("filter"), Tensor):
        arguments["kernel_size"] = weights.shape[:-2]
    return arguments
