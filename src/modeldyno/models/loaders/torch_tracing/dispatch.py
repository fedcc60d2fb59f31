"""Torch dispatch mode that runs a program on meta tensors: shapes only, nothing is computed.

Under a `MetaDispatchMode` a torch program runs as it would on the CPU (same Python, same dispatch, same
choice of kernels), but on shapes alone: no arithmetic and no memory, so a model of any size can be built and
called. What a program may read - token ids, masks, positions, sizes: small tensors - is computed for real
next to its meta tensor, so control flow that depends on it is followed as in a real run. Where control flow
depends on values that are not computed, an assumption is made and recorded for the report.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import wraps
from math import prod
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch._meta_registrations
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode

from modeldyno.base.clock import process_time
from modeldyno.base.errors import RequestError
from modeldyno.models.loaders.torch_tracing.meta_tensor import (
    MAX_KNOWN_ELEMENTS,
    META,
    MODE_STACK,
    MetaTensor,
    OpTraits,
    StorageHandle,
    Values,
    current_dispatch_mode,
    dispatch_off,
    is_small,
    plain_numbers,
    traits_of,
)
from modeldyno.models.loaders.torch_tracing.op_call import (
    OpCall,
    empty_like_layouts,
    known_values_of,
    output_layouts,
    shape_key,
)
from modeldyno.models.loaders.torch_tracing.shape_rules import (
    HIGHER_ORDER_RULES,
    VALUE_RULES,
    infer_shapes,
    pad_packed_sequence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_UNINITIALISED = frozenset(
    {"aten.empty", "aten.empty_strided", "aten.new_empty", "aten.new_empty_strided", "aten.empty_like"}
)
"""Operators that return uninitialised memory."""
_RANDOM_WITH_VALUES = frozenset({"aten.randint", "aten.randperm"})
"""Random operators that are computed while a model is built: example ids or lengths are made with them."""
_COMPUTING = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution"})
"""Operators of a model's forward pass: a factory that runs them does more than build the model."""
_COMPUTE_LIMIT_S = 5.0
"""Seconds of CPU time for a factory that computes: it may train until a condition that needs real values."""
_TENSOR, _AS_TENSOR = torch.tensor, torch.as_tensor
CallSite = tuple[tuple[CodeType, int], ...]
"""Where a program asks: the call stack, each frame as its code and instruction."""
_MAX_RECONSIDERED = 32


@dataclass(slots=True)
class DispatchEvent:
    """One call of an operator, as reported to the listener."""

    trait: OpTraits
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[MetaTensor, ...]
    """Tensors that it made or changed; empty for a mere view."""
    fresh: bool
    """Whether it did more than return a view."""


class ComputeLimitReached(Exception):
    """A factory keeps computing although no values are computed."""


class DispatchListener(Protocol):
    """Receives the events of a dispatch mode."""

    def watch(self, call: DispatchEvent) -> None:
        """Handle an operator call."""

    def allocate(self, size: int) -> int:
        """Handle an allocation of `size` bytes and return its index."""

    def grow(self, handle: StorageHandle, size: int) -> None:
        """Handle memory that grew to `size` bytes."""

    def free(self, index: int) -> None:
        """Handle the release of the memory with this index."""


class MetaDispatchMode(TorchDispatchMode):
    """Runs torch programs on meta tensors."""

    supports_higher_order_operators = True
    """They are passed to `__torch_dispatch__`, which rejects them by name."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler just to exclude it; nothing is compiled here."""
        return False

    def __init__(self, listener: DispatchListener, *, assumes: bool = True) -> None:
        """Report events to `listener`, which may be replaced between two traces."""
        super().__init__()
        self.listener = listener
        self.assumes = assumes
        """Whether values that are not computed are made up; otherwise reading them is an error."""
        self.assumptions: dict[str, bool] = {}
        """What was made up, and whether it is a flag; initialisers check flags that change nothing."""
        self._computing_since: float | None = None
        """CPU time at which a factory started to compute."""
        self.flags = AssumedFlags()
        self.mirrored: dict[int, MetaTensor] = {}
        """Meta tensors of plain tensors from elsewhere, by the id of the plain tensor."""
        self._plain_refs: list[tuple[Tensor, int | None]] = []
        """Those plain tensors, each with the identity of its storage."""
        self._layout_cache: dict[Any, Any] = {}
        """Operator call, by the layouts of its arguments, to the layouts of its outputs."""
        self._storages: dict[int, tuple[StorageHandle, UntypedStorage]] = {}

    def __enter__(self) -> MetaDispatchMode:  # noqa: PYI034 - the mode's own protocol
        MODE_STACK.append(self)
        self._swap = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        Tensor.numpy = _numpy_of_plain  # type: ignore[method-assign,assignment]
        torch.tensor, torch.as_tensor = _with_plain_numbers(_TENSOR), _with_plain_numbers(_AS_TENSOR)
        torch._VF._pad_packed_sequence = pad_packed_sequence  # type: ignore[assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        torch.__future__.set_swap_module_params_on_conversion(self._swap)
        MODE_STACK.pop()
        if not MODE_STACK:
            del Tensor.numpy
            del torch._VF._pad_packed_sequence
            torch.tensor, torch.as_tensor = _TENSOR, _AS_TENSOR

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator on meta tensors; a tensor subclass that wraps others gets to handle it first."""
        if any(kind is not MetaTensor and hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        if isinstance(func, torch._ops.HigherOrderOperator):
            if (rule := HIGHER_ORDER_RULES.get(func.name())) is not None:
                return rule(self, args)
            raise RequestError(
                f"The operator {func.name()}, which takes functions, cannot be analysed; analyse the model "
                "with another implementation of it."
            )
        return self.run(func, args, dict(kwargs or {}))

    # -- meta tensors of other tensors -------------------------------------------------------------

    def make_tensor(self, shape: tuple[int, ...], dtype: torch.dtype, values: Values = None) -> MetaTensor:
        """Make a contiguous meta tensor with memory of its own."""
        with dispatch_off():
            meta = torch.empty(shape, dtype=dtype, device=META)
        return self.wrap_meta(meta, values)

    def mirror(self, tensor: Tensor) -> Tensor:
        """Return the meta tensor of a tensor; in a wrapper, such as a quantised weight, of the inner ones."""
        if not hasattr(tensor, "__tensor_flatten__"):
            return self.meta_tensor_of(tensor)
        inner_names, context = tensor.__tensor_flatten__()
        inner_tensors = {name: self.mirror(getattr(tensor, name)) for name in inner_names}
        cls: Any = type(tensor)
        result: Tensor = cls.__tensor_unflatten__(inner_tensors, context, tensor.shape, tensor.stride())
        return result

    def meta_tensor_of(self, plain: Tensor) -> MetaTensor:
        """Return the meta tensor of a plain tensor, cached; tensors that share memory share a handle."""
        cached = self.mirrored.get(id(plain))
        if cached is not None:
            return cached
        with dispatch_off():
            meta_tensor, key = self._mirror_plain(plain)
        self.mirrored[id(plain)] = meta_tensor
        self._plain_refs.append((plain, key))
        return meta_tensor

    def _mirror_plain(self, plain: Tensor) -> tuple[MetaTensor, int | None]:
        values = plain.detach().clone() if _steers(plain) else None
        try:
            storage = plain.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
        except (NotImplementedError, RuntimeError):  # sparse, quantised or otherwise without a plain storage
            meta_tensor = self.wrap_meta(
                torch.empty(plain.shape, dtype=_plain_dtype(plain), device=META), values
            )
            meta_tensor.handle.stored = _stored_elements(plain)
            return meta_tensor, None
        if key not in self._storages:
            memory = UntypedStorage(size, device=META)
            self._storages[key] = self._new_handle(size), memory
        handle, memory = self._storages[key]
        meta = torch.empty(0, dtype=plain.dtype, device=META)
        meta.set_(memory, plain.storage_offset(), plain.shape, plain.stride())
        return MetaTensor(meta, handle, values), key

    def drop_unreferenced(self) -> None:
        """Drop plain tensors that nothing else references any more, such as constants of a trace."""
        ours = 2  # the pair, and the argument of getrefcount
        kept = [pair for pair in self._plain_refs if sys.getrefcount(pair[0]) > ours]
        self._plain_refs = kept
        self.mirrored = {id(plain): self.mirrored[id(plain)] for plain, _ in kept}
        keys = {key for _, key in kept}
        self._storages = {key: entry for key, entry in self._storages.items() if key in keys}

    def external_handles(self) -> list[StorageHandle]:
        """List the handles of tensors that came from elsewhere."""
        return [handle for handle, _ in self._storages.values()]

    def on_meta(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator on torch's meta device."""
        op_call = OpCall(self)
        return func(
            *map(op_call.unwrap, args), **{name: op_call.unwrap(value) for name, value in kwargs.items()}
        )

    def wrap_meta(self, meta: Tensor, values: Values = None, guess: str | None = None) -> MetaTensor:
        """Wrap a tensor of the meta device that has memory of its own."""
        return MetaTensor(meta, self._new_handle(meta.untyped_storage().nbytes()), values, guess)

    def _new_handle(self, size: int) -> StorageHandle:
        return StorageHandle(self.listener.allocate(size), self.listener.free)

    # -- running operators -------------------------------------------------------------------------

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator: its shapes on torch's meta device, its values where all inputs are known."""
        traits = traits_of(func)
        if not self.assumes:
            self._check_compute_limit(traits)
        special = VALUE_RULES.get(traits.name)
        with dispatch_off():
            if special is not None:
                result = special(self, traits, args, kwargs)
                if result is not NotImplemented:
                    return result
            op_call = OpCall(self)
            meta_args = tuple(map(op_call.unwrap, args))
            meta_kwargs = {name: op_call.unwrap(value) for name, value in kwargs.items()}
            if meta_kwargs.get("device") is not None:
                meta_kwargs["device"] = META
            op_call.real_output = self._compute_values(func, traits, args, kwargs, op_call)
            out = self._infer_shapes(func, meta_args, meta_kwargs, op_call)
            return self._finish(func, args, kwargs, out, op_call)

    def call_within(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Call a function that an operator takes, with its operators handled as those of the model."""
        super().__enter__()
        try:
            return function(*args)
        finally:
            super().__exit__(None, None, None)

    def _check_compute_limit(self, traits: OpTraits) -> None:
        """Stop a factory that has been computing for long: without values it may never end.

        Raises:
            ComputesLong: it has.
        """
        if self._computing_since is None:
            self._computing_since = process_time() if traits.name in _COMPUTING else None
        elif process_time() - self._computing_since > _COMPUTE_LIMIT_S:
            raise ComputeLimitReached

    def _infer_shapes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], op_call: OpCall) -> Any:
        """Infer the output shapes, cached: the layers of a network are much alike."""
        key = (
            None
            if traits_of(func).written
            else (func, torch.get_default_dtype(), *map(shape_key, args), *map(shape_key, kwargs.items()))
        )
        try:
            forms = self._layout_cache.get(key)
        except (TypeError, NotImplementedError):  # an argument that cannot be hashed or compared
            key, forms = None, None
        if forms is not None:
            return empty_like_layouts(forms)
        out = infer_shapes(func, args, kwargs, op_call)
        if (
            key is not None
            and not op_call.data_dependent
            and (forms := output_layouts(out, op_call)) is not None
        ):
            self._layout_cache[key] = forms
        return out

    def _compute_values(
        self, func: Any, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any], op_call: OpCall
    ) -> Any:
        """Compute real values where all inputs are known and small; otherwise return None."""
        is_random = traits.random and not (traits.name in _RANDOM_WITH_VALUES and not self.assumes)
        if not op_call.all_known or is_random:
            self._invalidate_written(traits, args, kwargs)
            return None
        if not op_call.meta_tensors and not _is_small_factory(traits, args, kwargs):
            return None
        device = kwargs.get("device")
        if device is not None and torch.device(device) == META:  # where its user wants no values either
            return None
        try:
            return func(
                *map(known_values_of, args),
                **{name: known_values_of(value) for name, value in kwargs.items()},
            )
        except (RuntimeError, NotImplementedError, IndexError, TypeError):
            self._invalidate_written(traits, args, kwargs)
            return None

    def _invalidate_written(self, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for argument in _written(traits, args, kwargs):
            if isinstance(argument, Tensor):
                meta_tensor = self.as_meta_tensor(argument)
                meta_tensor.handle.valid, meta_tensor.known_values = False, None

    def _finish(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, op_call: OpCall
    ) -> Any:
        """Wrap the outputs and report the call."""
        traits = traits_of(func)
        result = op_call.wrap(out, op_call.real_output)
        if traits.reshapes_in_place:
            _reshape(func, args, kwargs)
        written = [argument for argument in _written(traits, args, kwargs) if isinstance(argument, Tensor)]
        for meta_tensor in map(self.as_meta_tensor, written):
            self._follow_resize(meta_tensor)
        if written and not op_call.outputs:
            op_call.outputs += [
                self.as_meta_tensor(args[i]) for i in traits.written if isinstance(args[i], Tensor)
            ]
        self.report(traits, args, kwargs, tuple(op_call.outputs), fresh=op_call.fresh or bool(traits.written))
        return result

    def _follow_resize(self, meta_tensor: MetaTensor) -> None:
        """Follow an operator that resized what it wrote into, as it may with ``out=``."""
        meta = meta_tensor.backing
        if meta.shape == meta_tensor.shape:
            return
        from torch.utils._mode_utils import no_dispatch  # rarely needed

        with no_dispatch():
            meta_tensor.data = MetaTensor(meta, meta_tensor.handle)
        meta_tensor.handle.valid = False
        self.listener.grow(meta_tensor.handle, meta.untyped_storage().nbytes())

    def report(
        self,
        traits: OpTraits,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: tuple[MetaTensor, ...],
        *,
        fresh: bool = True,
    ) -> None:
        """Report a call to the listener."""
        self.listener.watch(DispatchEvent(traits, args, kwargs, outputs, fresh))

    def as_meta_tensor(self, value: Tensor) -> MetaTensor:
        """Return the meta tensor of a tensor, which may be itself."""
        return value if isinstance(value, MetaTensor) else self.meta_tensor_of(value)

    def assume(self, what: str, *, flag: bool = False) -> None:
        """Record an assumption, of a flag or of a number or size."""
        self.assumptions[what] = flag

    @property
    def made_up_numbers(self) -> bool:
        """Whether a number or size was made up since the assumptions were cleared."""
        return not all(self.assumptions.values())

    def assumed_values(self, tensor: MetaTensor) -> Tensor:
        """Make up values that a program reads but that depend on what is not computed."""
        if tensor.dtype is torch.bool:
            flag = self.assume_flag(
                "control flow depends on flags that only a run computes; they are taken as false",
                "flags that make the model fail when false are not computed; taken as true",
            )
            with dispatch_off():
                return torch.full(tensor.shape, flag)
        self.assume("its code reads numbers that only a run computes; they are taken as 1")
        with dispatch_off():
            return torch.ones(tensor.shape, dtype=tensor.dtype)

    def assume_flag(self, false: str, true: str) -> bool:
        """Make up a flag and record the assumption."""
        value = self.flags.answer()
        self.assume(true if value else false, flag=True)
        return value


def _written(traits: OpTraits, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments that a call writes into, those in lists one by one."""
    written = [args[i] for i in traits.written if i < len(args)]
    written += [kwargs[name] for name in traits.written_names if name in kwargs]
    for value in written:
        yield from value if isinstance(value, list | tuple) else (value,)


def _is_small_factory(traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a tensor made from nothing, such as a range, has values, and few enough to keep."""
    if traits.name in _UNINITIALISED:
        dtype = kwargs.get("dtype")
        return dtype is not None and not dtype.is_floating_point and _fits_limit(args)
    return _fits_limit(args)


def _fits_limit(args: tuple[Any, ...]) -> bool:
    shape = next((a for a in args if isinstance(a, list | tuple)), None)
    if shape is not None and all(isinstance(n, int) for n in shape):
        return prod(shape) <= MAX_KNOWN_ELEMENTS
    return all(abs(n) <= MAX_KNOWN_ELEMENTS for n in args if isinstance(n, int | float))


def _steers(plain: Tensor) -> bool:
    """Whether the values of a tensor may affect control flow.

    Weights of floating point do not, but for single numbers; to read them would load them into memory
    where a file is mapped.
    """
    weights = isinstance(plain, torch.nn.Parameter) and plain.is_floating_point() and plain.numel() > 1
    return is_small(plain) and not plain.is_meta and not weights


def _stored_elements(tensor: Tensor) -> int | None:
    if tensor.layout is torch.sparse_coo:
        return int(tensor._nnz())
    return None if tensor.layout is torch.strided else tensor.values().numel()


def _plain_dtype(tensor: Tensor) -> torch.dtype:
    return {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}.get(
        tensor.dtype, tensor.dtype
    )


def _reshape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Reshape the meta tensor itself where an operator changes its shape in place."""
    if isinstance(args[0], MetaTensor):
        from torch.utils._mode_utils import no_dispatch  # rarely needed

        with no_dispatch():
            func(*args, **kwargs)


# -- replacements of torch's functions under the mode --------------------------------------------------


def _numpy_of_plain(self: Tensor, *, force: bool = False) -> Any:
    """Return the array of a plain tensor under the mode, where torch would read a meta tensor's memory."""
    meta_tensor = current_dispatch_mode().mirrored.get(id(self))
    if meta_tensor is not None and (meta_tensor.known_values is not None or not meta_tensor.handle.valid):
        return meta_tensor.numpy(force=force)
    with dispatch_off():
        return torch._C.TensorBase.numpy(self, force=force)


def _with_plain_numbers(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap torch's constructor of a tensor from data so that data holds plain numbers."""

    @wraps(make)
    def make_plain(data: Any, *args: Any, **kwargs: Any) -> Tensor:
        return make(plain_numbers(data) if isinstance(data, list | tuple) else data, *args, **kwargs)

    return make_plain


class AssumedFlags:
    """Assumed answers: false, unless an error followed when the same place asked before."""

    def __init__(self) -> None:
        """Assume false for all."""
        self._true: set[CallSite] = set()
        self._last_asked: CallSite | None = None

    def answer(self) -> bool:
        """Return the assumed flag for the calling place."""
        self._last_asked = _call_site()
        return self._last_asked in self._true

    def reconsider(self) -> bool:
        """Assume true for the flag that was read last; return whether that is new."""
        site, self._last_asked = self._last_asked, None
        if site is None or site in self._true or len(self._true) == _MAX_RECONSIDERED:
            return False
        self._true.add(site)
        return True


def _call_site() -> CallSite:
    """Return the call stack; layers that one loop calls are at the same place."""
    frame: FrameType | None = sys._getframe(1)
    calls: list[tuple[CodeType, int]] = []
    while frame is not None:
        calls.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)
