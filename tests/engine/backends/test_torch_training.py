"""Training steps of torch modules: what they cost is torch's own, and what they leave is nothing."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from itertools import pairwise
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
from modeldyno.base.job.static_options import OPTIMIZERS
from modeldyno.engine.backends.torch import backend
from modeldyno.engine.backends.torch import training as torch_training
from modeldyno.engine.interfaces.session import CanTrain
from modeldyno.engine.trace import allocations
from modeldyno.engine.trace.memory_category import Category
from modeldyno.models.loaders import live_object as objects
from modeldyno.testing.loaders import is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.models.interface import Model

FEED = {"x": np.random.default_rng(0).standard_normal((8, 16)).astype("float32")}


CPU: dict[str, KnobValue] = {"device": "cpu", "threads": 1}
"""Settings; threads that wait for each other take long on a busy machine."""


def lent(module: nn.Module, example: Any = None) -> Model:
    """Lend a module."""
    return objects.load(objects.offer(module, example=example), seed=0, trust=False)


class Net(nn.Module):
    """Two layers, some chance and a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Linear(16, 32), nn.BatchNorm1d(32)
        self.drop, self.leave = nn.Dropout(0.5), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        return self.leave(self.drop(self.norm(self.enter(x)).relu()))  # type: ignore[no-any-return]


@pytest.fixture
def session() -> Iterator[Any]:
    """A session of a network, under inference mode as every session is."""
    torch.manual_seed(0)
    with backend.open(lent(Net()), configure(backend.knobs, CPU)) as opened:
        assert torch.is_inference_mode_enabled()
        yield opened


def test_a_session_can_train(session: Any) -> None:
    """It is known by its capability."""
    assert isinstance(session, CanTrain)


def test_a_step_has_its_stages_in_order_and_each_takes_time(session: Any) -> None:
    """There is none for copying where the payload lies on the host already."""
    with session.training((FEED,), "adamw") as training:
        stages = training.step()
    assert list(stages) == ["forward", "backward", "optimizer"]
    assert all(seconds > 0 for seconds in stages.values())


def test_the_users_module_is_not_altered(session: Any) -> None:
    """Neither its numbers, nor its gradients, nor its mode; nor is the mode of the session."""
    module = session._module
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    expected = session.prepare(FEED)()
    with session.training((FEED,), "sgd") as training:
        training.step()
        training.watched()
        assert not torch.is_inference_mode_enabled()
        assert training.module is not module
    assert torch.is_inference_mode_enabled()
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(part.training for part in module.modules())
    assert torch.equal(session.prepare(FEED)(), expected)


@pytest.mark.parametrize(
    "optimizer",
    [pytest.param(name, marks=() if name in {"adamw", "none"} else pytest.mark.slow) for name in OPTIMIZERS],
)
def test_every_optimiser_steps_and_leaves_the_weights_where_they_are(session: Any, optimizer: str) -> None:
    """So that the thousandth step does what the first one did."""
    with session.training((FEED,), optimizer) as training:
        before = [parameter.clone() for parameter in training.module.parameters()]
        for _ in range(3):
            training.step()
        after = list(training.module.parameters())
        state = [held for held in training.watched().before if held.role == Category.OPTIMIZER]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(parameter.grad is None for parameter in after)
    assert bool(state) == (optimizer not in {"sgd", "none"})


def test_gradients_and_state_are_told_by_module(session: Any) -> None:
    """Gradients are as large as parameters; AdamW keeps two numbers for each, and a step for each tensor."""
    with session.training((FEED,), "adamw") as training:
        call = training.watched()
    sizes = {"enter": 16 * 32 + 32, "norm": 64, "leave": 32 * 4 + 4}
    state = {held.scope: 0 for held in call.before if held.role == Category.OPTIMIZER}
    for held in call.before:
        if held.role == Category.OPTIMIZER:
            state[held.scope] += held.bytes
    gradients = dict.fromkeys(sizes, 0)
    for block in allocations.pair_memory_blocks(call):
        if block.category is Category.GRADIENTS:
            gradients[block.scope] += block.bytes
    assert gradients == {name: 4 * size for name, size in sizes.items()}
    assert state == {name: 8 * size + 2 * 4 for name, size in sizes.items()}


def test_a_watched_step_ends_as_it_began(session: Any) -> None:
    """Nothing stays; its stages follow each other, and its peak lies in one of them."""
    with session.training((FEED,), "adamw") as training:
        call = training.watched()
    peak = allocations.find_allocated_peak(call)
    spans = list(call.stages.values())
    assert list(call.stages) == ["forward", "backward", "optimizer"]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert peak.bytes == max(peak.stages.values())
    assert sum(event.bytes for event in call.events) == 0


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("vit_b16", "bert_base_128", "gpt2_512", "llama3_8b", "t5_small")
        ),
    ],
)
def test_the_peak_of_a_step_is_that_of_the_allocators_own_record(name: str) -> None:
    """For a step that is written out here, to the byte but for a few numbers."""
    torch.manual_seed(0)
    module, shapes = models.SMALL[name].build("eager", torch.float32)
    feed = {
        key: (np.ones(shape, "float32") if dtype.is_floating_point else np.ones(shape, "int64"))
        for key, (shape, dtype) in shapes.items()
    }
    with (
        backend.open(lent(module, feed), configure(backend.knobs, CPU)) as session,
        session.training((feed,), "adamw") as training,
    ):
        assert isinstance(training, torch_training.TrainingSteps)
        peak, copied = allocations.find_allocated_peak(training.watched()).bytes, training.module
        optimizer = torch.optim.AdamW(copied.parameters(), lr=0.0)
        inputs = {key: torch.tensor(array) for key, array in feed.items()}

        def step() -> None:
            torch_training.loss_of(copied(**inputs)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

        step()
        assert peak == pytest.approx(recorded_peak(step), rel=0.001)


def test_payloads_are_cycled_through() -> None:
    """Each gets its turn."""
    values: list[float] = []

    class Seen(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            values.append(float(x[0, 0]))
            return super().forward(x)

    feeds = [{"x": np.full((2, 3), value, "float32")} for value in (1, 2)]
    with (
        backend.open(lent(Seen(3, 1)), configure(backend.knobs, CPU)) as session,
        session.training(feeds, "none") as training,
    ):
        training.step()
        training.watched()
    assert values == [1, 2, 1, 2]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_an_archive_of_torchscript_is_trained_like_its_module() -> None:
    """Its copy has parameters of its own, of which the frozen stay frozen."""
    module = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    module[2].requires_grad_(requires_grad=False)
    script: Any = torch.jit.script(module)
    with (
        backend.open(lent(script), configure(backend.knobs, CPU)) as session,
        session.training((FEED,), "adamw") as training,
    ):
        blocks = allocations.pair_memory_blocks(training.watched())
    gradients = sum(block.bytes for block in blocks if block.category is Category.GRADIENTS)
    assert gradients == 4 * (16 * 8 + 8)


# --- the loss ----------------------------------------------------------------------------------------------


def trained(*shape: int) -> Tensor:
    """Numbers that depend on a parameter."""
    return torch.full(shape, 2.0, requires_grad=True) * 1


def test_the_models_own_loss_is_taken() -> None:
    """From a mapping as from an attribute."""
    loss = trained()
    assert torch_training.loss_of({"loss": loss, "logits": trained(3)}) == loss
    assert torch_training.loss_of(SimpleNamespace(loss=loss.reshape(1))) == loss


def test_without_a_loss_the_squares_of_all_outputs_are_added() -> None:
    """Those in a cache, too; what depends on no parameter has no part in it."""
    cache = SimpleNamespace(keys=trained(2), more=[trained(1)])
    cache.itself = cache
    output = {"loss": None, "logits": trained(3), "ids": torch.ones(5), "cache": cache, "name": "x"}
    assert torch_training.loss_of(output) == 4 * (3 + 2 + 1)
    assert torch_training.loss_of((trained(2), None)) == 8


# --- what cannot be trained ------------------------------------------------------------------------------


class Held(nn.Linear):
    """A layer that holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__(16, 2)
        self.lock = threading.Lock()


class Cut(nn.Linear):
    """A layer whose output depends on nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """Cut the graph."""
        return super().forward(x).detach()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.ReLU(), "no parameter that requires a gradient"),
        (nn.Linear(16, 2).requires_grad_(requires_grad=False), "no parameter that requires a gradient"),
        (Held(), "cannot be copied"),
        (Cut(16, 2), "No output of the model depends on a parameter"),
    ],
)
def test_what_cannot_be_trained_is_refused(module: nn.Module, reason: str) -> None:
    """In one sentence, and the session stays as it was."""
    with backend.open(lent(module), configure(backend.knobs, CPU)) as session:
        with pytest.raises(RequestError, match=reason) as refused, session.training((FEED,), "adamw"):
            pass
        assert torch.is_inference_mode_enabled()
    assert is_one_sentence(str(refused.value))


# --- devices, of which there are none here ---------------------------------------------------------------


class Bag(nn.Module):
    """Has sparse gradients and dense ones."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(100, 8, sparse=True)
        self.dense = nn.Linear(8, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Mean of the rows."""
        output: Tensor = self.dense(self.table(ids).mean(1))
        return output


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "none"])
def test_sparse_gradients_are_stepped_by_what_takes_them(optimizer: str) -> None:
    """The others are refused, with the names of those that do; what such steps cost is not counted."""
    model = lent(Bag(), torch.zeros(2, 5, dtype=torch.int64))
    feed = {"ids": np.zeros((2, 5), np.int64)}
    with (
        backend.open(model, configure(backend.knobs, CPU)) as session,
        nullcontext()
        if optimizer in {"sgd", "sgd-momentum", "adagrad"}
        else pytest.raises(RequestError, match=f"which {optimizer} does not take; train it with `opt"),
        session.training((feed,), optimizer) as training,
    ):
        assert training.step()


class Clock:
    """Events of a device on which a millisecond passes from one to the next."""

    count = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at, self.reached = 0, False

    def record(self) -> None:
        """Note the moment."""
        type(self).count += 1
        self.at = self.count

    def synchronize(self) -> None:
        """Wait."""
        self.reached = True

    def elapsed_time(self, other: Clock) -> float:
        """Milliseconds."""
        return float(other.at - self.at)


def test_a_device_is_timed_by_its_own_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is waited for; seconds are given."""
    monkeypatch.setattr(torch.cuda, "Event", Clock)
    place = torch.device("cuda:0")
    marks = [torch_training._time_stamp(place) for _ in range(3)]
    assert torch_training._elapsed(marks, place) == [0.001, 0.001]
    assert [mark.reached for mark in marks] == [False, False, True]


def test_a_device_without_such_events_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every mark."""
    waited: list[int] = []
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append(1))
    place = torch.device("mps")
    first, second = torch_training._elapsed([torch_training._time_stamp(place) for _ in range(3)], place)
    assert len(waited) == 3
    assert min(first, second) >= 0


def test_on_a_device_the_payload_is_copied_as_a_stage_of_its_own(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of the step."""
    with session.training((FEED,), "adamw") as training:
        training.place = torch.device("meta")
        monkeypatch.setattr(torch_training, "_time_stamp", lambda _place: 0.0)
        training.module = training.module.to("meta")
        training.call, training.optimizer = training.module, None
        assert list(training.step()) == ["copy", "forward", "backward", "optimizer"]
