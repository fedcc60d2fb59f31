"""``torch``: a module of torch for what is none, kept as an archive of TorchScript.

Estimators become tensor operations by Hummingbird, ONNX graphs modules by onnx2torch. Whatever they return,
the check judges it: Hummingbird 0.4 misreads some estimators of later versions, as those of XGBoost 3 whose
`base_score` is not 0.5.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from modeldyno.conversion.converters import torchscript
from modeldyno.conversion.interface import ConvertedFile
from modeldyno.models.interface import Form, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.conversion.interface import ConversionSource

_HUMMINGBIRD = ("torch", "hummingbird.ml", "onnxconverter_common", "dill")
sources = {
    "sklearn": ("sklearn", *_HUMMINGBIRD),
    "xgboost": ("xgboost", *_HUMMINGBIRD),
    "lightgbm": ("lightgbm", *_HUMMINGBIRD),
    SourceKind.ONNX: ("onnx", "torch", "torchvision", "onnx2torch"),
}
file = "model.pt"
loader = "torchscript"
backend = "torch"
lossy = False
_LABEL, _SCORES = 0, -1
"""Position of the outputs of a classifier."""


def convert(source: ConversionSource, path: Path, *, opset: int | None) -> ConvertedFile:
    """Make the module, and trace it."""
    by, package, module = (
        ("onnx2torch", "onnx2torch", _of_graph(source))
        if source.kind == SourceKind.ONNX
        else ("hummingbird", "hummingbird-ml", _of_estimator(source))
    )
    model = replace(source.model, form=Form.TORCH, value=module.eval().requires_grad_(False), borrowed=False)
    traced = torchscript.convert(replace(source, model=model), path, opset=opset)
    return ConvertedFile(converter=f"{by} {version(package)}, {traced.converter}", narrows=True)


def _of_graph(source: ConversionSource) -> Any:
    import onnx  # optional, and heavy
    import onnx2torch  # optional, and heavy

    return onnx2torch.convert(onnx.load(str(source.model.value)))


def _of_estimator(source: ConversionSource) -> Any:
    """Return a module with the one output that the method of the estimator returns, in its shape."""
    import torch  # heavy
    from hummingbird.ml import constants  # optional, and heavy
    from hummingbird.ml import convert as by_hummingbird  # optional, and heavy

    function, (array,), (output,) = source.model.value, source.example.values(), source.outputs
    owner = _as_estimator(function.__self__) if source.kind == "xgboost" else function.__self__
    inner = by_hummingbird(owner, "torch", array, extra_config={constants.CONTAINER: False})
    scores = function.__name__ in {"predict_proba", "decision_function"}
    chosen = _SCORES if scores or (output.dtype or "").startswith("float") else _LABEL
    # Of a Booster of LightGBM, Hummingbird returns what precedes the sigmoid.
    logistic = hasattr(owner, "dump_model") and owner.dump_model()["objective"] == "binary sigmoid:1"
    sizes = [int(size) for size in (output.shape or ())[1:]]
    dtype = getattr(torch, output.dtype or "float32")

    class Estimator(torch.nn.Module):
        """What Hummingbird made, with one output."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, rows: Any) -> Any:
            returned = self.inner(rows)
            part = returned[chosen] if isinstance(returned, list | tuple) else returned
            if not sizes and part.dim() > 1 and part.shape[1] == len(("no", "yes")):
                part = part[:, 1]  # both classes, where the source gives the second
            part = torch.sigmoid(part) if logistic else part
            return part.reshape([-1, *sizes]).to(dtype)

    return Estimator()


def _as_estimator(booster: Any) -> Any:
    """Return a Booster of XGBoost as the estimator that Hummingbird reads; an estimator as it is."""
    import xgboost  # optional, and heavy

    if not isinstance(booster, xgboost.Booster):
        return booster
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    is_classifier = objective.startswith(("binary:logistic", "multi:softprob"))
    estimator = xgboost.XGBClassifier() if is_classifier else xgboost.XGBRegressor()
    estimator.load_model(bytearray(booster.save_raw()))
    return estimator
