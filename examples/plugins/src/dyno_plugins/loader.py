"""``linear:m.linear``: a linear layer in a file of JSON, with its weights and its bias."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from modeldyno.plugin import (
    Executes,
    Form,
    InputSpec,
    Loader,
    Model,
    ModelIdentity,
    ModelRef,
    RequestError,
    Weight,
    digest_parts,
    read_head,
)

HEAD = b'{"linear": '


class LinearLoader(Loader):
    """Loads linear layers."""

    requires: tuple[str, ...] = ("numpy",)
    executes = Executes.NOTHING
    backend = "python"

    def claims(self, path: Path) -> bool:
        """Claim a file by its first bytes, whatever its suffix."""
        return read_head(path, len(HEAD)) == HEAD

    def load(self, ref: ModelRef, *, seed: int, trust: bool) -> Model:
        """Read the layer: a Python function of ``x``, batch x inputs of float32.

        Raises:
            RequestError: the file is missing or damaged.
        """
        import numpy as np  # imported when it is needed: the command line imports this module for nothing

        del seed, trust  # its weights are in the file, and nothing in it is executed
        path = Path(ref.locator)
        if not path.is_file():
            raise RequestError(f"There is no file '{path}'; give the path of a linear layer.")
        content = path.read_bytes()
        try:
            stored = json.loads(content)["linear"]
            weights, bias = (np.asarray(stored[name], np.float32) for name in ("weights", "bias"))
            outputs, inputs = weights.shape
            bias = bias.reshape(outputs)
        except (KeyError, TypeError, ValueError) as error:
            raise RequestError(f"'{path}' is no linear layer, or is damaged; write it again.") from error
        return Model(
            identity=ModelIdentity(name=path.stem, digest=digest_parts([content]), framework="linear"),
            form=Form.CALLABLE,
            value=partial(_apply, weights, bias),
            inputs=(InputSpec(name="x", shape=("batch", inputs), dtype="float32"),),
            weights=lambda: tuple(_weight(name, array) for name, array in (("w", weights), ("b", bias))),
            file_bytes=len(content),
        )


def _apply(weights: Any, bias: Any, x: Any) -> Any:
    return x @ weights.T + bias


def _weight(name: str, array: Any) -> Weight:
    return Weight(name=name, shape=array.shape, dtype="float32", size=array.size, bytes=array.nbytes)
