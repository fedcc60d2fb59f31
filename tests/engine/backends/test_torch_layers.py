"""Hooks around the modules of a call: what they see, and that they are gone afterwards."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules

from modeldyno.base.job.knob import configure
from modeldyno.base.result.trace_data import Span
from modeldyno.engine.backends.torch import backend, hook_overhead
from modeldyno.engine.backends.torch import hook_overhead as torch_hooks
from modeldyno.engine.backends.torch import layers as torch_layers
from modeldyno.engine.interfaces.session import HasLayers
from modeldyno.engine.trace.layer_times import HookOverhead, attribute_module_times
from modeldyno.models.loaders import live_object as objects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.base.metrics.doubt import Doubt

CPU = torch.device("cpu")


def everything(_path: str, _kind: str) -> bool:
    return True


def watched(
    module: Any, *inputs: Any, named: Callable[[str, str], bool] = everything, calls: int = 1
) -> tuple[list[Span], tuple[Doubt, ...]]:
    """Give the spans of the last of some calls, and the doubts."""
    with (
        torch.inference_mode(),
        torch_layers.watch_modules(module, lambda: module(*inputs), CPU, named) as layers,
    ):
        for _ in range(calls):
            layers.call()
        spans = layers.spans(0)
    assert len(spans) == calls
    return list(spans[-1]), layers.doubts


def shape_of(spans: Sequence[Span]) -> list[tuple[str, str | None]]:
    """Give each path with that of the span around it."""
    return [(span.path, None if span.parent is None else spans[span.parent].path) for span in spans]


def hooks_of(module: nn.Module) -> list[int]:
    return [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules()]


class Block(nn.Module):
    """Two layers, one of them within another module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.outer = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.outer(self.inner(x))
        return y


def test_each_call_of_a_module_is_a_span_within_that_of_its_caller() -> None:
    """Paths, classes, shapes and the order of the calls, each within its parent's time."""
    spans, doubts = watched(Block(), torch.zeros(3, 4), calls=2)

    assert shape_of(spans) == [
        ("", None), ("inner", ""), ("inner.0", "inner"), ("inner.1", "inner"), ("outer", ""),
    ]  # fmt: skip
    assert [span.kind for span in spans] == ["Block", "Sequential", "Linear", "ReLU", "Linear"]
    assert spans[2].output == "3x8 float32"
    assert spans[2].output_bytes == 96
    assert spans[4].output == "3x2 float32"
    assert doubts == ()
    for span in spans[1:]:
        around = spans[span.parent or 0]
        assert around.begin <= span.begin <= span.end <= around.end


def test_only_what_is_named_is_watched() -> None:
    """Modules are chosen by path or class; the whole is there in any case."""
    spans, _ = watched(Block(), torch.zeros(3, 4), named=lambda _path, kind: kind == "Linear")

    assert shape_of(spans) == [("", None), ("inner.0", ""), ("outer", "")]


def test_a_name_that_fits_nothing_is_told() -> None:
    """Nothing is watched, and a doubt says so."""
    spans, doubts = watched(Block(), torch.zeros(3, 4), named=lambda _path, _kind: False)

    assert shape_of(spans) == [("", None)]
    assert "`layers`" in doubts[0].seen


class Twice(nn.Module):
    """One layer under the roof of two others, under two names."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(4, 4)
        self.left = nn.ModuleDict({"map": shared})
        self.right = nn.Sequential(shared, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.right(self.left["map"](x))
        return y


def test_a_shared_module_has_the_path_of_where_it_is_called() -> None:
    """Within `right` it is a part of that; elsewhere it has its first name."""
    spans, _ = watched(Twice(), torch.zeros(1, 4))

    assert shape_of(spans) == [
        ("", None), ("left.map", ""), ("right", ""), ("right.0", "right"), ("right.1", "right"),
    ]  # fmt: skip


class Countdown(nn.Module):
    """Calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, x: Tensor, left: int = 2) -> Tensor:
        """Compute."""
        y: Tensor = self.step(x)
        return y if not left else self(y, left - 1)


def test_a_module_may_call_itself() -> None:
    """Its inner calls lie in its outer one, and its time counts once."""
    outer = nn.Sequential(Countdown())
    spans, _ = watched(outer, torch.zeros(1, 4))

    assert [path for path, _ in shape_of(spans)] == ["", "0", "0.step", "0", "0.step", "0", "0.step"]
    parts = {p.layer.path: p for p in attribute_module_times([spans], [1.0], HookOverhead()).parts}
    assert parts["0"].times[0] == pytest.approx(spans[1].end - spans[1].begin)
    assert parts["0.step"].layer.calls == 3


@dataclass
class Scores:
    """An output of one's own."""

    values: Tensor
    best: tuple[Tensor, Tensor]


class Gives(nn.Module):
    """Gives what it was made with."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, _x: Tensor) -> Any:
        """Give it."""
        return self.output


@pytest.mark.parametrize(
    ("output", "text", "size"),
    [
        (torch.zeros(2, 3), "2x3 float32", 24),
        ({"logits": torch.zeros(2, dtype=torch.int64), "cache": None}, "2 int64", 16),
        ((torch.zeros(1), [torch.zeros(2), "text"]), "1 float32 and 1 more", 12),
        (
            Scores(values=torch.zeros(4), best=(torch.tensor(1.0), torch.tensor(2.0))),
            "4 float32 and 2 more",
            24,
        ),
        (torch.tensor(True), "scalar bool", 1),
        (None, "", 0),
    ],
)
def test_outputs_of_any_shape_are_described(output: Any, text: str, size: int) -> None:
    """The first tensor by its shape and dtype, all of them by their bytes."""
    spans, _ = watched(nn.Sequential(Gives(output)), torch.zeros(1))

    assert (spans[1].output, spans[1].output_bytes) == (text, size)


class Catches(nn.Module):
    """Goes on where a part of it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.bad = nn.Linear(3, 3)
        self.good = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        with suppress(RuntimeError):
            self.bad(x)
        y: Tensor = self.good(x)
        return y


def test_a_module_that_raises_ends_there() -> None:
    """What comes after it is no part of it."""
    spans, _ = watched(Catches(), torch.zeros(1, 4))

    assert shape_of(spans) == [("", None), ("bad", ""), ("good", "")]
    assert spans[1].end <= spans[2].begin


def test_a_span_without_an_end_ends_with_what_is_around_it() -> None:
    """An error that went past the hooks leaves the spans around it whole."""
    parts = [SimpleNamespace(paths=(path,), kind="") for path in ("a", "a.b")]
    whole = Span(path="", kind="", begin=0.0, end=9.0)

    spans = torch_layers.nest_spans([(0, 1.0), (1, 2.0), (~0, 3.0), (~1, 4.0), (1, 5.0)], parts, whole)

    assert [(span.path, span.begin, span.end) for span in spans] == [
        ("", 0.0, 9.0), ("a", 1.0, 3.0), ("a.b", 2.0, 3.0), ("a.b", 5.0, 9.0),
    ]  # fmt: skip


def test_hooks_are_gone_afterwards_and_those_of_others_stay() -> None:
    """Also when a call fails: the module is as it was."""
    module = Block()
    fired: list[str] = []
    module.outer.register_forward_hook(lambda *_: fired.append("theirs"))
    before = hooks_of(module)

    watched(module, torch.zeros(3, 4))
    assert hooks_of(module) == before
    assert set(fired) == {"theirs"}
    with pytest.raises(RuntimeError, match="shapes"):
        watched(module, torch.zeros(3, 5))
    assert hooks_of(module) == before
    with pytest.raises(ZeroDivisionError), torch_layers.watch_modules(module, int, CPU, everything):
        raise ZeroDivisionError
    assert hooks_of(module) == before


def test_calls_in_between_are_not_watched() -> None:
    """A plain call made in turn with watched ones runs no hook of ours, of no module and common to all."""
    module, run = Block(), []

    def looked() -> None:
        run.append((hooks_of(module), len(modules._global_forward_hooks)))
        module(torch.zeros(3, 4))

    before = hooks_of(module), len(modules._global_forward_hooks)
    for named in (everything, lambda path, _kind: path == "outer"):
        with torch_layers.watch_modules(module, looked, CPU, named) as layers:
            layers.call()
            last, run[:] = run[-1], []
            looked()
            assert run.pop() == before
        assert last != before


def test_hooks_that_all_modules_have_show_on_none() -> None:
    """Where all modules are watched they look as they did: torch has faster code for those without hooks."""
    module = nn.Sequential(nn.Linear(4, 4))
    counts: list[int] = []
    module.append(Seeing(module, counts))
    with torch_layers.watch_modules(module, lambda: module(torch.zeros(1, 4)), CPU, everything) as layers:
        layers.call()
        (spans,) = layers.spans(0)

    assert [span.path for span in spans] == ["", "0", "1"]
    assert set(counts[1:]) == {0}  # in the first call its outputs are looked at, which nobody times


class Seeing(nn.Module):
    """Notes the hooks of another module."""

    def __init__(self, other: nn.Module, counts: list[int]) -> None:
        super().__init__()
        object.__setattr__(self, "other", other)
        self.counts = counts

    def forward(self, x: Tensor) -> Tensor:
        """Look."""
        self.counts.append(sum(hooks_of(self.other)))  # type: ignore[arg-type]
        return x


def test_the_cost_is_scaled_to_the_model_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks cost what they cost here, from once to twice what they cost where nothing else is done."""
    module = nn.Sequential(nn.ReLU(), nn.ReLU())
    run = partial(module, torch.zeros(4))
    parts = torch_layers._parts(module, everything)
    overhead = HookOverhead(inside=1.0, outside=2.0)
    for extra, expected in ((13.5, 1.5), (90.0, 2.0), (-5.0, 1.0)):  # of three modules, the whole among them
        times = cycle([10.0 + extra, 10.0])
        monkeypatch.setattr(hook_overhead, "_seconds", lambda run, times=times: (run(), next(times))[1])
        scaled = hook_overhead.scale_hook_cost(overhead, run, parts)
        assert scaled == HookOverhead(inside=expected, outside=2 * expected)
    monkeypatch.setattr(hook_overhead, "_TIME_LIMIT", 0.0)
    assert hook_overhead.scale_hook_cost(overhead, run, parts) == overhead


def test_others_hooks_are_part_of_the_module() -> None:
    """They run between ours, before and after, whenever they were put there."""
    module, order = nn.Sequential(nn.ReLU()), []
    module[0].register_forward_pre_hook(lambda *_: order.append("their enter"))
    module[0].register_forward_hook(lambda *_: order.append("their leave"))

    class Clock:
        def stamp(self) -> int:
            order.append("ours")
            return len(order)

    marks: list[tuple[int, Any]] = []
    with ExitStack() as stack:
        torch_hooks.add_hooks(torch_layers._parts(module, everything), Clock().stamp, marks, stack)
        module(torch.zeros(1))

    assert order == ["ours", "their enter", "their leave", "ours"]


def test_a_compiled_module_is_seen_as_a_whole() -> None:
    """A doubt says that its parts cannot be told apart, and nothing in it is hooked."""
    compiled = torch.compile(Block(), backend="eager")
    spans, doubts = watched(compiled, torch.zeros(3, 4))

    assert shape_of(spans) == [("", None)]
    assert spans[0].kind == "Block"
    assert [doubt.code for doubt in doubts] == ["unseen-layers"]
    assert "compiled" in doubts[0].seen


def test_a_compiled_part_is_seen_as_one() -> None:
    """The eager modules around it are watched one by one."""
    compiled: Any = torch.compile(Block(), backend="eager")
    module = nn.Sequential(nn.Linear(4, 4), compiled)
    spans, doubts = watched(module, torch.zeros(3, 4))

    assert shape_of(spans) == [("", None), ("0", ""), ("1", "")]
    assert doubts[0].seen.startswith("1 is compiled")


def test_a_module_that_was_compiled_in_place_is_not_watched() -> None:
    """No hook is put into what the compiler traces; its time is that of what is around it."""
    module = nn.Sequential(nn.Linear(4, 4), Block())
    module[1].compile(backend="eager")
    spans, doubts = watched(module, torch.zeros(3, 4))

    assert shape_of(spans) == [("", None), ("0", "")]
    assert doubts[0].seen.startswith("1 is compiled")


def test_a_scripted_module_is_seen_as_a_whole() -> None:
    """Its parts run in an interpreter of their own."""
    with pytest.warns(DeprecationWarning, match="jit"):
        scripted = torch.jit.trace(Block(), torch.zeros(3, 4))  # type: ignore[no-untyped-call]
    spans, doubts = watched(scripted, torch.zeros(3, 4))

    assert shape_of(spans) == [("", None)]
    assert spans[0].kind == "Block"
    assert doubts


def test_modules_whose_code_is_called_past_them_are_told() -> None:
    """A model that only calls the forward of its parts shows none of them."""

    class Past(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.part.forward(x)

    spans, doubts = watched(Past(), torch.zeros(1, 4))
    assert shape_of(spans) == [("", None)]
    assert "none of 1 modules is called" in doubts[0].seen
    assert "no submodules" in watched(nn.ReLU(), torch.zeros(1))[1][0].seen


def test_the_cost_of_watching_is_measured() -> None:
    """A pair of hooks costs something, and far less than a millisecond."""
    with torch.inference_mode(), torch_layers.watch_modules(Block(), int, CPU, everything) as layers:
        assert layers.overhead.whole == 0  # nothing was called, so nothing is to be taken off
    module = Block()
    inputs = torch.zeros(1, 4)
    with torch_layers.watch_modules(module, lambda: module(inputs), CPU, everything) as layers:
        assert 0 < layers.overhead.whole < 1e-3


def test_a_session_of_the_backend_can_be_watched() -> None:
    """It watches a call of its module with the payload, in its own mode."""
    model = objects.load(objects.offer(Block()), seed=0, trust=False)
    with backend.open(model, configure(backend.knobs, {"device": "cpu"})) as session:
        assert isinstance(session, HasLayers)
        with session.layers({"x": np.zeros((3, 4), "float32")}, everything) as layers:
            output = layers.call()
            (spans,) = layers.spans(0)

    assert output.shape == (3, 2)
    assert [span.path for span in spans] == ["", "inner", "inner.0", "inner.1", "outer"]


class Device:
    """Stands in for a device with a queue: an event is reached later than it is recorded."""

    type = "fake"

    def __init__(self) -> None:
        self.time = 0.0
        self.synchronised = 0

    def event(self) -> Any:
        """Give the class of its events."""
        device = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                self.at = -1.0

            def record(self) -> None:
                device.time += 1.0
                self.at = device.time

            def elapsed_time(self, other: Event) -> float:
                return other.at - self.at  # milliseconds

            def synchronize(self) -> None:
                device.synchronised += 1

        return Event


def test_on_a_device_the_time_is_that_of_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mark is an event in the queue; the whole is what the caller waits for."""
    device = Device()
    monkeypatch.setattr(torch, "fake", SimpleNamespace(Event=device.event()), raising=False)
    monkeypatch.setattr(hook_overhead, "make_filler", lambda *_: None)
    module = Block()
    with torch_layers.watch_modules(module, lambda: module(torch.zeros(1, 4)), device, everything) as layers:  # type: ignore[arg-type]
        layers.call()
        (spans,) = layers.spans(0)

    # One event before the call, then one for each beginning and end, a millisecond apart.
    assert [round(span.begin, 6) for span in spans] == [0, 0.001, 0.002, 0.004, 0.007]
    assert [round(span.end, 6) for span in spans[1:]] == [0.006, 0.003, 0.005, 0.008]


def test_hooks_on_a_busy_device_cost_what_their_events_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is work in the queue, the host's time is no part of the cost."""
    device, filled = Device(), []
    monkeypatch.setattr(torch, "fake", SimpleNamespace(Event=device.event()), raising=False)
    clock = hook_overhead.device_clock(device)  # type: ignore[arg-type]

    overhead = hook_overhead.measure_hook_cost(clock, lambda: filled.append(1))

    assert filled
    assert device.synchronised == len(filled)
    assert overhead.inside == pytest.approx(0.001)
    assert overhead.outside == pytest.approx(0.001)


def test_the_host_needs_no_filling() -> None:
    """On the CPU the host's time is what is measured."""
    assert hook_overhead.make_filler(int, [], CPU) is None
