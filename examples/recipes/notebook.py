"""The Python API: a live module, a number, its interval, and the page of a notebook."""

from __future__ import annotations

import torch
from torch import nn

import modeldyno

net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
result = modeldyno.profile(net, example=torch.randn(8, 64), plan=modeldyno.Plan(max_time=5))
median = result.ask("latency.p50")
print(f"median {median.value} s, 95 % interval {median.interval}")
for doubt in result.doubts:
    print(f"{doubt.code}: {doubt.seen}")
