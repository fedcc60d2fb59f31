from __future__ import annotations

import ast
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from modeldyno.engine.interfaces.server_stats import ServerCounters
from modeldyno.serving.servers import prometheus_text
from modeldyno.serving.servers.inside_server import runner
from modeldyno.serving.servers.paths import INSIDE

if TYPE_CHECKING:
    from collections.abc import Callable

Arrays = dict[str, np.ndarray]


def test_what_runs_in_a_server_imports_nothing_of_ours() -> None:
    """The files that are copied into servers stand alone."""
    for path in INSIDE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.split(".")[0] == "modeldyno" for name in names), path.name


def doubled(calls: list[int]) -> Callable[[Arrays], Arrays]:
    """A model that doubles, and notes how many samples each call had."""

    def run(arrays: Arrays) -> Arrays:
        calls.append(len(arrays["x"]))
        return {"y": arrays["x"] * 2}

    return run


def test_requests_share_a_call_and_get_their_own_parts() -> None:
    """Requests of 1, 3 and 2 samples are one call of 6, and each gets back what is its own."""
    calls: list[int] = []
    requests = [{"x": np.full((size, 2), size, "float32")} for size in (1, 3, 2)]
    answers = runner.run_batched(doubled(calls), requests)
    assert calls == [6]
    for request, answer in zip(requests, answers, strict=True):
        np.testing.assert_array_equal(answer["y"], request["x"] * 2)


@pytest.mark.parametrize(
    "requests",
    [
        [{"x": np.zeros((1, 2))}, {"x": np.zeros((1, 3))}],
        [{"x": np.zeros((1, 2))}, {"x": np.zeros((1, 2), "float32")}],
        [{"x": np.zeros((1, 2))}, {"x": np.zeros((1, 2)), "z": np.zeros(1)}],
        [{"x": np.zeros((2, 2))}],
    ],
)
def test_requests_that_do_not_fit_run_alone(requests: list[Arrays]) -> None:
    """Other shapes, dtypes or inputs are no batch."""
    calls: list[int] = []
    assert len(runner.run_batched(doubled(calls), requests)) == len(requests)
    assert len(calls) == len(requests)


def test_an_output_without_samples_is_not_cut() -> None:
    """Where an output has no axis of samples, each request runs by itself and gets the whole of it."""
    answers = runner.run_batched(
        lambda arrays: {"total": np.asarray(arrays["x"].sum())},
        [{"x": np.ones((1, 2))}, {"x": np.ones((2, 2))}],
    )
    assert [float(answer["total"]) for answer in answers] == [2.0, 4.0]


def test_a_tally_counts_requests_and_batches(tmp_path: Path) -> None:
    """Seconds are summed over requests, batches by their size, and workers together."""
    for _ in range(2):
        worker = runner.Tally(str(tmp_path))
        worker.add(2, 4, 0.5, 1.0, 0.25)
        worker.add(1, 2, 0.5, 1.0, 0.25)
    assert prometheus_text.sum_worker_counters(tmp_path) == ServerCounters(
        requests=6,
        samples=12,
        executions=4,
        compute_input=3.0,
        compute=6.0,
        compute_output=1.5,
        batches={2: 2, 4: 2},
    )


def test_a_tally_that_has_just_been_begun_counts_for_nothing(tmp_path: Path) -> None:
    """A file that a worker has not yet made whole is passed over."""
    (tmp_path / "1-1.tally").write_bytes(b"")
    assert prometheus_text.sum_worker_counters(tmp_path).requests == 0


def test_what_is_neither_wait_nor_work_is_output() -> None:
    """The parts of a request add up to what the server says of the whole."""
    worked = ServerCounters(
        requests=9, samples=9, executions=9, compute_input=1.0, compute=2.0, compute_output=0.5
    )
    counters = prometheus_text.merge_server_counters(
        worked, ServerCounters(requests=10, failures=1), queue=3.0, total=10.0
    )
    assert (counters.requests, counters.failures, counters.samples) == (10, 1, 9)
    assert (counters.queue, counters.compute_input, counters.compute, counters.compute_output) == (
        3.0,
        1.0,
        2.0,
        4.0,
    )
    assert prometheus_text.merge_server_counters(worked, worked, queue=3.0, total=0.0).compute_output == 0.5


def test_a_file_of_each_runtime(tmp_path: Path) -> None:
    """An ONNX file and a TorchScript module give what they give anywhere."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    run = runner.load_model_file(str(digits), ["image"], ["scores"], 1, "cpu")
    assert run({"image": np.zeros((2, 1, 8, 8), "float32")})["scores"].shape == (2, 10)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch deprecates what people still have
        scripted = torch.jit.trace(torch.nn.Linear(2, 1).eval(), torch.ones(1, 2))
        torch.jit.save(scripted, str(tmp_path / "m.pt"))
        run = runner.load_model_file(str(tmp_path / "m.pt"), ["x"], ["y"], 0, "cpu")
    x = np.ones((3, 2), "float32")
    np.testing.assert_allclose(run({"x": x})["y"], scripted(torch.from_numpy(x)).detach().numpy())


def test_the_pythons_of_servers_can_read_the_files() -> None:
    """They are written in the Python of eight years ago, which is what some containers have."""
    for path in INSIDE.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
    assert sys.version_info >= (3, 11)
