"""Models trained on data that scikit-learn packs, and saved by the exporters that people use.

python bench/made_models.py FOLDER    writes the files, and counts.json: the parameters of each as the
                                      library that trained it counts them, and its MACs by hand

What is small about them is the network; the files are those of the real exporters.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPORTERS = (
    "torch", "keras", "tensorflow", "scikit-learn", "skl2onnx", "xgboost", "lightgbm", "onnxmltools",
    "openvino", "joblib",
)  # fmt: skip
"""The packages whose exporters write these files."""
TREES = (("xgboost", ".json"), ("xgboost", ".onnx"), ("lightgbm", ".txt"), ("lightgbm", ".onnx"))


def main() -> int:
    """Write the files and their counts into a folder."""
    from sklearn.datasets import load_digits  # of this command alone

    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    rows, labels = (digits.data / 16).astype(np.float32), digits.target
    counts = dict((*from_torch(folder, rows, labels), *from_keras(folder, rows, labels)))
    counts |= dict((*from_sklearn(folder, rows, labels), *from_trees(folder, rows, labels)))
    (folder / "counts.json").write_text(json.dumps(counts, indent=1))
    return 0


Counted = tuple[str, tuple[int, int | None]]
"""A file, its parameters, and its multiply-accumulates for one sample."""
DENSE_MACS = 64 * 32 + 32 * 10
IMAGE_MACS = 6 * 6 * 8 * 9 + 8 * 36 * 10
FREE_MACS = 222 * 222 * 8 * 9 + 8 * 10
"""Of an image of 224 by 224, the size that is assumed."""
STEP_MACS = 8 * 4 * 16 * (8 + 16) + 16 * 10


def from_torch(folder: Path, rows: Any, labels: Any) -> Iterator[Counted]:
    """Train two networks, and save them as TorchScript, torch.export, ONNX and OpenVINO."""
    import openvino  # heavy
    import torch  # heavy

    torch.manual_seed(0)
    dense = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    images = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)), torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10),
    )  # fmt: skip
    x, y = torch.tensor(rows), torch.tensor(labels)
    batch = {0: torch.export.Dim("batch", min=2)}
    for name, module in (("dense", dense), ("images", images)):
        optimiser = torch.optim.Adam(module.parameters(), 0.01)
        for _ in range(20):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()
        module.eval()
        count = sum(each.numel() for each in module.parameters())
        torch.jit.script(module).save(folder / f"torch_{name}.pt")
        torch.export.save(
            torch.export.export(module, (x[:4],), dynamic_shapes=(batch,)), folder / f"torch_{name}.pt2"
        )
        torch.onnx.export(module, (x[:4],), folder / f"torch_{name}.onnx", dynamo=False)
        openvino.save_model(
            openvino.convert_model(module, example_input=x[:4]),
            folder / f"torch_{name}.xml",
            compress_to_fp16=False,
        )
        macs = {"dense": DENSE_MACS, "images": IMAGE_MACS}[name]
        yield from ((f"torch_{name}{suffix}", (count, macs)) for suffix in (".pt", ".pt2"))
        # The exporter of ONNX and that of OpenVINO fold a norm into the convolution before it.
        folded = count - sum(each.numel() for each in module[2].parameters()) if name == "images" else count
        yield from ((f"torch_{name}{suffix}", (folded, None)) for suffix in (".onnx", ".xml"))


def from_keras(folder: Path, rows: Any, labels: Any) -> Iterator[Counted]:
    """Train networks, and save them as .keras, .h5, a SavedModel, and two files of TensorFlow Lite."""
    import keras  # heavy
    import tensorflow as tf  # heavy

    layers = keras.layers
    networks = {
        "dense": ((64,), [layers.Dense(32, activation="relu"), layers.Dense(10)]),
        "images": ((8, 8, 1), [layers.Conv2D(8, 3, activation="relu"), layers.Flatten(), layers.Dense(10)]),
        "free": ((None, None, 1), [layers.Conv2D(8, 3), layers.GlobalAveragePooling2D(), layers.Dense(10)]),
        "steps": ((8, 8), [layers.LSTM(16), layers.Dense(10)]),
    }
    for name, (shape, made) in networks.items():
        model = keras.Sequential([keras.Input(shape), *made])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        sizes = tuple(8 if size is None else size for size in shape)
        model.fit(rows.reshape(-1, *sizes), labels, epochs=2, verbose=0)
        macs = {"dense": DENSE_MACS, "images": IMAGE_MACS, "free": FREE_MACS, "steps": STEP_MACS}[name]
        count = (model.count_params(), macs)
        model.save(folder / f"keras_{name}.keras")
        model.save(folder / f"keras_{name}.h5")
        model.export(folder / f"keras_{name}", verbose=False)
        yield from ((f"keras_{name}{suffix}", count) for suffix in (".keras", ".h5", ""))
        if name == "steps":
            continue  # TensorFlow Lite takes a loop with a list of tensors only with operators of TensorFlow
        for bits in ("float", "int8"):
            converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / f"keras_{name}"))
            converter.optimizations = [tf.lite.Optimize.DEFAULT] if bits == "int8" else []
            (folder / f"keras_{name}_{bits}.tflite").write_bytes(converter.convert())
            yield f"keras_{name}_{bits}.tflite", count


def from_sklearn(folder: Path, rows: Any, labels: Any) -> Iterator[Counted]:
    """Train linear models and a network, pickle them, and convert two to ONNX."""
    import joblib  # of this function alone
    from skl2onnx import to_onnx  # heavy
    from sklearn.linear_model import LogisticRegression, Ridge  # heavy
    from sklearn.neural_network import MLPClassifier  # heavy
    from sklearn.pipeline import make_pipeline  # heavy
    from sklearn.preprocessing import StandardScaler  # heavy
    from sklearn.svm import LinearSVC  # heavy

    linear = LogisticRegression(max_iter=50).fit(rows, labels)
    network = MLPClassifier((16,), max_iter=20).fit(rows, labels)
    estimators = {
        "logistic": (linear, linear.coef_.size + linear.intercept_.size),
        "ridge": (Ridge().fit(rows, labels), 64 + 1),
        "margin": (LinearSVC().fit(rows, labels), 640 + 10),
        "network": (network, sum(each.size for each in (*network.coefs_, *network.intercepts_))),
        "pipeline": (
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=50)).fit(rows, labels),
            64 + 64 + 640 + 10,
        ),
    }
    for name, (estimator, count) in estimators.items():
        joblib.dump(estimator, folder / f"sklearn_{name}.joblib")
        yield f"sklearn_{name}.joblib", (count, None)
    for name in ("logistic", "network"):
        estimator, count = estimators[name]
        options = {"zipmap": False}
        (folder / f"sklearn_{name}.onnx").write_bytes(
            to_onnx(estimator, rows[:1], options=options).SerializeToString()
        )
        yield f"sklearn_{name}.onnx", (count, None)


def from_trees(folder: Path, rows: Any, labels: Any) -> Iterator[Counted]:
    """Boost trees, save them in their own formats, and convert them; a node has a threshold or a value."""
    import lightgbm  # heavy
    import xgboost  # heavy
    from onnxmltools import convert_lightgbm, convert_xgboost  # heavy
    from onnxmltools.convert.common.data_types import FloatTensorType  # as above

    boosted = xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(rows, labels)
    boosted.save_model(folder / "xgboost.json")
    light = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(rows, labels)
    light.booster_.save_model(folder / "lightgbm.txt")
    types = [("x", FloatTensorType([None, 64]))]
    for name, convert, model in (
        ("xgboost", convert_xgboost, boosted),
        ("lightgbm", convert_lightgbm, light),
    ):
        (folder / f"{name}.onnx").write_bytes(convert(model, initial_types=types).SerializeToString())
    nodes = {
        "xgboost": sum(len(tree.splitlines()) for tree in boosted.get_booster().get_dump()),
        "lightgbm": sum(2 * tree["num_leaves"] - 1 for tree in light.booster_.dump_model()["tree_info"]),
    }
    yield from ((f"{name}{suffix}", (nodes[name], None)) for name, suffix in TREES)


if __name__ == "__main__":
    sys.exit(main())
