"""Training steps of torch modules: of a copy, with stages that are timed and watched one by one."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.backends.output_leaves import leaves
from modeldyno.adapters.backends.torch import memory as torch_memory
from modeldyno.core.trace.allocations import Category
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence  # noqa: TC004 - as below

    from torch import Tensor, device  # noqa: TC004 - a dataclass, but no document
    from torch.nn import Module  # noqa: TC004 - the same
    from torch.optim import Optimizer  # noqa: TC004 - the same

    from modeldyno.adapters.backends.torch.inputs import Placement
    from modeldyno.core.trace.allocations import Recorded
    from modeldyno.data.torch_signature import Forward  # noqa: TC004 - the same
    from modeldyno.interfaces import Feed

_COPY, _FORWARD, _BACKWARD, _OPTIMIZER = "copy", "forward", "backward", "optimizer"
"""The stages of a step; the last one gives the gradients back, too."""
_WARM_UP = 2
"""Steps after which the optimiser has its state."""


@contextmanager
def training(
    callee: Any, forward: Forward, placement: Placement, feeds: Sequence[Feed], optimizer: str
) -> Iterator[Steps]:
    """Train a copy of a module, with gradients on, whatever mode is around it.

    The payloads wait on the host, in memory that is not pinned, as a data loader leaves them by default.

    Raises:
        RequestError: the module cannot be copied, or gives nothing that could be trained.
    """
    import torch  # noqa: PLC0415 - heavy

    with torch.inference_mode(mode=False), torch.enable_grad():
        module = _copied(getattr(callee, "_orig_mod", callee))
        for part in module.modules():
            part.training = True
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not trained:
            raise RequestError(
                f"{type(module).__name__} has no parameter that asks for a gradient, so it cannot be "
                "trained; profile it with --mode inference."
            )
        host = replace(placement, place=torch.device("cpu"))
        steps = Steps(
            module=module,
            call=module if module_is(callee) else callee.dynamo_ctx(module),
            forward=forward,
            payloads=cycle([{name: host.tensor(array) for name, array in feed.items()} for feed in feeds]),
            optimizer=_optimizer(optimizer, trained),
            place=placement.place,
        )
        for _ in range(_WARM_UP):
            steps.step()
        yield steps


def module_is(callee: Any) -> bool:
    """Say whether this is a module as it was written, and no compiled one."""
    return not hasattr(callee, "_orig_mod")


def _copied(module: Module) -> Module:
    import torch  # noqa: PLC0415 - heavy

    try:
        with torch.no_grad():  # or the parameters of a ScriptModule would be computed from the others
            found = copy.deepcopy(module)
    except Exception as error:
        raise RequestError(
            f"{type(module).__name__} cannot be copied, and what is given is not trained itself: "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}."
        ) from error
    for one, other in zip(found.parameters(), module.parameters(), strict=True):
        one.requires_grad_(other.requires_grad)
    return found


def _optimizer(name: str, parameters: Sequence[Tensor]) -> Optimizer | None:
    """Make an optimiser that goes nowhere: its step costs the same, and every one finds the same weights."""
    from torch import optim  # noqa: PLC0415 - heavy

    make: dict[str, Callable[[], Optimizer]] = {
        "adamw": lambda: optim.AdamW(parameters, lr=0.0),
        "adam": lambda: optim.Adam(parameters, lr=0.0),
        "sgd": lambda: optim.SGD(parameters, lr=0.0),
        "sgd-momentum": lambda: optim.SGD(parameters, lr=0.0, momentum=0.9),
        "adafactor": lambda: optim.Adafactor(parameters, lr=0.0),
    }
    return make[name]() if name in make else None


@dataclass(slots=True, kw_only=True)
class Steps:
    """A module in training."""

    module: Module
    call: Callable[..., Any]
    """The module, or what it was compiled to."""
    forward: Forward
    payloads: Iterator[dict[str, Tensor]]
    """On the host; endless."""
    optimizer: Optimizer | None
    place: device

    def step(self) -> Mapping[str, float]:
        """Make a step, timed by the device's own events, or by the clock on the CPU."""
        names: list[str] = []
        marks: list[Any] = []

        def begin(name: str) -> None:
            names.append(name)
            marks.append(_mark(self.place))

        self._walk(next(self.payloads), begin)
        marks.append(_mark(self.place))
        return dict(zip(names, _between(marks, self.place), strict=True))

    def watched(self) -> Recorded:
        """Make a step under the profiler; the parts of a compiled module are not told apart."""
        torch_memory.check(str(self.place))
        payload = next(self.payloads)

        def call(notes: torch_memory.Notes) -> None:
            def begin(name: str) -> None:
                if name == _OPTIMIZER:
                    notes.begin(name, Category.GRADIENTS, self._gradients())
                else:
                    notes.begin(name)

            self._walk(payload, begin)
            _between([_mark(self.place)], self.place)

        given = payload.items() if self.place.type == "cpu" else ()  # elsewhere the step copies them
        return torch_memory.record(
            call,
            self.module if self.call is self.module else None,
            device=str(self.place),
            before=lambda: (
                *torch_memory.weights(self.module),
                *torch_memory.held(Category.INPUTS, given),
                *torch_memory.held(Category.OPTIMIZER, self._state()),
            ),
        )

    def _walk(self, payload: dict[str, Tensor], begin: Callable[[str], None]) -> None:
        """Make a step, telling which stage begins."""
        if self.place.type != "cpu":
            begin(_COPY)
        args, kwargs = self.forward.arguments({name: each.to(self.place) for name, each in payload.items()})
        begin(_FORWARD)
        loss = loss_of(self.call(*args, **kwargs))
        begin(_BACKWARD)
        loss.backward()  # type: ignore[no-untyped-call]
        del loss
        begin(_OPTIMIZER)
        if self.optimizer is not None:
            self.optimizer.step()
        for parameter in self.module.parameters():
            parameter.grad = None

    def _gradients(self) -> Iterator[Tensor]:
        return (parameter.grad for parameter in self.module.parameters() if parameter.grad is not None)

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        """Give the tensors of the optimiser's state, with the module whose parameter they are of."""
        if self.optimizer is None:
            return
        for name, parameter in self.module.named_parameters():
            for value in self.optimizer.state.get(parameter, {}).values():
                if hasattr(value, "untyped_storage"):
                    yield name.rpartition(".")[0], value


# --- the loss ------------------------------------------------------------------------------------


def loss_of(output: Any) -> Tensor:
    """Give the loss that a model returns, or the sum of the squares of all that depends on a parameter.

    Its gradient is as large as the outputs are, as that of a real loss would be.

    Raises:
        RequestError: nothing in the output depends on a parameter.
    """
    own: Any = output.get("loss") if hasattr(output, "get") else getattr(output, "loss", None)
    if getattr(own, "requires_grad", False) and own.numel() == 1:
        found: Tensor = own.reshape(())
        return found
    floats = [leaf for leaf in _tensors(output, set()) if leaf.requires_grad]
    if not floats:
        raise RequestError(
            "The model gives nothing that depends on a parameter that asks for a gradient, so it cannot be "
            "trained; profile it with --mode inference."
        )
    loss = floats[0].square().sum()
    for more in floats[1:]:
        loss = loss + more.square().sum()
    return loss


def _tensors(output: Any, seen: set[int]) -> Iterator[Tensor]:
    """Give the tensors in an output, also those in objects such as a cache of keys and values."""
    for _, leaf in leaves(output):
        if hasattr(leaf, "requires_grad"):
            yield leaf
        elif hasattr(leaf, "__dict__") and id(leaf) not in seen and not callable(leaf):
            seen.add(id(leaf))
            yield from _tensors(list(vars(leaf).values()), seen)


# --- the clock -----------------------------------------------------------------------------------


def _mark(place: device) -> Any:
    """Note this moment: of the device's own work where it works on by itself."""
    import torch  # noqa: PLC0415 - heavy

    if place.type == "cpu":
        return perf_counter()
    if place.type in {"cuda", "xpu"}:
        event = getattr(torch, place.type).Event(enable_timing=True)
        event.record()
        return event
    getattr(torch, place.type).synchronize()
    return perf_counter()


def _between(marks: list[Any], place: device) -> list[float]:
    """Give the seconds between moments, when the device has reached the last."""
    if place.type in {"cuda", "xpu"}:
        marks[-1].synchronize()
        return [float(begin.elapsed_time(end)) * 1e-3 for begin, end in pairwise(marks)]
    return [end - begin for begin, end in pairwise(marks)]
