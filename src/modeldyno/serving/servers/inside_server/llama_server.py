"""Runs the server of llama.cpp that the package xllamacpp carries, with the options of ``llama-server``.

Options that the backend llamacpp does not give are not known here.
"""

from __future__ import annotations

import argparse
import signal
from typing import Any

import xllamacpp

_NUMBERS = {
    "--port": "port",
    "--threads": "cpuparams.n_threads",
    "--threads-batch": "cpuparams_batch.n_threads",
    "--ctx-size": "n_ctx",
    "--batch-size": "n_batch",
    "--ubatch-size": "n_ubatch",
    "--parallel": "n_parallel",
    "--n-gpu-layers": "n_gpu_layers",
    "--spec-draft-n-max": "speculative.draft.n_max",
}
_TEXTS = {"--model": "model.path", "--model-draft": "speculative.draft.mparams.path"}
_CACHE_TYPES = {"--cache-type-k": "cache_type_k", "--cache-type-v": "cache_type_v"}
_SWITCHES = {
    "--metrics": ("endpoint_metrics", True),
    "--no-cont-batching": ("cont_batching", False),
    "--no-cache-prompt": ("cache_prompt", False),
}
_FLASH = {
    "on": "LLAMA_FLASH_ATTN_TYPE_ENABLED",
    "off": "LLAMA_FLASH_ATTN_TYPE_DISABLED",
    "auto": "LLAMA_FLASH_ATTN_TYPE_AUTO",
}
_ENUMERATIONS = {
    "cache_type_k": "ggml_type",
    "cache_type_v": "ggml_type",
    "flash_attn_type": "llama_flash_attn_type",
    "types": "common_speculative_type",
}
"""Fields whose values have names in an enumeration of the package."""


def parse(words: list[str] | None = None) -> dict[str, Any]:
    """Return the fields of CommonParams, by their paths, that the options set."""
    parser = argparse.ArgumentParser(allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for option, path in _NUMBERS.items():
        parser.add_argument(option, dest=path, type=int)
    for option, path in _TEXTS.items():
        parser.add_argument(option, dest=path)
    for option, path in _CACHE_TYPES.items():
        parser.add_argument(option, dest=path, type=lambda name: f"GGML_TYPE_{name.upper()}")
    for option, (path, value) in _SWITCHES.items():
        parser.add_argument(option, dest=path, action="store_const", const=value)
    parser.add_argument("--host", dest="hostnames", type=lambda host: [host])
    parser.add_argument("--alias", dest="model_alias", type=lambda name: {name})
    parser.add_argument(
        "--spec-type",
        dest="speculative.types",
        type=lambda name: f"COMMON_SPECULATIVE_TYPE_{name.upper().replace('-', '_')}",
    )
    parser.add_argument("--flash-attn", dest="flash_attn_type", type=_FLASH.get)
    return vars(parser.parse_args(words))


def parameters(fields: dict[str, Any]) -> Any:
    """Return the parameters of a server with these fields."""
    params = xllamacpp.CommonParams()
    if "cpuparams.n_threads" in fields:  # as llama-server does
        fields.setdefault("cpuparams_batch.n_threads", fields["cpuparams.n_threads"])
    for path, value in fields.items():
        *way, name = path.split(".")
        place = params
        for step in way:
            place = getattr(place, step)
        if names := _ENUMERATIONS.get(name):
            member = getattr(getattr(xllamacpp, names), value)
            setattr(place, name, [member] if name == "types" else member)
        else:
            setattr(place, name, value)
    return params


if __name__ == "__main__":
    server = xllamacpp.Server(parameters(parse()))  # it ends with the last reference to it
    signal.pause()
