"""Records the data flow of one call of a torch module, for `engine.trace.redundant_ops`.

Two torch modes work together. A function mode sees each call that the model's code makes, by its Python
name, with its inputs and outputs, including calls that are no-ops on this device. A dispatch mode sees the
operators inside: which memory they write, whether the host waits for them, and how long they take.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.engine.backends.output_leaves import leaves
from modeldyno.engine.backends.torch.module_ranges import (
    eager_module,
    watch_all_module_calls,
    watch_module_calls,
)
from modeldyno.engine.trace.dataflow import HOST, DataFlow, FlowStep, TensorView, TrackedCall
from modeldyno.models.static.source_line import is_user_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import FrameType

    from torch import device
    from torch.nn import Module

_METADATA_CALLS = frozenset({
    "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "storage_offset",
    "is_contiguous", "is_floating_point", "is_complex", "get_device", "untyped_storage", "data_ptr",
    "__get__", "__set__", "__repr__", "__hash__", "__len__", "has_names",
})  # fmt: skip
"""Calls that read a tensor's metadata, not its values."""
_OURS = __name__.partition(".")[0]
_SYNCHRONISING = frozenset({
    "_local_scalar_dense", "item", "is_nonzero", "nonzero", "nonzero_numpy", "masked_select", "equal",
    "allclose", "argwhere", "_unique", "_unique2", "unique_dim", "unique_consecutive",
})  # fmt: skip
"""Operators that copy values to the host, or whose output size depends on values: the host waits for them."""


def record_flow(run: Callable[[], Any], callee: Callable[..., Any], place: device) -> DataFlow | None:
    """Record one call of `run`, which binds a payload to a module; None if that is compiled.

    It is recorded twice, and each step has the shorter of its two times, as the first call warms up and
    either may be disturbed. The function mode switches off a few fused paths of torch (those of
    nn.TransformerEncoderLayer), so that the unfused path is recorded there.
    """
    module = eager_module(callee)
    if module is None:
        return None
    flows = []
    for _ in range(2):
        recorder = _Recorder(place)
        weights = recorder.storages(module.parameters())
        payload = (getattr(run, "args", ()), getattr(run, "keywords", {}))
        inputs = recorder.storages([*module.buffers(), *_tensors(payload)])
        with recorder.recording(module):
            output = run()
        flows.append(recorder.flow(weights, inputs, output))
        del output
    first, second = flows
    return second.quicker(first)


def follow_code(most: int, *, partly: bool = False) -> Callable[[], DataFlow | None]:
    """Begin to record what the code of this thread does from here on; return what ends it.

    What is recorded is None after more than `most` steps, or `partly` the first of them. Where compiled
    code may run nothing is recorded.
    Values that outlive the code count as kept, as whoever called it may use them.
    """
    import torch  # heavy

    if _compiled_frames():
        return lambda: None
    cuda: Any = torch.cuda
    recorder = _Recorder(torch.device("cuda" if cuda.is_initialized() else HOST), most)
    with _Recorder(torch.device(HOST)).recording(None):
        torch.zeros(1).sum()  # torch imports much for the first call in its modes
    watching = ExitStack()
    watching.enter_context(recorder.recording(None))

    def end() -> DataFlow | None:
        watching.close()
        return recorder.flow_of_code(partly=partly)

    return end


@dataclass(slots=True)
class _Entry:
    """A Step being recorded."""

    name: str
    scope: str
    inputs: tuple[TensorView, ...]
    line: str = ""
    place: str = ""
    literal: bool = False
    listed: int = 0
    names_dtype: bool = False
    outputs: tuple[TensorView, ...] = ()
    writes: set[int] = field(default_factory=set)
    awaited: tuple[TensorView, ...] = ()
    time: float = 0.0
    marks: list[tuple[Any, Any]] = field(default_factory=list)
    """Device events before and after each operator."""

    def step(self) -> FlowStep:
        """Return the Step; the device must have finished."""
        created = {value.storage for value in self.outputs} - {value.storage for value in self.inputs}
        return FlowStep(
            name=self.name,
            scope=self.scope,
            line=self.line,
            inputs=self.inputs,
            outputs=self.outputs,
            writes=frozenset(self.writes - created),
            awaited=self.awaited,
            place=self.place,
            literal=self.literal,
            listed=self.listed,
            names_dtype=self.names_dtype,
            time=self.time + sum(begin.elapsed_time(end) * 1e-3 for begin, end in self.marks),
        )


def _compiled_frames() -> int:
    """Return how many pieces of code this process has compiled."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("frames", {}).get("ok", 0))


@contextmanager
def _unseen() -> Iterator[None]:
    """Take the two innermost modes away, and our hooks on all modules."""
    from torch import overrides  # heavy
    from torch.nn.modules import module as modules  # heavy
    from torch.utils import _python_dispatch  # heavy

    hooks: tuple[Any, ...] = (modules._global_forward_pre_hooks, modules._global_forward_hooks)
    ours = {key for table in hooks for key, hook in table.items() if hook.__module__.startswith(_OURS)}
    tables = (*hooks, modules._global_forward_hooks_always_called)
    with ExitStack() as stack:
        stack.enter_context(overrides._pop_mode_temporarily())
        stack.enter_context(_python_dispatch._pop_mode_temporarily())
        for table in tables:
            own = {key: table.pop(key) for key in ours & table.keys()}
            stack.callback(table.update, own)
        yield


class _Recorder:
    """Collects what both torch modes see."""

    def __init__(self, place: device, most: int = sys.maxsize) -> None:
        import torch  # heavy

        self._most = most
        self._torch = torch
        self._library = None if place.type == HOST else getattr(torch, place.type)
        self._place = place
        self._references: dict[int, Any] = {}
        self._parameters: set[int] = set()
        self._entries: list[_Entry] = []
        self._open: _Entry | None = None
        self._path: list[str] = []
        self._functions: Any = None
        """The function mode, while it records."""
        self._alive_at_end: set[int] | None = None
        """What was alive when a flow was cut off."""
        self._tracked: list[tuple[str, str, list[bool]]] = []
        """Class and line of each call of a module under autograd; the list is empty without a gradient."""

    @contextmanager
    def recording(self, module: Module | None) -> Iterator[None]:
        """Record what runs; module hooks keep track of the current module, with None of any."""
        from torch.overrides import TorchFunctionMode  # heavy
        from torch.utils._python_dispatch import TorchDispatchMode  # heavy

        recorder = self

        class Functions(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                del types
                return recorder.record_call(func, args, kwargs or {}, sys._getframe(1))

        class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]  # not annotated
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                del types
                return recorder.record_operator(func, args, kwargs or {})

        with ExitStack() as stack:
            stack.enter_context(
                watch_all_module_calls(self._path.append, self._path.pop, self._track)
                if module is None
                else watch_module_calls(module, self._path.append, lambda _path: self._path.pop())
            )
            stack.enter_context(Operators())  # type: ignore[no-untyped-call]  # the same
            self._functions = stack.enter_context(Functions())
            if module is None:
                stack.enter_context(self._compiled_code_as_one_step())
            yield
        self._functions = None
        if self._library is not None:
            self._library.synchronize(self._place)

    @contextmanager
    def _compiled_code_as_one_step(self) -> Iterator[None]:
        """Let what torch.compile makes from here on run compiled: with modes and hooks it runs eagerly."""
        torch: Any = self._torch
        compile_code = torch.compile

        def followed_compile(model: Any = None, **options: Any) -> Any:
            if model is None:  # a decorator with options
                return lambda function: followed_compile(function, **options)
            compiled = compile_code(model, **options)
            owner = getattr(model, "__self__", model)  # of `Module.compile`, which compiles a method
            name = f"compiled {getattr(owner, '__name__', type(owner).__name__)}"
            if isinstance(compiled, torch.nn.Module):
                compiled.__class__ = self._recorded_class(name, type(compiled))
                return compiled

            @wraps(compiled)  # a function, as methods are compiled as well
            def recorded(*args: Any, **kwargs: Any) -> Any:
                return self._run_compiled(name, compiled, *args, **kwargs)

            return recorded

        torch.compile = followed_compile
        try:
            yield
        finally:
            torch.compile = compile_code

    def _recorded_class(self, name: str, kind: type[Any]) -> type[Any]:
        """Return a class for one compiled module alone: `__call__` is looked up in the class."""
        run = self._run_compiled

        def call(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            return run(name, kind.__call__, compiled, *args, **kwargs)

        return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})

    def _run_compiled(self, name: str, code: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run compiled code without being seen by modes and hooks, and record it as one step."""
        from torch import overrides  # heavy

        innermost: Any = overrides._get_current_function_mode()  # type: ignore[no-untyped-call]
        is_first = self._functions is not None and innermost is self._functions
        if not is_first or self._full:
            return code(*args, **kwargs)
        line = _users_line(sys._getframe(1))
        entry = _Entry(name, self._scope(), self._values((args, kwargs)), line)
        before = _compiled_frames()
        with _unseen():
            result = self._run_timed(entry, code, args, kwargs, by_host=False)
        if _compiled_frames() > before:  # the first call, or one of another shape
            entry.name = name.replace("compiled", "compiling", 1)
        entry.outputs = self._values(result)
        self._entries.append(entry)
        return result

    def flow(self, weights: frozenset[int], inputs: frozenset[int], output: Any) -> DataFlow:
        """Return the recorded flow; storages still alive and not in `output` are kept by the model."""
        outputs = self.storages(_tensors(output))
        alive = self._alive()
        return DataFlow(
            steps=tuple(entry.step() for entry in self._entries),
            device=self._place.type,
            weights=weights,
            given=inputs - weights,
            outputs=outputs,
            kept=frozenset(alive - outputs - inputs - weights),
        )

    def flow_of_code(self, *, partly: bool) -> DataFlow | None:
        """Return the recorded flow of code whose inputs and outputs are not declared; None if it was long.

        What it read first is given, a parameter is a weight, also one that the code has made. What was alive
        when a flow was cut off counts as kept.
        """
        if self._full and not partly:
            return None
        made: set[int] = set()
        inputs: set[int] = set()
        for entry in self._entries:
            inputs |= {value.storage for value in entry.inputs} - made
            made |= {value.storage for value in entry.outputs} - inputs
        alive = self._alive() if self._alive_at_end is None else self._alive_at_end
        return DataFlow(
            steps=tuple(entry.step() for entry in self._entries),
            device=self._place.type,
            weights=frozenset(self._parameters),
            given=frozenset(inputs - self._parameters),
            kept=frozenset(alive & made),
            tracked=tuple(
                TrackedCall(module=name, line=line, gradients=used) for name, line, used in self._tracked
            ),
        )

    def _track(self, module: Module, output: Any) -> None:
        """Watch whether a gradient comes back to what a module has returned, if autograd has recorded it."""
        if self._full:
            return
        tensors = [tensor for tensor in _tensors(output) if tensor.requires_grad]
        if not tensors or not any(parameter.requires_grad for parameter in module.parameters()):
            return
        used: list[bool] = []
        self._tracked.append((type(module).__name__, _users_line(sys._getframe(2)), used))
        self._open = _Entry("", "", ())  # to register a hook is no step of the code
        for tensor in tensors:
            tensor.register_hook(lambda _gradient: used.append(True))
        self._open = None

    def record_call(self, func: Any, args: Any, kwargs: Mapping[str, Any], caller: FrameType) -> Any:
        """Record a call that the model's code makes."""
        name = _function_name(func)
        if self._open is not None or self._full or name.rpartition(".")[2] in _METADATA_CALLS:
            return func(*args, **kwargs)
        place, literal = _named_device(name, args, kwargs, caller.f_code.co_consts)
        inputs = self._values((args, kwargs))
        entry = _Entry(name, self._scope(), inputs, _users_line(caller), place, literal)
        entry.listed = _listed_numbers(name, args)
        entry.names_dtype = _names_dtype(name, args, kwargs)
        self._open = entry
        try:
            result = func(*args, **kwargs)
        finally:
            self._open = None
        entry.outputs = self._values(result)
        if entry.inputs or entry.outputs:
            self._entries.append(entry)
        return result

    def record_operator(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Record an operator: as part of the open call, or on its own in scripted code."""
        entry = self._open
        if entry is None and self._full:
            return func(*args, **kwargs)
        standalone = entry is None
        if entry is None:
            entry = _Entry(str(func._schema.name), self._scope(), self._values((args, kwargs)))
            self._entries.append(entry)
        entry.writes |= self._written_storages(func, args, kwargs)
        awaited = self._values(self._awaited_tensors(func, args))
        entry.awaited += awaited
        result = self._run_timed(entry, func, args, kwargs, by_host=bool(awaited))
        if standalone:
            entry.outputs = self._values(result)
        return result

    def _run_timed(self, entry: _Entry, func: Any, args: Any, kwargs: Any, *, by_host: bool) -> Any:
        if self._library is None or by_host:
            begin = perf_counter()
            result = func(*args, **kwargs)
            entry.time += perf_counter() - begin
            return result
        before, after = (self._library.Event(enable_timing=True) for _ in range(2))
        before.record()
        result = func(*args, **kwargs)
        after.record()
        entry.marks.append((before, after))
        return result

    def _awaited_tensors(self, func: Any, args: Sequence[Any]) -> Any:
        """Return the tensors whose values the host waits for."""
        name = func._schema.name.rpartition("::")[2]
        if name in {"index", "index_put", "index_put_"}:
            kinds = {self._torch.bool, self._torch.uint8}
            return [tensor for tensor in _tensors(args[1]) if tensor.dtype in kinds]
        return args if name in _SYNCHRONISING else ()

    def _written_storages(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[int]:
        written = []
        for index, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written.append(args[index] if index < len(args) else kwargs.get(argument.name))
        return self.storages(_tensors(written)) if written else frozenset()

    @property
    def _full(self) -> bool:
        full = len(self._entries) > self._most
        if full and self._alive_at_end is None:
            self._alive_at_end = self._alive()
        return full

    def _alive(self) -> set[int]:
        """Return the storages that somebody still holds."""
        return {name for name, reference in self._references.items() if not reference.expired()}

    def _scope(self) -> str:
        return self._path[-1] if self._path else ""

    # tensors as values

    def storages(self, tensors: Iterable[Any]) -> frozenset[int]:
        """Return the ids of the tensors' storages."""
        ids = (self._storage(tensor) for tensor in tensors)
        return frozenset(storage for storage in ids if storage is not None)

    def _storage(self, tensor: Any) -> int | None:
        """Return the id of its storage; the kept weak reference prevents the id from being reused."""
        from torch.multiprocessing.reductions import StorageWeakRef  # heavy

        try:
            reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # the same
        except (
            NotImplementedError,
            RuntimeError,
        ):  # it has no storage: sparse, or inside a functorch transform
            return None
        self._references.setdefault(reference.cdata, reference)
        return int(reference.cdata)

    def _values(self, nested: Any) -> tuple[TensorView, ...]:
        values = (self._value(tensor) for tensor in _tensors(nested))
        return tuple(value for value in values if value is not None)

    def _value(self, tensor: Any) -> TensorView | None:
        storage = self._storage(tensor) if tensor.layout is self._torch.strided else None
        if storage is None:
            return None
        if isinstance(tensor, self._torch.nn.Parameter):
            self._parameters.add(storage)
        size = tensor.element_size()
        return TensorView(
            storage=storage,
            shape=tuple(map(int, tensor.shape)),
            strides=tuple(map(int, tensor.stride())),
            offset=int(tensor.storage_offset()),
            capacity=tensor.untyped_storage().nbytes() // size,
            dtype=str(tensor.dtype).removeprefix("torch."),
            bytes=tensor.numel() * size,
            device=tensor.device.type,
        )


def _users_line(frame: FrameType | None) -> str:
    """Return ``file:line`` of the innermost user code between a frame and the recorded call."""
    while frame is not None and frame.f_code is not record_flow.__code__:
        if is_user_file(frame.f_code.co_filename):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _listed_numbers(name: str, args: Sequence[Any]) -> int:
    """Return how many numbers the Python list has that a call makes a tensor of."""
    if name.rpartition(".")[2] not in _OF_LISTS:
        return 0
    count, part = 1, args[0] if args else None
    while isinstance(part, list | tuple) and part:
        count, part = count * len(part), part[0]
    return (
        count if isinstance(args[0] if args else None, list | tuple) and isinstance(part, int | float) else 0
    )


def _names_dtype(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a data type is written in a call, or is its name."""
    import torch  # heavy

    named = kwargs.get("dtype") is not None or any(isinstance(one, torch.dtype) for one in args)
    return named or name.rpartition(".")[2] in {"double", "float", "half", "bfloat16", "type", "type_as"}


def _tensors(nested: Any) -> Iterator[Any]:
    import torch  # heavy

    return (leaf for _, leaf in leaves(nested) if isinstance(leaf, torch.Tensor))


def _function_name(func: Any) -> str:
    from torch.overrides import resolve_name  # heavy

    return str(resolve_name(func) or getattr(func, "__name__", "a function"))


def _named_device(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], constants: tuple[Any, ...]
) -> tuple[str, bool]:
    """Return the kind of device that a call names, and whether it is a literal in the code."""
    import torch  # heavy

    tail = name.rpartition(".")[2]
    if tail in {"cpu", "cuda"}:
        return tail, True
    candidates = [kwargs.get("device"), *(args[1:] if tail in {"to", "type_as"} else ())]
    for candidate in candidates:
        if isinstance(candidate, torch.Tensor):
            return candidate.device.type, False
        kind = candidate.type if isinstance(candidate, torch.device) else candidate
        if isinstance(kind, str) and kind.partition(":")[0] in _DEVICE_KINDS:
            kind = kind.partition(":")[0]
            return kind, any(isinstance(text, str) and text.partition(":")[0] == kind for text in constants)
    return "", False


_OF_LISTS = frozenset({"tensor", "as_tensor", "asarray"})
"""Calls that make a tensor of a Python list."""
_DEVICE_KINDS = frozenset({"cpu", "cuda", "mps", "xpu", "meta"})
