from __future__ import annotations

import csv
import json
import re
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno import read
from modeldyno.base import codec, progress
from modeldyno.base.errors import RequestError, RunFailed, UnknownName, UnreadableDocument
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number, pack
from modeldyno.base.result.result import Failure, FailureKind
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.base.result.trace_data import EventKind, ExecutedOp, Layer, MemoryTimeline, TraceReport
from modeldyno.compat import Benchmark, Figures, ModelProfiler
from modeldyno.compat.profiler_session import SessionStep
from modeldyno.errors import UncertifiedWarning
from modeldyno.store import read_all
from modeldyno.testing.sample_results import a_result

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("brief_measurements")
STEADY = "call:modeldyno.testing.known_latency:steady"
TIMES = tuple(0.001 * n for n in range(1, 101))


def spread(*samples: float) -> Distribution:
    return Distribution.of(samples or TIMES, warmup_dropped=7)


def a_figure(*measurements: Measurement, **changes: Any) -> Figures:
    return Figures(a_result(measurements=measurements, **changes))


# --- sections ----------------------------------------------------------------------------------


def test_latency_is_in_milliseconds() -> None:
    """The statistics are those of the samples; runs and warm-up are included."""
    latency = a_figure(Measurement(metric="latency", value=spread()))["latency"]

    assert latency["mean"] == pytest.approx(50.5)
    assert (latency["min"], latency["max"]) == (pytest.approx(1), pytest.approx(100))
    assert latency["std"] == pytest.approx(29.011, abs=0.001)
    assert (latency["runs"], latency["warmup_runs"]) == (100, 7)


def test_a_percentile_that_is_no_claim_warns_when_it_is_read() -> None:
    """Reading an uncertified percentile warns with the missing samples; others do not warn."""
    rng = np.random.default_rng(0)
    latency = a_figure(Measurement(metric="latency", value=spread(*rng.lognormal(-5, 0.1, 100))))["latency"]

    assert latency["p50"] > 0
    with pytest.warns(UncertifiedWarning, match=r"p99 needs 5\d\d more effective samples"):
        assert latency["p99"] > latency["p50"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dict(latency)["p99"] > 0


def test_throughput_keeps_its_kinds_apart() -> None:
    """Samples, batches and, where an input is tokens, tokens."""
    rates = (observed_number("throughput", 80.0), observed_number("batch_rate", 10.0))
    text = InputSpec(name="input_ids", shape=(8, 128), dtype="int64")
    image = InputSpec(name="pixels", shape=(8, 128), dtype="float32")

    assert dict(a_figure(*rates, inputs=(text,))["throughput"]) == {
        "samples_per_second": 80.0,
        "batches_per_second": 10.0,
        "requests_per_second": 10.0,
        "tokens_per_second": 80.0 * 128,
    }
    assert "tokens_per_second" not in a_figure(*rates, inputs=(image,))["throughput"]
    free = InputSpec(name="input_ids", shape=("batch", "seq"), dtype="int64")
    assert "tokens_per_second" not in a_figure(*rates, inputs=(free,))["throughput"]


@pytest.mark.parametrize(
    ("shape", "images"),
    [((8, 3, 224, 224), True), ((8, 224, 224, 3), True), ((8, 1, 28, 28), True), ((8, 64, 7, 7), False),
     ((8, 3), False)],
)  # fmt: skip
def test_images_and_requests_per_second(shape: tuple[int, ...], images: bool) -> None:
    """A sample of the shape of an image is one; a request is a call, or what a server answered."""
    rates = (observed_number("throughput", 80.0), observed_number("request_rate", 20.0))
    throughput = a_figure(*rates, inputs=(InputSpec(name="x", shape=shape, dtype="float32"),))["throughput"]

    assert throughput.get("images_per_second") == (80.0 if images else None)
    assert throughput["requests_per_second"] == 20.0


def test_memory_is_several_numbers() -> None:
    """The peak is the process's on a CPU, and the allocator's on a device; both are also separate keys."""
    process = (
        Measurement(metric="process_memory", value=spread(100.0, 300.0)),
        observed_number("process_memory", 1000, scope="baseline"),
        Measurement(metric="weight_bytes", value=40),
        observed_number("throughput", 80.0),
        observed_number("batch_rate", 10.0),
    )
    host = a_figure(*process)["memory"]
    assert (host["peak"], host["peak_of"], host["per_sample"], host["average"]) == (
        300, "process_memory", 37.5, 200,
    )  # fmt: skip
    assert (host["weights"], host["process_baseline"]) == (40, 1000)
    assert "allocator_reserved" not in host
    device = a_figure(*process, observed_number("allocator_reserved", 800))["memory"]
    assert (device["peak"], device["peak_of"], device["process_peak"]) == (800, "allocator_reserved", 300)


def test_what_was_not_measured_is_absent() -> None:
    """A missing section or number is a KeyError that lists those available, or says why it is missing."""
    figures = a_figure(Measurement(metric="flops", value=640))

    assert list(figures) == ["compute"]
    assert figures["compute"]["flops"] == 640
    assert figures.get("latency") is None
    with pytest.raises(KeyError, match="'latency' was not measured: only compute"):
        _ = figures["latency"]
    with pytest.raises(KeyError, match="'macs' was not measured; only flops"):
        _ = figures["compute"]["macs"]
    failure = Failure(where="open", kind=FailureKind.OOM, message="out of memory")
    failed = a_figure(failures=(failure,))
    assert failed.failure == "the run failed in open: out of memory"
    with pytest.raises(KeyError, match="the run failed in open: out of memory"):
        _ = failed["latency"]
    assert "failed" in repr(failed)
    assert "out of memory" in (Figures(None, failure="out of memory")._repr_html_())
    assert figures.result is not None
    assert figures._repr_html_() == figures.result._repr_html_()


def test_resources_are_of_the_whole_or_by_device() -> None:
    """Numbers of the process stand plainly, those of devices by their names."""
    figures = a_figure(
        observed_number("cpu_utilization", 1.5),
        Measurement(metric="gpu_utilization", value=spread(0.5, 0.7), scope="gpu 0"),
    )["resources"]

    assert dict(figures) == {"cpu_utilization": 1.5, "gpu_utilization": {"gpu 0": pytest.approx(0.6)}}


def watched() -> Figures:
    layers = tuple(
        Layer(path=path, kind=kind) for path, kind in (("", "Net"), ("a", "Attention"), ("b", "Mlp"))
    )
    kinds = (EventKind.OPERATOR, EventKind.KERNEL, EventKind.TRANSFER, EventKind.RANGE)
    activity = TraceReport(
        layers=layers,
        executed=tuple(
            ExecutedOp(name=str(kind), kind=kind, calls=1, self_time=0.001, total_time=0.002)
            for kind in kinds
        ),
        course=MemoryTimeline(
            times=pack((0.0, 0.001, 0.002, 0.003)),
            levels={"weights": pack((10, 10, 10, 10)), "activations": pack((0, 5, 5, 0))},
        ),
        held=(MemoryItem(scope="a", role="activations", bytes=5),),
    )
    return a_figure(
        Measurement(metric="self_time", value=spread(0.001)),
        Measurement(metric="self_time", value=spread(0.003), scope="a"),
        Measurement(metric="latency", value=spread(0.004), scope="a"),
        Measurement(metric="flops", value=7, scope="a"),
        activity=activity,
    )


def test_layers_are_told_by_path() -> None:
    """Times in milliseconds, and the share of each in the whole; the model itself is none of them."""
    layers = watched()["layers"]

    assert list(layers) == ["a", "b"]
    assert layers["a"]["mean"] == pytest.approx(4)
    assert layers["a"]["self"] == pytest.approx(3)
    assert layers["a"]["share"] == pytest.approx(1)
    assert layers["a"]["self_share"] == pytest.approx(0.75)
    assert "share" not in layers["b"]
    assert (layers["a"]["kind"], layers["a"]["flops"]) == ("Attention", 7)
    assert "mean" not in layers["b"]


def test_a_section_that_could_not_be_seen_says_why() -> None:
    """If a doubt explains why there are no layers, the error has it; otherwise the available sections."""
    unseen = Doubt(code="unseen-layers", seen="the model is compiled", advice="")
    figures = a_figure(Measurement(metric="latency", value=spread()), doubts=(unseen,))

    with pytest.raises(KeyError, match="'layers' was not measured: the model is compiled"):
        figures["layers"]
    with pytest.raises(KeyError, match="'operators' was not measured: only latency"):
        figures["operators"]
    with pytest.raises(KeyError, match="was not measured: nothing was measured"):
        Figures(None)["layers"]


# --- measuring -----------------------------------------------------------------------------------


def test_a_live_function_is_profiled(tmp_path: Path) -> None:
    """As many calls are measured as were asked for, and the last result can be written."""
    profiler = ModelProfiler(np.negative)
    with pytest.raises(RequestError, match="call profile"):
        profiler.export_json(tmp_path / "no.json")
    results = profiler.profile(np.ones((4, 3)), num_runs=30)

    assert results.failure is None
    assert results["latency"]["runs"] == 30
    assert 0 < results["latency"]["min"] <= results["latency"]["mean"] <= results["latency"]["max"]
    assert results["throughput"]["samples_per_second"] > results["throughput"]["batches_per_second"]
    assert results.result is profiler.result
    text = profiler.export_json(tmp_path / "out.json")
    assert json.loads(text) == json.loads((tmp_path / "out.json").read_text())
    assert codec.read(tmp_path / "out.json") == profiler.result
    profiler.export_csv(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["metric"] for row in rows} >= {"latency", "throughput"}


@pytest.mark.slow
def test_a_benchmark_repeats_and_cuts_rows() -> None:
    """Each configuration is measured with its batch; a failed one is among the others with its failure."""
    sizes: list[int] = []

    def model(x: Any) -> Any:
        if len(x) == 8:
            raise MemoryError("too large")
        sizes.append(len(x))
        return x

    profiler = ModelProfiler(model)
    benchmark = profiler.benchmark(
        [{"batch_size": 1}, {"batch_size": 8}, {"batch_size": 4}], np.arange(6.0).reshape(3, 2), num_runs=12
    )

    assert [each.configuration["batch_size"] for each in benchmark] == [1, 8, 4]
    assert set(sizes) == {1, 4}
    assert [each.failure is None for each in benchmark] == [True, False, True]
    assert "too large" in (benchmark[1].failure or "")
    assert benchmark[2]["latency"]["runs"] == 12


def test_a_wrong_configuration_raises_before_anything_is_measured() -> None:
    """An unknown knob is refused at once, anywhere in the list."""
    calls: list[Any] = []
    profiler = ModelProfiler(calls.append)
    with pytest.raises(UnknownName, match="did you mean 'batch_size'"):
        profiler.benchmark([{"batch_size": 1}, {"batchsize": 2}], np.ones((2, 2)))

    assert calls == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ModelProfiler(abs, precision="fp16"), "drop precision=fp16"),
        (lambda: ModelProfiler(abs, device="cuda"), "There is no knob 'device'"),
        (lambda: ModelProfiler("nowhere.onnx"), "There is no file or directory"),
        (lambda: ModelProfiler(abs, device="cpu").profile(np.ones(2), num_runs=0), "num_runs takes a whole"),
        (lambda: ModelProfiler(abs).profile(np.ones(2), num_runs=2.5), "num_runs takes a whole"),  # type: ignore[arg-type]
        (lambda: ModelProfiler(abs).benchmark([]), "at least one configuration"),
        (lambda: ModelProfiler(abs).benchmark({"batch_size": 1}), r"a list of configurations; write \[\{"),  # type: ignore[arg-type]
        (lambda: ModelProfiler(abs, processes=0), "processes takes a whole number from 1, not 0"),
        (lambda: ModelProfiler(abs).profile(np.ones(2), processes=2), "Inside the calling process"),
        (lambda: ModelProfiler(abs).profile(np.ones(2), warmup_runs=-1), "warmup_runs takes a whole"),
        (lambda: ModelProfiler(abs).profile(np.ones(2), warmup_runs=1.5), "warmup_runs takes a whole"),  # type: ignore[arg-type]
        (
            lambda: ModelProfiler(abs, device="cpu").profile(STEADY),
            "is a model, but inputs are expected here: this profiler is of a live",
        ),
        (lambda: ModelProfiler(STEADY).profile((np.ones(2), np.ones(2))), "takes 0 inputs, but 2 were given"),
        (lambda: ModelProfiler(STEADY).profile(np.array(["a"])), "arrays or tensors of numbers, not ndarray"),
    ],
)
def test_a_wrong_request_is_told(make: Any, says: str) -> None:
    """One sentence each."""
    with pytest.raises(RequestError, match=says):
        make()


def test_the_path_of_the_model_stands_for_its_own_inputs() -> None:
    """`profile(model_path)` measures the profiler's own model with random inputs."""
    results = ModelProfiler(STEADY, max_time=0.5).profile(STEADY, num_runs=12)

    assert results["latency"]["runs"] == 12
    assert results.result is not None
    assert "not-isolated" not in {doubt.code for doubt in results.result.doubts}


@pytest.mark.slow  # tests/cli/test_cli.py pools two
def test_several_processes_are_fresh_ones_and_each_has_its_calls() -> None:
    """The number is that of the profiler or of the call; layers always take one process."""
    profiler = ModelProfiler(STEADY, processes=2, max_time=0.5)
    (row,) = profiler.benchmark([{}], num_runs=12)
    several = profiler.profile(num_runs=12, processes=1)

    assert row.result is not None
    assert several.result is not None
    assert (row.result.processes, several.result.processes) == (2, 1)
    assert (row["latency"]["runs"], several["latency"]["runs"]) == (24, 12)


@pytest.mark.slow
def test_refused_arrays_are_named_by_their_input_and_not_used_again() -> None:
    """The message names no file of ours, and the next call takes random inputs as before."""
    profiler = ModelProfiler("examples/digits/digits.onnx", max_time=0.2, store=False)
    with pytest.raises(RequestError, match=r"^The array for 'image' is 8x64, but the model takes"):
        profiler.profile(np.zeros((8, 64), np.float32), num_runs=2)
    assert profiler.profile(num_runs=2)["latency"]["runs"] == 2


REGRESSIONS = """
from modeldyno.compat import load_baseline, detect_regressions

# Compare with baseline
baseline_results = load_baseline("baseline_profiling.json")
current_results = profiler.profile(model_path)

regressions = detect_regressions(baseline_results, current_results)
if regressions:
    print(f"Performance regressions detected: {regressions}")
"""


@pytest.mark.pages
def test_the_regression_check_of_the_source_system_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented example, except for the import, finds a fivefold slowdown."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import time\ndef call():\n    time.sleep(0.002)\n", encoding="utf-8")
    first = ModelProfiler("call:net.py:call", max_time=0.3)
    first.profile(num_runs=20)
    first.export_json("baseline_profiling.json")
    (tmp_path / "net.py").write_text("import time\ndef call():\n    time.sleep(0.010)\n", encoding="utf-8")
    second = ModelProfiler("call:net.py:call", max_time=0.3)
    capsys.readouterr()
    exec(REGRESSIONS, {"profiler": second, "model_path": "call:net.py:call"})

    assert capsys.readouterr().out.startswith("Performance regressions detected: latency.p50 2.")


@pytest.mark.slow
def test_the_warm_up_is_no_shorter_than_asked_for() -> None:
    """At least this many warm-up calls are dropped, even if the times settle earlier."""

    def slow(x: Any) -> Any:
        time.sleep(0.004)
        return x

    results = ModelProfiler(slow, max_time=10.0).profile(np.ones(2), num_runs=12, warmup_runs=60)

    assert results["latency"]["runs"] == 12
    assert results["latency"]["warmup_runs"] >= 60


def test_details_that_the_backend_cannot_give_are_left_out() -> None:
    """A function has no layers; the rest is measured."""
    results = ModelProfiler(abs).profile(np.ones((2, 2)), num_runs=12, detailed_analysis=True)

    assert results["latency"]["runs"] == 12
    assert "layers" not in results


def test_a_gpu_is_profiled_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, and on another device, a sentence says so; with one, what was seen is sorted by kind."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 2)
    with pytest.raises(RequestError, match="made for 'cpu'"):
        ModelProfiler(net, device="cpu").gpu_profile(torch.zeros(1, 4))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RequestError, match="finds no usable GPU"):
        ModelProfiler(net).gpu_profile(torch.zeros(1, 4))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(ModelProfiler, "_measure", lambda *_args, **_more: watched())
    figures = ModelProfiler(net).gpu_profile(torch.zeros(1, 4), profile_nvtx=False)

    assert [row["name"] for row in figures["kernels"]] == ["kernel"]
    assert [row["name"] for row in figures["transfers"]] == ["transfer"]
    assert [row["name"] for row in figures["operators"]] == ["operator"]
    assert "ranges" not in figures


def test_memory_is_profiled_by_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations and frees are the steps of the course of memory, each with its moment."""
    monkeypatch.setattr(ModelProfiler, "_measure", lambda *_args, **_more: watched())
    profiler = ModelProfiler(abs)
    figures = profiler.memory_profile()

    assert figures["allocations"] == [{"time": pytest.approx(1), "bytes": 5}]
    assert figures["deallocations"] == [{"time": pytest.approx(3), "bytes": -5}]
    assert figures["held"] == [{"layer": "a", "role": "activations", "bytes": 5}]
    less = profiler.memory_profile(track_allocations=False, memory_snapshots=False)
    assert not {"allocations", "held", "timeline"} & set(less)


# --- torch ------------------------------------------------------------------------------------------


def test_a_live_module_has_layers_and_memory() -> None:
    """Partial names choose layers; a call's allocations are those of its activations."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    profiler = ModelProfiler(net, device="cpu", precision="fp32")
    with pytest.warns(UserWarning, match="no module has mlp in its path or class"):
        figures = profiler.profile_layers(torch.zeros(4, 8), layer_names=["linear", "mlp"], num_runs=5)

    assert set(figures["layers"]) == {"0", "2"}
    assert figures["layers"]["0"]["parameters"] == 8 * 64 + 64
    assert figures["layers"]["0"]["mean"] > 0
    memory = profiler.memory_profile()
    taken = [step["bytes"] for step in memory["allocations"]]
    assert max(taken) >= 4 * 64 * 4
    assert memory["memory"]["allocated_peak"] >= 4 * 64 * 4


def test_progress_is_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A progress line is shown and erased; without a terminal nothing is written in the first seconds."""
    monkeypatch.setattr(progress, "_PYTHON_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_LINE_INTERVAL", 1e9)
    for on_terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda on_terminal=on_terminal: on_terminal)
        ModelProfiler(lambda: 1, max_time=0.3).profile(num_runs=3, warmup_runs=1)
        output = capsys.readouterr().err
        assert ("latency" in output) is on_terminal
        assert output.endswith("\r\x1b[K") is on_terminal


def test_arrays_reach_a_model_of_another_process(tmp_path: Path) -> None:
    """One array is the first input, several are in order, a dict is by name; the first axis is the batch."""
    (tmp_path / "code.py").write_text("def add(left, right):\n    return left + right\n")
    left, right = np.ones((6, 4), "float32"), np.zeros((6, 4), "float32")
    for model, inputs in (
        (f"call:{tmp_path}/code.py:add", (left, right)),
        (f"call:{tmp_path}/code.py:add", {"right": right, "left": left}),
    ):
        results = ModelProfiler(model, max_time=0.5).profile(inputs, num_runs=12)

        assert results.failure is None
        assert results.result is not None
        assert [(spec.name, spec.shape) for spec in results.result.inputs] == [
            ("left", (6, 4)),
            ("right", (6, 4)),
        ]
        assert results.result.job.config["batch_size"] == 6


def test_the_names_of_the_inputs_are_read_without_a_measurement(tmp_path: Path) -> None:
    """A mistake in the arrays of a factory is found after it was traced, not after it was measured."""
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import pathlib, torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        with pathlib.Path(__file__).with_name('calls').open('a') as calls:\n"
        "            calls.write('.')\n"
        "        return super().forward(x)\n"
        "def make():\n"
        "    return Net(4, 2), (torch.ones(1, 4),)\n"
    )
    profiler = ModelProfiler(f"torch:{tmp_path}/net.py:make")
    with pytest.raises(RequestError, match=r"takes 1 inputs \(x\), but 2 were given"):
        profiler.profile((np.ones((1, 4), "float32"), np.ones((1, 4), "float32")))

    assert 1 <= len((tmp_path / "calls").read_text()) <= 3


def test_an_array_reaches_a_function_of_another_process(tmp_path: Path) -> None:
    """Its inputs are known by its parameters, before it runs."""
    (tmp_path / "code.py").write_text("def double(x):\n    return 2 * x\n")
    profiler = ModelProfiler(f"call:{tmp_path}/code.py:double", max_time=0.2)
    results = profiler.profile(np.ones((4, 2)), num_runs=12)

    assert results.failure is None
    assert results.result is not None
    assert [(spec.name, spec.shape) for spec in results.result.inputs] == [("x", (4, 2))]


def test_a_model_that_does_not_load_is_told(tmp_path: Path) -> None:
    """The error explains why a model has no input names."""
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text("def make():\n    raise ValueError('no weights')\n")
    profiler = ModelProfiler(f"torch:{tmp_path}/net.py:make")

    with pytest.raises(RunFailed, match="no weights"):
        profiler.profile(np.ones(3))


SESSION = """
from modeldyno.compat import ModelProfiler
import torch

# Initialize profiler
profiler = ModelProfiler(
    model_path="models/bert-base-uncased",
    device="cpu",
    precision="fp16"
)

# Prepare sample data
sample_inputs = torch.randint(0, 1000, (32, 128))  # batch_size=32, seq_len=128

# Run profiling
results = profiler.profile(
    input_data=sample_inputs,
    num_runs=100,
    warmup_runs=10,
    detailed_analysis=True
)

# Print key metrics
print(f"Average Latency: {results['latency']['mean']:.2f}ms")
print(f"Throughput: {results['throughput']['samples_per_second']:.0f} samples/s")
print(f"Peak Memory: {results['memory']['peak'] / 1024**3:.2f} GB")
"""
SHORT = SESSION.replace("(32, 128)", "(2, 16)").replace("num_runs=100", "num_runs=12").replace("fp16", "bf16")


@pytest.mark.parametrize(
    "session",
    [pytest.param(SHORT, marks=pytest.mark.pages), pytest.param(SESSION, marks=pytest.mark.slow)],
    ids=("short", "full"),
)
def test_the_session_of_the_source_system_runs(
    session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented example, except for the import and the device: a BERT on the CPU, with details.

    As a page with fewer and smaller calls.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    small = transformers.BertConfig(
        vocab_size=1000, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4,
        max_position_embeddings=128, architectures=["BertModel"],
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertModel(small).save_pretrained(tmp_path / "models" / "bert-base-uncased")
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(session, names)
    results, lines = names["results"], capsys.readouterr().out.splitlines()

    assert [line.partition(":")[0] for line in lines] == ["Average Latency", "Throughput", "Peak Memory"]
    assert results["latency"]["runs"] == results.result.job.plan.max_runs
    assert results["throughput"]["tokens_per_second"] == pytest.approx(
        names["sample_inputs"].shape[1] * results["throughput"]["samples_per_second"]
    )
    assert results["compute"]["parameters"] > 0
    assert any("attention" in path for path in results["layers"])
    assert results.result.job.config["precision"] in {"fp16", "bf16"}


# --- a whole session ----------------------------------------------------------------------------


@pytest.fixture
def session() -> ModelProfiler:
    """A profiler that was asked for a profile and for three configurations, one of which failed."""
    fast, slow = (
        a_result(id=digit * 12, measurements=(Measurement(metric="latency", value=spread(time)),
                                              observed_number("throughput", 1 / time)))
        for digit, time in (("1", 0.001), ("2", 0.004))
    )  # fmt: skip
    tried = Benchmark(
        (
            Figures(slow, configuration={"batch_size": 1}),
            Figures(fast, configuration={"batch_size": 8}),
            Figures(None, failure="out of memory", configuration={"batch_size": 64}),
        )
    )
    profiler = ModelProfiler(STEADY)
    profiler.steps.append(SessionStep(name="profile", results=(a_result(),)))
    profiler.steps.append(SessionStep(name="benchmark", results=(slow, fast), tried=tuple(tried.tried())))
    return profiler


def test_reports_are_of_all_that_was_measured(session: ModelProfiler, tmp_path: Path) -> None:
    """The page, the table and the document have each step, not only the last one."""
    session.generate_html_report(tmp_path / "r.html")
    session.export_json(tmp_path / "r.json")
    session.export_csv(tmp_path / "r.csv")
    page = (tmp_path / "r.html").read_text()
    with (tmp_path / "r.csv").open() as file:
        rows = {(row["step"], row["configuration"]) for row in csv.DictReader(file)}

    assert "profile: digits answers in" in page
    assert "benchmark: 3 configurations; batch_size=8 has the highest throughput" in page
    assert "Throughput by batch size" in page
    assert "out of memory" in page
    assert rows == {("profile", ""), ("benchmark", "batch_size=1"), ("benchmark", "batch_size=8")}
    assert read_all(tmp_path / "r.json") == session.results
    assert len(session.results) == 3
    with pytest.raises(UnreadableDocument, match="holds 3 documents, but one is expected"):
        read(tmp_path / "r.json")
    session.generate_html_report(tmp_path / "short.html", include_graphs=False, include_details=False)
    assert "Throughput by the size" not in (tmp_path / "short.html").read_text()


def test_an_array_of_something_else_is_refused(tmp_path: Path) -> None:
    """The error has the name of the file; a single document is one Result."""
    (tmp_path / "r.json").write_text('[{"a": 1}]')
    with pytest.raises(UnreadableDocument, match="no schema number"):
        read_all(tmp_path / "r.json")
    (tmp_path / "r.json").write_text('[{"a": 1')
    with pytest.raises(UnreadableDocument, match="is damaged"):
        read_all(tmp_path / "r.json")
    a_result().save(tmp_path / "r.json")
    assert read_all(tmp_path / "r.json") == (a_result(),)


def test_a_benchmark_names_the_best_and_prints_as_a_table(session: ModelProfiler) -> None:
    """By any metric with a better direction; failures are listed, and never the best."""
    benchmark = Benchmark(
        Figures(trial.result, failure=trial.failure or None, configuration=trial.configuration)
        for trial in session.steps[1].tried
    )

    assert benchmark.best().configuration == {"batch_size": 8}
    assert (
        benchmark.best("latency").configuration
        == benchmark.best("latency.p99").configuration
        == {"batch_size": 8}
    )
    assert "batch_size=64" in str(benchmark)
    assert "out of memory" in benchmark.table()
    assert "batch_size=8 has the highest throughput" in benchmark._repr_html_()
    with pytest.raises(RequestError, match="no better direction"):
        benchmark.best("calls")
    with pytest.raises(RequestError, match="No configuration has macs; the first one says: out of memory"):
        benchmark.best("macs")
    with pytest.raises(RequestError, match="nothing was measured"):
        Benchmark().best()
    assert "none of which could be measured" in Benchmark(benchmark[2:])._repr_html_()


def test_arrays_leave_no_name_of_a_file_that_is_gone(tmp_path: Path) -> None:
    """The command on a page has inputs of the same shape."""
    profiler = ModelProfiler("call:numpy:negative", max_time=0.2)
    result = profiler.profile({"x": np.ones((4, 3), np.float32)}, num_runs=5).result
    assert result is not None
    profiler.generate_html_report(tmp_path / "r.html")

    assert result.inputs[0].source == "an array given in Python"
    page = re.sub("<[^>]*>", "", (tmp_path / "r.html").read_text())
    assert "--input x=4x3:float32" in page


# --- comparing ---------------------------------------------------------------------------------


def test_what_two_have_measured_is_compared() -> None:
    """The called profiler is the baseline; one without measurements raises."""
    first, second = ModelProfiler(STEADY), ModelProfiler(STEADY)
    with pytest.raises(RequestError, match="Nothing was measured yet"):
        first.compare(second)
    first.steps.append(SessionStep(name="profile", results=(a_result(),)))
    second.steps.append(SessionStep(name="profile", results=(a_result(id="ba9876543210"),)))

    comparison = first.compare(second)

    assert (comparison.baseline.id, comparison.contrasts[0].candidate.id) == (a_result().id, "ba9876543210")
    assert [doubt.code for doubt in comparison.contrasts[0].doubts] == ["not-in-turns"]
