"""Names of devices as users of deeplite-profiler write them, and as torch does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from modeldyno.compat.deeplite.status_metrics import InvalidStatus

if TYPE_CHECKING:
    from typing import Self

_NAME = re.compile(r"auto|cpu|mps|(?:cuda|xpu)(?::\d+)?")


class Device(str):  # noqa: SLOT000 - its constants are its own instances
    """Where a model runs: ``Device("cpu")``, ``Device("GPU")``, which is CUDA, or ``Device("cuda:1")``.

    It is the text that torch knows, so that it serves wherever a name of a device does.

    Raises:
        InvalidStatus: there is no device of that name.
    """

    CPU: ClassVar[Device]
    GPU: ClassVar[Device]

    def __new__(cls, name: object) -> Self:
        """Read the name, in any case."""
        text = re.sub(r"^gpu", "cuda", str(name).lower())
        if _NAME.fullmatch(text) is None:
            raise InvalidStatus(
                f"There is no device {str(name)!r}; use 'cpu', 'GPU', 'cuda:1', 'mps' or 'xpu'."
            )
        return super().__new__(cls, text)


Device.CPU, Device.GPU = Device("cpu"), Device("GPU")
