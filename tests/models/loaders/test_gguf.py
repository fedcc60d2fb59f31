"""Headers of GGUF: what they say, and what damaged ones may not do."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.support.gguf_file import write_gguf

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.models.interface import Form
from modeldyno.models.loaders import gguf as loader
from modeldyno.models.static.weights import weight_measurements
from modeldyno.testing.loaders import imported_frameworks, is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def ref(path: Path) -> ModelRef:
    """Refer to a file."""
    return ModelRef(scheme="gguf", locator=str(path))


def test_importing_it_imports_no_framework() -> None:
    """The header is read without a package."""
    assert imported_frameworks("loader", "gguf") == []
    assert loader.requires == ()


@pytest.mark.parametrize("version", [2, 3])
def test_a_header_says_what_the_weights_weigh(tmp_path: Path, version: int) -> None:
    """Names, shapes, types and bytes, those of blocks included; tables are no parameters."""
    path = write_gguf(tmp_path / "m.gguf", version=version)
    assert loader.claims(path)
    model = loader.look(ref(path), seed=0, trust=False)
    assert model.weights is not None
    assert [(w.name, w.shape, w.dtype, w.bytes) for w in model.weights()] == [
        ("token_embd.weight", (3, 64), "float16", 384),
        ("blk.0.attn_q.weight", (64, 64), "q8_0", 4352),
        ("blk.0.ffn_up.weight", (2, 256), "q4_k", 288),
        ("output_norm.weight", (64,), "float32", 256),
        ("rope_freqs.weight", (32,), "float32", 128),
    ]
    totals = {(m.metric, m.scope): m.value for m in weight_measurements(model.weights())}
    assert totals["parameters", ""] == 3 * 64 + 64 * 64 + 512 + 64
    assert totals["buffers", ""] == 32
    assert model.identity.digest.startswith("structure:")
    assert loader.read_header(path).fields["llama.context_length"] == 2048


def test_a_loaded_model_is_its_file(tmp_path: Path) -> None:
    """A server gets the path; a tokenizer beside the file counts the tokens of prompts."""
    path = write_gguf(tmp_path / "m.gguf")
    model = loader.load(ref(path), seed=0, trust=False)
    assert (model.form, model.value, model.identity.name) == (Form.GGUF, path, "m")
    assert model.identity.digest.startswith("sha256:")
    assert (model.tokenizer, model.file_bytes) == ("", path.stat().st_size)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert loader.load(ref(path), seed=0, trust=False).tokenizer == str(tmp_path / "tokenizer.json")


def test_a_model_in_several_files_is_all_of_them(tmp_path: Path) -> None:
    """The first is named, and the tensors of all are its own; one that is missing is named."""
    first = write_gguf(tmp_path / "m-00001-of-00002.gguf", {"a": (0, (8,), 32)})
    with pytest.raises(RequestError, match=r"no file '.*m-00002-of-00002\.gguf'"):
        loader.load(ref(first), seed=0, trust=False)
    second = write_gguf(tmp_path / "m-00002-of-00002.gguf", {"b": (0, (8,), 32)})
    model = loader.load(ref(first), seed=0, trust=False)
    assert model.weights is not None
    assert [weight.name for weight in model.weights()] == ["a", "b"]
    assert (model.value, list(loader.files(ref(first)))) == (first, [first, second])
    (tokenizer := first.with_name("tokenizer.json")).write_text("{}")
    assert list(loader.files(ref(first))) == [first, second, tokenizer]  # a registry keeps it with them
    assert loader.load(ref(first), seed=0, trust=False).identity.digest == model.identity.digest


def test_a_file_of_the_package_gguf_is_read(tmp_path: Path) -> None:
    """What the package writes is read as it was written, in each type that it can write."""
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b"])
    writer.add_array("llama.nested", [1, 2, 3])
    expected = {}
    for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1"):
        quantized = gguf.GGMLQuantizationType[kind]
        data = gguf.quants.quantize(np.ones((2, 64), dtype=np.float32), quantized)
        writer.add_tensor(kind, data, raw_dtype=quantized)
        expected[kind] = ((2, 64), data.nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert {w.name: (w.shape, w.bytes) for w in loader.read_header(path).weights} == expected
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        assert loader._TYPES.get(int(kind), ("", *sizes))[1:] == sizes


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[:40], "is no GGUF file, or is damaged .it ends within its header"),
        (lambda content: b"GGML" + content[4:], "is no GGUF file"),
        (lambda content: content[:4] + b"\x01" + content[5:], "its version is 1, and 2 and 3 are read"),
        (lambda content: content[:24] + b"\xff" * 8 + content[32:], "it ends within its header"),
        (lambda content: content.replace(b"architecture\x08", b"architecture\x63"), "unknown type 99"),
        (lambda content: content.replace(b"_freqs.weight\x01", b"_freqs.weight\xff"), "has 255 axes"),
        (lambda content: content.replace(b"\x02\0\0\0\x40", b"\x02\0\0\0\x40\xff\xff\xff"), "damaged"),
        (lambda _: b"", "is no GGUF file"),
    ],
)  # fmt: skip
def test_damaged_headers(tmp_path: Path, spoil: Callable[[bytes], bytes], message: str) -> None:
    """One sentence says what is wrong with the file."""
    path = write_gguf(tmp_path / "m.gguf")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(RequestError, match=message) as caught:
        loader.look(ref(path), seed=0, trust=False)
    assert is_one_sentence(str(caught.value))


def test_any_damage_is_refused_or_read(tmp_path: Path) -> None:
    """Whatever bytes of the header are changed, no other error is raised."""
    content = write_gguf(tmp_path / "m.gguf").read_bytes()
    draw = random.Random(0)
    refused = 0
    for _ in range(500):
        spoilt = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            spoilt[draw.randrange(600)] = draw.randrange(256)
        (tmp_path / "d.gguf").write_bytes(spoilt)
        try:
            loader.look(ref(tmp_path / "d.gguf"), seed=0, trust=False)
        except RequestError:
            refused += 1
    assert refused > 100


def test_a_type_that_is_not_known_has_no_bytes(tmp_path: Path) -> None:
    """A later version's type keeps its number, and its elements count."""
    path = write_gguf(tmp_path / "m.gguf", {"a": (77, (8,), 32)})
    (weight,) = loader.read_header(path).weights
    assert (weight.dtype, weight.size, weight.bytes) == ("type 77", 8, 0)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is named."""
    with pytest.raises(RequestError, match="There is no file"):
        loader.load(ref(tmp_path / "none.gguf"), seed=0, trust=False)
    assert not loader.claims(tmp_path / "none.gguf")
