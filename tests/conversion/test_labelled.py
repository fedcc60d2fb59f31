"""A lossy form is judged by labelled samples, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.conversion.request import ConversionRequest
from modeldyno.conversion.run import convert

if TYPE_CHECKING:
    from modeldyno.conversion.agreement.conversion import Conversion

pytest.importorskip("onnxruntime")
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def converted(data: Path | str, evaluate: str, folder: Path) -> Conversion:
    return modeldyno.convert(
        DIGITS / "digits.onnx", to="onnx-int8", data=data, evaluate=evaluate, output=folder, inline=True
    )


def test_a_close_form_tells_the_metrics_of_its_task(tmp_path: Path) -> None:
    """On all labelled samples, beside those of the source."""
    made = converted(f"{DIGITS / 'test.npz'}:label", "accuracy", tmp_path)["onnx-int8"]

    assert made.verdict == "close"
    assert made.agreement is not None
    (accuracy,) = made.agreement.metrics
    assert (accuracy.metric, accuracy.samples, accuracy.inferior) == ("accuracy", 360, False)
    assert made.agreement.sentence.endswith(accuracy.sentence)
    script = Path(made.reproduce).read_text()
    assert "evaluate=('accuracy',)" in script
    assert ":label" in script


def test_a_form_that_is_worse_at_its_task_differs(tmp_path: Path) -> None:
    """Here the targets are what the source answers itself, so that any error is worse."""
    import onnxruntime

    images = np.load(DIGITS / "test.npz")["image"][:64]
    session = onnxruntime.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    path = tmp_path / "targets.npz"
    np.savez(path, image=images, y=session.run(None, {"image": images})[0])
    made = converted(path, "mae", tmp_path)["onnx-int8"]

    assert made.verdict == "differs"
    assert made.failure is not None
    assert made.failure.message.startswith("mean_absolute_error 0.")
    assert made.path.endswith(".unchecked")


@pytest.mark.parametrize(
    ("evaluate", "message"), [("accurracy", "did you mean 'accuracy'"), ("top_12", "classes")]
)
def test_a_metric_that_does_not_fit_is_refused_before_anything_is_converted(
    evaluate: str, message: str, tmp_path: Path
) -> None:
    """In one sentence."""
    with pytest.raises(RequestError, match=message):
        converted(DIGITS / "test.npz", evaluate, tmp_path)


def test_labelled_samples_are_needed(tmp_path: Path) -> None:
    """With labels."""
    path = tmp_path / "plain.npz"
    np.savez(path, image=np.zeros((3, 1, 8, 8), np.float32))

    with pytest.raises(RequestError, match="has no labels"):
        converted(path, "accuracy", tmp_path)
    with pytest.raises(RequestError, match="needs labelled samples"):
        modeldyno.convert(DIGITS / "digits.onnx", evaluate="accuracy", output=tmp_path)


def test_labelled_samples_may_be_others_than_those_compared(tmp_path: Path) -> None:
    """Then random ones are compared, and the form is measured with the inputs of its source."""
    request = ConversionRequest(
        model=str(DIGITS / "digits.onnx"),
        to=("onnx-int8",),
        evaluate=("accuracy",),
        evaluated_on=DIGITS / "test.npz",
        output=tmp_path,
    )
    made = convert(request, in_process=True)["onnx-int8"]

    assert made.agreement is not None
    assert (made.agreement.samples, made.agreement.metrics[0].samples) == (45, 360)
    assert [spec.source for spec in made.inputs] == [None]
