"""The ready-made profiler: latency, configurations, layers and memory of one model."""

from __future__ import annotations

import torch
from torch import nn

from modeldyno.compat import ModelProfiler

net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
profiler = ModelProfiler(net, device="cpu")

results = profiler.profile(torch.randn(8, 64), num_runs=100)
print(
    f"mean {results['latency']['mean']:.3f} ms, {results['throughput']['samples_per_second']:,.0f} samples/s"
)
print(f"{results['compute']['flops']:,} FLOPs, {results['memory']['weights']:,} bytes of weights")

for figures in profiler.benchmark(
    [{"batch_size": 1}, {"batch_size": 32}, {"batch_size": 32, "precision": "bf16"}]
):
    latency = figures.failure or f"{figures['latency']['p50']:.3f} ms"
    print(f"{figures.configuration}: {latency}")

for path, layer in profiler.profile_layers(layer_names=["linear"])["layers"].items():
    print(f"{path} {layer['kind']}: {layer['mean']:.3f} ms, {layer['share']:.0%} of the call")

profiler.export_json("profile.json")
