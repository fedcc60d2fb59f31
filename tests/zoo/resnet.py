"""ResNets as plain modules: for ImageNet, and for images of 32 pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from tests.zoo.truths import ResNet as Sizes


class ResNet(nn.Module):
    """Stem, stages, mean over the map, classifier."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        kernel, stride = (3, 1) if sizes.small_stem else (7, 2)
        self.stem = nn.Sequential(*_layer(3, sizes.stem, kernel, stride), nn.ReLU())
        self.pool = nn.Identity() if sizes.small_stem else nn.MaxPool2d(3, 2, padding=1)
        wide, blocks = sizes.stem, []
        for stage, depth in enumerate(sizes.depths):
            for block in range(depth):
                stride = 2 if stage and not block else 1
                blocks.append(_Block(wide, sizes.stem * 2**stage, stride, bottleneck=sizes.bottleneck))
                wide = sizes.stem * 2**stage * (4 if sizes.bottleneck else 1)
        self.blocks = nn.Sequential(*blocks)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(wide, sizes.classes)

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute."""
        features = self.blocks(self.pool(self.stem(pixels)))
        logits: Tensor = self.classifier(self.mean(features).flatten(1))
        return logits


class _Block(nn.Module):
    def __init__(self, wide: int, inner: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        if bottleneck:
            out = 4 * inner
            layers = [_layer(wide, inner, 1, 1), _layer(inner, inner, 3, stride), _layer(inner, out, 1, 1)]
        else:
            out = inner
            layers = [_layer(wide, out, 3, stride), _layer(out, out, 3, 1)]
        steps = [step for layer in layers for step in (*layer, nn.ReLU())]
        self.layers = nn.Sequential(*steps[:-1])
        self.shortcut = nn.Identity() if wide == out else nn.Sequential(*_layer(wide, out, 1, stride))
        self.last = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.last(self.layers(x) + self.shortcut(x))
        return y


def _layer(wide: int, out: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(wide, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out)
