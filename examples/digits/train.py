"""Train a small network on scikit-learn's handwritten digits, and export it with its test set.

Writes digits.onnx and test.npz beside this file. It needs torch, onnx, onnxscript and scikit-learn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent
EPOCHS = 30


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give training and test images, N x 1 x 8 x 8 in 0..1, then training and test labels."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, np.newaxis]
    split = train_test_split(images, digits.target, test_size=0.2, random_state=0, stratify=digits.target)
    return tuple(map(torch.from_numpy, split))  # type: ignore[return-value]


def network() -> nn.Module:
    """Make two convolutions and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Fit the model to the images."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    order = torch.Generator().manual_seed(0)
    model.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images), generator=order).split(32):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()


def export(model: nn.Module, path: Path) -> None:
    """Write one ONNX file that takes any batch, without the exporter's notes on where the source lay."""
    program = torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        input_names=["image"],
        output_names=["scores"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    noted = (proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.value_info)
    for part in (proto, *noted, *proto.graph.initializer):
        del part.metadata_props[:]
    onnx.save(proto, path)


def main() -> None:
    """Train, say how good it is, and write the model and its test set."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(mode=True)
    train_images, test_images, train_labels, test_labels = data()
    model = network()
    train(model, train_images, train_labels)
    with torch.inference_mode():
        right = int((model(test_images).argmax(1) == test_labels).sum())
    print(f"{right} of {len(test_labels)} test images are right: {right / len(test_labels):.2%}")
    export(model, HERE / "digits.onnx")
    np.savez_compressed(HERE / "test.npz", image=test_images.numpy(), label=test_labels.numpy())


if __name__ == "__main__":
    main()
