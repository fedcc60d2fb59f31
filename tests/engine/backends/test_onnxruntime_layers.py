"""ONNX Runtime's profile as spans: whose node it is, and what it gave."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends.onnxruntime import backend
from modeldyno.engine.backends.onnxruntime import layers as onnxruntime_layers
from modeldyno.engine.interfaces.session import HasLayers
from modeldyno.models.loaders import onnx as loader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.trace_data import Span
    from modeldyno.engine.interfaces.session import Layers
    from modeldyno.models.interface import Feed


@pytest.fixture(autouse=True)
def _short_measurement_of_the_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what a profile costs from a few calls: here it matters whose spans they are."""
    monkeypatch.setattr(onnxruntime_layers, "_ROUNDS", 4)
    monkeypatch.setattr(onnxruntime_layers, "_TIME_LIMIT", 0.02)


def everything(_path: str, _kind: str) -> bool:
    return True


def watched(
    path: Path, feed: Feed, named: Callable[[str, str], bool] = everything, **settings: KnobValue
) -> tuple[list[list[Span]], Layers]:
    """Give the spans of two calls, the first of three left out."""
    model = loader.load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)
    alone = {"threads": 1, **settings}  # threads that spin for each other take long on a busy machine
    with backend.open(model, configure(backend.knobs, alone)) as session:
        assert isinstance(session, HasLayers)
        with session.layers(feed, named) as layers:
            for _ in range(3):
                layers.call()
            return [list(spans) for spans in layers.spans(1)], layers


def renamed(path: Path, names: dict[str, str], scopes: dict[str, list[str]] | None = None) -> Path:
    """Name the nodes of a model by what they give, and add metadata of modules."""
    import onnx

    model = onnx.load(path)
    for node in model.graph.node:
        node.name = names.get(node.output[0], "")
        if scope := (scopes or {}).get(node.output[0]):
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(scope))
    onnx.save(model, path)
    return path


MLP = {"product": "/body/fc1/MatMul", "sum": "/body/fc1/Add", "hidden": "/body/act/Relu", "y": "/head/MatMul"}
ROWS = {"x": np.ones((3, 4), np.float32)}


def test_nodes_belong_to_the_modules_in_their_names(tmp_path: Path) -> None:
    """Each call has the whole and its nodes in their order, with operator, shape and bytes."""
    calls, layers = watched(renamed(models.mlp(tmp_path), MLP), ROWS, graph_optimization="disable")

    assert len(calls) == 2
    for spans in calls:
        assert [(span.path, span.kind) for span in spans] == [
            ("", "graph"), ("body.fc1.MatMul", "MatMul"), ("body.fc1.Add", "Add"),
            ("body.act.Relu", "Relu"), ("head.MatMul", "MatMul"),
        ]  # fmt: skip
        assert [span.parent for span in spans] == [None, 0, 0, 0, 0]
        assert all(span.end > span.begin for span in spans)
    assert (calls[0][1].output, calls[0][1].output_bytes) == ("3x8 float32", 96)
    assert (calls[0][4].output, calls[0][4].output_bytes) == ("3x2 float32", 24)
    assert layers.doubts == ()
    assert layers.overhead.whole >= 0


def test_nodes_tell_what_they_do_of_the_file(tmp_path: Path) -> None:
    """Each path has what its operators give, whether nodes have names or not, and whatever was fused."""
    all_nodes = {"product", "sum", "hidden", "y"}
    for place, names in enumerate((MLP, {})):
        folder = tmp_path / str(place)
        folder.mkdir()
        path = renamed(models.mlp(folder), names)
        _, plain = watched(path, ROWS, graph_optimization="disable")
        _, fused = watched(path, ROWS)

        assert set(plain.origins().values()) == {(name,) for name in all_nodes}
        assert {name for names in fused.origins().values() for name in names} == all_nodes
        assert max(map(len, fused.origins().values())) > 1


def test_what_is_fused_belongs_to_the_module_of_what_it_gives(tmp_path: Path) -> None:
    """Product, sum and activation become one node, which is told to be fused."""
    calls, _ = watched(renamed(models.mlp(tmp_path), MLP), ROWS)
    paths = {span.path: span.kind for span in calls[0]}

    fused = [path for path in paths if path.startswith("body.")]
    assert len(fused) < 3
    assert any("fused" in paths[path].lower() for path in fused)
    assert paths["head.MatMul"] == "MatMul"


def test_the_exporter_s_metadata_tells_the_module(tmp_path: Path) -> None:
    """Names without a path are placed by what torch's exporter says of them; the last is the operation."""
    scopes = {
        "product": ["", "body", "body.fc1", "linear"], "sum": ["", "body", "body.fc1", "linear"],
        "hidden": ["", "body", "relu"], "y": ["", "matmul"],
    }  # fmt: skip
    path = renamed(models.mlp(tmp_path), {name: f"node_{name}" for name in scopes}, scopes)
    calls, _ = watched(path, ROWS, graph_optimization="disable")

    assert [span.path for span in calls[0]] == [
        "", "body.fc1.MatMul", "body.fc1.Add", "body.Relu", "MatMul",
    ]  # fmt: skip


def test_alike_operators_of_a_module_are_numbered(tmp_path: Path) -> None:
    """Nodes that nobody named are told apart, and are the same in every call."""
    calls, _ = watched(renamed(models.mlp(tmp_path), {}), ROWS, graph_optimization="disable")

    assert [span.path for span in calls[0]] == ["", "MatMul", "Add", "Relu", "MatMul_1"]
    assert [span.path for span in calls[1]] == [span.path for span in calls[0]]


def test_only_what_is_named_is_watched(tmp_path: Path) -> None:
    """Nodes are chosen by their path or operator."""
    path = renamed(models.mlp(tmp_path), MLP)
    calls, _ = watched(path, ROWS, named=lambda path, _: "head" in path, graph_optimization="disable")

    assert [span.path for span in calls[0]] == ["", "head.MatMul"]


def test_a_bound_session_is_watched_as_it_is(tmp_path: Path) -> None:
    """Inputs and outputs are bound in the second session, too."""
    calls, _ = watched(models.mlp(tmp_path), ROWS, io_binding=True)

    assert len(calls[0]) > 1


@pytest.mark.parametrize(
    ("settings", "apart"),
    [
        ({"threads": 2}, True), ({}, True), ({"threads": 1, "parallel": True}, True),
        ({"threads": 1}, False), ({"threads": 2, "spinning": False}, False),
    ],
)  # fmt: skip
def test_threads_that_spin_do_not_disturb_the_other_session(
    tmp_path: Path, settings: dict[str, KnobValue], apart: bool
) -> None:
    """Where they would, plain calls have a session of their own; in all but the timed one threads rest."""
    opened: list[dict[str, object]] = []
    model = loader.load(ModelRef(scheme="onnx", locator=str(models.mlp(tmp_path))), seed=0, trust=False)
    with backend.open(model, configure(backend.knobs, settings)) as session:
        start = session.start

        def noted(*args: Any, **options: Any) -> Any:
            opened.append(options)
            return start(*args, **options)

        with replace(session, start=noted).layers(ROWS, everything) as layers:
            layers.call()
            assert (layers.plain is not None) is apart
            if layers.plain is not None:
                assert layers.plain()[0].shape == (3, 2)
            assert len(layers.spans(0)) == 1

    models_run = [options for options in opened if not {"graph", "saved"} & options.keys()]
    assert models_run == [{"resting": True}] * (2 if apart else 1)
    assert start(resting=True).get_session_options().get_session_config_entry(backend._STOP_SPINNING) == "1"
    with pytest.raises(RuntimeError):
        session.session.get_session_options().get_session_config_entry(backend._STOP_SPINNING)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profile and rewritten graph go with the folder that they were in."""
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    watched(models.mlp(tmp_path), ROWS)

    assert list((tmp_path / "t").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["mlp.onnx"]


def test_what_is_between_fused_nodes_belongs_to_what_takes_it() -> None:
    """A node that neither its name nor its output places is part of what reads it."""
    from onnx import TensorProto, helper

    original = helper.make_graph(
        [helper.make_node("Linear", ["x"], ["y"], name="/fc/Linear"), helper.make_node("Odd", ["y"], ["z"])],
        "g", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    rewritten = helper.make_graph(
        [
            helper.make_node("Reshape", ["x"], ["a"], name="reshape_token_1"),
            helper.make_node("Gemm", ["a"], ["b"], name="gemm_token_2"),
            helper.make_node("Reshape", ["b"], ["y"], name="reshape_token_3"),
            helper.make_node("Odd", ["y"], ["z"], name="odd"),
        ],
        "g", [], [],
    )  # fmt: skip
    origins = onnxruntime_layers.find_node_origins(original, rewritten)

    assert origins.scopes == {"reshape_token_1": "fc", "gemm_token_2": "fc", "reshape_token_3": "fc"}
    assert origins.known == {"/fc/Linear", ""}


def event(name: str, ts: int, dur: int, op: str, index: int) -> dict[str, Any]:
    """Make an event of a profile, as ONNX Runtime writes it."""
    arguments = {
        "op_name": op,
        "node_index": str(index),
        "output_size": "8",
        "output_type_shape": [{"float": [2]}],
    }
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": arguments}


def test_the_body_of_a_loop_is_part_of_it() -> None:
    """Nodes that run while a loop does lie within it; what follows does not."""
    events = [
        event("inner", 12, 3, "Add", 1), event("inner", 16, 3, "Add", 1), event("loop", 10, 10, "Loop", 0),
        event("after", 21, 5, "Relu", 2),
    ]  # fmt: skip
    names = onnxruntime_layers._NodeNamer(onnxruntime_layers.NodeOrigins())
    spans = onnxruntime_layers._spans(events, 1e-4, names, everything)

    assert [(span.path, span.parent) for span in spans] == [
        ("", None), ("Loop", 0), ("Add", 1), ("Add", 1), ("Relu", 0),
    ]  # fmt: skip
    assert spans[1].end - spans[1].begin == pytest.approx(10.5e-6)
    assert spans[0].end == 1e-4


def test_calls_that_are_not_wanted_are_skipped(tmp_path: Path) -> None:
    """The nodes of a call stand before the call itself; a call that was cut off is left out."""
    run = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 9, "args": {}}
    events = [{"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 1, "args": {}}]
    for call in range(3):
        events += [event(f"node{call}", 1, 2, "Add", 0), run]
    events.append(event("cut", 1, 2, "Add", 0))
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")

    runs = list(onnxruntime_layers._read_calls(path, 1))

    assert [[node["name"] for node in nodes] for nodes in runs] == [
        ["node1_kernel_time"], ["node2_kernel_time"],
    ]  # fmt: skip


def test_a_provider_on_a_device_is_doubted() -> None:
    """Its nodes are timed where they are launched."""
    (doubt,) = onnxruntime_layers._unseen_doubts("CUDAExecutionProvider")

    assert "CUDAExecutionProvider" in doubt.seen
    assert list(onnxruntime_layers._unseen_doubts("CPUExecutionProvider")) == []


def test_a_graph_that_cannot_be_saved_leaves_names_to_tell(tmp_path: Path) -> None:
    """A provider that compiles parts of a graph refuses to save it; a damaged file cannot be read."""

    def start(
        profile: str = "", saved: str = "", graph: bytes | None = None, *, resting: bool = False
    ) -> None:
        raise RuntimeError(f"compiled nodes: {profile}, {saved}, {graph!r}, {resting}")

    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff\xff")

    for path in (models.mlp(tmp_path), broken):
        assert onnxruntime_layers._places(start, path) == onnxruntime_layers.NodeOrigins()


def test_the_cost_of_profiling_is_what_it_adds_to_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 us that a profile adds to each node, it tells of 5 in the node's own time."""
    now, nodes, runs = [0.0], 4, []
    monkeypatch.setattr(onnxruntime_layers, "perf_counter", lambda: now[0])

    class Session:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def run(self, _names: None, _given: Feed) -> None:
            now[0] += nodes * self.seconds
            runs.append(self.seconds)

        def end_profiling(self) -> str:
            one = [event(f"node{n}", 40 * n, 24, "Add", n) for n in range(nodes)]  # 20 us, and 5, less a half
            run = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 9, "args": {}}
            lines = [json.dumps(each) for _ in range(len(runs) // 2) for each in (*one, run)]
            path = tmp_path / "profile.json"
            path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
            return str(path)

    def start(
        profile: str = "", saved: str = "", graph: bytes | None = None, *, resting: bool = False
    ) -> Session:
        assert graph
        assert not saved
        assert resting
        return Session(28e-6 if profile else 20e-6)

    overhead = onnxruntime_layers._measure_overhead(start)

    assert overhead.inside == pytest.approx(4.5e-6)
    assert overhead.outside == pytest.approx(3.5e-6)
