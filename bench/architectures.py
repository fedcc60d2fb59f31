"""ResNet-18-like, BERT-base and ViT-B/16 with random weights, on torch: what they cost and how fast they are.

python bench/architectures.py [--max-time 10]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import modeldyno

ROOT = Path(__file__).parent.parent
MODELS = {
    "ResNet-18-like": f"torch:{ROOT / 'bench' / 'models.py'}:resnet18",
    "BERT-base, 128 tokens": str(ROOT / "examples" / "configs" / "bert-base"),
    "ViT-B/16": str(ROOT / "examples" / "configs" / "vit-base"),
}


def main() -> None:
    """Profile each in a process of its own and print one line for each."""
    parser = argparse.ArgumentParser(description="known architectures with random weights")
    parser.add_argument("--max-time", type=float, default=10.0)
    plan = modeldyno.Plan(max_time=parser.parse_args().max_time)
    for name, reference in MODELS.items():
        result = modeldyno.profile(reference, plan=plan, name=name)
        latency = result.ask("latency.p50.raw")
        bounds = latency.bounds()
        print(
            f"{name:<22} {(result['parameters'] or 0) / 1e6:6.1f} M parameters, median "
            f"{1e3 * (latency.value or 0):7.1f} ms [{1e3 * bounds.low:.1f}, {1e3 * bounds.high:.1f}], "
            f"load {result['load_time']:.2f} s, "
            f"memory {(result['process_memory.max'] or 0) / 2**20:,.0f} MiB, "
            f"doubts: {', '.join(sorted({doubt.code for doubt in result.doubts}))}"
        )


if __name__ == "__main__":
    main()
