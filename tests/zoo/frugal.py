"""Small models that copy no more than they must, though many of them copy: none of it is needless."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tests.zoo import configs, resnet, truths
from torch import Tensor, nn
from torch.nn import functional

from modeldyno.models.loaders.transformers_model import offline

if TYPE_CHECKING:
    from collections.abc import Callable

    Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

WIDTH = 16


def _ids() -> Tensor:
    return torch.randint(3, 50, (2, 8))


def transformer(kind: str, **feed: Any) -> Built:
    """Give a tiny transformer with random weights."""
    with offline():
        import transformers

        return getattr(transformers, configs.ARCHITECTURES[kind][1])(configs.config(kind)), (), feed


def llama() -> Built:
    """Give a tiny Llama with grouped queries."""
    with offline():
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2,
        )  # fmt: skip
        return LlamaForCausalLM(config), (), {"input_ids": _ids(), "use_cache": False}


def halved(build: Callable[[], Built]) -> Callable[[], Built]:
    """Give a model in bfloat16, which casts up where precision matters."""

    def built() -> Built:
        module, args, kwargs = build()
        return module.bfloat16(), args, kwargs

    return built


class Attention(nn.Module):
    """Attention by hand: heads are merged by a contiguous() that the view behind it needs."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        batch, seq, width = x.shape
        q, k, v = (part.view(batch, seq, 4, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q.contiguous() @ k.transpose(-1, -2).contiguous()).softmax(-1)
        mixed: Tensor = self.out((weights @ v).transpose(1, 2).contiguous().view(batch, seq, width))
        return mixed


class Shuffle(nn.Module):
    """Channels of a grouped convolution are shuffled, which is a copy by its nature."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(8, 8, 3, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y = self.first(x)
        n, c, h, w = y.shape
        y = y.view(n, 4, c // 4, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        z: Tensor = self.second(y)
        return z


class Mixer(nn.Module):
    """Tokens and channels are mixed in turns, with a transposition in between."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(8, 8), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        x = x + self.tokens(x.transpose(1, 2).contiguous()).relu().transpose(1, 2).contiguous()
        return x + self.channels(x).relu()  # type: ignore[no-any-return]


class Windows(nn.Module):
    """Attention within windows of an image, which are cut out and put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Attention()

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        n, h, w, c = x.shape
        cut = x.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 16, c)
        back = self.inner(cut).view(n, h // 4, w // 4, 4, 4, c)
        y: Tensor = back.permute(0, 1, 3, 2, 4, 5).contiguous().view(n, h, w, c)
        return y


class Guarded(nn.Module):
    """Clones are needed where the original or the clone changes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y = self.fc(x)
        before = y.clone()
        y.relu_()
        ahead = y.clone()
        ahead[:, 0] = 0
        return before + y + ahead  # type: ignore[no-any-return]


class Cached(nn.Module):
    """A cache is written in place, and what is kept of the last call is a clone."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("cache", torch.zeros(2, 16, WIDTH))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y = self.fc(x)
        self.cache[:, : x.shape[1]].copy_(y)
        self.last = y.clone()
        z: Tensor = self.cache.sum(1) + y.sum(1)
        return z


class Returning(nn.Module):
    """What is returned must not alias the input, nor hold what it was cut out of."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute."""
        return x.clone(), self.fc(x)[:1].clone()


class UpcastNorm(nn.Module):
    """A norm is computed in float32 within a model in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.weight = nn.Linear(WIDTH, WIDTH).half(), nn.Parameter(torch.ones(WIDTH).half())

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        wide = self.first(x.half()).to(torch.float32)
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        y: Tensor = self.weight * normal.to(self.weight.dtype)
        return y


class Rounded(nn.Module):
    """Going through whole numbers is a computation: it cuts fractions off."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        return (x * 8).to(torch.int32).to(torch.float32) / 8 + (x > 0).float()


class Masked(nn.Module):
    """Masks and positions are made where the model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.places = nn.Linear(WIDTH, WIDTH), nn.Embedding(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        seq = x.shape[1]
        places = torch.arange(seq, device=x.device)
        causal = torch.full((seq, seq), -1e9, device=x.device, dtype=x.dtype).triu(1)
        scores = x @ x.transpose(1, 2) + causal
        y: Tensor = self.fc((scores.softmax(-1) @ x) + self.places(places))
        return torch.where(y > 0, y, torch.zeros_like(y)).to(x.device).to(x.dtype)


class Temporal(nn.Module):
    """Convolutions over time want time last, and what is around them features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y = self.conv(x.transpose(1, 2).contiguous()).transpose(1, 2).contiguous()
        z: Tensor = self.norm(y + x)
        return z


class Steps(nn.Module):
    """A recurrence by hand collects its steps in one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        state = x.new_zeros(x.shape[0], WIDTH)
        states = x.new_empty(x.shape)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            states[:, step] = state
        return states


class Recurrent(nn.Module):
    """An LSTM, and what it says last."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = (
            nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, bidirectional=True),
            nn.Linear(32, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.head(self.lstm(x)[0][:, -1].contiguous())
        return y


class Pyramid(nn.Module):
    """Depthwise convolutions, up and down, with the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.up = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        x = x.contiguous(memory_format=torch.channels_last)
        small = self.down(x).relu()
        large = functional.interpolate(small, scale_factor=2.0, mode="nearest")
        y: Tensor = self.up(torch.cat([x, large], 1))
        return y.contiguous().flatten(1)


def plain(module: Callable[[], nn.Module], *shape: int) -> Callable[[], Built]:
    """Give a module of one input."""
    return lambda: (module(), (torch.randn(shape),), {})


def _resnet() -> nn.Module:
    return resnet.ResNet(truths.ResNet(stem=8, depths=(1, 1), classes=4, bottleneck=False, small_stem=True))


FRUGAL: dict[str, Callable[[], Built]] = {
    "BERT": lambda: transformer("bert", input_ids=_ids()),
    "GPT-2": lambda: transformer("gpt2", input_ids=_ids()),
    "ViT": lambda: transformer("vit", pixel_values=torch.randn(2, 3, 16, 16)),
    "Llama": llama,
    "Llama in bfloat16": halved(llama),
    "T5": lambda: transformer("t5", input_ids=_ids(), decoder_input_ids=_ids()),
    "wav2vec2": lambda: transformer("wav2vec2", input_values=torch.randn(2, 40_000)),
    "ResNet": plain(_resnet, 2, 3, 16, 16),
    "LSTM": plain(Recurrent, 2, 8, WIDTH),
    "TransformerEncoder": plain(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True), 2, enable_nested_tensor=False
        ),
        2, 8, WIDTH,
    ),
    "attention by hand": plain(Attention, 2, 8, WIDTH),
    "channel shuffle": plain(Shuffle, 2, 8, 12, 12),
    "mixer": plain(Mixer, 2, 8, WIDTH),
    "windows": plain(Windows, 2, 8, 8, WIDTH),
    "needed clones": plain(Guarded, 2, 8, WIDTH),
    "cache": plain(Cached, 2, 8, WIDTH),
    "returned clones": plain(Returning, 2, 8, WIDTH),
    "norm in float32": plain(UpcastNorm, 2, 8, WIDTH),
    "rounding": plain(Rounded, 2, 8, WIDTH),
    "masks": plain(Masked, 2, 8, WIDTH),
    "temporal": plain(Temporal, 2, 8, WIDTH),
    "steps": plain(Steps, 2, 8, WIDTH),
    "pyramid": plain(Pyramid, 2, 8, 16, 16),
}  # fmt: skip
