"""Compares the outputs of a converted model with those of its source, call by call, and concludes.

Errors are judged sample by sample, because samples of another magnitude have other errors: the bound of an
element is the larger of the bound of its dtype and ten times the noise floor, which is the share of a
sample's largest value by which the source differs from itself. A floor above half the digits of the dtype is
no noise, and excuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING

from modeldyno.base.stats.statistics import share_interval
from modeldyno.conversion.agreement.agreement import (
    ModelAgreement,
    OutputFigures,
    TopAgreement,
    worst_verdict,
)
from modeldyno.conversion.agreement.rule import AgreementRule, DtypeBound, Equivalence, bound_of

if TYPE_CHECKING:
    from numpy import ndarray

Outputs = Mapping[str, "ndarray"]
"""Output name to array."""
_CLASS_RANKS = (2, 3)
"""Ranks of outputs whose last axis may be classes: samples x classes, samples x positions x classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTally:
    """One output of one call, compared."""

    output: str
    call: str
    values: int
    fault: str = ""
    """What cannot be compared, such as another shape, or must not differ, such as a NaN."""
    largest: float = 0.0
    relative: float = 0.0
    worst: float = 0.0
    """Largest error as a share of its bound; above 1 the output does not agree."""
    error: float = 0.0
    bound: float = 0.0
    ruled: float = 0.0
    floor: float = 0.0
    """The error, its bound, that of the rule without a tolerance, and the noise floor at that place."""
    unruled: float = 0.0
    """Largest error as a share of its bound by the rule without a tolerance."""
    products: tuple[float, float, float] | None = None
    """Scalar product of both, and of each with itself; None for an output without an angle."""
    same: int = 0
    of: int = 0
    """Samples with the same largest element, of how many; 0 of 0 for an output without classes."""
    refused: str = ""
    """Why the user's own function refuses the outputs of this call; empty if it does not."""


# -- the noise floor ------------------------------------------------------------------------------


def source_fault(outputs: Outputs) -> str:
    """Return what makes the outputs of the source no reference, in a phrase; empty if nothing does.

    A mask of infinities is none among other outputs, but alone it leaves no number to compare.
    """
    import numpy as np  # slow to import

    for name, values in outputs.items():
        if values.dtype.kind in "fc" and (nans := int(np.isnan(values).sum())):
            return f"its output '{name}' has {nans:,} NaN of {values.size:,} values"
    values_of = [values for values in outputs.values() if values.size]
    if values_of and not any(_has_numbers(values) for values in values_of):
        return f"all {sum(values.size for values in values_of):,} values of its outputs are infinite"
    return ""


def _has_numbers(values: ndarray) -> bool:
    """Return whether anything of an output can be off by some amount, or be unequal."""
    import numpy as np  # slow to import

    return values.dtype.kind not in "fc" or bool(np.isfinite(values).any())


def uncompared(calls: Sequence[Outputs]) -> tuple[str, ...]:
    """Name the outputs of which no call has a number that could be compared: all are empty, or infinite."""
    return tuple(
        name
        for name in (calls[0] if calls else ())
        if not any(call[name].size and _has_numbers(call[name]) for call in calls if name in call)
    )


def relative_floor(reference: Outputs, again: Outputs, batch: int | None) -> dict[str, float]:
    """Return how far the source is from itself, by output: as a share of a sample's largest value.

    Args:
        reference: its outputs.
        again: its outputs for the same inputs, computed in another way; in any dtype.
        batch: samples of the call; None if the first axis is no batch.
    """
    return {
        name: _floor_of(values, again[name], batch) for name, values in reference.items() if name in again
    }


def _floor_of(reference: ndarray, again: ndarray, batch: int | None) -> float:
    import numpy as np  # slow to import

    if reference.dtype.kind not in "fc" or reference.shape != again.shape:
        return 0.0
    first, second = _rows(reference, batch), _rows(again, batch)
    finite = np.isfinite(first) & np.isfinite(second)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(finite, np.abs(first - second), 0.0).max(axis=1, initial=0.0)
    scales = np.where(finite, np.abs(first), 0.0).max(axis=1, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = np.where(errors > 0, errors / scales, 0.0)
    return float(np.where(np.isfinite(shares), shares, 0.0).max(initial=0.0))


def unstable(reference: ndarray, again: ndarray) -> ndarray:
    """Return where integers or texts of the source differ from its own, computed in another way."""
    import numpy as np  # slow to import

    if reference.shape != again.shape:
        return np.zeros(reference.shape, bool)
    return np.asarray(reference != again)


# -- one call -------------------------------------------------------------------------------------


def compare_call(
    reference: Outputs,
    candidate: Outputs,
    *,
    call: str,
    batch: int | None,
    floors: Mapping[str, float],
    rule: AgreementRule,
    unsteady: Outputs | None = None,
) -> tuple[CallTally, ...]:
    """Compare what both models returned for one input; outputs match by name, or else by position.

    Args:
        reference: the outputs of the source.
        candidate: the outputs of the converted model.
        call: the call in words, such as ``batch=3``.
        batch: its samples; None if the first axis is no batch.
        floors: the noise floor of each output, as `relative_floor` gives it.
        rule: what is asked of the converted model.
        unsteady: where integers of the source are undecided, as `unstable` gives it.
    """
    if len(reference) != len(candidate):
        counts = f"the source returns {_count(len(reference))}, the converted model {_count(len(candidate))}"
        return tuple(CallTally(output=name, call=call, values=0, fault=counts) for name in reference)
    return tuple(
        _compare(
            name,
            reference[name],
            candidate[other],
            call=call,
            batch=batch,
            floor=floors.get(name, 0.0),
            rule=rule,
            undecided=(unsteady or {}).get(name),
        )
        for name, other in match_outputs(reference, candidate).items()
    )


def match_outputs(reference: Outputs, candidate: Outputs) -> dict[str, str]:
    """Return the converted model's name of each output: the same name, or else that at its position."""
    if reference.keys() == candidate.keys():
        return {name: name for name in reference}
    return dict(zip(reference, candidate, strict=True))


def _count(outputs: int) -> str:
    return f"{outputs} output{'' if outputs == 1 else 's'}"


def _compare(
    name: str,
    reference: ndarray,
    candidate: ndarray,
    *,
    call: str,
    batch: int | None,
    floor: float,
    rule: AgreementRule,
    undecided: ndarray | None,
) -> CallTally:
    fault = _unlike(reference, candidate, rule)
    if fault:
        return CallTally(output=name, call=call, values=0, fault=fault)
    bound = bound_of(str(reference.dtype), rule)
    if bound is not None and str(candidate.dtype) != str(reference.dtype):  # narrowed on purpose
        bound = bound_of(str(candidate.dtype), rule)
    if bound is None:
        return _compare_exact(name, reference, candidate, call, batch, undecided)
    if fault := _unlike_pattern(reference, candidate):
        return CallTally(output=name, call=call, values=reference.size, fault=fault)
    tolerated = 0.0 if rule.tolerance is None else rule.tolerance.of(name)
    return _compare_floats(name, reference, candidate, call, batch, _Allowed(bound, floor, rule, tolerated))


def _unlike(reference: ndarray, candidate: ndarray, rule: AgreementRule) -> str:
    """Return how the shape or the dtype differs; empty if both are the same."""
    if reference.shape != candidate.shape:
        return f"it is {_shape(candidate)} instead of {_shape(reference)}"
    dtypes = str(reference.dtype), str(candidate.dtype)
    texts = {reference.dtype.kind, candidate.dtype.kind} <= set("OU")
    if dtypes[0] == dtypes[1] or texts or (rule.narrows and dtypes == ("float64", "float32")):
        return ""
    return f"it is {dtypes[1]} instead of {dtypes[0]}"


def _shape(array: ndarray) -> str:
    return "x".join(map(str, array.shape)) or "a single value"


def _unlike_pattern(reference: ndarray, candidate: ndarray) -> str:
    """Return how the places of NaN and infinities differ; empty if they are the same."""
    import numpy as np  # slow to import

    if reference.dtype.kind == "c":
        parts = _unlike_pattern(reference.real, candidate.real)
        return parts or _unlike_pattern(reference.imag, candidate.imag)
    for what, test in (("NaN", np.isnan), ("infinity", np.isposinf), ("minus infinity", np.isneginf)):
        actual, expected = test(candidate), test(reference)
        if bool((actual != expected).any()):
            counts = int(actual.sum()), int(expected.sum())
            return f"it has {counts[0]:,} {what} of {candidate.size:,} values, the source {counts[1]:,}"
    return ""


def _compare_exact(
    name: str, reference: ndarray, candidate: ndarray, call: str, batch: int | None, undecided: ndarray | None
) -> CallTally:
    """Compare integers, flags or texts: all must be equal where the source itself is decided."""
    import numpy as np  # slow to import

    equal = np.asarray(reference == candidate)
    if undecided is not None:
        equal = equal | undecided
    rows = equal.reshape(batch if batch and equal.shape[:1] == (batch,) else 1, -1)
    wrong = int((~equal).sum())
    largest = float(wrong > 0)
    if wrong and reference.dtype.kind in "iu" and candidate.dtype.kind in "iu":
        difference = reference.astype(np.float64) - candidate.astype(np.float64)
        largest = float(np.abs(difference[~equal]).max())
    return CallTally(
        output=name,
        call=call,
        values=reference.size,
        largest=largest,
        relative=wrong / max(1, equal.size),
        worst=inf if wrong else 0.0,
        error=largest,
        same=int(rows.all(axis=1).sum()),
        of=len(rows),
    )


@dataclass(frozen=True, slots=True)
class _Allowed:
    bound: DtypeBound
    floor: float
    rule: AgreementRule
    tolerated: float
    """The share of a sample's largest value that a person allows."""

    @property
    def share(self) -> float:
        """The share of a sample's largest value that the noise floor allows."""
        return min(self.rule.noise * self.floor, self.bound.digits)


def _compare_floats(
    name: str, reference: ndarray, candidate: ndarray, call: str, batch: int | None, allowed: _Allowed
) -> CallTally:
    import numpy as np  # slow to import

    first, second = _rows(reference, batch), _rows(candidate, batch)
    finite = np.isfinite(first)
    first, second = np.where(finite, first, 0.0), np.where(finite, second, 0.0)
    errors = np.abs(first - second)
    scales = np.abs(first).max(axis=1, initial=0.0)[:, np.newaxis]
    dtype_bound = allowed.bound.relative * np.abs(first) + allowed.bound.absolute * np.minimum(1.0, scales)
    ruled = np.maximum(dtype_bound, allowed.share * scales)
    bounds = np.maximum(ruled, allowed.tolerated * scales)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(errors > 0, errors / bounds, 0.0)
        unruled = np.where(errors > 0, errors / ruled, 0.0)
        relative = np.where(errors > 0, errors / scales, 0.0)
    place = int(shares.argmax()) if shares.size else None
    same, of = _same_top(reference, candidate, batch)
    return CallTally(
        output=name,
        call=call,
        values=reference.size,
        largest=float(errors.max(initial=0.0)),
        relative=float(relative.max(initial=0.0)),
        worst=0.0 if place is None else float(shares.flat[place]),
        error=0.0 if place is None else float(errors.flat[place]),
        bound=0.0 if place is None else float(bounds.flat[place]),
        ruled=0.0 if place is None else float(ruled.flat[place]),
        unruled=float(unruled.max(initial=0.0)),
        floor=0.0 if place is None else float(allowed.floor * scales[place // shares.shape[1], 0]),
        products=(float(np.vdot(first, second).real), _square(first), _square(second)),
        same=same,
        of=of,
    )


def _square(values: ndarray) -> float:
    import numpy as np  # slow to import

    return float(np.vdot(values, values).real)


def _rows(values: ndarray, batch: int | None) -> ndarray:
    """Return the values of each sample as a row, in the widest dtype; one row if there is no batch."""
    import numpy as np  # slow to import

    wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
    samples = batch if batch and values.shape[:1] == (batch,) else 1
    return wide.reshape(samples, -1) if values.size else np.zeros((samples, 0))


def _same_top(reference: ndarray, candidate: ndarray, batch: int | None) -> tuple[int, int]:
    """Count the rows of classes whose largest element is the same."""
    if (
        reference.ndim not in _CLASS_RANKS
        or reference.dtype.kind != "f"
        or reference.shape[-1] < 2
        or not reference.size
        or not batch
        or reference.shape[0] != batch
    ):
        return 0, 0
    same = reference.argmax(axis=-1) == candidate.argmax(axis=-1)
    return int(same.sum()), int(same.size)


# -- all calls ------------------------------------------------------------------------------------


def conclude(
    tallies: Sequence[CallTally],
    rule: AgreementRule,
    *,
    samples: int,
    floors: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> ModelAgreement:
    """Judge each output over all calls, and the model by its worst output.

    Args:
        tallies: what `compare_call` returned for each call, at least one.
        rule: what is asked of the converted model.
        samples: distinct samples that were compared.
        floors: how the noise floor was measured.
        notes: what could not be checked.
    """
    if not tallies:
        raise ValueError("nothing was compared")
    names = dict.fromkeys(tally.output for tally in tallies)
    outputs = tuple(_figures([t for t in tallies if t.output == name], rule) for name in names)
    verdict = worst_verdict(tuple(figures.verdict for figures in outputs))
    calls = tuple(dict.fromkeys(tally.call for tally in tallies))
    agreement = ModelAgreement(
        verdict=verdict,
        sentence="",
        outputs=outputs,
        samples=samples,
        calls=calls,
        floors=floors,
        notes=notes,
        tolerance=rule.tolerance,
        verified_by=rule.verified_by,
    )
    refused = next((tally for tally in tallies if tally.refused), None)
    if refused is not None:
        why = f"{rule.verified_by} refuses it at {refused.call}: {refused.refused}"
        return replace(agreement, verdict=Equivalence.DIFFERS, sentence=f"differs: {why}")
    return replace(agreement, sentence=_sentence(agreement))


def _figures(tallies: Sequence[CallTally], rule: AgreementRule) -> OutputFigures:
    """Judge one output."""
    name, values = tallies[0].output, sum(tally.values for tally in tallies)
    if (faulty := next((tally for tally in tallies if tally.fault), None)) is not None:
        reason = f"{faulty.fault}, at {faulty.call}"
        return OutputFigures(output=name, verdict=Equivalence.DIFFERS, reason=reason, values=values)
    worst = max(tallies, key=lambda tally: tally.worst)
    angle, top = _cosine(tallies), _top(tallies)
    verdict, reason = _verdict(worst, angle, top, rule)
    return OutputFigures(
        output=name,
        verdict=verdict,
        reason=reason,
        values=values,
        largest=max(tally.largest for tally in tallies),
        relative=_finite(max(tally.relative for tally in tallies)),
        error=worst.error,
        bound=worst.bound,
        ruled=worst.ruled if verdict is Equivalence.AGREES and max(t.unruled for t in tallies) > 1 else None,
        floor=worst.floor,
        cosine=angle,
        top=top,
    )


def _verdict(
    worst: CallTally, angle: float | None, top: TopAgreement | None, rule: AgreementRule
) -> tuple[Equivalence, str]:
    if worst.worst <= 1 or rule.verified_by:
        return Equivalence.AGREES, ""
    is_wider = rule.tolerance is not None and rule.tolerance.of(worst.output)
    source = " as asked" if is_wider and worst.products is not None else ""
    if worst.products is None:
        assert top is not None
        off = f"{top.of - top.same} of {top.of} samples differ, first at {worst.call}"
    else:
        off = f"it is off by {worst.error:.2g} where {worst.bound:.2g} is allowed{source}, at {worst.call}"
    if not rule.lossy:
        return Equivalence.DIFFERS, off
    if angle is not None and angle < rule.cosine:
        return Equivalence.DIFFERS, f"its cosine with the source is {angle:.4f}, below {rule.cosine:g}"
    if top is not None and top.low < rule.argmax:
        kept = f"the largest element stays the same in {top.same} of {top.of}"
        return (
            Equivalence.DIFFERS,
            f"{kept}: certain is {top.low:.2f}, and {rule.argmax:.2f} is asked for",
        )
    return Equivalence.CLOSE, off


def _cosine(tallies: Sequence[CallTally]) -> float | None:
    """Return the cosine over all calls; 1 if both are zero, 0 if one is."""
    products = [tally.products for tally in tallies if tally.products is not None]
    if not products:
        return None
    both, first, second = (sum(column) for column in zip(*products, strict=True))
    if not first or not second:
        return float(first == second)
    length = first**0.5 * second**0.5
    return max(-1.0, min(1.0, both / length)) if isfinite(length) and isfinite(both) else 0.0


def _top(tallies: Sequence[CallTally]) -> TopAgreement | None:
    same, of = sum(tally.same for tally in tallies), sum(tally.of for tally in tallies)
    return TopAgreement(same=same, of=of, low=share_interval(same, of)[0]) if of else None


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _sentence(agreement: ModelAgreement) -> str:
    """Return the verdict in one sentence."""
    worst = agreement.worst
    assert worst is not None
    samples = f"{agreement.samples} sample{'' if agreement.samples == 1 else 's'}"
    how = f"{samples}, {len(agreement.calls)} {'way' if len(agreement.calls) == 1 else 'ways'} of calling"
    match agreement.verdict:
        case Equivalence.DIFFERS:
            return f"differs: output '{worst.output}': {worst.reason}"
        case Equivalence.CLOSE:
            angle = "" if worst.cosine is None else f"; cosine {worst.cosine:.5f}"
            top = "" if worst.top is None else f"; same largest element in {worst.top.same} of {worst.top.of}"
            return f"close, as declared ({how}): output '{worst.output}': {worst.reason}{angle}{top}"
    loosest = max(
        (f for f in agreement.outputs if f.ruled is not None), key=lambda f: f.error or 0, default=None
    )
    if agreement.verified_by:
        rule = "" if loosest is None else f", where {loosest.ruled:.2g} is the rule"
        error = f"largest error {worst.largest or 0:.2g}" if loosest is None else f"error {loosest.error:.2g}"
        return f"agrees as {agreement.verified_by} judges ({how}): {error}{rule}"
    if agreement.tolerance is not None and loosest is not None:
        share = agreement.tolerance.of(loosest.output)
        limit = f"within {share:g} as {agreement.tolerance.by} asked"
        error = f"error {loosest.error:.2g} where {loosest.bound:.2g} is allowed"
        return f"agrees {limit} ({how}): {error}; {loosest.ruled:.2g} is the rule"
    if not worst.error:
        return f"agrees exactly ({how})"
    return f"agrees ({how}): largest error {worst.error:.2g} where {worst.bound:.2g} is allowed"
