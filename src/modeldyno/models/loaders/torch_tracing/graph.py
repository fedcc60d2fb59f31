"""Trace a torch module into the neutral Graph by calling it on meta tensors: no weights, any size."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from modeldyno.base.errors import InputRefused, ModelDynoError, RequestError
from modeldyno.base.job.static_options import Mode
from modeldyno.models import random_arrays
from modeldyno.models.loaders import torch_weights
from modeldyno.models.loaders.torch_tracing.context import (
    analysis_lock,
    copy_module,
    forbid_file_writes,
    force_eager,
    has_compiler,
    tensor_attributes,
    training_mode,
    without_garbage_collection,
)
from modeldyno.models.loaders.torch_tracing.dispatch import AssumedFlags, MetaDispatchMode
from modeldyno.models.loaders.torch_tracing.meta_tensor import META, MetaTensor, is_small
from modeldyno.models.loaders.torch_tracing.recorder import RecordedStorage, Recorder
from modeldyno.models.static.graph import Graph, Phase, Role, Storage
from modeldyno.models.static.source_line import format_error_location
from modeldyno.models.torch_signature import Forward

if TYPE_CHECKING:
    from numpy import ndarray
    from torch.nn import Module

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.models.interface import Tracing

_MAX_INPUT_VALUES = 2**20
"""Elements up to which an input gets values."""


# -- the call -----------------------------------------------------------------------------------------


def build_on_meta(make: Callable[[], Any]) -> tuple[Any, MetaDispatchMode]:
    """Build a module under its own dispatch mode, so that its weights take neither memory nor time."""
    dispatch_mode = MetaDispatchMode(Recorder(), assumes=False)
    with analysis_lock(), forbid_file_writes(), dispatch_mode:
        module = make()
    dispatch_mode.assumes = True
    return module, dispatch_mode


def copy_to_meta(module: Module, dtype: str = "") -> tuple[Module, MetaDispatchMode]:
    """Copy a module's structure onto meta tensors; its weights stay where they are.

    With a `dtype`, the copy has the weights that the module would have after ``module.to(dtype)``.
    """
    if dtype:
        module = _copy_converted(module, getattr(torch, dtype))
    dispatch_mode = MetaDispatchMode(Recorder())
    with analysis_lock(), dispatch_mode:
        memo: dict[int, Any] = {}
        for tensor in (*module.parameters(), *module.buffers(), *tensor_attributes(module)):
            meta_tensor = dispatch_mode.mirror(tensor)
            if isinstance(tensor, torch.nn.Parameter):
                meta_tensor = torch.nn.Parameter(meta_tensor, requires_grad=tensor.requires_grad)
            memo[id(tensor)] = meta_tensor
        return copy_module(module, memo), dispatch_mode


def _copy_converted(module: Module, dtype: torch.dtype) -> Module:
    """Copy a module's structure with its weights converted; the values of large ones are not kept."""
    memo: dict[int, Any] = {id(tensor): tensor for tensor in tensor_attributes(module)}
    for tensor in (*module.parameters(), *module.buffers()):
        plain = tensor.is_floating_point() and not hasattr(tensor, "__tensor_flatten__")
        if not plain or tensor.dtype is dtype:
            memo[id(tensor)] = tensor
            continue
        converted = tensor.detach()
        converted = (
            converted.to(dtype) if is_small(tensor) else torch.empty_like(converted, dtype=dtype, device=META)
        )
        if isinstance(tensor, torch.nn.Parameter):
            converted = torch.nn.Parameter(converted, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = converted
    return copy_module(module, memo)


def trace_module(module: Module, dispatch_mode: MetaDispatchMode, tracing: Tracing) -> Graph:
    """Call a module under its dispatch mode and record what happens.

    An error may come from a flag that was made up, as of a check of values that are not computed: the module
    is called again with the other flag, and if that fails the first error is reported.

    Raises:
        InputRefused: the module cannot be called with such inputs, or an operator has no shapes.
    """
    dispatch_mode.flags = AssumedFlags()
    first: AnalysisError | None = None
    while True:
        compiler = has_compiler()
        try:
            result = _trace_once(module, dispatch_mode, tracing)
            if has_compiler() == compiler:
                return result
        except AnalysisError as objection:
            if has_compiler() == compiler:
                first = first or objection
                if not dispatch_mode.flags.reconsider():
                    raise InputRefused(str(first)) from first.__cause__
                continue
        dispatch_mode.flags = (
            AssumedFlags()
        )  # the call may have compiled something, which must run uncompiled


def _trace_once(module: Module, dispatch_mode: MetaDispatchMode, tracing: Tracing) -> Graph:
    build_recorder = dispatch_mode.listener
    assert isinstance(build_recorder, Recorder)
    dispatch_mode.drop_unreferenced()
    recorder = Recorder(
        memory=[replace(m) for m in build_recorder.memory],
        before=build_recorder,
        meta_tensor_of=dispatch_mode.meta_tensor_of,
    )
    dispatch_mode.listener = recorder
    dispatch_mode.assumptions.clear()
    try:
        with (
            analysis_lock(),
            force_eager(),
            dispatch_mode,
            without_garbage_collection(),
            training_mode(module, tracing.mode),
            _room_for_hooks(module),
        ):
            recorder.uncalled = _uncalled_modules(module)
            _add_weights(module, dispatch_mode, recorder)
            existing = _mark_existing(recorder.memory)
            dtype = _weight_dtype(module)
            feed = {
                spec.name: _make_input(dispatch_mode, recorder, spec, dtype, tracing.values.get(spec.name))
                for spec in tracing.inputs
            }
            with _track_scopes(module, recorder):
                _record_call(module, feed, tracing, recorder, dispatch_mode)
            _drop_foreign(module, existing, recorder, dispatch_mode)
            _mark_existing(
                recorder.memory[recorder.index(handle)] for handle in dispatch_mode.external_handles()
            )
            return _build_graph(module, tracing, recorder, tuple(dispatch_mode.assumptions))
    finally:
        dispatch_mode.listener = build_recorder


def _record_call(
    module: Module,
    feed: dict[str, Any],
    tracing: Tracing,
    recorder: Recorder,
    dispatch_mode: MetaDispatchMode,
) -> None:
    recorder.recording = recorder.call_begun = True
    try:
        if tracing.mode is Mode.INFERENCE:
            with torch.no_grad():
                _mark_outputs(_call_module(module, feed), recorder)
        else:
            with torch.enable_grad():
                _training_step(module, feed, tracing, recorder, dispatch_mode)
    except ModelDynoError:
        raise
    except Exception as error:
        raise AnalysisError.of(module, tracing, error, recorder) from error
    finally:
        recorder.recording = False


def _call_module(module: Module, feed: Mapping[str, Any]) -> Any:
    """Call the module with inputs by keyword where its signature allows, else by position."""
    args, kwargs = Forward.of(module).arguments(feed)
    return module(*args, **kwargs)


def _training_step(
    module: Module,
    feed: dict[str, Any],
    tracing: Tracing,
    recorder: Recorder,
    dispatch_mode: MetaDispatchMode,
) -> None:
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    if any(isinstance(part, embeddings) and part.sparse for part in module.modules()):
        raise RequestError(
            f"{type(module).__name__} has sparse gradients, whose steps can be timed but not counted; give "
            "its embeddings sparse=False to count them."
        )
    output = _call_module(module, feed)
    _mark_outputs(output, recorder)
    floats = [
        t for t in pytree.tree_leaves(_plain_containers(output)) if isinstance(t, Tensor) and t.requires_grad
    ]
    if not floats:
        raise RequestError(
            f"{type(module).__name__} returns nothing that depends on a trainable parameter, so it cannot be "
            "trained; inspect it with `mode=inference`."
        )
    loss = _training_loss(floats, dispatch_mode)
    parameters = [p for p in module.parameters() if p.requires_grad]
    recorder.phase = Phase.BACKWARD
    del output, floats
    for parameter in parameters:
        parameter.grad = None
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in parameters]
    for gradient in gradients:
        if isinstance(gradient, MetaTensor):
            recorder.memory_of(gradient).role = Role.GRADIENT
    del loss
    recorder.phase = Phase.UPDATE
    recorder.path = [""]
    _optimizer_step(parameters, gradients, tracing.optimizer, recorder)


def _training_loss(floats: list[Tensor], dispatch_mode: MetaDispatchMode) -> Tensor:
    """Use a single number as the loss; otherwise sum squares, whose gradient has the same size."""
    if len(floats) == 1 and floats[0].numel() == 1:
        return floats[0].sum()
    dispatch_mode.assume("the loss is taken as the sum of the squares of all model outputs")
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
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-3),
}


def _optimizer_step(parameters: list[Any], gradients: Any, name: str, recorder: Recorder) -> None:
    """Step twice: the first step creates the state, the second is a steady-state step."""
    if name == "none":
        return
    optimizer = _OPTIMIZERS[name]([p for p, g in zip(parameters, gradients, strict=True) if g is not None])
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    recorder.recording = False
    with torch.no_grad():
        optimizer.step()
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                memory = recorder.memory_of(
                    value if isinstance(value, MetaTensor) else recorder.meta_tensor_of(value)
                )
                memory.role, memory.born = Role.STATE, -1
    recorder.recording = True
    with torch.no_grad():
        optimizer.step()
    recorder.recording = False
    for parameter in parameters:
        parameter.grad = None


# -- memory that exists before the call -----------------------------------------------------------------


def _add_weights(module: Module, dispatch_mode: MetaDispatchMode, recorder: Recorder) -> None:
    """Add parameters and buffers as memory that exists before the call, each storage once."""
    named_tensors = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    for name, tensor in named_tensors:
        for part in torch_weights.plain_parts(tensor):
            memory = recorder.memory_of(dispatch_mode.as_meta_tensor(part))
            memory.role, memory.born, memory.died = Role.WEIGHT, -1, None
            memory.scope = name.rpartition(".")[0]
    for packed in torch_weights.packed_weights(module):
        recorder.memory.append(RecordedStorage(packed.bytes, -1, packed.name.rpartition(".")[0], Role.WEIGHT))


def _uncalled_modules(module: Module) -> frozenset[str]:
    """Name exported, compiled or scripted modules and their parts: their parts are not called."""
    uncalled_types = (torch.fx.GraphModule, torch.jit.ScriptModule)
    named = dict(module.named_modules())
    roots = [name for name, part in named.items() if isinstance(part, uncalled_types)]
    return frozenset(
        name
        for name in named
        if any(not root or name == root or name.startswith(f"{root}.") for root in roots)
    )


def _weight_dtype(module: Module) -> torch.dtype | None:
    """Return the dtype of all floating-point weights if it is not float32; inputs get it too."""
    dtypes = {p.dtype for p in module.parameters() if p.dtype.is_floating_point}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    return dtype if dtype in {torch.float16, torch.bfloat16, torch.float64} else None


def _mark_existing(memory: Iterable[RecordedStorage]) -> list[RecordedStorage]:
    """Mark and return memory that exists before the call but is no named weight, such as tensors in lists."""
    marked = [entry for entry in memory if entry.role is Role.ACTIVATION and entry.died is None]
    for entry in marked:
        entry.role, entry.born = Role.WEIGHT, -1
    return marked


def _drop_foreign(
    module: Module, existing: list[RecordedStorage], recorder: Recorder, dispatch_mode: MetaDispatchMode
) -> None:
    """Drop what neither the call uses nor the module holds, such as another model of the same file."""
    operands = (tensor for op in recorder.ops for tensor in (*op.tensors(), *op.outputs))
    used = {tensor.storage for tensor in operands if tensor.storage >= 0}
    used.update(
        recorder.index(dispatch_mode.as_meta_tensor(part).handle)
        for tensor in tensor_attributes(module)
        for part in torch_weights.plain_parts(tensor)
    )
    ours = {id(recorder.memory[index]) for index in used}
    for entry in existing:
        if id(entry) not in ours and not entry.output:
            entry.bytes = 0


def _make_input(
    dispatch_mode: MetaDispatchMode,
    recorder: Recorder,
    spec: InputSpec,
    weight_dtype: torch.dtype | None,
    array: ndarray | None,
) -> Any:
    """Make the meta tensor of an input, with its real values or with integers drawn from its range."""
    if array is not None and array.dtype == object:
        return _make_nested_input(dispatch_mode, recorder, spec, weight_dtype, array.item())
    dtype = getattr(torch, spec.dtype or random_arrays.DEFAULT_DTYPE)
    dtype = weight_dtype if weight_dtype is not None and dtype is torch.float32 else dtype
    shape = tuple(int(d) for d in spec.shape or ())
    values = None
    if array is not None and array.size <= _MAX_INPUT_VALUES:
        with torch.utils._python_dispatch._disable_current_modes():
            values = torch.tensor(array, dtype=dtype)
    elif not (dtype.is_floating_point or dtype.is_complex):
        size = 1
        for dimension in shape:
            size *= dimension
        if size <= _MAX_INPUT_VALUES:
            integers = random_arrays.draw_array(replace(spec, shape=shape), (0,))
            with torch.utils._python_dispatch._disable_current_modes():
                values = torch.from_numpy(integers)
    meta_tensor = dispatch_mode.make_tensor(shape, dtype, values)
    memory = recorder.memory_of(meta_tensor)
    memory.role, memory.born, memory.scope = Role.INPUT, -1, spec.name
    return meta_tensor


def _make_nested_input(
    dispatch_mode: MetaDispatchMode,
    recorder: Recorder,
    spec: InputSpec,
    weight_dtype: torch.dtype | None,
    value: Any,
) -> Any:
    """Make meta tensors of the arrays in a list or dict."""

    def convert(leaf: Any) -> Any:
        if not hasattr(leaf, "ndim"):
            return leaf
        shape, dtype = tuple(leaf.shape), str(leaf.dtype)
        steers = not leaf.ndim or leaf.dtype.kind in "iub"
        inner = replace(spec, shape=shape, dtype=dtype)
        return _make_input(dispatch_mode, recorder, inner, weight_dtype, leaf if steers else None)

    return pytree.tree_map(convert, value)


def _plain_containers(output: Any) -> Any:
    """Convert to plain containers what torch's pytrees do not know, such as a key-value cache."""
    if isinstance(output, Tensor) or output is None or isinstance(output, str | int | float | bool):
        return output
    if isinstance(output, Mapping):
        return {str(key): _plain_containers(value) for key, value in output.items()}
    if isinstance(output, list | tuple | set):
        return [_plain_containers(value) for value in output]
    return (
        [_plain_containers(value) for value in vars(output).values()] if hasattr(output, "__dict__") else None
    )


def _mark_outputs(output: Any, recorder: Recorder) -> None:
    # Its name is `cache` from transformers 5.24 on.
    cache = getattr(output, "cache", None) or getattr(output, "past_key_values", None)
    cache = getattr(cache, "self_attention_cache", cache)  # the cross-attention cache does not grow
    for layer in getattr(cache, "layers", None) or ():
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if isinstance(tensor, MetaTensor):
                recorder.caches.append(recorder.index(tensor.handle))
    for tensor in pytree.tree_leaves(_plain_containers(output)):
        if isinstance(tensor, MetaTensor):
            recorder.memory_of(tensor).output = True


def _build_graph(
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
        modules={name: _class_name(part) for name, part in module.named_modules()},
        outputs=dict(recorder.outputs),
        routings=tuple(recorder.routings),
        caches=tuple(dict.fromkeys(recorder.caches)),
        assumptions=assumptions,
    )


def _describe_output(output: Any) -> str:
    """Describe shape and dtype of the first tensor of a module's output; empty where there is none."""
    tensors = list(_tensors(output))
    if not tensors:
        return ""
    first, more = tensors[0], len(tensors) - 1
    shape = "x".join(map(str, first.shape)) or "scalar"
    return f"{shape} {torch_weights.dtype_name(first.dtype)}{f' and {more} more' if more else ''}"


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yield the tensors of plain containers; objects such as a key-value cache stay closed."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping | list | tuple):
        for value in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(value)


def _class_name(part: Module) -> str:
    """Return the class name of a module, or of the original of a compiled one."""
    return str(getattr(part, "original_name", type(part).__name__))


@contextmanager
def _room_for_hooks(module: Module) -> Iterator[None]:
    """Allow for the frames that hooks add at each level of nested modules: a call without them has room."""
    depth = max(name.count(".") for name, _ in module.named_modules())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _FRAMES_OF_HOOKS * min(depth, limit))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


_FRAMES_OF_HOOKS = 8


@contextmanager
def _track_scopes(module: Module, recorder: Recorder) -> Iterator[None]:
    """Track which module is being called."""
    names = {id(part): name for name, part in reversed(list(module.named_modules(remove_duplicate=False)))}
    depth: list[int] = []

    def enter(part: Module, _args: Any) -> None:
        name = names.get(id(part))
        depth.append(len(recorder.path))
        recorder.path.append(recorder.path[-1] if name is None else name)

    def leave(part: Module, _args: Any, output: Any) -> None:
        error = sys.exc_info()[1] if output is None else None
        if error is not None and recorder.failed_in[0] != id(error):
            recorder.failed_in = id(error), recorder.path[-1]
        if error is None and (name := names.get(id(part))) is not None and (text := _describe_output(output)):
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


class AnalysisError(Exception):
    """An error raised by the model while it is traced, explained; a made-up flag may have caused it."""

    @classmethod
    def of(cls, module: Module, tracing: Tracing, error: Exception, recorder: Recorder) -> Self:
        """Describe the call, its shapes, the error, the module it came from, and what to do."""
        message = (str(error).strip().splitlines() or [""])[0]
        if "data is not allocated" in message or "data pointer" in message:
            message = "a kernel reads the values of a tensor, which an analysis does not have"
        shapes = ", ".join(f"{spec.name}={'x'.join(map(str, spec.shape or ()))}" for spec in tracing.inputs)
        error_id, name = recorder.failed_in
        line = format_error_location(error)
        location = f" ({line})" if line else ""
        where = f" in {name[:_SHOWN_OF_NAME]}" if name and error_id == id(error) else ""
        return cls(
            f"{type(module).__name__} cannot be analysed with {shapes or 'no inputs'}: "
            f"{type(error).__name__}{where}: {message[:300]}{location}{_advice(error)}."
        )


_SHOWN_OF_NAME = 100


def _advice(error: Exception) -> str:
    """Return advice where torch or the model rejects the inputs."""
    about_inputs = isinstance(error, RuntimeError | ValueError | TypeError | IndexError | AssertionError)
    about_inputs = about_inputs and not isinstance(error, RecursionError)
    return "; give other shapes by `inputs`" if about_inputs else ""
