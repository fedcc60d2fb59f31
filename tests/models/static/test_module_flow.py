"""What goes from module to module."""

from __future__ import annotations

from modeldyno.base.result.static_data import ModuleJoin, ModuleLink
from modeldyno.models.static.analysis import flow_between_modules
from modeldyno.models.static.graph import Graph, Op, Phase, Role, Storage, Tensor

MODULES = {"": "Net", "body": "Block", "body.fc": "Linear", "body.act": "ReLU", "head": "Linear"}


def tensor(storage: int, *shape: int) -> Tensor:
    """A tensor of a storage."""
    return Tensor(shape or (4,), "float32", storage)


def op(kind: str, scope: str, inputs: tuple[Tensor, ...], output: Tensor, phase: Phase = Phase.FORWARD) -> Op:
    """An operator that reads tensors and makes one."""
    return Op(kind, {str(at): one for at, one in enumerate(inputs)}, (output,), scope, phase)


def a_graph(*ops: Op, storages: int = 9, output: int = 8) -> Graph:
    """A graph whose first storage is its input."""
    kept = [Storage(8, Role.INPUT, -1), *(Storage(8, Role.ACTIVATION, 0) for _ in range(storages - 1))]
    kept[output] = Storage(8, Role.ACTIVATION, 0, output=True)
    return Graph(ops=ops, storages=tuple(kept), modules=MODULES)


def test_a_residual_connection_is_a_join_and_other_code_is_followed_through() -> None:
    """The input goes into the layer and round it; what only reshapes stands for what it reshapes."""
    graph = a_graph(
        op("aten.mm", "body.fc", (tensor(0), tensor(-1)), tensor(1)),
        op("aten.mul", "body.fc", (tensor(1),), tensor(2)),
        op("aten.view", "body", (tensor(2),), tensor(3)),
        op("aten.add", "body", (tensor(3), tensor(0)), tensor(4)),
        op("aten.mm", "head", (tensor(4),), tensor(8)),
        op("aten.mm", "head", (tensor(8),), tensor(5), Phase.BACKWARD),
    )

    links, joins = flow_between_modules(graph)

    assert joins == (ModuleJoin(name="join 1", scope="body", kind="aten.add"),)
    assert [(link.source, link.target) for link in links] == [
        ("", "body.fc"),
        ("body.fc", "join 1"),
        ("", "join 1"),
        ("join 1", "head"),
        ("head", ""),
    ]


def test_a_view_of_an_output_is_told_from_the_whole() -> None:
    """What was made last of a storage counts where nothing of that shape and place was made."""
    graph = a_graph(
        op("aten.mm", "body.fc", (tensor(0),), tensor(1, 4)),
        op("aten.relu", "body.act", (tensor(1, 4),), tensor(1, 2, 2)),
        op("aten.mm", "head", (tensor(1, 4), tensor(1, 1, 4)), tensor(-1)),
    )

    links, _ = flow_between_modules(graph)

    assert ModuleLink(source="body.fc", target="head") in links
    assert ModuleLink(source="body.act", target="head") in links


def test_a_graph_with_too_many_joins_keeps_none() -> None:
    """As the diagram of it could not be read, and the document would be large."""
    many = (op("aten.add", "body", (tensor(1), tensor(0)), tensor(1)) for _ in range(4001))
    graph = a_graph(op("aten.mm", "body.fc", (tensor(0),), tensor(1)), *many)

    assert flow_between_modules(graph) == ((), ())
