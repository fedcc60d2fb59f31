"""Backend for inspectors: clients written by the user, whose calls are made in threads of this process."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from modeldyno.base.errors import RequestError
from modeldyno.engine.backends.output_leaves import finished_leaves, has_attributes
from modeldyno.engine.interfaces.session import ThreadSession
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from modeldyno.base.job.knob import Knob, KnobValue
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ()
accepts = frozenset({Form.CALLABLE})
knobs: tuple[Knob, ...] = ()
serves = True


@runtime_checkable
class Inspector(Protocol):
    """Sends requests of `batch_size` samples each."""

    batch_size: int

    def calls(self) -> Sequence[Callable[[], Any]]:
        """Return callables that send one request each; they are called in a cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectorSession(ThreadSession):
    """A running inspector; its server was not started by us."""

    inspector: Inspector
    samples: int
    """In a request."""
    pid: int | None = None
    """Of the server, where it is known."""

    def calls(self, feeds: Sequence[Feed]) -> Sequence[Callable[[], Any]]:
        """Return callables that send one request each, of the inspector's own data."""
        del feeds
        return self.inspector.calls()

    def arrays(self, output: Any) -> Feed:
        """Return the arrays in an answer."""
        return {name: leaf for name, leaf in finished_leaves(output) if has_attributes(leaf, "dtype", "size")}


def check(config: Mapping[str, KnobValue]) -> None:
    """Accept every configuration: there are no knobs."""
    del config


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[InspectorSession]:
    """Open a session.

    Raises:
        RequestError: the callable is not an inspector.
    """
    del config
    if not isinstance(model.value, Inspector):
        raise RequestError(
            f"{model.identity.name} is not an inspector: it lacks calls() or batch_size; subclass "
            "modeldyno.compat.BaseModelInspector."
        )
    inspector = model.value
    pid = getattr(inspector, "server_pid", None)
    yield InspectorSession(inspector=inspector, samples=inspector.batch_size, pid=pid)
