"""``onnx-int8``: an ONNX file with int8 weights, quantised by ONNX Runtime; it loses precision."""

from __future__ import annotations

import ast
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.adapters.converters import onnx as to_onnx
from modeldyno.interfaces.converter import ConvertedFile, SourceKind

if TYPE_CHECKING:
    from modeldyno.interfaces.converter import ConversionSource

_NEEDED = ("onnx", "onnxruntime")
sources = {
    SourceKind.ONNX: _NEEDED,
    SourceKind.TORCH: (*to_onnx.sources[SourceKind.TORCH],),
    SourceKind.EXPORTED: (*to_onnx.sources[SourceKind.EXPORTED],),
    SourceKind.KERAS: (*to_onnx.sources[SourceKind.KERAS],),
}
file = "model.onnx"
loader = "onnx"
backend = "onnxruntime"
lossy = True


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Quantise the weights of matrix products and convolutions; activations are quantised at each call."""
    import onnxruntime  # noqa: PLC0415 - optional, and heavy
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - optional
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415 - optional

    quantiser = f"onnxruntime {onnxruntime.__version__}"
    with tempfile.TemporaryDirectory(prefix="modeldyno-int8-") as folder:
        floats = Path(folder) / "floats.onnx"
        if source.kind == SourceKind.ONNX:
            floats, converter = Path(source.model.value), quantiser
        else:
            made = to_onnx.convert(source, floats, opset=opset)
            converter = f"{made.converter}, {quantiser}"
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)
        quantize_dynamic(str(prepared), str(path), weight_type=QuantType.QInt8)
        _keep_scopes(floats, path)
    return ConvertedFile(converter=converter)


_SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch's exporter writes the modules of a node, and its own name last."""


def _keep_scopes(floats: Path, quantised: Path) -> None:
    """Write to the nodes which modules they came from, which the quantiser drops.

    A node belongs where the value that it computes was computed before. One that is new belongs to the
    modules that all nodes after it share.
    """
    import onnx  # noqa: PLC0415 - optional, and heavy

    original = onnx.load(str(floats), load_external_data=False)
    homes = {name: _scopes(node)[:-1] for node in original.graph.node for name in node.output}
    if not any(homes.values()):
        return
    model = onnx.load(str(quantised), load_external_data=False)
    takers: dict[str, list[list[str]]] = {}
    for node in reversed(model.graph.node):
        known = [homes[name] for name in node.output if name in homes]
        after = [scopes for name in node.output for scopes in takers.get(name, ())]
        scopes = _scopes(node)[:-1] or (known[0] if known else _common_modules(after))
        for name in node.input:
            takers.setdefault(name, []).append(scopes)
        if scopes and not _scopes(node):
            node.metadata_props.add(key=_SCOPES, value=repr([*scopes, node.name]))
    onnx.save(model, str(quantised))


def _common_modules(scopes: list[list[str]]) -> list[str]:
    """Return the modules, from the outermost on, that all have in common."""
    return [names[0] for names in takewhile(lambda names: len(set(names)) == 1, zip(*scopes, strict=False))]


def _scopes(node: Any) -> list[str]:
    texts = [entry.value for entry in node.metadata_props if entry.key == _SCOPES]
    return list(ast.literal_eval(texts[0])) if texts else []
