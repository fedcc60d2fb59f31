"""On a real CUDA device: each figure beside what CUDA, torch or NVML say of the same thing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import modeldyno
from modeldyno.base.result.result import FailureKind
from modeldyno.engine.environment.idle import IdleRule, busy_reason
from modeldyno.engine.samplers import device as device_sampler
from modeldyno.regions.recorder import Profiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.result.result import Result

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]
GIB = 1 << 30
SIDE, ROWS = 4096, 2048


class Products(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Three products, each of which takes far longer than to start it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(SIDE, SIDE, bias=False) for _ in range(3))

    def forward(self, x: Any) -> Any:
        """Call the layers in turn."""
        for layer in self.layers:
            x = layer(x)
        return x


class Wasteful(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Goes to the host and back, and waits for a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(512, 512)

    def forward(self, x: Any) -> Any:
        """Call the layer."""
        x = self.layer(x).cpu().to(self.layer.weight.device)
        return x * 2 if x.sum().item() > 0 else x


@pytest.fixture(scope="module")
def products() -> Any:
    return Products().eval().cuda()


@pytest.fixture(scope="module")
def x() -> Any:
    return torch.randn(ROWS, SIDE)


@pytest.fixture(scope="module")
def profiled(products: Any, x: Any) -> Result:
    probes = "static,latency,throughput,layers,ops,memory"
    return modeldyno.profile(products, x, probes=probes, store=False, progress=False, device="cuda")


def number(result: Result, query: str) -> float:
    """Return a number of a result that must be there."""
    value = result[query]
    assert value is not None
    return value


def seconds_by_events(call: Any, repeat: int = 30) -> float:
    """Time calls by CUDA's own events; return the median in seconds."""
    times = []
    for _ in range(repeat):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(1e-3 * begin.elapsed_time(end))
    return float(sorted(times)[len(times) // 2])


@pytest.fixture
def stranger() -> Iterator[int]:
    """Let a process that is none of ours compute on the card."""
    code = (
        "import os\nif os.fork() == 0:\n os.setsid()\n import torch\n x = torch.randn(4096, 4096).cuda()\n"
        " print(os.getpid(), flush=True)\n while 1: x = x @ x; x = x / x.norm(); torch.cuda.synchronize()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
    try:
        yield pid
    finally:
        subprocess.run(["kill", "-9", str(pid)], check=True)


class TestDevices:
    def test_a_card_is_the_one_that_torch_knows(self) -> None:
        """Its name and the size of its memory."""
        (card,) = (state for state in modeldyno.devices() if state.cuda == "cuda:0")
        properties = torch.cuda.get_device_properties(0)

        assert card.name == properties.name
        assert card.memory_total == pytest.approx(properties.total_memory, rel=0.02)
        assert card.power is not None
        assert card.power_limit is not None
        assert 0 < card.power <= 1.1 * card.power_limit
        assert card.utilization is not None

    def test_what_this_process_takes_is_seen(self) -> None:
        """A GiB more, of the card and of the process."""
        torch.ones(1, device="cuda")
        torch.cuda.synchronize()  # the context and the kernel are loaded
        before = modeldyno.devices()[0]
        held = torch.ones(GIB // 4, device="cuda")
        after = modeldyno.devices()[0]
        del held
        torch.cuda.empty_cache()

        assert after.memory_used is not None
        assert before.memory_used is not None
        assert after.memory_used - before.memory_used == pytest.approx(GIB, rel=0.05)

    def test_a_card_that_only_we_use_is_idle(self) -> None:
        """Whatever we hold and compute."""
        assert busy_reason("cuda:0", IdleRule(samples=2, period=0.2)) is None

    def test_a_stranger_is_named(self, stranger: int) -> None:
        """Its name and its pid."""
        assert str(busy_reason("cuda:0", IdleRule(samples=1))).endswith(f"(pid {stranger}) uses cuda:0")

    def test_a_measurement_beside_a_stranger_is_doubted(self, stranger: int, products: Any, x: Any) -> None:
        """Its times are not the model's alone."""
        result = modeldyno.profile(
            products, x, probes="latency", store=False, progress=False, device="cuda",
            plan=modeldyno.Plan(min_time=3.0),
        )  # fmt: skip
        (doubt,) = (doubt for doubt in result.doubts if doubt.code == "shared-device")
        assert f"(pid {stranger})" in doubt.seen


class TestProfile:
    def test_the_latency_is_that_of_cudas_events(self, profiled: Result, products: Any, x: Any) -> None:
        """A call ends when the device has finished."""
        on_card = x.cuda()
        with torch.inference_mode():
            truth = seconds_by_events(lambda: products(on_card))

        assert number(profiled, "latency.p50") == pytest.approx(truth, rel=0.1)

    def test_operators_take_the_time_that_events_measure(
        self, profiled: Result, products: Any, x: Any
    ) -> None:
        """The products have nearly all of it."""
        assert profiled.activity is not None
        of_device = sum(op.device_time for op in profiled.activity.executed if op.name == "aten::mm")
        on_card = x.cuda()
        with torch.inference_mode():
            truth = seconds_by_events(lambda: products(on_card))

        assert of_device == pytest.approx(truth, rel=0.15)

    def test_each_layer_has_a_third(self, profiled: Result) -> None:
        """They are equal."""
        median = profiled.number("latency", "", "p50")
        assert median is not None
        for index in range(3):
            assert profiled.number("latency", f"layers.{index}", "p50") == pytest.approx(median / 3, rel=0.25)

    def test_the_peak_is_that_of_torchs_allocator(self, profiled: Result, products: Any, x: Any) -> None:
        """To the byte."""
        on_card = x.cuda()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with torch.inference_mode():
            products(on_card)

        assert number(profiled, "allocated_peak") == torch.cuda.max_memory_allocated() - before

    def test_no_call_is_faster_than_the_bound_of_this_card(self, profiled: Result) -> None:
        """The bound is from the card's own peaks, and so are the shares of them."""
        bound = profiled.number("roofline_latency", "cuda:0")
        assert bound is not None
        assert 0 < bound <= number(profiled, "latency.min")
        assert profiled.number("peak_flops", "here") is None

    def test_the_energy_of_a_call_is_its_power_times_its_time(self, profiled: Result) -> None:
        """Above the idle power, and within the limit of the card."""
        power = profiled.number("power", "cuda:0")
        limit = modeldyno.devices()[0].power_limit
        assert power is not None
        assert limit is not None
        assert 0 < power <= 1.1 * limit
        assert 0 < number(profiled, "energy@cuda:0") < limit * number(profiled, "latency.mean")

    def test_transfers_and_waits_are_found(self) -> None:
        """To the host, back, and for a number."""
        result = modeldyno.profile(
            Wasteful().eval(), torch.randn(64, 512), probes="static,latency,ops", store=False,
            progress=False, device="cuda",
        )  # fmt: skip
        assert result.activity is not None
        names = " ".join(waste.name for waste in result.activity.wastes or ())
        assert "Tensor.cpu" in names
        assert "Tensor.item" in names

    def test_half_the_bits_are_faster(self, profiled: Result, products: Any, x: Any) -> None:
        """In bf16 the card has tensor cores."""
        half = modeldyno.profile(
            products, x, probes="latency", store=False, progress=False, device="cuda", precision="bf16"
        )
        assert number(half, "latency.p50") < 0.5 * number(profiled, "latency.p50")

    def test_tf32_is_faster_and_is_put_back(self, profiled: Result, products: Any, x: Any) -> None:
        """Products of float32 on tensor cores."""
        before = torch.get_float32_matmul_precision()
        fast = modeldyno.profile(
            products, x, probes="latency", store=False, progress=False, device="cuda", tf32=True
        )
        assert number(fast, "latency.p50") < 0.5 * number(profiled, "latency.p50")
        assert torch.get_float32_matmul_precision() == before

    def test_memory_that_ends_is_a_failure_with_its_name(self) -> None:
        """No traceback, and the card is free again."""

        class Hungry(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return x.new_empty(1 << 42)

        result = modeldyno.profile(
            Hungry(), torch.ones(1, 1), probes="latency", store=False, progress=False, device="cuda"
        )
        assert result.failure is not None
        assert result.failure.kind is FailureKind.OOM


def test_a_region_has_the_memory_of_the_card() -> None:
    """The peak to the byte, by torch's own allocator."""
    mark = Profiled()
    mark.enable()
    with mark("step", ops=True, memory="process"):
        a = torch.ones(1024, 1024, device="cuda")
        b = a @ a
        del b
    result = mark.result()

    assert number(result, "allocated_peak@step [cuda:0]") == 2 * 4 * 1024**2
    assert result.activity is not None
    assert any(op.name == "aten::mm" and op.device_time > 0 for op in result.activity.executed)


def test_a_watched_block_has_the_power_of_the_card() -> None:
    with modeldyno.watch(period=0.1) as block:
        a = torch.randn(8192, 8192, device="cuda")
        for _ in range(200):
            a = a @ a
            a = a / a.norm()
        torch.cuda.synchronize()
    result = block.result
    assert number(result, "power@cuda:0") > 100
    assert number(result, "device_memory.max@cuda:0") > 2 * 8192 * 8192 * 4


def test_training_on_the_card_has_its_stages() -> None:
    """They add up to a step."""
    result = modeldyno.profile(
        Products(), torch.randn(256, SIDE), mode="train", probes="training", store=False, progress=False,
        device="cuda",
    )  # fmt: skip
    stages = [
        result.number("step_time", stage, "mean") for stage in ("copy", "forward", "backward", "optimizer")
    ]
    whole = result.number("step_time", "", "mean")
    assert None not in stages
    assert whole is not None
    assert sum(filter(None, stages)) == pytest.approx(whole, rel=0.1)


def test_the_driver_tells_what_each_process_uses(stranger: int) -> None:
    """The sampler's counters see a stranger, and how busy it keeps the card."""
    (counters, *_) = device_sampler.open_counters()
    subprocess.run(["sleep", "2"], check=True)
    read = counters.read(frozenset())["cuda:0"]
    assert read["foreign"] > 0.3
    assert read["foreign_pid"] == stranger
