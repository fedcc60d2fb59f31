"""A small conditional denoiser of the kind that latent diffusion uses, as a plain module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from tests.zoo.truths import Unet as Sizes


class Unet(nn.Module):
    """Noise in a latent image, told its time and some words."""

    def __init__(self, sizes: Sizes, *, fused: bool) -> None:
        super().__init__()
        first, last = sizes.widths[0], sizes.widths[-1]
        self.time = nn.Sequential(nn.Linear(first, 4 * first), nn.SiLU(), nn.Linear(4 * first, 4 * first))
        self.enter = nn.Conv2d(sizes.latent, first, 3, padding=1)
        self.wide = first
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        wide, left = first, [first]
        for level, out in enumerate(sizes.widths):
            for _ in range(sizes.blocks):
                self.down.append(_Stage(sizes, wide, out, attends=sizes.attends[level], fused=fused))
                wide = out
                left.append(wide)
            if level < len(sizes.widths) - 1:
                self.down.append(nn.Conv2d(wide, wide, 3, stride=2, padding=1))
                left.append(wide)
        self.middle = _Stage(sizes, last, last, attends=True, fused=fused)
        self.after = _Residual(last, last, 4 * first)
        for level in reversed(range(len(sizes.widths))):
            out = sizes.widths[level]
            for _ in range(sizes.blocks + 1):
                self.up.append(
                    _Stage(sizes, wide + left.pop(), out, attends=sizes.attends[level], fused=fused)
                )
                wide = out
            if level:
                self.up.append(_Upsample(wide))
        self.leave = nn.Sequential(
            nn.GroupNorm(8, first), nn.SiLU(), nn.Conv2d(first, sizes.latent, 3, padding=1)
        )

    def forward(self, latents: Tensor, timesteps: Tensor, context: Tensor) -> Tensor:
        """Compute."""
        half = self.wide // 2
        rates = torch.exp(torch.arange(half, device=latents.device) * (-math.log(10_000) / half))
        angles = timesteps[:, None].float() * rates[None]
        time = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1).to(latents.dtype))
        x = self.enter(latents)
        left = [x]
        for step in self.down:
            x = step(x, time, context) if isinstance(step, _Stage) else step(x)
            left.append(x)
        x = self.after(self.middle(x, time, context), time)
        for step in self.up:
            x = (
                step(torch.cat([x, left.pop()], dim=1), time, context)
                if isinstance(step, _Stage)
                else step(x)
            )
        noise: Tensor = self.leave(x)
        return noise


class _Stage(nn.Module):
    def __init__(self, sizes: Sizes, wide: int, out: int, *, attends: bool, fused: bool) -> None:
        super().__init__()
        self.residual = _Residual(wide, out, 4 * sizes.widths[0])
        self.transformer = _Transformer(out, sizes.context, sizes.heads, fused=fused) if attends else None

    def forward(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.residual(x, time)
        return y if self.transformer is None else self.transformer(y, context)


class _Residual(nn.Module):
    def __init__(self, wide: int, out: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, wide), nn.SiLU(), nn.Conv2d(wide, out, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, out))
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.shortcut = nn.Identity() if wide == out else nn.Conv2d(wide, out, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.second(self.first(x) + self.time(time)[:, :, None, None]) + self.shortcut(x)
        return y


class _Upsample(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(wide, wide, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute."""
        y: Tensor = self.conv(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return y


class _Transformer(nn.Module):
    def __init__(self, wide: int, context: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, wide)
        self.enter = nn.Conv2d(wide, wide, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(wide) for _ in range(3))
        self.own = _Attention(wide, wide, heads, fused=fused)
        self.across = _Attention(wide, context, heads, fused=fused)
        self.widen = nn.Linear(wide, 8 * wide)
        self.narrow = nn.Linear(4 * wide, wide)
        self.leave = nn.Conv2d(wide, wide, 1)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Compute."""
        tokens = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        own = self.norms[0](tokens)
        tokens = tokens + self.own(own, own)
        tokens = tokens + self.across(self.norms[1](tokens), context)
        value, gate = self.widen(self.norms[2](tokens)).chunk(2, dim=-1)
        tokens = tokens + self.narrow(value * functional.gelu(gate))
        y: Tensor = self.leave(tokens.transpose(1, 2).reshape(x.shape)) + x
        return y


class _Attention(nn.Module):
    def __init__(self, wide: int, context: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query = nn.Linear(wide, wide, bias=False)
        self.key = nn.Linear(context, wide, bias=False)
        self.value = nn.Linear(context, wide, bias=False)
        self.out = nn.Linear(wide, wide)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Compute."""
        query, key, value = (
            states.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for states in (self.query(x), self.key(context), self.value(context))
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
            mixed = scores.softmax(dim=-1) @ value
        y: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return y
