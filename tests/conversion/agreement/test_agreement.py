"""Whether a converted model is still the model: the mathematics of the verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.conversion.agreement.agreement import (
    FirstDifference,
    ModelAgreement,
    OutputFigures,
    worst_verdict,
)
from modeldyno.conversion.agreement.compare import (
    CallTally,
    compare_call,
    conclude,
    relative_floor,
    source_fault,
    uncompared,
    unstable,
)
from modeldyno.conversion.agreement.conversion import (
    Conversion,
    ConversionFailure,
    ConversionFailureKind,
    Converted,
)
from modeldyno.conversion.agreement.rule import BOUNDS, AgreementRule, Equivalence, Tolerance, bound_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy import ndarray

STRICT = AgreementRule()
LOSSY = AgreementRule(lossy=True)
SAMPLES = 32


def values(*shape: int, seed: int = 0, scale: float = 1.0) -> ndarray:
    """Draw an output of float32."""
    return np.asarray(np.random.default_rng(seed).normal(0, scale, shape), np.float32)


def judged(
    reference: Any,
    candidate: Any,
    *,
    rule: AgreementRule = STRICT,
    floors: Mapping[str, float] | None = None,
    unsteady: Mapping[str, ndarray] | None = None,
    batch: int | None = SAMPLES,
) -> ModelAgreement:
    """Compare one call of outputs `y`, or of named ones."""
    first = reference if isinstance(reference, dict) else {"y": np.asarray(reference)}
    second = candidate if isinstance(candidate, dict) else {"y": np.asarray(candidate)}
    tallies = compare_call(
        first, second, call=f"batch={batch}", batch=batch, floors=floors or {}, rule=rule, unsteady=unsteady
    )
    return conclude(tallies, rule, samples=SAMPLES)


def verdict(reference: Any, candidate: Any, **options: Any) -> Equivalence:
    """Return the verdict on one call."""
    return judged(reference, candidate, **options).verdict


def test_the_same_outputs_agree_exactly() -> None:
    """And the sentence says so."""
    y = values(SAMPLES, 10)
    agreement = judged(y, y.copy())

    assert agreement.verdict is Equivalence.AGREES
    assert agreement.sentence == "agrees exactly (32 samples, 1 way of calling)"
    assert agreement.outputs[0].cosine == pytest.approx(1)
    assert agreement.outputs[0].top is not None
    assert agreement.outputs[0].top.low == pytest.approx(0.893, abs=1e-3)


@pytest.mark.parametrize("dtype", sorted({*BOUNDS} - {"bfloat16"}))
def test_the_bound_of_a_dtype_is_that_of_torch_testing(dtype: str) -> None:
    """An error just below it agrees, and one just above differs."""
    bound = BOUNDS[dtype]
    y = np.full((SAMPLES, 4), 1.0, dtype="complex128" if dtype.startswith("complex") else "float64")
    step = bound.relative + bound.absolute
    narrow = y.astype(dtype)
    outcomes = [
        compare_call(
            {"y": narrow},
            {"y": (y + factor * step).astype(dtype)},
            call="c",
            batch=SAMPLES,
            floors={},
            rule=STRICT,
        )[0].worst
        for factor in (0.5, 4.0)
    ]

    assert outcomes[0] <= 1 < outcomes[1]


def test_the_bound_shrinks_with_small_outputs() -> None:
    """Zeros cannot stand for an output of millionths, which an absolute bound would let pass."""
    y = values(SAMPLES, 8, scale=1e-6)

    assert verdict(y, np.zeros_like(y)) is Equivalence.DIFFERS
    assert verdict(y, y * np.float32(1 + 1e-6)) is Equivalence.AGREES


def test_an_error_within_ten_times_the_noise_floor_agrees() -> None:
    """Beyond it, it differs."""
    y = values(SAMPLES, 8)
    noisy = y + np.float32(5e-5) * np.abs(y).max(axis=1, keepdims=True)

    assert verdict(y, noisy) is Equivalence.DIFFERS
    assert verdict(y, noisy, floors={"y": 6e-6}) is Equivalence.AGREES
    assert verdict(y, noisy, floors={"y": 4e-6}) is Equivalence.DIFFERS


def test_a_tolerance_that_was_asked_for_is_told_beside_the_rule() -> None:
    """With who asked; where the rule alone agrees, nothing is added."""
    y = values(SAMPLES, 8)
    near, far = y * np.float32(1 + 5e-4), y * np.float32(1.01)
    rule = AgreementRule(tolerance=Tolerance(relative=1e-3, by="ada"))
    agreement = judged(y, near, rule=rule)

    assert verdict(y, near) is Equivalence.DIFFERS
    assert agreement.verdict is Equivalence.AGREES
    assert agreement.sentence.startswith(
        "agrees within 0.001 as ada asked (32 samples, 1 way of calling): error "
    )
    assert agreement.sentence.endswith("e-05 is the rule")
    assert agreement.outputs[0].ruled is not None
    assert judged(y, y.copy(), rule=rule).sentence == judged(y, y.copy()).sentence
    assert judged(y, far, rule=rule).verdict is Equivalence.DIFFERS
    assert " is allowed as asked, at batch=32" in judged(y, far, rule=rule).sentence


def test_no_tolerance_excuses_another_integer() -> None:
    """It is for rounding."""
    labels = np.arange(SAMPLES)
    other = labels.copy()
    other[0] = 1
    rule = AgreementRule(tolerance=Tolerance(relative=0.5, by="ada"))

    assert judged(labels, other, rule=rule).verdict is Equivalence.DIFFERS


def test_no_noise_excuses_more_than_half_the_digits() -> None:
    """A source that is far from itself, as with batch statistics, does not make everything agree."""
    y = values(SAMPLES, 8)

    assert verdict(y, y * np.float32(1.01), floors={"y": 1.0}) is Equivalence.DIFFERS


def test_errors_are_judged_sample_by_sample() -> None:
    """A large sample does not hide the error of a small one."""
    y = values(SAMPLES, 8)
    y[0] *= 1e4
    other = y.copy()
    other[5] += 1e-3

    assert verdict(y, other) is Equivalence.DIFFERS
    assert verdict(y, other, batch=None) is Equivalence.DIFFERS


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_places_of_nan_and_infinities_must_be_the_same(value: float) -> None:
    """A mask of minus infinity that is meant passes; an unexpected one does not."""
    y = values(SAMPLES, 8)
    masked = y.copy()
    masked[:, 3:] = value

    assert verdict(masked, masked.copy()) is Equivalence.AGREES
    assert verdict(y, masked) is Equivalence.DIFFERS
    assert verdict(masked, y) is Equivalence.DIFFERS
    assert (
        verdict(masked, np.where(np.isfinite(masked), masked, -3e38).astype(np.float32))
        is Equivalence.DIFFERS
    )


def test_complex_numbers_are_compared_in_both_parts() -> None:
    """Also where infinities are."""
    y = (values(SAMPLES, 4) + 1j * values(SAMPLES, 4, seed=1)).astype(np.complex64)
    infinite = y.copy()
    infinite[0, 0] = complex(0, np.inf)

    assert verdict(y, y.copy()) is Equivalence.AGREES
    assert verdict(y, y.conj()) is Equivalence.DIFFERS
    assert verdict(y, infinite) is Equivalence.DIFFERS
    assert judged(y, y.copy()).outputs[0].top is None


@pytest.mark.parametrize(
    ("other", "phrase"),
    [
        (values(SAMPLES, 9), "it is 32x9 instead of 32x10"),
        (values(SAMPLES, 10).astype(np.float64), "it is float64 instead of float32"),
        (np.float32(1), "it is a single value instead of 32x10"),
        (
            {"y": values(SAMPLES, 10), "z": values(3)},
            "the source returns 1 output, the converted model 2 outputs",
        ),
    ],
)
def test_another_shape_dtype_or_number_of_outputs_differs(other: Any, phrase: str) -> None:
    """The sentence names what is unlike, and at which call."""
    agreement = judged(values(SAMPLES, 10), other)

    assert agreement.verdict is Equivalence.DIFFERS
    assert phrase in agreement.sentence
    assert agreement.outputs[0].largest is None


def test_outputs_match_by_name_or_else_by_position() -> None:
    """The order of names is that of a mapping; other names are matched in order."""
    a, b = values(SAMPLES, 2), values(SAMPLES, 3)

    assert verdict({"a": a, "b": b}, {"b": b, "a": a}) is Equivalence.AGREES
    assert verdict({"a": a, "b": b}, {"output_0": a, "output_1": b}) is Equivalence.AGREES
    assert verdict({"a": a, "b": b}, {"output_0": b, "output_1": a}) is Equivalence.DIFFERS


def test_a_recipe_that_says_so_may_narrow_float64_to_float32() -> None:
    """Its errors are then those of float32."""
    y = values(SAMPLES, 4).astype(np.float64) * (1 + 1e-8)
    narrow = AgreementRule(narrows=True)

    assert verdict(y, y.astype(np.float32)) is Equivalence.DIFFERS
    assert verdict(y, y.astype(np.float32), rule=narrow) is Equivalence.AGREES
    assert verdict(y, (y * 1.001).astype(np.float32), rule=narrow) is Equivalence.DIFFERS


def test_a_source_that_computes_in_half_precision_has_its_bounds() -> None:
    """Also where its output is float32."""
    assert bound_of("float32", AgreementRule(computed="bfloat16")) == BOUNDS["bfloat16"]
    assert bound_of("float32", AgreementRule(computed="float64")) == BOUNDS["float32"]
    assert bound_of("float32", AgreementRule(computed="int8")) == BOUNDS["float32"]
    assert bound_of("int64", AgreementRule(computed="float16")) is None


def test_integers_must_be_equal_where_the_source_is_decided() -> None:
    """A label that the source itself changes with the batch may change."""
    labels = np.arange(SAMPLES, dtype=np.int64)
    other = labels.copy()
    other[3] = 9
    undecided = labels != other
    agreement = judged(labels, other)

    assert agreement.verdict is Equivalence.DIFFERS
    assert agreement.outputs[0].largest == 6
    assert "1 of 32 samples differ" in agreement.sentence
    assert verdict(labels, other, unsteady={"y": undecided}) is Equivalence.AGREES
    assert verdict(labels, labels.astype(np.int32)) is Equivalence.DIFFERS
    assert verdict(labels, other, batch=None) is Equivalence.DIFFERS


def test_texts_and_flags_must_be_equal() -> None:
    """Whether an array of texts holds objects or characters does not matter."""
    texts = np.array(["cat", "dog"] * 16)

    assert verdict(texts, texts.astype(object)) is Equivalence.AGREES
    assert verdict(texts, texts[::-1]) is Equivalence.DIFFERS
    assert verdict(np.ones(SAMPLES, bool), np.zeros(SAMPLES, bool)) is Equivalence.DIFFERS


def test_only_a_recipe_that_declares_it_may_be_close() -> None:
    """The same outputs differ for one that does not."""
    y = values(SAMPLES, 10)
    quantised = y + values(SAMPLES, 10, seed=1, scale=1e-3)
    agreement = judged(y, quantised, rule=LOSSY)

    assert verdict(y, quantised) is Equivalence.DIFFERS
    assert agreement.verdict is Equivalence.CLOSE
    assert agreement.sentence.startswith("close, as declared (32 samples")
    assert "same largest element in 32 of 32" in agreement.sentence


def test_a_lossy_recipe_must_keep_direction_and_largest_element() -> None:
    """A cosine below the rule's differs, and so does a share of kept elements that is not certain."""
    y = values(SAMPLES, 10)
    tied = np.tile(np.array([1.0, 1.001, *[0.0] * 8], np.float32), (SAMPLES, 1))

    far = judged(y, y + values(SAMPLES, 10, seed=1, scale=0.2), rule=LOSSY)
    assert far.verdict is Equivalence.DIFFERS
    assert "its cosine with the source is" in far.sentence
    flipped = judged(tied, tied[:, [1, 0, *range(2, 10)]], rule=LOSSY)
    assert flipped.verdict is Equivalence.DIFFERS
    assert "stays the same in 0 of 32" in flipped.sentence
    assert verdict(y[:, 0], y[:, 0] + np.float32(1e-4), rule=LOSSY) is Equivalence.CLOSE


def test_labels_of_a_lossy_recipe_may_change_in_a_few_samples() -> None:
    """As few as the lower bound of their share allows."""
    labels = np.arange(200)
    one, many = labels.copy(), labels.copy()
    one[0], many[:50] = 5, 999

    assert verdict(labels, one, rule=LOSSY, batch=200) is Equivalence.CLOSE
    assert judged(labels, one, rule=LOSSY, batch=200).sentence.endswith("199 of 200")
    assert verdict(labels, many, rule=LOSSY, batch=200) is Equivalence.DIFFERS


def test_the_cosine_of_zeros_is_one_only_with_zeros() -> None:
    """And an angle that cannot be computed counts as none."""
    zeros = np.zeros((SAMPLES, 1), np.float32)
    huge = np.full((SAMPLES, 1), 1e200)

    assert judged(zeros, zeros).outputs[0].cosine == 1
    assert judged(zeros, zeros + 1).outputs[0].cosine == 0
    assert judged(zeros, zeros + 1).outputs[0].relative is None
    with np.errstate(over="ignore"):
        assert judged(huge, huge).outputs[0].cosine == 0


def test_outputs_without_values_agree() -> None:
    """Such as boxes of an image in which nothing was found."""
    empty = np.zeros((SAMPLES, 0, 4), np.float32)

    assert verdict(empty, empty.copy()) is Equivalence.AGREES
    assert (
        verdict(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32), batch=None) is Equivalence.AGREES
    )


def test_the_floor_is_the_share_by_which_a_source_differs_from_itself() -> None:
    """In another dtype, too; infinities and other shapes are left out."""
    y = np.array([[1.0, 2.0], [0.0, 0.0]], np.float32)
    exact = np.array([[1.0, 2.0 + 2e-6], [1e-9, 0.0]])
    floors = relative_floor({"y": y, "n": np.arange(2), "only": y}, {"y": exact, "n": np.arange(2)}, 2)

    assert floors == {"y": pytest.approx(1e-6), "n": 0.0}
    assert relative_floor({"y": y}, {"y": exact[:1]}, 2) == {"y": 0.0}
    assert relative_floor({"y": y}, {"y": np.where(y == 2, np.inf, exact)}, 2) == {"y": 0.0}


def test_unstable_integers_are_those_that_the_source_changes_itself() -> None:
    """Of another shape nothing is known."""
    assert unstable(np.array([1, 2]), np.array([1, 3])).tolist() == [False, True]
    assert unstable(np.array([1, 2]), np.array([1])).tolist() == [False, False]


def test_nan_in_the_reference_is_a_fault_of_the_source() -> None:
    """Infinities beside numbers are none, and neither are outputs without values."""
    y = values(2, 3)
    broken = y.copy()
    broken[0, 0] = np.nan

    assert source_fault({"y": y, "n": np.arange(2)}) == ""
    assert source_fault({"y": y, "mask": np.full_like(y, -np.inf)}) == ""
    assert source_fault({"n": np.arange(2), "mask": np.full_like(y, -np.inf)}) == ""
    assert source_fault({"y": y[:0]}) == ""
    assert source_fault({"x": y, "y": broken}) == "its output 'y' has 1 NaN of 6 values"


def test_infinities_alone_leave_nothing_to_compare() -> None:
    """Equal infinities would agree exactly with each other."""
    endless = np.full((2, 3), np.inf)

    assert source_fault({"y": endless}) == "all 6 values of its outputs are infinite"
    assert source_fault({"y": endless, "mask": -endless}) == "all 12 values of its outputs are infinite"


def test_an_output_that_never_has_a_number_is_named() -> None:
    """One number in any call is enough."""
    y = values(2, 3)
    calls = [{"y": y, "mask": np.full_like(y, np.inf), "boxes": y[:0]} for _ in range(2)]

    assert uncompared(calls) == ("mask", "boxes")
    assert uncompared([*calls, {"y": y, "mask": y, "boxes": y}]) == ()
    assert uncompared([]) == ()


def test_the_verdict_is_that_of_the_worst_output() -> None:
    """Which the sentence names, with the place."""
    good, bad = values(SAMPLES, 2), values(SAMPLES, 3)
    agreement = judged({"good": good, "bad": bad}, {"good": good, "bad": bad + 1})

    assert [figures.verdict for figures in agreement.outputs] == [Equivalence.AGREES, Equivalence.DIFFERS]
    assert agreement.worst == agreement.outputs[1]
    assert agreement.sentence.startswith("differs: output 'bad': it is off by 1 where")
    assert worst_verdict((Equivalence.AGREES, Equivalence.CLOSE)) is Equivalence.CLOSE


def test_small_errors_are_told_beside_their_bound() -> None:
    """Over all calls, and in the plural."""
    y = values(SAMPLES, 4)
    other = y + np.float32(1e-6)
    tallies = [
        tally
        for batch in (1, SAMPLES)
        for tally in compare_call(
            {"y": y[:batch]},
            {"y": other[:batch]},
            call=f"batch={batch}",
            batch=batch,
            floors={},
            rule=STRICT,
        )
    ]
    agreement = conclude(tallies, STRICT, samples=1, floors=("float64",), notes=("a note",))

    assert agreement.calls == ("batch=1", "batch=32")
    assert agreement.sentence.startswith("agrees (1 sample, 2 ways of calling): largest error 1e-06 where ")


def test_nothing_compared_is_no_verdict() -> None:
    """A model without outputs has none."""
    with pytest.raises(ValueError, match="nothing was compared"):
        conclude([], STRICT, samples=1)


def test_an_error_without_a_bound_is_the_worst() -> None:
    """As of labels, which have none."""
    figures = [
        OutputFigures(output=name, verdict=Equivalence.DIFFERS, values=1, error=error, bound=bound)
        for name, error, bound in (("a", 2.0, 1.0), ("b", 1.0, 0.0), ("c", None, None))
    ]
    agreement = ModelAgreement(
        verdict=Equivalence.DIFFERS, sentence="", outputs=tuple(figures), samples=1, calls=("c",)
    )

    assert agreement.worst == figures[1]
    assert (
        ModelAgreement(verdict=Equivalence.AGREES, sentence="", outputs=(), samples=1, calls=()).worst is None
    )


@given(
    arrays.arrays(np.float32, (4, 3), elements=st.floats(-1e6, 1e6, width=32)),
    st.permutations(range(3)),
)
def test_a_model_agrees_with_itself_and_not_with_its_swapped_outputs(y: ndarray, order: list[int]) -> None:
    """Unless the swap changes less than the bound."""
    swapped = y[:, order]
    wide = y.astype(np.float64)
    bounds = 1.3e-6 * np.abs(wide) + 1e-5 * np.minimum(1.0, np.abs(wide).max(axis=1, keepdims=True))
    same = bool((np.abs(wide - swapped) <= bounds).all())

    assert verdict(y, y.copy(), batch=4) is Equivalence.AGREES
    assert (verdict(y, swapped, batch=4) is Equivalence.AGREES) is same


def test_a_tally_of_a_call_has_its_place() -> None:
    """A faulty one keeps the call's words for the sentence."""
    tally = CallTally(output="y", call="batch=3", values=0, fault="it is 3x1 instead of 3")

    assert "at batch=3" in conclude([tally], STRICT, samples=3).sentence


def a_conversion(*converted: Converted) -> Conversion:
    """Make a document."""
    return Conversion(id="1", created="2026-01-01", source="m.onnx", model=None, converted=converted)


def test_a_conversion_knows_what_can_be_used() -> None:
    """Close is usable and does not agree; a failure is neither, and its verdict is its kind."""
    y = values(SAMPLES, 10)
    close = judged(y, y + values(SAMPLES, 10, seed=1, scale=1e-3), rule=LOSSY)
    off = judged(y, y + 1)
    differs = ConversionFailure(kind=ConversionFailureKind.OUTPUT_DIFFERS, message=off.sentence)
    crash = ConversionFailure(kind=ConversionFailureKind.CRASHED, message="it crashed")
    good = Converted(recipe="onnx", agreement=judged(y, y))
    document = a_conversion(
        good,
        Converted(recipe="onnx-int8", agreement=close),
        Converted(recipe="openvino", agreement=off, failure=differs),
        Converted(recipe="tflite", failure=crash),
        Converted(recipe="none"),
    )

    assert [made.verdict for made in document.converted] == ["agrees", "close", "differs", "crashed", ""]
    assert [made.usable for made in document.converted] == [True, True, False, False, False]
    assert document.agreeing == (good,)
    assert not document.usable
    assert a_conversion(good).usable
    assert document["tflite"].failure == crash
    with pytest.raises(KeyError):
        document["tensorrt"]


def test_what_is_told_names_the_first_layer_that_differs() -> None:
    """If it is known."""
    agreement = judged(values(SAMPLES, 2), values(SAMPLES, 2, seed=1))
    located = replace(agreement, first=FirstDifference(sentence="first differs at b"))

    assert agreement.full_sentence == agreement.sentence
    assert located.full_sentence == f"{agreement.sentence}; first differs at b"


def test_a_conversion_is_named_by_its_source_if_that_could_not_be_loaded() -> None:
    """And by its model otherwise."""
    unloaded = Conversion(id="1", created="2026-01-01", source="m.onnx", model=None)
    model = ModelIdentity(name="net", framework="onnx", digest="sha256:1")

    assert unloaded.name == "m.onnx"
    assert replace(unloaded, model=model).name == "net"


def test_a_tolerance_may_be_of_one_output() -> None:
    """The others keep the bound of the rule; the sentence says the share of the output that needed it."""
    y, boxes = values(SAMPLES, 10), values(SAMPLES, 4, seed=1)
    off = {"y": y, "boxes": boxes * np.float32(1.005)}
    source = {"y": y, "boxes": boxes}
    wide = AgreementRule(tolerance=Tolerance(outputs={"boxes": 1e-2}, by="ada"))
    other = AgreementRule(tolerance=Tolerance(outputs={"y": 1e-2}, by="ada"))

    assert judged(source, off, rule=wide).sentence.startswith("agrees within 0.01 as ada asked")
    assert judged(source, off, rule=other).verdict is Equivalence.DIFFERS
    assert "as asked" not in judged(source, off, rule=other).sentence


def test_a_function_of_the_user_judges_in_place_of_the_bounds() -> None:
    """What it accepts agrees, with the bound of the rule beside it; shapes must be equal all the same."""
    y = values(SAMPLES, 10)
    rule = AgreementRule(verified_by="close.py:same")

    assert judged(y, y * np.float32(1.1), rule=rule).sentence.startswith(
        "agrees as close.py:same judges (32 samples, 1 way of calling): error "
    )
    assert judged(y, y * np.float32(1.1), rule=rule).sentence.endswith(" is the rule")
    assert judged(y, y, rule=rule).sentence.endswith("largest error 0")
    assert judged(y, y[:, :5], rule=rule).verdict is Equivalence.DIFFERS


def test_what_the_function_of_the_user_refuses_differs() -> None:
    """The sentence names the function, the call and the reason."""
    tallies = compare_call(
        {"y": values(4, 2)}, {"y": values(4, 2)}, call="batch=4", batch=4, floors={}, rule=STRICT
    )
    refused = [replace(tally, refused="it returns False") for tally in tallies]

    agreement = conclude(refused, AgreementRule(verified_by="close.py:same"), samples=4)

    assert agreement.verdict is Equivalence.DIFFERS
    assert agreement.sentence == "differs: close.py:same refuses it at batch=4: it returns False"


def test_one_usable_form_is_enough_where_the_first_was_asked_for() -> None:
    """Otherwise all must be."""
    y = values(SAMPLES, 10)
    crash = ConversionFailure(kind=ConversionFailureKind.CRASHED, message="it crashed")
    document = a_conversion(
        Converted(recipe="openvino", failure=crash), Converted(recipe="onnx", agreement=judged(y, y))
    )

    assert not document.usable
    assert replace(document, first=True).usable
