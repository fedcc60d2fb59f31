"""How often loops of TensorFlow run: as functions, and as the frames of TensorFlow 1 within a graph.

A loop counts up to a limit: where the begin, the step and the limit follow from constants and shapes, so does
the number of rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

ENTER, MERGE, NEXT, EXIT, SWITCH, CONDITION = "Enter", "Merge", "NextIteration", "Exit", "Switch", "LoopCond"
"""Control flow of TensorFlow 1, whose operators pass a value on; `Enter` names the frame of a loop."""
_SUMS = frozenset({"Add", "AddV2"})


def ancestors(outputs: Sequence[Any], ends: Callable[[Any], bool] | None = None) -> set[str]:
    """Return the names of the operators that outputs depend on, not those behind one that `ends`."""
    names: set[str] = set()
    pending = [tensor.op for tensor in outputs]
    while pending:
        op = pending.pop()
        if op.name not in names:
            names.add(op.name)
            pending += [] if ends is not None and ends(op) else [tensor.op for tensor in op.inputs]
    return names


def rounds_of_functions(graph: Any, loop: Any, condition: Any, body: Any) -> tuple[int | None, bool]:
    """Return the most rounds of a loop of functions, None if unknown, and whether it always runs so many."""

    def counted(test: Any) -> int | None:
        places = {tensor.name: number for number, tensor in enumerate(condition.inputs)}
        count, limit = (_through(tensor) for tensor in test.inputs)
        place = places.get(count.name)
        if place is None:
            return None
        step = _step(body, body.outputs[place], body.inputs[place])
        if limit.name in places:
            kept = places[limit.name]
            if _through(body.outputs[kept]).name != body.inputs[kept].name:
                return None
            end = _constant(graph, loop.inputs[kept])
        else:
            end = _constant(condition, limit)
        return _rounds_between(_constant(graph, loop.inputs[place]), end, step)

    return _least(condition.outputs, counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFrame:
    """A loop of TensorFlow 1, whose operators lie in the graph around it."""

    name: str
    rounds: int
    """In all, with those of the loops around it; one of its own where these are unknown."""
    note: str
    """What is assumed of its rounds; empty if nothing."""


def frames(graph: Any, sized: Any) -> Mapping[str, LoopFrame]:
    """Return the innermost loop of TensorFlow 1 that each operator is in, by the name of the operator.

    Args:
        graph: has the operators.
        sized: the same with known shapes, in which some of them may be cut off.
    """
    operators = graph.get_operations()
    conditions = {_frame_name(op): op for op in operators if op.type == CONDITION}
    inside: dict[str, tuple[str, ...]] = {}
    for op in operators:  # in their order, but for what leads back to a Merge
        before = [tensor.op for tensor in op.inputs]
        before = before[:1] if op.type in {MERGE, EXIT} else [*before, *op.control_inputs]
        around = max((inside.get(other.name, ()) for other in before), key=len, default=())
        if op.type == ENTER:
            around = (*around, op.get_attr("frame_name").decode())
        inside[op.name] = around[:-1] if op.type == EXIT else around
    known: dict[tuple[str, ...], LoopFrame] = {}
    for path in sorted(set(inside.values()) - {()}, key=len):
        outer = known[path[:-1]].rounds if len(path) > 1 else 1
        condition = conditions.get(path[-1])
        rounds, exact = (None, False) if condition is None else _rounds_of_frame(sized, condition)
        name = path[-1].rpartition("/")[0] or path[-1]
        known[path] = LoopFrame(
            name=name,
            rounds=outer * (1 if rounds is None else rounds),
            note="" if exact else note_of(name, rounds),
        )
    return {name: known[path] for name, path in inside.items() if path}


def note_of(name: str, rounds: int | None) -> str:
    """Say how often a loop is counted whose rounds depend on data."""
    most = "once" if rounds is None else f"{rounds} times, its most"
    return f"the loop {name} is counted {most}, as its rounds depend on data"


def _frame_name(condition: Any) -> str:
    """Return the frame of the condition of a loop: that of the values which its Switches pass on."""
    switches = (op for op in condition.outputs[0].consumers() if op.type == SWITCH)
    enters = (switch.inputs[0].op.inputs[0].op for switch in switches)
    return next((op.get_attr("frame_name").decode() for op in enters if op.type == ENTER), "")


def _rounds_of_frame(sized: Any, loop: Any) -> tuple[int | None, bool]:
    graph, condition = sized, sized.get_operation_by_name(loop.name)

    def counted(test: Any) -> int | None:
        count, limit = _through(test.inputs[0]), test.inputs[1]
        if count.op.type != MERGE:
            return None
        begin, again = count.op.inputs
        step = _step(graph, again.op.inputs[0], count)
        return _rounds_between(_constant(graph, _outside(begin)), _constant(graph, _outside(limit)), step)

    return _least(condition.inputs, counted)


def _outside(tensor: Any) -> Any:
    """Return the value that a loop was given, from outside all loops where it stays as it is."""
    while tensor.op.type in {ENTER, "Identity"}:
        tensor = tensor.op.inputs[0]
    return tensor


def _least(outputs: Sequence[Any], counted: Callable[[Any], int | None]) -> tuple[int | None, bool]:
    """Return the least rounds that one of the tests of a condition allows, and whether each is known."""
    rounds = [counted(test) if test.type == "Less" else None for test in _tests(outputs)]
    known = [number for number in rounds if number is not None]
    return min(known, default=None), len(known) == len(rounds)


def _tests(outputs: Sequence[Any]) -> Iterator[Any]:
    """Yield what has to hold for another round."""
    pending = list(outputs)
    while pending:
        op = pending.pop().op
        if op.type in {"Identity", "LogicalAnd"}:
            pending += op.inputs
        else:
            yield op


def _step(graph: Any, updated: Any, count: Any) -> Any:
    """Return what a round adds to a count; None if it does something else."""
    added = _through(updated).op
    if added.type not in _SUMS:
        return None
    steps = [tensor for tensor in added.inputs if _through(tensor).name != count.name]
    return _constant(graph, _outside(steps[0])) if len(steps) == 1 else None


def _rounds_between(begin: Any, end: Any, step: Any) -> int | None:
    if begin is None or end is None or step is None or step <= 0:
        return None
    return max(0, math.ceil(float(end - begin) / float(step)))


def _through(tensor: Any) -> Any:
    """Return what a tensor is the same as."""
    while tensor.op.type in {"Identity", SWITCH}:
        tensor = tensor.op.inputs[0]
    return tensor


def _constant(graph: Any, tensor: Any) -> Any:
    """Return the value of a scalar that follows from constants and shapes; None if it does not."""
    import tensorflow as tf  # optional, and heavy

    names = ancestors([tensor], ends=_is_known_shape)
    operators = [graph.get_operation_by_name(name) for name in names]
    if any(op.type in _VARYING for op in operators):
        return None
    part = tf.compat.v1.GraphDef(versions=graph.graph_def_versions)
    part.node.extend(_without_order(op.node_def) for op in operators if not _is_known_shape(op))
    with tf.Graph().as_default() as apart:
        shapes = {
            op.outputs[0].name: tf.constant(op.inputs[0].shape.as_list(), op.outputs[0].dtype)
            for op in operators
            if _is_known_shape(op)
        }
        if tensor.name in shapes:
            return None  # no scalar
        (copy,) = tf.graph_util.import_graph_def(
            part, input_map=shapes, return_elements=[tensor.name], name=""
        )
        with tf.compat.v1.Session(graph=apart) as session:
            return session.run(copy)


def _is_known_shape(op: Any) -> bool:
    return bool(op.type == "Shape" and op.inputs[0].shape.is_fully_defined())


def _without_order(node: Any) -> Any:
    """Return a copy of an operator that waits for no other: a constant in a loop waits for its round."""
    kept = [name for name in node.input if not name.startswith("^")]
    del node.input[:]
    node.input.extend(kept)
    return node


_VARYING = frozenset({"Placeholder", "VarHandleOp", "VariableV2", ENTER, MERGE, SWITCH})


# --- shapes within the frames of TensorFlow 1 --------------------------------------------------------


def set_shapes_in_frames(graph: Any) -> None:
    """Set the shapes that follow for the tensors of a graph if what goes around in a loop keeps its shape.

    TensorFlow infers none, as the operators lead back to themselves: here it infers those of a copy in which
    they do not. What does not keep its shape is left without one.
    """
    operators = graph.get_operations()
    merges = [op for op in operators if op.type == MERGE and op.inputs[0].op.type == ENTER]
    if not merges:
        return
    definition, known, changing = graph.as_graph_def(), dict[str, Any](), set[str]()
    while True:
        cut = _import_cut(definition, known)
        changed = {
            merge.outputs[0].name
            for merge in merges
            if merge.outputs[0].name in known
            and not _shape_in(cut, merge.inputs[1].op.inputs[0]).is_compatible_with(
                known[merge.outputs[0].name][1]
            )
        }
        changing |= changed
        more = {
            tensor.name: (tensor.dtype, shape)
            for tensor, shape in (*_kept(cut, merges), *_elements(cut, operators))
            if tensor.name not in known and tensor.name not in changing and shape.is_fully_defined()
        }
        known = {name: each for name, each in known.items() if name not in changed} | more
        if not (changed or more):
            break
    for tensor in (tensor for op in operators for tensor in op.outputs):
        _, shape = known.get(tensor.name) or (None, _shape_in(cut, tensor))
        if shape.is_compatible_with(tensor.shape):
            tensor.set_shape(shape)


def _import_cut(definition: Any, known: Mapping[str, Any]) -> Any:
    """Return a graph in which tensors of known types and shapes are given, whatever computes them."""
    import tensorflow as tf  # optional, and heavy

    with tf.Graph().as_default() as cut:
        given = {
            name: tf.compat.v1.placeholder(dtype, shape, name=f"known_{number}")
            for number, (name, (dtype, shape)) in enumerate(known.items())
        }
        tf.graph_util.import_graph_def(definition, input_map=given, name="")
    return cut


def _shape_in(cut: Any, tensor: Any) -> Any:
    return cut.get_tensor_by_name(tensor.name).shape


def _kept(cut: Any, merges: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield what goes around in loops, with the shape that it begins with."""
    for merge in merges:
        yield merge.outputs[0], _shape_in(cut, merge.inputs[0].op.inputs[0])


def _elements(cut: Any, operators: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield what is read of arrays of tensors, with the shapes that follow from what is written."""
    import tensorflow as tf  # optional, and heavy

    arrays: dict[str, Any] = {}
    for op in operators:
        if op.type == "TensorArrayScatterV3":
            arrays.setdefault(_outside(op.inputs[0]).name, _shape_in(cut, op.inputs[2])[1:])
        elif op.type == "TensorArrayWriteV3":
            arrays.setdefault(_outside(op.inputs[0]).name, _shape_in(cut, op.inputs[2]))
    for op in operators:
        array = _outside(op.inputs[0]) if op.type in _READS else None
        if array is None or array.name not in arrays:
            continue
        shape = arrays[array.name]
        if op.type == "TensorArrayReadV3":
            yield op.outputs[0], shape
        else:
            (count,) = _shape_in(cut, op.inputs[1]).as_list() or (None,)
            count = (
                tf.get_static_value(cut.get_tensor_by_name(array.op.inputs[0].name))
                if count is None
                else count
            )
            yield op.outputs[0], tf.TensorShape([count]).concatenate(shape)


_READS = frozenset({"TensorArrayReadV3", "TensorArrayGatherV3"})
