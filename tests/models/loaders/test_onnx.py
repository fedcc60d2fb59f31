from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support import tiny_onnx as models

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import parse_input
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.data.batches import build_payloads
from modeldyno.models.interface import Form, Model
from modeldyno.models.loaders import onnx as loader
from modeldyno.models.static.weights import module_weight_measurements, weight_measurements
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def load(path: Path) -> Model:
    return loader.load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False)


def shapes(model: Model) -> dict[str, tuple[int | str, ...] | None]:
    return {spec.name: spec.shape for spec in model.inputs}


class TestSuite(LoaderSuite):
    scheme = "onnx"
    forms = frozenset({Form.ONNX})

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """Build a model of two layers."""
        return ModelRef(scheme="onnx", locator=str(models.mlp(tmp_path)))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """Build one with other weights."""
        (tmp_path / "other").mkdir()
        return ModelRef(scheme="onnx", locator=str(models.mlp(tmp_path / "other", seed=1)))

    @pytest.fixture
    def claimed(self, tmp_path: Path) -> Path | None:
        """Return its file."""
        return models.mlp(tmp_path)

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef | None:
        """Return a truncated file."""
        path = models.mlp(tmp_path)
        path.write_bytes(path.read_bytes()[:-50])
        return ModelRef(scheme="onnx", locator=str(path))


def test_content_is_claimed_whatever_the_suffix(tmp_path: Path) -> None:
    """A file with the first bytes of an ONNX model is claimed under any name; nothing else is."""
    path = models.mlp(tmp_path).rename(tmp_path / "model.bin")
    (tmp_path / "text.txt").write_text("no model")
    assert loader.claims(path)
    assert loader.claims(DIGITS)
    assert not loader.claims(tmp_path / "text.txt")
    assert not loader.claims(tmp_path)
    assert not loader.claims(tmp_path / "absent.onnx")


@pytest.mark.parametrize("name", ["batch", "batch_size", "Batch", "N", "bs", "s77", "unk__6", None])
def test_free_first_dimension_is_the_batch(tmp_path: Path, name: str | None) -> None:
    """A first dimension without a name, or with an exporter's batch name, is called batch."""
    value = ("FLOAT", [name, "length", None, 3])
    path = models.save(tmp_path / "m.onnx", [("Relu", ["x"], ["y"])], {"x": value}, {"y": value}, {})
    assert shapes(load(path)) == {"x": ("batch", "length", "x_dim2", 3)}


def test_same_symbol_is_the_batch_everywhere(tmp_path: Path) -> None:
    """A symbol that is the batch of one input is the batch everywhere; other first names are kept."""
    values = {"x": ("FLOAT", ["s0", 3]), "h": ("FLOAT", [2, "s0", 3]), "t": ("FLOAT", ["time", "batch_size"])}
    path = models.save(tmp_path / "m.onnx", [("Relu", ["x"], ["y"])], values, {"y": ("FLOAT", None)}, {})
    assert shapes(load(path)) == {"x": ("batch", 3), "h": (2, "batch", 3), "t": ("time", "batch")}


@pytest.mark.parametrize("name", ["?", "None", "-1", "unk", ""])
def test_a_placeholder_is_a_size_of_its_own_wherever_it_stands(tmp_path: Path, name: str) -> None:
    """Exporters write one placeholder for every dynamic size, which does not make the sizes equal."""
    value = ("FLOAT", [name, 3, name, name])
    path = models.save(tmp_path / "m.onnx", [("Relu", ["x"], ["y"])], {"x": value}, {"y": value}, {})
    model = load(path)
    assert shapes(model) == {"x": ("batch", 3, "x_dim2", "x_dim3")}
    payload = build_payloads(model, (parse_input("x=1x3x48x192"),), batch_size=None, seed=0)
    assert payload.used[0].shape == (1, 3, 48, 192)


@pytest.mark.parametrize("name", ["DynamicDimension.0", "p2o.DynamicDimension.0"])
def test_the_first_dimension_of_paddle_is_the_batch(tmp_path: Path, name: str) -> None:
    """Paddle numbers its dynamic sizes; the first size of the first input counts samples."""
    value = ("FLOAT", [name, 3, "DynamicDimension.1", "DynamicDimension.2"])
    path = models.save(tmp_path / "m.onnx", [("Relu", ["x"], ["y"])], {"x": value}, {"y": value}, {})
    assert shapes(load(path)) == {"x": ("batch", 3, "DynamicDimension.1", "DynamicDimension.2")}


def test_unknown_shapes(tmp_path: Path) -> None:
    """An input without a shape has none, a scalar has an empty one, -1 is dynamic, and 0 is a size."""
    values = {"a": ("FLOAT", None), "b": ("FLOAT", []), "c": ("FLOAT", [-1, 0, 2])}
    path = models.save(tmp_path / "m.onnx", [("Relu", ["a"], ["y"])], values, {"y": ("FLOAT", None)}, {})
    assert shapes(load(path)) == {"a": None, "b": (), "c": ("batch", 0, 2)}


def test_vocabulary_comes_from_the_table(tmp_path: Path) -> None:
    """Token ids range over the rows of the table that they index, through casts; a mask is all ones."""
    ranges = {
        spec.name: (spec.dtype, spec.low, spec.high) for spec in load(models.embedding(tmp_path)).inputs
    }
    assert ranges == {
        "input_ids": ("int64", 0, models.VOCABULARY - 1),
        "token_type_ids": ("int64", 0, 1),
        "attention_mask": ("int64", 1, 1),
    }


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("x", "INT64", (0, 9)),
        ("pixels", "UINT8", (0, 255)),
        ("x", "INT8", (-128, 127)),
        ("token_type_ids", "INT32", (0, 1)),
        ("mask", "BOOL", (1, 1)),
        ("flag", "BOOL", (None, None)),
        ("x", "FLOAT16", (None, None)),
    ],
)
def test_ranges_by_name_and_dtype(
    tmp_path: Path, name: str, dtype: str, expected: tuple[float | None, float | None]
) -> None:
    """Without evidence in the graph, the range follows from the name and the dtype."""
    value = {name: (dtype, ["batch", 2])}
    path = models.save(tmp_path / "m.onnx", [("Identity", [name], ["y"])], value, {"y": (dtype, None)}, {})
    (spec,) = load(path).inputs
    assert (spec.low, spec.high) == expected


def test_initialisers_are_no_inputs(tmp_path: Path) -> None:
    """A graph input that has an initialiser is a weight, not an input."""
    values = {"x": ("FLOAT", ["batch", 2]), "w": ("FLOAT", [2, 2])}
    nodes = [("MatMul", ["x", "w"], ["y"])]
    weights = {"w": np.ones((2, 2), np.float32)}
    path = models.save(tmp_path / "m.onnx", nodes, values, {"y": ("FLOAT", None)}, weights)
    assert list(shapes(load(path))) == ["x"]


def test_parameters_and_buffers(tmp_path: Path) -> None:
    """Scale and bias are parameters; running statistics and whole-number constants are buffers."""
    model = load(models.normalised(tmp_path))
    assert model.weights is not None
    result = {m.metric: m.value for m in weight_measurements(model.weights()) if not m.scope}
    assert result == {"parameters": 6, "trainable_parameters": 0, "buffers": 6, "weight_bytes": 48}
    model = load(models.wrong_shape(tmp_path))
    assert model.weights is not None
    assert [weight.parameter for weight in model.weights()] == [False]


def test_small_elements_share_bytes(tmp_path: Path) -> None:
    """Five 4-bit elements take three bytes."""
    from onnx import TensorProto, helper, load_model

    path = models.mlp(tmp_path)
    proto = load_model(path)
    proto.graph.initializer.append(helper.make_tensor("q", TensorProto.INT4, [5], [1, 2, 3, 4, 5]))
    proto.graph.node.append(helper.make_node("Cast", ["q"], ["float_q"], to=TensorProto.FLOAT))
    path.write_bytes(proto.SerializeToString())
    model = load(path)
    assert model.weights is not None
    assert [(w.dtype, w.size, w.bytes) for w in model.weights() if w.name == "q"] == [("int4", 5, 3)]


def test_weights_in_the_branches_of_a_graph_count(tmp_path: Path) -> None:
    """Initialisers of a branch are weights too."""
    from onnx import TensorProto, helper, load_model, numpy_helper

    path = models.mlp(tmp_path)
    proto = load_model(path)
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.ones(7, np.float32), "inner")
    body = helper.make_graph([helper.make_node("Identity", ["inner"], ["z"])], "body", [], [out], [weight])
    proto.graph.node.append(helper.make_node("If", ["c"], ["r"], then_branch=body, else_branch=body))
    path.write_bytes(proto.SerializeToString())
    model = load(path)
    assert model.weights is not None
    assert sum(w.size for w in model.weights()) == 4 * 8 + 8 + 8 * 2 + 2 * 7


def test_a_weight_that_the_exporter_renamed_belongs_to_who_reads_it(tmp_path: Path) -> None:
    """A weight whose own name identifies no module gets the module of its first reader."""
    from onnx import TensorProto, helper, numpy_helper, save_model

    def node(kind: str, inputs: list[str], output: str, place: str = "", name: str = "") -> Any:
        made = helper.make_node(kind, inputs, [output], name=name)
        if place:
            scopes = ["", *place.split("/"), kind.lower()] if place.startswith("net") else place.split("/")
            made.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes))
        return made

    nodes = [
        node("MatMul", ["x", "val_71"], "a", "net/net.0"),
        node("Add", ["a", "net.0.bias"], "b", "net/net.0"),
        node("MatMul", ["b", "onnx::MatMul_9"], "c", name="/net/net.1/MatMul"),
        node("Add", ["c", "model.bias"], "d", "net/net.1"),
        node("Mul", ["d", "val_2"], "e", "_empty_nn_module_stack_from_metadata_hook/x"),
        node("Mul", ["e", "old.scale"], "y"),
    ]
    shapes = {"val_71": (4, 4), "net.0.bias": (4,), "onnx::MatMul_9": (4, 4), "model.bias": (4,)}
    shapes |= {"val_2": (4,), "old.scale": (4,)}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [2, 4])], [value("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()],
    )  # fmt: skip
    save_model(helper.make_model(graph), tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx")
    assert model.weights is not None

    assert {w.name: w.scope for w in model.weights()} == {
        "val_71": "net.0",
        "net.0.bias": "net.0",
        "onnx::MatMul_9": "net.net.1",
        "model.bias": "net.1",
        "val_2": "",
        "old.scale": "old",
    }
    counted = {
        m.scope: m.value for m in module_weight_measurements(model.weights()) if m.metric == "parameters"
    }
    assert counted["net.0"] == 20
    assert counted["net"] == 20 + 16 + 4


def test_digest_is_of_the_content(tmp_path: Path) -> None:
    """The digest does not depend on the file's name; one bit of external data changes it."""
    path = models.external(tmp_path)
    first = load(path).identity.digest
    assert load(path.rename(tmp_path / "renamed.onnx")).identity.digest == first
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[7] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)
    assert load(tmp_path / "renamed.onnx").identity.digest != first


def test_external_data_counts(tmp_path: Path) -> None:
    """External data counts in the file size, and its weights are listed without being read."""
    path = models.external(tmp_path)
    model = load(path)
    assert model.file_bytes == path.stat().st_size + (tmp_path / "weights.bin").stat().st_size
    assert model.weights is not None
    assert sum(w.bytes for w in model.weights()) == 4 * (4 * 8 + 8 + 8 * 2)
    assert len({w.storage for w in model.weights()}) == 3


def test_external_data_in_a_directory_below(tmp_path: Path) -> None:
    """External data may be in a subdirectory of the model's directory."""
    path = models.external(tmp_path, location="below/weights.bin")
    (tmp_path / "below").mkdir()
    (tmp_path / "weights.bin").rename(tmp_path / "below" / "weights.bin")
    assert load(path).file_bytes


def test_cache_of_links_is_followed(tmp_path: Path) -> None:
    """A model and its data that are both links into one directory of blobs load, as from a hub's cache."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "x"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    models.external(blobs)
    for name in ("mlp.onnx", "weights.bin"):
        (blobs / name).rename(blobs / name[0])
        (snapshot / name).symlink_to(f"../../blobs/{name[0]}")
    assert load(snapshot / "mlp.onnx").file_bytes


def _reading(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record what is opened from now on."""
    opened: list[Path] = []
    genuine = Path.open

    def spy(self: Path, *args: object, **named: object) -> object:
        opened.append(self)
        return genuine(self, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", spy)
    return opened


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "../../../../../../../../etc/passwd",
        "/etc/passwd",
        "below/../../secret.bin",
        "link.bin",
        "linked/secret.bin",
        "",
        ".",
        "weights.bin\0.txt",
        "*/_ORT_MEM_ADDR_/*",
    ],
)
def test_external_data_never_leads_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    """A location outside the model's directory is rejected, and nothing there is opened."""
    home = tmp_path / "home"
    (home / "below").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    (home / "link.bin").symlink_to(tmp_path / "secret.bin")
    (home / "linked").symlink_to(tmp_path)
    load(models.external(home))  # pytest reads by Path.open what is imported here
    path = models.external(home, location=location)
    opened = _reading(monkeypatch)
    with pytest.raises(RequestError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert {file.resolve() for file in opened} <= {path}


@pytest.mark.parametrize(
    ("key", "value"), [("offset", "-8"), ("length", "-1"), ("offset", "x"), ("length", str(2**62))]
)
def test_external_data_out_of_bounds(tmp_path: Path, key: str, value: str) -> None:
    """External data with an invalid range, or one beyond the end of its file, is rejected."""
    from onnx import load_model

    path = models.external(tmp_path)
    proto = load_model(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(RequestError, match=r"damaged|truncated"):
        load(path)


def test_missing_or_truncated_external_data(tmp_path: Path) -> None:
    """External data that is missing or too short is named in the error."""
    path = models.external(tmp_path)
    data = tmp_path / "weights.bin"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(RequestError, match=r"weights\.bin is truncated"):
        load(path)
    data.unlink()
    with pytest.raises(RequestError, match=r"'weights\.bin', which is missing"):
        load(path)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_text("<html>not found</html>")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**31)


def _huge_header(path: Path) -> None:
    path.write_bytes(b"\x08\x08\x3a\xff\xff\xff\xff\x7f" + bytes(100))


def _directory(path: Path) -> None:
    path.mkdir()


def _absent(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize("make", [_empty, _text, _sparse, _huge_header, _directory, _absent])
def test_what_is_no_model_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """An empty, foreign, too large, lying or missing file, or a directory, is rejected in one line."""
    path = tmp_path / "m.onnx"
    make(path)
    begin = time.thread_time()
    with pytest.raises(RequestError) as caught:
        load(path)
    assert time.thread_time() - begin < 1
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_directory_is_refused_with_the_file_in_it(tmp_path: Path) -> None:
    """A directory is rejected with the name of the model in it."""
    models.mlp(tmp_path)
    with pytest.raises(RequestError, match=r"name the file, such as .*mlp\.onnx"):
        load(tmp_path)


def test_negative_and_enormous_dimensions(tmp_path: Path) -> None:
    """A weight with a negative dimension, or with more elements than bytes, means damage."""
    from onnx import load_model

    for dims, raw in (([-1, 4], True), ([2**40, 2**40], True), ([2**40, 2**20], False)):
        path = models.mlp(tmp_path)
        proto = load_model(path)
        proto.graph.initializer[0].dims[:] = dims
        if not raw:
            proto.graph.initializer[0].ClearField("raw_data")
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(RequestError, match="damaged"):
            load(path)


@pytest.mark.parametrize("model", [models.mlp, models.embedding, models.external, models.normalised])
def test_mutated_files_never_do_worse_than_a_request_error(
    tmp_path: Path, model: Callable[[Path], Path]
) -> None:
    """Of 150 truncated and 150 corrupted files of each model, every one loads or is rejected, quickly."""
    path = model(tmp_path)
    intact = path.read_bytes()
    chance = random.Random(0)
    slowest = 0.0
    for number in range(300):
        data = bytearray(intact)
        if number % 2:
            del data[chance.randrange(len(data)) :]
        else:
            for _ in range(chance.choice((1, 1, 4, 32))):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        begin = time.thread_time()
        try:
            loaded = load(path)
            assert loaded.weights is not None
            assert all(math.prod(w.shape) == w.size for w in loaded.weights())
        except RequestError as error:
            assert "\n" not in str(error)
        slowest = max(slowest, time.thread_time() - begin)
    assert slowest < 1


def test_tokenizer_beside_the_model_encodes_text(tmp_path: Path) -> None:
    """A tokenizer.json next to a text model encodes text into exactly its inputs, of one length."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "hello": 2, "world": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    encode = load(models.embedding(tmp_path)).encode
    assert encode is not None
    feed = encode(["hello world", "hello"], None)
    assert {name: array.shape for name, array in feed.items()} == dict.fromkeys(
        ("input_ids", "attention_mask", "token_type_ids"), (2, 2)
    )
    assert feed["input_ids"].tolist() == [[2, 3], [2, 0]]
    assert feed["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert encode(["hello world"], 1)["input_ids"].tolist() == [[2]]
    assert encode(["hello"], 3)["input_ids"].tolist() == [[2, 0, 0]]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(RequestError, match=r"tokenizer\.json"):
        encode(["hello"], None)


def test_model_without_a_tokenizer_encodes_nothing(tmp_path: Path) -> None:
    """Without a tokenizer, or without token ids, a model takes no text."""
    assert load(models.embedding(tmp_path)).encode is None
    assert load(models.mlp(tmp_path)).encode is None


@pytest.mark.parametrize(
    ("folder", "file", "name"),
    [
        ("bert", "model.onnx", "bert"), ("bert", "decoder.onnx", "decoder"), ("text/1", "model.onnx", "text"),
        ("plain", "model.onnx", "model"),
    ],
)  # fmt: skip
def test_a_file_that_every_model_has_is_named_by_its_directory(
    tmp_path: Path, folder: str, file: str, name: str
) -> None:
    """Hugging Face and Triton call each file model.onnx; ten results named model could not be told apart."""
    place = tmp_path / folder
    place.mkdir(parents=True)
    if folder == "bert":
        (place / "config.json").write_text("{}")
    path = models.mlp(tmp_path).rename(place / file)

    assert load(path).identity.name == name
