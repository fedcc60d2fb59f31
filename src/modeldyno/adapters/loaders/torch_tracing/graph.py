"""A torch module to the neutral Graph, by calling it on shadows: no weights, no numbers, any size."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from modeldyno.adapters.loaders import torch_module
from modeldyno.adapters.loaders.torch_tracing.assumed_flags import Flags
from modeldyno.adapters.loaders.torch_tracing.context import (
    alone,
    attributes,
    collected,
    copied,
    eager,
    has_compiler,
    in_mode,
    unwritten,
)
from modeldyno.adapters.loaders.torch_tracing.dispatch import Stage
from modeldyno.adapters.loaders.torch_tracing.errors import Objection
from modeldyno.adapters.loaders.torch_tracing.meta_tensor import Shadow
from modeldyno.adapters.loaders.torch_tracing.recorder import Memory, Recorder
from modeldyno.core.spec.static_options import Mode
from modeldyno.core.static.graph import Graph, Phase, Role, Storage
from modeldyno.data import random_arrays
from modeldyno.data.torch_signature import Forward
from modeldyno.errors import ModelDynoError, RequestError

if TYPE_CHECKING:
    from numpy import ndarray
    from torch.nn import Module

    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces import Tracing

_MOST_DRAWN = 2**20
"""Elements of an input that get values."""


# -- the course ---------------------------------------------------------------------------------------


def build(make: Callable[[], Any]) -> tuple[Any, Stage]:
    """Make a module on a stage of its own, so that its weights take neither memory nor time."""
    stage = Stage(Recorder(), assumes=False)
    with alone(), unwritten(), stage:
        made = make()
    stage.assumes = True
    return made, stage


def shadowed(module: Module) -> tuple[Module, Stage]:
    """Copy a module's structure onto a stage; its weights stay where they are."""
    stage = Stage(Recorder())
    with alone(), stage:
        memo: dict[int, Any] = {}
        for tensor in (*module.parameters(), *module.buffers(), *attributes(module)):
            shadow = stage.like(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                shadow = torch.nn.Parameter(shadow, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = shadow
        return copied(module, memo), stage


def graph(module: Module, stage: Stage, tracing: Tracing) -> Graph:
    """Call a module on its stage and write down what happens.

    Where it raises an error, that may be for a flag that was made up, as a check of numbers that are not
    computed does: it is called anew with the other flag, and what counts if that fails is the first error.

    Raises:
        RequestError: the module cannot be called with such inputs, or an operator has no shapes.
    """
    stage.flags = Flags()
    first: Objection | None = None
    while True:
        compiler = has_compiler()
        try:
            found = _attempt(module, stage, tracing)
            if has_compiler() == compiler:
                return found
        except Objection as objection:
            if has_compiler() == compiler:
                first = first or objection
                if not stage.flags.reconsider():
                    raise RequestError(str(first)) from first.__cause__
                continue
        stage.flags = Flags()  # the course may have compiled something, which is to run as it was written


def _attempt(module: Module, stage: Stage, tracing: Tracing) -> Graph:
    made = stage.witness
    assert isinstance(made, Recorder)
    stage.forget()
    recorder = Recorder(memory=[replace(m) for m in made.memory], before=made, of=stage.of)
    stage.witness = recorder
    stage.assumptions.clear()
    try:
        with alone(), eager(), stage, collected(), in_mode(module, tracing.mode):
            recorder.flat = _flat(module)
            _weights(module, stage, recorder)
            _keep(recorder.memory)
            kind = _own_dtype(module)
            feed = {
                spec.name: _input(stage, recorder, spec, kind, tracing.values.get(spec.name))
                for spec in tracing.inputs
            }
            with _scopes(module, recorder):
                _course(module, feed, tracing, recorder, stage)
            _keep(recorder.memory[recorder.index(place)] for place in stage.brought())
            return _picture(module, tracing, recorder, tuple(stage.assumptions))
    finally:
        stage.witness = made


def _course(module: Module, feed: dict[str, Any], tracing: Tracing, recorder: Recorder, stage: Stage) -> None:
    recorder.on = recorder.begun = True
    try:
        _walk(module, feed, tracing, recorder, stage)
    except ModelDynoError:
        raise
    except Exception as error:
        raise Objection.of(module, tracing, error, recorder) from error
    finally:
        recorder.on = False


def _walk(module: Module, feed: dict[str, Any], tracing: Tracing, recorder: Recorder, stage: Stage) -> None:
    if tracing.mode is Mode.INFERENCE:
        with torch.no_grad():
            output = _called(module, feed)
        _mark_outputs(output, recorder)
        return
    with torch.enable_grad():
        _step(module, feed, tracing, recorder, stage)


def _called(module: Module, feed: Mapping[str, Any]) -> Any:
    """Call with the inputs by name where the module takes them so, and by position elsewhere."""
    args, kwargs = Forward.of(module).arguments(feed)
    return module(*args, **kwargs)


def _step(module: Module, feed: dict[str, Any], tracing: Tracing, recorder: Recorder, stage: Stage) -> None:
    output = _called(module, feed)
    _mark_outputs(output, recorder)
    floats = [t for t in pytree.tree_leaves(_plain(output)) if isinstance(t, Tensor) and t.requires_grad]
    if not floats:
        raise RequestError(
            f"{type(module).__name__} gives nothing that depends on a trainable parameter, so it cannot be "
            "trained; inspect it with --mode inference."
        )
    loss = _loss(floats, stage)
    parameters = [p for p in module.parameters() if p.requires_grad]
    recorder.phase = Phase.BACKWARD
    del output, floats
    for parameter in parameters:
        parameter.grad = None
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in parameters]
    for gradient in gradients:
        if isinstance(gradient, Shadow):
            recorder.held(gradient).role = Role.GRADIENT
    del loss
    recorder.phase = Phase.UPDATE
    recorder.path = [""]
    _update(parameters, gradients, tracing.optimizer, recorder)


def _loss(floats: list[Tensor], stage: Stage) -> Tensor:
    """Take a single number for the loss that it is; else sum up squares, whose gradient is as large."""
    if len(floats) == 1 and floats[0].numel() == 1:
        return floats[0].sum()
    stage.assume("the loss is taken as the sum of the squares of all that the model gives")
    loss = floats[0].square().sum()
    for more in floats[1:]:
        loss = loss + more.square().sum()
    return loss


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


# -- what is there before -----------------------------------------------------------------------------


def _weights(module: Module, stage: Stage, recorder: Recorder) -> None:
    """Enter parameters and buffers as memory that is there before, each storage once."""
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    for name, tensor in named:
        for part in torch_module.plain_parts(tensor):
            memory = recorder.held(stage.as_shadow(part))
            memory.role, memory.born, memory.died = Role.WEIGHT, -1, None
            memory.scope = name.rpartition(".")[0]
    for packed in torch_module.packed_weights(module):
        recorder.memory.append(Memory(packed.bytes, -1, packed.name.rpartition(".")[0], Role.WEIGHT))


def _flat(module: Module) -> frozenset[str]:
    """Name modules that were exported, compiled or scripted, and their parts: these are not called."""
    kinds = (torch.fx.GraphModule, torch.jit.ScriptModule)
    named = dict(module.named_modules())
    flat = [name for name, part in named.items() if isinstance(part, kinds)]
    return frozenset(
        name for name in named if any(not f or name == f or name.startswith(f"{f}.") for f in flat)
    )


def _own_dtype(module: Module) -> torch.dtype | None:
    """Give the dtype of all floating-point weights, if it is not the usual one: inputs have it, too."""
    kinds = {p.dtype for p in module.parameters() if p.dtype.is_floating_point}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind in {torch.float16, torch.bfloat16, torch.float64} else None


def _keep(memory: Iterable[Memory]) -> None:
    """Enter as there before what is no weight by name, such as a tensor among a module's attributes."""
    for found in memory:
        if found.role is Role.ACTIVATION and found.died is None:
            found.role, found.born = Role.WEIGHT, -1


def _input(
    stage: Stage, recorder: Recorder, spec: InputSpec, own: torch.dtype | None, real: ndarray | None
) -> Any:
    """Cast the shadow of an input: with its real values, or whole numbers drawn within their range."""
    if real is not None and real.dtype == object:
        return _nested(stage, recorder, spec, own, real.item())
    kind = getattr(torch, spec.dtype or random_arrays.DEFAULT_DTYPE)
    kind = own if own is not None and kind is torch.float32 else kind
    shape = tuple(int(d) for d in spec.shape or ())
    values = None
    if real is not None and real.size <= _MOST_DRAWN:
        with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001 - no public name
            values = torch.tensor(real, dtype=kind)
    elif not (kind.is_floating_point or kind.is_complex):
        size = 1
        for dimension in shape:
            size *= dimension
        if size <= _MOST_DRAWN:
            drawn = random_arrays.draw(replace(spec, shape=shape), (0,))
            with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001 - no public name
                values = torch.from_numpy(drawn)
    shadow = stage.shadow(shape, kind, values)
    memory = recorder.held(shadow)
    memory.role, memory.born, memory.scope = Role.INPUT, -1, spec.name
    return shadow


def _nested(stage: Stage, recorder: Recorder, spec: InputSpec, own: torch.dtype | None, value: Any) -> Any:
    """Cast the shadows of the arrays in a list or dict."""

    def each(leaf: Any) -> Any:
        if not hasattr(leaf, "ndim"):
            return leaf
        shape, dtype = tuple(leaf.shape), str(leaf.dtype)
        steers = not leaf.ndim or leaf.dtype.kind in "iub"
        inner = replace(spec, shape=shape, dtype=dtype)
        return _input(stage, recorder, inner, own, leaf if steers else None)

    return pytree.tree_map(each, value)


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
    # Its name is `cache` from transformers 5.24 on.
    cache = getattr(output, "cache", None) or getattr(output, "past_key_values", None)
    cache = getattr(cache, "self_attention_cache", cache)  # that of an encoder's output does not grow
    for layer in getattr(cache, "layers", None) or ():
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
    assumptions: tuple[str, ...],
) -> Graph:
    storages = tuple(Storage(m.bytes, m.role, m.born, m.died, m.scope, m.output) for m in recorder.memory)
    return Graph(
        ops=tuple(recorder.ops),
        storages=storages,
        sizes=dict(tracing.sizes),
        modules={name: _class(part) for name, part in module.named_modules()},
        outputs=dict(recorder.outputs),
        routings=tuple(recorder.routings),
        caches=tuple(dict.fromkeys(recorder.caches)),
        assumptions=assumptions,
    )


def _described(output: Any) -> str:
    """Write shape and dtype of the first tensor of what a module gave; empty where there is none."""
    tensors = list(_tensors(output))
    if not tensors:
        return ""
    first, more = tensors[0], len(tensors) - 1
    shape = "x".join(map(str, first.shape)) or "scalar"
    return f"{shape} {torch_module.dtype_name(first.dtype)}{f' and {more} more' if more else ''}"


def _tensors(output: Any) -> Iterator[Tensor]:
    """Give the tensors of plain containers; objects such as a cache of keys and values stay closed."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping | list | tuple):
        for value in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(value)


def _class(part: Module) -> str:
    """Name the class of a module, or that which a compiled one was made from."""
    return str(getattr(part, "original_name", type(part).__name__))


@contextmanager
def _scopes(module: Module, recorder: Recorder) -> Iterator[None]:
    """Know at every moment which module is being called."""
    names = {id(part): name for name, part in reversed(list(module.named_modules(remove_duplicate=False)))}
    depth: list[int] = []

    def enter(part: Module, _args: Any) -> None:
        name = names.get(id(part))
        depth.append(len(recorder.path))
        recorder.path.append(recorder.path[-1] if name is None else name)

    def leave(part: Module, _args: Any, output: Any) -> None:
        error = sys.exc_info()[1] if output is None else None
        if error is not None and recorder.objected[0] != id(error):
            recorder.objected = id(error), recorder.path[-1]
        if error is None and (name := names.get(id(part))) is not None and (text := _described(output)):
            recorder.outputs[name] = text
        if depth:
            del recorder.path[depth.pop() :]

    before = torch.nn.modules.module.register_module_forward_pre_hook(enter)
    after = torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
