"""Models of TensorFlow Lite: their tensors and operators; outputs by LiteRT."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import MissingExtra, RequestError, SizesRefused
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.static_options import Mode
from modeldyno.engine.backends import tflite as backend
from modeldyno.engine.data.assumed_sizes import assume_sizes
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Form, Model, Tracing
from modeldyno.models.loaders import keras_model
from modeldyno.models.loaders import tflite as loader
from modeldyno.models.static.analysis import total_measurements
from modeldyno.models.static.totals import AnalysedGraph
from modeldyno.models.static.weights import weight_measurements
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.testing.backends import BackendSuite
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed
    from modeldyno.models.static.graph import Graph

pytest.importorskip("ai_edge_litert")
GOLDEN = Path(__file__).parents[2] / "golden" / "tflite"
"""Two networks, Dense(3, relu) and Dense(2) of four numbers, and Dense(64) with 8-bit weights, as
`golden/tflite/generate.py` converted them; the weights are 0.5."""


def ref_of(name: str) -> ModelRef:
    return ModelRef(scheme="tflite", locator=str(GOLDEN / name))


def load(ref: ModelRef) -> Model:
    return loader.load(ref, seed=0, trust=False)


class TestLoader(LoaderSuite):
    scheme = "tflite"
    forms = frozenset({Form.TFLITE})

    @pytest.fixture
    def ref(self) -> ModelRef:
        """Two layers."""
        return ref_of("dense.tflite")

    @pytest.fixture
    def other(self) -> ModelRef:
        """One layer with 8-bit weights."""
        return ref_of("dense_int8.tflite")

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that is cut off."""
        path = tmp_path / "damaged.tflite"
        path.write_bytes((GOLDEN / "dense.tflite").read_bytes()[:200])
        return ModelRef(scheme="tflite", locator=str(path))

    @pytest.fixture
    def claimed(self) -> Path:
        """A path of this kind."""
        return GOLDEN / "dense.tflite"


class TestBackend(BackendSuite):
    name = "tflite"

    @pytest.fixture
    def model(self) -> Model:
        """Give two layers."""
        return load(ref_of("dense.tflite"))

    def feed(self, batch_size: int) -> Feed:
        """Give rows of four numbers."""
        return {"x": np.random.default_rng(0).random((batch_size, 4), np.float32)}


def test_tensors_are_read_from_the_file() -> None:
    """The batch is free, and weights and biases are parameters."""
    model = load(ref_of("dense.tflite"))
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.inputs] == [("x", ("batch", 4), "float32")]
    assert model.weights is not None
    parameters = [weight for weight in model.weights() if weight.parameter]
    assert sum(weight.size for weight in parameters) == 4 * 3 + 3 + 3 * 2 + 2
    assert sum(weight.bytes for weight in parameters) == 4 * 23


def analysed(model: Model, batch: int = 1) -> tuple[Graph, dict[str, float]]:
    """Return the graph at a batch, and the counts of the whole model."""
    assert model.graph is not None
    assert model.weights is not None
    inputs = tuple(
        replace(spec, shape=tuple(batch if size == "batch" else size for size in spec.shape or ()))
        for spec in model.inputs
    )
    graph = model.graph(Tracing(inputs=inputs, sizes={"batch": batch}))
    analysis = AnalysedGraph.of(graph, formulas())
    counts = [*total_measurements(analysis, analysis.totals()), *weight_measurements(model.weights())]
    return graph, {
        each.metric: each.value for each in counts if not each.scope and isinstance(each.value, int | float)
    }


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_counts_by_hand(batch: int) -> None:
    """MACs of both layers, their biases and the activation between; 5 numbers are held at the peak."""
    graph, counts = analysed(load(ref_of("dense.tflite")), batch)
    assert (counts["macs"], counts["elementwise"]) == (batch * (4 * 3 + 3 * 2), batch * (3 * 2 + 2))
    assert (counts["parameters"], counts["weight_bytes"]) == (23, 4 * 23)
    assert (counts["coverage"], counts["activation_peak"]) == (1, batch * 4 * 5)
    assert [op.kind for op in graph.ops] == ["tflite.FULLY_CONNECTED"] * 2
    assert all(graph.modules.keys() >= {op.scope} for op in graph.ops)


def test_weights_of_eight_bits_count_the_same() -> None:
    """The product of a layer is that of its floats."""
    assert analysed(load(ref_of("dense_int8.tflite")))[1]["macs"] == 64 * 64


def convert(network: Any, path: Path, **options: Any) -> Model:
    """Convert a model of Keras with weights that differ from each other, as equal ones are merged."""
    tf = pytest.importorskip("tensorflow")
    for index, variable in enumerate(network.weights):
        variable.assign(np.random.default_rng(index).random(variable.shape) + 0.1)
    network.export(path.parent / "saved", verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(path.parent / "saved"))
    for name, value in options.items():
        setattr(converter, name, value)
    path.write_bytes(converter.convert())
    return load(ModelRef(scheme="tflite", locator=str(path)))


def network_of(name: str) -> Any:
    """Make a model of Keras."""
    keras = pytest.importorskip("keras")
    layers = keras.layers
    x = keras.Input((6, 8), name="x")
    if name == "attention":
        return keras.Model(x, layers.MultiHeadAttention(2, 4)(x, x))
    shape, made = {
        "network": (
            (8, 8, 3),
            [
                layers.Conv2D(4, 3, padding="same", activation="relu", name="conv"),
                layers.BatchNormalization(),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dense(5, activation="relu", name="hidden"),
                layers.Dense(2, name="out"),
            ],
        ),
        "depthwise": ((5, 5, 4), [layers.DepthwiseConv2D(3, depth_multiplier=2)]),
        "separable": ((5, 5, 4), [layers.SeparableConv2D(6, 3)]),
        "transposed": ((4, 4, 3), [layers.Conv2DTranspose(5, 3, strides=2)]),
        "one dimension": ((10, 2), [layers.Conv1D(4, 3)]),
        "volumes": ((4, 4, 4, 3), [layers.Conv3D(2, 2), layers.Conv3DTranspose(2, 2, strides=2)]),
        "groups": ((9, 9, 3), [layers.Conv2D(6, 3, groups=3)]),
        "dilated": ((9, 9, 3), [layers.Conv2D(6, 3, dilation_rate=2)]),
        "sequences": ((4, 3), [layers.Dense(7), layers.EinsumDense("abc,cd->abd", (None, 6))]),
        "rows": ((7,), [layers.Embedding(10, 4), layers.LayerNormalization()]),
    }[name]
    return keras.Sequential([keras.Input(shape), *made])


# TensorFlow and Keras warn of each other's and of NumPy's old names.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "network", "attention", "depthwise", "separable", "transposed", "one dimension", "volumes", "groups",
        "dilated", "sequences", "rows",
    ],
)  # fmt: skip
def test_macs_are_those_of_the_keras_model(name: str, tmp_path: Path) -> None:
    """To the digit, at two sizes, whatever the converter fuses; every operator has a formula."""
    network = network_of(name)
    model = convert(network, tmp_path / "m.tflite")
    original = keras_model.describe_model(network, "model", "sha256:0")
    for batch in (1, 3):
        graph, counts = analysed(model, batch)
        assert counts["macs"] == analysed(original, batch)[1]["macs"]
        assert counts["coverage"] == 1
    assert not {op.kind for op in graph.ops} & {"tflite.SHAPE", "tflite.PACK"}  # arithmetic of sizes


# TensorFlow and Keras warn of each other's and of NumPy's old names.
@pytest.mark.filterwarnings("ignore")
def test_what_the_converter_changes() -> None:
    """A folded norm, no bias where it is 0: fewer element-wise operations and parameters, equal MACs."""
    network = network_of("network")
    original = analysed(keras_model.describe_model(network, "model", "sha256:0"))[1]
    with TemporaryDirectory() as folder:
        counts = analysed(convert(network, Path(folder) / "m.tflite"))[1]
    assert counts["macs"] == original["macs"]
    assert original["elementwise"] - counts["elementwise"] == 4 * 5  # of the norm's own statistics
    assert counts["parameters"] == original["parameters"]  # scale and shift of the norm stay two


# TensorFlow and Keras warn of each other's and of NumPy's old names.
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_integers_counts_the_same_products(tmp_path: Path) -> None:
    """With scales as element-wise operations; halves that become floats at the start are no operators."""
    tf = pytest.importorskip("tensorflow")
    network = network_of("network")
    macs = analysed(keras_model.describe_model(network, "model", "sha256:0"))[1]["macs"]
    images = np.random.default_rng(0).random((4, 1, 8, 8, 3), np.float32)
    (tmp_path / "integers").mkdir()
    converted = convert(
        network,
        tmp_path / "integers" / "m.tflite",
        optimizations=[tf.lite.Optimize.DEFAULT],
        representative_dataset=lambda: ([image] for image in images),
    )
    graph, counts = analysed(converted)
    assert counts["macs"] == macs
    assert {bool(op.arguments["quantized"]) for op in graph.ops if op.kind == "tflite.CONV_2D"} == {True}
    (tmp_path / "halves").mkdir()
    halves = convert(
        network,
        tmp_path / "halves" / "m.tflite",
        optimizations=[tf.lite.Optimize.DEFAULT],
        target_spec=tf.lite.TargetSpec(supported_types=[tf.float16]),
    )
    graph, counts = analysed(halves)
    assert counts["macs"] == macs
    assert "tflite.DEQUANTIZE" not in {op.kind for op in graph.ops}


# TensorFlow and Keras warn of each other's and of NumPy's old names.
@pytest.mark.filterwarnings("ignore")
def test_control_flow_is_counted_and_named(tmp_path: Path) -> None:
    """A loop counts once, and of a condition the branch with more MACs."""
    tf = pytest.importorskip("tensorflow")
    matrix = tf.constant(np.random.default_rng(0).random((4, 4)), tf.float32)

    class Flow(tf.Module):  # type: ignore[misc,name-defined]
        @tf.function(input_signature=[tf.TensorSpec((2, 4), tf.float32)])  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            y = tf.cond(tf.reduce_sum(x) > 0, lambda: x @ matrix, lambda: x + 1)
            return tf.while_loop(lambda z: tf.reduce_sum(z) < 100, lambda z: (z @ matrix,), [y])[0]

    module = Flow()
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [module.__call__.get_concrete_function()], module
    )
    path = tmp_path / "flow.tflite"
    path.write_bytes(converter.convert())
    graph, counts = analysed(load(ModelRef(scheme="tflite", locator=str(path))))
    assert counts["macs"] == 2 * (2 * 4 * 4)
    assert [text.partition(" is ")[0] for text in graph.assumptions] == [
        "of a condition (IF) the branch with more MACs",
        "a loop (WHILE)",
    ]


# TensorFlow and Keras warn of each other's and of NumPy's old names.
@pytest.mark.filterwarnings("ignore")
def test_what_is_fused_belongs_to_the_layer_of_its_product(tmp_path: Path) -> None:
    """MACs, weights and biases of a convolution with its activation stand in one row."""
    layers = pytest.importorskip("keras").layers
    network = pytest.importorskip("keras").Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(4, 3, name="conv"),
            layers.ReLU(name="bent"),
            layers.Flatten(),
            layers.Dense(2, name="out"),
        ],
        name="net",
    )
    model = convert(network, tmp_path / "m.tflite")
    graph, _ = analysed(model)
    assert model.weights is not None
    products = [op for op in graph.ops if op.kind in {"tflite.CONV_2D", "tflite.FULLY_CONNECTED"}]
    assert [re.sub(r"_\d+", "", op.scope) for op in products] == ["net.conv", "net.out"]
    weights: Counter[str | None] = Counter()
    for weight in model.weights():
        weights[weight.scope] += weight.size * weight.parameter
    assert [weights[op.scope] for op in products] == [27 * 4 + 4, 144 * 2 + 2]


def test_training_is_refused() -> None:
    """A file holds no backward pass."""
    model = load(ref_of("dense.tflite"))
    assert model.graph is not None
    with pytest.raises(RequestError, match="holds no backward pass"):
        model.graph(Tracing(inputs=model.inputs, mode=Mode.TRAIN))


def test_quantised_weights_take_a_byte_each() -> None:
    """Integers with a scale are parameters, at their stored size."""
    model = load(ref_of("dense_int8.tflite"))
    assert model.weights is not None
    sizes = {weight.dtype: (weight.size, weight.bytes) for weight in model.weights() if weight.size > 64}
    assert sizes == {"int8": (64 * 64, 64 * 64)}


def test_outputs_by_hand() -> None:
    """Ones through weights and biases of a half, twice."""
    model = load(ref_of("dense.tflite"))
    with backend.open(model, configure(backend.knobs, {"threads": 1})) as session:
        (output,) = session.arrays(session.prepare({"x": np.ones((2, 4), np.float32)})()).values()
    np.testing.assert_allclose(output, np.full((2, 2), (4 * 0.5 + 0.5) * 0.5 * 3 + 0.5))


def test_any_cut_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Wherever a file ends, it is refused or read, and nothing else is raised."""
    whole = (GOLDEN / "dense.tflite").read_bytes()
    for end in range(0, len(whole), 7):
        path = tmp_path / "cut.tflite"
        path.write_bytes(whole[:end])
        try:
            load(ModelRef(scheme="tflite", locator=str(path)))
        except RequestError as error:
            assert "is no model of TensorFlow Lite" in str(error)


def test_the_interpreters_refusal_is_told(tmp_path: Path) -> None:
    """What LiteRT cannot read is refused with its reason."""
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\0" * 4 + b"TFL3" + b"\0" * 50)
    model = load(ref_of("dense.tflite"))
    with pytest.raises(RequestError, match="LiteRT cannot run"), backend.open(replace(model, value=path), {}):
        pass


def test_a_path_needs_no_scheme(tmp_path: Path) -> None:
    """A file is recognised by its mark, whatever its name."""
    path = tmp_path / "model.bin"
    path.write_bytes((GOLDEN / "dense.tflite").read_bytes())
    assert resolve_reference(str(path)) == ModelRef(scheme="tflite", locator=str(path))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says what to install for each format."""
    monkeypatch.setattr(plugins, "find_spec", lambda _module: None)
    for kind, name, package in (
        ("loader", "keras", "pip install keras tensorflow"),
        ("loader", "savedmodel", "pip install tensorflow"),
        ("backend", "tflite", "pip install ai-edge-litert"),
    ):
        with pytest.raises(MissingExtra, match=package):
            plugins.require(plugins.resolve(kind, name).requires, f"model {name}:m")


@pytest.mark.filterwarnings("ignore")
def test_a_window_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    """LiteRT makes an empty tensor of 128 steps under a window of 400; 400 are assumed instead."""
    layers = pytest.importorskip("keras").layers
    network = pytest.importorskip("keras").Sequential(
        [
            layers.Input((None, 1), name="x"),
            layers.Conv1D(4, 400, strides=160),
            layers.GlobalAveragePooling1D(),
        ]
    )
    model = convert(network, tmp_path / "m.tflite")
    assert assume_sizes(model, (), batch_size=None, sizes={}).assumed == {"x_dim1": 400}
    assert model.graph is not None
    with pytest.raises(SizesRefused, match="CONV_2D cannot slide a window of 4x1x400x1 over 1x1x128x1"):
        model.graph(Tracing(inputs=(replace(model.inputs[0], shape=(1, 128, 1)),)))
