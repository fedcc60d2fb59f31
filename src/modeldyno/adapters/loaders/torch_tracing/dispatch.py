"""The stage on which shadows play: a torch program runs on it with nothing computed.

Under a `Stage` a torch program runs as it would on the CPU (the same Python, the same dispatch, the same
choice of kernels), on shapes alone: nothing is computed and no memory is taken, so that a model of any size
can be built and called. What a program may look at - token ids, masks, positions, sizes: small tensors - is
computed for real beside its shadow, so that courses that depend on it go where they would go. Where a course
depends on what is not known, an assumption is made, and kept to be told.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import wraps
from math import prod
from time import process_time
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch._meta_registrations
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode

from modeldyno.adapters.loaders.torch_tracing.assumed_flags import Flags
from modeldyno.adapters.loaders.torch_tracing.meta_tensor import (
    STAGES,
    Place,
    Shadow,
    Values,
    off,
    plain_numbers,
    stage,
)
from modeldyno.adapters.loaders.torch_tracing.op_call import Seen, formed, forms_of, on_meta, real, signature
from modeldyno.adapters.loaders.torch_tracing.op_traits import META, MOST_KNOWN, Trait, is_small, trait
from modeldyno.adapters.loaders.torch_tracing.shape_rules import HIGHER, SPECIAL, padded
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_UNSET = frozenset(
    {"aten.empty", "aten.empty_strided", "aten.new_empty", "aten.new_empty_strided", "aten.empty_like"}
)
"""Operators that give memory as it is found."""
_DRAWN = frozenset({"aten.randint", "aten.randperm"})
"""Random operators that are computed while a model is built: an example of ids or lengths is made by them."""
_COMPUTING = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution"})
"""Operators of a call of a model: a factory that has them does more than to make one."""
_PATIENCE = 5.0
"""Seconds of CPU time for a factory that computes: it may train, to an end that needs numbers."""
_TENSOR, _AS_TENSOR = torch.tensor, torch.as_tensor


@dataclass(slots=True)
class Call:
    """One call of an operator, as it is told to whoever watches."""

    trait: Trait
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Shadow, ...]
    """Tensors that it made or changed; empty for a mere view."""
    fresh: bool
    """Whether it did anything but look at memory in another way."""


class ComputesLong(Exception):
    """A factory goes on computing where nothing is computed."""


class Witness(Protocol):
    """Whoever is told of what happens on a stage."""

    def watch(self, call: Call) -> None:
        """Learn of a call."""

    def allocate(self, size: int) -> int:
        """Learn of new memory, of so many bytes; give its index."""

    def grow(self, place: Place, size: int) -> None:
        """Learn that memory has so many bytes from now on."""

    def free(self, index: int) -> None:
        """Learn that nothing lies there any more."""


class Stage(TorchDispatchMode):
    """Runs torch programs on shadows."""

    supports_higher_order_operators = True
    """They are told of here, to be refused by name."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler to keep it out of here: nothing is compiled on a stage."""
        return False

    def __init__(self, witness: Witness, *, assumes: bool = True) -> None:
        """Tell the witness, which may be replaced between two courses, of what happens."""
        super().__init__()
        self.witness = witness
        self.assumes = assumes
        """Whether arrays of what is not computed are made up; else whoever asks for one is refused."""
        self.assumptions: dict[str, None] = {}
        self._computing_since: float | None = None
        """CPU time at which a factory began to compute."""
        self.flags = Flags()
        self.outside: dict[int, Shadow] = {}
        """Of plain tensors that come from elsewhere, by their id; weights are entered beforehand."""
        self._kept: list[tuple[Tensor, int | None]] = []
        """Those plain tensors, each with the identity of its storage."""
        self._forms: dict[Any, Any] = {}
        """Call of an operator, by the forms of its arguments, to the forms of what it makes."""
        self._storages: dict[int, tuple[Place, UntypedStorage]] = {}

    def __enter__(self) -> Stage:  # noqa: PYI034 - the mode's own protocol
        STAGES.append(self)
        self._swap = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        Tensor.numpy = _numpy_of_plain  # type: ignore[method-assign,assignment]
        torch.tensor, torch.as_tensor = _made(_TENSOR), _made(_AS_TENSOR)
        torch._VF._pad_packed_sequence = padded  # type: ignore[assignment]  # noqa: SLF001 - see there
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        torch.__future__.set_swap_module_params_on_conversion(self._swap)
        STAGES.pop()
        if not STAGES:
            del Tensor.numpy
            del torch._VF._pad_packed_sequence  # noqa: SLF001 - torch's own shows
            torch.tensor, torch.as_tensor = _TENSOR, _AS_TENSOR

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator on shadows; a tensor that wraps others is asked first what it makes of it."""
        if any(kind is not Shadow and hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        if isinstance(func, torch._ops.HigherOrderOperator):  # noqa: SLF001 - no public name
            if (rule := HIGHER.get(func.name())) is not None:
                return rule(self, args)
            raise RequestError(
                f"The operator {func.name()}, which takes functions, cannot be analysed; analyse the model "
                "with another implementation of it."
            )
        return self.run(func, args, dict(kwargs or {}))

    # -- bringing tensors onto the stage -----------------------------------------------------------

    def shadow(self, shape: tuple[int, ...], dtype: torch.dtype, values: Values = None) -> Shadow:
        """Cast a fresh shadow of a contiguous tensor."""
        with off():
            meta = torch.empty(shape, dtype=dtype, device=META)
        return self.cast(meta, values)

    def like(self, tensor: Tensor) -> Tensor:
        """Cast the shadow of any tensor; one that wraps others, such as a quantised weight, wraps theirs."""
        if not hasattr(tensor, "__tensor_flatten__"):
            return self.of(tensor)
        names, how = tensor.__tensor_flatten__()
        inner = {name: self.like(getattr(tensor, name)) for name in names}
        kind: Any = type(tensor)
        made: Tensor = kind.__tensor_unflatten__(inner, how, tensor.shape, tensor.stride())
        return made

    def of(self, plain: Tensor) -> Shadow:
        """Cast the shadow of a plain tensor, once; tensors that share memory share a place."""
        known = self.outside.get(id(plain))
        if known is not None:
            return known
        with off():
            made, key = self._outside(plain)
        self.outside[id(plain)] = made
        self._kept.append((plain, key))
        return made

    def _outside(self, plain: Tensor) -> tuple[Shadow, int | None]:
        values = plain.detach().clone() if _steers(plain) else None
        try:
            storage = plain.untyped_storage()
            key, size = storage._cdata, storage.nbytes()  # noqa: SLF001 - the storage's identity
        except (NotImplementedError, RuntimeError):  # sparse, quantised or otherwise without a plain storage
            made = self.cast(torch.empty(plain.shape, dtype=_plain_dtype(plain), device=META), values)
            made.place.stored = _stored(plain)
            return made, None
        if key not in self._storages:
            memory = UntypedStorage(size, device=META)
            self._storages[key] = self._place(size), memory
        place, memory = self._storages[key]
        meta = torch.empty(0, dtype=plain.dtype, device=META)
        meta.set_(memory, plain.storage_offset(), plain.shape, plain.stride())
        return Shadow(meta, place, values), key

    def forget(self) -> None:
        """Let go of plain tensors that nobody else has any more, such as constants of a course."""
        ours = 2  # the pair, and the question
        kept = [pair for pair in self._kept if sys.getrefcount(pair[0]) > ours]
        self._kept = kept
        self.outside = {id(plain): self.outside[id(plain)] for plain, _ in kept}
        keys = {key for _, key in kept}
        self._storages = {key: found for key, found in self._storages.items() if key in keys}

    def brought(self) -> list[Place]:
        """List the places of tensors that came from elsewhere."""
        return [place for place, _ in self._storages.values()]

    def on_meta(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator on torch's meta device."""
        seen = Seen(self)
        return func(*map(seen.unwrap, args), **{name: seen.unwrap(value) for name, value in kwargs.items()})

    def cast(self, meta: Tensor, values: Values = None, guess: str | None = None) -> Shadow:
        """Cast the shadow of a tensor of the meta device that lies in memory of its own."""
        return Shadow(meta, self._place(meta.untyped_storage().nbytes()), values, guess)

    def _place(self, size: int) -> Place:
        return Place(self.witness.allocate(size), self.witness.free)

    # -- running operators -------------------------------------------------------------------------

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator: its shapes on torch's meta device, its values where they are all known."""
        found = trait(func)
        if not self.assumes:
            self._check_patience(found)
        special = SPECIAL.get(found.name)
        with off():
            if special is not None:
                answer = special(self, found, args, kwargs)
                if answer is not NotImplemented:
                    return answer
            seen = Seen(self)
            meta_args = tuple(map(seen.unwrap, args))
            meta_kwargs = {name: seen.unwrap(value) for name, value in kwargs.items()}
            if meta_kwargs.get("device") is not None:
                meta_kwargs["device"] = META
            seen.real = self._values(func, found, args, kwargs, seen)
            out = self._shaped(func, meta_args, meta_kwargs, seen)
            return self._finish(func, args, kwargs, out, seen)

    def _check_patience(self, found: Trait) -> None:
        """Give up a factory that has been computing for long: without numbers it may never end.

        Raises:
            ComputesLong: it has.
        """
        if self._computing_since is None:
            self._computing_since = process_time() if found.name in _COMPUTING else None
        elif process_time() - self._computing_since > _PATIENCE:
            raise ComputesLong

    def _shaped(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
        """Find the shapes, or remember them: the layers of a network are much alike."""
        key = (
            None
            if trait(func).written
            else (func, torch.get_default_dtype(), *map(signature, args), *map(signature, kwargs.items()))
        )
        try:
            forms = self._forms.get(key)
        except (TypeError, NotImplementedError):  # an argument that cannot be hashed or compared
            key, forms = None, None
        if forms is not None:
            return formed(forms)
        out = on_meta(func, args, kwargs, seen)
        if key is not None and not seen.by_value and (forms := forms_of(out, seen)) is not None:
            self._forms[key] = forms
        return out

    def _values(
        self, func: Any, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen
    ) -> Any:
        """Compute for real, where everything is known and small; give None otherwise."""
        drawn = found.random and not (found.name in _DRAWN and not self.assumes)
        if not seen.all_known or drawn:
            self._taint(found, args, kwargs)
            return None
        if not seen.shadows and not _is_small_factory(found, args, kwargs):
            return None
        try:
            return func(*map(real, args), **{name: real(value) for name, value in kwargs.items()})
        except (RuntimeError, NotImplementedError, IndexError, TypeError):
            self._taint(found, args, kwargs)
            return None

    def _taint(self, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for one in _written(found, args, kwargs):
            if isinstance(one, Tensor):
                shadow = self.as_shadow(one)
                shadow.place.known, shadow.numbers = False, None

    def _finish(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, seen: Seen) -> Any:
        """Cast the shadows of what came out, and tell of the call."""
        found = trait(func)
        result = seen.wrap(out, seen.real)
        if found.reshapes_in_place:
            _reshape(func, args, kwargs)
        written = [one for one in _written(found, args, kwargs) if isinstance(one, Tensor)]
        for shadow in map(self.as_shadow, written):
            self._resized(shadow)
        if written and not seen.made:
            seen.made += [self.as_shadow(args[i]) for i in found.written if isinstance(args[i], Tensor)]
        self.tell(found, args, kwargs, tuple(seen.made), fresh=seen.fresh or bool(found.written))
        return result

    def _resized(self, shadow: Shadow) -> None:
        """Follow an operator that gave what it wrote into another size, as it may with ``out=``."""
        meta = shadow.shape_of
        if meta.shape == shadow.shape:
            return
        from torch.utils._mode_utils import no_dispatch  # noqa: PLC0415 - rarely needed

        with no_dispatch():
            shadow.data = Shadow(meta, shadow.place)
        shadow.place.known = False
        self.witness.grow(shadow.place, meta.untyped_storage().nbytes())

    def tell(
        self,
        found: Trait,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: tuple[Shadow, ...],
        *,
        fresh: bool = True,
    ) -> None:
        """Tell the witness of a call."""
        self.witness.watch(Call(found, args, kwargs, outputs, fresh))

    def as_shadow(self, value: Tensor) -> Shadow:
        """Give a tensor's shadow, which may be itself."""
        return value if isinstance(value, Shadow) else self.of(value)

    def assume(self, what: str) -> None:
        """Keep an assumption, to be told."""
        self.assumptions[what] = None

    def assumed(self, tensor: Shadow) -> Tensor:
        """Give numbers for those that a program looks at but that depend on what is not computed."""
        if tensor.dtype is torch.bool:
            flag = self.flag(
                "control flow depends on flags that only a run computes; they are taken as false",
                "flags that the model refuses as false are not computed; taken as true",
            )
            with off():
                return torch.full(tensor.shape, flag)
        self.assume("control flow depends on numbers that only a run computes; they are taken as 1")
        with off():
            return torch.ones(tensor.shape, dtype=tensor.dtype)

    def flag(self, false: str, true: str) -> bool:
        """Make up a flag, and tell which it is."""
        taken = self.flags.answer()
        self.assume(true if taken else false)
        return taken


def _written(found: Trait, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Give the arguments that a call writes into, those in lists one by one."""
    written = [args[i] for i in found.written if i < len(args)]
    written += [kwargs[name] for name in found.written_names if name in kwargs]
    for value in written:
        yield from value if isinstance(value, list | tuple) else (value,)


def _is_small_factory(found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether what is made from nothing, such as a range, has values, and few by what is asked for."""
    if found.name in _UNSET:
        kind = kwargs.get("dtype")
        return kind is not None and not kind.is_floating_point and _is_few(args)
    return _is_few(args)


def _is_few(args: tuple[Any, ...]) -> bool:
    shape = next((a for a in args if isinstance(a, list | tuple)), None)
    if shape is not None and all(isinstance(n, int) for n in shape):
        return prod(shape) <= MOST_KNOWN
    return all(abs(n) <= MOST_KNOWN for n in args if isinstance(n, int | float))


def _steers(plain: Tensor) -> bool:
    """Say whether the values of a tensor may decide what is computed.

    Weights of floating point do not, but for single numbers; to read them would load them into memory
    where a file is mapped.
    """
    weights = isinstance(plain, torch.nn.Parameter) and plain.is_floating_point() and plain.numel() > 1
    return is_small(plain) and not plain.is_meta and not weights


def _stored(tensor: Tensor) -> int | None:
    if tensor.layout is torch.sparse_coo:
        return int(tensor._nnz())  # noqa: SLF001 - of a tensor that need not be coalesced
    return None if tensor.layout is torch.strided else tensor.values().numel()


def _plain_dtype(tensor: Tensor) -> torch.dtype:
    return {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}.get(
        tensor.dtype, tensor.dtype
    )


def _reshape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Change the shadow's own shape where an operator changes it in place."""
    if isinstance(args[0], Shadow):
        from torch.utils._mode_utils import no_dispatch  # noqa: PLC0415 - rarely needed

        with no_dispatch():
            func(*args, **kwargs)


# -- what torch does beneath a stage ----------------------------------------------------------------


def _numpy_of_plain(self: Tensor, *, force: bool = False) -> Any:
    """Give the array of a plain tensor on a stage, where torch would give one of a shadow's memory."""
    shadow = stage().outside.get(id(self))
    if shadow is not None and (shadow.numbers is not None or not shadow.place.known):
        return shadow.numpy(force=force)
    with off():
        return torch._C.TensorBase.numpy(self, force=force)  # noqa: SLF001 - what is stood in for


def _made(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Give torch's way to make a tensor of data, with plain numbers for data."""

    @wraps(make)
    def made(data: Any, *args: Any, **kwargs: Any) -> Tensor:
        return make(plain_numbers(data) if isinstance(data, list | tuple) else data, *args, **kwargs)

    return made
