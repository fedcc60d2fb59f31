"""The ONNX file that a recipe of lower precision starts from, and the modules of its nodes."""

from __future__ import annotations

import ast
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.conversion.converters import onnx as to_onnx
from modeldyno.models.interface import SourceKind

if TYPE_CHECKING:
    from modeldyno.conversion.interface import ConversionSource

SOURCES = {
    SourceKind.ONNX: ("onnx", "onnxruntime"),
    **{kind: to_onnx.sources[kind] for kind in (SourceKind.TORCH, SourceKind.EXPORTED, SourceKind.KERAS)},
}
"""Kind of source to the importable names that a recipe needs which starts from such a file."""


def float_file(source: ConversionSource, folder: str, opset: int | None) -> tuple[Path, tuple[str, ...]]:
    """Return the file of the source, made in a folder unless it is one, and the programs that made it."""
    if source.kind == SourceKind.ONNX:
        return Path(source.model.value), ()
    path = Path(folder) / "floats.onnx"
    return path, (to_onnx.convert(source, path, opset=opset).converter,)


_SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch's exporter writes the modules of a node, and its own name last."""


def keep_scopes(floats: Path, changed: Path) -> None:
    """Write to the nodes which modules they came from, which the converter of precisions drops.

    A node belongs where the value that it computes was computed before. One that is new belongs to the
    modules that all nodes after it share.
    """
    import onnx  # optional, and heavy

    original = onnx.load(str(floats), load_external_data=False)
    homes = {name: _scopes(node)[:-1] for node in original.graph.node for name in node.output}
    if not any(homes.values()):
        return
    model = onnx.load(str(changed), load_external_data=False)
    takers: dict[str, list[list[str]]] = {}
    for node in reversed(model.graph.node):
        own_homes = [homes[name] for name in node.output if name in homes]
        after = [scopes for name in node.output for scopes in takers.get(name, ())]
        scopes = _scopes(node)[:-1] or (own_homes[0] if own_homes else _common_modules(after))
        for name in node.input:
            takers.setdefault(name, []).append(scopes)
        if scopes and not _scopes(node):
            node.metadata_props.add(key=_SCOPES, value=repr([*scopes, node.name]))
    onnx.save(model, str(changed))


def _common_modules(scopes: list[list[str]]) -> list[str]:
    """Return the modules, from the outermost on, that all have in common."""
    return [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*scopes, strict=False))]


def _scopes(node: Any) -> list[str]:
    texts = [entry.value for entry in node.metadata_props if entry.key == _SCOPES]
    return list(ast.literal_eval(texts[0])) if texts else []
