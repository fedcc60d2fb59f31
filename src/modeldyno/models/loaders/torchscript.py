"""``torchscript:m.pt``: archives of torch.jit.save; they contain pickles, so they need trust."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, TrustRequired
from modeldyno.models.interface import Executes, Model
from modeldyno.models.load_stages import describing
from modeldyno.models.loaders import digest, torch_archive, torch_inputs, torch_module, torch_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.jit import ScriptModule

    from modeldyno.base.job.model_ref import ModelRef
    from modeldyno.models.static.weights import Weight

requires: tuple[str, ...] = ("torch",)
executes = Executes.PICKLE
backend = "torch"

_SUFFIXES = {".pt", ".pth", ".ts", ".torchscript", ".jit"}
_PICKLES = {b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"}
"""First bytes of a pickle."""


def claims(path: Path) -> bool:
    """Claim an archive that holds TorchScript code, by its list of members."""
    return (
        path.suffix in _SUFFIXES and path.is_file() and _is_torchscript(torch_archive.archive_members(path))
    )


def load(ref: ModelRef, *, seed: int, trust: bool) -> Model:
    """Load the archive on the CPU."""
    del seed  # its weights are in the file
    path = Path(ref.locator)
    _check(path, trust=trust)
    module = _load_module(path)
    with describing():
        content = torch_archive.content_digest(path, leave_out=("traced_inputs",))
        return replace(
            torch_inputs.of_forward(module).of_model(
                torch_module.describe_module(module, path.stem, content)
            ),
            candidates=lambda: torch_inputs.candidate_inputs(module),
            weights=lambda: [*torch_weights.list_weights(module), *_constants(module)],
            file_bytes=path.stat().st_size,
        )


look = load
"""Nothing is known of such a model without loading it."""


def _check(path: Path, *, trust: bool) -> None:
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a TorchScript archive.")
    names = torch_archive.archive_members(path)
    if not _is_torchscript(names):
        raise RequestError(_not_torchscript(path, names))
    if not trust:
        raise TrustRequired(
            f"'{path}' is a TorchScript archive, which holds pickles and code that run when it is loaded; "
            "give `trust` if you know where it comes from."
        )


def _is_torchscript(names: tuple[str, ...]) -> bool:
    return "constants.pkl" in names and any(name.startswith("code/") for name in names)


def _not_torchscript(path: Path, names: tuple[str, ...]) -> str:
    if "data.pkl" in names or digest.read_head(path, 2) in _PICKLES:
        return (
            f"'{path}' holds weights (or a pickled object) without an architecture; write a factory that "
            "builds the module and loads them, and profile it as torch:file.py:factory."
        )
    if "archive_format" in names or "models/model.json" in names:
        return f"'{path}' is an exported program; name it as exported:{path}."
    return f"'{path}' is not a TorchScript archive, or is damaged; save it again with torch.jit.save."


def _load_module(path: Path) -> ScriptModule:
    import torch  # heavy

    with warnings.catch_warnings():
        # torch deprecates TorchScript, which does not help a user with such a file.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            module: ScriptModule = torch.jit.load(str(path), "cpu")  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError, OSError) as error:
            reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
            raise RequestError(f"torch.jit.load cannot read '{path}': {reason}; save it again.") from error
    if not hasattr(module, "forward"):
        raise RequestError(
            f"'{path}' has no method forward, as of a class with several; wrap the module in one "
            "whose forward calls it, and compile that."
        )
    return module.eval()


def _constants(module: ScriptModule) -> Iterator[Weight]:
    """Yield the tensors of a frozen module, which keeps its weights as constants of its graph."""
    for index, tensor in enumerate(_constant_tensors(module)):
        weight = torch_weights.describe_weight(f"constant.{index}", tensor, parameter=False)
        if weight.size > 1:
            yield weight


def _constant_tensors(module: ScriptModule) -> Iterator[Tensor]:
    graph = module.inlined_graph  # its nodes live only as long as it does
    for node in graph.findAllNodes("prim::Constant", recurse=True):  # type: ignore[attr-defined]  # not in the stubs
        if "value" in node.attributeNames() and node.kindOf("value") == "t":
            yield node.t("value")
