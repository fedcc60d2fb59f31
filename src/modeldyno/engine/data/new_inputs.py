"""Inputs that a model has not seen: the values of known ones in another order, or changed by a little.

So a new input costs what a known one costs: it has the same values, touches the same rows of a table of
embeddings and takes the same branches as often, and nothing but its being new can make a call slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy import ndarray
    from numpy.random import Generator

    from modeldyno.models.interface import Feed

_CHANGE = 1e-3
"""Relative change of a real floating-point value."""


def new_inputs(feeds: Sequence[Feed], drawn: Collection[str], count: int) -> Iterator[Feed]:
    """Yield up to `count` inputs, each like one of `feeds` in turn; none if they cannot be varied.

    Random values are rolled by a random distance. Of real data, floating-point values are changed by at most
    a thousandth, and words of a text are shuffled; integers stay, as another one may be no valid input. The
    random numbers are not those of any seed, so that a model cannot foresee them.

    Args:
        feeds: the known inputs.
        drawn: names of inputs whose values are random.
        count: how many.
    """
    import numpy as np  # slow to import

    generator = np.random.default_rng()
    for number in range(count):
        known = feeds[number % len(feeds)]
        varied = {name: _vary(array, generator, drawn=name in drawn) for name, array in known.items()}
        if not any(array is not None for array in varied.values()):
            return
        yield {name: known[name] if array is None else array for name, array in varied.items()}


def _vary(array: ndarray, generator: Generator, *, drawn: bool) -> ndarray | None:
    """Return other values of the same kind; None if there are none."""
    import numpy as np  # slow to import

    if array.dtype.kind == "O":
        return _shuffle_words(array, generator)
    if drawn and array.size > 1:
        rolled = np.roll(array.reshape(-1), int(generator.integers(1, array.size))).reshape(array.shape)
        return None if bool(np.array_equal(rolled, array)) else rolled
    if array.dtype.kind not in "fc" or not array.size:
        return None
    changed = (array * (1 + _CHANGE * generator.uniform(-1, 1))).astype(array.dtype)
    return None if bool(np.array_equal(changed, array)) else changed


def _shuffle_words(array: ndarray, generator: Generator) -> ndarray | None:
    """Return texts of the same words in another order; None if there are no texts of several words."""
    if not array.ndim or not all(isinstance(text, str) for text in array.flat):
        return None
    shuffled = array.copy()
    for index, text in enumerate(array.flat):
        shuffled.flat[index] = " ".join(generator.permutation(text.split(" ")))
    return None if bool((shuffled == array).all()) else shuffled
