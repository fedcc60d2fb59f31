"""Assumes shapes and sizes that were not given: guessed, and verified by shape inference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from modeldyno.base.clock import perf_counter
from modeldyno.base.errors import RequestError, SizesRefused
from modeldyno.base.job.input_spec import (
    BATCH,
    bind_dimensions,
    concrete_shape,
    explain_missing,
    free_dimensions,
    is_sequence,
)
from modeldyno.engine.data.batches import IDS, given_sizes
from modeldyno.engine.data.requested_inputs import with_requested_inputs
from modeldyno.models.interface import Tracing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.models.interface import Model

Sizes = Mapping[str, int]
_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?=\b|x)|(?<=\dx)\d{1,9}")
"""A size in a refusal, where shapes are written 1x2x128."""
_MISMATCH = re.compile(r"cannot|multiplies|channels|values per step")
"""In a refusal of sizes that have to be equal."""

MOST_GUESSES = 48
"""Maximum guesses that are verified."""
MOST_CORRECTED = 4
"""Rejected guesses whose reason is taken up."""
MOST_REFUSED = 8
"""Maximum guesses that are tried by a call."""
MOST_SECONDS = 20.0
"""Maximum seconds of shape inference in total."""


def assume_sizes(
    model: Model,
    requested: tuple[InputSpec, ...],
    *,
    batch_size: int | None,
    sizes: Sizes,
    prove: bool = True,
    refused: Sequence[tuple[Sizes, str]] = (),
) -> Model:
    """Return the model with assumed sizes for the dynamic dimensions that were not given, if there are any.

    Optional inputs that are requested are added; the only input of a model that declares no shape gets one,
    and inputs of which only a shape was given are ids where the model refuses other numbers.
    Sequence lengths have a default size, which is kept where the model accepts it. Nothing is run.

    Args:
        model: its graph tells whether it accepts certain sizes.
        requested: shapes, ranges and files that the user gave.
        batch_size: the knob; None leaves it to shapes and data.
        sizes: sizes of dimensions, by name.
        prove: whether default sequence lengths are verified too, or accepted as they are.
        refused: guesses that the runtime rejected, and why; they are not repeated. An empty one stands
            for the default lengths.

    Raises:
        RequestError: no guess works, with all missing sizes named; or the request contradicts itself.
    """
    model = _with_assumed_shape(with_requested_inputs(model, requested), requested)
    model = _with_assumed_ids(model, requested, batch_size, sizes)
    if model.guesses is None:
        return model
    declared, given_by_user = given_sizes(model, requested, batch_size=batch_size, sizes=sizes)
    dynamic = [name for name in free_dimensions(declared, given_by_user) if name != BATCH]
    usual = _default_sizes(model, declared, given_by_user, dynamic)
    if not dynamic or (usual and not refused and not prove):
        return model
    waiting = _distinct_guesses(usual, dynamic, model.guesses(given_by_user))
    rejected = [sizes or usual for sizes, _ in refused]
    tried: list[Sizes] = []
    started, reason = perf_counter(), next((reason for _, reason in refused), "")
    while waiting:
        guess = waiting.pop(0)
        if guess in tried:
            continue
        if len(refused) >= MOST_REFUSED or perf_counter() - started > MOST_SECONDS:
            break
        refusal = _rejection(model, declared, {BATCH: 1, **given_by_user, **guess})
        if not refusal and guess not in rejected:
            return replace(model, assumed={} if guess == usual else guess)
        tried.append(guess)
        if len(tried) <= MOST_CORRECTED:
            waiting[:0] = _corrected(guess, refusal)
        reason = reason or refusal
    if usual and not refused:
        return model  # a model that rejects its default size reports that itself
    tries = len(refused) or len(tried)
    nothing = f", and the model accepts none of the {tries} guesses that were tried"
    missing = explain_missing(declared, {BATCH: 1, **given_by_user}, dynamic, nothing, proposed=False)
    raise RequestError(f"{missing} The first guess was rejected: {reason}" if reason else missing)


def _corrected(guess: Sizes, refusal: str) -> Iterator[Sizes]:
    """Yield the guess with one size replaced by another that the refusal names beside it, large ones first.

    A size of 1 fits nearly everything, and says nothing; nor does a bound, as the window of a convolution.
    """
    if not _MISMATCH.search(refusal):
        return
    numbers = sorted({int(number) for number in _NUMBER.findall(refusal)} - {0, 1}, reverse=True)
    for name, size in guess.items():
        if size in numbers:
            yield from ({**guess, name: other} for other in numbers if other != size)


def _with_assumed_shape(model: Model, requested: tuple[InputSpec, ...]) -> Model:
    """Return the model with a shape for its only input, if nobody gave it, that the analysis accepts.

    Single numbers beside it need none. A model that needs no input, and can be analysed without, gets none.
    """
    if requested or model.example is not None or model.graph is None or model.candidates is None:
        return model
    numbers = [spec for spec in model.inputs if spec.shape == ()]
    if (not model.inputs and _accepts(model, ())) or len(numbers) < len(model.inputs) - 1:
        return model
    for candidate in model.candidates():
        if _accepts(model, _beside_numbers(model, candidate)):
            shaped = replace(candidate, shape=(BATCH, *(candidate.shape or ())[1:]))
            return replace(model, inputs=_beside_numbers(model, shaped), assumed_input=candidate.name)
    return model


def _beside_numbers(model: Model, unknown: InputSpec) -> tuple[InputSpec, ...]:
    """Return the inputs of a model, with `unknown` in place of the one without a shape."""
    return tuple(spec if spec.shape == () else unknown for spec in model.inputs) or (unknown,)


def _with_assumed_ids(
    model: Model, requested: tuple[InputSpec, ...], batch_size: int | None, sizes: Sizes
) -> Model:
    """Return the model with ids for inputs of unknown dtype, if it has tables and refuses other numbers.

    Those with a name for ids are tried first, then each by itself, then all of them.
    """
    shaped = {each.name for each in requested if each.shape is not None and each.dtype is None}
    unknown = [each.name for each in model.inputs if each.dtype is None and shaped & {"", each.name}]
    if model.largest_id is None or model.graph is None or not unknown:
        return model
    declared, given_by_user = given_sizes(model, requested, batch_size=batch_size, sizes=sizes)
    bound = {BATCH: 1, **given_by_user}
    if any(name not in bound for name in free_dimensions(declared, bound)):
        return model
    concrete = tuple(replace(spec, shape=concrete_shape(spec, bound)) for spec in declared)
    named = [name for name in unknown if IDS.search(name)]
    for names in ([], named, *([name] for name in unknown), unknown):
        if _accepts(model, _as_ids(concrete, names, model.largest_id)):
            return replace(model, inputs=_as_ids(model.inputs, names, model.largest_id))
    return model


def _as_ids(specs: tuple[InputSpec, ...], names: Collection[str], largest: int) -> tuple[InputSpec, ...]:
    """Return the inputs, with ids for those of these names."""
    return tuple(
        replace(spec, dtype="int64", low=0.0, high=float(largest)) if spec.name in names else spec
        for spec in specs
    )


def _accepts(model: Model, inputs: tuple[InputSpec, ...]) -> bool:
    assert model.graph is not None
    try:
        model.graph(Tracing(inputs=inputs))
    except RequestError:
        return False
    return True


def _default_sizes(
    model: Model, declared: tuple[InputSpec, ...], given_by_user: Sizes, dynamic: Sequence[str]
) -> dict[str, int]:
    """Return the default sizes if all dynamic dimensions have one; else empty."""
    if not all(map(is_sequence, dynamic)):
        return {}
    bound = bind_dimensions(declared, (), None, given_by_user, model.limits)
    return {name: bound[name] for name in dynamic}


def _distinct_guesses(usual: Sizes, dynamic: Sequence[str], guesses: Iterable[Sizes]) -> list[Sizes]:
    """Return the default sizes first, then each complete guess once."""
    complete = (guess for guess in islice(guesses, MOST_GUESSES) if set(guess) == set(dynamic))
    distinct = {tuple(sorted(guess.items())): guess for guess in (usual, *complete) if guess}
    return list(distinct.values())


def _rejection(model: Model, declared: tuple[InputSpec, ...], sizes: Sizes) -> str:
    """Return why the model rejects these sizes; empty where it accepts them, as far as shapes tell."""
    if model.graph is None:
        return ""  # only a call can tell
    inputs = tuple(replace(spec, shape=concrete_shape(spec, sizes)) for spec in declared)
    try:
        model.graph(Tracing(inputs=inputs, sizes=sizes))
    except SizesRefused as error:
        return str(error)
    except RequestError:
        return ""  # it cannot be analysed at all, so only a call can tell
    return ""
