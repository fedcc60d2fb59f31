# ruff: noqa: E501 - signatures and a listing as users of deeplite-profiler write them
"""Metrics of Keras models and of files of TensorFlow Lite."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from modeldyno.base.errors import RequestError
from modeldyno.compat import deeplite as api
from modeldyno.compat.deeplite import (
    ComputeComplexity,
    ComputeEvalMetric,
    ComputeExecutionTime,
    ComputeFlops,
    ComputeLayerwiseSummary,
    ComputeParams,
    ComputeSize,
    Device,
    EvalLossFunction,
    TFLiteProfiler,
    TFProfiler,
    get_accuracy,
    get_missclass,
    get_topk,
)
from modeldyno.compat.deeplite.forward_pass import DataLoader
from modeldyno.compat.deeplite.profiler_functions import ProfilerFunction
from modeldyno.compat.deeplite.status_metrics import Metric

pytestmark = [
    pytest.mark.skipif(
        keras.config.backend() != "tensorflow", reason="Keras computes with another framework"
    ),
    # TensorFlow and Keras warn of each other's and of NumPy's old names.
    pytest.mark.filterwarnings("ignore"),
]
L = keras.layers
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "come-from-deeplite.md"
GOLDEN = Path(__file__).parents[2] / "golden" / "tflite"

LISTING = """
import numpy as np
import tensorflow as tf
tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
try:
    tf.compat.v1.enable_eager_execution()
except Exception:
    pass

from modeldyno.compat.deeplite import TFProfiler
from modeldyno.compat.deeplite import *
from modeldyno.compat.deeplite import Device, ComputeEvalMetric
from modeldyno.compat.deeplite import get_accuracy, get_missclass

# Step 1: Define TensorFlow dataloaders and model (tf.data.Dataset)
# 1a. data_splits = {"train": train_dataloder, "test": test_dataloader}
(x_train, y_train), (x_test, y_test) = tf.keras.datasets.cifar100.load_data()
x_train = x_train.astype('float32') / 255
x_test = x_test.astype('float32') / 255
y_train = np.eye(100)[y_train.reshape(-1)]
y_test = np.eye(100)[y_test.reshape(-1)]
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)) \\
        .shuffle(buffer_size=x_train.shape[0]) \\
        .batch(128)
test_dataset = tf.data.Dataset.from_tensor_slices((x_test, y_test)) \\
        .batch(128)
data_splits = {'train': train_dataset, 'test': test_dataset}

# 1b. Load the TensorFlow Keras model: Transfer learning from pretrained model
preprocess_input = tf.keras.applications.mobilenet_v2.preprocess_input#tf.keras.applications.vgg19.preprocess_input
base_model = tf.keras.applications.VGG19(input_shape=(32, 32, 3),
                                            include_top=False,
                                            weights='imagenet')
inputs = tf.keras.Input(shape=(32, 32, 3))
x = preprocess_input(inputs)
x = base_model(x, training=False)
x = tf.keras.layers.GlobalAveragePooling2D()(x)
x = tf.keras.layers.Dropout(0.2)(x)
outputs = tf.keras.layers.Dense(100)(x)
model = tf.keras.Model(inputs, outputs)
model.compile(loss=tf.keras.losses.CategoricalCrossentropy(), optimizer=tf.keras.optimizers.SGD(), metrics=['accuracy'])

# Step 2: Create Profiler class and register the profiling functions
data_loader = TFProfiler.enable_forward_pass_data_splits(data_splits)
profiler = TFProfiler(model, data_loader, name="Original Model")
profiler.register_profiler_function(ComputeFlops())
profiler.register_profiler_function(ComputeSize())
profiler.register_profiler_function(ComputeParams())
profiler.register_profiler_function(ComputeLayerwiseSummary())
profiler.register_profiler_function(ComputeExecutionTime())
profiler.register_profiler_function(ComputeEvalMetric(get_accuracy, 'accuracy', unit_name='%'))

# Step 3: Compute the registered profiler metrics for the TensorFlow Keras Model
profiler.compute_network_status(batch_size=1, device=Device.GPU, short_print=False,
                                                include_weights=True, print_mode='debug')
"""
"""deeplite-profiler's own example for TensorFlow, with other import lines."""


def net() -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            L.Conv2D(4, 3, activation="relu"),
            L.BatchNormalization(),
            L.Flatten(),
            L.Dense(5),
        ]
    )


MACS = 36 * 4 * 27 + 144 * 5
PARAMETERS = 4 * 27 + 4 + 2 * 4 + 144 * 5 + 5


def splits() -> dict[str, Any]:
    images = np.random.default_rng(0).random((20, 8, 8, 3), np.float32)
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(20) % 5)).batch(8)
    return {"train": data, "test": data}


def identity(columns: int = 3) -> Any:
    return keras.Sequential([keras.Input((columns,)), L.Identity()])


def test_the_example_of_deeplite_profiler_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only its imports changed; random images and weights stand for those that are downloaded."""
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (150, 32, 32, 3), np.uint8), random.integers(0, 100, (150, 1))
    data = ((images, labels), (images, labels))
    monkeypatch.setattr(tf.keras.datasets.cifar100, "load_data", lambda: data)
    made = tf.keras.applications.VGG19
    monkeypatch.setattr(
        tf.keras.applications, "VGG19", lambda **options: made(**{**options, "weights": None})
    )
    monkeypatch.setattr(Device, "GPU", Device.GPU if tf.config.list_physical_devices("GPU") else Device.CPU)
    names: dict[str, Any] = {}
    exec(compile(LISTING, "listing", "exec"), names)

    printed, profiler = capsys.readouterr().out, names["profiler"]
    assert "failed" not in printed
    for line in ("Backend: TFBackend", "Evaluation Metric (%)", "Model Size (MiB)", "vgg19.block5_conv4"):
        assert line in printed
    assert profiler.status_get("total_params") == names["model"].count_params()
    assert profiler.status_get("flops") == 398_131_200 + 512 * 100  # those of VGG19, and the head
    assert profiler.status_get("execution_time") > 0
    assert 0 <= profiler.status_get("eval_metric") < 50


def test_the_listing_of_the_usage_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Data sets as they are: what was asked for is computed and shown, then compared with a clone."""
    model, data_splits = net(), splits()
    profiler = TFProfiler(model, data_splits, name="Original Model")
    for function in (
        ComputeFlops(),
        ComputeSize(),
        ComputeParams(),
        ComputeLayerwiseSummary(),
        ComputeExecutionTime(max_time=0.5),
        ComputeEvalMetric(get_accuracy, "accuracy", unit_name="%"),
    ):
        profiler.register_profiler_function(function)
    status = profiler.compute_network_status(
        batch_size=1, device=Device.CPU, short_print=False, include_weights=True, print_mode="debug"
    )
    profiler2 = profiler.clone(model=model)
    profiler2.name = "Clone Model"
    profiler.compare(profiler2, short_print=False, batch_size=1, device=Device.CPU, print_mode="debug")

    printed = capsys.readouterr().out
    assert "failed" not in printed
    assert "Value (Clone Model)" in printed
    assert re.search(r"Computational Complexity \(KiloMACs\) \| +1\.00x", printed)
    assert (status["flops"], status["total_params"], status["model_size"]) == (
        MACS,
        PARAMETERS,
        4 * PARAMETERS,
    )


def test_the_script_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Its part on TensorFlow, with a metric of one's own."""
    section = PAGE.read_text(encoding="utf-8").partition("## A Keras model")[2].partition("\n## ")[0]
    (script,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {"model": net(), "data_splits": splits()}
    exec(compile(script, str(PAGE), "exec"), names)

    assert "failed" not in capsys.readouterr().out
    assert names["profiler"].status_get("flops") == MACS


def test_complexity_is_as_derived_by_hand() -> None:
    """At any batch size; moving averages are buffers, in the footprint and not in the size."""
    profiler = TFProfiler(net(), splits())
    profiler.register_profiler_function(ComputeComplexity())
    assert profiler.compute_status("flops", batch_size=3) == MACS
    table = profiler.status_get("layerwise_data")

    norm = (
        table["batch_normalization"]
        if "batch_normalization" in {r.path for r in table.rows}
        else table.rows[2]
    )
    assert (norm.kind, norm.parameters, norm.parameter_bytes, norm.buffer_bytes) == (
        "BatchNormalization",
        8,
        32,
        32,
    )
    assert profiler.status_get("model_size") == 4 * PARAMETERS
    held = profiler.status_get("memory_footprint")
    without = profiler.compute_status("memory_footprint", batch_size=3, include_weights=False)
    assert held - without == 4 * (PARAMETERS + 8)


def test_a_metric_of_ones_own_is_computed() -> None:
    """As for torch."""

    class Depth(Metric):
        NAME = "depth"

        def description(self) -> str:
            return "Number of layers"

        def friendly_name(self) -> str:
            return "Depth"

        def get_comparative(self) -> Any:
            return "reciprocal"

        def get_units(self) -> str:
            return "layers"

    class ComputeDepth(ProfilerFunction):
        def get_bounded_status_keys(self) -> Any:
            return Depth()

        def __call__(self, model: Any, data_splits: Any) -> int:
            return len(model.layers)

    profiler = TFProfiler(net(), splits())
    profiler.register_profiler_function(ComputeDepth())
    assert profiler.compute_status("depth") == 4


@pytest.mark.parametrize(
    "labels",
    [[0, 1, 0], [[0], [1], [0]], [[1, 0, 0], [0, 1, 0], [1.0, 0, 0]]],
    ids=["numbers", "column", "rows"],
)
def test_labels_may_be_numbers_a_column_or_one_hot(labels: Any) -> None:
    """Two of three are right, over samples, whatever the batches."""
    data = tf.data.Dataset.from_tensor_slices((np.eye(3, dtype=np.float32), np.array(labels))).batch(2)
    assert get_accuracy(identity(), data) == pytest.approx(200 / 3)
    assert get_missclass(identity(), data) == pytest.approx(100 / 3)
    assert get_topk(identity(), data, topk=(1, 3)) == pytest.approx({"top-1": 200 / 3, "top-3": 100})


def test_labels_that_are_neither_are_refused() -> None:
    """Rows with two ones, and another number of labels."""
    inputs = np.eye(3, dtype=np.float32)
    for labels, says in ((np.ones((3, 3)), "one-hot"), (np.zeros((3, 2)), "do not fit outputs")):
        with pytest.raises(RequestError, match=says):
            get_accuracy(identity(), [(inputs, labels)])


def test_a_loss_of_keras_gets_the_labels_first() -> None:
    """It equals what Keras evaluates; other functions get the outputs first."""
    model, images = net(), np.random.default_rng(0).random((20, 8, 8, 3), np.float32)
    labels = np.arange(20) % 5
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss)
    batches = [(images[:16], labels[:16]), (images[16:], labels[16:])]
    theirs = model.evaluate(images, labels, batch_size=20, verbose=0)
    assert EvalLossFunction(loss)(model, batches) == pytest.approx(theirs, rel=1e-4)
    own = EvalLossFunction(lambda outputs, labels: float(outputs.shape[1] * len(labels) / len(labels)))
    assert own(model, batches) == 5
    with pytest.raises(RequestError, match="do not fit outputs"):
        EvalLossFunction(keras.losses.mean_squared_error)(model, [(images, np.ones(20, np.float32))])


def test_inputs_by_name_and_in_order_reach_the_model() -> None:
    """A dict goes in by name, several parts by position, and a PyDataset is iterated by its length."""
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    listed = keras.Model([a, b], L.Subtract()([a, b]))
    named = keras.Model({"a": a, "b": b}, L.Subtract()([a, b]))
    three, two = np.full((1, 2), 3, np.float32), np.full((1, 2), 2, np.float32)
    in_order = DataLoader([(three, two, 0)], api.ForwardPass((0, 1, "_")))
    assert np.asarray(in_order.sample_forward(listed)).tolist() == [[1, 1]]
    assert np.asarray(DataLoader([({"a": three, "b": two}, 0)]).sample_forward(named)).tolist() == [[1, 1]]
    assert [leaf.shape for leaf in in_order.random_inputs(4)] == [(4, 2), (4, 2)]

    class Two(keras.utils.PyDataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return np.eye(3, dtype=np.float32)[index : index + 1], np.zeros(1, int)

    assert get_accuracy(identity(), Two()) == 50


def test_a_model_of_another_framework_is_refused() -> None:
    """In a sentence that says what is taken."""
    for profiler, says in (
        (TFProfiler, "takes a model of Keras 3, not int"),
        (TFLiteProfiler, "path of a .tflite"),
    ):
        with pytest.raises(RequestError, match=says):
            profiler(3, {})
    assert api.KerasProfiler is TFProfiler


def test_a_device_that_is_not_there_fails_the_times_alone() -> None:
    """What needs no device is computed, and the table says why there is no time."""
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    profiler = TFProfiler(net(), splits())
    profiler.register_profiler_function(ComputeParams())
    profiler.register_profiler_function(ComputeExecutionTime(max_time=0.2))
    status = profiler.compute_network_status(device=Device.GPU)
    assert status == {"total_params": PARAMETERS, "execution_time": None}


def test_a_file_of_tensorflow_lite_has_the_same_metrics() -> None:
    """Dense(3, relu) and Dense(2) with weights and biases of a half: MACs of a sample, size, time and accuracy."""
    pytest.importorskip("ai_edge_litert")
    rows = np.eye(4, dtype=np.float32)
    data = [(rows[:3], np.zeros(3, int)), (rows[3:], np.ones(1, int))]  # both outputs are equal, so 0 wins
    profiler = TFLiteProfiler(GOLDEN / "dense.tflite", {"train": data, "test": data})
    profiler.register_profiler_function(ComputeComplexity())
    profiler.register_profiler_function(ComputeExecutionTime(max_time=0.3))
    profiler.register_profiler_function(ComputeEvalMetric(get_accuracy, unit_name="%"))
    status = profiler.compute_network_status(batch_size=2, device=Device.CPU)

    assert (status["flops"], status["total_params"], status["model_size"]) == (18, 23, 92)
    assert status["execution_time"] > 0
    assert status["eval_metric"] == 75
    with pytest.raises(RequestError, match="runs on the processor"), contextlib.ExitStack():
        profiler.compute_status("execution_time", device=Device.GPU)
