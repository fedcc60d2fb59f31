from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import modeldyno
from modeldyno import RequestError
from modeldyno.conversion.agreement.agreement import ModelAgreement
from modeldyno.conversion.agreement.conversion import Converted
from modeldyno.conversion.agreement.rule import Equivalence
from modeldyno.registry.records.answer import AnswerCandidate, AnswerState, RegistryAnswer
from modeldyno.registry.records.records import FigureState, Measure, VariantFigure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    """A model that gives ``x + y``."""
    tensor = onnx.TensorProto.FLOAT
    names = [onnx.helper.make_tensor_value_info(name, tensor, ["batch", 2]) for name in ("x", "y", "sum")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "y"], ["sum"])], "g", names[:2], names[2:]
    )
    path = tmp_path / "add.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    return path


def test_a_model_is_called_in_order_and_by_name(doubling: Path) -> None:
    """With batches of any size, and the settings that were given; it closes with its block."""
    with modeldyno.open_model(doubling, threads=1) as model:
        assert model.inputs == ("x", "y")
        assert model.settings["threads"] == 1
        assert np.array_equal(model(ROWS, ROWS)["sum"], 2 * ROWS)
        assert np.array_equal(model(ROWS[:1], y=ROWS[:1])["sum"], 2 * ROWS[:1])
    assert "add.onnx on onnxruntime" in repr(model)


def test_an_open_model_leaves_the_modes_of_its_caller(tmp_path: Path) -> None:
    """Beside it the caller trains as before: inference mode belongs to the thread of the open model."""
    torch = pytest.importorskip("torch")
    (tmp_path / "net.py").write_text("import torch\ndef make():\n    return torch.nn.Linear(2, 1)\n")
    model = modeldyno.open_model(f"torch:{tmp_path}/net.py:make")
    output = model.as_module()(torch.zeros(3, 2))
    net = torch.nn.Linear(1, 1)

    net(output).sum().backward()

    assert (torch.is_inference_mode_enabled(), torch.is_grad_enabled()) == (False, True)
    assert net.weight.grad is not None
    model.close()
    model.close()
    with pytest.raises(RequestError, match="The model is closed; open it again"):
        model(torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model(ROWS, ROWS, ROWS), "takes x, y, not 3 arrays"),
        (lambda model: model(ROWS, x=ROWS), "'x' is given twice"),
        (lambda model: model(ROWS, z=ROWS), "no input 'z'"),
    ],
)
def test_an_array_without_an_input_is_refused(
    doubling: Path, call: Callable[[Any], Any], message: str
) -> None:
    """A sentence names it; the runtime would say it in a page of its own."""
    with modeldyno.open_model(doubling) as model, pytest.raises(RequestError, match=message):
        call(model)


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ("nowhere.onnx", {}, "no file or directory 'nowhere.onnx'"),
        ("http://127.0.0.1:9#x", {}, "is on a server"),
        (len, {}, "is open already: call it"),
        ("call:time:sleep", {"backend": "triton"}, "starts a server; start it with serve"),
        ("call:time:sleep", {"backend": "onnxruntime"}, "does not run call:time:sleep"),
    ],
)
def test_what_cannot_be_called_here_is_refused(model: Any, more: dict[str, Any], message: str) -> None:
    """With what to do instead."""
    with pytest.raises(RequestError, match=message):
        modeldyno.open_model(model, **more)


def test_a_form_is_opened_if_it_is_still_the_model(doubling: Path) -> None:
    """The file of one that differs is kept for a look, and not for use."""
    agreement = ModelAgreement(verdict=Equivalence.AGREES, sentence="", samples=1, calls=(), outputs=())
    form = Converted(recipe="onnx", path=str(doubling), agreement=agreement)
    with modeldyno.open_model(form) as model:
        assert np.array_equal(model(ROWS, ROWS)["sum"], 2 * ROWS)
    with pytest.raises(RequestError, match="onnx is not the model"):
        modeldyno.open_model(replace(form, agreement=None))


def an_answer(measure: Measure | None, recipe: str = "source") -> RegistryAnswer:
    """What the registry says of the model `add`; without a measure, that it does not know."""
    best = None
    if measure is not None:
        figure = VariantFigure(
            key="k", model="add", number=1, recipe=recipe, target="t", measure=measure, result="r", taken="",
            software={}, protocol=1, state=FigureState.FRESH,
        )  # fmt: skip
        best = AnswerCandidate(figure=figure, target=None)
    state = AnswerState.UNKNOWN if best is None else AnswerState.FOUND
    return RegistryAnswer(
        model="add", state=state, bounds=(), demand=None, price=None, best=best, among=1, others=(),
        fell_out=(), unusable=(), waiting=0, seconds=None,
    )  # fmt: skip


def test_what_the_registry_answers_is_opened_as_it_was_measured(
    doubling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variant with its settings, of which the caller may replace some; arrays say the batch."""
    monkeypatch.setenv("MODELDYNO_STORE", f"sqlite:///{tmp_path}/store.db")
    modeldyno.registry.add(doubling, name="add")
    measure = Measure(probes=("latency",), settings={"batch_size": 8, "threads": 1, "parallel": True})
    with modeldyno.open_model(an_answer(measure), parallel=False) as model:
        assert (model.settings["threads"], model.settings["parallel"]) == (1, False)
        assert np.array_equal(model(ROWS, ROWS)["sum"], 2 * ROWS)
    with pytest.raises(RequestError, match="no answer for add: unknown"):
        modeldyno.open_model(an_answer(None))
    with pytest.raises(RequestError, match="is a server"):
        modeldyno.open_model(an_answer(replace(measure, concurrency=4)))
