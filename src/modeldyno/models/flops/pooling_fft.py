"""Costs of pooling, resampling and Fourier transforms."""

from __future__ import annotations

from math import log2, prod
from typing import TYPE_CHECKING

from modeldyno.models.flops import Count
from modeldyno.models.flops.elementwise import is_complex, per_element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.models.static.graph import Op, Tensor


def _taps(op: Op, dims: int) -> int:
    kernel = op.arguments["kernel_size"]
    sizes = kernel if isinstance(kernel, list | tuple) else (kernel,)
    return prod(sizes) if len(sizes) > 1 else sizes[0] ** dims


def count_pooling(op: Op, *, dims: int) -> Count:
    """Count the size of the window for each output, padding included: comparisons, or sums and a quotient."""
    return per_element(op, operations=_taps(op, dims))


def count_pooling_backward(op: Op, *, dims: int) -> Count:
    """Count the size of the window for each element of the gradient, which is spread over it."""
    return per_element(op, operations=_taps(op, dims), of="grad_output")


def count_adaptive_pooling(op: Op, *, dims: int) -> Count:
    """Count the sizes of all windows, which begin at floor(i n / m) and end at ceil((i + 1) n / m)."""
    return _count_adaptive(op.tensor("self"), op.outputs[0], dims)


def count_adaptive_pooling_backward(op: Op, *, dims: int) -> Count:
    """Count the sizes of all windows, over which the gradient is spread."""
    return _count_adaptive(op.tensor("self"), op.tensor("grad_output"), dims)


def _count_adaptive(data: Tensor, result: Tensor, dims: int) -> Count:
    windows = (
        sum(-(-(i + 1) * n // m) - i * n // m for i in range(m))
        for n, m in zip(data.shape[-dims:], result.shape[-dims:], strict=True)
    )
    return Count(elementwise=prod(result.shape[:-dims]) * prod(windows))


def count_resampling(op: Op, *, taps: int) -> Count:
    """Count a weighted sum of `taps` for each output, none where it is one; their weights are left out."""
    return per_element(op, operations=2 * taps - 1 if taps > 1 else 0)


def count_resampling_backward(op: Op, *, taps: int) -> Count:
    """Count a product and a sum for each of `taps` and element of the gradient; a sum where it is one."""
    return per_element(op, operations=2 * taps if taps > 1 else 1, of="grad_output")


def _taps_of_mode(op: Op, dims: int) -> int:
    """Return the taps of the mode: 0 linear, 1 nearest, 2 cubic."""
    taps: int = (2, 1, 4)[op.arguments.get("interpolation_mode", 0)] ** dims
    return taps


def count_grid_sample(op: Op) -> Count:
    """Count a weighted sum of 2 taps (cubic 4) in each dimension for each output; nearest has none."""
    taps = _taps_of_mode(op, op.tensor("grid").shape[-1])
    return per_element(op, operations=2 * taps - 1 if taps > 1 else 0)


def count_grid_sample_backward(op: Op) -> Count:
    """Count a product and a sum for each tap, for the input and for each coordinate that has a gradient."""
    dims = op.tensor("grid").shape[-1]
    taps = _taps_of_mode(op, dims)
    into, grid = map(bool, op.arguments.get("output_mask", (True, True)))
    smooth = into + grid * dims
    return per_element(op, operations=2 * taps * smooth if taps > 1 else into, of="grad_output")


def count_transforms(points: int, elements: int, *, real: bool) -> Count:
    """Count transforms of `points` each, `elements` in total."""
    return Count(elementwise=round((2.5 if real else 5) * elements * log2(points))) if points else Count()


def count_fft(op: Op, *, real: str = "") -> Count:
    """Count 5 N log2 N for each complex transform of N points, half for a real one (benchFFT's convention).

    Frigo and Johnson, Proc. IEEE 93 (2005), and fftw.org/speed. `real` is the side that has real numbers,
    "input" or "output"; scaling is not counted.
    """
    data, result = op.tensor("self"), op.outputs[0]
    shape = list((data if real == "input" else result).shape)
    dims = _transformed_dims(op, len(shape))
    if real == "input":
        for dim, length in zip(dims, _lengths(op, len(dims)), strict=True):
            shape[dim] = shape[dim] if length is None or length < 0 else length
    half = bool(real) or not is_complex(data)
    return count_transforms(prod(shape[dim] for dim in dims), prod(shape), real=half)


def _transformed_dims(op: Op, rank: int) -> list[int]:
    """Return the transformed dimensions: those given, or as many last ones as lengths, or all."""
    dim, lengths = op.arguments.get("dim"), op.arguments.get("s")
    if isinstance(dim, int):
        return [dim % rank]
    if dim is not None:
        return [axis % rank for axis in dim]
    if op.kind.endswith("2"):
        return [rank - 2, rank - 1]
    if op.kind.endswith("n"):
        return list(range(rank - len(lengths), rank)) if lengths else list(range(rank))
    return [rank - 1]


def _lengths(op: Op, count: int) -> Sequence[int | None]:
    """Return the lengths to which the input is cut or padded."""
    if isinstance(op.arguments.get("n"), int):
        return [op.arguments["n"]]
    lengths = op.arguments.get("s")
    return list(lengths) if lengths else [None] * count


def count_stft(op: Op) -> Count:
    """Count a product with the window for each point, and 2.5 or 5 N log2 N, for each frame of N points."""
    points, data, result = op.arguments["n_fft"], op.tensor("self"), op.outputs[0]
    real = not is_complex(data)
    onesided = op.arguments.get("onesided")
    rows = points // 2 + 1 if (real if onesided is None else onesided) else points
    frames = result.size // rows // (1 if is_complex(result) else 2)
    count = count_transforms(points, frames * points, real=real)
    return Count(elementwise=count.elementwise + frames * points * (1 if real else 2))


def count_istft(op: Op) -> Count:
    """Count 2.5 N log2 N for each frame of N points, its window and sum, and a quotient for each output."""
    points, data = op.arguments["n_fft"], op.tensor("self")
    frames = data.size // data.shape[-2]
    real = not op.arguments.get("return_complex")
    count = count_transforms(points, frames * points, real=real)
    return Count(elementwise=count.elementwise + 2 * frames * points + op.outputs[0].size)
