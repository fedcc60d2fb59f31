"""Where a converted model first differs from its source: the first layer beyond its noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modeldyno.conversion.agreement.agreement import FirstDifference
from modeldyno.conversion.agreement.compare import CallTally, compare_call, conclude, relative_floor
from modeldyno.conversion.agreement.inner_values import End, InnerValue, Moment, pair_values
from modeldyno.conversion.agreement.rule import AgreementRule, Equivalence

if TYPE_CHECKING:
    from numpy import ndarray

    from modeldyno.conversion.agreement.agreement import OutputFigures

Found = Mapping[tuple[str, End], Sequence[InnerValue]]
"""Values by layer and end."""


def find_first(
    moments: Sequence[Moment],
    converted: Found,
    again: Found,
    *,
    rule: AgreementRule,
    batch: int | None,
    call: str,
) -> FirstDifference:
    """Find the first value of the source that the converted model has otherwise.

    Args:
        moments: the run of the source.
        converted: the values of the converted model, as far as they are known.
        again: the values of the source computed in float64, for the noise floor; empty if it cannot.
        rule: what is asked of the converted model.
        batch: samples of the call; None if its first axis is no batch.
        call: the call in words.
    """
    layers = {moment.layer: moment.kind for moment in moments}
    entered: dict[str, tuple[InnerValue, ...]] = {}
    agreeing_inputs: set[str] = set()
    compared: dict[str, None] = {}
    unseen: list[str] = []
    after = ""
    for moment in moments:
        tallies = _tallies(moment, converted, again, rule, batch)
        worst = conclude(tallies, replace(rule, argmax=0.0), samples=batch or 1).worst if tallies else None
        differs = worst is not None and worst.verdict is Equivalence.DIFFERS
        if tallies and not (differs and moment.end is End.INPUT and unseen):  # that is not its own input
            compared[moment.layer] = None
            if differs:
                assert worst is not None
                agree = moment.end is End.OUTPUT and moment.layer in agreeing_inputs
                difference = _difference_at(moment, worst, layers, after, () if agree else tuple(unseen))
                return _with_basis(difference, compared, layers, call, inputs_agree=agree)
        if moment.end is End.INPUT:
            entered[moment.layer] = moment.values
            if not differs and len(tallies) == len(moment.values):
                agreeing_inputs.add(moment.layer)
        elif tallies:
            after, unseen = moment.layer, []
        elif not _same(moment.values, entered.get(moment.layer, ())):
            unseen.append(moment.layer)
    return _with_basis(_nothing(compared, layers, after), compared, layers, call)


def _same(one: Sequence[InnerValue], other: Sequence[InnerValue]) -> bool:
    """Return whether a layer returns what it takes, as dropout does in evaluation."""
    import numpy as np  # slow to import

    return bool(one) and bool(other) and np.array_equal(one[0].values, other[0].values)


def _tallies(
    moment: Moment, converted: Found, again: Found, rule: AgreementRule, batch: int | None
) -> list[CallTally]:
    """Compare the values of one moment that are known of both."""
    tallies: list[CallTally] = []
    exactly = again.get((moment.layer, moment.end), ())
    for position, one, other in pair_values(moment.values, converted.get((moment.layer, moment.end), ())):
        name = str(position)
        if one.shape != other.shape:
            fault = f"it is {_shape(other)} instead of {_shape(one)}"
            tallies.append(CallTally(output=name, call=moment.layer, values=0, fault=fault))
            continue
        rows = len(one.values) if batch and len(one.values) == batch else None
        exact = exactly[position].values if position < len(exactly) else one.values
        if one.values.dtype.kind not in "fc":
            exact = one.values
        expected, actual = one.values, other.values.astype(one.values.dtype)
        if rule.lossy and rows and one.values.dtype.kind == "f":
            expected, actual, exact = _evened(expected, actual, exact)
        values = {name: expected}
        tallies += compare_call(
            values,
            {name: actual},
            call=moment.layer,
            batch=rows,
            floors=relative_floor(values, {name: exact}, rows),
            rule=rule,
        )
    return tallies


def _evened(expected: ndarray, *others: ndarray) -> tuple[ndarray, ...]:
    """Divide the larger places of a layer by their usual size: none may decide a cosine alone.

    Quantising fails where one number is so large that it leaves no steps for the others.
    """
    import numpy as np  # slow to import

    usual = np.sqrt(np.square(expected, dtype=np.float64).mean(axis=0))
    usual = np.maximum(usual, np.median(usual)) if usual.size else usual
    usual = np.where((usual > 0) & np.isfinite(usual), usual, 1.0).astype(expected.dtype)
    return tuple(values / usual for values in (expected, *others))


def _shape(value: InnerValue) -> str:
    return "x".join(map(str, value.shape)) or "a single value"


def _difference_at(
    moment: Moment, worst: OutputFigures, layers: Mapping[str, str], after: str, unseen: tuple[str, ...]
) -> FirstDifference:
    place = f"{moment.layer} ({moment.kind})"
    if moment.end is End.INPUT:
        around = moment.layer.rpartition(".")[0]
        code = f"the code of {around} ({layers[around]})" if around in layers else "the model's own code"
        where = f"before {place}" + (f" and after {after}" if after else "") + f", in {code}"
    elif unseen:
        span = f"between {after} and" if after else "at or before"
        where = f"{span} {place}, where {_named(unseen)} cannot be seen"
    else:
        where = f"at {place}"
    return FirstDifference(
        sentence=f"first differs {where}: {_distance(worst)}",
        layer=moment.layer,
        kind=moment.kind,
        end=moment.end,
        after=after,
        unseen=unseen,
        cosine=worst.cosine,
        error=worst.error,
        bound=worst.bound,
    )


def _nothing(compared: Mapping[str, None], layers: Mapping[str, str], after: str) -> FirstDifference:
    if not compared:
        none = f"none of the {len(layers)} layers of the source was found in it"
        return FirstDifference(sentence=f"where it first differs is not known: {none}")
    same = f"{len(compared)} of {len(layers)} layers were compared, and agree"
    if not after:
        return FirstDifference(sentence=f"where it first differs is not known: {same}")
    return FirstDifference(
        sentence=f"first differs after {after}, in the model's own code: {same}", after=after
    )


def _with_basis(
    difference: FirstDifference,
    compared: Mapping[str, None],
    layers: Mapping[str, str],
    call: str,
    *,
    inputs_agree: bool = False,
) -> FirstDifference:
    inputs = " (its inputs agree)" if inputs_agree else ""
    return replace(
        difference,
        sentence=difference.sentence + inputs,
        inputs_agree=inputs_agree,
        compared=len(compared),
        layers=len(layers),
        call=call,
    )


_NAMED = 3
"""Layers that are named in a sentence."""


def _named(layers: Sequence[str]) -> str:
    more = len(layers) - _NAMED
    return ", ".join(layers[:_NAMED]) + (f" and {more} more" if more > 0 else "")


_TELLING = 0.99
"""Below this, the cosine says more than the error."""


def _distance(worst: OutputFigures) -> str:
    if worst.cosine is not None and worst.cosine < _TELLING:
        return f"cosine {worst.cosine:.2f}"
    return worst.reason.rpartition(", ")[0].removeprefix("it is ")
