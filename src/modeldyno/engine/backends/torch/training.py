"""Training steps on a copy of a torch module, with stages that are timed one by one."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RequestError
from modeldyno.engine.backends.output_leaves import leaves
from modeldyno.engine.backends.torch import memory as torch_memory
from modeldyno.engine.trace.memory_category import Category

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor, device
    from torch.nn import Module
    from torch.optim import Optimizer

    from modeldyno.engine.backends.torch.inputs import Placement
    from modeldyno.engine.trace.allocations import AllocationRecord
    from modeldyno.models.interface import Feed
    from modeldyno.models.torch_signature import Forward

_COPY, _FORWARD, _BACKWARD, _OPTIMIZER = "copy", "forward", "backward", "optimizer"
"""The stages of a step; the last one also frees the gradients."""
_WARM_UP = 2
"""Steps after which the optimiser's state exists."""


@contextmanager
def train_copy(
    callee: Any, forward: Forward, placement: Placement, feeds: Sequence[Feed], optimizer: str
) -> Iterator[TrainingSteps]:
    """Train a copy of a module, with gradients enabled whatever the surrounding mode.

    The payloads stay in unpinned host memory, as a data loader leaves them by default.

    Raises:
        RequestError: the module cannot be copied, or it has nothing to train.
    """
    import torch  # heavy

    with torch.inference_mode(mode=False), torch.enable_grad():
        module = _copy_module(getattr(callee, "_orig_mod", callee))
        for part in module.modules():
            part.training = True
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not trained:
            raise RequestError(
                f"{type(module).__name__} has no parameter that requires a gradient, so it cannot be "
                "trained; profile it with `mode=inference`."
            )
        host = replace(placement, place=torch.device("cpu"))
        steps = TrainingSteps(
            module=module,
            call=module if is_eager(callee) else callee.dynamo_ctx(module),
            forward=forward,
            payloads=cycle([{name: host.tensor(array) for name, array in feed.items()} for feed in feeds]),
            optimizer=_optimizer(optimizer, trained),
            place=placement.place,
        )
        for _ in range(_WARM_UP):
            _step_first(steps, optimizer)
        yield steps


def _step_first(steps: TrainingSteps, optimizer: str) -> None:
    try:
        steps.step()
    except RuntimeError as error:
        if "support sparse" not in str(error):
            raise
        raise RequestError(
            f"{type(steps.module).__name__} has sparse gradients, which {optimizer} does not take; train it "
            "with `optimizer=sgd` or adagrad, or give its embeddings sparse=False."
        ) from error


def is_eager(callee: Any) -> bool:
    """Check whether this is an eager module, not a compiled one."""
    return not hasattr(callee, "_orig_mod")


def _copy_module(module: Module) -> Module:
    import torch  # heavy

    try:
        with torch.no_grad():  # else the parameters of a ScriptModule would not be leaves
            clone = copy.deepcopy(module)
    except Exception as error:
        raise RequestError(
            f"{type(module).__name__} cannot be copied, and the original is not trained in place: "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}."
        ) from error
    for new, old in zip(clone.parameters(), module.parameters(), strict=True):
        new.requires_grad_(old.requires_grad)
    return clone


def _optimizer(name: str, parameters: Sequence[Tensor]) -> Optimizer | None:
    """Create an optimiser with learning rate 0: its step costs the same, and the weights do not change."""
    from torch import optim  # heavy

    make: dict[str, Callable[[], Optimizer]] = {
        "adamw": lambda: optim.AdamW(parameters, lr=0.0),
        "adam": lambda: optim.Adam(parameters, lr=0.0),
        "sgd": lambda: optim.SGD(parameters, lr=0.0),
        "sgd-momentum": lambda: optim.SGD(parameters, lr=0.0, momentum=0.9),
        "adafactor": lambda: optim.Adafactor(parameters, lr=0.0),
        "adagrad": lambda: optim.Adagrad(parameters, lr=0.0),
    }
    return make[name]() if name in make else None


@dataclass(slots=True, kw_only=True)
class TrainingSteps:
    """A module in training."""

    module: Module
    call: Callable[..., Any]
    """The module, or its compiled form."""
    forward: Forward
    payloads: Iterator[dict[str, Tensor]]
    """Inputs on the host, repeated endlessly."""
    optimizer: Optimizer | None
    place: device

    def step(self) -> Mapping[str, float]:
        """Make a step, timed by device events, or by the host's clock on the CPU."""
        names: list[str] = []
        marks: list[Any] = []

        def begin(name: str) -> None:
            names.append(name)
            marks.append(_time_stamp(self.place))

        self._run_stages(next(self.payloads), begin)
        marks.append(_time_stamp(self.place))
        return dict(zip(names, _elapsed(marks, self.place), strict=True))

    def watched(self) -> AllocationRecord:
        """Make a step under the profiler; a compiled module is not broken down by submodule."""
        torch_memory.check_reporting_device(str(self.place))
        payload = next(self.payloads)

        def call(notes: torch_memory.CallStages) -> None:
            def begin(name: str) -> None:
                if name == _OPTIMIZER:
                    notes.begin(name, Category.GRADIENTS, self._gradients())
                else:
                    notes.begin(name)

            self._run_stages(payload, begin)
            _elapsed([_time_stamp(self.place)], self.place)

        inputs = payload.items() if self.place.type == "cpu" else ()  # on other devices the step copies them
        return torch_memory.record_allocations(
            call,
            self.module if self.call is self.module else None,
            device=str(self.place),
            before=lambda: (
                *torch_memory.weight_holdings(self.module),
                *torch_memory.tensor_holdings(Category.INPUTS, inputs),
                *torch_memory.tensor_holdings(Category.OPTIMIZER, self._state()),
            ),
        )

    def _run_stages(self, payload: dict[str, Tensor], begin: Callable[[str], None]) -> None:
        """Make a step, calling `begin` as each stage begins."""
        if self.place.type != "cpu":
            begin(_COPY)
        args, kwargs = self.forward.arguments(
            {name: tensor.to(self.place) for name, tensor in payload.items()}
        )
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
        """Yield the tensors of the optimiser's state, with the module that owns the parameter."""
        if self.optimizer is None:
            return
        for name, parameter in self.module.named_parameters():
            for value in self.optimizer.state.get(parameter, {}).values():
                if hasattr(value, "untyped_storage"):
                    yield name.rpartition(".")[0], value


# --- the loss ------------------------------------------------------------------------------------


def loss_of(output: Any) -> Tensor:
    """Return the model's own loss, or the sum of squares of all outputs that depend on a parameter.

    The gradient of that sum has the magnitude of the outputs, like that of a real loss.

    Raises:
        RequestError: nothing in the output depends on a parameter.
    """
    own: Any = output.get("loss") if hasattr(output, "get") else getattr(output, "loss", None)
    if getattr(own, "requires_grad", False) and own.numel() == 1:
        scalar: Tensor = own.reshape(())
        return scalar
    floats = [leaf for leaf in _tensors(output, set()) if leaf.requires_grad]
    if not floats:
        raise RequestError(
            "No output of the model depends on a parameter that requires a gradient, so it cannot be "
            "trained; profile it with `mode=inference`."
        )
    loss = floats[0].square().sum()
    for more in floats[1:]:
        loss = loss + more.square().sum()
    return loss


def _tensors(output: Any, visited: set[int]) -> Iterator[Tensor]:
    """Yield the tensors in an output, also those in objects such as a key-value cache."""
    for _, leaf in leaves(output):
        if hasattr(leaf, "requires_grad"):
            yield leaf
        elif hasattr(leaf, "__dict__") and id(leaf) not in visited and not callable(leaf):
            visited.add(id(leaf))
            yield from _tensors(list(vars(leaf).values()), visited)


# --- the clock -----------------------------------------------------------------------------------


def _time_stamp(device: device) -> Any:
    """Take a time stamp: an event in the device's queue if it is asynchronous."""
    import torch  # heavy

    if device.type == "cpu":
        return perf_counter()
    if device.type in {"cuda", "xpu"}:
        event = getattr(torch, device.type).Event(enable_timing=True)
        event.record()
        return event
    getattr(torch, device.type).synchronize()
    return perf_counter()


def _elapsed(marks: list[Any], device: device) -> list[float]:
    """Return the seconds between time stamps, once the device has reached the last."""
    if device.type in {"cuda", "xpu"}:
        marks[-1].synchronize()
        return [float(begin.elapsed_time(end)) * 1e-3 for begin, end in pairwise(marks)]
    return [end - begin for begin, end in pairwise(marks)]
