"""JAX backend: calls a function of arrays on a device, and waits for all of its results.

JAX returns before the device has finished, so a call ends with `jax.block_until_ready`. The function is
called as it is: what is not jitted runs operator by operator. The inputs are copied to the device before.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE, Knob
from modeldyno.engine.backends import python
from modeldyno.models.interface import Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.models.interface import Feed, Model

requires: tuple[str, ...] = ("jax",)
accepts = frozenset({Form.CALLABLE})
knobs: tuple[Knob, ...] = (
    Knob(
        name="device",
        sentence="Where to run: cpu, gpu, gpu:1 or tpu; JAX's default is the fastest that it finds.",
    ),
    BATCH_SIZE,
)

_DEVICE = re.compile(r"(?P<platform>[a-z]+)(?::(?P<index>\d+))?")


class JaxSession(python.PythonSession):
    """A function of JAX and the device of its inputs."""

    def __init__(self, function: Callable[..., Any], device: Any) -> None:
        super().__init__(function)
        self.device = str(device)
        self._device = device

    def prepare(self, feed: Feed) -> Callable[[], Any]:
        """Copy the inputs to the device; a call waits until the device has its results."""
        import jax  # optional, and heavy

        call = super().prepare(feed)
        if isinstance(call, partial) and call.func is self._function:
            arguments = jax.block_until_ready(jax.device_put((call.args, call.keywords), self._device))
            call = partial(call.func, *arguments[0], **arguments[1])

        def run() -> Any:
            return jax.block_until_ready(call())

        return run


def check(config: Mapping[str, KnobValue]) -> None:
    """Refuse a word that is no device."""
    if "device" in config and _DEVICE.fullmatch(str(config["device"])) is None:
        raise RequestError(
            f"The knob device takes a platform of JAX, such as cpu or gpu:1, not '{config['device']}'."
        )


@contextmanager
def open(model: Model, config: Mapping[str, KnobValue]) -> Iterator[JaxSession]:
    """Open a session; what is jitted is compiled by its first call.

    Raises:
        RequestError: the device is not there.
    """
    import jax  # optional, and heavy

    device = _resolve_device(jax, config)
    with python.open(model, config), jax.default_device(device):
        yield JaxSession(model.value, device)


def device_of(config: Mapping[str, KnobValue]) -> str:
    """Return the device that a session would run on.

    Raises:
        RequestError: it is not there.
    """
    import jax  # optional, and heavy

    return str(_resolve_device(jax, config))


def _resolve_device(jax: Any, config: Mapping[str, KnobValue]) -> Any:
    return _find_device(jax, str(config["device"])) if "device" in config else jax.devices()[0]


def _find_device(jax: Any, text: str) -> Any:
    match = _DEVICE.fullmatch(text)
    assert match is not None
    index = int(match["index"] or 0)
    try:
        return jax.devices(match["platform"])[index]
    except (RuntimeError, IndexError) as error:
        available = ", ".join(f"{device.platform}:{device.id}" for device in jax.devices())
        raise RequestError(f"JAX finds no device {text} here; available: {available}.") from error
