"""TCP ports: free ones on this machine, and the conventional ones of inference servers."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOOPBACK = "127.0.0.1"

ONNX_HTTP_PORT, ONNX_GRPC_PORT = 8001, 8002
ONNX_GPU_HTTP_PORT, ONNX_GPU_GRPC_PORT = 8010, 8011
TORCHSCRIPT_HTTP_PORT, TORCHSCRIPT_GRPC_PORT = 8100, 8101
TORCHSCRIPT_GPU_HTTP_PORT, TORCHSCRIPT_GPU_GRPC_PORT = 8110, 8111
TRT_HTTP_PORT, TRT_GRPC_PORT, TRT_PROMETHEUS_PORT = 8200, 8201, 8202
TFS_HTTP_PORT, TFS_GRPC_PORT = 8501, 8500
TFS_GPU_HTTP_PORT, TFS_GPU_GRPC_PORT = 8510, 8511

CONVENTIONAL: dict[tuple[str, bool], dict[str, int]] = {
    ("onnx", False): {"http": ONNX_HTTP_PORT, "grpc": ONNX_GRPC_PORT},
    ("onnx", True): {"http": ONNX_GPU_HTTP_PORT, "grpc": ONNX_GPU_GRPC_PORT},
    ("torchscript", False): {"http": TORCHSCRIPT_HTTP_PORT, "grpc": TORCHSCRIPT_GRPC_PORT},
    ("torchscript", True): {"http": TORCHSCRIPT_GPU_HTTP_PORT, "grpc": TORCHSCRIPT_GPU_GRPC_PORT},
    ("trt", False): {"http": TRT_HTTP_PORT, "grpc": TRT_GRPC_PORT, "metrics": TRT_PROMETHEUS_PORT},
    ("trt", True): {"http": TRT_HTTP_PORT, "grpc": TRT_GRPC_PORT, "metrics": TRT_PROMETHEUS_PORT},
    ("tfs", False): {"http": TFS_HTTP_PORT, "grpc": TFS_GRPC_PORT},
    ("tfs", True): {"http": TFS_GPU_HTTP_PORT, "grpc": TFS_GPU_GRPC_PORT},
}
"""Server and whether on a GPU, to its ports. Triton (``trt``) has one set for both."""

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL = 32768
"""Lowest port of outgoing connections, unless the system sets another."""
_LOWEST = 10240
_TRIES = 2000


def free_ports(count: int, rng: random.Random | None = None) -> tuple[int, ...]:
    """Return free ports on the loopback, below those of outgoing connections.

    Another program can still take one before the server does, so the caller should retry.

    Raises:
        RequestError: there are too few.
    """
    rng = rng or random.Random()
    ports: list[int] = []
    with ExitStack() as sockets:
        for _ in range(_TRIES):
            if len(ports) == count:
                return tuple(ports)
            port = rng.randrange(_LOWEST, _highest())
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sockets.enter_context(probe)
            if _can_bind(probe, port):
                ports.append(port)
    raise RequestError(f"There are no {count} free ports between {_LOWEST} and {_highest()}.")


def parse_ports(text: str, conventional: Mapping[str, int]) -> dict[str, int]:
    """Return the ports that a user chose: ``free`` (0 each), ``conventional``, or numbers in that order.

    Raises:
        RequestError: the text is none of these, or a number is not a valid port.
    """
    if text == "free":
        return dict.fromkeys(conventional, 0)
    if text == "conventional":
        return dict(conventional)
    numbers = [int(word) if word.isdigit() else -1 for word in text.replace(" ", "").split(",")]
    if len(numbers) != len(conventional) or not all(0 <= number < 1 << 16 for number in numbers):
        raise RequestError(
            f"The knob ports takes free, conventional or {len(conventional)} numbers "
            f"({', '.join(conventional)}), not '{text}'."
        )
    return dict(zip(conventional, numbers, strict=True))


def ports_in_use(ports: Iterable[int]) -> tuple[int, ...]:
    """Return which of these loopback ports are in use."""
    busy = []
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            if not _can_bind(probe, port):
                busy.append(port)
    return tuple(busy)


def _can_bind(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind((LOOPBACK, port))
    except OSError:
        return False
    return True


def _highest() -> int:
    try:
        begin = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL
    return begin if begin > 2 * _LOWEST else 65536
