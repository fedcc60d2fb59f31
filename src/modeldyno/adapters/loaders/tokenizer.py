"""The tokenizer next to a model (`tokenizer.json`): text to inputs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.interfaces.loader import Feed

_FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Input of a text model to the field of an encoding that it takes."""


def adjacent_encoder(
    path: Path, inputs: Sequence[InputSpec]
) -> Callable[[Sequence[str], int | None], Feed] | None:
    """Return the encoder of a text model with a `tokenizer.json` next to it or one directory up."""
    wanted = tuple(spec.name for spec in inputs if spec.name in _FIELDS)
    if "input_ids" not in wanted or find_spec("tokenizers") is None:
        return None
    files = (folder / "tokenizer.json" for folder in (path.parent, path.parent.parent))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return None
    return lambda texts, length: _encode(file, wanted, texts, length)


def _encode(file: Path, wanted: Sequence[str], texts: Sequence[str], length: int | None) -> Feed:
    import numpy as np  # noqa: PLC0415 - slow to import

    tokenizer = _read(file)
    limit = (tokenizer.truncation or {}).get("max_length")
    if length is not None:
        tokenizer.enable_truncation(min(length, limit or length))
    pad = tokenizer.padding or {}
    padding = {key: pad[key] for key in ("pad_id", "pad_type_id", "pad_token", "direction") if key in pad}
    tokenizer.enable_padding(**padding, length=length)
    encodings = tokenizer.encode_batch(list(texts))
    return {
        name: np.array([getattr(encoding, _FIELDS[name]) for encoding in encodings], np.int64)
        for name in wanted
    }


def _read(file: Path) -> Any:
    import tokenizers  # noqa: PLC0415 - optional

    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # it raises the bare class
        raise RequestError(f"{file} is not a readable tokenizer: {error}.") from error
