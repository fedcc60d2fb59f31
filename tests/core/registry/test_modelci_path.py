from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as some

from modeldyno.core.registry.names import ModelCiPath
from modeldyno.errors import RequestError

ROOT = PurePosixPath("/home/me/.modelci")
RESNET = ModelCiPath(
    architecture="ResNet50",
    framework="pytorch",
    engine="none",
    task="image classification",
    version=1,
    suffix=".pth",
)
words = some.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,9}", fullmatch=True)


def test_the_path_of_a_model_says_what_it_is() -> None:
    """As the original's documentation writes it."""
    path = ROOT / "ResNet50" / "pytorch-none" / "image_classification" / "1.pth"

    assert ModelCiPath.parse(path) == RESNET
    assert RESNET.path(ROOT) == path


@given(
    some.builds(
        ModelCiPath,
        architecture=words,
        framework=some.sampled_from(["pytorch", "tensorflow", "onnx"]),
        engine=some.sampled_from(["none", "tfs", "trt"]),
        task=words,
        version=some.integers(1, 10**6),
        suffix=some.sampled_from(["", ".pth", ".onnx"]),
    )
)
def test_reading_is_the_inverse_of_writing(described: ModelCiPath) -> None:
    """For any parts."""
    assert ModelCiPath.parse(described.path(ROOT)) == described


@pytest.mark.parametrize(
    "path",
    ["1.pth", "a/b/c/1.pth", "a/pytorch-none/c/latest.pth", "a/pytorch-none/c/0.pth", "a/pytorch/c/1.pth"],
)
def test_another_path_says_nothing(path: str) -> None:
    """Too short, without engine, or without a number from 1."""
    assert ModelCiPath.parse(PurePosixPath(path)) is None


@pytest.mark.parametrize("part", ["..", "", "a/b"])
def test_no_part_leads_elsewhere(part: str) -> None:
    """A name is one folder."""
    described = ModelCiPath(architecture=part, framework="onnx", engine="none", task="detection", version=1)

    with pytest.raises(RequestError, match="leads elsewhere"):
        described.path(ROOT)
