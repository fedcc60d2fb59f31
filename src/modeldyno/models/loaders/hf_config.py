"""``hf-config:dir`` or ``hf-config:config.json``: a transformers architecture with random weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest, hf, torch_module, transformers_model

if TYPE_CHECKING:
    from torch.nn import Module

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ("torch", "transformers")
executes = Executes.NOTHING
backend = "torch"


def claims(path: Path) -> bool:
    """Claim a config.json of transformers, or a directory with one and no weights."""
    if path.is_dir():
        weights = any(any(path.glob(pattern)) for pattern in ("*.safetensors", "*.bin"))
        return not weights and _is_config(path / hf.CONFIG)
    return path.name.endswith(hf.CONFIG) and _is_config(path)


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Build the architecture with random weights from the seed."""
    del trust  # a configuration holds no code
    file = _file(ref)
    config = transformers_model.read_configuration(file)
    module = transformers_model.random_model(config, seed=seed, where=file)
    with describing():
        return replace(_model(ref, file, config, module, seed), converts=True)


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Build the architecture on meta tensors, without memory for weights."""
    from modeldyno.models.loaders.torch_tracing import graph as torch_tracing_graph  # it imports torch

    del trust  # a configuration holds no code
    file = _file(ref)
    config = transformers_model.read_configuration(file)
    module, dispatch_mode = torch_tracing_graph.build_on_meta(
        lambda: transformers_model.random_model(config, seed=seed, where=file)
    )
    return replace(
        _model(ref, file, config, module, seed),
        value=None,
        doubts=(),
        graph=lambda tracing: torch_tracing_graph.trace_module(module, dispatch_mode, tracing),
    )


def _file(ref: ModelRef) -> Path:
    path = Path(ref.locator)
    file = path / hf.CONFIG if path.is_dir() else path
    if not file.is_file():
        raise RequestError(
            f"There is no '{file}'; give a config.json of transformers, or a directory with one."
        )
    return file


def _model(ref: ModelRef, file: Path, config: Any, module: Module, seed: int) -> Model:
    taken = transformers_model.describe_inputs(module, config)
    name = transformers_model.model_name(Path(ref.locator))
    return replace(
        taken.of_model(torch_module.describe_module(module, name, _digest(file, seed))),
        encode=transformers_model.text_encoder(file.parent, config, taken.inputs),
        doubts=(
            Doubt(
                code="random-weights",
                seen=f"the weights are random, from the seed {seed}",
                advice="the cost is representative, the outputs are not; profile saved weights as hf:dir",
            ),
        ),
    )


def _digest(file: Path, seed: int) -> str:
    content = json.dumps(json.loads(file.read_text()), sort_keys=True)
    return digest.digest_parts(("hf-config", content, str(seed)))


def _is_config(file: Path) -> bool:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "model_type" in content
