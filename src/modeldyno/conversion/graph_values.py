"""Values within a converted graph: its steps with the modules that they came from, and what they compute.

A graph of ONNX returns more of its values, a program of torch.export hands them over as it runs.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.conversion.agreement.inner_values import (
    End,
    GraphStep,
    InnerValue,
    Moment,
    keep_value,
    most_values,
)
from modeldyno.conversion.reference import opened
from modeldyno.models.interface import Feed, Form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy import ndarray

    from modeldyno.models.interface import Model

Keep = Callable[["ndarray"], InnerValue]
Record = Callable[[Sequence[str], Feed, Keep], dict[str, InnerValue]]
"""Calls the model, and returns some of the values within it by name."""

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch's exporter writes the modules of a node, and its own name last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerGraph:
    """A converted model as a graph whose values can be seen."""

    steps: tuple[GraphStep, ...]
    returned: frozenset[str]
    record: Record


def inner_graph(model: Model, backend: str) -> InnerGraph | None:
    """Return the graph of a converted model; None if its form shows none."""
    if model.form == Form.ONNX:
        return _of_onnx(model, backend)
    if model.form == Form.TORCH and type(model.value).__name__.startswith("GraphModule"):
        return _of_program(model, backend)
    return None


# -- ONNX -----------------------------------------------------------------------------------------


def _of_onnx(model: Model, backend: str) -> InnerGraph:
    import onnx  # optional, and heavy

    path = Path(model.value)
    proto = onnx.load(str(path), load_external_data=False)
    nodes = [node for node in proto.graph.node if node.op_type != "Constant"]
    constants = {name for node in proto.graph.node if node.op_type == "Constant" for name in node.output}
    constants |= {tensor.name for tensor in proto.graph.initializer} | {""}
    returned = frozenset(value.name for value in proto.graph.output)

    def record(names: Sequence[str], feed: Feed, keep: Keep) -> dict[str, InnerValue]:
        wider = onnx.ModelProto()
        wider.CopyFrom(proto)
        wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in returned)
        written = path.with_name(f".{path.stem}-values.onnx")  # beside it: its weights may be in files there
        try:
            onnx.save(wider, str(written))
            with opened(replace(model, value=written), backend) as run:
                outputs = run(feed)
        finally:
            written.unlink(missing_ok=True)
        return {name: keep(outputs[name]) for name in names if name in outputs}

    return InnerGraph(
        steps=tuple(_step_of_onnx(node, constants) for node in nodes),
        returned=returned,
        record=record,
    )


def _step_of_onnx(node: Any, constants: set[str]) -> GraphStep:
    scopes = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), "[]")
    return GraphStep(
        inputs=tuple(name for name in _taken(node) if name not in constants),
        outputs=tuple(name for name in node.output if name),
        scopes=tuple(ast.literal_eval(scopes))[:-1],
    )


def _taken(node: Any) -> Iterator[str]:
    """Yield what a node takes, also within its branches and loops."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for inner in graph.node:
                yield from _taken(inner)


# -- programs of torch.export ---------------------------------------------------------------------


def _of_program(model: Model, backend: str) -> InnerGraph:
    graph = model.value.graph
    nodes = {node.name: node for node in graph.nodes}

    def record(names: Sequence[str], feed: Feed, keep: Keep) -> dict[str, InnerValue]:
        values: dict[str, InnerValue] = {}

        def hand_over(name: str, value: Any) -> None:
            arrays = list(arrays_of(value))
            if len(arrays) == 1:
                values[name] = keep(arrays[0])

        added = []
        for name in names:
            with graph.inserting_after(nodes[name]):
                added.append(graph.call_function(hand_over, (name, nodes[name])))
        try:
            model.value.recompile()
            with opened(model, backend) as run:
                run(feed)
        finally:
            for node in added:
                graph.erase_node(node)
            model.value.recompile()
        return values

    return InnerGraph(
        steps=tuple(_step_of_program(node) for node in graph.nodes if node.op == "call_function"),
        returned=frozenset(
            node.name for last in graph.nodes if last.op == "output" for node in last.all_input_nodes
        ),
        record=record,
    )


def _step_of_program(node: Any) -> GraphStep:
    stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    return GraphStep(
        inputs=tuple(part.name for part in node.all_input_nodes if part.op != "get_attr"),
        outputs=(node.name,),
        scopes=tuple(dict.fromkeys(path for path, _ in stack.values())),
    )


def source_moments(model: Model, backend: str, feed: Feed, batch: int | None) -> list[Moment]:
    """Call a torch model once, and return what its layers took and returned, in their order.

    Layers that are called several times are left out: a graph does not tell which call is which.
    """
    layers = {module: path for path, module in model.value.named_modules() if path}
    most = most_values(len(layers))
    moments: list[Moment] = []

    def note(module: Any, end: End, *parts: Any) -> None:
        values = tuple(keep_value(array, batch, most) for array in arrays_of(parts))
        moments.append(Moment(layer=layers[module], kind=type(module).__name__, end=end, values=values))

    with ExitStack() as stack:
        for module in layers:
            for hook in (
                module.register_forward_pre_hook(
                    lambda module, args, kwargs: note(module, End.INPUT, args, kwargs), with_kwargs=True
                ),
                module.register_forward_hook(lambda module, _args, output: note(module, End.OUTPUT, output)),
            ):
                stack.callback(hook.remove)
        with opened(model, backend) as run:
            moments.clear()
            run(feed)
    calls = Counter(moment.layer for moment in moments if moment.end is End.INPUT)
    return [moment for moment in moments if calls[moment.layer] == 1]


def values_of(moments: list[Moment]) -> dict[tuple[str, End], tuple[InnerValue, ...]]:
    """Return the values by layer and end."""
    return {(moment.layer, moment.end): moment.values for moment in moments}


def arrays_of(part: Any) -> Iterator[ndarray]:
    """Yield the tensors within what a module takes or returns, as arrays."""
    if hasattr(part, "detach"):
        tensor = part.detach().cpu()
        yield (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    elif isinstance(part, Mapping):
        for item in part.values():
            yield from arrays_of(item)
    elif isinstance(part, list | tuple):
        for item in part:
            yield from arrays_of(item)
    elif is_dataclass(part) and not isinstance(part, type):
        for entry in fields(part):
            yield from arrays_of(getattr(part, entry.name))
