"""One call of an operator on a stage: the shadows that go in, the shapes that come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from modeldyno.adapters.loaders.torch_tracing.meta_tensor import Place, Shadow, stage
from modeldyno.adapters.loaders.torch_tracing.op_traits import META, is_small, trait
from modeldyno.adapters.loaders.torch_tracing.shape_rules import SHAPES
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.torch_tracing.dispatch import Stage


class Seen:
    """The shadows that go into a call, and those that come out of it.

    No function here refers to itself by closure: a cycle would keep shadows alive for too long.
    """

    __slots__ = (
        "all_known",
        "by_value",
        "fresh",
        "given",
        "guess",
        "made",
        "places",
        "real",
        "shadows",
        "stage",
    )

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.shadows: dict[int, Shadow] = {}
        self.given: dict[int, Tensor] = {}
        """Plain tensors by the id of their form: what is changed in place is given back as it came."""
        self.places: dict[int, Place] = {}
        self.all_known = True
        self.real: Any = None
        """What came out as numbers, where all that went in was known."""
        self.guess: str | None = None
        """What was assumed to know the numbers that go in."""
        self.by_value = False
        """Whether the shapes of what is made depend on values."""
        self.made: list[Shadow] = []
        self.fresh = False
        """Whether new memory was made."""

    def unwrap(self, value: Any) -> Any:
        """Give arguments with their tensors on the meta device."""
        if isinstance(value, Tensor):
            shadow = value if isinstance(value, Shadow) else self.stage.of(value)
            meta = shadow.shape_of
            self.shadows[id(meta)] = shadow
            if shadow is not value:
                self.given[id(meta)] = value
            self.places[meta.untyped_storage()._cdata] = shadow.place  # noqa: SLF001 - identity
            if shadow.numbers is None or not shadow.place.known:
                self.all_known = False
            self.guess = self.guess or shadow.guess
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
            values = value if isinstance(value, Tensor) and is_small(value) else None
            self.fresh |= place is None
            guess = None if values is None else self.guess
            made = (
                self.stage.cast(meta, values, guess) if place is None else Shadow(meta, place, values, guess)
            )
            self.made.append(made)
            return made
        if isinstance(meta, list | tuple):
            each = value if isinstance(value, list | tuple) else (None,) * len(meta)
            return type(meta)(map(self.wrap, meta, each))
        return meta


def real(value: Any) -> Any:
    """Give arguments with the numbers of their tensors."""
    if isinstance(value, Shadow):
        return value.numbers
    if isinstance(value, Tensor):
        return stage().of(value).numbers
    if isinstance(value, list | tuple):
        return type(value)(map(real, value))
    return value


def signature(value: Any) -> Any:
    """Give what the shapes of an output depend on; numbers of unlike types differ in it."""
    if isinstance(value, Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, list | tuple):
        return tuple(map(signature, value))
    return (type(value), value)


def forms_of(out: Any, seen: Seen) -> Any:
    """Note the forms of tensors that lie in memory of their own; None where any does not."""
    if isinstance(out, Tensor):
        shared = id(out) in seen.shadows or out.untyped_storage()._cdata in seen.places  # noqa: SLF001 - identity
        plain = out.layout is torch.strided and not out.storage_offset() and not out.is_quantized
        return (out.shape, out.stride(), out.dtype) if plain and not shared else None
    if isinstance(out, list | tuple):
        forms = [forms_of(each, seen) for each in out]
        return None if None in forms else (type(out), forms)
    return None


def formed(forms: Any) -> Any:
    """Give tensors on the meta device of these forms."""
    if isinstance(forms[0], type):
        return forms[0](map(formed, forms[1]))
    return torch.empty_strided(forms[0], forms[1], dtype=forms[2], device=META)


def on_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Find the shapes: by torch, by a rule of ours, or by the values."""
    rule = SHAPES.get(trait(func).name)
    if rule is not None:
        return rule(func, args, kwargs, seen)
    try:
        return func(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        if seen.real is not None:
            seen.by_value = True
            if seen.guess is not None:
                seen.stage.assume(seen.guess)
            return _metas(seen.real)
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
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)
    if isinstance(value, list | tuple):
        return type(value)(map(_metas, value))
    return value
