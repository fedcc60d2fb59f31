"""Headers of safetensors: what they say, and what damaged ones may not do."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.loaders import safetensors as loader
from modeldyno.models.static.weights import weight_measurements
from modeldyno.testing.loaders import imported_frameworks, is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENTRY = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
SOUND: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a": ENTRY,
    "b.c": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    "scalar": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
    "none": {"dtype": "F16", "shape": [0, 5], "data_offsets": [40, 40]},
}


def write(path: Path, header: Any, data: int = 40) -> Path:
    """Write a file: a header (bytes, or anything that JSON has) and zeros."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * data)
    return path


def ref(path: Path) -> ModelRef:
    """Refer to a file."""
    return ModelRef(scheme="safetensors", locator=str(path))


# --- sound files ---------------------------------------------------------------------------------


def test_importing_it_imports_no_framework() -> None:
    """The header is read without torch and without the package safetensors."""
    assert imported_frameworks("loader", "safetensors") == []
    assert loader.requires == ()


def test_a_header_says_what_the_weights_weigh(tmp_path: Path) -> None:
    """Names, shapes, dtypes and bytes are those of the header."""
    model = loader.look(ref(write(tmp_path / "m.safetensors", SOUND)), seed=0, trust=False)
    assert model.weights is not None
    rows = [(w.name, w.shape, w.dtype, w.size, w.bytes) for w in model.weights()]

    assert rows == [
        ("a", (2, 3), "float32", 6, 24),
        ("b.c", (4,), "bfloat16", 4, 8),
        ("scalar", (), "int64", 1, 8),
        ("none", (0, 5), "float16", 0, 0),
    ]
    totals = {(m.metric, m.scope): m.value for m in weight_measurements(model.weights())}
    assert (totals["parameters", ""], totals["weight_bytes", ""]) == (11, 40)
    assert model.identity.digest.startswith("structure:")
    assert model.file_bytes == (tmp_path / "m.safetensors").stat().st_size
    assert model.graph is None
    assert model.value is None


def test_files_of_safetensors_itself_are_read(tmp_path: Path) -> None:
    """What the package safetensors writes is read as it was written, in every dtype that torch has."""
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    names = ["float64", "float32", "float16", "bfloat16", "int64", "int8", "uint8", "bool", "float8_e4m3fn"]
    tensors = {name: torch.zeros(3, 5).to(getattr(torch, name)) for name in names}
    save_file(tensors, tmp_path / "m.safetensors")
    result = {w.name: w for w in loader.read_header(tmp_path / "m.safetensors")}

    assert {name: w.dtype for name, w in result.items()} == dict(zip(names, names, strict=True))
    assert all(result[n].bytes == t.nbytes and result[n].shape == (3, 5) for n, t in tensors.items())


def test_only_the_header_is_read(tmp_path: Path) -> None:
    """A file of a terabyte, which is a hole on the disk, is looked at."""
    size = 10**12
    entry = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    path = write(tmp_path / "m.safetensors", {"a": entry}, data=0)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)

    (weight,) = loader.read_header(path)
    assert weight.bytes == size


def test_weights_alone_cannot_be_run(tmp_path: Path) -> None:
    """Loading refuses with what can be run instead."""
    path = write(tmp_path / "m.safetensors", SOUND)
    assert loader.claims(path)
    with pytest.raises(RequestError, match=r"without an architecture.*torch:file\.py:make"):
        loader.load(ref(path), seed=0, trust=True)


def test_other_paths_are_not_claimed(tmp_path: Path) -> None:
    """A directory, an absent file and one of another suffix are of no interest."""
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "m.bin").write_bytes(b"")
    assert not any(
        map(
            loader.claims,
            (tmp_path / "folder.safetensors", tmp_path / "absent.safetensors", tmp_path / "m.bin"),
        )
    )
    with pytest.raises(RequestError, match="There is no file"):
        loader.look(ref(tmp_path / "absent.safetensors"), seed=0, trust=False)


def test_the_commonest_dtype_is_that_of_most_elements(tmp_path: Path) -> None:
    """Of several files the fractions are counted by elements; whole numbers are no dtype of a model."""
    one = write(tmp_path / "1.safetensors", SOUND)
    header = {"n": {"dtype": "I64", "shape": [5], "data_offsets": [0, 40]}}
    other = write(tmp_path / "2.safetensors", header)
    halves = {"h": {"dtype": "BF16", "shape": [20], "data_offsets": [0, 40]}}
    third = write(tmp_path / "3.safetensors", halves)

    assert loader.most_common_dtype([one, other]) == "float32"
    assert loader.most_common_dtype([one, other, third]) == "bfloat16"
    assert loader.most_common_dtype([other]) is None


# --- damaged and malicious ones -------------------------------------------------------------------


def refused(path: Path) -> str:
    """Give the sentence with which a file is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as caught:
            loader.read_header(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64e6
    assert is_one_sentence(str(caught.value))
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def entry(**changes: Any) -> dict[str, Any]:
    """Give a header with one entry that differs from a sound one."""
    return {"a": {**ENTRY, **changes}}


BOMBS: dict[str, Callable[[], bytes | Any]] = {
    "nothing at all": lambda: b"",
    "no object": lambda: b"[1, 2]",
    "a number": lambda: b"7",
    "deep lists": lambda: b"[" * 10**6,
    "deep objects": lambda: b'{"a":' * 10**6,
    "a deep shape": lambda: b'{"a":{"dtype":"F32","shape":' + b"[" * 10**5 + b"]" * 10**5 + b"}}",
    "a huge number": lambda: b'{"a":{"dtype":"F32","shape":[' + b"9" * 10**6 + b'],"data_offsets":[0,24]}}',
    "a large number": lambda: b'{"a":{"dtype":"F32","shape":[' + b"9" * 4000 + b'],"data_offsets":[0,24]}}',
    "a product of large numbers": lambda: entry(shape=[10**4000] * 1000),
    "a product that is zero": lambda: entry(shape=[10**4000] * 1000 + [0]),
    "a huge exponent": lambda: b'{"a":{"dtype":"F32","shape":[1e999999],"data_offsets":[0,24]}}',
    "not a number": lambda: b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,24]}}',
    "many entries": lambda: b"{" + b",".join(b'"%d":0' % n for n in range(10**5)) + b"}",
    "a long name": lambda: {"n" * 10**6: {}},
    "a name with lines": lambda: {"first\nsecond\r\x1b[31m": {}},
    "a long dtype": lambda: entry(dtype="F" * 10**6),
    "a dtype with lines": lambda: entry(dtype="F32\nF64"),
    "no dtype": lambda: entry(dtype=None),
    "a dtype that is a list": lambda: entry(dtype=["F32"]),
    "a negative size": lambda: entry(shape=[-2, -3]),
    "a fraction": lambda: entry(shape=[2.0, 3]),
    "a truth": lambda: entry(shape=[True, 6]),
    "a shape of text": lambda: entry(shape="23"),
    "a shape that its data does not have": lambda: entry(shape=[2, 4]),
    "a shape beyond its data": lambda: entry(shape=[10**9, 10**9]),
    "offsets past the end": lambda: entry(data_offsets=[0, 10**15]),
    "offsets in reverse": lambda: entry(data_offsets=[24, 0]),
    "offsets below zero": lambda: entry(data_offsets=[-24, 0]),
    "one offset": lambda: entry(data_offsets=[0]),
    "three offsets": lambda: entry(data_offsets=[0, 24, 40]),
    "offsets of text": lambda: entry(data_offsets="04"),
    "one memory many times": lambda: {str(n): ENTRY for n in range(1000)},
    "no text": lambda: b"\xff\xfe\xfd" * 100,
    "half a pair": lambda: b'{"a": "\\ud800"}',
    "text after it": lambda: json.dumps(SOUND).encode() + b"}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(tmp_path: Path, name: str) -> None:
    """A header that lies, is of no sense or would grow is refused in a sentence, and takes little memory."""
    assert "damaged" in refused(write(tmp_path / "m.safetensors", BOMBS[name]()))


@pytest.mark.parametrize("length", [2**60, 2**64 - 1, 2**63, 10**8 + 1, 0, 41, 200])
def test_lengths_that_lie_are_refused(tmp_path: Path, length: int) -> None:
    """A header that claims to be longer than its file is not read, nor is one that is not there."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b" " * 40)
    assert "damaged" in refused(path)


def test_short_files_are_refused(tmp_path: Path) -> None:
    """Whatever is cut off, what is left is refused."""
    whole = write(tmp_path / "whole.safetensors", SOUND).read_bytes()
    path = tmp_path / "m.safetensors"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RequestError, match="damaged"):
            loader.read_header(path)


@pytest.mark.parametrize("seed", range(30))
def test_mutated_files_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    """Ten random mutations of a sound file are each read as sound weights, or refused in a sentence."""
    draw = random.Random(seed)
    whole = write(tmp_path / "whole.safetensors", SOUND).read_bytes()
    path = tmp_path / "m.safetensors"
    for _ in range(10):
        path.write_bytes(mutated(whole, draw))
        try:
            result = loader.read_header(path)
        except RequestError as error:
            assert is_one_sentence(str(error))
        else:
            assert sum(weight.bytes for weight in result) <= path.stat().st_size
            assert all(weight.size >= 0 and weight.dtype for weight in result)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Change a few bytes, most of them in the header, or cut, double or move a part."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(changed) or 1)
        end = min(len(changed), at + draw.randint(1, 30))
        match draw.randrange(6):
            case 0:
                changed[at:end] = b""
            case 1:
                changed[at:at] = changed[at:end]
            case 2:
                changed[at:end] = draw.randbytes(end - at)
            case 3:
                changed[at:at] = draw.choice(
                    [b"9", b"[", b"]", b"{", b'"', b",", b"-", b"1e9", b"null", b"\n"]
                )
            case _:
                changed[at : at + 1] = bytes([draw.randrange(256)])
    return bytes(changed)
