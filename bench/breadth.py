"""How many architectures of transformers are analysed: every model class that itself runs, in small sizes.

A class is eligible if it is made from its default configuration - shrunk where that is large - and its own
forward call runs on random inputs. Each is tried in a process of its own, with limits on time and memory:
first the real call with real weights, then our analysis on the same inputs, without weights.

    python bench/breadth.py [--only bert] [--heads none|one|all] [--sample 200] [--peers 100] [--json file]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import resource
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import peers
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.job.static_options import Mode
from modeldyno.models import random_arrays
from modeldyno.models.flops.registry import formulas
from modeldyno.models.interface import Tracing
from modeldyno.models.loaders import transformers_model
from modeldyno.models.loaders.torch_tracing import graph as torch_tracing_graph
from modeldyno.models.static.analysis import sum_by_operator
from modeldyno.models.static.totals import AnalysedGraph
from modeldyno.models.torch_signature import Forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection

MOST_SECONDS = 45
"""For a class, its own call included."""
MOST_MEMORY = 10 * 2**30
MOST_PARAMETERS = 450_000_000
"""Beyond which a configuration is too large to be called for real."""
LENGTH = 32
"""Of sequences."""
BASE = "MODEL_MAPPING_NAMES"

COUNTED_BY_TORCH = {str(operator) for operator in flop_registry}
"""Operators that FlopCounterMode counts: of these, our MACs have to be its own."""

Specs = tuple[InputSpec, ...]

# -- which classes -----------------------------------------------------------------------------------------


def classes(heads: str) -> dict[str, str]:
    """Name the model classes of transformers' own tables, each with its type of configuration.

    Of the classes that put a head on a model there are none, the first of each type, or all.
    """
    from transformers.models.auto import modeling_auto as tables  # heavy

    class_names: dict[str, str] = {}
    tasks = [BASE, *sorted(n for n in vars(tables) if n.startswith("MODEL_FOR") and n.endswith("_NAMES"))]
    kinds: set[str] = set()
    for task in tasks if heads != "none" else tasks[:1]:
        for kind, names in getattr(tables, task).items():
            for name in (names,) if isinstance(names, str) else names:
                new = name not in class_names
                if new and (task == BASE or heads == "all" or kind not in kinds):
                    class_names[name] = kind
                    if task != BASE:
                        kinds.add(kind)
    return class_names


# -- small configurations ----------------------------------------------------------------------------------

_LAYERS = re.compile(r"(^|_)(n_?layers?|layers|num_\w*(layers|blocks|stages_blocks)|depths?|num_blocks)$")
_WIDTHS = re.compile(
    r"hidden|intermediate|d_model|d_inner|_ffn|ffn_|ffn|n_embd|n_inner|n_head|heads|embed_dim|_width|embedding_size|"
    r"(^|_)(dim|width|channels)$|projection_dim|state_size|lora_rank"
)
_KEPT = re.compile(r"layers|head_dim|act|drop|num_channels|in_chans|eps|prob|rope|patch|image|kernel")
_SIZES = ((8, 2), (8, 10), (2, 2), (1, 2))
"""Divisors of widths, and layers, in the order in which they are tried."""
_MOST = {
    8: re.compile(r"^(num|n)_(local_|routed_)?experts$|^moe_num_experts$"),
    2: re.compile(r"^num_experts_per_(tok|token)$|^(moe_)?top_?k$|^moe_k$|^num_selected_experts$"),
    1: re.compile(r"^n_groups?$|^topk_groups?$|^num_expert_groups?$"),
}
"""The most experts, experts chosen, and groups of experts."""


def shrunk(config: Any, factor: int, layers: int) -> Any:
    """Give a configuration with few layers and experts, and widths and heads divided by a factor."""
    return type(config).from_dict(_smaller(config.to_dict(), factor, layers))


def _smaller(values: Mapping[str, Any], factor: int, layers: int) -> dict[str, Any]:
    lengths = {v for k, v in values.items() if isinstance(v, int) and _LAYERS.search(k)}
    few = _enough(values, layers)
    made: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            made[name] = _smaller(value, factor, layers)
        elif isinstance(value, bool | dict) or name in {"dtype", "torch_dtype"}:
            made[name] = value
        elif "shared_layers" in name:
            made[name] = 0
        elif _LAYERS.search(name):
            made[name] = min(value, few) if isinstance(value, int) else _each(value, lambda n: min(n, 2))
        elif (most := _most(name)) and isinstance(value, int):
            made[name] = min(value, most)
        elif isinstance(value, list) and len(value) in lengths and len(value) > few:
            made[name] = value[:few]
        elif "key_value_heads" in name and isinstance(value, int):
            made[name] = max(1, value // factor)
        elif _WIDTHS.search(name) and not _KEPT.search(name):
            made[name] = _each(value, lambda n: n // factor if n % factor == 0 and n >= factor else n)
        else:
            made[name] = value
    return made


def _most(name: str) -> int:
    return next((most for most, names in _MOST.items() if names.search(name)), 0)


def _enough(values: Mapping[str, Any], layers: int) -> int:
    """Say how many layers show every kind of layer."""
    kinds = values.get("layer_types") or values.get("layers_block_type") or ()
    first_places = {kind: place for place, kind in reversed(list(enumerate(kinds))) if isinstance(kind, str)}
    return min(max(8, layers), max((layers, *(place + 1 for place in first_places.values()))))


def _each(value: Any, change: Callable[[int], int]) -> Any:
    if isinstance(value, list | tuple):
        return [_each(item, change) for item in value]
    return change(value) if isinstance(value, int) and not isinstance(value, bool) else value


def candidates(config: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give ways to a configuration, the smallest first."""
    for factor, layers in _SIZES:
        yield (
            f"1/{factor}, {layers} layers",
            lambda factor=factor, layers=layers: shrunk(config, factor, layers),
        )
    yield "default", lambda: config


# -- inputs ------------------------------------------------------------------------------------------------


def fix_sizes(specs: Specs) -> Specs:
    """Put numbers for the names of dimensions: one sample, short sequences."""

    def size(dimension: int | str) -> int:
        if isinstance(dimension, int):
            return dimension
        return 1 if dimension == BATCH else LENGTH

    return tuple(_with_shape(spec, tuple(map(size, spec.shape or (BATCH, LENGTH)))) for spec in specs)


def _with_shape(spec: InputSpec, shape: tuple[int, ...]) -> InputSpec:
    return InputSpec(name=spec.name, shape=shape, dtype=spec.dtype, low=spec.low, high=spec.high)


def real(specs: Specs) -> dict[str, Tensor]:
    """Draw the values that the analysis sees, too."""
    return {spec.name: torch.from_numpy(random_arrays.draw_array(spec, (0,))) for spec in specs}


# -- one class ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Own:
    """A class that ran by itself."""

    config: Any
    specs: Specs
    size: str
    parameters: int
    macs: float


def own_call(kind: Any, config: Any) -> Own:
    """Find a size at which a class runs by itself, and its inputs; the last objection is raised elsewhere."""
    objections: list[Exception] = []
    for size, make in candidates(config):
        try:
            small = make()
            with torch.device("meta"):
                held = sum(p.numel() for p in kind(_copy(small)).parameters())
            if held > MOST_PARAMETERS:
                objections.append(RuntimeError(f"{held:,} parameters"))
                break  # those that come are larger
            torch.manual_seed(0)
            module = kind(_copy(small)).eval()
            specs = fix_sizes(transformers_model.declare_inputs(module, module.config))
            macs = call(module, real(specs))
        except Exception as error:  # noqa: BLE001 - whatever a class has against a size
            objections.append(error)
            continue
        return Own(small, specs, size, held, macs)
    raise objections[0]


def _copy(config: Any) -> Any:
    return type(config).from_dict(config.to_dict())


def call(module: nn.Module, feed: dict[str, Tensor]) -> float:
    """Call; give the MACs by torch's own counter."""
    args, kwargs = Forward.of(module).arguments(feed)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*args, **kwargs)
    return counter.get_total_flops() / 2


def analyse(kind: Any, own: Own) -> dict[str, Any]:
    """Analyse; give what is to be told."""
    begin = time.process_time()
    module, stage = torch_tracing_graph.build_on_meta(lambda: kind(_copy(own.config)).eval())
    tracing = Tracing(inputs=own.specs, mode=Mode.INFERENCE, optimizer="none")
    graph = torch_tracing_graph.trace_module(module, stage, tracing)
    graph_costs = AnalysedGraph.of(graph, formulas())
    totals = graph_costs.totals()
    return {
        "macs": totals.macs,
        "common": sum(
            c.macs for op, c in zip(graph.ops, graph_costs.counts, strict=True) if op.kind in COUNTED_BY_TORCH
        ),
        "coverage": totals.coverage,
        "seconds": time.process_time() - begin,
        "assumptions": list(graph.assumptions),
        "uncounted": [(o.kind, o.shapes, o.calls) for o in sum_by_operator(graph_costs) if not o.counted],
    }


def try_class(name: str, type_: str, tools: list[str], answer: Callable[[dict[str, Any]], None]) -> None:
    """Try one class; answer as often as there is more to say."""
    import transformers  # heavy
    from transformers import AutoConfig  # heavy

    with transformers_model.offline():
        try:
            kind = getattr(transformers, name)
            config = kind.config_class() if kind.config_class else AutoConfig.for_model(type_)
            own = own_call(kind, config)
        except BaseException as error:  # noqa: BLE001 - any class may fail in any way
            answer({"own": f"{type(error).__name__}: {transformers_model.first_line(error)[:200]}"})
            return
        answer({"eligible": True, "size": own.size, "parameters": own.parameters, "counter": own.macs})
        answer({"inputs": {s.name: s.shape for s in own.specs}})
        try:
            answer(analyse(kind, own))
        except RequestError as error:
            cause = "".join(traceback.format_exception(error.__cause__)) if error.__cause__ else ""
            answer({"error": str(error), "trace": cause[-2500:]})
        except BaseException as error:  # noqa: BLE001 - what must not happen
            answer(
                {
                    "error": f"{type(error).__name__}: {error}",
                    "crash": True,
                    "trace": traceback.format_exc()[-2500:],
                }
            )
        for tool in tools:
            reply = peers.ask(tool, kind(_copy(own.config)).eval(), (), real(own.specs))
            answer({f"peer {tool}": [reply.macs, reply.error, reply.seconds]})


def try_in_process(name: str, type_: str, tools: list[str]) -> dict[str, Any]:
    """Try one class in a process of its own."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    answers: dict[str, Any] = {"name": name, "type": type_}
    process = context.Process(target=_answer, args=(name, type_, tools, its))
    process.start()
    its.close()
    end = time.monotonic() + MOST_SECONDS * (1 + len(tools))
    while mine.poll(max(0.0, end - time.monotonic())):
        try:
            answers |= mine.recv()
        except EOFError:
            break
    else:
        process.kill()
        answers.setdefault("own" if "eligible" not in answers else "error", f"more than {MOST_SECONDS} s")
    process.join()
    if process.exitcode and "macs" not in answers:
        answers.setdefault(
            "own" if "eligible" not in answers else "error", f"ended with status {process.exitcode}"
        )
        answers["crash"] = True
    return answers


def warm() -> None:
    """Import once what every process needs."""
    import transformers.models.clip.modeling_clip  # heavy
    import transformers.models.llama.modeling_llama  # heavy

    del transformers
    try_class("LlamaModel", "llama", [], lambda _: None)


def _answer(name: str, type_: str, tools: list[str], pipe: Connection) -> None:
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the end of the process
    try_class(name, type_, tools, pipe.send)
    pipe.close()


# -- the report --------------------------------------------------------------------------------------------


def row(result: Mapping[str, Any]) -> str:
    """Tell of a class in a line."""
    head = f"{result['name']:<48}"
    if "eligible" not in result:
        return f"{head} not eligible: {result.get('own', '')[:100]}"
    if "macs" not in result:
        return f"{head} FAILED: {result.get('error', '')}"
    counter, common = result["counter"], result["common"]
    ratio = f"{'=' if counter == common else round(counter / max(1, common), 3):>8}"
    text = f"{head}{result['macs']:>16,}{ratio}{result['coverage']:>8.3f}{result['seconds']:>7.2f}s"
    replies = (result[key] for key in result if key.startswith("peer "))
    return text + "".join(
        f"{error[:12] or round(macs / max(1, result['macs']), 3):>14}" for macs, error, _ in replies
    )


def report(results: list[dict[str, Any]], tools: list[str]) -> bool:
    """Print the figures; say whether the claim holds."""
    eligible = [r for r in results if "eligible" in r]
    good = [r for r in eligible if "macs" in r]
    same = sum(r["counter"] == r["common"] for r in good)
    slow = sorted(good, key=lambda r: -r["seconds"])[:3]
    print(f"\n{len(results)} classes, eligible: {len(eligible)}, analysed: {len(good)}", end=" ")
    share = len(good) / max(1, len(eligible))
    print(f"({100 * share:.1f} %), of them fully counted: {sum(r['coverage'] == 1 for r in good)}")
    print(f"same MACs as FlopCounterMode, of the operators that it counts: {same}")
    print("slowest: " + ", ".join(f"{r['name']} {r['seconds']:.1f} s" for r in slow))
    for result in eligible:
        if "macs" not in result:
            print(f"  {result['name']}: {'CRASH ' if result.get('crash') else ''}{result.get('error')}")
    kinds: Counter[str] = Counter()
    example: dict[str, str] = {}
    for result in good:
        for kind, shapes, calls in result["uncounted"]:
            kinds[kind] += calls
            example.setdefault(kind, f"{shapes} in {result['name']}")
    for kind, calls in kinds.most_common():
        print(f"  uncounted {kind}: {calls} calls, as {example[kind]}")
    if tools:
        print_peers(eligible, tools)
    prompt = all(r["seconds"] < 10 for r in good)
    return share >= 0.97 and prompt and not any(r.get("crash") for r in eligible)


def print_peers(eligible: list[dict[str, Any]], tools: list[str]) -> None:
    """Print how many classes each tool can take, and how near it comes to us."""
    compared = [r for r in eligible if f"peer {tools[0]}" in r]
    print(f"\nOf {len(compared)} classes: without an error, within 1 % and 10 % of ours, seconds in all")
    good = [r for r in compared if "macs" in r]
    print(f"  {'ModelDyno':<14}{len(good):>5}{'':>10}{sum(r['seconds'] for r in good):>10.1f}")
    for tool in tools:
        replies = [(r.get("macs"), *r[f"peer {tool}"]) for r in compared if f"peer {tool}" in r]
        ran = [(ours, macs) for ours, macs, error, _ in replies if not error]
        near = [sum(abs(macs - ours) <= part * ours for ours, macs in ran if ours) for part in (0.01, 0.1)]
        print(f"  {tool:<14}{len(ran):>5}{near[0]:>5}{near[1]:>5}{sum(s for *_, s in replies):>10.1f}")


def main() -> int:
    """Sweep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--only", default="", help="part of the names of classes, or names with commas between"
    )
    parser.add_argument("--heads", default="one", choices=("none", "one", "all"))
    parser.add_argument("--sample", type=int, default=0, help="so many classes, drawn with a fixed seed")
    parser.add_argument("--peers", type=int, default=0, help="ask other tools about so many classes, too")
    parser.add_argument("--json", type=Path, help="where to write a line for each class")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warm()
    todo = classes("all" if options.only else options.heads)
    if options.only:
        chosen = options.only.split(",")
        todo = {n: t for n, t in todo.items() if (n in chosen if len(chosen) > 1 else options.only in n)}
    drawn = sorted(todo)
    random.Random(0).shuffle(drawn)
    names = drawn[: options.sample] if options.sample else list(todo)
    tools = peers.installed_tools() if options.peers else []
    compared = set(drawn[: options.peers])
    if tools:
        print(
            f"{'':<48}{'MACs':>16}{'torch':>8}{'counted':>8}{'':>8}"
            + "".join(f"{tool:>14}" for tool in tools)
        )
    results = []
    for name in names:
        results.append(try_in_process(name, todo[name], tools if name in compared else []))
        print(row(results[-1]), flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
    return 0 if report(results, tools) else 1


if __name__ == "__main__":
    sys.exit(main())
