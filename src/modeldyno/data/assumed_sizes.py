"""Sizes for free dimensions that nobody gave: guessed, and proven by inferring all shapes of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import (
    BATCH,
    concrete,
    dimensions,
    explain_missing,
    free_dimensions,
    is_sequence,
)
from modeldyno.data.batches import given_sizes
from modeldyno.errors import RequestError, SizesRefused
from modeldyno.interfaces import Tracing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces import Model

Sizes = Mapping[str, int]

MOST_GUESSES = 48
"""Of which the shapes are inferred."""
MOST_REFUSED = 8
"""Guesses of which a call was made."""
MOST_SECONDS = 20.0
"""That inferring shapes may take in all."""


def assume_sizes(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    sizes: Sizes,
    prove: bool = True,
    refused: Sequence[tuple[Sizes, str]] = (),
) -> Model:
    """Give the model with sizes for the free dimensions that nobody gave, if it has any.

    The lengths of sequences have a usual size, which is kept where the network takes it. Nothing is run.

    Args:
        model: its graph says whether it takes certain sizes.
        requested: shapes, ranges and files that the user gave.
        batch_size: the knob; None leaves it to shapes and data.
        sizes: of dimensions, by name.
        prove: whether sequences of usual length are proven, too, or taken as they are.
        refused: guesses that the runtime would not take, and why; they are not made again. An empty one
            stands for the usual lengths.

    Raises:
        RequestError: no guess will do, and all that is missing is named; or what was asked for contradicts
            itself.
    """
    if model.guesses is None or model.graph is None:
        return model
    known, given = given_sizes(model, requested, batch_size=batch_size, sizes=sizes)
    free = [name for name in free_dimensions(known, given) if name != BATCH]
    usual = _usual(model, known, given, free)
    if not free or (usual and not refused and not prove):
        return model
    guesses = list(_distinct(usual, free, model.guesses(given)))
    tried = [sizes or usual for sizes, _ in refused]
    begin, why = perf_counter(), next((reason for _, reason in refused), "")
    for guess in guesses:
        if guess in tried:
            continue
        if len(refused) >= MOST_REFUSED or perf_counter() - begin > MOST_SECONDS:
            break
        refusal = _refusal(model, known, {BATCH: 1, **given, **guess})
        if not refusal:
            return replace(model, assumed={} if guess == usual else guess)
        why = why or refusal
    if usual and not refused:
        return model  # what is refused at its usual size says so itself
    first = next(iter(guesses), {})
    tries = len(refused) or len(guesses)
    nothing = f", and the network takes none of the {tries} guesses at them that were tried"
    missing = explain_missing(known, {BATCH: 1, **given, **first}, free, nothing)
    raise RequestError(f"{missing} The first one was refused so: {why}" if why else missing)


def _usual(model: Model, known: tuple[InputSpec, ...], given: Sizes, free: Sequence[str]) -> dict[str, int]:
    """Give the usual sizes where all free dimensions have one; else nothing."""
    if not all(map(is_sequence, free)):
        return {}
    bound = dimensions(known, (), None, given, model.limits)
    return {name: bound[name] for name in free}


def _distinct(usual: Sizes, free: Sequence[str], guesses: Iterable[Sizes]) -> list[Sizes]:
    """Give the usual sizes first, then each guess that says all that is free, once."""
    complete = (guess for guess in islice(guesses, MOST_GUESSES) if set(guess) == set(free))
    found = {tuple(sorted(guess.items())): guess for guess in (usual, *complete) if guess}
    return list(found.values())


def _refusal(model: Model, known: tuple[InputSpec, ...], sizes: Sizes) -> str:
    """Say why the network does not take these sizes; empty where it does, as far as shapes tell."""
    assert model.graph is not None
    inputs = tuple(replace(spec, shape=concrete(spec, sizes)) for spec in known)
    try:
        model.graph(Tracing(inputs=inputs, sizes=sizes))
    except SizesRefused as error:
        return str(error)
    except RequestError:
        return ""  # it cannot be analysed at all: then only a call can tell
    return ""
