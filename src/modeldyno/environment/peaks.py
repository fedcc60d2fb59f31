"""What this machine does at most, measured once and kept: operations and bytes per second.

The peak is the best of a few matrix products of growing size, in numpy, and in torch where that is
loaded; the bandwidth is the better of copying and reading arrays far larger than the caches, on
all allowed cores. A process of its own measures them: the arrays would count as memory of whatever model
the calling process runs, and so would what the libraries keep for later. What was measured beside other
work may be too low, and a bound made of it too high: the Device says so, and every later call measures anew
until one finds the machine quiet. What was once reached can be reached, so the best of all of them counts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.core.spec.devices import Device
from modeldyno.environment.machine import allowed_cores, hardware, memory_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy import ndarray

Work = Callable[[], object]
Clock = Callable[[], float]
Measure = Callable[[str], tuple[float, float]]
"""Gives operations per second in a dtype, and bytes per second."""

NAME = "here"
SECONDS = 2.0
"""What measuring takes, about."""
_SIDES = (256, 512, 1024, 2048, 4096, 8192)
_PARTS = 8
"""One work may take one part of the time in so many."""
_ARRAY = 256 * 2**20
"""Bytes of each array that is moved, unless memory is short."""
_SHARE = 16
"""The part of the memory that each array may take is one in so many."""
_QUIET = 0.5
"""The part of the allowed cores that may be busy beside a measurement that is trusted."""
_NUMPY = ("float32", "float64")
_TORCH = (*_NUMPY, "bfloat16", "float16")
_PARTS_OF = {"complex64": "float32", "complex128": "float64"}
"""A complex product is counted as those of its parts."""


def here(dtype: str = "float32", *, measure: Measure | None = None, directory: Path | None = None) -> Device:
    """Give this machine's peaks: from the user's cache, or measured and kept there.

    Args:
        dtype: of the products; of one that cannot be measured here no peak is known, for the processor may
            be faster in it than in any other.
        measure: how to find them.
        directory: where to keep them.
    """
    library = _library()
    parts = _PARTS_OF.get(dtype, dtype)
    known = parts in (_TORCH if library == "torch" else _NUMPY)
    wanted = parts if known else "float32"
    path = _file(directory or cache_directory(), library, wanted)
    kept = _kept(path)
    if kept is None or kept.busy:
        kept = _better(kept, busy=_busy(), found=(measure or measured_apart)(wanted))
        _keep(path, kept)
    return Device(
        name=NAME,
        flops={wanted: kept.flops} if known else {},
        bandwidth=kept.bandwidth,
        memory=memory_limit(),
        source=f"measured here with {library}" + (", beside other work" if kept.busy else ""),
        busy=kept.busy,
    )


def measured_apart(dtype: str) -> tuple[float, float]:
    """Measure in a process of its own, with the library and the threads of this one."""
    torch = sys.modules.get("torch")
    threads = [str(torch.get_num_threads())] if torch else []
    command = [sys.executable, "-W", "ignore", "-m", "modeldyno.environment.peaks", dtype, *threads]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        flops, bandwidth = map(float, ended.stdout.split())
    except (OSError, ValueError):
        return measured(dtype)  # no process can be started, or it was ended: better here than not at all
    return flops, bandwidth


def measured(
    dtype: str, *, seconds: float = SECONDS, clock: Clock = time.perf_counter
) -> tuple[float, float]:
    """Measure operations and bytes per second, in about so many seconds."""
    return best(_products(dtype), seconds / 2, clock), best(_moves(), seconds / 2, clock)


def best(works: Iterable[tuple[float, Work]], seconds: float, clock: Clock) -> float:
    """Give the best amount per second of works that grow, each given a part of the time.

    Those that would take longer than the time that is left are left out, but for the first.
    """
    end, found = clock() + seconds, 0.0
    for amount, work in works:
        if found and clock() + 2 * amount / found > end:
            break
        work()  # The first time pays for pages and threads.
        part, least = min(end, clock() + seconds / _PARTS), math.inf
        while least == math.inf or clock() < part:
            begun = clock()
            work()
            least = min(least, clock() - begun)
        found = max(found, amount / least) if least > 0 else found
    return found


def cache_directory() -> Path | None:
    """Find the user's cache directory; None without a home."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if chosen.is_absolute():
        return chosen / "modeldyno"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "modeldyno"


def _products(dtype: str) -> Iterator[tuple[float, Work]]:
    """Give products of squares, in every library that is there and knows the dtype."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    torch = sys.modules.get("torch")
    for side in _SIDES:
        if dtype in _NUMPY:
            yield 2.0 * side**3, _product(np.ones((side, side), dtype))
        if torch is not None:
            yield 2.0 * side**3, _product(torch.ones(side, side, dtype=getattr(torch, dtype)))


def _product(square: Any) -> Work:
    return lambda: square @ square


def _moves() -> Iterator[tuple[float, Work]]:
    """Give works that copy and that read, with the bytes that they read and write."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    cores = len(allowed_cores())
    length = min(_ARRAY, memory_limit() // _SHARE) // 8 // cores * cores
    source, target = np.ones(length), np.zeros(length)
    pairs = list(zip(np.split(target, cores), np.split(source, cores), strict=True))
    with ThreadPoolExecutor(cores) as pool:
        yield 2.0 * source.nbytes, lambda: list(pool.map(_copy, pairs))
        yield 1.0 * source.nbytes, lambda: list(pool.map(_read, pairs))


def _copy(pair: tuple[ndarray, ndarray]) -> None:
    pair[0][:] = pair[1]


def _read(pair: tuple[ndarray, ndarray]) -> float:
    return float(pair[1].max())


def _library() -> str:
    return "torch" if "torch" in sys.modules else "numpy"


def _file(directory: Path | None, library: str, dtype: str) -> Path | None:
    """Name the file by all that decides on the peaks."""
    if directory is None:
        return None
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    torch = sys.modules.get("torch")
    used = torch.get_num_threads() if torch else 0
    facts = [hardware(), library, metadata.version(library), threads, used, dtype]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return directory / f"peaks-{digest[:16]}.json"


@dataclass(frozen=True, slots=True)
class _Peaks:
    flops: float
    bandwidth: float
    busy: bool


def _better(before: _Peaks | None, *, busy: bool, found: tuple[float, float]) -> _Peaks:
    """Put the better of two measurements together; it is as trusted as the later one."""
    flops, bandwidth = found
    if before is None:
        return _Peaks(flops, bandwidth, busy)
    return _Peaks(max(flops, before.flops), max(bandwidth, before.bandwidth), busy)


def _busy() -> bool:
    return os.getloadavg()[0] > len(allowed_cores()) * _QUIET


def _kept(path: Path | None) -> _Peaks | None:
    """Read what was measured before; None where nothing was, or the file is damaged."""
    if path is None:
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = _Peaks(float(document["flops"]), float(document["bandwidth"]), bool(document["busy"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    sound = all(math.isfinite(value) and value > 0 for value in (found.flops, found.bandwidth))
    return found if sound else None


def _keep(path: Path | None, peaks: _Peaks) -> None:
    """Write it at once or not at all; a directory that cannot be written is no error."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(asdict(peaks), file)
        Path(file.name).replace(path)


def main(dtype: str, *threads: str) -> None:
    """Measure, in torch where the number of its threads is given, and print both peaks."""
    if threads:
        import torch  # noqa: PLC0415 - optional, and heavy

        torch.set_num_threads(int(threads[0]))
    sys.stdout.write("{} {}\n".format(*measured(dtype)))


if __name__ == "__main__":
    main(*sys.argv[1:])
