"""SavedModels: signatures, inputs, weights, and operators at any batch size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.engine.backends import tensorflow as backend
from modeldyno.engine.data.assumed_sizes import assume_sizes
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Form, Model, Tracing
from modeldyno.models.loaders import savedmodel as loader
from modeldyno.models.static.analysis import total_measurements
from modeldyno.models.static.totals import AnalysedGraph
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.testing.backends import BackendSuite
from modeldyno.testing.loaders import LoaderSuite

if TYPE_CHECKING:
    from modeldyno.models.interface import Feed

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="Keras computes with another one"),
    # TensorFlow and Keras warn of each other's and of NumPy's old names.
    pytest.mark.filterwarnings("ignore"),
]
L = keras.layers


def exported(path: Path, *layers: Any, shape: tuple[int | None, ...] = (4,)) -> ModelRef:
    """Save layers as Keras exports them."""
    model = keras.Sequential([keras.Input(shape, name="x"), *layers])
    model.export(path, verbose=False)
    return ModelRef(scheme="savedmodel", locator=str(path))


def load(ref: ModelRef) -> Model:
    return loader.load(ref, seed=0, trust=False)


def numbers(model: Model, batch: int) -> dict[str, float]:
    assert model.graph is not None
    inputs = tuple(
        replace(spec, shape=tuple(batch if size == "batch" else size for size in spec.shape or ()))
        for spec in model.inputs
    )
    graph = model.graph(Tracing(inputs=inputs, sizes={"batch": batch}))
    analysed = AnalysedGraph.of(graph, formulas())
    totals = total_measurements(analysed, analysed.totals())
    return {each.metric: each.value for each in totals if isinstance(each.value, int | float)}


class TestLoader(LoaderSuite):
    scheme = "savedmodel"
    forms = frozenset({Form.TENSORFLOW})

    @pytest.fixture
    def ref(self, tmp_path: Path) -> ModelRef:
        """A saved layer."""
        return exported(tmp_path / "one", L.Dense(3))

    @pytest.fixture
    def other(self, tmp_path: Path) -> ModelRef:
        """One of another width."""
        return exported(tmp_path / "two", L.Dense(2))

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> ModelRef:
        """One that is cut off."""
        ref = exported(tmp_path / "whole", L.Dense(3))
        graph = Path(ref.locator) / "saved_model.pb"
        graph.write_bytes(graph.read_bytes()[:100])
        return ref

    @pytest.fixture
    def claimed(self, ref: ModelRef) -> Path:
        """A folder of this kind."""
        return Path(ref.locator)


class TestBackend(BackendSuite):
    name = "tensorflow"

    @pytest.fixture
    def model(self, tmp_path: Path) -> Model:
        """Give a layer."""
        return load(exported(tmp_path / "one", L.Dense(3)))

    def feed(self, batch_size: int) -> Feed:
        """Give rows of four numbers."""
        return {"x": np.random.default_rng(0).random((batch_size, 4), np.float32)}


def test_a_network_counts_as_its_layers_do(tmp_path: Path) -> None:
    """MACs at a batch that the file leaves open, and parameters apart from moving averages."""
    layers = L.Conv2D(4, 3), L.BatchNormalization(), L.DepthwiseConv2D(3), L.Flatten(), L.Dense(2)
    model = load(exported(tmp_path / "net", *layers, shape=(8, 8, 3)))
    counts = numbers(model, 5)
    assert model.weights is not None
    assert (counts["macs"], counts["coverage"]) == (5 * (36 * 4 * 27 + 16 * 4 * 9 + 64 * 2), 1)
    sizes = {kept: sum(w.size for w in model.weights() if w.parameter is kept) for kept in (True, False)}
    assert sizes == {True: 27 * 4 + 4 + 8 + 36 + 4 + 128 + 2, False: 8}


def test_a_recurrent_layer_counts_every_step(tmp_path: Path) -> None:
    """The loop of a layer counts as many times as it runs, whatever the batch."""
    counts = numbers(load(exported(tmp_path / "net", L.LSTM(5), shape=(7, 3))), 2)
    assert counts["macs"] == 2 * 7 * 4 * 5 * (3 + 5)


class TwoWays(tf.Module):  # type: ignore[misc,name-defined]
    """A module with two signatures, and a branch and a loop that depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.ones((4, 4)), name="weights")

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])  # type: ignore[untyped-decorator]
    def branch(self, x: Any) -> Any:
        """Multiply where the sum is positive."""
        return {"y": tf.cond(tf.reduce_sum(x) > 0, lambda: x @ self.weights, lambda: x + 1)}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])  # type: ignore[untyped-decorator]
    def loop(self, x: Any) -> Any:
        """Multiply until the sum is large."""
        return {
            "y": tf.while_loop(lambda y: tf.reduce_sum(y) < 9, lambda y: [tf.matmul(y, self.weights)], [x])[0]
        }


@pytest.fixture
def two_ways(tmp_path: Path) -> ModelRef:
    module = TwoWays()
    tf.saved_model.save(
        module, str(tmp_path / "two"), signatures={"branch": module.branch, "loop": module.loop}
    )
    return ModelRef(scheme="savedmodel", locator=str(tmp_path / "two"))


@pytest.mark.parametrize("name", ["branch", "loop"])
def test_a_signature_is_chosen_and_assumptions_are_told(two_ways: ModelRef, name: str) -> None:
    """The dearer branch and one round are counted, and said to be."""
    model = load(replace(two_ways, locator=f"{two_ways.locator}#{name}"))
    assert model.graph is not None
    graph = model.graph(Tracing(inputs=(replace(model.inputs[0], shape=(3, 4)),)))
    analysed = AnalysedGraph.of(graph, formulas())
    assert analysed.totals().macs == 3 * 4 * 4
    assert len(graph.assumptions) == 1
    with backend.open(model, configure(backend.knobs, {})) as session:
        output = session.arrays(session.prepare({"x": np.ones((3, 4), np.float32)})())
    np.testing.assert_array_equal(output["y"], np.full((3, 4), 4.0 if name == "branch" else 1.0))


def test_a_signature_that_is_not_there_is_refused(two_ways: ModelRef) -> None:
    """The nearest name is suggested."""
    with pytest.raises(UnknownName, match="did you mean 'branch'"):
        load(replace(two_ways, locator=f"{two_ways.locator}#brunch"))


def test_a_model_without_signatures_is_refused(tmp_path: Path) -> None:
    """Nothing in it can be called by name."""
    module = tf.Module()
    module.v = tf.Variable(1.0)
    tf.saved_model.save(module, str(tmp_path / "none"))
    with pytest.raises(RequestError, match="has no signature to call"):
        load(ModelRef(scheme="savedmodel", locator=str(tmp_path / "none")))
    with pytest.raises(RequestError, match="holds no saved_model"):
        load(ModelRef(scheme="savedmodel", locator=str(tmp_path / "absent")))


def test_a_folder_needs_no_scheme(two_ways: ModelRef) -> None:
    """A path of a SavedModel is recognised by what it holds."""
    assert resolve_reference(two_ways.locator) == two_ways


def saved_by_tensorflow_1(
    path: Path, build: Any, shape: tuple[int | None, ...], *, functions: bool = True
) -> Model:
    """Save a graph as TensorFlow 1 does, with loops and conditions that are `functions`, or in the graph."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        (v1.enable_control_flow_v2 if functions else v1.disable_control_flow_v2)()
        x = v1.placeholder(tf.float32, shape, name="x")
        y = build(
            x, lambda *sizes: v1.get_variable(f"w{len(v1.global_variables())}", sizes, use_resource=True)
        )
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y})
    return load(ModelRef(scheme="savedmodel", locator=str(path)))


def mapped(x: Any, variable: Any) -> Any:
    """Multiply row by row: as many rounds as rows."""
    weights = variable(8, 4)
    return tf.map_fn(lambda row: tf.linalg.matvec(weights, row, transpose_a=True), x)


def nested(x: Any, variable: Any) -> Any:
    """Multiply three times in each of two rounds."""
    weights = variable(8, 8)

    def outer(count: Any, y: Any) -> Any:
        inner = tf.while_loop(
            lambda number, _: number < 3, lambda number, z: (number + 1, tf.matmul(z, weights)), [0, y]
        )
        return count + 1, inner[1]

    return tf.while_loop(lambda count, _: count < 2, outer, [0, x])[1]


def backwards(x: Any, variable: Any) -> Any:
    """Multiply while a number that is divided stays large: nobody can tell how often."""
    weights = variable(8, 8)
    return tf.while_loop(
        lambda size, _: size > 1.0, lambda size, y: (size / 2.0, tf.matmul(y, weights)), [8.0, x]
    )[1]


def limited(x: Any, variable: Any) -> Any:
    """Multiply until the sum is large, seven times at most."""
    weights = variable(8, 8)
    return tf.compat.v1.while_loop(
        lambda y: tf.reduce_sum(y) < 9, lambda y: tf.matmul(y, weights), [x], maximum_iterations=7
    )


def stepwise(x: Any, variable: Any) -> Any:
    """Run a recurrent network over the seven steps of an array of tensors, and a layer on its last state."""
    of_input, of_state, last = variable(8, 6), variable(6, 6), variable(6, 3)
    steps = tf.TensorArray(tf.float32, 7).unstack(tf.transpose(tf.tile(x[:, None, :], [1, 7, 1]), [1, 0, 2]))

    def advance(step: Any, state: Any, states: Any) -> Any:
        state = tf.tanh(tf.matmul(steps.read(step), of_input) + tf.matmul(state, of_state))
        return step + 1, state, states.write(step, state)

    begin = [0, tf.zeros([tf.shape(x)[0], 6]), tf.TensorArray(tf.float32, 7)]
    states = tf.compat.v1.while_loop(lambda step, *_: step < 7, advance, begin)[2]
    return tf.linalg.matmul(states.stack()[-1], last)


@pytest.mark.parametrize("functions", [True, False], ids=["functions", "frames"])
@pytest.mark.parametrize(
    ("build", "macs", "noted"),
    [
        (mapped, 5 * 8 * 4, 0),
        (nested, 5 * 2 * 3 * 8 * 8, 0),
        (backwards, 5 * 8 * 8, 1),
        (limited, 5 * 7 * 8 * 8, 1),
        (stepwise, 5 * 7 * (8 * 6 + 6 * 6) + 5 * 6 * 3, 0),
    ],
)
def test_loops_of_tensorflow_1_count_their_rounds(
    tmp_path: Path, build: Any, macs: int, noted: int, *, functions: bool
) -> None:
    """Whether a file has definitions of functions or frames; a limit follows from constants and shapes."""
    model = saved_by_tensorflow_1(tmp_path / "old", build, (None, 8), functions=functions)
    assert numbers(model, 5) == pytest.approx({**numbers(model, 5), "macs": macs, "coverage": 1})
    assert model.graph is not None
    graph = model.graph(Tracing(inputs=(replace(model.inputs[0], shape=(5, 8)),)))
    assert len(graph.assumptions) == noted


def test_what_grows_in_a_loop_of_tensorflow_1_is_not_counted(tmp_path: Path) -> None:
    """No size is known within it, and the coverage says that; of a condition both branches are counted."""

    def grow(x: Any, variable: Any) -> Any:
        weights, free = variable(8, 8), [tf.TensorShape([]), tf.TensorShape([None, 8])]
        body = lambda count, y: (count + 1, tf.concat([y, tf.matmul(y, weights)], 0))
        return tf.compat.v1.while_loop(lambda count, _: count < 3, body, [0, x], shape_invariants=free)[1]

    def choose(x: Any, variable: Any) -> Any:
        weights = variable(8, 8)
        return tf.compat.v1.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(x, weights), lambda: x + 1)

    growing = numbers(saved_by_tensorflow_1(tmp_path / "grow", grow, (None, 8), functions=False), 5)
    assert growing["macs"] == 0
    assert growing["coverage"] < 1
    model = saved_by_tensorflow_1(tmp_path / "choose", choose, (None, 8), functions=False)
    assert model.graph is not None
    graph = model.graph(Tracing(inputs=(replace(model.inputs[0], shape=(5, 8)),)))
    assert graph.assumptions == ("both branches of a condition of TensorFlow 1 are counted",)
    assert AnalysedGraph.of(graph, formulas()).totals().macs == 5 * 8 * 8


def test_a_layer_after_a_recurrent_one_is_counted(tmp_path: Path) -> None:
    """What comes out of a loop has the sizes that it has within."""
    counts = numbers(load(exported(tmp_path / "net", L.LSTM(16), L.Dense(10), shape=(8, 8))), 3)
    assert counts["macs"] == 3 * (8 * 4 * 16 * (8 + 16) + 16 * 10)
    assert counts["coverage"] == 1


def test_free_sizes_are_assumed_that_the_model_accepts(tmp_path: Path) -> None:
    """A window of 400 over free steps takes what its refusal says; images are squares, with channels last."""
    layers = L.Conv1D(4, 400, strides=160), L.GlobalAveragePooling1D()
    sound = load(exported(tmp_path / "sound", *layers, shape=(None, 1)))
    assert assume_sizes(sound, (), batch_size=None, sizes={}).assumed == {"x_dim1": 400}
    image = load(exported(tmp_path / "image", L.Conv2D(4, 3), shape=(None, None, 8)))
    assert assume_sizes(image, (), batch_size=None, sizes={}).assumed == {"x_dim1": 224, "x_dim2": 224}
