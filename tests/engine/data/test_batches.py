from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import InputRefused, RequestError, UnknownName
from modeldyno.base.job.input_spec import DTYPES, InputSpec, parse_input
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.engine.data import batches as feeds
from modeldyno.models.interface import Feed, Form, Model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

IMAGE = InputSpec(name="image", shape=("batch", 1, 2, 2), dtype="float32")
IDS = InputSpec(name="input_ids", shape=("batch", "seq"), dtype="int64", low=0, high=99)
MASK = InputSpec(name="attention_mask", shape=("batch", "seq"), dtype="int64", low=1, high=1)


def model(*inputs: InputSpec, **more: Any) -> Model:
    identity = ModelIdentity(name="m", digest="sha256:" + "0" * 64, framework="python")
    return Model(identity=identity, form=Form.CALLABLE, value=print, inputs=inputs, **more)


def build(
    subject: Model,
    *requests: str,
    batch_size: int | None = None,
    seed: int = 0,
    base: Path | None = None,
    **sizes: int,
) -> feeds.Payload:
    requested = tuple(map(parse_input, requests))
    return feeds.build_payloads(subject, requested, batch_size=batch_size, seed=seed, sizes=sizes, base=base)


def encode(texts: Sequence[str], length: int | None) -> Feed:
    """Encode each word as its length, padded with 0; a limit of 6 words."""
    word_lengths = [[len(word) for word in text.split()][: length or 6] for text in texts]
    width = length or max(map(len, word_lengths))
    ids = np.array([row + [0] * (width - len(row)) for row in word_lengths], np.int64)
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64), "extra": ids}


TEXT = model(IDS, MASK, encode=encode)


# -- random data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_random_values_have_the_dtype(dtype: str) -> None:
    """Random payloads have the declared dtype and shape, and differ from each other."""
    payload = build(model(InputSpec(name="x", shape=("batch", 64), dtype=dtype)), batch_size=3)
    most = feeds.MOST_TEXTS if dtype == "string" else feeds.MOST
    assert len(payload.feeds) == most
    assert payload.samples == 3
    assert payload.doubts == ()
    for feed in payload.feeds:
        assert feed["x"].shape == (3, 64)
        assert feed["x"].dtype == np.dtype(object if dtype == "string" else dtype)
    (used,) = payload.used
    assert (used.shape, used.dtype, used.distinct, used.source) == ((3, 64), dtype, most, None)
    assert used.digest is not None
    assert used.digest.startswith("sha256:")


def test_bfloat16_is_made_where_numpy_has_it() -> None:
    """Inputs of bfloat16 are made by ml_dtypes."""
    pytest.importorskip("ml_dtypes")
    payload = build(model(InputSpec(name="x", shape=("batch", 4), dtype="bfloat16", low=0, high=1)))
    assert payload.used[0].dtype == "bfloat16"
    assert payload.feeds[0]["x"].astype("float32").max() <= 1


@pytest.mark.parametrize("seed", range(20))
def test_whole_numbers_are_never_all_zero(seed: int) -> None:
    """Integers stay in their range, reach its ends, and are not all zero, however few they are."""
    spec = InputSpec(name="x", shape=("batch",), dtype="int32", low=0, high=1)
    for feed in build(model(spec), seed=seed).feeds:
        assert feed["x"].any()
    values = np.concatenate([f["input_ids"] for f in build(model(IDS), batch_size=64, seed=seed).feeds])
    assert (values.min(), values.max()) == (0, 99)


def test_same_seed_gives_the_same_payloads() -> None:
    """The values follow from the seed alone."""
    digests = [build(model(IMAGE), seed=seed).used[0].digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_floats_are_standard_normal_unless_a_range_is_given() -> None:
    """Floats are standard normal, or uniform in the requested range."""
    spec = InputSpec(name="x", shape=("batch", 1000), dtype="float32")
    values = build(model(spec)).feeds[0]["x"]
    assert abs(values.mean()) < 0.2
    assert 0.8 < values.std() < 1.2
    payload = build(model(spec), "x=4x1000:float32:2..3")
    assert 2 <= payload.feeds[0]["x"].min() < payload.feeds[0]["x"].max() <= 3
    assert (payload.used[0].low, payload.used[0].high) == (2, 3)


def test_a_range_that_is_asked_for_wins() -> None:
    """A range in the request replaces the declared one."""
    payload = build(model(IDS), "input_ids=2x8:int64:5..6")
    assert set(np.unique([feed["input_ids"] for feed in payload.feeds])) == {5, 6}


@pytest.mark.parametrize(
    "text", ["x=3:uint8:0..256", "x=3:uint8:-1..5", "x=3:uint8:0.2..0.8", "x=3:uint8:0..1e999"]
)
def test_range_that_does_not_fit_is_refused(text: str) -> None:
    """A range that the dtype cannot hold, or that holds no integer, is rejected."""
    with pytest.raises(RequestError, match="input 'x'"):
        build(model(InputSpec(name="x", shape=("batch",), dtype="uint8")), text)


def test_large_payloads_are_few() -> None:
    """All payloads together stay within a bound, but there is at least one."""
    spec = InputSpec(name="x", shape=("batch", 1024, 1024), dtype="float32")
    assert len(build(model(spec), batch_size=8).feeds) == 2
    assert len(build(model(spec), batch_size=32).feeds) == 1


def test_payloads_that_would_be_the_same_are_one() -> None:
    """Where only one value is possible, one payload is made, and recorded as one."""
    payload = build(model(MASK), batch_size=2)
    assert len(payload.feeds) == payload.used[0].distinct == 1


def test_model_without_inputs() -> None:
    """A model without inputs gets nothing; a batch of more than one is rejected."""
    payload = build(model())
    assert (payload.feeds, payload.used, payload.samples) == (({},), (), 1)
    with pytest.raises(RequestError, match="no effect"):
        build(model(), batch_size=2)


# -- shapes --------------------------------------------------------------------------------------


def test_shapes_bind_batch_and_length() -> None:
    """A shape for one input binds the same dimensions of the others."""
    payload = build(model(IDS, MASK), "input_ids=4x16")
    assert payload.samples == 4
    assert {name: a.shape for name, a in payload.feeds[0].items()} == dict.fromkeys(
        ("input_ids", "attention_mask"), (4, 16)
    )


def test_sizes_bind_dimensions_by_name() -> None:
    """A size without a shape binds its dimension in every input, and leaves the batch to its own knob."""
    used = build(model(IDS, MASK), batch_size=2, seq=16).used
    assert [spec.shape for spec in used] == [(2, 16), (2, 16)]


def test_sizes_pad_text(tmp_path: Path) -> None:
    """Text is padded to the length that a size gives."""
    path = tmp_path / "texts.txt"
    path.write_text("one two three\nfour\n")
    payload = build(TEXT, str(path), batch_size=2, seq=5)
    assert payload.feeds[0]["input_ids"].shape == (2, 5)


def test_sizes_that_cannot_be_are_refused() -> None:
    """An unknown dimension gets a suggestion; a size that a shape contradicts is rejected."""
    with pytest.raises(UnknownName, match="no dimension 'sek'; did you mean 'seq'"):
        build(TEXT, sek=16)
    with pytest.raises(RequestError, match="8 in 1x8 contradicts seq=16"):
        build(TEXT, "input_ids=1x8", seq=16)


def test_shape_that_contradicts_is_refused() -> None:
    """A shape that contradicts the knob or the declaration, or has a zero, is rejected in one sentence."""
    for request, batch_size in (("input_ids=4x16", 8), ("input_ids=4x16x2", None), ("input_ids=0x4", None)):
        with pytest.raises(RequestError) as caught:
            build(model(IDS, MASK), request, batch_size=batch_size)
        assert "\n" not in str(caught.value)


def test_unknown_input_gets_a_suggestion() -> None:
    """A request for an input that does not exist is rejected with the closest name."""
    with pytest.raises(InputRefused, match="did you mean 'input_ids'"):
        build(TEXT, "inputs_ids=4x16")


def test_wrong_dtype_is_refused() -> None:
    """A dtype other than the declared one is rejected."""
    with pytest.raises(InputRefused, match="'input_ids' is int64, not float32"):
        build(TEXT, "input_ids=4x16:float32")


def test_fixed_batch_is_kept() -> None:
    """A model with a fixed batch runs at it; another batch size is rejected with what to do."""
    fixed = model(replace(IMAGE, shape=(4, 1, 2, 2)))
    assert build(fixed).samples == build(fixed, batch_size=4).samples == 4
    with pytest.raises(
        RequestError, match=r"batch_size=8 contradicts .* fixed: 4x1x2x2; leave out batch_size"
    ):
        build(fixed, batch_size=8)


def test_unknown_shape_must_be_given() -> None:
    """An input of unknown shape is rejected with the option to write, which then works."""
    unknown = model(InputSpec(name="x"), InputSpec(name="ids"))
    with pytest.raises(RequestError, match="`inputs=x=batchx3x224x224`"):
        build(unknown)
    with pytest.raises(RequestError, match=r"`inputs=ids=batchx128:int64:0\.\.999`"):
        build(unknown, "x=1x3x224x224")
    payload = build(unknown, "x=1x3x224x224", "ids=1x128:int64:0..999")
    assert [(u.name, u.shape, u.dtype) for u in payload.used] == [
        ("x", (1, 3, 224, 224), "float32"),
        ("ids", (1, 128), "int64"),
    ]


def test_unknown_shape_with_a_batch() -> None:
    """A shape that names the batch takes any batch size; one that fixes it says how to free it."""
    unknown = model(InputSpec(name="x"))
    assert build(unknown, "x=batchx3", batch_size=5).feeds[0]["x"].shape == (5, 3)
    assert build(unknown, "x=5x3").samples == 5
    with pytest.raises(RequestError, match=r"write only `inputs=x=6x3`, or `inputs=x=batchx3` for"):
        build(unknown, "x=5x3", batch_size=6)


def test_batch_need_not_come_first() -> None:
    """The batch may be another axis than the first, as in recurrent models."""
    spec = InputSpec(name="x", shape=("time", "batch", 3), dtype="float32")
    payload = build(model(spec), batch_size=5)
    assert (payload.samples, payload.used[0].shape) == (5, (128, 5, 3))


# -- examples ------------------------------------------------------------------------------------


def example(rows: int) -> Feed:
    return {"x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2), "scale": np.float32(2) * np.ones(())}


DECLARED = (
    InputSpec(name="x", shape=("batch", 2), dtype="float32"),
    InputSpec(name="scale", shape=(), dtype="float32"),
)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_example_is_used_as_it_is(batch_size: int | None) -> None:
    """A model's own inputs are used unchanged when nothing else is requested."""
    feed = example(3)
    payload = build(model(*DECLARED, example=feed), batch_size=batch_size)
    assert len(payload.feeds) == 1
    assert all(payload.feeds[0][name] is feed[name] for name in feed)
    assert payload.samples == 3
    assert [d.code for d in payload.doubts] == ([] if batch_size else ["assumed-batch"])
    assert [u.distinct for u in payload.used] == [1, 1]


@pytest.mark.parametrize(
    ("shape", "form", "codes"),
    [
        ((4, 3, 8, 8), Form.TORCH, []),
        ((4, 16), Form.TORCH, []),
        ((4, 3, 16), Form.TORCH, ["assumed-batch"]),
        ((4,), Form.TORCH, ["assumed-batch"]),
        ((4, 16), Form.CALLABLE, ["assumed-batch"]),
    ],
)
def test_a_batch_is_doubted_only_where_the_first_axis_may_be_another(
    shape: tuple[int, ...], form: str, codes: list[str]
) -> None:
    """A torch module takes images and rows of features by the batch; a sequence may have time first."""
    spec = InputSpec(name="x", shape=("batch", *shape[1:]), dtype="float32")
    described = replace(model(spec, example={"x": np.zeros(shape, np.float32)}), form=form)

    assert [doubt.code for doubt in build(described).doubts] == codes


@pytest.mark.parametrize(
    ("nested", "seen"),
    [
        ({"x": np.zeros((5, 8)), "more": [np.zeros(5)]}, ["an axis of 5"]),
        ({"x": np.zeros((5, 8)), "weights": np.zeros((3, 8))}, []),
        ({"x": np.zeros((1, 8)), "words": "text"}, []),
    ],
)
def test_a_dict_of_arrays_counts_as_one_sample_and_that_is_doubted(nested: object, seen: list[str]) -> None:
    """Which axis is the batch nobody says; where all arrays have one first axis in common it may be that."""
    feed = np.empty((), dtype=object)
    feed[()] = nested
    payload = build(model(InputSpec(name="batch", shape=(), dtype="object"), example={"batch": feed}))

    assert payload.samples == 1
    assert [doubt.code for doubt in payload.doubts] == ["assumed-batch"] * len(seen)
    assert all(seen[0] in doubt.seen for doubt in payload.doubts)


def test_example_is_repeated_with_a_doubt() -> None:
    """For a larger batch the rows of an example are repeated, with a doubt; scalars are left alone."""
    payload = build(model(*DECLARED, example=example(2)), batch_size=5)
    assert payload.feeds[0]["x"][:, 0].tolist() == [0, 2, 0, 2, 0]
    assert payload.feeds[0]["scale"].shape == ()
    assert payload.samples == 5
    assert [doubt.code for doubt in payload.doubts] == ["repeated-data"]
    assert "2 samples of the model's example" in payload.doubts[0].seen


def test_example_is_cut_into_smaller_batches() -> None:
    """For a smaller batch its rows are cut into several payloads."""
    payload = build(model(*DECLARED, example=example(4)), batch_size=2)
    assert [feed["x"][:, 0].tolist() for feed in payload.feeds] == [[0, 2], [4, 6]]


def test_example_with_unlike_rows_has_no_batch_size() -> None:
    """Inputs whose first axes differ are used as they are, but cannot be given a batch size."""
    specs = InputSpec(name="a", shape=("batch", 1), dtype="int64"), InputSpec(name="b")
    feed = {"a": np.ones((2, 1), np.int64), "b": np.ones((3, 1), np.float32)}
    assert build(model(*specs, example=feed)).samples == 2
    with pytest.raises(RequestError, match="first axes of the inputs differ"):
        build(model(*specs, example=feed), batch_size=4)


def test_example_gives_the_vocabulary() -> None:
    """When a shape is requested instead, integers stay within the range of the example."""
    spec = InputSpec(name="x", shape=("batch", "seq"), dtype="int64")
    feed = {"x": np.array([[7, 9]])}
    values = build(model(spec, example=feed), "x=4x100").feeds[0]["x"]
    assert (values.min(), values.max()) == (7, 9)


# -- files of arrays -----------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Write ten images with their labels."""
    values = np.arange(40, dtype=np.float32).reshape(10, 1, 2, 2)
    np.savez(tmp_path / "data.npz", image=values, label=np.arange(10))
    return tmp_path / "data.npz"


def test_rows_are_cut_into_batches(images: Path) -> None:
    """Rows of an .npz go into distinct payloads in order, and wrap around; labels are not inputs."""
    payload = build(model(IMAGE), str(images), batch_size=4)
    firsts = [feed["image"][:, 0, 0, 0].tolist() for feed in payload.feeds]
    assert firsts == [[0, 4, 8, 12], [16, 20, 24, 28], [32, 36, 0, 4]]
    (used,) = payload.used
    assert (used.source, used.distinct, used.shape, used.low) == (str(images), 3, (4, 1, 2, 2), None)
    assert payload.doubts == ()


def test_real_data_alone_has_batch_one(images: Path) -> None:
    """Real data without a batch size is fed one sample at a time, unless a shape says otherwise."""
    assert build(model(IMAGE), str(images)).samples == 1
    assert build(model(IMAGE), f"image={images}", "image=5x1x2x2").samples == 5


def test_too_few_rows_are_repeated_with_a_doubt(images: Path) -> None:
    """A batch larger than the data repeats rows, and reports it with figures."""
    payload = build(model(IMAGE), str(images), batch_size=16)
    assert payload.feeds[0]["image"].shape == (16, 1, 2, 2)
    (doubt,) = payload.doubts
    assert doubt.code == "repeated-data"
    assert "the 10 samples" in doubt.seen
    assert "a batch of 16" in doubt.seen


def test_files_are_relative_to_the_base(images: Path) -> None:
    """A relative path is resolved in the base directory."""
    assert build(model(IMAGE), images.name, base=images.parent).used[0].source == images.name


def test_single_array_is_for_the_only_input(tmp_path: Path) -> None:
    """The only array of a file is for the only input, whatever its name; an .npy is, too."""
    values = np.ones((3, 1, 2, 2), np.float32)
    np.savez(tmp_path / "a.npz", values)
    np.save(tmp_path / "a.npy", values)
    for name in ("a.npz", "a.npy"):
        assert build(model(IMAGE), str(tmp_path / name), batch_size=3).feeds[0]["image"].shape == (3, 1, 2, 2)


def test_each_input_may_have_its_file(tmp_path: Path) -> None:
    """Inputs may come from several files, with equally many rows."""
    np.save(tmp_path / "ids.npy", np.arange(12).reshape(4, 3))
    np.save(tmp_path / "mask.npy", np.ones((4, 3), np.int8))
    requests = [f"input_ids={tmp_path / 'ids.npy'}", f"attention_mask={tmp_path / 'mask.npy'}"]
    payload = build(TEXT, *requests, batch_size=2)
    assert payload.feeds[1]["input_ids"].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert payload.feeds[1]["attention_mask"].dtype == np.int64
    np.save(tmp_path / "mask.npy", np.ones((5, 3), np.int8))
    with pytest.raises(RequestError, match="input_ids 4, attention_mask 5"):
        build(TEXT, *requests, batch_size=2)
    with pytest.raises(RequestError, match=r"save a \.npz"):
        build(TEXT, str(tmp_path / "ids.npy"))


def test_inputs_missing_in_a_file_can_be_random(tmp_path: Path) -> None:
    """An input that the file lacks is an error, unless a shape was given for it."""
    np.savez(tmp_path / "a.npz", input_ids=np.arange(12).reshape(4, 3), attention_maks=np.ones((4, 3)))
    with pytest.raises(
        RequestError, match="no array for the input 'attention_mask'; did you mean 'attention_maks'"
    ):
        build(TEXT, str(tmp_path / "a.npz"))
    payload = build(TEXT, str(tmp_path / "a.npz"), "attention_mask=2x3")
    assert payload.feeds[0]["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert [bool(u.source) for u in payload.used] == [True, False]


def test_scalars_of_a_file_are_no_rows(tmp_path: Path) -> None:
    """A scalar input is taken from a file unchanged, the same in every payload."""
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2), np.float32), scale=np.float64(3))
    payload = build(model(*DECLARED), str(tmp_path / "a.npz"), batch_size=2)
    assert payload.feeds[0]["scale"] == 3
    assert payload.feeds[0]["scale"].dtype == np.float32


def test_real_data_tells_an_unknown_shape(tmp_path: Path) -> None:
    """Data sets the shape and dtype of an input that declares nothing."""
    np.save(tmp_path / "a.npy", np.ones((6, 5), np.int16))
    payload = build(model(InputSpec(name="x")), str(tmp_path / "a.npy"), batch_size=2)
    assert (payload.used[0].shape, payload.used[0].dtype, payload.samples) == ((2, 5), "int16", 2)


@pytest.mark.parametrize(
    ("dtype", "values", "fits"),
    [
        ("float32", np.array([[1, 255]], np.uint8), True),
        ("float32", np.array([[0.1, np.nan]]), True),
        ("float32", np.array([[1e300, 0]]), False),
        ("float32", np.array([[2**24 + 1, 0]]), False),
        ("int64", np.array([[1.0, 2.0]]), True),
        ("int64", np.array([[1.5, 2.0]]), False),
        ("int64", np.array([[np.nan, 2.0]]), False),
        ("uint8", np.array([[0, 255]]), True),
        ("uint8", np.array([[0, 256]]), False),
        ("bool", np.array([[0, 1]]), True),
        ("bool", np.array([[0, 2]]), False),
        ("float32", np.array([["1", "2"]]), False),
        ("string", np.array([["1", "2"]]), True),
        ("string", np.array([[1, 2]]), False),
    ],
)
def test_values_are_converted_only_without_loss(
    tmp_path: Path, dtype: str, values: np.ndarray[Any, Any], fits: bool
) -> None:
    """Data of another dtype is converted where every value survives, and rejected elsewhere."""
    np.save(tmp_path / "a.npy", values)
    subject = model(InputSpec(name="x", shape=("batch", 2), dtype=dtype))
    if fits:
        assert build(subject, str(tmp_path / "a.npy")).used[0].dtype == dtype
    else:
        with pytest.raises(RequestError, match="'x' holds"):
            build(subject, str(tmp_path / "a.npy"))


def test_wrong_shape_of_data_is_refused(tmp_path: Path) -> None:
    """Data of another rank, with another fixed dimension, or without rows, is rejected with its file."""
    for shape in ((3, 4), (3, 1, 2, 3), (1, 2, 2), (), (0, 1, 2, 2)):
        np.save(tmp_path / "a.npy", np.ones(shape, np.float32))
        with pytest.raises(RequestError, match=r"a\.npy") as caught:
            build(model(IMAGE), str(tmp_path / "a.npy"))
        assert "\n" not in str(caught.value)


def test_inputs_must_agree_on_a_dimension(tmp_path: Path) -> None:
    """Two arrays that bind one symbolic dimension to different lengths are rejected."""
    np.savez(tmp_path / "a.npz", input_ids=np.ones((4, 3), int), attention_mask=np.ones((4, 5), int))
    with pytest.raises(RequestError, match="contradicts"):
        build(TEXT, str(tmp_path / "a.npz"))


def test_data_keeps_a_fixed_batch(images: Path) -> None:
    """Rows are cut to the batch that a model fixes."""
    assert build(model(replace(IMAGE, shape=(5, 1, 2, 2))), str(images)).samples == 5


def _bomb(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("image.npy", "w") as member,
    ):
        for _ in range(80):
            member.write(bytes(2**20))


def _burrows(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("image.npy", bytes(2**20))


def _lying(path: Path) -> None:
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1, 2, 2)}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image.npy", header + text.ljust(117).encode() + b"\n")


def _pickled(path: Path) -> None:
    np.savez(path, image=np.array([{}], dtype=object))


def _garbage(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + bytes(50))


def _truncated(path: Path) -> None:
    np.savez(path, image=np.ones((4, 1, 2, 2), np.float32))
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_bomb, "would unpack to"),
        (_burrows, "numpy does not use"),
        (_lying, "damaged"),
        (_pickled, "pickled"),
        (_garbage, "damaged"),
        (_truncated, "damaged"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    """An archive that is a bomb, misstates its size, holds pickles or is damaged is rejected."""
    damage(tmp_path / "a.npz")
    with pytest.raises(RequestError, match=message) as caught:
        build(model(IMAGE), str(tmp_path / "a.npz"))
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """A missing file is named."""
    with pytest.raises(RequestError, match=r"no data file .*absent\.npz"):
        build(model(IMAGE), str(tmp_path / "absent.npz"))


# -- lines ---------------------------------------------------------------------------------------


def write_lines(path: Path, *samples: Any) -> str:
    path.write_text("\n".join(json.dumps(sample) for sample in samples) + "\n\n")
    return str(path)


def test_jsonl_of_objects(tmp_path: Path) -> None:
    """Objects by input name are stacked into rows; other keys are ignored."""
    row = {"attention_mask": [1, 1], "label": "x"}
    path = write_lines(tmp_path / "a.jsonl", *({"input_ids": [i, i], **row} for i in range(5)))
    payload = build(TEXT, path, batch_size=2)
    assert payload.feeds[1]["input_ids"].tolist() == [[2, 2], [3, 3]]


def test_jsonl_of_values(tmp_path: Path) -> None:
    """Bare values are for the only input; decimal fractions become the declared dtype."""
    path = write_lines(tmp_path / "a.jsonl", [[[0.1, 0.2], [0.3, 0.4]]], [[[1, 2], [3, 4]]])
    payload = build(model(IMAGE), path, batch_size=2)
    assert payload.feeds[0]["image"].dtype == np.float32
    assert payload.feeds[0]["image"].shape == (2, 1, 2, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"image": [1}', "line 1, is not a JSON"),
        ('{"image": [[[1, 2], [3, 4]]]}\n{"image": [[1, 2]]}', "shape differs"),
        ('{"image": [[1, 2], [3]]}', "line 1: 'image' is not an array"),
        ('{"image": [[[1, 2], [3, 4]]]}\n{"label": 3}', "missing in some lines"),
        ('{"imgae": [[[1, 2], [3, 4]]]}', "did you mean 'imgae'"),
        ('{"image": {"a": 1}}', "not an array"),
        ("\n\n", "no samples"),
        ("[" * 100_000, "line 1"),
        ('{"image": [[[1, 2], [3, %s]]]}' % (10**400), "not an array|cannot hold|JSON"),
    ],
)
def test_damaged_jsonl_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """An invalid line is rejected with its number or name."""
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(RequestError, match=message) as caught:
        build(model(IMAGE), str(tmp_path / "a.jsonl"))
    assert "\n" not in str(caught.value)


def test_jsonl_of_texts(tmp_path: Path) -> None:
    """Plain strings, and objects with a text, go through the tokenizer."""
    for samples in (["a bb", "ccc"], [{"text": "a bb"}, {"text": "ccc", "label": 1}]):
        path = write_lines(tmp_path / "a.jsonl", *samples)
        assert build(TEXT, path, batch_size=2).feeds[0]["input_ids"].tolist() == [[1, 2], [3, 0]]


def test_lines_of_text(tmp_path: Path) -> None:
    """Lines that are not blank are samples, padded to the longest; extra tokenizer outputs are dropped."""
    (tmp_path / "a.txt").write_text("a bb\n\n   \nccc dddd eeeee\nf\n")
    payload = build(TEXT, str(tmp_path / "a.txt"))
    assert [feed["input_ids"].tolist() for feed in payload.feeds] == [[[1, 2, 0]], [[3, 4, 5]], [[1, 0, 0]]]
    assert set(payload.feeds[0]) == {"input_ids", "attention_mask"}
    assert (payload.samples, payload.used[0].source) == (1, str(tmp_path / "a.txt"))


def test_texts_that_are_padded_to_a_longer_one_are_doubted(tmp_path: Path) -> None:
    """The doubt states the lengths, and which length to give; calls of similar length need none."""
    (tmp_path / "a.txt").write_text("a\nbb c\na b c d e f\nc\n")
    (doubt,) = build(TEXT, str(tmp_path / "a.txt")).doubts
    assert doubt.code == "padded"
    assert "have 1 to 6 tokens, and every call is padded to 6;" in doubt.seen
    assert "a call would have 2 on average" in doubt.seen
    assert "`inputs=input_ids=1x2`," in doubt.advice

    assert build(TEXT, str(tmp_path / "a.txt"), "input_ids=1x2").doubts == ()
    assert build(TEXT, str(tmp_path / "a.txt"), batch_size=4).doubts == ()


def test_paragraphs_of_a_page(tmp_path: Path) -> None:
    """Paragraphs of a page are samples."""
    (tmp_path / "a.md").write_text("# a\n\nbb ccc\nd\n\n\n\neeeee\n")
    payload = build(TEXT, str(tmp_path / "a.md"), batch_size=3)
    assert payload.feeds[0]["input_ids"].tolist() == [[1, 1, 0], [2, 3, 1], [5, 0, 0]]


def test_shape_and_text_combine(tmp_path: Path) -> None:
    """With text, a shape gives the batch and the length."""
    (tmp_path / "a.txt").write_text("a bb ccc\n" * 4)
    payload = build(TEXT, str(tmp_path / "a.txt"), "input_ids=2x8")
    assert payload.feeds[0]["input_ids"].tolist() == [[1, 2, 3, 0, 0, 0, 0, 0]] * 2
    fixed = model(replace(IDS, shape=("batch", 2)), encode=encode)
    assert build(fixed, str(tmp_path / "a.txt")).used[0].shape == (1, 2)


def test_text_for_an_input_of_text(tmp_path: Path) -> None:
    """A model that takes strings gets the text itself."""
    (tmp_path / "a.txt").write_text("one\ntwo words\n")
    subject = model(InputSpec(name="words", shape=("batch", 1), dtype="string"))
    payload = build(subject, str(tmp_path / "a.txt"), batch_size=2)
    assert payload.feeds[0]["words"].tolist() == [["one"], ["two words"]]


PROMPT = InputSpec(name="prompt", shape=("batch",), dtype="string", low=128, high=128)


@pytest.mark.parametrize(
    ("text", "shape", "low", "high"),
    [
        (None, (1,), 128, 128),
        ("prompt=3:string:2..5", (3,), 2, 5),
        ("prompt=1:string:1.5..2.5", (1,), 2, 2),
    ],
)
def test_random_text_has_as_many_words_as_are_asked_for(
    text: str | None, shape: tuple[int, ...], low: int, high: int
) -> None:
    """Random prompts are so varied that a prefix cache of one does not help another."""
    payload = build(model(PROMPT), *([] if text is None else [text]))
    (used,) = payload.used
    assert (used.shape, used.low, used.high, used.distinct) == (shape, low, high, feeds.MOST_TEXTS)
    texts = [item for feed in payload.feeds for item in feed["prompt"]]
    lengths = {len(item.split()) for item in texts}
    assert lengths == set(range(low, high + 1))
    if low > 5:
        assert len({item[:40] for item in texts}) == len(texts) == 64
        assert len({word for item in texts for word in item.split()}) > 300
    assert texts == [
        item for feed in build(model(PROMPT), *filter(None, [text])).feeds for item in feed["prompt"]
    ]


@pytest.mark.parametrize("text", ["0..5", "5..1e9", "1.2..1.8"])
def test_a_number_of_words_that_cannot_be_is_refused(text: str) -> None:
    """The error says what the range of a text means."""
    with pytest.raises(RequestError, match=r"its range .* is that of the words in each"):
        build(model(PROMPT), f"prompt=1:string:{text}")


def test_one_end_of_a_range_of_words_is_both() -> None:
    """A declaration may give only one end of the range."""
    for ends in ({"low": 3}, {"high": 3}):
        payload = build(model(InputSpec(name="p", shape=("batch",), dtype="string", **ends)))  # type: ignore[arg-type]
        assert (payload.used[0].low, payload.used[0].high) == (3, 3)


def test_real_text_is_sent_as_it_is_and_all_of_it(tmp_path: Path) -> None:
    """Many more text payloads than numeric ones, up to a bound in number and in bytes."""
    lines = [f"tell me of {n}, please" for n in range(1500)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    payload = build(model(PROMPT), str(tmp_path / "a.txt"))
    assert [feed["prompt"].tolist() for feed in payload.feeds] == [[item] for item in lines[:1024]]
    assert (payload.used[0].low, payload.used[0].distinct) == (None, 1024)
    path = write_lines(tmp_path / "a.jsonl", *({"prompt": item} for item in lines[:100]))
    assert [feed["prompt"].tolist() for feed in build(model(PROMPT), path).feeds] == [
        [e] for e in lines[:100]
    ]
    (tmp_path / "long.txt").write_text("\n".join(str(n) * 2**20 for n in range(1, 9)) + "\n" + "9" * 2**26)
    assert len(build(model(PROMPT), str(tmp_path / "long.txt")).feeds) == 8


def test_text_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    """Text for a model without a tokenizer, and files that are not text, are rejected with what to give."""
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(RequestError, match=r"no tokenizer .*\.npz or \.jsonl"):
        build(model(IDS), str(tmp_path / "a.txt"))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(RequestError, match="not UTF-8 text"):
        build(TEXT, str(tmp_path / "a.png"))
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(RequestError, match=r"name the file \.jsonl"):
        build(TEXT, str(tmp_path / "a.json"))
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(RequestError, match="no text"):
        build(TEXT, str(tmp_path / "empty.txt"))


# -- inputs that nobody declares -----------------------------------------------------------------


def test_undeclared_inputs_are_those_that_the_user_names() -> None:
    """Where no inputs are declared, they are those that the user names, with their shapes."""
    payload = build(model(undeclared=True), "a=2x3:int64:1..5", "b=2x1")

    assert {name: (array.shape, array.dtype.name) for name, array in payload.feeds[0].items()} == {
        "a": ((2, 3), "int64"),
        "b": ((2, 1), "float32"),
    }
    assert payload.samples == 2
    assert list(build(model(undeclared=True), "4x2").feeds[0]) == ["input"]
    assert build(model(undeclared=True)).feeds == ({},)


def test_undeclared_inputs_may_be_named_by_a_file(tmp_path: Path) -> None:
    """The arrays of a .npz have names; one of them alone, too."""
    for arrays in ({"a": np.ones((4, 3))}, {"a": np.ones((4, 3)), "b": np.ones(4)}):
        np.savez(tmp_path / "x.npz", **arrays)
        assert [*build(model(undeclared=True), str(tmp_path / "x.npz")).feeds[0]] == [*arrays]
