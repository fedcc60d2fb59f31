"""A torch module to the neutral Graph, by calling it on shadows: no weights, no numbers, any size."""

from __future__ import annotations

import copy
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from modeldyno.core import graph as neutral
from modeldyno.core.graph import Graph, Op, Phase, Role, Routing, Storage
from modeldyno.core.inspection import Mode
from modeldyno.errors import ModelDynoError, RequestError
from modeldyno.feeds import randoms
from modeldyno.feeds.forward import Forward
from modeldyno.loaders.torch_scratch import scratch
from modeldyno.loaders.torch_shadow import Call, Place, Shadow, Stage

if TYPE_CHECKING:
    from torch.nn import Module

    from modeldyno.core.inputs import InputSpec
    from modeldyno.ports import Tracing

_MOST_DRAWN = 2**20
"""Elements of an input of whole numbers that get values."""


@dataclass(slots=True)
class _Memory:
    """A storage in the making."""

    bytes: int
    born: int
    scope: str
    role: Role = Role.ACTIVATION
    died: int | None = None
    output: bool = False


@dataclass(slots=True)
class Recorder:
    """Writes down what happens on a stage."""

    ops: list[Op] = field(default_factory=list)
    memory: list[_Memory] = field(default_factory=list)
    routings: dict[Routing, None] = field(default_factory=dict)
    phase: Phase = Phase.FORWARD
    caches: list[int] = field(default_factory=list)
    on: bool = False
    """Whether operators are written down."""
    begun: bool = False
    """Whether memory is of the call, not from before."""
    path: list[str] = field(default_factory=lambda: [""])
    """The modules that are being called, the innermost last."""
    nodes: dict[int, str] = field(default_factory=dict)
    """Number of a node of autograd to the module in which it was made."""
    adopted: dict[int, tuple[Place, int]] = field(default_factory=dict)
    """Of memory that another course left behind, such as a table that a module keeps: where it is here."""
    objected: tuple[int, str] = (0, "")
    """The id of the last error that left a module, and the innermost module that it left."""

    @property
    def scope(self) -> str:
        """The module at work; in the backward course the one that made the node of autograd."""
        if self.phase is Phase.BACKWARD:
            node: Any = torch._C._current_autograd_node()  # noqa: SLF001 - no public name
            return "" if node is None else self.nodes.get(node._sequence_nr(), "")  # noqa: SLF001 - the same
        return self.path[-1]

    def allocate(self, size: int) -> int:
        """Note a new piece of memory."""
        born = len(self.ops) if self.begun else -1
        self.memory.append(_Memory(size, born, self.scope))
        return len(self.memory) - 1

    def free(self, index: int) -> None:
        """Note its end."""
        found = self.memory[index]
        if found.role in {Role.ACTIVATION, Role.GRADIENT}:
            found.died = len(self.ops)

    def watch(self, call: Call) -> None:
        """Note a call, unless it only looks at memory in another way."""
        if not self.on:
            return
        shadows = tuple(self._shadows(call))
        scope = self._owner(shadows)
        if self.phase is Phase.FORWARD and torch.is_grad_enabled():
            self.nodes[torch._C._autograd._get_sequence_nr() - 1] = scope  # noqa: SLF001 - no public name
        if not call.fresh:
            return
        arguments = dict(zip(call.trait.arguments, map(self._argument, call.args), strict=False))
        for name, value in call.kwargs.items():
            arguments[name] = self._argument(value)
        outputs = tuple(map(self.tensor, call.outputs))
        if call.trait.name == "aten.topk":
            self._routed(arguments, scope)
        if size := scratch(call.trait.name, arguments, outputs):
            self.memory.append(_Memory(size, len(self.ops), scope, died=len(self.ops) + 1))
        for made in call.outputs:
            memory = self.memory[made.place.index]
            memory.scope = scope if memory.born == len(self.ops) else memory.scope
        sparse = any(shadow.place.stored is not None for shadow in shadows)
        kind = f"{call.trait.name}:sparse" if sparse else call.trait.name
        self.ops.append(Op(kind, arguments, outputs, scope, self.phase))

    def _shadows(self, call: Call) -> Iterator[Shadow]:
        for value in (*call.args, *call.kwargs.values()):
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, Tensor):
                    yield one if isinstance(one, Shadow) else self.of(one)

    def _owner(self, shadows: tuple[Shadow, ...]) -> str:
        """Give the module at work, or the module within it whose weight is used.

        That is how the operators of a compiled or exported module, whose parts are not called, find theirs.
        """
        scope = self.scope
        if self.phase is not Phase.FORWARD:
            return scope
        for shadow in shadows:
            found = self.memory[shadow.place.index]
            if found.role is Role.WEIGHT and found.scope.startswith(f"{scope}." if scope else ""):
                return found.scope or scope
        return scope

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Shadow):
            return self.tensor(value)
        if isinstance(value, Tensor):
            return self.tensor(self.of(value))
        if isinstance(value, list | tuple):
            return tuple(map(self._argument, value))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return str(value)

    before: Recorder | None = None
    """Who wrote down how the module was made: its memory is the first part of this."""
    of: Callable[[Tensor], Shadow] = field(default=lambda tensor: tensor)
    """How to find the shadow of a plain tensor; the stage's own."""

    def tensor(self, shadow: Shadow) -> neutral.Tensor:
        """Describe a shadow."""
        shape = tuple(shadow.shape_of.shape)
        stored = shadow.place.stored
        strides = shadow.shape_of.stride()
        if 0 in strides:
            stored = 1
            for size, stride in zip(shape, strides, strict=True):
                stored *= size if stride else 1
            if 0 in shape:
                stored = 0
        return neutral.Tensor(shape, _dtype(shadow.shape_of.dtype), self.index(shadow.place), stored)

    def index(self, place: Place) -> int:
        """Number a piece of memory; what an earlier course left behind is there before this one."""
        owner = getattr(place.freed, "__self__", self)
        if owner is self or owner is self.before:
            return place.index
        if id(place) not in self.adopted:
            self.memory.append(
                replace(owner.memory[place.index], role=Role.WEIGHT, born=-1, died=None, output=False)
            )
            self.adopted[id(place)] = place, len(self.memory) - 1
        return self.adopted[id(place)][1]

    def held(self, shadow: Shadow) -> _Memory:
        """Give the memory in which a shadow lies."""
        return self.memory[self.index(shadow.place)]

    def _routed(self, arguments: Mapping[str, Any], scope: str) -> None:
        scores, chosen = arguments.get("self"), arguments.get("k")
        if isinstance(scores, neutral.Tensor) and isinstance(chosen, int) and scores.shape:
            dim = arguments.get("dim", -1)
            self.routings[Routing(scope=scope, experts=scores.shape[int(dim)], chosen=chosen)] = None


@cache
def _dtype(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


# -- the course ---------------------------------------------------------------------------------------


def build(make: Callable[[], Any]) -> tuple[Any, Stage]:
    """Make a module on a stage of its own, so that its weights take neither memory nor time."""
    stage = Stage(Recorder())
    with _quiet(), _unsaved(), stage:
        return make(), stage


def shadowed(module: Module) -> tuple[Module, Stage]:
    """Copy a module's structure onto a stage; its weights stay where they are."""
    stage = Stage(Recorder())
    with _quiet(), stage:
        memo: dict[int, Any] = {}
        for tensor in (*module.parameters(), *module.buffers()):
            shadow = stage.of(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                shadow = torch.nn.Parameter(shadow, requires_grad=tensor.requires_grad)  # type: ignore[assignment]
            memo[id(tensor)] = shadow
        try:
            return copy.deepcopy(module, memo), stage
        except Exception:  # noqa: BLE001 - whatever a user's class has against being copied
            return module, stage  # its own weights serve; they are looked up as they come


def graph(module: Module, stage: Stage, tracing: Tracing) -> Graph:
    """Call a module on its stage and write down what happens.

    Raises:
        RequestError: the module cannot be called with such inputs, or an operator has no shapes.
    """
    made = stage.witness
    assert isinstance(made, Recorder)
    stage.forget()
    recorder = Recorder(memory=[replace(m) for m in made.memory], before=made, of=stage.of)
    stage.witness = recorder
    stage.assumptions.clear()
    try:
        with _quiet(), stage, _collected(), _in_mode(module, tracing.mode):
            weights = _weights(module, stage, recorder)
            _keep(recorder.memory)
            kind = _own_dtype(module)
            feed = {spec.name: _input(stage, recorder, spec, kind) for spec in tracing.inputs}
            with _scopes(module, recorder):
                _course(module, feed, tracing, recorder)
            _keep(recorder.memory[recorder.index(place)] for place in stage.brought())
            return _picture(module, tracing, recorder, weights, tuple(stage.assumptions))
    finally:
        stage.witness = made


def _course(module: Module, feed: dict[str, Any], tracing: Tracing, recorder: Recorder) -> None:
    recorder.on = recorder.begun = True
    try:
        _walk(module, feed, tracing, recorder)
    except ModelDynoError:
        raise
    except Exception as error:
        raise RequestError(_refusal(module, tracing, error, recorder)) from error
    finally:
        recorder.on = False


def _walk(module: Module, feed: dict[str, Any], tracing: Tracing, recorder: Recorder) -> None:
    if tracing.mode is Mode.INFERENCE:
        with torch.no_grad():
            output = _called(module, feed)
        _mark_outputs(output, recorder)
        return
    with torch.enable_grad():
        _step(module, feed, tracing, recorder)


def _called(module: Module, feed: Mapping[str, Any]) -> Any:
    """Call with the inputs by name where the module takes them so, and by position elsewhere."""
    args, kwargs = Forward.of(module).arguments(feed)
    return module(*args, **kwargs)


def _step(module: Module, feed: dict[str, Any], tracing: Tracing, recorder: Recorder) -> None:
    output = _called(module, feed)
    _mark_outputs(output, recorder)
    floats = [t for t in pytree.tree_leaves(_plain(output)) if isinstance(t, Tensor) and t.requires_grad]
    if not floats:
        raise RequestError(
            f"{type(module).__name__} gives nothing that depends on a trainable parameter, so it cannot be "
            "trained; inspect it with --mode inference."
        )
    loss = floats[0].square().sum()  # a stand-in for a loss: its gradient is as large as the outputs
    for more in floats[1:]:
        loss = loss + more.square().sum()
    parameters = [p for p in module.parameters() if p.requires_grad]
    recorder.phase = Phase.BACKWARD
    del output, floats
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for gradient in gradients:
        if isinstance(gradient, Shadow):
            recorder.held(gradient).role = Role.GRADIENT
    del loss
    recorder.phase = Phase.UPDATE
    recorder.path = [""]
    _update(parameters, gradients, tracing.optimizer, recorder)


# -- the optimiser ------------------------------------------------------------------------------------

_OPTIMIZERS: dict[str, Callable[[list[Any]], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-3),
}


def _update(parameters: list[Any], gradients: Any, name: str, recorder: Recorder) -> None:
    """Make the step twice: the first makes the state, the second is the one of a steady course."""
    if name == "none":
        return
    optimizer = _OPTIMIZERS[name]([p for p, g in zip(parameters, gradients, strict=True) if g is not None])
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    recorder.on = False
    with torch.no_grad():
        optimizer.step()
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                found = recorder.held(value if isinstance(value, Shadow) else recorder.of(value))
                found.role, found.born = Role.STATE, -1
    recorder.on = True
    with torch.no_grad():
        optimizer.step()
    recorder.on = False
    for parameter in parameters:
        parameter.grad = None


# -- before and after ---------------------------------------------------------------------------------


@contextmanager
def _in_mode(module: Module, mode: Mode) -> Iterator[None]:
    """Set the mode of training, where it can be set, and put it back."""
    before = [(part, part.training) for part in module.modules() if hasattr(part, "training")]
    for part, _ in before:
        part.training = mode is Mode.TRAIN
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def _weights(module: Module, stage: Stage, recorder: Recorder) -> dict[str, int]:
    """Enter parameters and buffers as memory that is there before, each storage once."""
    found: dict[str, int] = {}
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    for name, tensor in named:
        shadow = tensor if isinstance(tensor, Shadow) else stage.of(tensor)
        memory = recorder.held(shadow)
        memory.role, memory.born, memory.died = Role.WEIGHT, -1, None
        memory.scope = name.rpartition(".")[0]
        found[name] = recorder.index(shadow.place)
    return found


def _own_dtype(module: Module) -> torch.dtype | None:
    """Give the dtype of all floating-point weights, if it is not the usual one: inputs have it, too."""
    kinds = {p.dtype for p in module.parameters() if p.dtype.is_floating_point}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind in {torch.float16, torch.bfloat16, torch.float64} else None


def _keep(memory: Iterable[_Memory]) -> None:
    """Enter as there before what is no weight by name, such as a tensor among a module's attributes."""
    for found in memory:
        if found.role is Role.ACTIVATION and found.died is None:
            found.role, found.born = Role.WEIGHT, -1


def _input(stage: Stage, recorder: Recorder, spec: InputSpec, own: torch.dtype | None) -> Any:
    """Cast the shadow of an input; whole numbers get values within their range, masks are all ones."""
    kind = getattr(torch, spec.dtype or randoms.DEFAULT_DTYPE)
    kind = own if own is not None and kind is torch.float32 else kind
    shape = tuple(int(d) for d in spec.shape or ())
    values = None
    if not (kind.is_floating_point or kind.is_complex):
        size = 1
        for dimension in shape:
            size *= dimension
        if size <= _MOST_DRAWN:
            drawn = randoms.draw(replace(spec, shape=shape), (0,))
            with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001 - no public name
                values = torch.from_numpy(drawn)
    shadow = stage.shadow(shape, kind, values)
    memory = recorder.held(shadow)
    memory.role, memory.born, memory.scope = Role.INPUT, -1, spec.name
    return shadow


def _plain(output: Any) -> Any:
    """Open what torch's trees do not know, such as a cache of keys and values."""
    if isinstance(output, Tensor) or output is None or isinstance(output, str | int | float | bool):
        return output
    if isinstance(output, Mapping):
        return {str(key): _plain(value) for key, value in output.items()}
    if isinstance(output, list | tuple | set):
        return [_plain(value) for value in output]
    return [_plain(value) for value in vars(output).values()] if hasattr(output, "__dict__") else None


def _mark_outputs(output: Any, recorder: Recorder) -> None:
    for layer in getattr(getattr(output, "past_key_values", None), "layers", None) or ():
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if isinstance(tensor, Shadow):
                recorder.caches.append(recorder.index(tensor.place))
    for tensor in pytree.tree_leaves(_plain(output)):
        if isinstance(tensor, Shadow):
            recorder.held(tensor).output = True


def _picture(
    module: Module,
    tracing: Tracing,
    recorder: Recorder,
    weights: dict[str, int],
    assumptions: tuple[str, ...],
) -> Graph:
    storages = tuple(Storage(m.bytes, m.role, m.born, m.died, m.scope, m.output) for m in recorder.memory)
    return Graph(
        ops=tuple(recorder.ops),
        storages=storages,
        sizes=dict(tracing.sizes),
        modules={name: _class(part) for name, part in module.named_modules()},
        weights=weights,
        routings=tuple(recorder.routings),
        caches=tuple(dict.fromkeys(recorder.caches)),
        assumptions=assumptions,
    )


def _class(part: Module) -> str:
    """Name the class of a module, or that which a compiled one was made from."""
    return str(getattr(part, "original_name", type(part).__name__))


def _refusal(module: Module, tracing: Tracing, error: Exception, recorder: Recorder) -> str:
    lines = str(error).strip().splitlines() or [""]
    if "data is not allocated" in lines[0] or "data pointer" in lines[0]:
        lines = ["a kernel reads the numbers of a tensor, which an analysis does not have"]
    shapes = ", ".join(f"{spec.name}={'x'.join(map(str, spec.shape or ()))}" for spec in tracing.inputs)
    left, name = recorder.objected
    where = f" in {name}" if name and left == id(error) else ""
    return (
        f"{type(module).__name__} cannot be analysed with {shapes or 'no inputs'}: "
        f"{type(error).__name__}{where}: {lines[0][:300]}; give other shapes by --input."
    )


@contextmanager
def _scopes(module: Module, recorder: Recorder) -> Iterator[None]:
    """Know at every moment which module is being called."""
    names = {id(part): name for name, part in reversed(list(module.named_modules(remove_duplicate=False)))}
    depth: list[int] = []

    def enter(part: Module, _args: Any) -> None:
        name = names.get(id(part))
        depth.append(len(recorder.path))
        recorder.path.append(recorder.path[-1] if name is None else name)

    def leave(_part: Module, _args: Any, output: Any) -> None:
        error = sys.exc_info()[1] if output is None else None
        if error is not None and recorder.objected[0] != id(error):
            recorder.objected = id(error), recorder.path[-1]
        if depth:
            del recorder.path[depth.pop() :]

    before = torch.nn.modules.module.register_module_forward_pre_hook(enter)
    after = torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()


@contextmanager
def _collected() -> Iterator[None]:
    """Collect no garbage meanwhile: what lives how long is told by references alone."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _unsaved() -> Iterator[None]:
    """Refuse to save tensors before a file is opened, which would be left behind damaged."""

    def refuse(*_args: object, **_options: object) -> None:
        raise TypeError("Shadows cannot be saved.")

    before, torch.save = torch.save, refuse
    try:
        yield
    finally:
        torch.save = before


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)
