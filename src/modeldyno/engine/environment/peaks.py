"""Measure the peaks of this machine's processor once and cache them: operations and bytes per second.

The compute peak is the best of a few matrix products of growing size, in numpy, and in torch where that is
loaded; the bandwidth is the better of copying and reading arrays far larger than the caches, on all allowed
cores. A separate process measures them, because otherwise the arrays, and what the libraries cache, would
count as memory of the model. A peak measured on a busy machine may be too low, which makes time bounds too
high: they are marked busy, and the next call on an idle machine measures again; one on a busy machine only
after some minutes, as it would learn little and take the time of its user. The best of all measurements
counts, because what was reached once can be reached.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.clock import perf_counter
from modeldyno.base.job.devices import DevicePeaks
from modeldyno.engine.environment.machine import allowed_cores, hardware, memory_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy import ndarray

Work = Callable[[], object]
Clock = Callable[[], float]
Measure = Callable[[str], tuple[float, float]]
"""Returns operations per second in a dtype, and bytes per second."""

NAME = "here"
SECONDS = 2.0
"""Approximate seconds of a measurement."""
_MATRIX_SIDES = (256, 512, 1024, 2048, 4096, 8192)
_MAX_TIME_PARTS = 8
"""A single workload may take 1/8 of the time."""
_ARRAY_BYTES = 256 * 2**20
"""Bytes of each array that is transferred, unless memory is short."""
_MEMORY_PARTS = 16
"""Each array may take 1/16 of the memory."""
_BUSY_SHARE = 0.5
"""Share of the allowed cores that may be busy during a trusted measurement."""
_BUSY_AGE = 600.0
"""Seconds until peaks of a busy machine are measured again while it is still busy."""
_NUMPY = ("float32", "float64")
_TORCH = (*_NUMPY, "bfloat16", "float16")
_COMPONENT_DTYPE = {"complex64": "float32", "complex128": "float64"}
"""A complex product is counted as products of its components."""


def local_device(
    dtype: str = "float32", *, measure: Measure | None = None, directory: Path | None = None
) -> DevicePeaks:
    """Return this machine's peaks: from the user's cache, or measured and cached.

    Args:
        dtype: of the products; for one that cannot be measured here no peak is given, because the
            processor may be faster in it than in any other.
        measure: function that measures them.
        directory: where to cache them.
    """
    library = "torch" if "torch" in sys.modules else "numpy"
    component = _COMPONENT_DTYPE.get(dtype, dtype)
    measurable = component in (_TORCH if library == "torch" else _NUMPY)
    measured_dtype = component if measurable else "float32"
    torch = sys.modules.get("torch")
    threads = {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")}
    used = torch.get_num_threads() if torch else 0
    path = cache_file(
        directory or cache_directory(),
        [hardware(), library, metadata.version(library), threads, used, measured_dtype],
    )
    peaks = recall_or_measure(path, _busy, lambda: (measure or measure_in_subprocess)(measured_dtype))
    assert peaks is not None, "the processor can always be measured"
    return DevicePeaks(
        name=NAME,
        flops={measured_dtype: peaks.flops} if measurable else {},
        bandwidth=peaks.bandwidth,
        memory=memory_limit(),
        source=f"measured here with {library}" + (", while the machine was busy" if peaks.busy else ""),
        busy=peaks.busy,
    )


def recall_or_measure(
    path: Path | None, is_busy: Callable[[], bool], measure: Callable[[], tuple[float, float] | None]
) -> Peaks | None:
    """Return the peaks that a file holds; measure and keep them if there are none, or they may be too low.

    None if they could not be measured.
    """
    peaks = _load(path)
    if peaks is not None and not (peaks.busy and _is_due(path, is_busy)):
        return peaks
    busy, values = is_busy(), measure()
    if values is None:
        return peaks
    peaks = _combine_best(peaks, busy=busy, values=values)
    _save(path, peaks)
    return peaks


def measure_in_subprocess(dtype: str) -> tuple[float, float]:
    """Measure in a separate process, with the library and the number of threads of this one."""
    torch = sys.modules.get("torch")
    threads = [str(torch.get_num_threads())] if torch else []
    command = [sys.executable, "-W", "ignore", "-m", "modeldyno.engine.environment.peaks", dtype, *threads]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        flops, bandwidth = map(float, process.stdout.split())
    except (OSError, ValueError):
        return measure_peaks(dtype)  # no process could be started, or it was ended: measure here instead
    return flops, bandwidth


def measure_peaks(
    dtype: str, *, seconds: float = SECONDS, clock: Clock = perf_counter
) -> tuple[float, float]:
    """Measure operations and bytes per second, in about the given seconds."""
    return measure_best_rate(_matrix_products(dtype), seconds / 2, clock), measure_best_rate(
        _memory_transfers(), seconds / 2, clock
    )


def measure_best_rate(workloads: Iterable[tuple[float, Work]], seconds: float, clock: Clock) -> float:
    """Return the best amount per second of growing workloads, each given a share of the time.

    Workloads that would not fit in the remaining time are skipped, except the first.
    """
    end, best_rate = clock() + seconds, 0.0
    for amount, work in workloads:
        if best_rate and clock() + 2 * amount / best_rate > end:
            break
        work()  # the first run pays for page faults and thread start
        deadline, shortest = min(end, clock() + seconds / _MAX_TIME_PARTS), math.inf
        while shortest == math.inf or clock() < deadline:
            started = clock()
            work()
            shortest = min(shortest, clock() - started)
        best_rate = max(best_rate, amount / shortest) if shortest > 0 else best_rate
    return best_rate


def cache_directory() -> Path | None:
    """Return the user's cache directory; None without a home."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():
        return configured / "modeldyno"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "modeldyno"


def _matrix_products(dtype: str) -> Iterator[tuple[float, Work]]:
    """Yield products of square matrices, in every loaded library that supports the dtype."""
    import numpy as np  # slow to import

    torch = sys.modules.get("torch")
    for side in _MATRIX_SIDES:
        if dtype in _NUMPY:
            yield 2.0 * side**3, _matrix_product(np.ones((side, side), dtype))
        if torch is not None:
            yield 2.0 * side**3, _matrix_product(torch.ones(side, side, dtype=getattr(torch, dtype)))


def _matrix_product(square: Any) -> Work:
    return lambda: square @ square


def _memory_transfers() -> Iterator[tuple[float, Work]]:
    """Yield workloads that copy and that read, with the bytes that they transfer."""
    import numpy as np  # slow to import

    cores = len(allowed_cores())
    length = min(_ARRAY_BYTES, memory_limit() // _MEMORY_PARTS) // 8 // cores * cores
    source, target = np.ones(length), np.zeros(length)
    pairs = list(zip(np.split(target, cores), np.split(source, cores), strict=True))
    with ThreadPoolExecutor(cores) as pool:
        yield 2.0 * source.nbytes, lambda: list(pool.map(_copy, pairs))
        yield 1.0 * source.nbytes, lambda: list(pool.map(_read, pairs))


def _copy(pair: tuple[ndarray, ndarray]) -> None:
    pair[0][:] = pair[1]


def _read(pair: tuple[ndarray, ndarray]) -> float:
    return float(pair[1].max())


def cache_file(directory: Path | None, facts: Sequence[Any]) -> Path | None:
    """Return the cache file, named by everything that affects the peaks."""
    if directory is None:
        return None
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return directory / f"peaks-{digest[:16]}.json"


@dataclass(frozen=True, slots=True)
class Peaks:
    """Operations and bytes per second."""

    flops: float
    bandwidth: float
    busy: bool
    """Whether they were measured beside other work."""


def _combine_best(before: Peaks | None, *, busy: bool, values: tuple[float, float]) -> Peaks:
    """Combine the better values of two measurements; the later one decides whether it was busy."""
    flops, bandwidth = values
    if before is None:
        return Peaks(flops, bandwidth, busy)
    return Peaks(max(flops, before.flops), max(bandwidth, before.bandwidth), busy)


def _busy() -> bool:
    return os.getloadavg()[0] > len(allowed_cores()) * _BUSY_SHARE


def _is_due(path: Path | None, is_busy: Callable[[], bool]) -> bool:
    """Whether peaks of a busy machine should be measured again: it is idle now, or they are old."""
    with suppress(OSError):
        return (
            path is None
            or not is_busy()
            or abs(datetime.now(UTC).timestamp() - path.stat().st_mtime) > _BUSY_AGE
        )
    return True


def _load(path: Path | None) -> Peaks | None:
    """Load cached peaks; None if there are none, or the file is damaged."""
    if path is None:
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        peaks = Peaks(float(document["flops"]), float(document["bandwidth"]), bool(document["busy"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    valid = all(math.isfinite(value) and value > 0 for value in (peaks.flops, peaks.bandwidth))
    return peaks if valid else None


def _save(path: Path | None, peaks: Peaks) -> None:
    """Write the cache file atomically; a directory that cannot be written is no error."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(asdict(peaks), file)
        Path(file.name).replace(path)


def main(dtype: str, *threads: str) -> None:
    """Measure, in torch if its number of threads is given, and print both peaks."""
    if threads:
        import torch  # optional, and heavy

        torch.set_num_threads(int(threads[0]))
    sys.stdout.write("{} {}\n".format(*measure_peaks(dtype)))


if __name__ == "__main__":
    main(*sys.argv[1:])
