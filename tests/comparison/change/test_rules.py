"""Findings: each rule speaks where its evidence is, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.job.job import Job
from modeldyno.base.job.knob import BATCH_SIZE, Knob, KnobValue
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode, StaticOptions
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Distribution, Measurement, observed_number
from modeldyno.base.result.result import Environment
from modeldyno.base.result.static_data import Module, Operator, StaticReport
from modeldyno.base.result.trace_data import Allocation, Layer, RedundancyKind, RedundantOp, TraceReport
from modeldyno.profiling.findings.bottleneck import Limit, bottleneck
from modeldyno.profiling.findings.finding import Case, Finding, part_of
from modeldyno.profiling.findings.rules import RULES, findings
from modeldyno.testing.sample_results import a_failed_result, a_small_result

if TYPE_CHECKING:
    from modeldyno.base.result.result import Result

TORCH = (
    Knob(name="precision", kind=str, default=None, choices=("fp32", "fp16", "bf16", "int8"), sentence=""),
    Knob(name="compile", kind=str, default="off", choices=("off", "default"), sentence=""),
    Knob(name="channels_last", kind=bool, default=False, sentence=""),
    Knob(name="tf32", kind=bool, default=None, sentence=""),
    Knob(name="threads", kind=int, default=None, low=1, high=64, sentence=""),
    Knob(name="inference_mode", kind=bool, default=True, sentence=""),
    BATCH_SIZE,
)
ONNX = (
    Knob(name="threads", kind=int, default=None, low=1, sentence=""),
    Knob(
        name="graph_optimization", kind=str, default="all", choices=("disable", "basic", "all"), sentence=""
    ),
    Knob(name="spinning", kind=bool, default=None, sentence=""),
    Knob(name="io_binding", kind=bool, default=False, sentence=""),
    BATCH_SIZE,
)
TRITON = (
    Knob(name="dynamic_batching", kind=bool, default=False, sentence=""),
    Knob(name="instances", kind=int, default=None, low=1, high=8, usual=1, sentence=""),
    Knob(
        name="protocol",
        kind=str,
        default="http-json",
        choices=("http-binary", "http-json", "grpc"),
        sentence="",
    ),
)
TORCHSERVE = (
    Knob(name="max_batch", kind=int, default=1, low=1, sentence=""),
    Knob(name="workers", kind=int, default=1, low=1, sentence=""),
)


def times(seconds: float, metric: str = "latency", scope: str = "") -> Measurement:
    return Measurement(metric=metric, value=Distribution.of([seconds] * 20), scope=scope)


def result(
    *measured: Measurement,
    knobs: tuple[Knob, ...] = TORCH,
    config: dict[str, KnobValue] | None = None,
    device: str = "cpu",
    load: Load | None = None,
    mode: Mode = Mode.INFERENCE,
    doubts: dict[str, str] | None = None,
    **changes: Any,
) -> Result:
    """What was measured on four cores."""
    usual = {knob.name: knob.default for knob in knobs if knob.default is not None}
    job = Job(
        model=ModelRef(scheme="torch", locator="net.py:make"),
        backend="some",
        config={**usual, **(config or {})},
        load=load,
        inspection=StaticOptions(mode=mode),
    )
    made: dict[str, Any] = {
        "job": job,
        "measurements": measured,
        "environment": Environment(hardware={"cpu_quota": 4.0}, conditions={"device": device}),
        "doubts": tuple(Doubt(code=c, seen=s, advice="") for c, s in (doubts or {}).items()),
    }
    return a_small_result(**(made | changes))


def analysed(*, latency: float = 0.001, memory: bool = False, **sizes: int) -> tuple[Measurement, ...]:
    """A model of 1 MMAC in float32 on a machine of 20 GFLOP/s: 0.1 ms of arithmetic."""
    del sizes
    return (
        times(latency),
        Measurement(metric="macs", value=1_000_000),
        Measurement(metric="weight_bytes", value=4000),
        Measurement(metric="weight_bytes", value=4000, scope="float32"),
        Measurement(metric="peak_flops", value=2e10, scope="here"),
        Measurement(metric="peak_bandwidth", value=1e9, scope="here"),
        Measurement(metric="roofline_latency", value=0.6e-3 if memory else 0.1e-3, scope="here"),
    )


def outline(kind: str = "aten.addmm", calls: int = 4, **sizes: int) -> StaticReport:
    return StaticReport(
        sizes=sizes,
        operators=(
            Operator(kind=kind, calls=calls, macs=900_000),
            Operator(kind="aten.bmm", calls=calls, macs=100_000),
        ),
    )


def of(code: str, result: Result, knobs: tuple[Knob, ...] = TORCH) -> list[Finding]:
    return [each for each in findings(result, knobs) if each.code == code]


def settings(finding: Finding, result: Result) -> dict[str, KnobValue]:
    assert finding.job is not None
    return {n: v for n, v in finding.job.config.items() if result.job.config.get(n) != v}


class TestFindings:
    def test_of_nothing_and_of_what_failed_there_are_none(self) -> None:
        """No measurement, no finding."""
        assert findings(a_small_result(), TORCH) == ()
        assert findings(a_failed_result(), TORCH) == ()

    def test_the_largest_saving_comes_first(self) -> None:
        """Those whose saving nothing bounds come last."""
        all_findings = findings(result(*analysed(), outline=outline(batch=1)), TORCH)
        highs = [each.saving.high if each.saving else 0.0 for each in all_findings]
        assert highs == sorted(highs, reverse=True)
        assert {each.code for each in all_findings} <= set(RULES)
        assert all(each.seen and each.why for each in all_findings)
        assert all(each.job is not None or each.do for each in all_findings)

    def test_nothing_is_proposed_that_the_backend_does_not_have(self) -> None:
        """Without its knobs no finding has a job."""
        all_findings = findings(result(*analysed(), outline=outline(batch=1), knobs=()))
        assert all(each.job is None for each in all_findings)

    def test_each_rule_says_what_it_is_about(self) -> None:
        """In the first line of its docstring."""
        assert all(rule.__doc__ for rule in RULES.values())


class TestAlone:
    def test_a_needless_step_saves_its_own_time(self) -> None:
        """The costliest three are told, with their reason; without a time there is no estimate."""
        wastes = tuple(
            RedundantOp(
                kind=RedundancyKind.COPY,
                name="clone",
                scope=f"a.{n}",
                calls=1,
                time=2e-4,
                reason="use the original.",
            )
            for n in range(4)
        )
        activity = TraceReport(wastes=wastes)
        needless = of("needless", result(times(0.001), activity=activity))
        assert len(needless) == 3
        assert needless[0].saving is not None
        assert needless[0].saving.high == pytest.approx(0.2)
        assert needless[0].why == "use the original."
        assert "a.0" in needless[0].seen
        (first, *_) = of("needless", result(activity=activity))
        assert first.saving is None
        assert of("needless", result(times(0.001), activity=TraceReport(wastes=()))) == []
        assert of("needless", result(times(1.0), activity=activity)) == []  # next to nothing of a call

    def test_float32_weights_are_offered_16_bits(self) -> None:
        """Half of the time where the call waits for memory; else nothing bounds it."""
        waiting = result(*analysed(memory=True))
        (finding,) = of("precision", waiting)
        assert settings(finding, waiting) == {"precision": "bf16"}
        assert finding.changes_outputs
        assert finding.saving is not None
        assert finding.saving.low is None
        (other,) = of("precision", result(*analysed()))
        assert other.saving is None
        assert of("precision", result(*analysed(), config={"precision": "fp16"})) == []
        assert of("precision", result(times(0.001))) == []

    def test_tf32_is_proposed_on_cuda_for_products_of_float32(self) -> None:
        """Not on the CPU, nor if it or a precision is set."""
        measured = analysed()
        on_card = result(*measured, device="cuda:0")
        (proposed,) = of("tf32", on_card)
        assert settings(proposed, on_card) == {"tf32": True}
        assert proposed.changes_outputs
        assert of("tf32", result(*measured)) == []
        assert of("tf32", result(*measured, device="cuda:0", config={"tf32": True})) == []
        assert of("tf32", result(*measured, device="cuda:0", config={"precision": "bf16"})) == []

    def test_linear_layers_are_offered_int8(self) -> None:
        """Where they have most of the products, and calls are measured."""
        linear = result(*analysed(), outline=outline())
        (finding,) = of("quantization", linear)
        assert settings(finding, linear) == {"precision": "int8"}
        assert of("quantization", result(*analysed(), outline=outline("aten.convolution"))) == []
        assert of("quantization", result(*analysed(), outline=outline(), mode=Mode.TRAIN)) == []

    def test_operators_one_by_one_are_offered_a_compiler(self) -> None:
        """No more than the roofline leaves can be saved."""
        eager = result(*analysed(), outline=outline())
        (finding,) = of("compile", eager)
        assert settings(finding, eager) == {"compile": "default"}
        assert finding.saving is not None
        assert finding.saving.high == pytest.approx(0.9)
        assert of("compile", result(*analysed(), outline=outline(), config={"compile": "default"})) == []
        assert of("compile", result(*analysed())) == []
        beyond = result(*analysed(latency=5e-5), outline=outline())
        assert of("compile", beyond)[0].saving is None

    def test_a_limited_optimisation_of_the_graph_is_told(self) -> None:
        """All is the usual, and needs no word."""
        limited = result(*analysed(), knobs=ONNX, config={"graph_optimization": "basic"})
        (finding,) = of("graph-optimization", limited, ONNX)
        assert settings(finding, limited) == {"graph_optimization": "all"}
        assert of("graph-optimization", result(*analysed(), knobs=ONNX), ONNX) == []

    def test_a_larger_batch_is_offered_where_arithmetic_is_little(self) -> None:
        """Four times the batch; where arithmetic takes most of a call it would bring nothing."""
        little = result(*analysed(), outline=outline(batch=2))
        (finding,) = of("batch-size", little)
        assert settings(finding, little) == {"batch_size": 8}
        assert finding.saving is not None
        assert finding.saving.high == pytest.approx(0.9)
        assert of("batch-size", result(*analysed(latency=1.2e-4), outline=outline(batch=1))) == []
        assert of("batch-size", result(*analysed(), outline=outline(seq=8))) == []
        assert of("batch-size", result(times(0.1), outline=outline(batch=1))) == []

    def test_threads_are_no_more_than_cores(self) -> None:
        """Too many, too few, and one where operators are short."""
        many = result(times(1.0), config={"threads": 9}, outline=outline())
        assert [settings(each, many) for each in of("threads", many)] == [{"threads": 4}]
        few = result(times(1.0), config={"threads": 1}, outline=outline())
        (finding,) = of("threads", few)
        assert settings(finding, few) == {"threads": 4}
        assert finding.saving is not None
        assert finding.saving.high == 0.75
        short = result(times(1e-4), outline=outline())
        assert [settings(each, short) for each in of("threads", short)] == [{"threads": 1}]
        assert of("threads", result(times(1.0), outline=outline(), device="cuda:0")) == []
        assert of("threads", result(times(1e-4), environment=Environment())) == []

    def test_spinning_threads_are_told_where_others_want_the_cores(self) -> None:
        """Only where these were seen."""
        doubts = {"interference": "others kept 1.4 cores busy"}
        (finding,) = of("spinning", result(times(1.0), knobs=ONNX, doubts=doubts), ONNX)
        assert finding.seen == doubts["interference"]
        assert of("spinning", result(times(1.0), knobs=ONNX), ONNX) == []

    def test_convolutions_are_offered_the_channels_last(self) -> None:
        """Where they have most of the products."""
        offers = of("channels-last", result(*analysed(), outline=outline("aten.convolution")))
        assert len(offers) == 1
        assert of("channels-last", result(*analysed(), outline=outline())) == []

    def test_inference_mode_is_offered_where_it_is_off(self) -> None:
        """It is on unless somebody turned it off."""
        assert len(of("inference-mode", result(times(1.0), config={"inference_mode": False}))) == 1
        assert of("inference-mode", result(times(1.0))) == []

    def test_inputs_that_move_to_a_device_are_bound(self) -> None:
        """On the processor nothing moves."""
        size = Measurement(metric="input_bytes", value=600_000)
        on_device = result(times(1.0), size, knobs=ONNX, device="cuda:0")
        (finding,) = of("io-binding", on_device, ONNX)
        assert "586 KiB" in finding.seen
        assert of("io-binding", result(times(1.0), size, knobs=ONNX), ONNX) == []

    def test_a_slow_first_call_is_told(self) -> None:
        """From a tenth of a second and twenty calls on."""
        (finding,) = of("warm-up", result(times(0.001), observed_number("first_call", 0.5)))
        assert finding.saving is not None
        assert finding.saving.high == pytest.approx(0.998)
        assert of("warm-up", result(times(0.001), observed_number("first_call", 0.05))) == []
        assert of("warm-up", result(times(0.1), observed_number("first_call", 0.5))) == []
        assert of("warm-up", result(times(0.1))) == []

    def test_long_loading_is_told_with_its_longest_stage(self) -> None:
        """Making a graph ready takes less time where it is optimised less."""
        stages = (observed_number("load_time", 2.0), observed_number("load_time", 1.5, scope="open"))
        loading = result(times(0.001), *stages, knobs=ONNX)
        (each,) = of("load-time", loading, ONNX)
        assert settings(each, loading) == {"graph_optimization": "basic"}
        assert each.metric == "load_time"
        importing = observed_number("load_time", 1.8, scope="import")
        (each,) = of("load-time", result(times(0.001), stages[0], importing, knobs=ONNX), ONNX)
        assert each.job is None
        assert "importing the framework" in each.seen
        assert of("load-time", result(times(0.001), stages[0]), ONNX) == []
        assert of("load-time", result(times(1.0), *stages), ONNX) == []


class TestMemory:
    def watched(self, *, share: float, device: str = "cpu", **changes: Any) -> Result:
        """Two layers: one that reads 800 kB in so many times what the bandwidth needs, and a busy one."""
        layers = (
            times(0.8e-3 / share, scope="fc"),
            Measurement(metric="weight_bytes", value=800_000, scope="fc"),
            Measurement(metric="output_bytes", value=0, scope="fc"),
            times(1e-3, scope="conv"),
            Measurement(metric="macs", value=1_000_000, scope="conv"),
            times(0.0, scope="idle"),
            Measurement(metric="weight_bytes", value=8, scope="idle"),
        )
        paths = (
            ("", "fc", "conv", "idle", "conv.inner")
            if changes.pop("nested", False)
            else ("", "fc", "conv", "idle")
        )
        activity = TraceReport(layers=tuple(Layer(path=path, kind="Layer") for path in paths))
        return result(*analysed(), *layers, activity=activity, device=device, **changes)

    def test_layers_that_wait_for_memory_are_named(self) -> None:
        """With half of their time as what half of the bytes would save at most."""
        memory_bound = self.watched(share=0.8)
        (each,) = of("memory-bound", memory_bound)
        assert each.seen.startswith("50% of the time of the layers")
        assert "fc 1.00 ms" in each.seen
        assert each.saving is not None
        assert each.saving.high == pytest.approx(0.25)
        assert settings(each, memory_bound) == {"precision": "bf16"}
        (narrow,) = of("memory-bound", self.watched(share=0.8, config={"precision": "bf16"}))
        assert narrow.job is None

    def test_layers_far_from_the_bandwidth_are_not(self) -> None:
        """Nor those of a device whose peaks are not known, nor where nobody watched."""
        assert of("memory-bound", self.watched(share=0.1)) == []
        assert of("memory-bound", self.watched(share=0.8, device="cuda:0")) == []
        assert of("memory-bound", result(*analysed())) == []
        assert of("memory-bound", self.watched(share=0.8, nested=True))

    def test_a_reserve_far_above_the_need_is_told(self) -> None:
        """By more than half, and by more than 100 MiB."""
        need = Measurement(metric="weight_bytes", value=2**30)
        held = Measurement(metric="allocator_reserved", value=2 * 2**30)
        (finding,) = of("reserved", result(need, held))
        assert finding.saving is not None
        assert finding.saving.high == 0.5
        assert "expandable_segments" in finding.do
        small = (Measurement(metric="weight_bytes", value=2**20), replace(held, value=2 * 2**20))
        assert of("reserved", result(*small)) == []
        assert of("reserved", result(held)) == []
        assert of("reserved", result(need)) == []

    def test_activations_of_many_alike_blocks_are_offered_checkpoints(self) -> None:
        """Of sixteen blocks half of the activations stay."""
        modules = tuple(Module(path=f"layer.{n}", kind="Block") for n in range(16))
        memory = (
            Measurement(metric="memory_peak", value=1000),
            Measurement(metric="activation_peak", value=800),
        )
        trained = result(*memory, mode=Mode.TRAIN, outline=StaticReport(modules=modules))
        (finding,) = of("checkpointing", trained)
        assert finding.saving is not None
        assert finding.saving.high == pytest.approx(0.4)
        assert "16 alike blocks" in finding.seen
        assert of("checkpointing", result(*memory, outline=StaticReport(modules=modules))) == []
        assert (
            of("checkpointing", result(*memory, mode=Mode.TRAIN, outline=StaticReport(modules=modules[:3])))
            == []
        )
        assert of("checkpointing", result(*memory, mode=Mode.TRAIN)) == []

    def test_buffers_that_no_pool_keeps_are_named(self) -> None:
        """Blocks beyond the 32 MiB of glibc that a call gives back, and an arena that is off."""

        def block(size: int, freed: float | None = 1.0) -> Allocation:
            return Allocation(
                bytes=size,
                scope="conv1",
                operator="aten.conv2d",
                category="activation",
                made=0.0,
                freed=freed,
            )

        def traced(*blocks: Allocation, **changes: Any) -> Result:
            return result(activity=TraceReport(allocations=blocks), **changes)

        large = block(64 * 2**20)
        (finding,) = of("pooling", traced(large, block(48 * 2**20), block(2**20)))
        assert finding.seen.startswith(
            "each call takes 112 MiB in 2 blocks of more than 32 MiB, the largest in conv1"
        )
        assert of("pooling", traced(block(2**20), block(64 * 2**20, freed=None))) == []
        assert of("pooling", traced(large, device="cuda:0")) == []
        arena = (Knob(name="arena", kind=bool, default=True, sentence=""),)
        off = result(knobs=arena, config={"arena": False})
        (finding,) = of("pooling", off, arena)
        assert settings(finding, off) == {"arena": True}

    def test_weights_that_fill_the_memory_are_to_be_sharded(self) -> None:
        """With gradients and the optimiser's state in training, and beside the memory of the machine else."""
        state = [
            Measurement(metric=name, value=size * 2**30)
            for name, size in (
                ("weight_bytes", 1),
                ("gradient_bytes", 1),
                ("optimizer_bytes", 2),
                ("memory_peak", 5),
            )
        ]
        (finding,) = of("sharding", result(*state, mode=Mode.TRAIN))
        assert finding.saving is not None
        assert finding.saving.high == pytest.approx(0.4)
        assert finding.seen.startswith("80% of the memory of a step, 4.00 GiB")
        small = [replace(each, value=each.value / 2**20) for each in state]  # type: ignore[operator]
        assert of("sharding", result(*small, mode=Mode.TRAIN)) == []

        weights = Measurement(metric="weight_bytes", value=6 * 2**30)
        machine = Environment(hardware={"memory": 8 * 2**30})
        (finding,) = of("sharding", result(weights, environment=machine))
        assert "75% of the memory of this machine" in finding.seen
        assert of("sharding", result(replace(weights, value=2**30), environment=machine)) == []
        assert of("sharding", result(weights, environment=Environment())) == []


def served(queue: float = 0.0, network: float = 0.0, **how: Any) -> Result:
    """A request of 10 ms, of which so many parts are queue and network."""
    measured = (
        times(0.01), times(0.01, "service_time"), observed_number("queue_time", queue * 0.01),
        observed_number("network_time", network * 0.01), observed_number("compute_time", 0.002),
        observed_number("formed_batch", 1.0), observed_number("cpu_utilization", how.pop("busy", 1.0)),
    )  # fmt: skip
    made: dict[str, Any] = {"knobs": TRITON, "load": Load(concurrency=8)}
    return result(*measured, **(made | how))


class TestServed:
    def test_a_queue_is_offered_batches(self) -> None:
        """Of Triton its dynamic batching, of others a largest batch; not where batches form already."""
        waiting = served(queue=0.6)
        (finding,) = of("batching", waiting, TRITON)
        assert settings(finding, waiting) == {"dynamic_batching": True}
        assert finding.saving is not None
        assert finding.saving.high == pytest.approx(0.6)
        other = served(queue=0.6, knobs=TORCHSERVE)
        assert settings(of("batching", other, TORCHSERVE)[0], other) == {"max_batch": 8}
        assert of("batching", served(queue=0.6, config={"dynamic_batching": True}), TRITON) == []
        assert of("batching", served(queue=0.1), TRITON) == []
        assert of("batching", served(queue=0.6, knobs=()), ()) == []

    def test_a_queue_is_offered_another_instance_while_cores_are_idle(self) -> None:
        """Where they are busy a copy more only shares them."""
        waiting = served(queue=0.6)
        (finding,) = of("instances", waiting, TRITON)
        assert settings(finding, waiting) == {"instances": 2}
        other = served(queue=0.6, knobs=TORCHSERVE)
        assert settings(of("instances", other, TORCHSERVE)[0], other) == {"workers": 2}
        assert of("instances", served(queue=0.6, busy=3.9), TRITON) == []
        assert of("instances", served(queue=0.6, busy=3.9, device="cuda:0"), TRITON)
        assert of("instances", served(queue=0.6, config={"instances": 8}), TRITON)[0].job is None
        assert of("instances", served(queue=0.6, doubts={"client-limited": "x"}), TRITON) == []

    def test_much_network_is_offered_bytes(self) -> None:
        """Instead of text; not where these are sent already."""
        far = served(network=0.7)
        (finding,) = of("protocol", far, TRITON)
        assert settings(finding, far) == {"protocol": "http-binary"}
        assert of("protocol", served(network=0.7, config={"protocol": "grpc"}), TRITON) == []
        assert of("protocol", served(network=0.2), TRITON) == []

    def test_a_client_that_is_the_limit_gets_another_driver(self) -> None:
        """And nothing is said of the server's queue."""
        (finding,) = findings(served(queue=0.6, doubts={"client-limited": "the driver was busy"}), TRITON)
        assert finding.code == "client-limited"
        assert finding.job is not None
        assert finding.job.load is not None
        assert finding.job.load.drivers == 2
        assert of("client-limited", result(times(1.0), doubts={"client-limited": "x"})) == []

    def test_an_overload_is_offered_a_search(self) -> None:
        """For the load that holds, with the same requests: a command without their settings sends others."""
        (finding,) = of("saturated", served(doubts={"saturated": "the queue grew"}), TRITON)
        assert "`find_load`" in finding.do
        assert "modeldyno load" not in finding.do


class TestBottleneck:
    def of(self, result: Result) -> tuple[Limit, float | None] | None:
        """What limits it, and by which share."""
        limit = bottleneck(Case(result=result))
        if limit is None:
            return None
        return limit.limit, None if limit.share is None else round(limit.share, 6)

    def test_of_a_call_it_is_a_roof_or_neither(self) -> None:
        """By the peaks of this machine."""
        assert self.of(result(*analysed(latency=1.25e-4))) == (Limit.COMPUTE, 0.8)
        assert self.of(result(*analysed(memory=True))) == (Limit.MEMORY, 0.6)
        assert self.of(result(*analysed())) == (Limit.OVERHEAD, 0.9)
        assert self.of(result(times(1.0))) is None
        assert self.of(a_failed_result()) is None

    def test_of_a_disturbed_call_it_is_what_disturbs(self) -> None:
        """Others on the cores, or the disk."""
        assert self.of(result(*analysed(), doubts={"interference": "x"})) == (Limit.NEIGHBOURS, None)
        assert self.of(result(*analysed(), doubts={"paging": "x"})) == (Limit.DISK, None)

    def test_others_that_take_little_are_no_limit(self) -> None:
        """They are a doubt; what the call itself waits for is told."""
        for cores, limit in ((0.07, Limit.OVERHEAD), (1.4, Limit.NEIGHBOURS)):
            measured = (*analysed(), observed_number("foreign_cpu", cores))
            answer = self.of(result(*measured, doubts={"interference": "x"}))
            assert answer is not None
            assert answer[0] is limit

    @pytest.mark.parametrize(
        ("cores", "by_itself", "preempted", "limit"),
        [
            (0.02, 160.0, 3.0, (Limit.WAITING, 0.98)),
            (0.02, 160.0, 150.0, (Limit.NEIGHBOURS, None)),  # it was kept from its core
            (0.9, 160.0, 3.0, (Limit.NEIGHBOURS, None)),
            (0.02, 0.0, 0.0, (Limit.NEIGHBOURS, None)),
        ],
    )
    def test_a_call_that_sleeps_is_waiting(
        self, cores: float, by_itself: float, preempted: float, limit: tuple[Limit, float | None]
    ) -> None:
        """Whatever others do meanwhile, if it gave up its core and was not driven from it."""
        counted = {"cpu_utilization": cores, "context_switches": by_itself, "preemptions": preempted}
        measured = (*analysed(), *(observed_number(name, number) for name, number in counted.items()))

        assert self.of(result(*measured, doubts={"interference": "x"})) == limit

    def test_a_call_that_waits_names_the_line_where_it_does_for_the_longest_time(self) -> None:
        """With the time of a call in it; without a line that was seen nothing is added."""
        counted = (observed_number("cpu_utilization", 0.02), observed_number("context_switches", 160.0))
        lines = (
            Measurement(metric="wait_time", value=0.001, scope="net.py:7"),
            Measurement(metric="wait_time", value=0.02, scope="store.py:12"),
        )
        plain, named = (bottleneck(Case(result=result(*analysed(), *counted, *more))) for more in ((), lines))

        assert plain is not None
        assert named is not None
        assert named.seen == f"{plain.seen}; 20.0 ms of each in store.py:12"

    def test_of_an_idle_device_it_is_the_host(self) -> None:
        """A busy one tells of no more."""
        idle = times(0.2, "gpu_utilization", "cuda:0")
        assert self.of(result(times(1.0), idle, device="cuda:0")) == (Limit.HOST, 0.8)
        busy = times(0.9, "gpu_utilization", "cuda:0")
        assert self.of(result(times(1.0), busy, device="cuda:0")) is None
        assert self.of(result(times(1.0), device="cuda:0")) is None

    def test_of_a_request_it_is_the_longest_stage(self) -> None:
        """By the server's own account, unless the client was the limit."""
        assert self.of(served(queue=0.6)) == (Limit.QUEUE, 0.6)
        assert self.of(served(network=0.7)) == (Limit.NETWORK, 0.7)
        assert self.of(served()) == (Limit.COMPUTE, 0.2)
        assert self.of(served(doubts={"client-limited": "x"})) == (Limit.CLIENT, None)
        assert self.of(result(times(0.01), load=Load())) is None


def test_a_part_of_nothing_is_nothing() -> None:
    """Nor of what is not known."""
    assert part_of(1.0, None) == part_of(None, 1.0) == part_of(1.0, 0.0) == 0.0
    assert part_of(1.0, 4.0) == 0.25


def test_the_batch_is_that_of_the_knob_or_of_the_analysis() -> None:
    """One where nobody tells."""
    assert Case(result=result(config={"batch_size": 8})).batch_size == 8
    assert Case(result=result(outline=outline(batch=3))).batch_size == 3
    assert Case(result=result()).batch_size == 1


def test_a_value_that_a_knob_does_not_take_is_no_trial() -> None:
    """Nor what is set already, nor what is no knob."""
    knobs = {knob.name: knob for knob in TORCH}
    case = Case(result=result(), knobs=knobs)
    assert case.trial(threads=65) is None
    assert case.trial(compile="off") is None
    assert case.trial(spinning=False) is None
    assert case.trial(threads=2) is not None
