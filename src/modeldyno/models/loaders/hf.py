"""``hf:dir``: a local directory of transformers (config.json, and weights in safetensors).

The class comes from the configuration's architectures, so the model is loaded for its own task. The network
is never used, and code from the directory (`auto_map`) never runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.system import installed_packages
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest, safetensors, torch_module, transformers_model

if TYPE_CHECKING:
    from torch.nn import Module

    from modeldyno.base.job.model_ref import ModelRef

requires: tuple[str, ...] = ("torch", "transformers", "safetensors")
executes = Executes.NOTHING
backend = "torch"

CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"


def claims(path: Path) -> bool:
    """Claim a directory with config.json and weights; pickled ones are rejected on loading."""
    return (path / CONFIG).is_file() and bool(_safetensors(path) or _pickles(path))


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the weights into the class that the configuration names."""
    path = Path(ref.locator)
    files = _files(path, trust=trust)
    config = transformers_model.read_configuration(path)
    module, missing = _load_module(path, config, seed=seed)
    with describing():
        taken = transformers_model.describe_inputs(module, config)
        content = digest.digest_files([path / CONFIG, *files])
        name = transformers_model.model_name(path)
        return replace(
            taken.of_model(torch_module.describe_module(module, name, content)),
            converts=True,
            file_bytes=sum(file.stat().st_size for file in files),
            encode=transformers_model.text_encoder(path, config, taken.inputs),
            doubts=(_missing_weights_doubt(missing),) if missing else (),
        )


def look(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Build the architecture on meta tensors; of weight files only the headers are read."""
    from modeldyno.models.loaders.torch_tracing import graph as torch_tracing_graph  # it imports torch

    del trust  # only the sizes of pickled weights are read
    path = Path(ref.locator)
    files = _files(path, trust=True)
    config = transformers_model.read_configuration(path)
    if getattr(config, "dtype", None) is None and _safetensors(path):
        config.dtype = safetensors.most_common_dtype(files)
    module, dispatch_mode = torch_tracing_graph.build_on_meta(
        lambda: transformers_model.random_model(config, seed=seed, where=path)
    )
    taken = transformers_model.describe_inputs(module, config)
    structure = torch_module.structure_digest(module, (path / CONFIG).read_bytes())
    return replace(
        taken.of_model(torch_module.describe_module(module, transformers_model.model_name(path), structure)),
        value=None,
        graph=lambda tracing: torch_tracing_graph.trace_module(module, dispatch_mode, tracing),
        file_bytes=sum(file.stat().st_size for file in files),
        encode=transformers_model.text_encoder(path, config, taken.inputs),
    )


def source_digest(ref: ModelRef) -> str:
    """Digest the folder's place and files, and what can be imported; empty if the weights need more."""
    path = Path(ref.locator).resolve()
    try:
        if (
            not _safetensors(path)
            or (path / _ADAPTER).exists()
            or _ELSEWHERE.search((path / CONFIG).read_text(encoding="utf-8"))
        ):
            return ""
        files = sorted(islice((file for file in path.rglob("*") if file.is_file()), _MOST_FILES + 1))
        if len(files) > _MOST_FILES:
            return ""
        parts = (part for file in files for part in (str(file.relative_to(path)), digest.digest_file(file)))
        return digest.digest_parts((str(path), *installed_packages.describe_importable(), "", *parts))
    except (OSError, ValueError, RequestError):  # loading it tells what is wrong
        return ""


_ADAPTER = "adapter_config.json"
"""Names a base model in another place."""
_ELSEWHERE = re.compile(r"quantization_config|backbone", re.IGNORECASE)
"""Parts of a configuration for which transformers looks at the devices, or at other models."""
_MOST_FILES = 1_000


def _files(path: Path, *, trust: bool) -> tuple[Path, ...]:
    """List the weight files to read."""
    if not (path / CONFIG).is_file():
        raise RequestError(
            f"'{path}' is not a directory with a {CONFIG}; give the directory of a saved model."
        )
    if files := _safetensors(path):
        return files
    pickles = _pickles(path)
    if not pickles:
        raise RequestError(
            f"'{path}' has no model.safetensors; profile it with random weights as hf-config:{path}."
        )
    if not trust:
        raise TrustRequired(
            f"'{path / pickles[0].name}' is a pickle, which can run code when it is loaded; convert it to "
            "safetensors, or give `trust` if you know where it comes from."
        )
    return pickles


def _safetensors(path: Path) -> tuple[Path, ...]:
    """Return the weight file, or the shards that the index names."""
    index = path / _INDEX
    if index.is_file():
        names = _shards(index)
        absent = [name for name in names if not (path / name).is_file()]
        if absent:
            raise RequestError(f"'{index}' names {absent[0]}, which is not there; copy all the shards.")
        return tuple(path / name for name in names)
    single = path / "model.safetensors"
    return (single,) if single.is_file() else ()


def _pickles(path: Path) -> tuple[Path, ...]:
    return tuple(sorted(path.glob("pytorch_model*.bin")))


def _shards(index: Path) -> list[str]:
    try:
        mapping = json.loads(index.read_text())["weight_map"]
        names = sorted({Path(str(name)).name for name in mapping.values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(f"'{index}' is not an index of shards ({error}); copy it again.") from error
    return names


def _load_module(path: Path, config: Any, *, seed: int) -> tuple[Module, tuple[str, ...]]:
    import torch  # heavy

    model_class = transformers_model.configured_class(config, path)
    with transformers_model.offline(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for tensors that the files lack
        try:
            module, report = model_class.from_pretrained(
                path,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=bool(_safetensors(path)),
                weights_only=True,
                output_loading_info=True,
                **transformers_model.stored_dtype(),
            )
        except Exception as error:
            raise RequestError(
                f"The weights in '{path}' cannot be loaded into {model_class.__name__}: "
                f"{transformers_model.first_line(error)}; save the model again."
            ) from error
    return module.eval(), tuple(sorted(report["missing_keys"]))


def _missing_weights_doubt(missing: tuple[str, ...]) -> Doubt:
    return Doubt(
        code="random-weights",
        seen=f"the files lack {len(missing)} of the model's tensors, such as {missing[0]}; these are random",
        advice="the cost is representative, the outputs are not; save the model with all its weights",
    )
