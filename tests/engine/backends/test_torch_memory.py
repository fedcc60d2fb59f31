"""What torch's allocator did in a call, held against torch's own record and against sums by hand."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.support.torch_allocator import recorded_peak
from tests.zoo import models
from torch import Tensor, nn

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import KnobValue, configure
from modeldyno.base.result.static_data import MemoryItem
from modeldyno.engine.backends.torch import backend
from modeldyno.engine.backends.torch import memory as torch_memory
from modeldyno.engine.interfaces.session import HasMemory
from modeldyno.engine.trace import allocations
from modeldyno.engine.trace.memory_category import Category
from modeldyno.models.loaders import live_object as objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.engine.trace.allocations import AllocationRecord
    from modeldyno.models.interface import Model

WIDE = 256
ONE = WIDE * WIDE * 4
"""Bytes of a square of numbers."""


CPU: dict[str, KnobValue] = {"device": "cpu", "threads": 1}
"""Settings; threads that wait for each other take long on a busy machine."""


def lent(module: nn.Module, example: Any = None) -> Model:
    """Lend a module."""
    return objects.load(objects.offer(module, example=example), seed=0, trust=False)


def watched(
    module: nn.Module, feed: dict[str, Any], times: int = 1, **settings: Any
) -> list[AllocationRecord]:
    """Watch calls in a session, after one that is not watched."""
    with backend.open(lent(module), configure(backend.knobs, {**CPU, **settings})) as session:
        session.prepare(feed)()
        with session.allocations(feed) as call:
            return [call() for _ in range(times)]


def numbers(*shape: int) -> Any:
    """Give random numbers, the same each time."""
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


FEED = {"x": numbers(WIDE, WIDE)}


class Square(nn.Module):
    """Squares a square."""

    def forward(self, x: Tensor) -> Tensor:
        """Make one."""
        return x * x


class Chain(nn.Module):
    """Three squares in a row, the second one kept to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Square(), Square(), Square()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        """Hold two at most, and three where the last one is made."""
        kept: Tensor = self.second(self.first(x))
        last: Tensor = self.third(kept)
        return kept + last


def test_a_session_has_memory() -> None:
    """It is known by its capability."""
    with backend.open(lent(Square()), configure(backend.knobs, CPU)) as session:
        assert isinstance(session, HasMemory)


@pytest.mark.parametrize("inference_mode", [True, False])
def test_the_peak_and_who_made_it(*, inference_mode: bool) -> None:
    """The sum holds what the second and third made, and its own; weights and inputs stand beside."""
    (call,) = watched(Chain(), FEED, inference_mode=inference_mode)
    peak = allocations.find_allocated_peak(call)
    assert peak.bytes == 3 * ONE
    assert peak.scope == ""
    assert {(held.scope, held.role): held.bytes for held in peak.held} == {
        ("second", "activations"): ONE,
        ("third", "activations"): ONE,
        ("", "activations"): ONE,
        ("", "weights"): 12,
        ("x", "inputs"): ONE,
    }
    assert peak.fragmentation is None


def test_after_the_call_nothing_is_held() -> None:
    """What it returned is given back within the record, in which time goes forward."""
    (call,) = watched(Chain(), FEED)
    times = [event.time for event in call.events]
    assert sum(event.bytes for event in call.events) == 0
    assert times == sorted(times)
    assert 0 <= times[0] <= call.seconds
    assert all(block.end is not None for block in allocations.pair_memory_blocks(call))


def test_workspace_is_told_from_activations() -> None:
    """Attention makes scores that it gives back itself; its output and the mask outlive it."""

    class Product(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.scaled_dot_product_attention(
                x, x, x, attn_mask=x[:, :8].new_zeros(8, 8)
            )

    (call,) = watched(Product(), {"x": numbers(2, 8, 16)})
    blocks = allocations.pair_memory_blocks(call)
    assert {block.category for block in blocks} == {Category.ACTIVATIONS, Category.WORKSPACE}
    assert (
        sum(block.bytes for block in blocks if block.category is Category.ACTIVATIONS)
        == 2 * 8 * 16 * 4 + 8 * 8 * 4
    )


def test_a_module_used_twice_and_one_that_fails_keep_the_scopes_right() -> None:
    """Scopes are left as they are entered, even where an error goes through."""

    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError(x.shape)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.square, self.failing = Square(), Failing()

        def forward(self, x: Tensor) -> Tensor:
            try:
                self.failing(x)
            except ValueError:
                x = self.square(x)
            last: Tensor = self.square(x)
            return last + 1

    (call,) = watched(Twice(), FEED)
    taken = [event.scope for event in call.events if event.bytes == ONE]
    assert taken == ["square", "square", ""]


def test_hooks_are_gone_afterwards() -> None:
    """Nothing is left on the model or in torch."""
    before = [len(hooks) for hooks in hook_tables()]
    watched(Chain(), FEED)
    assert [len(hooks) for hooks in hook_tables()] == before


def hook_tables() -> tuple[dict[Any, Any], ...]:
    """Give torch's tables of hooks for all modules."""
    inner: Any = torch.nn.modules.module
    return inner._global_forward_hooks, inner._global_forward_pre_hooks


def test_a_leak_is_seen_and_named() -> None:
    """A module that keeps its outputs leaves them behind, call by call."""

    class Keeper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.square = Square()
            self.kept: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.kept.append(self.square(x))
            return x + 1

    growth = allocations.find_memory_growth(watched(Keeper(), FEED, times=5))
    assert growth is not None
    assert (growth.bytes, growth.steady) == (ONE, True)
    assert growth.left == (MemoryItem(scope="square", role="", bytes=ONE),)


def test_circles_of_references_are_no_leak() -> None:
    """They are collected before it is said what stays."""

    class Circle(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            circle: list[Any] = [x * x]
            circle.append(circle)
            return x + 1

    gc.disable()
    try:
        growth = allocations.find_memory_growth(watched(Circle(), FEED, times=4))
    finally:
        gc.enable()
    assert growth is not None
    assert (growth.bytes, growth.steady) == (0, False)


OFTEN = ("resnet18_cifar", "bert_base_128", "mixtral")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in models.SMALL],
)
def test_the_peak_is_that_of_the_allocators_own_record(name: str) -> None:
    """For networks of every kind, to the byte."""
    torch.manual_seed(0)
    module, shapes = models.SMALL[name].build("eager", torch.float32)
    module.eval()
    feed = {
        key: (numbers(*shape) if dtype.is_floating_point else np.ones(shape, "int64"))
        for key, (shape, dtype) in shapes.items()
    }
    with backend.open(lent(module, feed), configure(backend.knobs, CPU)) as session:
        prepared = session.prepare(feed)
        prepared()
        truth = recorded_peak(prepared)
        with session.allocations(feed) as call:
            peak = allocations.find_allocated_peak(call())
    assert peak.bytes == truth
    assert {held.scope for held in peak.held if held.role == "activations"} - {""}


def test_weights_are_counted_once() -> None:
    """A shared storage belongs to the first that has it; buffers are weights, too."""
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
    module[1].weight = module[0].weight
    sizes = {held.scope: 0 for held in torch_memory.weight_holdings(module)}
    for held in torch_memory.weight_holdings(module):
        sizes[held.scope] += held.bytes
    assert sizes == {"0": 64, "2": 4 * 16 + 8}


def test_a_tensor_without_a_storage_is_counted_by_its_elements() -> None:
    """A sparse one has its numbers elsewhere."""
    sparse = torch.eye(3).to_sparse()
    assert torch_memory.storage_bytes(sparse) == 36
    assert torch_memory.address(sparse) == id(sparse)


def test_inputs_are_counted_as_they_lie_on_the_device() -> None:
    """Floating-point ones take the precision of the model."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return self.weight * x + ids

    (call,) = watched(Both(), {"x": numbers(3, 4), "ids": np.ones((3, 4), "int64")}, precision="bf16")
    assert {held.scope: held.bytes for held in call.before if held.role == Category.INPUTS} == {
        "x": 24,
        "ids": 96,
    }


def test_a_device_whose_allocator_tells_nothing_is_refused() -> None:
    """In one sentence, rather than with a peak of zero."""
    with pytest.raises(RequestError, match="allocator on mps does not report"):
        torch_memory.check_reporting_device("mps:0")
    torch_memory.check_reporting_device("cuda:1")


# --- a tree that is made up, as a device would give it ---------------------------------------------------


def event(name: str, begin: int, end: int = 0, *children: Any, **fields: Any) -> Any:
    """Make an event of the profiler's tree."""
    return SimpleNamespace(
        name=name,
        start_time_ns=begin,
        end_time_ns=end or begin,
        children=children,
        extra_fields=SimpleNamespace(**fields),
    )


def moved(
    begin: int, address: int, size: int, device: str = "cuda:0", reserved: int = 0, used: int = 0
) -> Any:
    """Make an event of the allocator."""
    return event(
        "[memory]", begin, ptr=address, alloc_size=size, device=torch.device(device),
        total_reserved=reserved, total_allocated=used,
    )  # fmt: skip


def operator(name: str, begin: int, *children: Any, number: int = -1, scope: str = "FUNCTION") -> Any:
    """Make an event of an operator."""
    return event(name, begin, begin + 9, *children, sequence_number=number, scope=SimpleNamespace(name=scope))


def read(
    *roots: Any,
    device: str = "cuda:0",
    notes: Any = None,
    tell: Callable[..., AllocationRecord] = torch_memory.read_allocations,
) -> AllocationRecord:
    """Read a tree."""
    return tell(roots, notes or torch_memory.CallStages(), torch.device(device), ())


def test_a_device_tells_its_reserve_and_only_of_itself() -> None:
    """What happens on the host or on another device beside it is left out."""
    call = read(
        event(
            "modeldyno call", 1000, 9000,
            operator(
                "aten::mm", 2000,
                moved(2001, 7, 512, reserved=2048, used=512),
                moved(2002, 8, 64, "cpu"),
                moved(2003, 9, 64, "cuda:1"),
            ),
        )
    )  # fmt: skip
    (allocation,) = call.events
    assert allocation.time == pytest.approx(1.001e-6)
    assert (allocation.address, allocation.bytes, allocation.operator) == (7, 512, 1)
    assert allocations.find_allocated_peak(call).fragmentation == 0.75
    assert call.seconds == pytest.approx(8e-6)


def test_the_backward_course_leads_to_the_module_that_made_the_node() -> None:
    """By the number of the node, on whichever thread it is evaluated, and before it is read."""
    product = operator("aten::mm", 502, moved(503, 1, 10))
    backward = operator(
        "autograd::engine::evaluate_function: MmBackward0",
        500,
        operator("MmBackward0", 501, product, number=4, scope="BACKWARD_FUNCTION"),
        moved(510, 2, 20),
        number=4,
    )
    layer = event(
        "modeldyno module:fc",
        120,
        300,
        operator("aten::t", 130, number=4),
        operator("aten::mm", 140, number=4),
    )
    whole = event("modeldyno module:", 110, 400, layer, operator("aten::relu", 350, number=5))
    call = read(backward, event("modeldyno call", 100, 900, whole))
    assert [(each.scope, each.operator != 0) for each in call.events] == [("fc", True), ("fc", False)]


def test_a_node_without_a_number_belongs_to_no_module() -> None:
    """Such as one that accumulates gradients."""
    call = read(
        operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 5, moved(6, 1, 10)),
        event("modeldyno call", 0, 9),
    )
    assert call.events[0].scope == ""


def test_a_module_that_is_called_anew_in_the_backward_course_is_at_work_itself() -> None:
    """As where activations are computed again rather than kept."""
    again = event("modeldyno module:block", 20, 40, operator("aten::mm", 21, moved(22, 1, 10), number=9))
    call = read(
        operator("autograd::engine::evaluate_function: CheckpointBackward", 10, again, number=3),
        event("modeldyno call", 0, 50),
    )
    assert call.events[0].scope == "block"


def test_ranges_of_the_users_own_are_no_operators() -> None:
    """What happens in them happens outside of any."""
    call = read(event("modeldyno call", 0, 9, operator("my range", 1, moved(2, 1, 10), scope="USER_SCOPE")))
    assert call.events[0].operator == 0


def test_stages_bring_their_categories() -> None:
    """What is copied are inputs, what the optimiser takes is workspace; gradients are named as it begins."""
    notes = torch_memory.CallStages()
    notes.addresses["optimizer"] = (Category.GRADIENTS, frozenset({2}))
    notes.addresses["never"] = (Category.GRADIENTS, frozenset({2}))
    call = read(
        event(
            "modeldyno call", 0, 9000,
            event("modeldyno stage:copy", 100, 200, moved(150, 1, 10)),
            event("modeldyno stage:backward", 200, 300, moved(250, 2, 20)),
            event("modeldyno stage:optimizer", 300, 400, moved(350, 3, 30)),
        ),
        notes=notes,
    )  # fmt: skip
    assert {block.bytes: str(block.category) for block in allocations.pair_memory_blocks(call)} == {
        10: "inputs", 20: "gradients", 30: "workspace",
    }  # fmt: skip
    assert list(call.stages) == ["copy", "backward", "optimizer"]


def test_the_largest_allocations_have_their_module_operator_and_life() -> None:
    """Each square is made by a product in its module, and the first is freed before the second."""
    (call,) = watched(Chain(), FEED)
    largest = {each.scope: each for each in allocations.largest_allocations(call) if each.bytes == ONE}

    assert largest.keys() >= {"first", "second", "third"}
    assert {largest[name].operator for name in ("first", "second", "third")} == {"aten.mul"}
    ends = {name: each.freed for name, each in largest.items()}
    assert ends["first"] is not None
    assert ends["second"] is not None
    assert largest["first"].made < largest["second"].made < ends["first"] < ends["second"]
