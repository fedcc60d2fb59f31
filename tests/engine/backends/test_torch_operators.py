"""What torch ran within calls, and which of it was needless; real torch, and events of a device by hand."""

from __future__ import annotations

import gzip
import json
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

import torch
from tests.zoo.frugal import FRUGAL
from tests.zoo.needless import PLANTED
from torch import Tensor, nn
from torch.nn.modules import module as modules

from modeldyno.base.job.knob import configure
from modeldyno.base.result.trace_data import EventKind
from modeldyno.engine.backends.torch import backend, dataflow, module_ranges
from modeldyno.engine.backends.torch import operators as torch_operators
from modeldyno.engine.interfaces.session import HasOperators, LocalSession
from modeldyno.engine.trace.redundant_ops import find_redundant_ops
from modeldyno.models.loaders import live_object as objects

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modeldyno.engine.trace.op_events import WatchedCalls

CPU = torch.device("cpu")


class Block(nn.Module):
    """A linear layer within a range of its own, and an addition that no module does."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        with torch.profiler.record_function("mine"):
            y = self.fc(x)
        return x + y  # type: ignore[no-any-return]


class Net(nn.Module):
    """A block called twice, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.head(self.block(self.block(x)))
        return y


def watched(module: Any, *args: Any, calls: int = 1, trace: Path | None = None) -> WatchedCalls:
    """Watch calls of a module."""
    with torch.inference_mode():
        return torch_operators.watch_operators(partial(module, *args), module, CPU, calls, trace)


def names(calls: WatchedCalls, scope: str, kind: EventKind = EventKind.OPERATOR) -> list[str]:
    """Name what happened in one module."""
    return [o.name for o in calls.occurrences if o.scope == scope and o.kind is kind]


class TestOperators:
    def test_each_is_of_the_nearest_module(self) -> None:
        """A module has what its own code runs, and none of what its parts run."""
        calls = watched(Net().eval(), torch.ones(3, 4))

        assert names(calls, "block.fc").count("aten::linear") == 2
        assert names(calls, "block").count("aten::add") == 2
        assert "aten::add" not in names(calls, "block.fc")
        assert "aten::relu" in names(calls, "head.0")
        assert "aten::addmm" in names(calls, "head.1")
        assert names(calls, "") == names(calls, "head") == []
        assert not calls.hidden

    def test_calls_add_up(self) -> None:
        """Three calls run three times as many operators as one, and each has its time."""
        net = Net().eval()
        one, three = watched(net, torch.ones(3, 4)), watched(net, torch.ones(3, 4), calls=3)

        assert len(three.times) == 3
        assert len(three.occurrences) == 3 * len(one.occurrences)

    def test_times_fit_into_each_other(self) -> None:
        """Own time is a part of the whole of an operator, and all own times are part of the calls."""
        calls = watched(Net().eval(), torch.ones(3, 4))

        assert all(0 <= o.self_time <= o.total_time + 1e-9 for o in calls.occurrences)
        assert 0 < sum(o.self_time for o in calls.occurrences) <= sum(calls.times)
        linear = next(o for o in calls.occurrences if o.name == "aten::linear")
        assert linear.total_time > linear.self_time
        assert linear.shapes == "3x4, 4x4, 4"

    def test_memory_is_of_the_operator_that_asked_for_it(self) -> None:
        """What aten::empty takes within another operator belongs to that one, and is told once."""
        calls = watched(Net().eval(), torch.ones(3, 4))

        assert next(o for o in calls.occurrences if o.name == "aten::add").allocated == 3 * 4 * 4
        assert not [o for o in calls.occurrences if o.name == "aten::empty" and o.allocated]

    def test_ranges_of_the_model_are_told(self) -> None:
        """A range that the model's own code names stands apart from operators, in its module."""
        calls = watched(Net().eval(), torch.ones(3, 4))

        assert names(calls, "block", EventKind.RANGE) == ["mine", "mine"]
        assert {o.name for o in calls.occurrences if o.kind is EventKind.RANGE} == {"mine"}

    def test_nvtx_ranges_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ranges pushed to NVTX show, too, and still reach NVTX; a pop too many does no harm."""
        nvtx: Any = torch.cuda.nvtx
        ranges: list[str] = []
        monkeypatch.setattr(torch.cuda.nvtx, "range_push", ranges.append)
        monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: ranges.append("pop"))
        push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop

        class Marked(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                nvtx.range_push("step")
                y = x + 1
                nvtx.range_pop()
                nvtx.range_pop()
                return y

        calls = watched(Marked(), torch.ones(2))

        assert names(calls, "", EventKind.RANGE) == ["step"]
        assert ranges == ["step", "pop", "pop"]
        assert (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) == (push, pop)

    @pytest.mark.parametrize("way", ["operators", "flow"])
    def test_the_model_is_left_as_it_was(self, way: str) -> None:
        """No hook is left behind, also where the model fails, and none ever shows on a module."""

        class Failing(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.part = nn.Identity()

            def forward(self, x: Tensor) -> Tensor:
                self.part(x)
                assert not self._forward_hooks
                assert not self.part._forward_pre_hooks
                raise ZeroDivisionError

        module = Failing()
        before = (len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks))
        run = partial(module, torch.ones(1))
        ways: dict[str, Callable[[], object]] = {
            "flow": lambda: dataflow.record_flow(run, module, CPU),
            "operators": lambda: torch_operators.watch_operators(run, module, CPU, 1, None),
        }
        with pytest.raises(ZeroDivisionError):
            ways[way]()

        assert (len(modules._global_forward_hooks), len(modules._global_forward_pre_hooks)) == before
        assert torch.ones(1).add(1).item() == 2

    def test_what_is_compiled_is_told_as_the_whole(self) -> None:
        """The modules of compiled code are not called one by one; its data is not followed."""
        net = Net().eval()
        net.head._compiled_call_impl = net.head._call_impl  # as Module.compile() leaves it
        calls = watched(net, torch.ones(3, 4))

        assert calls.hidden
        assert {o.scope for o in calls.occurrences} == {""}
        assert dataflow.record_flow(partial(net, torch.ones(3, 4)), net, CPU) is None
        assert module_ranges.eager_module(lambda x: x) is None

    def test_scripted_parts_are_seen(self) -> None:
        """A ScriptModule runs no hooks within itself: its operators are its own, by their bare names."""
        with pytest.warns(DeprecationWarning, match="torch.jit"):
            part = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval())
        net = nn.Sequential(nn.Identity(), part)

        assert "aten::linear" in names(watched(net, torch.ones(3, 4)), "1")
        flow = dataflow.record_flow(partial(net, torch.ones(3, 4)), net, CPU)
        assert flow is not None
        assert {step.scope for step in flow.steps if step.name.startswith("aten::")} == {"1"}

    def test_a_session_offers_both(self) -> None:
        """A session of the backend tells operators and follows data."""
        model = objects.load(objects.offer(Net()), seed=0, trust=False)
        feed = {"x": torch.ones(3, 4).numpy()}
        with backend.open(model, configure(backend.knobs, {"device": "cpu"})) as session:
            assert isinstance(session, HasOperators)
            assert isinstance(session, LocalSession)
            calls, flow = session.operators(feed, 2, None), session.flow(feed)

        assert "aten::addmm" in names(calls, "block.fc")
        assert flow is not None
        assert find_redundant_ops(flow) == ()


class TestTrace:
    @pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
    def test_it_is_one_that_perfetto_reads(self, tmp_path: Path, name: str) -> None:
        """A trace is JSON with events of all calls and the modules around them, gzip by its name."""
        watched(Net().eval(), torch.ones(3, 4), calls=2, trace=tmp_path / name)
        data = (tmp_path / name).read_bytes()
        events = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)["traceEvents"]

        assert sum(event.get("name") == "aten::relu" for event in events) == 2
        assert sum(event.get("name") == "module: block" for event in events) == 4
        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_a_place_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        """Nothing is written, and the caller is told."""
        with pytest.raises(OSError, match="No such file"):
            watched(Net().eval(), torch.ones(3, 4), trace=tmp_path / "none" / "trace.json")


# --- a device, by hand -----------------------------------------------------------------------------


def event(name: str, begin: float, end: float, parent: Any = None, **more: Any) -> Any:
    """An event as torch.profiler gives it, in microseconds."""
    made = SimpleNamespace(
        name=name, time_range=SimpleNamespace(start=begin, end=end), cpu_parent=parent, cpu_children=[],
        device_type="DeviceType.CPU", is_user_annotation=False, activity_type="cpu_op", kernels=[],
        input_shapes=[], cpu_time_total=end - begin, self_cpu_time_total=end - begin,
        self_cpu_memory_usage=0, self_device_memory_usage=0, id=0,
    )  # fmt: skip
    vars(made).update(more)
    if parent is not None:
        parent.cpu_children.append(made)
        parent.self_cpu_time_total -= end - begin
    return made


def kernel(name: str, duration: float) -> Any:
    """A kernel as torch.profiler hangs it on the operator that launched it."""
    return SimpleNamespace(name=name, device=0, duration=duration)


class TestDevice:
    @pytest.fixture
    def events(self) -> list[Any]:
        """A call of one module with two operators, a copy and a wait, as Kineto tells of a GPU."""
        call = event("module: ", 0, 100, is_user_annotation=True)
        layer = event("module: fc", 10, 60, call, is_user_annotation=True)
        layer.kernels = [kernel("module: fc", 45)]  # the device repeats the range
        linear = event("aten::linear", 10, 50, layer)
        addmm = event("aten::addmm", 15, 45, linear, kernels=[kernel("gemm", 30)])
        launch = event("cudaLaunchKernel", 20, 30, addmm, activity_type="cuda_runtime")
        copy = event("aten::copy_", 60, 90, call, kernels=[kernel("Memcpy DtoH (Device -> Pageable)", 5)])
        wait = event("cudaStreamSynchronize", 70, 85, copy, activity_type="cuda_runtime")
        gpu = {"device_type": "DeviceType.CUDA"}
        gemm = event("gemm", 200, 230, **gpu)
        copied = event("Memcpy DtoH (Device -> Pageable)", 230, 235, **gpu)
        repeated = event("module: fc", 200, 245, **gpu)
        ours = event("cudaDeviceSynchronize", 110, 150, activity_type="cuda_runtime")
        return [call, layer, linear, addmm, launch, copy, wait, gemm, copied, repeated, ours]

    def test_device_time_is_told_once(self, events: list[Any]) -> None:
        """A kernel belongs to the operator that launched it; ranges that the device repeats are none."""
        occurrences = torch_operators.occurrences(events)
        by_kind = {
            kind: sum(o.device_time for o in occurrences if o.kind is kind) * 1e6 for kind in EventKind
        }

        assert by_kind[EventKind.OPERATOR] == pytest.approx(35)
        assert by_kind[EventKind.KERNEL] == pytest.approx(30)
        assert by_kind[EventKind.TRANSFER] == pytest.approx(5)
        assert by_kind[EventKind.RANGE] == 0
        assert [(o.name, o.scope) for o in occurrences if o.kind is EventKind.KERNEL] == [("gemm", "fc")]
        assert next(o for o in occurrences if o.name == "aten::addmm").device_time == pytest.approx(30e-6)
        assert next(o for o in occurrences if o.name == "aten::linear").device_time == 0

    def test_calls_of_the_devices_library_are_part_of_the_operator(self, events: list[Any]) -> None:
        """Launching is own time of who launches; a wait stands for itself; our own wait is left out."""
        by_name = {o.name: o for o in torch_operators.occurrences(events)}

        assert "cudaLaunchKernel" not in by_name
        assert by_name["aten::addmm"].self_time == pytest.approx(30e-6)
        assert by_name["aten::copy_"].self_time == pytest.approx(15e-6)
        wait = by_name["cudaStreamSynchronize"]
        assert (wait.kind, wait.scope) == (EventKind.SYNCHRONISATION, "")
        assert wait.self_time == pytest.approx(15e-6)
        assert "cudaDeviceSynchronize" not in by_name

    def test_the_profilers_own_buffers_are_no_operators(self, events: list[Any]) -> None:
        """A kernel that torch hangs on such a request is the operator's that launched it."""
        addmm, launch = events[3], events[4]
        request = event("Activity Buffer Request", 21, 29, launch, kernels=addmm.kernels)
        addmm.kernels = []
        recorded = {o.name: o for o in torch_operators.occurrences([*events, request])}

        assert request.name not in recorded
        assert recorded["aten::addmm"].device_time == pytest.approx(30e-6)
        assert recorded["aten::addmm"].self_time == pytest.approx(22e-6)
        assert recorded["gemm"].scope == "fc"

    def test_each_call_is_told_apart(self, events: list[Any]) -> None:
        """Whatever begins after the second call has begun is of that one, kernels with their launch."""
        gpu = {"device_type": "DeviceType.CUDA"}
        call = event("module: ", 500, 600, is_user_annotation=True)
        event("aten::linear", 510, 550, call)
        launch = event("cuLaunchKernel", 552, 554, call, activity_type="cuda_driver", id=9)
        more = [call, *call.cpu_children, launch, event("triton_add", 700, 712, id=9, **gpu)]
        occurrences = torch_operators.occurrences([*events, *more])

        assert [o.name for o in occurrences if o.call == 1] == ["aten::linear", "triton_add"]
        assert {o.name for o in occurrences if o.call == 0} >= {"aten::linear", "gemm"}

    def test_kernels_that_no_operator_launched_are_of_the_module(self, events: list[Any]) -> None:
        """Triton's kernels come with a call of the device's library only; what is not ours is left out."""
        gpu = {"device_type": "DeviceType.CUDA"}
        layer = events[1]
        launch = event("cuLaunchKernel", 52, 54, layer, activity_type="cuda_driver", id=7)
        triton = event("triton_add", 300, 312, id=7, **gpu)
        foreign = event("gemm", 400, 430, id=8, **gpu)
        occurrences = torch_operators.occurrences([*events, launch, triton, foreign])

        kernels = [o for o in occurrences if o.kind is EventKind.KERNEL]
        assert [(o.name, o.scope) for o in kernels] == [("gemm", "fc"), ("triton_add", "fc")]
        assert [o.device_time for o in kernels] == pytest.approx([30e-6, 12e-6])

    def test_older_profilers_that_do_not_name_activities_are_understood(self, events: list[Any]) -> None:
        """What is a call of the device's library is then told by its name."""
        for each in events:
            del each.activity_type
        operators = {o.name for o in torch_operators.occurrences(events)}

        assert "cudaLaunchKernel" not in operators
        assert "cudaStreamSynchronize" in operators

    def test_compiled_kernels_are_operators(self) -> None:
        """The ranges that torch.compile puts around its kernels are no ranges of the model."""
        call = event("module: ", 0, 100, is_user_annotation=True)
        graph = event("## Call CompiledFxGraph f ##", 10, 60, call, is_user_annotation=True)
        (operator,) = torch_operators.occurrences([call, graph])
        assert operator.kind is EventKind.OPERATOR

    def test_waits_and_events_of_a_device_tell_the_time_of_steps(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a device a copy takes the time between two of its events, a wait that of the host."""

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                pass

            def elapsed_time(self, _other: Any) -> float:
                return 2.0

        waited: list[Any] = []
        monkeypatch.setattr(torch.xpu, "Event", Event)
        monkeypatch.setattr(torch.xpu, "synchronize", waited.append)
        place = torch.device("xpu")

        class Copying(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x.clone() * x.sum().item()

        module = Copying()
        flow = dataflow.record_flow(partial(module, torch.ones(2, 3)), module, place)
        assert flow is not None
        steps = {step.name: step for step in flow.steps}

        assert waited == [place, place]
        assert flow.device == "xpu"
        assert steps["torch.Tensor.clone"].time == pytest.approx(2e-3)
        assert 0 < steps["torch.Tensor.item"].time != pytest.approx(2e-3)

    def test_shapes_are_short(self) -> None:
        """Tensors, lists of tensors, and arguments that are none."""
        assert torch_operators.format_shapes([[8, 128], [], [[2, 3], [4]], [1]]) == "8x128, [2x3, 4], 1"


# --- what is needless ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_found(name: str, mode: Any) -> None:
    """The planted waste, and nothing else, is found in the module whose code it is in."""
    planted = PLANTED[name]
    torch.manual_seed(0)
    module, args = planted.build()
    module.eval()
    with mode():
        flow = dataflow.record_flow(partial(module, *args), module, CPU)
    assert flow is not None
    (redundant,) = find_redundant_ops(flow)

    assert (redundant.kind, redundant.scope) == (planted.kind, planted.scope)
    assert redundant.time >= 0  # on the host, what a device would wait for may be no operator at all
    assert redundant.bytes > 0
    assert redundant.reason.endswith(".")


@pytest.mark.parametrize("name", FRUGAL)
def test_what_is_needed_is_not_flagged(name: str) -> None:
    """Copies that the result needs are left alone."""
    if name in {"BERT", "GPT-2", "ViT", "Llama", "Llama in bfloat16", "T5", "wav2vec2"}:
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    module, args, kwargs = FRUGAL[name]()
    module.eval()
    with torch.inference_mode():
        flow = dataflow.record_flow(partial(module, *args, **kwargs), module, CPU)

    assert flow is not None
    assert find_redundant_ops(flow) == ()


def test_a_needless_copy_names_the_line_of_the_user() -> None:
    """The line is that of the code that asks for the copy, though a layer of torch made what is copied."""

    class Copying(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = super().forward(x).clone() + 1  # type: ignore[no-untyped-call]
            return y

    module = Copying(nn.Linear(2, 2))
    flow = dataflow.record_flow(partial(module, torch.ones(3, 2)), module, CPU)
    assert flow is not None
    (waste,) = find_redundant_ops(flow)
    (line,) = [step.line for step in flow.steps if step.name == "torch.nn.functional.linear"]
    assert waste.line == line == f"test_torch_operators.py:{Copying.forward.__code__.co_firstlineno + 1}"


def test_memory_without_storage_is_passed_over() -> None:
    """A sparse tensor has no memory of its own to name; the rest of the call is followed."""

    class Sparse(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = torch.sparse.mm(torch.eye(3).to_sparse(), x).clone() + 1
            return y

    module = Sparse()
    flow = dataflow.record_flow(partial(module, torch.ones(3, 2)), module, CPU)
    assert flow is not None
    assert [waste.name for waste in find_redundant_ops(flow)] == ["Tensor.clone"]


def named(run: Callable[[Tensor], Tensor]) -> tuple[str, bool]:
    """Give the device that a call names, and whether the code spells it out."""

    class Moving(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return run(x)

    module = Moving()
    flow = dataflow.record_flow(partial(module, torch.ones(3, 2)), module, CPU)
    assert flow is not None
    (step,) = [step for step in flow.steps if step.name.endswith((".to", ".cpu", ".type_as"))]
    return step.place, step.literal


def test_a_device_is_spelt_out_or_taken_from_elsewhere() -> None:
    """Only what the code itself calls the host is meant to be it."""
    other = torch.ones(1)
    assert named(lambda x: x.cpu()) == ("cpu", True)
    assert named(lambda x: x.to("cpu")) == ("cpu", True)
    assert named(lambda x: x.to(torch.device("cpu"))) == ("cpu", True)
    assert named(lambda x: x.to(device="cpu", dtype=torch.float64)) == ("cpu", True)
    assert named(lambda x: x.to(x.device)) == ("cpu", False)
    assert named(lambda x: x.to(other)) == ("cpu", False)
    assert named(lambda x: x.type_as(other)) == ("cpu", False)
    assert named(lambda x: x.to(torch.float16)) == ("", False)


def test_what_is_transformed_is_passed_over() -> None:
    """A tensor within torch.vmap has no memory of its own; what comes out of it has."""

    class Mapping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = torch.vmap(lambda row: row.clone() * 2)(x)
            return y.clone() + 1

    module = Mapping()
    flow = dataflow.record_flow(partial(module, torch.ones(3, 2)), module, CPU)
    assert flow is not None
    assert [(waste.name, waste.calls) for waste in find_redundant_ops(flow)] == [("Tensor.clone", 1.0)]


def test_modules_of_others_are_not_the_models() -> None:
    """A module that is no part of the model runs as code of the one that calls it."""
    foreign = nn.Linear(2, 2)

    class Borrowing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = foreign(x)
            return y

    module = nn.Sequential(Borrowing())
    assert set(names(watched(module, torch.ones(3, 2)), "0")) >= {"aten::linear", "aten::addmm"}
