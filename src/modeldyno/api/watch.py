"""Watch a block of one's own code: ``with modeldyno.watch() as seen:``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from modeldyno.api.profile import store_if
from modeldyno.errors import RequestError
from modeldyno.regions.watch import WatchedBlock

if TYPE_CHECKING:
    from collections.abc import Sequence


def watch(
    *, period: float = 0.5, name: str | None = None, store: bool = False, tags: str | Sequence[str] = ()
) -> WatchedBlock:
    """Watch this process, and the devices that it uses, while a block of code runs.

    A process of its own reads memory, processor time, disk and network traffic, and of GPUs use, memory,
    power, clocks and temperature. Write
    ``with modeldyno.watch() as seen:``, or ``block = watch().start()`` and ``result = block.stop()``.

    Args:
        period: fewest seconds between two samples; reading is kept to about 1 % of the time of a core.
        name: name of the Result; by default that of the script.
        store: whether to store the Result.
        tags: tags of the stored Result.

    Returns:
        The block. When it has ended, `seen.result` is a Result: ``seen.result["process_memory.max"]`` are the
        most bytes above those at the beginning, ``seen.result["power@cuda:0"]`` the mean power in W. What
        cannot be read is not in it.

    Raises:
        RequestError: the period is not above 0.
    """
    if not period > 0:
        raise RequestError(f"watch(period={period}): it must be more than 0 seconds, such as 0.5.")
    return WatchedBlock(period=period, name=name, keep=partial(store_if, wanted=store, tags=tags))
