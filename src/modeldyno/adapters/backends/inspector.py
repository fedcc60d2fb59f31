"""A client that the user wrote: an inspector, whose calls are made in threads of this process."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from modeldyno.adapters.backends.output_leaves import finished_leaves
from modeldyno.errors import RequestError
from modeldyno.interfaces import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.core.spec.knob import Knob, KnobValue
    from modeldyno.interfaces import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.CALLABLE})
knobs: tuple[Knob, ...] = ()
serves = True


@runtime_checkable
class Inspector(Protocol):
    """What sends requests of so many samples."""

    batch_size: int

    def calls(self) -> Sequence[Callable[[], Any]]:
        """Give what sends a request each; to be cycled through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An inspector at work; its server is not ours."""

    inspector: Inspector
    pid: int | None = None

    @property
    def samples(self) -> int:
        """In a request."""
        return self.inspector.batch_size

    def calls(self) -> Sequence[Callable[[], Any]]:
        """Give what sends a request each."""
        return self.inspector.calls()

    def arrays(self, output: Any) -> Feed:
        """Give whatever of an answer is an array."""
        return {
            name: leaf
            for name, leaf in finished_leaves(output)
            if hasattr(leaf, "dtype") and hasattr(leaf, "size")
        }


def check(config: Mapping[str, KnobValue]) -> None:
    """Accept everything: there is nothing to set."""
    del config


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[Session]:  # noqa: A001 - the port's word
    """Give a session.

    Raises:
        RequestError: it is a callable that is no inspector.
    """
    del config
    if not isinstance(model.value, Inspector):
        raise RequestError(
            f"{model.identity.name} is no inspector: it has no calls() and no batch_size; subclass "
            "modeldyno.BaseModelInspector."
        )
    yield Session(inspector=model.value)
