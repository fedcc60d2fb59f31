from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from modeldyno.base.job.version_name import ModelCiPath

RESNET = ModelCiPath(
    architecture="ResNet50",
    framework="pytorch",
    engine="none",
    task="image classification",
    version=1,
)


def test_the_path_of_a_model_says_what_it_is() -> None:
    """As the original's documentation writes it."""
    path = PurePosixPath("/home/me/.modelci/ResNet50/pytorch-none/image_classification/1.pth")

    assert ModelCiPath.parse(path) == RESNET


@pytest.mark.parametrize(
    "path",
    ["1.pth", "a/b/c/1.pth", "a/pytorch-none/c/latest.pth", "a/pytorch-none/c/0.pth", "a/pytorch/c/1.pth"],
)
def test_another_path_says_nothing(path: str) -> None:
    """Too short, without engine, or without a number from 1."""
    assert ModelCiPath.parse(PurePosixPath(path)) is None
