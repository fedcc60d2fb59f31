from __future__ import annotations

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef, names_of_file


@pytest.mark.parametrize(
    ("text", "scheme", "locator"),
    [
        ("onnx:m.onnx", "onnx", "m.onnx"),
        ("hf-config:some/dir", "hf-config", "some/dir"),
        ("torch:file.py:factory", "torch", "file.py:factory"),
        ("m.onnx", "", "m.onnx"),
        ("file.py:factory", "", "file.py:factory"),
        ("some/file.py:factory", "", "some/file.py:factory"),
    ],
)
def test_a_reference_is_a_scheme_and_a_locator_or_a_path(text: str, scheme: str, locator: str) -> None:
    """Text without a scheme is a path, and is written as it came."""
    ref = ModelRef.parse(text)

    assert (scheme, locator) == (ref.scheme, ref.locator)
    assert text == str(ref)


@pytest.mark.parametrize("text", ["", "onnx:", "torch:  "])
def test_nothing_is_no_model(text: str) -> None:
    """A reference must name something."""
    with pytest.raises(RequestError, match="names no model"):
        ModelRef.parse(text)


def test_a_file_that_every_model_has_is_named_by_its_directory() -> None:
    """Triton's directories of versions have numbers for names; the stem is what an older result has."""
    assert names_of_file("zoo/resnet.onnx") == ("resnet",)
    assert names_of_file("zoo/bert/model.onnx") == ("bert", "zoo", "model")
    assert names_of_file("models/text/1/model.onnx") == ("text", "model")
    assert names_of_file("model.onnx") == ("model",)
