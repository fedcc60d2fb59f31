"""Models of Keras: files, factories and live ones; what is called and what is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends import tensorflow as backend
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Form, Tracing
from modeldyno.models.loaders import keras as loader
from modeldyno.models.loaders import keras_model, live_object
from modeldyno.models.static.analysis import total_measurements
from modeldyno.models.static.totals import AnalysedGraph
from modeldyno.models.static.weights import weight_measurements
from modeldyno.testing.backends import BackendSuite
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed, Model
    from modeldyno.models.static.graph import Graph

pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.skipif(
        keras.config.backend() != "tensorflow", reason="Keras computes with another framework"
    ),
    # TensorFlow and Keras warn of each other's and of NumPy's old names.
    pytest.mark.filterwarnings("ignore"),
]
L = keras.layers


def small(seed: int = 0) -> Any:
    """A convolution, a norm, a pooling and two linear layers."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((8, 8, 3), name="image"),
            L.Conv2D(4, 3, padding="same", activation="relu", name="conv"),
            L.BatchNormalization(name="norm"),
            L.MaxPooling2D(2, name="pool"),
            L.Flatten(name="flat"),
            L.Dense(5, activation="relu", name="hidden"),
            L.Dense(2, name="out"),
        ],
        name="small",
    )


MACS = 8 * 8 * 4 * 27 + 64 * 5 + 5 * 2
PARAMETERS = (27 * 4 + 4) + 2 * 4 + (64 * 5 + 5) + (5 * 2 + 2)


def saved(path: Path, model: Any) -> ModelRef:
    model.save(path)
    return ModelRef(scheme="keras", locator=str(path))


def load(ref: ModelRef, *, trust: bool = False) -> Model:
    return loader.load(ref, seed=0, trust=trust)


def described(model: Any) -> Model:
    return keras_model.describe_model(model, "model", "sha256:0")


def graph_of(model: Model, batch: int = 1) -> Graph:
    assert model.graph is not None
    inputs = tuple(
        replace(spec, shape=tuple(batch if size == "batch" else size for size in spec.shape or ()))
        for spec in model.inputs
    )
    return model.graph(Tracing(inputs=inputs, sizes={"batch": batch}))


def numbers(model: Model, batch: int = 1) -> dict[str, float]:
    analysed = AnalysedGraph.of(graph_of(model, batch), formulas())
    assert model.weights is not None
    counts = [*total_measurements(analysed, analysed.totals()), *weight_measurements(model.weights())]
    return {
        each.metric: each.value for each in counts if not each.scope and isinstance(each.value, int | float)
    }


class TestLoader(LoaderSuite):
    scheme = "keras"
    forms = frozenset({Form.TENSORFLOW})

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A saved model."""
        return saved(tmp_path / "one.keras", small())

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One with other weights, in the older form."""
        return saved(tmp_path / "two.h5", small(1))

    @pytest.fixture
    def damaged(self, ref: ModelRef, tmp_path: Path) -> ModelRef:
        """One that is cut off."""
        path = tmp_path / "damaged.keras"
        path.write_bytes(Path(ref.locator).read_bytes()[:500])
        return ModelRef(scheme="keras", locator=str(path))

    @pytest.fixture
    def claimed(self, other: ModelRef) -> Path:
        """A path of this kind."""
        return Path(other.locator)


class TestBackend(BackendSuite):
    name = "tensorflow"

    @pytest.fixture
    def model(self) -> Model:
        """Give a small network."""
        return described(small())

    def feed(self, batch_size: int) -> Feed:
        """Give images."""
        return {"image": np.random.default_rng(0).random((batch_size, 8, 8, 3), np.float32)}


class TestBackendCompiled(TestBackend):
    settings = {"jit_compile": True, "device": "cpu"}
    tolerance = 1e-5


def test_saving_again_changes_no_digest(tmp_path: Path) -> None:
    """The date in a file is no content."""
    model = small()
    first, second = (load(saved(tmp_path / name, model)).identity.digest for name in ("a.keras", "b.keras"))
    assert first == second


def test_outputs_are_those_of_the_model(tmp_path: Path) -> None:
    """A call gives what Keras' own gives, on the host."""
    model, rows = small(), np.ones((3, 8, 8, 3), np.float32)
    with backend.open(load(saved(tmp_path / "m.keras", model)), configure(backend.knobs, {})) as session:
        output = session.arrays(session.prepare({"image": rows})())["output"]
    np.testing.assert_allclose(output, model.predict(rows, verbose=0), rtol=1e-5)


def test_several_inputs_keep_their_structure() -> None:
    """A model of a dict of inputs gets it, and a dict of outputs is named by its keys."""
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    model = described(keras.Model({"b": b, "a": a}, {"sum": L.Concatenate()([a, b])}))
    feed = {"a": np.ones((1, 3), np.float32), "b": np.zeros((1, 2), np.float32)}
    with backend.open(model, configure(backend.knobs, {})) as session:
        assert session.arrays(session.prepare(feed)())["sum"].tolist() == [[1, 1, 1, 0, 0]]


def test_counts_are_those_of_the_torch_twin() -> None:
    """Parameters, MACs and element-wise operations by hand, and equal to those of the same torch module."""
    torch = pytest.importorskip("torch")
    from modeldyno.models.loaders import torch_module, torch_weights

    twin = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(64, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2),
    ).eval()  # fmt: skip
    layers = [layer for layer in small().layers if layer.name != "norm"]
    ours = numbers(described(keras.Sequential([keras.Input((8, 8, 3), name="image"), *layers])), batch=2)
    tracing = Tracing(inputs=(InputSpec(name="input", shape=(2, 3, 8, 8), dtype="float32"),))
    analysed = AnalysedGraph.of(torch_module.make_tracer(twin)(tracing), formulas())
    measured = [
        *total_measurements(analysed, analysed.totals()),
        *weight_measurements(torch_weights.list_weights(twin)),
    ]
    theirs = {each.metric: each.value for each in measured if not each.scope}
    assert ours["macs"] == 2 * MACS
    for metric in (
        "macs",
        "elementwise",
        "flops",
        "parameters",
        "weight_bytes",
        "input_bytes",
        "output_bytes",
    ):
        assert ours[metric] == theirs[metric], metric


def test_counts_are_those_of_the_onnx_twin(tmp_path: Path) -> None:
    """The same network as an ONNX file has the same parameters, MACs and element-wise operations."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    from modeldyno.models.loaders import onnx as onnx_loader

    shapes = {"w1": (4, 3, 3, 3), "b1": (4,), "w2": (64, 5), "b2": (5,), "w3": (5, 2), "b3": (2,)}
    tensors = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "w2", "b2"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", ["batch", 3, 8, 8]), ("y", ["batch", 2]))
    ]
    graph = helper.make_graph(nodes, "twin", ends[:1], ends[1:], tensors)
    path = tmp_path / "twin.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    layers = [layer for layer in small().layers if layer.name != "norm"]
    ours = numbers(described(keras.Sequential([keras.Input((8, 8, 3), name="image"), *layers])), batch=2)
    theirs = numbers(onnx_loader.load(ModelRef(scheme="onnx", locator=str(path)), seed=0, trust=False), 2)
    for metric in ("macs", "elementwise", "flops", "parameters", "weight_bytes"):
        assert ours[metric] == theirs[metric], metric


def test_moving_averages_are_buffers_and_frozen_layers_keep_parameters() -> None:
    """Parameters and buffers are together what Keras counts; a frozen layer is only not trainable."""
    network = small()
    network.get_layer("hidden").trainable = False
    counts = numbers(described(network))
    assert counts["parameters"] == PARAMETERS
    assert counts["buffers"] == 2 * 4
    assert counts["parameters"] + counts["buffers"] == network.count_params()
    assert counts["trainable_parameters"] == PARAMETERS - (64 * 5 + 5)
    assert counts["weight_bytes"] == 4 * network.count_params()


def test_every_operator_belongs_to_its_layer() -> None:
    """MACs and weights of nested models stand under the paths of their layers."""
    image = keras.Input((8, 8, 3), name="image")
    model = described(keras.Model(image, L.Dense(3, name="head")(small()(image)), name="whole"))
    graph = graph_of(model)
    assert graph.modules["small"] == "Sequential"
    assert graph.modules["small.conv"] == "Conv2D"
    assert {op.scope for op in graph.ops if op.kind == "tf.MatMul"} == {"small.hidden", "small.out", "head"}
    assert model.weights is not None
    assert {weight.scope for weight in model.weights()} == {
        "small.conv", "small.norm", "small.hidden", "small.out", "head",
    }  # fmt: skip


def test_a_layer_is_not_taken_for_one_that_is_named_like_its_numbered_scope() -> None:
    """TensorFlow may run the layer `dense` in a scope `dense_1`, which is the name of another layer."""
    network = keras.Sequential([keras.Input((8,)), L.Dense(6, name="dense"), L.Dense(2, name="dense_1")])
    for _ in range(2):
        graph = graph_of(described(network))
        assert [op.scope for op in graph.ops if op.kind == "tf.MatMul"] == ["dense", "dense_1"]
    assert "call" not in vars(network.layers[0])


def test_a_layer_that_is_called_twice_counts_both_calls() -> None:
    """Both scopes are the layer's."""
    tensor = keras.Input((8,))
    layer = L.Dense(8, name="twice")
    graph = graph_of(described(keras.Model(tensor, layer(layer(tensor)))))
    assert [op.scope for op in graph.ops if op.kind == "tf.MatMul"] == ["twice", "twice"]


@pytest.mark.parametrize("options", [{}, {"padding": "same", "strides": 2}, {"groups": 3}])
def test_convolutions_count_their_filters(options: dict[str, Any]) -> None:
    """Each output is a sum over the filter of its group."""
    layer = L.Conv2D(6, 3, **options)
    network = keras.Sequential([keras.Input((9, 9, 3)), layer])
    height, width, channels = network.output_shape[1:]
    assert numbers(described(network))["macs"] == height * width * channels * 9 * 3 // layer.groups


def test_a_dilated_convolution_counts_what_tensorflow_runs() -> None:
    """It splits the 9 x 9 image into four, padded to 5 x 5, with 4 x 3 x 3 outputs instead of 5 x 5."""
    network = keras.Sequential([keras.Input((9, 9, 3)), L.Conv2D(6, 3, dilation_rate=2)])
    counts = numbers(described(network))
    assert network.output_shape[1:3] == (5, 5)
    assert (counts["macs"], counts["coverage"]) == (4 * 9 * 6 * 27, 1)


@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        (lambda: L.Conv1D(4, 3), (10, 2), 8 * 4 * 6),
        (lambda: L.Conv3D(2, 2), (4, 4, 4, 3), 27 * 2 * 24),
        (lambda: L.DepthwiseConv2D(3, depth_multiplier=2), (5, 5, 4), 9 * 8 * 9),
        (lambda: L.SeparableConv2D(6, 3), (5, 5, 4), 9 * (4 * 9 + 4 * 6)),
        (lambda: L.Conv2DTranspose(5, 3, strides=2), (4, 4, 3), 16 * 3 * 9 * 5),
        (lambda: L.EinsumDense("abc,cd->abd", (None, 6)), (4, 3), 4 * 3 * 6),
        (lambda: L.Dense(7), (4, 3), 4 * 3 * 7),
    ],
)  # fmt: skip
def test_layers_by_hand(layer: Any, shape: tuple[int, ...], macs: int) -> None:
    """MACs as derived by hand; everything has a formula."""
    counts = numbers(described(keras.Sequential([keras.Input(shape), layer()])))
    assert (counts["macs"], counts["coverage"]) == (macs, 1)


def test_attention_counts_projections_and_products() -> None:
    """Four projections, and two products of queries with keys and values."""
    x = keras.Input((6, 8), name="x")
    network = keras.Model(x, L.MultiHeadAttention(2, 4)(x, x))
    assert numbers(described(network))["macs"] == 4 * 6 * 8 * 8 + 2 * 6 * 6 * 8


def test_a_recurrent_layer_counts_every_step() -> None:
    """The loop over the sequence counts as many times as it runs."""
    counts = numbers(described(keras.Sequential([keras.Input((7, 3)), L.LSTM(5)])))
    assert counts["macs"] == 7 * 4 * 5 * (3 + 5)
    assert counts["coverage"] == 1


def test_constants_of_a_layer_are_operands() -> None:
    """A normalisation reads its mean and variance, which are no variables of the graph."""
    network = keras.Sequential([keras.Input((4,)), L.Normalization(mean=[1.0] * 4, variance=[2.0] * 4)])
    assert numbers(described(network))["coverage"] == 1


def test_what_has_no_formula_is_named() -> None:
    """An operator without a formula lowers the coverage, and its name is in the graph."""
    model = described(keras.Sequential([keras.Input((4, 4)), L.Lambda(keras.ops.linalg.inv)]))
    assert numbers(model)["coverage"] < 1
    assert "tf.MatrixInverse" in {op.kind for op in graph_of(model).ops}


def test_a_factory_makes_a_model_with_its_inputs(tmp_path: Path) -> None:
    """A subclass without declared inputs is called with those that the factory returns."""
    code = tmp_path / "make.py"
    code.write_text(
        "import keras, numpy\n"
        "class Net(keras.Model):\n"
        "    def __init__(self):\n        super().__init__()\n        self.head = keras.layers.Dense(2)\n"
        "    def call(self, x, training=False):\n        return self.head(x)\n"
        "def make(): return Net(), numpy.ones((3, 4), 'float32')\n"
        "def bare(): return Net()\n"
        "def wrong(): return 3\n"
        "def needs(x): return Net()\n"
    )
    model = load(ModelRef(scheme="keras", locator=f"{code}:make"))
    assert [spec.shape for spec in model.inputs] == [("batch", 4)]
    assert numbers(model, batch=5)["macs"] == 5 * 4 * 2
    for name, says in (
        ("bare", "return it with an example from a factory"),
        ("wrong", "returns int, not a model of Keras"),
        ("needs", "a factory takes no arguments"),
    ):
        with pytest.raises(RequestError, match=says):
            load(ModelRef(scheme="keras", locator=f"{code}:{name}"))


def test_functions_in_a_file_need_trust(tmp_path: Path) -> None:
    """A Lambda layer is code, which runs only with trust."""
    ref = saved(tmp_path / "m.keras", keras.Sequential([keras.Input((4,)), L.Lambda(lambda x: x + 1)]))
    with pytest.raises(TrustRequired, match="`trust`"):
        load(ref)
    assert load(ref, trust=True).inputs[0].shape == ("batch", 4)


def test_integers_stay_within_the_embedding() -> None:
    """Random token ids are rows of the smallest table."""
    network = keras.Sequential([keras.Input((None,), dtype="int32", name="ids"), L.Embedding(50, 4)])
    (spec,) = described(network).inputs
    assert (spec.shape, spec.dtype, spec.low, spec.high) == (("batch", "ids_dim1"), "int32", 0, 49)


def test_a_live_model_runs_in_place() -> None:
    """Python profiles it as it is, on the backend that Keras computes with."""
    network = small()
    ref = live_object.offer(network)
    model = live_object.load(ref, seed=0, trust=False)
    live_object.withdraw(ref)
    assert live_object.backend_of(network) == "tensorflow"
    assert model.borrowed
    assert model.identity.framework == "keras"


def test_a_device_that_is_not_there_is_refused() -> None:
    """The sentence lists those that TensorFlow finds."""
    with (
        pytest.raises(RequestError, match=r"finds no device gpu:99 here; available: .*cpu:0"),
        backend.open(described(small()), {"device": "gpu:99"}),
    ):
        pass
    with pytest.raises(RequestError, match="cpu, gpu or gpu:1"):
        backend.check({"device": "tpu"})


def test_precision_makes_a_copy_of_the_model() -> None:
    """Every layer, of nested models too, computes in bf16; the model stays as it is."""
    inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu")])
    network = keras.Sequential(
        [keras.Input((6, 6, 3)), keras.layers.Conv2D(8, 3), keras.layers.BatchNormalization(),
         keras.layers.GlobalAveragePooling2D(), inner, keras.layers.Dense(4)]
    )  # fmt: skip
    model = described(network)
    feed = {model.inputs[0].name: np.random.default_rng(0).random((2, 6, 6, 3), np.float32)}
    with backend.open(model, {}) as session:
        expected = session.arrays(session.prepare(feed)())["output"]
        assert session.converted == ""
    with backend.open(model, {"precision": "bf16"}) as session:
        output = session.arrays(session.prepare(feed)())["output"]
        assert session.converted == "bf16"
        function: Any = session._function
        assert {str(w.dtype) for w in function.python_function.model.weights} == {"bfloat16"}
    assert str(output.dtype) == "bfloat16"
    assert 0 < np.abs(output.astype(np.float32) - expected).max() < 0.02
    assert {str(w.dtype) for w in network.weights} == {"float32"}


def test_a_precision_that_cannot_be_is_refused() -> None:
    """A model whose own code makes its layers cannot be made anew; a SavedModel has no layers."""

    class Own(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    model = keras_model.describe_model(Own(), "own", "digest", np.ones((1, 4), np.float32))
    with (
        pytest.raises(RequestError, match="Own cannot be made in float16"),
        backend.open(model, {"precision": "fp16"}),
    ):
        pass
    with (
        pytest.raises(RequestError, match="for models of Keras"),
        backend.open(replace(model, value=len), {"precision": "fp16"}),
    ):
        pass


def test_threads_that_cannot_change_are_refused() -> None:
    """TensorFlow fixes its threads at the first operator: other ones are refused, not ignored."""
    keras.ops.ones(1)
    with pytest.raises(RequestError, match="is running in this process with other threads"):
        backend.configure_process({"threads": 977})


PROGRAM = """
import keras, numpy, modeldyno
network = keras.Sequential([keras.Input((8,), name="x"), keras.layers.Dense(4)])
result = modeldyno.profile(network, max_time=0.5, min_time=0.0, precision=0.9)
print(result["parameters"], result["latency.mean"])
"""


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_keras_on_another_framework(name: str) -> None:
    """A live model that computes with torch or JAX is called there, and its parameters are counted."""
    pytest.importorskip(name)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "KERAS_BACKEND": name},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[0] == "36"


def test_the_backend_is_what_keras_computes_with() -> None:
    """Plugins of both kinds know each other's names."""
    assert set(keras_model.BACKENDS.values()) <= set(plugins.names("backend"))
