"""Meta tensors: they have a shape, a dtype and storage, but no values.

They need an active dispatch mode (`dispatch`), which runs their operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_CPU = torch.device("cpu")

Values = Tensor | None
_OFF = torch._C._DisableTorchDispatch
META = torch.device("meta")
MAX_KNOWN_ELEMENTS = 2**20
"""Maximum number of elements of a tensor whose values are kept."""


class StorageHandle:
    """Memory of meta tensors: it is freed with the last one that uses it."""

    __slots__ = ("index", "on_free", "stored", "valid")

    def __init__(self, index: int, on_free: Callable[[int], None]) -> None:
        """Call `on_free` with `index` when the last meta tensor is gone."""
        self.index = index
        self.on_free = on_free
        self.valid = True
        """Whether values of tensors in it still hold; writing something unknown into it ends that."""
        self.stored: int | None = None
        """Number of elements that a sparse tensor in it stores."""

    def __del__(self) -> None:
        self.on_free(self.index)


class DispatchMode(Protocol):
    """What meta tensors and shape rules use of the dispatch mode that runs them."""

    assumes: bool
    """Whether values that are not computed are made up; otherwise reading them is an error."""
    mirrored: dict[int, MetaTensor]
    """Meta tensors of plain tensors from elsewhere, by the id of the plain tensor."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator."""

    def call_within(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Call a function that an operator takes, with its operators handled."""

    def on_meta(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on torch's meta device."""

    def meta_tensor_of(self, plain: Tensor) -> MetaTensor:
        """Return the meta tensor of a plain tensor."""

    def as_meta_tensor(self, value: Tensor) -> MetaTensor:
        """Return the meta tensor of any tensor."""

    def make_tensor(self, shape: tuple[int, ...], dtype: torch.dtype, values: Values = None) -> MetaTensor:
        """Make a contiguous meta tensor."""

    def wrap_meta(self, meta: Tensor, values: Values = None, guess: str | None = None) -> MetaTensor:
        """Wrap a tensor of the meta device that has memory of its own."""

    def assume(self, what: str, *, flag: bool = False) -> None:
        """Record an assumption."""

    def assumed_values(self, tensor: MetaTensor) -> Tensor:
        """Make up values that are not computed."""

    def assume_flag(self, false: str, true: str) -> bool:
        """Make up a flag and record the assumption."""

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


class MetaTensor(Tensor):
    """A tensor without values, which claims to be on the CPU."""

    backing: Tensor
    """The same tensor on torch's meta device."""
    handle: StorageHandle
    known_values: Values
    """Its values, where they are known."""
    guess: str | None
    """Assumption behind the values; recorded once control flow depends on them."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(  # noqa: PYI034 - a tensor's own protocol
        cls: type[MetaTensor],
        backing: Tensor,
        handle: StorageHandle,
        values: Values = None,
        guess: str | None = None,
    ) -> MetaTensor:
        """Wrap a tensor of the meta device."""
        meta_tensor: MetaTensor = Tensor._make_wrapper_subclass(
            cls,
            backing.shape,
            strides=backing.stride(),
            storage_offset=backing.storage_offset(),
            dtype=backing.dtype,
            layout=backing.layout,
            device=_CPU,
        )
        meta_tensor.backing, meta_tensor.handle, meta_tensor.known_values, meta_tensor.guess = (
            backing,
            handle,
            values,
            guess,
        )
        return meta_tensor

    def __init__(self, *_: object) -> None:
        """Everything is done in `__new__`."""

    def __repr__(self, **_: object) -> str:  # type: ignore[override]
        return f"MetaTensor({tuple(self.shape)}, {self.dtype})"

    def __format__(self, form: str) -> str:
        """Format a single value as a number, as a plain tensor does: expert names are built this way."""
        return repr(self) if self.dim() else format(self.item(), form)

    def valid_values(self) -> Values:
        """Return the values that control flow may depend on, if they are known and still hold."""
        if self.known_values is None or not self.handle.valid:
            return None
        if self.guess is not None:
            current_dispatch_mode().assume(self.guess)
        return self.known_values

    def _plain_values(self) -> Tensor:
        """Return the values, made up where that is allowed.

        Raises:
            TypeError: they are unknown, and may not be made up, as the result may be kept.
        """
        values = self.valid_values()
        if values is None and not current_dispatch_mode().assumes:
            raise TypeError("The values of a meta tensor are not known.")
        return current_dispatch_mode().assumed_values(self) if values is None else values

    def tolist(self) -> Any:
        """Return the values as lists; unknown ones as assumed."""
        with dispatch_off():
            return self._plain_values().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Return the values as an array; unknown ones as assumed."""
        with dispatch_off():
            return self._plain_values().numpy(force=force)

    def __dlpack__(self, **options: Any) -> Any:
        """Export the values to another library."""
        with dispatch_off():
            return self._plain_values().__dlpack__(**options)

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(_plain_index(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_plain_index(index), value)

    def share_memory_(self) -> MetaTensor:
        """Return itself: there is no memory to share."""
        return self

    def apply_(self, *_: object) -> Any:
        """Reject changes of single values."""
        raise TypeError("A meta tensor has no values to change one by one.")

    map_ = apply_  # type: ignore[assignment]

    def __copy__(self) -> Any:
        return self.detach().requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            with torch.no_grad():
                result = self.detach().clone().requires_grad_(self.requires_grad)
            if getattr(self, "_is_param", False):
                result._is_param = True
            memo[id(self)] = result
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("A meta tensor cannot be saved.")

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Dispatch through the active mode even where it is off, as in an autograd thread."""
        return current_dispatch_mode().run(func, args, dict(kwargs or {}))


def _plain_index(index: Any) -> Any:
    """Return an index whose sequences hold plain numbers."""
    if isinstance(index, tuple):
        return tuple(plain_numbers(item) if isinstance(item, list | tuple) else item for item in index)
    return plain_numbers(index) if isinstance(index, list) else index


def plain_numbers(value: Any) -> Any:
    """Replace single tensors in sequences by numbers, which torch would read below the dispatch mode."""
    if isinstance(value, list | tuple):
        return [plain_numbers(item) for item in value]
    return value.item() if isinstance(value, MetaTensor) and not value.dim() else value


MODE_STACK: list[DispatchMode] = []
"""The active modes, the innermost last."""


def current_dispatch_mode() -> DispatchMode:
    """Return the active dispatch mode."""
    if not MODE_STACK:
        raise RuntimeError("A meta tensor was used without its dispatch mode.")
    return MODE_STACK[-1]


def dispatch_off() -> Any:
    """Disable dispatch to the mode, so that torch itself runs."""
    return _OFF()


@dataclass(frozen=True, slots=True)
class OpTraits:
    """Static properties of an operator."""

    name: str
    """Name without the overload: ``aten.addmm``."""
    arguments: tuple[str, ...]
    written: tuple[int, ...]
    """Positions of the arguments that it writes into."""
    written_names: tuple[str, ...]
    reshapes_in_place: bool
    random: bool


@cache
def traits_of(func: Any) -> OpTraits:
    """Read the properties of an operator from its schema, cached."""
    schema = func._schema
    write = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    return OpTraits(
        name=schema.name.replace("::", "."),
        arguments=tuple(a.name for a in schema.arguments),
        written=tuple(i for i, w in enumerate(write) if w),
        written_names=tuple(a.name for a, w in zip(schema.arguments, write, strict=True) if w),
        reshapes_in_place=torch.Tag.inplace_view in func.tags,
        random=torch.Tag.nondeterministic_seeded in func.tags,
    )


def is_small(tensor: Tensor) -> bool:
    """Whether a tensor is small enough for its values to be kept."""
    return tensor.numel() <= MAX_KNOWN_ELEMENTS and tensor.layout is torch.strided
