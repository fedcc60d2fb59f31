"""What ONNX Runtime ran within calls, by its own profile; and profiles by hand."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.result.trace_data import EventKind
from modeldyno.engine.backends.onnxruntime import backend, operators
from modeldyno.engine.interfaces.session import HasOperators, LocalSession
from modeldyno.models.loaders import onnx as loader

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.engine.trace.op_events import WatchedCalls

pytest.importorskip("onnxruntime")

FEED = {"x": np.ones((3, 4), np.float32)}


def watched(folder: Path, calls: int, trace: Path | None = None, **settings: Any) -> WatchedCalls:
    """Watch calls of a small network, as it was written."""
    folder.mkdir(exist_ok=True)
    model = loader.load(ModelRef(scheme="onnx", locator=str(models.mlp(folder))), seed=0, trust=False)
    config = configure(backend.knobs, {"graph_optimization": "disable", **settings})
    with backend.open(model, config) as session:
        assert isinstance(session, HasOperators)
        assert isinstance(session, LocalSession)
        assert session.flow(FEED) is None
        return session.operators(FEED, calls, trace)


@pytest.mark.parametrize("io_binding", [False, True])
def test_each_node_is_told_once_a_call(tmp_path: Path, io_binding: bool) -> None:
    """A profile of two calls has each node of the network twice, and none of the call that warms up."""
    calls = watched(tmp_path, 2, io_binding=io_binding)
    names = [o.name for o in calls.occurrences]

    assert len(calls.times) == 2
    assert sorted(names) == sorted(2 * ["Add", "MatMul", "MatMul", "Relu"])
    assert {o.kind for o in calls.occurrences} == {EventKind.OPERATOR}
    assert all(o.self_time == o.total_time >= 0 for o in calls.occurrences)
    assert {o.shapes for o in calls.occurrences if o.name == "MatMul"} == {
        "3x4",
        "3x8",
    }  # weights are left out
    assert not calls.hidden
    assert sorted((o.call, o.name) for o in calls.occurrences) == [
        (call, name) for call in (0, 1) for name in ("Add", "MatMul", "MatMul", "Relu")
    ]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_profile_is_the_trace(tmp_path: Path, name: str) -> None:
    """It is a list of events as Chrome and Perfetto read them, and nothing else is left behind."""
    place = tmp_path / "traces"
    place.mkdir()
    watched(tmp_path / "model", 1, place / name)
    data = (place / name).read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)

    assert {"name", "ph", "ts", "dur"} <= events[0].keys()
    assert [path.name for path in place.iterdir()] == [name]


def test_a_trace_in_a_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """The caller is told."""
    with pytest.raises(OSError, match="No such file"):
        watched(tmp_path, 1, tmp_path / "none" / "trace.json")


def event(cat: str, name: str, begin: int, duration: int, **arguments: Any) -> dict[str, Any]:
    """An event of a profile, in microseconds."""
    return {"cat": cat, "name": name, "ts": begin, "dur": duration, "args": arguments}


def test_kernels_belong_to_the_node_that_launched_them() -> None:
    """The time on a device is told by the node, and by its kernels and transfers; other calls have theirs."""
    profile = [
        event("Session", "session_initialization", 0, 5),
        event("Node", "/fc/MatMul_kernel_time", 10, 4, op_name="MatMul"),
        event("Kernel", "gemm", 12, 9, parent_name="/fc/MatMul_kernel_time"),
        event("Session", "model_run", 10, 5),
        event("Node", "/fc/MatMul_kernel_time", 20, 4, op_name="MatMul", output_size="24"),
        event("Kernel", "gemm", 22, 7, parent_name="/fc/MatMul_kernel_time"),
        event("Kernel", "Memcpy HtoD", 22, 1, parent_name="/fc/MatMul_kernel_time"),
        event("Kernel", "orphan", 22, 1),
        event("Node", "Memcpy_token_1_kernel_time", 25, 2, op_name="MemcpyToHost", mem_in_use_delta="-8"),
        event("Node", "Memcpy_token_1_fence_before", 25, 0),
        event("Session", "model_run", 20, 8),
    ]
    node, copy, gemm, memcpy = operators.occurrences(profile, 1)

    assert (node.name, node.scope, node.allocated) == ("MatMul", "fc", 24.0)
    assert [node.self_time, node.device_time] == pytest.approx([4.5e-6, 8e-6])
    assert (copy.name, copy.kind, copy.scope, copy.allocated) == ("MemcpyToHost", EventKind.TRANSFER, "", 0.0)
    assert [(o.kind, o.scope) for o in (gemm, memcpy)] == [
        (EventKind.KERNEL, "fc"),
        (EventKind.TRANSFER, "fc"),
    ]
    assert [gemm.device_time, memcpy.device_time] == pytest.approx([7e-6, 1e-6])


def test_shapes_are_those_of_the_inputs() -> None:
    """Scalars have none."""
    assert operators.format_shapes([{"float": [3, 4]}, {"int64": []}, {"float": [4]}]) == "3x4, 4"
