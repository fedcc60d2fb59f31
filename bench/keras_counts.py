"""Parameters and MACs of eight networks of keras.applications: ours, by hand, and by TensorFlow's profiler.

By hand is one formula for each class of layer that has products: the sizes of outputs and kernels.
TensorFlow's profiler (``float_operation`` of ``tf.compat.v1.profiler``, on which keras-flops rests) counts 2
for a MAC, and what else it knows on top; half of its sum is what such tools print as MACs. Weights are
random. The status is 1 where parameters or MACs of ours differ from the sums by hand.

    python bench/keras_counts.py [--only MobileNetV2]
"""

from __future__ import annotations

import argparse
import sys
from math import prod
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import modeldyno

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORKS = (
    "MobileNetV2", "EfficientNetB0", "ResNet50", "VGG19", "DenseNet121", "InceptionV3", "ConvNeXtTiny",
    "NASNetMobile",
)  # fmt: skip


def layers_within(layer: Any) -> Iterator[Any]:
    """Yield the layers of a model and of those within it."""
    for child in getattr(layer, "layers", ()):
        yield child
        yield from layers_within(child)


def macs_by_hand(model: Any) -> int:
    """Sum over the layers with products, each of which is called once."""
    total = 0
    for layer in layers_within(model):
        output = prod(layer.output.shape[1:]) if hasattr(layer, "output") else 0
        match type(layer).__name__:
            case "Conv2D" | "Conv1D":
                total += output * prod(layer.kernel.shape[:-1])
            case "DepthwiseConv2D":
                total += output * prod(layer.kernel.shape[:2])
            case "SeparableConv2D":
                points = prod(layer.output.shape[1:-1])
                total += points * (prod(layer.depthwise_kernel.shape) + prod(layer.pointwise_kernel.shape))
            case "Dense":
                total += output * layer.kernel.shape[0]
    return total


def operations_by_profiler(model: Any) -> int:
    """Return float_operation of TensorFlow's profiler, of a frozen graph at batch 1."""
    spec = tf.TensorSpec((1, *model.input_shape[1:]), tf.float32)
    traced = tf.function(lambda x: model(x, training=False)).get_concrete_function(spec)
    graph = convert_variables_to_constants_v2(traced).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    profile = tf.compat.v1.profiler.profile(graph, cmd="scope", options=options)
    return int(profile.total_float_ops)


def main() -> int:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="networks whose names hold this text")
    only, wrong = parser.parse_args().only, 0
    print(f"Keras {keras.__version__}, TensorFlow {tf.__version__}, batch 1\n")
    head = ("network", "parameters", "MACs", "by hand", "profiler / 2", "off by")
    print("{:15} {:>12} {:>15} {:>15} {:>15} {:>8}".format(*head))
    for name in (each for each in NETWORKS if only in each):
        keras.utils.set_random_seed(0)
        model = getattr(keras.applications, name)(weights=None)
        image = np.zeros((1, *model.input_shape[1:]), np.float32)
        result = modeldyno.inspect(model, image, store=False, progress=False)
        parameters, macs = (result["parameters"] or 0) + (result["buffers"] or 0), result["macs"]
        hand, profiler = macs_by_hand(model), operations_by_profiler(model) / 2
        equal = parameters == model.count_params() and macs == hand
        wrong += not equal
        counts = f"{parameters:12,.0f} {macs:15,.0f} {hand:15,} {profiler:15,.0f}"
        print(f"{name:15} {counts} {profiler / hand - 1:8.2%}{'' if equal else '  WRONG'}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
