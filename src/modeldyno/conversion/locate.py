"""Finds the first layer at which a converted model leaves its source, by following one call through both."""

from __future__ import annotations

import copy
import gc
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from modeldyno.conversion.agreement.agreement import FirstDifference
from modeldyno.conversion.agreement.first_difference import find_first
from modeldyno.conversion.agreement.inner_values import (
    MOST_VALUES,
    End,
    InnerValue,
    Moment,
    ends_of_scopes,
    keep_value,
    match_layers,
    most_values,
)
from modeldyno.conversion.failures import failure_of
from modeldyno.conversion.graph_values import inner_graph, source_moments, values_of
from modeldyno.conversion.reference import fitted, read_call, widened
from modeldyno.models.interface import SourceKind, source_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from modeldyno.conversion.agreement.compare import CallTally
    from modeldyno.conversion.agreement.rule import AgreementRule
    from modeldyno.conversion.reference import Reference, ReferenceCall
    from modeldyno.models.interface import Feed, Model

_FOLLOWED = frozenset({SourceKind.TORCH, SourceKind.KERAS})
"""Kinds of sources whose layers can be watched, if they run on torch."""


def locate(
    load_source: Callable[[], tuple[Model, str]],
    made: Model,
    backend: str,
    call: ReferenceCall,
    folder: Path,
    rule: AgreementRule,
) -> FirstDifference:
    """Call the source and the converted model once, and compare the values of their layers.

    What is kept of both is bounded by `MOST_VALUES`; a converted model of ONNX is called several times, so
    that its runtime does not hold more either. A model that cannot be followed is told of in the sentence.

    Args:
        load_source: loads the source, and names its backend; what it returns is let go before `made` is run.
        made: the converted model.
        backend: what runs it.
        call: the call to follow.
        folder: where the arrays of the call are.
        rule: what is asked of the converted model.
    """
    try:
        graph = inner_graph(made, backend)
        if graph is None:
            return FirstDifference(sentence=_unknown("this form shows no layers"))
        feed, _, _ = read_call(folder, call)
        moments, again = _followed(load_source, feed, call.batch)
        if not moments:
            return FirstDifference(sentence=_unknown("the source shows no layers"))
        ends = ends_of_scopes(graph.steps, graph.returned)
        layers = list(dict.fromkeys(moment.layer for moment in moments))
        scopes = match_layers(layers, ends)
        selected = {
            (moment.layer, moment.end): ends[scopes[moment.layer]].at(moment.end)
            for moment in moments
            if moment.layer in scopes
        }
        most = most_values(len(layers))
        values: dict[str, InnerValue] = {}
        for names in _groups(moments, selected):
            values |= graph.record(
                names, fitted(feed, made), lambda array: keep_value(array, call.batch, most)
            )
        converted = {
            key: tuple(values[name] for name in names if name in values)  # sizes are no arrays
            for key, names in selected.items()
        }
        return find_first(moments, converted, again, rule=rule, batch=call.batch, call=call.words)
    except Exception as error:  # noqa: BLE001 - the verdict stands, whatever a foreign graph does
        return FirstDifference(sentence=_unknown(failure_of(error).message))


def farthest_call(tallies: Sequence[CallTally], reference: Reference) -> ReferenceCall:
    """Return the call whose outputs are farthest off; each call has a tally for each output."""
    outputs = len(tallies) // len(reference.calls)
    worst = max(
        range(len(tallies)),
        key=lambda index: float("inf") if tallies[index].fault else tallies[index].worst,
    )
    return reference.calls[worst // outputs]


def _unknown(why: str) -> str:
    return f"where it first differs is not known: {why}"


def _followed(
    load_source: Callable[[], tuple[Model, str]], feed: Feed, batch: int | None
) -> tuple[list[Moment], dict[tuple[str, End], tuple[InnerValue, ...]]]:
    """Return the run of the source, and its values in float64, if it can be computed in it."""
    model, backend = load_source()
    if source_kind(model) not in _FOLLOWED or not hasattr(model.value, "named_modules"):
        return [], {}
    model = replace(model, value=copy.deepcopy(model.value)) if model.borrowed else model
    moments = source_moments(model, backend, feed, batch)
    again: dict[tuple[str, End], tuple[InnerValue, ...]] = {}
    with suppress(Exception):  # such as float32 constants in its code
        again = values_of(
            source_moments(replace(model, value=model.value.double()), backend, widened(feed), batch)
        )
    del model
    gc.collect()
    return moments, again


def _groups(
    moments: Sequence[Moment], selected: Mapping[tuple[str, End], tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """Yield the names of values in groups, each of no more numbers than may be held at once."""
    group: dict[str, None] = {}
    size = 0
    for moment in moments:
        names = selected.get((moment.layer, moment.end), ())
        numbers = sum(prod(value.shape) for value in moment.values)
        if group and size + numbers > MOST_VALUES:
            yield tuple(group)
            group, size = {}, 0
        group |= dict.fromkeys(names)
        size += numbers
    if group:
        yield tuple(group)
