"""Every converter writes files that are still the model."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.support.openvino_module import import_openvino

import modeldyno
from modeldyno.base import plugins
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.conversion.interface import ConversionSource
from modeldyno.conversion.recipe import ConversionOrder, run_order
from modeldyno.testing.converters import ConverterSuite

if TYPE_CHECKING:
    from modeldyno.conversion.agreement.conversion import Converted

pytestmark = pytest.mark.filterwarnings("ignore")  # exporters warn of each other's old names


class TestTorchscript(ConverterSuite):
    recipe = "torchscript"

    @pytest.fixture
    def source(self, network: ModelRef) -> ModelRef:
        """A torch module."""
        return network


class TestExported(ConverterSuite):
    recipe = "exported"

    @pytest.fixture
    def source(self, network: ModelRef) -> ModelRef:
        """A torch module."""
        return network


class TestOnnx(ConverterSuite):
    recipe = "onnx"

    @pytest.fixture
    def source(self, network: ModelRef) -> ModelRef:
        """A torch module."""
        pytest.importorskip("onnxscript")
        return network

    def test_it_keeps_the_names_and_free_dimensions(self, made: Converted) -> None:
        """Those of the module's inputs and outputs."""
        model = plugins.loader("onnx").load(ModelRef(scheme="onnx", locator=made.path), seed=0, trust=False)

        assert [(spec.name, spec.shape) for spec in model.inputs] == [
            ("image", ("batch", 8)),
            ("weight", ("batch", 1)),
        ]
        assert made.agreement is not None
        assert [figures.output for figures in made.agreement.outputs] == ["scores", "label"]


class TestOpenvino(ConverterSuite):
    recipe = "openvino"

    @pytest.fixture
    def source(self, network: ModelRef) -> ModelRef:
        """A torch module."""
        import_openvino()
        return network


class TestOpenvinoOfOnnx(ConverterSuite):
    recipe = "openvino"

    @pytest.fixture
    def source(self, digits: ModelRef) -> ModelRef:
        """An ONNX file."""
        import_openvino()
        return digits


class TestOnnxInt8(ConverterSuite):
    recipe = "onnx-int8"

    @pytest.fixture
    def source(self, tmp_path: Path) -> ModelRef:
        """One wide matrix product, whose errors average out."""
        onnx = pytest.importorskip("onnx")
        generator = np.random.default_rng(0)
        weights = np.zeros((64, 2), np.float32)
        weights[:, 0] = generator.normal(0, 1, 64)  # one class is left of zero or right of it
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
            "product",
            [onnx.helper.make_tensor_value_info("x", 1, ["batch", 64])],
            [onnx.helper.make_tensor_value_info("y", 1, ["batch", 2])],
            [onnx.numpy_helper.from_array(weights, "w")],
        )
        opset = [onnx.helper.make_opsetid("", 17)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "product.onnx")
        return ModelRef(scheme="onnx", locator=str(tmp_path / "product.onnx"))


class TestOnnxFp16(ConverterSuite):
    recipe = "onnx-fp16"

    @pytest.fixture
    def source(self, digits: ModelRef) -> ModelRef:
        """An ONNX file of convolutions."""
        return digits

    def test_half_of_the_bytes_are_left(self, made: Converted, digits: ModelRef) -> None:
        """Inputs and outputs keep their types, so that callers need not change."""
        import onnxruntime

        assert made.size < 0.6 * Path(digits.locator).stat().st_size
        session = onnxruntime.InferenceSession(made.path)
        assert {value.type for value in (*session.get_inputs(), *session.get_outputs())} <= {
            "tensor(float)", "tensor(int64)"
        }  # fmt: skip


@cache
def estimators() -> dict[str, Any]:
    """Fit a few estimators on the digits, and on targets; by the method that is called."""
    from sklearn import datasets, ensemble, linear_model, pipeline, preprocessing

    x, y = datasets.load_digits(return_X_y=True)
    x, y = x[:400], y[:400]
    scaled = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
    return {
        "logistic#predict": scaled.fit(x, y),
        "logistic#predict_proba": scaled,
        "texts#predict": linear_model.LogisticRegression().fit(x, [f"digit {label}" for label in y]),
        "binary#decision_function": linear_model.LogisticRegression(max_iter=500).fit(x, y > 4),
        "forest#predict_proba": ensemble.RandomForestClassifier(5, random_state=0).fit(x, y),
        "boosted#predict": ensemble.GradientBoostingRegressor(n_estimators=5).fit(x, y),
        "scaler#transform": preprocessing.StandardScaler().fit(x),
    }


@pytest.mark.parametrize(
    "name",
    [
        "logistic#predict", "logistic#predict_proba", "texts#predict", "binary#decision_function",
        "forest#predict_proba", pytest.param("boosted#predict", marks=pytest.mark.slow), "scaler#transform",
    ],
)  # fmt: skip
def test_an_estimator_becomes_onnx(name: str, tmp_path: Path) -> None:
    """With the one output that its method returns, in its shape."""
    pytest.importorskip("sklearn")
    pytest.importorskip("skl2onnx")
    path = tmp_path / "estimator.pkl"
    path.write_bytes(pickle.dumps(estimators()[name]))

    made = converted(ModelRef(scheme="sklearn", locator=f"{path}#{name.partition('#')[2]}"), tmp_path)

    assert made.verdict == "agrees", made
    assert made.agreement is not None
    assert len(made.agreement.outputs) == 1


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("framework", ["xgboost", "lightgbm"])
def test_a_booster_becomes_onnx(framework: str, classes: int, tmp_path: Path) -> None:
    """Of two classes it returns the probability of one, of more that of each."""
    pytest.importorskip("onnxmltools")
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    y = y % classes
    path = tmp_path / {"xgboost": "model.json", "lightgbm": "model.txt"}[framework]
    if framework == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        xgboost.XGBClassifier(n_estimators=4).fit(x, y).save_model(path)
    else:
        lightgbm = pytest.importorskip("lightgbm")
        lightgbm.LGBMClassifier(n_estimators=4, verbose=-1).fit(x, y).booster_.save_model(path)

    made = converted(ModelRef(scheme=framework, locator=str(path)), tmp_path)

    assert made.verdict == "agrees", made


def converted(source: ModelRef, tmp_path: Path, recipe: str = "onnx") -> Converted:
    """Convert a model in this process."""
    folder = tmp_path / "reference"
    folder.mkdir()
    order = ConversionOrder(model=source, trust=True, reference=str(folder))
    assert run_order(order, print).reference is not None
    further = ConversionOrder(
        model=source, trust=True, reference=str(folder), recipe=recipe, folder=str(tmp_path / recipe)
    )
    answer = run_order(further, print).converted
    assert answer is not None
    return answer


KERAS = """
import keras


def make():
    layers = [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4, "softmax")]
    return keras.Sequential(layers)
"""


@pytest.mark.parametrize("recipe", ["savedmodel", "tflite", "tflite-int8", "onnx"])
def test_a_keras_model_becomes_another_form(recipe: str, tmp_path: Path) -> None:
    """Which agrees, or with int8 weights is judged as lossy, though nobody has called the model before."""
    pytest.importorskip("tensorflow")
    pytest.importorskip("tf2onnx" if recipe == "onnx" else "ai_edge_litert")
    path = tmp_path / "network.py"
    path.write_text(KERAS)

    made = converted(ModelRef(scheme="keras", locator=f"{path}:make"), tmp_path, recipe)

    assert made.agreement is not None, made
    assert made.verdict == "agrees" or recipe == "tflite-int8"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
def test_trees_become_a_module_of_torch_that_agrees(kind: str, tmp_path: Path) -> None:
    """By Hummingbird, in the form and under the name of the source's one output; any number of rows."""
    pytest.importorskip("hummingbird")
    package: Any = pytest.importorskip(kind)
    torch = pytest.importorskip("torch")
    rows = np.random.default_rng(0).random((40, 4))
    labels = (rows[:, 0] > 0.5).astype(int)
    if kind == "xgboost":
        fitted = package.XGBClassifier(n_estimators=4, base_score=0.5).fit(rows, labels)
        fitted.save_model(tmp_path / "model.json")
    else:
        fitted = package.LGBMClassifier(n_estimators=4, verbose=-1).fit(rows, labels)
        fitted.booster_.save_model(tmp_path / "model.txt")
    (file,) = tmp_path.iterdir()
    model = plugins.loader(kind).load(ModelRef(scheme=kind, locator=str(file)), seed=0, trust=False)
    (spec,) = model.inputs
    array = rows.astype(spec.dtype)
    returned = np.asarray(model.value(array[:2]))
    source = ConversionSource(
        model=model,
        inputs=model.inputs,
        example={spec.name: array[:2]},
        outputs=(InputSpec(name="y", shape=returned.shape, dtype=str(returned.dtype)),),
    )

    made = plugins.converter("torch").convert(source, tmp_path / "model.pt", opset=None)

    (called,) = torch.jit.load(str(tmp_path / "model.pt"))(torch.from_numpy(array))
    assert made.converter.startswith("hummingbird ")
    np.testing.assert_allclose(called.numpy(), np.asarray(model.value(array)), atol=1e-6)


@pytest.mark.parametrize("kept", ["DynamicQuantizeLinear", "CumSum"])
def test_what_needs_float32_in_a_branch_keeps_it_in_half_precision(kept: str, tmp_path: Path) -> None:
    """Its casts stand in the branch; in the main graph they made the file invalid."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper, weights = onnx.helper, np.eye(4, dtype=np.float32)
    nodes = {
        "DynamicQuantizeLinear": (
            helper.make_node("DynamicQuantizeLinear", ["p"], ["q", "scale", "zero"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["then"]),
        ),
        "CumSum": (helper.make_node("CumSum", ["p", "axis"], ["then"]),),
    }[kept]
    branches = {
        "then": (helper.make_node("MatMul", ["x", "w"], ["p"]), *nodes),
        "else": (helper.make_node("Relu", ["x"], ["else"]),),
    }
    bodies = {
        f"{name}_branch": helper.make_graph(
            branch, name, [], [helper.make_tensor_value_info(name, 1, ["batch", 4])]
        )
        for name, branch in branches.items()
    }
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero_sum"], ["positive"]),
            helper.make_node("If", ["positive"], ["y"], **bodies),
        ],
        "branches",
        [helper.make_tensor_value_info("x", 1, ["batch", 4])],
        [helper.make_tensor_value_info("y", 1, ["batch", 4])],
        [
            onnx.numpy_helper.from_array(weights, "w"),
            onnx.numpy_helper.from_array(np.float32(0), "zero_sum"),
            onnx.numpy_helper.from_array(np.int64(1), "axis"),
        ],
    )
    path = tmp_path / "branches.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    (made,) = modeldyno.convert(path, to="onnx-fp16", output=tmp_path / "out").converted

    assert made.usable, made.failure
    for x in (np.ones((2, 4), np.float32), -np.ones((2, 4), np.float32)):
        (before,), (after,) = (
            runtime.InferenceSession(file).run(None, {"x": x}) for file in (path, made.path)
        )
        assert after == pytest.approx(before, rel=2e-2)
