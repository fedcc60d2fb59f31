"""Trace a function of TensorFlow into the neutral Graph at given sizes; no variable is read.

Only what the outputs depend on is counted: TensorFlow prunes the rest before it runs. What follows from
constants alone is no operator, nor is a change of shape. Functions are inlined, with the shapes of the call.
A loop counts as many times as its constant limit says, else once; of two branches the one with more MACs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, SizesRefused, short_reason
from modeldyno.base.job.static_options import Mode
from modeldyno.models.flops import Formula, count_op
from modeldyno.models.flops.registry import formulas
from modeldyno.models.loaders.operator_memory import OperatorMemory, scopes
from modeldyno.models.loaders.tensorflow_loops import (
    CONDITION,
    ENTER,
    EXIT,
    MERGE,
    NEXT,
    SWITCH,
    ancestors,
    frames,
    note_of,
    rounds_of_functions,
    set_shapes_in_frames,
)
from modeldyno.models.loaders.unrolling import Unrolling
from modeldyno.models.static.graph import Graph, Op, Role, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.models.interface import Tracing

_SAME_MEMORY = frozenset(
    {
        "Bitcast", "CheckNumerics", "EnsureShape", "ExpandDims", "Identity", "IdentityN", "PreventGradient",
        "ReadVariableOp", "Reshape", "Snapshot", "Squeeze", "StopGradient", "TensorListFromTensor",
        "TensorListStack",
    }
)  # fmt: skip
"""Operators whose output is an input as it is, or in another shape."""
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCHES = frozenset({"If", "StatelessIf"})
_TELLING = _CALLS | _LOOPS | _BRANCHES | {"TensorListStack"}
"""Operators whose outputs have the sizes that were found when they were visited."""
_FLOW = frozenset({ENTER, EXIT, CONDITION, MERGE, NEXT, SWITCH})
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
    import tensorflow as tf  # optional, and heavy

    if tracing.mode is not Mode.INFERENCE:
        raise RequestError(
            "Of a model of TensorFlow only a call can be analysed; inspect it with mode 'inference'."
        )
    specs = {spec.name: tf.TensorSpec(spec.shape, spec.dtype, name=spec.name) for spec in tracing.inputs}
    try:
        traced = tf.function(function).get_concrete_function(**specs)
    except Exception as error:
        raise SizesRefused(
            f"The model cannot be called with inputs of these sizes: {_reason(error)}."
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


def _reason(error: Exception) -> str:
    """Return what went wrong, without the places in code that TensorFlow and Keras put around it."""
    reason = str(error).rpartition("Error: ")[2].partition("Arguments received by")[0]
    return short_reason(ValueError(_CALLING.sub("", reason)), 200)


_CALLING = re.compile(r"Exception encountered when calling [^\n]*\n")


@dataclass(frozen=True, slots=True)
class _Place:
    """The graph that is visited, and the one that has its functions."""

    graph: Any
    library: Any

    def function(self, op: Any, attribute: str) -> Any:
        """Return the graph of the function that an attribute of an operator names."""
        return self._graph(op.get_attr(attribute).name)

    def called(self, op: Any) -> Any:
        """Return the graph of the function that an operator calls; None if it calls none."""
        if op.type in _CALLS:
            return self.function(op, "f")
        return self._graph(op.type) if self.library._is_function(op.type) else None  # noqa: SLF001 - as below

    def _graph(self, name: str) -> Any:
        """Return the graph of a function; of one of TensorFlow 1 there is but the definition."""
        from tensorflow.python.framework.function_def_to_graph import (  # there is no public way
            function_def_to_graph,
        )

        function = self.library._get_function(name)  # noqa: SLF001 - as above
        if hasattr(function, "graph"):
            return function.graph
        with self.library.as_default():
            return function_def_to_graph(function.cached_definition, include_library_functions=True)


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
    repeats: int = 1
    """How often what is visited runs, as it is in loops of TensorFlow 1."""

    def run(self, graph: Any, values: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """Visit what the outputs of a graph depend on; return their values.

        A value is a Tensor, a variable, or None where it is neither.
        """
        env: dict[str, Any] = {}
        learnt: dict[str, Any] = {}
        while True:
            sized, known, ends = self._at_sizes(graph, values, outputs, learnt)
            env |= known
            if self._visit_all(_Place(sized, graph), ends, env, learnt):
                return [env.get(tensor.name) for tensor in ends]

    def _visit_all(
        self, place: _Place, outputs: Sequence[Any], env: dict[str, Any], learnt: dict[str, Any]
    ) -> bool:
        """Visit what outputs depend on; False if sizes were `learnt` from which those of others follow.

        TensorFlow infers none of what loops, functions and lists of tensors return; here they were visited.
        """
        needed, loops, outer = ancestors(outputs), frames(place.library, place.graph), self.repeats
        new: dict[str, Any] = {}
        for op in place.graph.get_operations():
            if op.name not in needed or (op.outputs and op.outputs[0].name in env):
                continue
            if new and op.type not in _TELLING and not all(map(_is_sized, op.outputs)):
                learnt |= new
                break
            loop = loops.get(op.name)
            self.repeats = outer if loop is None else outer * loop.rounds
            self.notes += [loop.note] if loop is not None and loop.note else []
            self.unrolling.step()
            self._visit(place, op, env)
            if op.type in _TELLING:
                new |= {t.name: env[t.name] for t in op.outputs if _is_learnt(t, env.get(t.name))}
        else:
            new = {}
        self.repeats = outer
        return not new

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
        self, graph: Any, values: Sequence[Any], outputs: Sequence[Any], learnt: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any], Sequence[Any]]:
        """Return a graph with shapes that follow from those of the values, what is known, and its outputs.

        What was `learnt` of other tensors is given, too.
        """
        values_by_name = {tensor.name: value for tensor, value in zip(graph.inputs, values, strict=True)}
        if all(_is_sized(tensor) for op in graph.get_operations() for tensor in op.outputs):
            return graph, values_by_name, outputs
        import tensorflow as tf  # optional, and heavy

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
            for name, value in learnt.items():
                give(graph.get_tensor_by_name(name), value)
            for op in graph.get_operations():
                value = values_by_name.get(_handle(op.inputs[0]).name) if op.inputs else None
                if any(tensor.name in mapped for tensor in op.outputs):
                    continue
                if op.type == "ReadVariableOp" and value is not None:
                    give(op.outputs[0], self._same(value, op.outputs[0]))
                elif op.type == "TensorListGetItem" and isinstance(value, Tensor) and value.shape:
                    dtype = op.outputs[0].dtype.base_dtype.name
                    give(op.outputs[0], Tensor(value.shape[1:], dtype, value.storage))
            tf.graph_util.import_graph_def(graph.as_graph_def(), input_map=mapped, name="")
        set_shapes_in_frames(sized)
        named = {tensor.name: sized.get_tensor_by_name(tensor.name) for tensor in outputs} | mapped
        return sized, env, [named[tensor.name] for tensor in outputs]

    def _visit(self, place: _Place, op: Any, env: dict[str, Any]) -> None:
        values = [env.get(tensor.name) for tensor in op.inputs]
        if (called := place.called(op)) is not None:
            results = self._call(called, values)
        elif op.type in _LOOPS:
            results = self._loop(place, op, values)
        elif op.type in _BRANCHES:
            results = self._branch(place, op, values)
        elif op.type in _FLOW:
            results = self._pass_on(op, values[0])
        elif op.type == "Const" or (op.outputs and all(map(_is_constant, op.outputs))):
            results = [Tensor(_shape(tensor) or (), tensor.dtype.base_dtype.name) for tensor in op.outputs]
        elif op.type in _SAME_MEMORY and values:
            results = [self._same(value, tensor) for value, tensor in zip(values, op.outputs, strict=False)]
        else:
            results = self._record(op, values)
        env.update({tensor.name: value for tensor, value in zip(op.outputs, results, strict=False)})

    def _pass_on(self, op: Any, value: Any) -> list[Any]:
        if op.type == SWITCH and op.inputs[1].op.type != CONDITION:
            self.notes.append("both branches of a condition of TensorFlow 1 are counted")
        return [self._same(value, tensor) for tensor in op.outputs]

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
        if op.type in _LISTS:
            outputs = [replace(outputs[0], shape=_shape_of_list(op, values))]
        sized = all(map(_is_sized, op.outputs)) and all(isinstance(value, Tensor) for value in values)
        kept = tuple(value for value in outputs if value.dtype not in _HANDLES)
        recorded = Op(f"tf.{op.type}", _arguments(op, values), kept, scope, sized=sized, name=op.name)
        self.unrolling.step(max(0, self.repeats - 1))
        self.ops += [recorded] * self.repeats
        return outputs

    def _call(self, inner: Any, values: list[Any]) -> list[Any]:
        self.unrolling.step()  # of an empty body, too
        with self.unrolling.body():
            return self.run(inner, values, inner.outputs)

    def _loop(self, place: _Place, op: Any, values: list[Any]) -> list[Any]:
        condition, body = place.function(op, "cond"), place.function(op, "body")
        rounds, exact = rounds_of_functions(place.graph, op, condition, body)
        if not exact:
            self.notes.append(note_of(op.name, rounds))
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


_LISTS = frozenset({"TensorListReserve", "TensorListSetItem"})


def _shape_of_list(op: Any, values: Sequence[Any]) -> tuple[int, ...]:
    """Return the number of tensors in a list and, once one is set, the shape of each; empty if unknown."""
    import tensorflow as tf  # optional, and heavy

    if op.type == "TensorListReserve":
        count = tf.get_static_value(op.inputs[1])
        return () if count is None else (int(count),)
    before, _, item = values[:3]
    known = (
        isinstance(before, Tensor) and before.shape and isinstance(item, Tensor) and _is_sized(op.inputs[2])
    )
    return (before.shape[0], *item.shape) if known else ()


_HANDLES = frozenset({"resource", "variant"})
"""Types of handles, which have no size."""


def _handle(tensor: Any) -> Any:
    """Return the handle that a tensor is, before control flow of TensorFlow 1 passed it on."""
    while tensor.dtype.base_dtype.name in _HANDLES and tensor.op.type in {*_FLOW, "Identity"}:
        tensor = tensor.op.inputs[0]
    return tensor


def _shape(tensor: Any) -> tuple[int, ...] | None:
    """Return the shape of a symbolic tensor; None where it is not known."""
    return tuple(tensor.shape) if tensor.shape.is_fully_defined() else None


def _is_sized(tensor: Any) -> bool:
    return tensor.dtype.base_dtype.name in _HANDLES or tensor.shape.is_fully_defined()


def _is_learnt(tensor: Any, value: Any) -> bool:
    """Whether the value of a tensor has the shape that TensorFlow does not know."""
    if _is_sized(tensor) or not isinstance(value, Tensor) or not value.shape:
        return False
    return bool(tensor.shape.is_compatible_with(value.shape))


def _is_constant(tensor: Any) -> bool:
    """Whether its value follows from constants, as far as TensorFlow's shape arithmetic can tell."""
    import tensorflow as tf  # optional, and heavy

    return tensor.dtype.is_integer and tf.get_static_value(tensor) is not None


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
