"""Shadows: tensors that have a shape, a dtype and a place in memory, but cast no numbers.

They live on a stage (`torch_stage`), which runs the operators that they meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modeldyno.adapters.loaders.torch_tracing.dispatch import Stage

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
    numbers: Values
    """Its numbers, where they are known."""
    guess: str | None
    """What was assumed to know them; told once a course depends on them."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001 - as a plain tensor has none

    @staticmethod
    def __new__(  # noqa: PYI034 - a tensor's own protocol
        cls: type[Shadow],
        shape_of: Tensor,
        place: Place,
        values: Values = None,
        guess: str | None = None,
    ) -> Shadow:
        """Cast a shadow."""
        made: Shadow = Tensor._make_wrapper_subclass(  # noqa: SLF001 - the documented way
            cls,
            shape_of.shape,
            strides=shape_of.stride(),
            storage_offset=shape_of.storage_offset(),
            dtype=shape_of.dtype,
            layout=shape_of.layout,
            device=_CPU,
        )
        made.shape_of, made.place, made.numbers, made.guess = shape_of, place, values, guess
        return made

    def __init__(self, *_: object) -> None:
        """Everything is done in `__new__`."""

    def __repr__(self, **_: object) -> str:  # type: ignore[override]
        return f"Shadow({tuple(self.shape)}, {self.dtype})"

    def __format__(self, form: str) -> str:
        """Write a single number as the number, as a plain tensor does: names of experts are made so."""
        return repr(self) if self.dim() else format(self.item(), form)

    def known(self) -> Values:
        """Give its numbers, for a course to depend on, if they are known and still hold."""
        if self.numbers is None or not self.place.known:
            return None
        if self.guess is not None:
            stage().assume(self.guess)
        return self.numbers

    def _plain(self) -> Tensor:
        """Give its numbers as a whole, made up where that is allowed.

        Raises:
            TypeError: they are not known, and nothing is to be made up, as it may be kept.
        """
        found = self.known()
        if found is None and not stage().assumes:
            raise TypeError("The numbers of a shadow are not known.")
        return stage().assumed(self) if found is None else found

    def tolist(self) -> Any:
        """Give the numbers; unknown ones as they are assumed to be."""
        with off():
            return self._plain().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Give the numbers as an array."""
        with off():
            return self._plain().numpy(force=force)

    def __dlpack__(self, **options: Any) -> Any:
        """Hand the numbers to another library."""
        with off():
            return self._plain().__dlpack__(**options)

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(_indexed(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_indexed(index), value)

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
                copied._is_param = True  # noqa: SLF001 - how torch marks a parameter that is a subclass
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("A shadow cannot be saved.")

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Go through the stage even where its mode is off, as in a thread of autograd."""
        return stage().run(func, args, dict(kwargs or {}))


def _indexed(index: Any) -> Any:
    """Give an index whose sequences hold plain numbers."""
    if isinstance(index, tuple):
        return tuple(plain_numbers(each) if isinstance(each, list | tuple) else each for each in index)
    return plain_numbers(index) if isinstance(index, list) else index


def plain_numbers(value: Any) -> Any:
    """Give plain numbers for single ones within sequences, which torch would read beneath the stage."""
    if isinstance(value, list | tuple):
        return [plain_numbers(each) for each in value]
    return value.item() if isinstance(value, Shadow) and not value.dim() else value


STAGES: list[Stage] = []
"""Those that were entered, the innermost last."""


def stage() -> Stage:
    """Give the stage that is played on."""
    if not STAGES:
        raise RuntimeError("A shadow was used outside of its stage.")
    return STAGES[-1]


_OFF = torch._C._DisableTorchDispatch  # noqa: SLF001 - no public name


def off() -> Any:
    """Run torch itself, not the stage."""
    return _OFF()
