"""Sample Results, for tests of code that reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.job import Job
from modeldyno.base.job.model_ref import ModelIdentity, ModelRef
from modeldyno.base.job.static_options import StaticOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Interval, Measurement, observed_number, pack
from modeldyno.base.result.result import Artifact, Environment, Failure, FailureKind, Result
from modeldyno.base.result.static_data import MemoryItem, Module, Operator, SizePoint, StaticReport
from modeldyno.base.result.trace_data import (
    EventKind,
    ExecutedOp,
    Layer,
    MemoryTimeline,
    RedundancyKind,
    RedundantOp,
    TraceReport,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

SAMPLES = (0.00125, 0.0013, 0.00128, 0.0031, 0.00127, 0.00126, 0.00129, 0.00131)
"""Seconds, with one outlier."""


def a_job(name: str = "digits") -> Job:
    """Return a Job with a knob of each type."""
    return Job(
        model=ModelRef(scheme="onnx", locator=f"models/{name}.onnx"),
        backend="onnxruntime",
        inputs=(InputSpec(name="image", shape=("batch", 64), dtype="float32", low=0.0, high=16.0),),
        config={"batch_size": 8, "device": "cpu", "io_binding": False, "threads": 2},
    )


def a_result(*, name: str = "digits", samples: Iterable[float] = SAMPLES, **changes: Any) -> Result:
    """Return the Result of a successful run; `changes` replaces any other part of it, such as ``id=``."""
    result = Result(
        id="0123456789ab",
        created="2026-01-02T03:04:05.678901+00:00",
        job=a_job(name),
        model=ModelIdentity(name=name, digest="sha256:" + "5a" * 32, framework="onnx"),
        inputs=(InputSpec(name="image", shape=(8, 64), dtype="float32", digest="sha256:00", distinct=4),),
        environment=Environment(
            hardware={"cpu": "a test processor", "cores": 2, "memory": 8 * 2**30},
            software={"python": "3.11.7", "onnxruntime": "1.18.0"},
            conditions={"load": 0.25, "governor": "performance", "pinned": True},
        ),
        measurements=_measurements(samples),
        doubts=(Doubt(code="few-samples", seen="8 samples", advice="Give --max-time more."),),
    )
    return replace(result, **changes)


def a_small_result(**changes: Any) -> Result:
    """Return a minimal Result, for tests that need thousands."""
    parts: dict[str, Any] = {"inputs": (), "environment": Environment(), "measurements": (), "doubts": ()}
    return a_result(**(parts | changes))


def a_failed_result(**changes: Any) -> Result:
    """Return the Result of a run in which the model never loaded."""
    failure = Failure(
        where="load", kind=FailureKind.OOM, message="The child took 2 GiB.", log="Allocating...\nKilled"
    )
    parts: dict[str, Any] = {"model": None, "measurements": (), "failures": (failure,)}
    return a_result(**(parts | changes))


def an_artifact(path: str, *, keep_until: str | None = None) -> Artifact:
    """Return the record of a file."""
    return Artifact(name="log", path=path, digest="sha256:" + "0f" * 32, keep_until=keep_until)


def _measurements(samples: Iterable[float]) -> tuple[Measurement, ...]:
    latency = Distribution.of(
        samples, stop="time limit", unmet=("precision",), warmup_dropped=3, warmup_time=0.5, timer_cost=4e-8
    )
    rate = Interval(low=6100.0, high=6300.0)
    return (
        Measurement(metric="latency", value=latency),
        Measurement(metric="throughput", value=6200.5, interval=rate, runs=(6200.5,)),
        observed_number("load_time", 0.125),
        Measurement(metric="parameters", value=4810),
        Measurement(metric="weight_bytes", value=19240, scope="float32"),
    )


def an_inspection(**changes: Any) -> Result:
    """Return the Result of a static analysis of a transformer of six equal layers."""
    inspection = StaticOptions(vary={"batch": (1, 8), "seq": (128, 512)}, devices=("a100",), modules=True)
    job = replace(a_job("mini"), probes=("static",), config={"batch_size": 1}, inspection=inspection)
    totals = {
        "parameters": 22_713_216, "trainable_parameters": 22_713_216, "buffers": 512,
        "weight_bytes": 90_856_960, "file_bytes": 90_874_112, "macs": 1_412_628_480,
        "elementwise": 21_340_000, "flops": 2_846_596_960, "coverage": 0.975,
        "bytes_read": 151_000_000, "bytes_written": 52_000_000,
        "arithmetic_intensity": 14.0226, "input_bytes": 3072, "output_bytes": 198_144,
        "activation_peak": 1_966_080, "memory_peak": 92_826_112, "largest_batch": 10_240,
    }  # fmt: skip
    model_totals = tuple(Measurement(metric=metric, value=value) for metric, value in totals.items())
    bounds = {"macs": Interval(low=1_412_628_480, high=1_442_628_480)}
    model_totals = tuple(replace(m, interval=bounds.get(m.metric)) for m in model_totals)
    dtypes = (
        Measurement(metric="weight_bytes", value=90_852_864, scope="float32"),
        Measurement(metric="weight_bytes", value=4096, scope="int64"),
    )
    device = {
        "roofline_latency": 131.2e-6,
        "decode_latency": 58.4e-6,
        "peak_flops": 19.5e12,
        "peak_bandwidth": 1.555e12,
    }
    estimates = tuple(
        Measurement(metric=metric, value=value, scope="a100") for metric, value in device.items()
    )
    parts: dict[str, Any] = {
        "name": "mini",
        "job": job,
        "inputs": (InputSpec(name="input_ids", shape=(1, 128), dtype="int64"),),
        "measurements": (*model_totals, *dtypes, *estimates, *_module_measurements()),
        "outline": an_outline(),
        "doubts": (),
    }
    return a_result(**(parts | changes))


def an_activity() -> TraceReport:
    """Return an Activity with every part: a small network, watched."""
    shape = "1x128x384 float32"
    return TraceReport(
        layers=tuple(
            Layer(path=path, kind=kind, calls=1.0, output=shape) for path, (kind, _, _) in _MODULES.items()
        ),
        executed=(
            ExecutedOp(
                name="aten::addmm", scope="encoder.layer.0.output", shapes="[384], [128, 1536], [1536, 384]",
                calls=1.0, self_time=2.1e-3, total_time=2.2e-3, device_time=0.0, allocated=196_608.0,
            ),
            ExecutedOp(
                name="block", kind=EventKind.RANGE, calls=1.0, self_time=1e-4, total_time=4e-3,
            ),
        ),
        wastes=(
            RedundantOp(
                kind=RedundancyKind.COPY, name="aten::clone", scope="encoder.layer.1", calls=1.0, time=1.2e-4,
                bytes=393_216.0, reason="the copy is read and never changed; use the tensor itself",
            ),
        ),
        course=MemoryTimeline(
            times=pack((0.0, 0.001, 0.002)),
            levels={"weights": pack((90e6, 90e6, 90e6)), "activations": pack((0.0, 786_432.0, 393_216.0))},
        ),
        held=(MemoryItem(scope="encoder.layer.3.output", role="activations", bytes=786_432),),
        held_in="encoder.layer.3.output",
    )  # fmt: skip


def an_outline() -> StaticReport:
    """Return an Outline with every part."""
    return StaticReport(
        sizes={"batch": 1, "seq": 128},
        modules=tuple(
            Module(path=path, kind=kind, output="1x128x384 float32")
            for path, (kind, _, _) in _MODULES.items()
        ),
        operators=(
            Operator(kind="aten.addmm", calls=36, macs=1_358_954_496),
            Operator(kind="aten.bmm", calls=12, macs=53_673_984),
            Operator(kind="aten.gelu", calls=6, elementwise=9_437_184),
            Operator(
                kind="custom.rotate", calls=6, counted=False, most=30_000_000,
                shapes="(1, 12, 128, 32) x (128, 32) -> (1, 12, 128, 32)", scope="encoder.layer.0.attention",
            ),
        ),
        peak=(
            MemoryItem(scope="embeddings.word", role="weight", bytes=46_881_792),
            MemoryItem(scope="encoder.layer.0.output", role="weight", bytes=43_975_168),
            MemoryItem(scope="encoder.layer.2.output", role="activation", bytes=786_432),
            MemoryItem(scope="encoder.layer.3.output", role="activation", bytes=786_432),
            MemoryItem(scope="embeddings.word", role="activation", bytes=393_216),
            MemoryItem(scope="", role="input", bytes=3072),
        ),
        peak_scope="encoder.layer.3.output",
        peak_operator="aten.addmm",
        points=tuple(
            SizePoint(
                sizes={"batch": batch, "seq": seq},
                values={
                    "macs": 11_000_000.0 * batch * seq, "activation_peak": 15_360.0 * batch * seq,
                    "memory_peak": 90_860_032 + 15_384.0 * batch * seq,
                    "roofline_latency@a100": 1.03e-6 * batch * seq,
                },
            )
            for batch in (1, 8)
            for seq in (128, 512)
        ),
        formulas={"macs": "10616832*batch*seq + 4608*batch*seq^2", "activation_peak": "15360*batch*seq"},
        domain="batch >= 1 (traced to 8), seq = 16k (traced to 512)",
        traced=False,
        assumptions=("every row of the mask is full, as in a batch without padding",),
    )  # fmt: skip


def _layers() -> dict[str, tuple[str, int, int]]:
    parts = {
        "": ("Layer", 1_774_464, 235_438_080),
        ".attention": ("Attention", 591_360, 84_443_136),
        ".attention.query": ("Linear", 147_840, 18_874_368),
        ".attention.key": ("Linear", 147_840, 18_874_368),
        ".attention.value": ("Linear", 147_840, 18_874_368),
        ".attention.out": ("Linear", 147_840, 18_874_368),
        ".intermediate": ("Linear", 591_360, 75_497_472),
        ".output": ("Linear", 591_744, 75_497_472),
        ".dropout": ("Dropout", 0, 0),
    }
    return {f"encoder.layer.{n}{path}": numbers for n in range(6) for path, numbers in parts.items()}


_MODULES: dict[str, tuple[str, int, int]] = {
    "": ("MiniModel", 22_713_216, 1_412_628_480),
    "embeddings": ("Embeddings", 11_918_592, 0),
    "embeddings.word": ("Embedding", 11_720_448, 0),
    "embeddings.position": ("Embedding", 198_144, 0),
    "encoder": ("Encoder", 10_646_784, 1_412_628_480),
    "encoder.layer": ("ModuleList", 10_646_784, 1_412_628_480),
    **_layers(),
    "pooler": ("Linear", 147_840, 0),
}
"""Path to class, parameters and MACs."""


def _module_measurements() -> Iterable[Measurement]:
    for path, (_, parameters, macs) in _MODULES.items():
        values = {"parameters": parameters, "weight_bytes": 4 * parameters, "macs": macs, "flops": 2 * macs}
        if path:
            yield from (Measurement(metric=m, value=value, scope=path) for m, value in values.items())
