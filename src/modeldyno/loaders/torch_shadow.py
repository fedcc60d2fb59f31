"""Shadows: tensors that have a shape, a dtype and a place in memory, but cast no numbers.

Under a `Stage` a torch program runs as it would on the CPU (the same Python, the same dispatch, the same
choice of kernels), on shapes alone: nothing is computed and no memory is taken, so that a model of any size
can be built and called. What a program may look at - token ids, masks, positions, sizes: small tensors - is
computed for real beside its shadow, so that courses that depend on it go where they would go. Where a course
depends on what is not known, an assumption is made, and kept to be told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Protocol

import torch
import torch._meta_registrations
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode

from modeldyno.errors import RequestError

_MOST_KNOWN = 2**20
"""Elements of a tensor whose values are kept."""
_UNSET = frozenset(
    {"aten.empty", "aten.empty_strided", "aten.new_empty", "aten.new_empty_strided", "aten.empty_like"}
)
"""Operators that give memory as it is found."""
_META = torch.device("meta")
_CPU = torch.device("cpu")

Values = Tensor | None


class Place:
    """A piece of memory: it lives as long as a shadow lies in it."""

    __slots__ = ("freed", "index", "known", "stored")

    def __init__(self, index: int, freed: Callable[[int], None]) -> None:
        """Remember whom to tell when the last shadow is gone."""
        self.index = index
        self.freed = freed
        self.known = True
        """Whether values kept of tensors in it still hold; something unknown written into it ends that."""
        self.stored: int | None = None
        """Elements that a sparse tensor in it has."""

    def __del__(self) -> None:
        self.freed(self.index)


class Shadow(Tensor):
    """A tensor without numbers; it says that it is on the CPU."""

    shape_of: Tensor
    """The same on torch's meta device."""
    place: Place
    values: Values
    """Its numbers, where they are known."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001 - as a plain tensor has none

    @staticmethod
    def __new__(cls, shape_of: Tensor, place: Place, values: Values = None) -> Shadow:  # noqa: PYI034 - a tensor's own protocol
        """Cast a shadow."""
        made: Shadow = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]  # noqa: SLF001 - the documented way
            cls,
            shape_of.shape,
            strides=shape_of.stride(),
            storage_offset=shape_of.storage_offset(),
            dtype=shape_of.dtype,
            layout=shape_of.layout,
            device=_CPU,
        )
        made.shape_of, made.place, made.values = shape_of, place, values
        return made

    def __init__(self, *_: object) -> None:
        """Everything is done in `__new__`."""

    def __repr__(self, **_: object) -> str:  # type: ignore[override]
        return f"Shadow({tuple(self.shape)}, {self.dtype})"

    def known(self) -> Values:
        """Give its numbers if they are known and still hold."""
        return self.values if self.place.known else None

    def tolist(self) -> Any:
        """Give the numbers; unknown ones as they are assumed to be."""
        found = self.known()
        plain = _stage().assumed(self) if found is None else found
        with _off():
            return plain.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Give the numbers as an array."""
        found = self.known()
        plain = _stage().assumed(self) if found is None else found
        with _off():
            return plain.numpy(force=force)

    def __dlpack__(self, **options: Any) -> Any:
        """Hand the numbers to another library."""
        found = self.known()
        plain = _stage().assumed(self) if found is None else found
        with _off():
            return plain.__dlpack__(**options)

    def share_memory_(self) -> Shadow:
        """Stay as it is: there is no memory to share."""
        return self

    def apply_(self, *_: object) -> Any:
        """Refuse what torch would do to memory that is not there."""
        raise TypeError("A shadow has no numbers to change one by one.")

    map_ = apply_  # type: ignore[assignment]

    def __copy__(self) -> Any:
        return self.detach().requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            with torch.no_grad():
                copied = self.detach().clone().requires_grad_(self.requires_grad)
            if getattr(self, "_is_param", False):
                copied._is_param = True  # type: ignore[attr-defined]  # noqa: SLF001 - how torch marks a parameter that is a subclass
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("A shadow cannot be saved.")

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Go through the stage even where its mode is off, as in a thread of autograd."""
        return _stage().run(func, args, dict(kwargs or {}))


def _numpy_of_plain(self: Tensor, *, force: bool = False) -> Any:
    """Give the array of a plain tensor on a stage, where torch would give one of a shadow's memory."""
    shadow = _stage().outside.get(id(self))
    if shadow is not None and (shadow.values is not None or not shadow.place.known):
        return shadow.numpy(force=force)
    with _off():
        return torch._C.TensorBase.numpy(self, force=force)  # noqa: SLF001 - what is stood in for


_STAGES: list[Stage] = []


def _stage() -> Stage:
    if not _STAGES:
        raise RuntimeError("A shadow was used outside of its stage.")
    return _STAGES[-1]


@dataclass(frozen=True, slots=True)
class _Trait:
    """What is known of an operator before it is called."""

    name: str
    """Without its overload: ``aten.addmm``."""
    arguments: tuple[str, ...]
    written: tuple[int, ...]
    """Positions of the arguments that it changes."""
    written_names: tuple[str, ...]
    reshapes_in_place: bool
    random: bool


@cache
def trait(func: Any) -> _Trait:
    """Read an operator's schema, once."""
    schema = func._schema  # noqa: SLF001 - the only place that has it
    write = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    return _Trait(
        name=schema.name.replace("::", "."),
        arguments=tuple(a.name for a in schema.arguments),
        written=tuple(i for i, w in enumerate(write) if w),
        written_names=tuple(a.name for a, w in zip(schema.arguments, write, strict=True) if w),
        reshapes_in_place=torch.Tag.inplace_view in func.tags,
        random=torch.Tag.nondeterministic_seeded in func.tags,
    )


@dataclass(slots=True)
class Call:
    """One call of an operator, as it is told to whoever watches."""

    trait: _Trait
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Shadow, ...]
    """Tensors that it made or changed; empty for a mere view."""
    fresh: bool
    """Whether it did anything but look at memory in another way."""


class Witness(Protocol):
    """Whoever is told of what happens on a stage."""

    def watch(self, call: Call) -> None:
        """Learn of a call."""

    def allocate(self, size: int) -> int:
        """Learn of new memory, of so many bytes; give its index."""

    def free(self, index: int) -> None:
        """Learn that nothing lies there any more."""


class Stage(TorchDispatchMode):
    """Runs torch programs on shadows."""

    supports_higher_order_operators = True
    """They are told of here, to be refused by name."""

    def __init__(self, witness: Witness) -> None:
        """Tell the witness, which may be replaced between two courses, of what happens."""
        super().__init__()
        self.witness = witness
        self.assumptions: dict[str, None] = {}
        self.outside: dict[int, Shadow] = {}
        """Of plain tensors that come from elsewhere, by their id; weights are entered beforehand."""
        self._kept: list[tuple[Tensor, int | None]] = []
        """Those plain tensors, each with the identity of its storage."""
        self._forms: dict[Any, Any] = {}
        """Call of an operator, by the forms of its arguments, to the forms of what it makes."""
        self._storages: dict[int, tuple[Place, UntypedStorage]] = {}

    def __enter__(self) -> Stage:  # type: ignore[override]  # noqa: PYI034 - the mode's own protocol
        _STAGES.append(self)
        self._swap = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        Tensor.numpy = _numpy_of_plain  # type: ignore[method-assign,assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:  # type: ignore[override]
        super().__exit__(*error)  # type: ignore[arg-type]
        torch.__future__.set_swap_module_params_on_conversion(self._swap)
        _STAGES.pop()
        if not _STAGES:
            del Tensor.numpy

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator on shadows."""
        if isinstance(func, torch._ops.HigherOrderOperator):  # noqa: SLF001 - no public name
            raise RequestError(
                f"The operator {func.name()}, which takes functions, cannot be analysed yet; analyse the model "
                "with another implementation of it."
            )
        return self.run(func, args, dict(kwargs or {}))

    # -- bringing tensors onto the stage -----------------------------------------------------------

    def shadow(self, shape: tuple[int, ...], dtype: torch.dtype, values: Values = None) -> Shadow:
        """Cast a fresh shadow of a contiguous tensor."""
        with _off():
            meta = torch.empty(shape, dtype=dtype, device=_META)
        return self._cast(meta, values)

    def of(self, plain: Tensor) -> Shadow:
        """Cast the shadow of a plain tensor, once; tensors that share memory share a place."""
        known = self.outside.get(id(plain))
        if known is not None:
            return known
        with _off():
            made, key = self._outside(plain)
        self.outside[id(plain)] = made
        self._kept.append((plain, key))
        return made

    def _outside(self, plain: Tensor) -> tuple[Shadow, int | None]:
        values = plain.detach().clone() if _small(plain) and not plain.is_meta else None
        try:
            storage = plain.untyped_storage()
            key, size = storage._cdata, storage.nbytes()  # noqa: SLF001 - the storage's identity
        except (NotImplementedError, RuntimeError):  # sparse, quantised or otherwise without a plain storage
            made = self._cast(torch.empty(plain.shape, dtype=_plain_dtype(plain), device=_META), values)
            made.place.stored = _stored(plain)
            return made, None
        if key not in self._storages:
            memory = UntypedStorage(size, device=_META)
            self._storages[key] = self._place(size), memory
        place, memory = self._storages[key]
        meta = torch.empty(0, dtype=plain.dtype, device=_META)
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

    def _cast(self, meta: Tensor, values: Values = None) -> Shadow:
        return Shadow(meta, self._place(meta.untyped_storage().nbytes()), values)

    def _place(self, size: int) -> Place:
        return Place(self.witness.allocate(size), self.witness.free)

    # -- running operators -------------------------------------------------------------------------

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator: its shapes on torch's meta device, its values where they are all known."""
        found = trait(func)
        special = _SPECIAL.get(found.name)
        with _off():
            if special is not None:
                answer = special(self, found, args, kwargs)
                if answer is not NotImplemented:
                    return answer
            seen = _Seen(self)
            meta_args = tuple(map(seen.unwrap, args))
            meta_kwargs = {name: seen.unwrap(value) for name, value in kwargs.items()}
            if meta_kwargs.get("device") is not None:
                meta_kwargs["device"] = _META
            real = self._values(func, found, args, kwargs, seen)
            out = self._shaped(func, meta_args, meta_kwargs, real, seen)
            return self._finish(func, found, args, kwargs, out, real, seen)

    def _shaped(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], real: Any, seen: _Seen
    ) -> Any:
        """Find the shapes, or remember them: the layers of a network are much alike."""
        key = (
            None if trait(func).written else (func, *map(_signature, args), *map(_signature, kwargs.items()))
        )
        try:
            forms = self._forms.get(key)
        except TypeError:  # an argument that cannot be hashed
            key, forms = None, None
        if forms is not None:
            return _formed(forms)
        out = _on_meta(func, args, kwargs, real, seen)
        if key is not None and not seen.by_value and (forms := _forms(out, seen)) is not None:
            self._forms[key] = forms
        return out

    def _values(
        self, func: Any, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen
    ) -> Any:
        """Compute for real, where everything is known and small; give None otherwise."""
        if not seen.all_known or found.random:
            self._taint(found, args, kwargs)
            return None
        if not seen.shadows and not _is_small_factory(found, args, kwargs):
            return None
        try:
            return func(*map(_real, args), **{name: _real(value) for name, value in kwargs.items()})
        except (RuntimeError, NotImplementedError, IndexError, TypeError):
            self._taint(found, args, kwargs)
            return None

    def _taint(self, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        written = [args[i] for i in found.written if i < len(args)]
        written += [kwargs[name] for name in found.written_names if name in kwargs]
        for value in written:
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, Tensor):
                    shadow = self._as_shadow(one)
                    shadow.place.known, shadow.values = False, None

    def _finish(
        self,
        func: Any,
        found: _Trait,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        real: Any,
        seen: _Seen,
    ) -> Any:
        result = seen.wrap(out, real)
        if found.reshapes_in_place:
            _reshape(func, args, kwargs)
        if found.written and not seen.made:
            seen.made += [self._as_shadow(args[i]) for i in found.written if isinstance(args[i], Tensor)]
        self.witness.watch(Call(found, args, kwargs, tuple(seen.made), seen.fresh or bool(found.written)))
        return result

    def _as_shadow(self, value: Tensor) -> Shadow:
        return value if isinstance(value, Shadow) else self.of(value)

    def assume(self, what: str) -> None:
        """Keep an assumption, to be told."""
        self.assumptions[what] = None

    def assumed(self, tensor: Shadow) -> Tensor:
        """Give numbers for those that a program looks at but that depend on what is not computed."""
        kind = {torch.bool: "flags"}.get(tensor.dtype, "numbers")
        self.assume(f"{kind} that the course depends on are not computed; taken as {_taken(tensor.dtype)}")
        with _off():
            if tensor.dtype is torch.bool:
                return torch.zeros(tensor.shape, dtype=torch.bool)
            return torch.ones(tensor.shape, dtype=tensor.dtype)


def _taken(dtype: torch.dtype) -> str:
    return "false" if dtype is torch.bool else "1"


_OFF = torch._C._DisableTorchDispatch  # type: ignore[attr-defined]  # noqa: SLF001 - no public name


def _off() -> Any:
    """Run torch itself, not the stage."""
    return _OFF()


class _Seen:
    """The shadows that go into a call, and those that come out of it.

    No function here refers to itself by closure: a cycle would keep shadows alive for too long.
    """

    __slots__ = ("all_known", "by_value", "fresh", "given", "made", "places", "shadows", "stage")

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.shadows: dict[int, Shadow] = {}
        self.given: dict[int, Tensor] = {}
        """Plain tensors by the id of their shadow on the meta device: what is changed in place is given back."""
        self.places: dict[int, Place] = {}
        self.all_known = True
        self.by_value = False
        """Whether the shapes of what is made depend on values."""
        self.made: list[Shadow] = []
        self.fresh = False
        """Whether new memory was made."""

    def unwrap(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            shadow = value if isinstance(value, Shadow) else self.stage.of(value)
            meta = shadow.shape_of
            self.shadows[id(meta)] = shadow
            if shadow is not value:
                self.given[id(meta)] = value
            self.places[meta.untyped_storage()._cdata] = shadow.place  # noqa: SLF001 - identity
            if shadow.values is None or not shadow.place.known:
                self.all_known = False
            return meta
        if isinstance(value, list | tuple):
            return type(value)(map(self.unwrap, value))
        return value

    def wrap(self, meta: Any, value: Any) -> Any:
        """Cast the shadows of what came out; what went in comes out as itself."""
        if isinstance(meta, Tensor):
            same = self.shadows.get(id(meta))
            if same is not None:
                self.made.append(same)
                return self.given.get(id(meta), same)
            place = self.places.get(meta.untyped_storage()._cdata)  # noqa: SLF001 - identity
            values = value if isinstance(value, Tensor) and _small(value) else None
            self.fresh |= place is None
            made = self.stage._cast(meta, values) if place is None else Shadow(meta, place, values)
            self.made.append(made)
            return made
        if isinstance(meta, list | tuple):
            values = value if isinstance(value, list | tuple) else (None,) * len(meta)
            return type(meta)(map(self.wrap, meta, values))
        return meta


def _real(value: Any) -> Any:
    if isinstance(value, Shadow):
        return value.values
    if isinstance(value, Tensor):
        return _stage().of(value).values
    if isinstance(value, list | tuple):
        return type(value)(map(_real, value))
    return value


def _signature(value: Any) -> Any:
    """Give what the shapes of an output depend on; numbers of unlike types differ in it."""
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, list | tuple):
        return tuple(map(_signature, value))
    return (type(value), value)


def _forms(out: Any, seen: _Seen) -> Any:
    """Note the forms of tensors that lie in memory of their own; None where any does not."""
    if isinstance(out, Tensor):
        shared = id(out) in seen.shadows or out.untyped_storage()._cdata in seen.places  # noqa: SLF001 - identity
        plain = out.layout is torch.strided and not out.storage_offset()
        return (out.shape, out.stride(), out.dtype) if plain and not shared else None
    if isinstance(out, list | tuple):
        forms = [_forms(each, seen) for each in out]
        return None if None in forms else (type(out), forms)
    return None


def _formed(forms: Any) -> Any:
    if isinstance(forms[0], type):
        return forms[0](map(_formed, forms[1]))
    return torch.empty_strided(forms[0], forms[1], dtype=forms[2], device=_META)


def _on_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], real: Any, seen: _Seen) -> Any:
    """Find the shapes: by torch, by a rule of ours, or by the values."""
    rule = _SHAPES.get(trait(func).name)
    if rule is not None:
        return rule(func, args, kwargs, seen)
    try:
        return func(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        if real is not None:
            seen.by_value = True
            return _metas(real)
        try:
            out = func.decompose(*args, **kwargs)
        except (NotImplementedError, RuntimeError, AttributeError):
            out = NotImplemented
        if out is NotImplemented:
            raise _no_shapes(func, error) from error
        return out


def _no_shapes(func: Any, error: Exception) -> Exception:
    """Give torch's own objection to wrong shapes as it is, and name an operator that has no shapes."""
    known = ("meta", "no fake impl")  # words of torch's own complaints
    if isinstance(error, NotImplementedError) or any(word in str(error).lower() for word in known):
        return RequestError(
            f"The operator {trait(func).name} cannot be analysed: torch knows no rule for its shapes; "
            "register one with torch.library.register_fake."
        )
    return error


def _metas(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_META)
    if isinstance(value, list | tuple):
        return type(value)(map(_metas, value))
    return value


def _small(tensor: Tensor) -> bool:
    return tensor.numel() <= _MOST_KNOWN and tensor.layout is torch.strided


def _is_small_factory(found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether what is made from nothing, such as a range, has values, and few by what is asked for."""
    if found.name in _UNSET:
        kind = kwargs.get("dtype")
        return kind is not None and not kind.is_floating_point and _is_few(args)
    return _is_few(args)


def _is_few(args: tuple[Any, ...]) -> bool:
    shape = next((a for a in args if isinstance(a, list | tuple)), None)
    if shape is not None and all(isinstance(n, int) for n in shape):
        return prod(shape) <= _MOST_KNOWN
    return all(abs(n) <= _MOST_KNOWN for n in args if isinstance(n, int | float))


def _stored(tensor: Tensor) -> int | None:
    if tensor.layout is torch.sparse_coo:
        return tensor._nnz()
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


# -- operators whose course depends on values --------------------------------------------------------


def _item(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del found, kwargs
    shadow = stage._as_shadow(args[0])
    values = shadow.known()
    return (stage.assumed(shadow) if values is None else values).item()


def _equal(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del found, kwargs
    first, second = (stage._as_shadow(a).known() for a in args[:2])
    if first is not None and second is not None:
        return torch.equal(first, second)
    stage.assume("two tensors that are not computed are compared; taken as different")
    return False


def _choice(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ask torch which attention it takes on the CPU, with tensors of these shapes that take no memory."""
    del stage, found

    def thin(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        strides = (0,) * (value.dim() - 1) + (1,)
        made = torch.empty(value.shape[-1] if value.dim() else 1, dtype=value.dtype)
        return made.as_strided(value.shape, strides).requires_grad_(value.requires_grad)

    return torch._fused_sdp_choice(*map(thin, args), **{k: thin(v) for k, v in kwargs.items()})  # noqa: SLF001


def _count_of_true(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Find what is non-zero; where it is not known, all is."""
    del found
    shadow = stage._as_shadow(args[0])
    if shadow.known() is not None:
        return NotImplemented
    stage.assume("which elements are chosen is not computed; taken as all of them")
    ones = torch.ones(shadow.shape, dtype=torch.bool)
    indices = torch.nonzero(ones)
    del kwargs
    return stage.shadow(tuple(indices.shape), torch.int64, indices if _small(indices) else None)


def _masked_select(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del kwargs
    chosen = _index_of(stage, args[1])
    source = stage._as_shadow(args[0])
    out = stage.shadow((chosen[0].shape[0],), source.dtype)
    stage.witness.watch(Call(found, args, {}, (out,), True))
    return out


def _whole(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Settle whole numbers where they are made of unknown fractions: all that follows from them agrees."""
    kind, source = kwargs.get("dtype"), args[0]
    if kind not in {torch.int64, torch.int32} or not source.dtype.is_floating_point:
        return NotImplemented
    shadow = stage._as_shadow(source)
    if shadow.known() is not None or not _small(shadow.shape_of):
        return NotImplemented
    stage.assume("whole numbers made of what is not computed are taken as 1")
    meta = shadow.shape_of.to(kind)
    out = stage._cast(meta, torch.ones(meta.shape, dtype=kind))
    stage.witness.watch(Call(found, args, kwargs, (out,), True))
    return out


def _repeated(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the places that repeated ones come from; where it is not known how often, it is once."""
    repeats = stage._as_shadow(args[0])
    if repeats.known() is not None:
        return NotImplemented
    size = kwargs.get("output_size") or repeats.numel()
    stage.assume("how often elements are repeated is not computed; taken as once each")
    places = torch.arange(size).clamp_(max=max(0, repeats.numel() - 1)) if size <= _MOST_KNOWN else None
    out = stage.shadow((size,), repeats.dtype, places)
    stage.witness.watch(Call(found, args, kwargs, (out,), True))
    return out


def _index_of(stage: Stage, mask: Tensor) -> tuple[Tensor, ...]:
    shadow = stage._as_shadow(mask)
    values = shadow.known()
    if values is None:
        stage.assume("which elements are chosen is not computed; taken as all of them")
        values = torch.ones(shadow.shape, dtype=torch.bool)
    return torch.nonzero(values, as_tuple=True)


def _index(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Turn masks among the indices into the positions that they choose."""
    indices = args[1]
    if not any(isinstance(i, Tensor) and i.dtype in {torch.bool, torch.uint8} for i in indices):
        return NotImplemented
    whole: list[Any] = []
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}:
            chosen = _index_of(stage, index)
            whole += [stage.shadow(tuple(i.shape), i.dtype, i if _small(i) else None) for i in chosen]
        else:
            whole.append(index)
    func = getattr(torch.ops.aten, found.name.removeprefix("aten."))
    overload = func.Tensor if hasattr(func, "Tensor") else func.default
    return stage.run(overload, (args[0], whole, *args[2:]), kwargs)


def _chosen(stage: Stage, found: _Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Spread a choice by unknown scores evenly: every expert, every class gets its turn."""
    shadow = stage._as_shadow(args[0])
    if shadow.known() is not None:
        return NotImplemented
    given = dict(zip(found.arguments, args, strict=False)) | kwargs
    axis = given.get("dim", -1)
    if not isinstance(axis, int) or not shadow.dim():
        return NotImplemented
    size = shadow.shape[axis]
    seen = _Seen(stage)
    overload = _overload(found, given)
    out = overload(*map(seen.unwrap, args), **{k: seen.unwrap(v) for k, v in kwargs.items()})
    outs = out if isinstance(out, list | tuple) else (out,)
    wrapped: list[Shadow] = []
    for meta in outs:
        values = None
        if meta.dtype is torch.int64 and size and meta.numel() <= _MOST_KNOWN:
            values = torch.arange(meta.numel()).remainder_(size).reshape(meta.shape)
            if axis % max(1, shadow.dim()) != shadow.dim() - 1 and meta.dim():
                place = axis % meta.dim()
                turned = meta.transpose(place, -1).shape
                values = torch.arange(meta.numel()).remainder_(size).reshape(turned).transpose(place, -1)
            stage.assume("a choice by scores that are not computed is spread evenly, as by a balanced router")
        wrapped.append(stage._cast(meta, values))
    stage.witness.watch(Call(found, args, kwargs, tuple(wrapped), True))
    return (
        type(out)(wrapped) if isinstance(out, list) else (tuple(wrapped) if len(wrapped) > 1 else wrapped[0])
    )


def _overload(found: _Trait, given: Mapping[str, Any]) -> Any:
    packet = getattr(torch.ops.aten, found.name.removeprefix("aten."))
    for name in packet.overloads():
        overload = getattr(packet, name)
        if trait(overload).arguments == found.arguments or set(given) <= set(trait(overload).arguments):
            if not trait(overload).written and "out" not in trait(overload).arguments:
                return overload
    return packet


_SPECIAL: dict[str, Callable[[Stage, _Trait, tuple[Any, ...], dict[str, Any]], Any]] = {
    "aten._local_scalar_dense": _item,
    "aten.equal": _equal,
    "aten._fused_sdp_choice": _choice,
    "aten.nonzero": _count_of_true,
    "aten.masked_select": _masked_select,
    "aten.repeat_interleave": _repeated,
    "aten._to_copy": _whole,
    "aten.index": _index,
    "aten.index_put": _index,
    "aten.index_put_": _index,
    "aten.topk": _chosen,
    "aten.sort": _chosen,
    "aten.argmax": _chosen,
    "aten.argmin": _chosen,
    "aten.argsort": _chosen,
}


# -- shapes that torch does not know -----------------------------------------------------------------


def _like_first(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen) -> Any:
    del func, kwargs, seen
    return torch.empty_like(args[0])


def _attention_fast_path(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen) -> Any:
    del seen
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    query, key, heads = given["query"], given["key"], given["num_head"]
    batch, length, _ = query.shape
    weights = torch.empty(0, device=_META)
    if given.get("need_weights", True):
        average = given.get("average_attn_weights", True)
        shape = (batch, length, key.shape[1]) if average else (batch, heads, length, key.shape[1])
        weights = query.new_empty(shape)
    return torch.empty_like(query), weights


def _grouped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen) -> Any:
    """Give the shape of a grouped product in any dtype; torch's own rule knows bfloat16 alone."""
    del seen
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    first, second, ends = given["self"], given["mat2"], given.get("offs")
    outer = (first.shape[-2], second.shape[-1])
    if first.dim() == second.dim():
        outer = ((ends if first.dim() < 3 else first).shape[0], *outer)  # noqa: PLR2004 - matrices
    return first.new_empty(outer, dtype=given.get("out_dtype") or first.dtype)


def _packed_linear(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen) -> Any:
    """Give the shape of a linear layer whose quantised weight is packed."""
    del kwargs, seen
    source, packed = args[0], args[1]
    width = packed.unpack()[0].shape[0]
    dynamic = "dynamic" in trait(func).name
    return source.new_empty((*source.shape[:-1], width), dtype=torch.float32 if dynamic else source.dtype)


def _packed_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen) -> Any:
    """Give what is left of padded sequences: their steps one after the other, and how many go on at each."""
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    source, lengths = given["input"], seen.shadows[id(given["lengths"])].known()
    steps, batch = (1, 0) if given["batch_first"] else (0, 1)
    if lengths is None:
        seen.stage.assume("the lengths of sequences are not computed; taken as all full")
        lengths = torch.full((source.shape[batch],), source.shape[steps])
    going = [int((lengths > step).sum()) for step in range(int(lengths.max()))]
    return source.new_empty((sum(going), *source.shape[2:])), lengths.new_empty(len(going), device=_META)


_SHAPES: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any], _Seen], Any]] = {
    "aten._transformer_encoder_layer_fwd": _like_first,
    "aten._native_multi_head_attention": _attention_fast_path,
    "aten._grouped_mm": _grouped,
    "aten._pack_padded_sequence": _packed_rows,
    "quantized.linear_dynamic": _packed_linear,
    "quantized.linear_relu_dynamic": _packed_linear,
    "quantized.linear": _packed_linear,
    "quantized.linear_relu": _packed_linear,
}
