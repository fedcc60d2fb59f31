from __future__ import annotations

import pytest

from modeldyno.base.errors import InputRefused, RequestError
from modeldyno.base.job.input_spec import (
    DEFAULT_LENGTH,
    InputSpec,
    bind_dimensions,
    concrete_shape,
    explain_missing,
    free_dimensions,
    parse_input,
    write_option,
)

IDS = InputSpec(name="input_ids", shape=("batch", "seq"), dtype="int64")
IMAGE = InputSpec(name="image", shape=("batch", 3, "height", "width"), dtype="float32")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("8x128", InputSpec(shape=(8, 128))),
        ("ids=8x128", InputSpec(name="ids", shape=(8, 128))),
        ("ids=8x128:int64", InputSpec(name="ids", shape=(8, 128), dtype="int64")),
        ("ids=8x128:int64:0..30521", InputSpec(name="ids", shape=(8, 128), dtype="int64", low=0, high=30521)),
        ("x=batchx3x224x224", InputSpec(name="x", shape=("batch", 3, 224, 224))),
        ("x=max_len,2", InputSpec(name="x", shape=("max_len", 2))),
        ("x=scalar:float32:-1..1", InputSpec(name="x", shape=(), dtype="float32", low=-1, high=1)),
        ("sr=scalar:int64:16000", InputSpec(name="sr", shape=(), dtype="int64", low=16000, high=16000)),
        ("x=2:float32:1e-3..0.5", InputSpec(name="x", shape=(2,), dtype="float32", low=1e-3, high=0.5)),
        ("x=2x4:0..9", InputSpec(name="x", shape=(2, 4), low=0, high=9)),
        ("serving:0=1x2", InputSpec(name="serving:0", shape=(1, 2))),
        ("a.b/c-d=4", InputSpec(name="a.b/c-d", shape=(4,))),
        ("data.npz", InputSpec(source="data.npz")),
        ("x=data.npy", InputSpec(name="x", source="data.npy")),
        ("folder=1/x.npz", InputSpec(name="folder", source="1/x.npz")),
        ("some/where=x.txt", InputSpec(source="some/where=x.txt")),
        ("README", InputSpec(source="README")),
    ],
)
def test_an_input_is_a_shape_or_a_file(text: str, spec: InputSpec) -> None:
    """Every documented form is read as what it says."""
    assert parse_input(text) == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x=8:int63", "int63"),
        ("x=8:int64:5..1", "empty"),
        ("x=8:int64:1-2..3", "not a number"),
        ("x=", "is empty"),
    ],
)
def test_a_wrong_input_is_refused_with_what_is_wrong(text: str, says: str) -> None:
    """An input that cannot be meant is refused."""
    with pytest.raises(RequestError, match=says):
        parse_input(text)


def test_a_batch_is_one_and_a_sequence_has_the_default_length_when_nobody_says() -> None:
    """Free dimensions that mean something get a default."""
    assert bind_dimensions((IDS,), (), None) == {"batch": 1, "seq": DEFAULT_LENGTH}


@pytest.mark.parametrize(
    ("low", "says"), [(8.0, r"1x8 has .*; words .* prompt=1:string:128"), (None, r"1x8 has .* dimensions\.")]
)
def test_words_of_a_text_are_no_dimension(low: float | None, says: str) -> None:
    """Who writes them as one is told how to ask for them, where texts have several."""
    prompt = InputSpec(name="prompt", shape=("batch",), dtype="string", low=low, high=low)
    with pytest.raises(RequestError, match=says):
        bind_dimensions((prompt,), (parse_input("prompt=1x8"),), None)


def test_the_knob_binds_the_batch() -> None:
    """batch_size is the dimension batch."""
    assert bind_dimensions((IDS,), (), 8)["batch"] == 8


def test_a_shape_binds_what_stands_in_its_places() -> None:
    """An explicit shape gives the free dimensions their numbers, names stay free."""
    bound = bind_dimensions((IDS,), (parse_input("input_ids=batchx64"),), 4)

    assert concrete_shape(IDS, bound) == (4, 64)


def test_other_lengths_follow_the_sequence() -> None:
    """A second length that nobody gave equals the first."""
    other = InputSpec(name="mask", shape=("batch", "mask_len"))

    assert bind_dimensions((IDS, other), (parse_input("input_ids=2x16"),), None)["mask_len"] == 16


def test_a_request_without_a_name_speaks_of_every_input() -> None:
    """The only input need not be named."""
    assert bind_dimensions((IDS,), (parse_input("2x16"),), None) == {"batch": 2, "seq": 16}


def test_a_request_for_another_input_binds_nothing() -> None:
    """A shape belongs to the input that it names."""
    assert bind_dimensions((IDS,), (InputSpec(name="other", shape=(9, 9)),), None)["batch"] == 1


def test_the_knob_and_a_shape_must_agree() -> None:
    """A batch given twice with two numbers is refused."""
    with pytest.raises(RequestError, match="contradicts batch=8"):
        bind_dimensions((IDS,), (parse_input("4x128"),), 8)


def test_two_dimensions_of_one_name_are_one_size() -> None:
    """A shape that gives one name two sizes is refused, and says which; the last one does not win."""
    square = InputSpec(name="x", shape=("batch", 3, "d", "d"))

    assert concrete_shape(square, bind_dimensions((square,), (parse_input("1x3x48x48"),), None)) == (
        1,
        3,
        48,
        48,
    )
    with pytest.raises(RequestError, match=r"192 in 1x3x48x192 contradicts d=48: .* one size"):
        bind_dimensions((square,), (parse_input("1x3x48x192"),), None)


def test_a_shape_may_repeat_what_is_fixed() -> None:
    """Writing the whole shape of an image is no contradiction."""
    bound = bind_dimensions((IMAGE,), (parse_input("image=2x3x8x9"),), None)

    assert concrete_shape(IMAGE, bound) == (2, 3, 8, 9)


@pytest.mark.parametrize(
    ("specs", "bound"),
    [
        ((), {"batch": 1, "seq": 24, "decoder_seq": 12}),
        ((parse_input("input_ids=2x6"),), {"batch": 2, "seq": 6, "decoder_seq": 6}),
        ((parse_input("input_ids=2x99"),), {"batch": 2, "seq": 99, "decoder_seq": 12}),
    ],
)
def test_a_length_that_nobody_gave_keeps_to_its_limit(
    specs: tuple[InputSpec, ...], bound: dict[str, int]
) -> None:
    """What somebody asks for is not cut; what nobody asks for fits the model."""
    decoder = InputSpec(name="decoder_input_ids", shape=("batch", "decoder_seq"), dtype="int64")

    assert bind_dimensions((IDS, decoder), specs, None, limits={"seq": 24, "decoder_seq": 12}) == bound


def test_a_fixed_dimension_stays() -> None:
    """A shape cannot change what the model fixed."""
    with pytest.raises(RequestError, match=r"\[batch, 3, height, width\]: 4 in 1x4x8x8 contradicts 3,"):
        bind_dimensions((IMAGE,), (parse_input("image=1x4x8x8"),), None)


def test_a_name_that_is_no_dimension_is_refused() -> None:
    """A misspelt dimension does not vanish."""
    with pytest.raises(RequestError, match=r"has no dimension 'batcj'; it is \[batch, seq\]"):
        bind_dimensions((IDS,), (parse_input("input_ids=batcj,12"),), None)


def test_a_rank_that_differs_is_refused() -> None:
    """A shape has as many dimensions as the input."""
    with pytest.raises(RequestError, match=r"is \[batch, seq\], and 4 has another number of dimensions\."):
        bind_dimensions((IDS,), (parse_input("input_ids=4"),), None)


def test_a_number_for_a_scalar_is_told_how_a_value_is_written() -> None:
    """``sr=16000`` is a shape; the message says how to give the value, in a spelling that is accepted."""
    rate = InputSpec(name="sr", shape=(), dtype="int64")
    with pytest.raises(RequestError, match=r"; its value is written sr=scalar:16000\."):
        bind_dimensions((rate,), (parse_input("sr=16000"),), None)
    assert parse_input("sr=scalar:16000").low == 16000


def test_a_dimension_without_meaning_must_be_given() -> None:
    """A free height is asked for, with an example to type."""
    with pytest.raises(RequestError, match="`inputs=image=batchx3x1x1`"):
        bind_dimensions((IMAGE,), (), None)


def test_an_input_without_a_shape_is_a_scalar() -> None:
    """Nothing is bound for an input whose shape nobody knows."""
    assert concrete_shape(InputSpec(name="x"), {}) == ()


def test_all_that_is_missing_is_said_at_once() -> None:
    """One sentence names every free size of every input, and the field that gives them."""
    other = InputSpec(name="boxes", shape=("batch", "boxes", 4))

    with pytest.raises(RequestError) as error:
        bind_dimensions((IMAGE, other), (parse_input("image=2x3x32x32"),), None)
    assert str(error.value) == (
        "Sizes are missing: boxes of the input 'boxes' [batch, boxes, 4]; "
        "give it, such as `inputs=boxes=2x1x4`."
    )
    with pytest.raises(
        RequestError, match=r"height, width, boxes of the inputs 'image' .* and 'boxes' .* give them"
    ):
        bind_dimensions((IMAGE, other), (), None)


def test_what_was_assumed_binds_what_nobody_gave() -> None:
    """An assumed size stands for one that is missing or usual, never for one that was given."""
    assumed = {"height": 320, "width": 640, "seq": 64}

    assert bind_dimensions((IMAGE, IDS), (), None, {}, {}, assumed) == {"batch": 1, **assumed}
    bound = bind_dimensions((IMAGE,), (parse_input("1x3x8x8"),), None, {}, {}, assumed)
    assert concrete_shape(IMAGE, bound) == (1, 3, 8, 8)


def test_an_option_gives_an_input_its_sizes() -> None:
    """What is written can be read; a number without dimensions is a scalar."""
    spec = InputSpec(name="serving:0", shape=("batch", "n", 3))

    written = write_option(spec, {"n": 4}).strip("`").removeprefix("inputs=")
    assert parse_input(written).shape == ("batch", 4, 3)
    assert write_option(spec, {"n": 4, "batch": 2}) == "`inputs=serving:0=2x4x3`"
    assert write_option(InputSpec(name="rate", shape=()), {}) == "`inputs=rate=scalar`"


def test_a_dimension_that_follows_from_others_needs_no_size() -> None:
    """It is no free dimension; a size that is given for it decides the only unknown one."""
    mask = InputSpec(name="mask", shape=("batch", "past + seq"))
    ids = InputSpec(name="ids", shape=("batch", "seq"))
    assert free_dimensions((mask, ids), {}) == ("batch", "past", "seq")
    bound = bind_dimensions((mask, ids), (), None, {"past": 7})
    assert bound == {"batch": 1, "past": 7, "seq": 128}
    assert concrete_shape(mask, bound) == (1, 135)
    given = bind_dimensions((mask, ids), (parse_input("mask=1x20"), parse_input("ids=1x4")), None)
    assert given == {"batch": 1, "past": 16, "seq": 4}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({"past": 7, "seq": 4}, "with past=7, seq=4, past - seq is 3, not 2"), ({"past": 1}, "is no size")],
)
def test_sizes_that_do_not_fit_an_expression_are_refused(sizes: dict[str, int], message: str) -> None:
    """Two sizes whose difference is another one, or negative."""
    spec = InputSpec(name="x", shape=("past - seq",))
    with pytest.raises(InputRefused, match=message):
        bind_dimensions((spec,), (), None, {"seq": 5, "past - seq": 2} | sizes)


def test_where_no_guess_fits_none_is_proposed() -> None:
    """N stands for the sizes that only the user knows."""
    spec = InputSpec(name="x", shape=("batch", "2*height", "width"))
    text = explain_missing((spec,), {"batch": 1}, ("height", "width"), proposed=False)
    assert "`inputs=x=batchxNxN`" in text
