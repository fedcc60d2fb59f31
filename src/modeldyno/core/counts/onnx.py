"""The operators of ONNX and ONNX Runtime: name to formula.

Conventions are those of PyTorch's operators, whose formulas serve where they fit. An operator that its
schema defines as a function, such as GroupNormalization, costs what the formula says, not what the
expansion would.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from modeldyno.core.counts import recurrent
from modeldyno.core.counts.elements import copied, each, free, gelu, made
from modeldyno.core.counts.onnx_formulas import (
    attended,
    batched,
    biased,
    causal_convolution,
    clipped,
    convolved,
    deformed,
    dequantized_rows,
    determined,
    dropped,
    dynamically_quantized,
    einsum,
    embedded,
    experts,
    fourier,
    gathered,
    gelu_of_sum,
    gemm,
    grid,
    gridded,
    grouped_query,
    inputs,
    joined,
    largest_regions,
    linear_attention,
    linear_model,
    local_response,
    multi_head,
    multiplied,
    narrow,
    normed,
    ordered,
    pooled,
    product,
    projected_attention,
    quantized_spread,
    recurred,
    regions,
    requantized,
    resized,
    rotated,
    scaled_product,
    scattered,
    scored,
    short_time,
    skipped,
    stepped,
    taken,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.counts import Formula

_GELU_TANH, _ERF, _SIGMOID, _SILU = 9, 5, 4, 5


def _all(names: str, formula: Formula) -> dict[str, Formula]:
    return dict.fromkeys(names.split(), formula)


def _under(domain: str, table: Mapping[str, Formula]) -> Iterable[tuple[str, Formula]]:
    return ((f"{domain}.{name}", formula) for name, formula in table.items())


_EACH: dict[int, str] = {
    1: """
        Acos Acosh And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Cos
        Cosh Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Mod Neg Not Or Pow
        Reciprocal Relu Round Sign Sin Sinh Sqrt Tan Tanh ThresholdedRelu Where Xor
    """,
    2: "DequantizeLinear LeakyRelu PRelu",
    3: "Shrink Softsign",
    4: "Celu Elu HardSigmoid Mish Selu Sigmoid",
    5: "HardSwish QuantizeLinear Softplus Swish",
    6: "SwiGLU",
}
"""Operations for each output."""

_OF_INPUT: dict[int, str] = {
    1: """
        ArgMax ArgMin CumProd CumSum GlobalAveragePool GlobalMaxPool NonZero ReduceMax ReduceMean ReduceMin
        ReduceProd ReduceSum Hardmax Col2Im
    """,
    2: "ReduceL1 ReduceL2 ReduceLogSum ReduceSumSquare GlobalLpPool",
    3: "LpNormalization",
    4: "ReduceLogSumExp",
    5: "LogSoftmax Softmax MeanVarianceNormalization NegativeLogLikelihoodLoss",
}
"""Operations for each element of the first input."""

_FREE = """
    Reshape Squeeze Unsqueeze Flatten Identity Shape Size Constant Optional OptionalGetElement
    OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength BitCast
"""
_COPIES = """
    Cast CastLike CenterCropPad Concat ConcatFromSequence DepthToSpace Pad ReverseSequence SpaceToDepth
    Split SplitToSequence Tile Transpose Trilu Expand MaxUnpool TensorScatter Compress OneHot StringConcat
    StringSplit StringNormalizer RegexFullMatch ImageDecoder TfIdfVectorizer
"""
_MAKERS = """
    BlackmanWindow ConstantOfShape EyeLike HammingWindow HannWindow MelWeightMatrix RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Range
"""

_DEFAULT: dict[str, Formula] = {
    **{name: partial(each, operations=n) for n, names in _EACH.items() for name in names.split()},
    **{name: partial(inputs, operations=n) for n, names in _OF_INPUT.items() for name in names.split()},
    **_all(_FREE, free),
    **_all(_COPIES, copied),
    **_all(_MAKERS, made),
    **_all("Bernoulli Multinomial", copied),
    **_all("Slice", taken),
    **_all("Loop Scan", taken),
    **_all("Add Sub", each),
    "Mul": partial(multiplied, operations=6),
    "Div": partial(multiplied, operations=11),
    "Abs": each,
    **_all("Max Min Sum", joined),
    "Mean": partial(joined, operations=1),
    "Clip": clipped,
    "Gelu": gelu,
    "Dropout": dropped,
    "SoftmaxCrossEntropyLoss": partial(inputs, operations=7),
    "DynamicQuantizeLinear": dynamically_quantized,
    **_all("TopK Unique", ordered),
    **_all("Gather GatherElements GatherND", gathered),
    **_all("Scatter ScatterElements ScatterND", scattered),
    "NonMaxSuppression": scored,
    "BatchNormalization": batched,
    "InstanceNormalization": partial(normed, operations=5, affine=("scale", "B")),
    "LayerNormalization": partial(normed, operations=5, affine=("Scale", "B")),
    "GroupNormalization": partial(normed, operations=5, affine=("scale", "bias")),
    "RMSNormalization": partial(normed, operations=3, affine=("scale",)),
    "SimplifiedLayerNormalization": partial(normed, operations=3, affine=("scale",)),
    "LRN": local_response,
    "MatMul": product,
    "MatMulInteger": product,
    "QLinearMatMul": partial(product, left="a", operations=6),
    "Gemm": gemm,
    "Einsum": einsum,
    "Conv": convolved,
    "ConvInteger": partial(convolved, data="x", weight="w"),
    "QLinearConv": partial(convolved, data="x", weight="w", operations=6),
    "ConvTranspose": partial(convolved, transposed=True),
    "DeformConv": deformed,
    "CausalConvWithState": causal_convolution,
    "LSTM": partial(recurred, operations=recurrent.LSTM),
    "GRU": partial(recurred, operations=recurrent.GRU),
    "RNN": partial(recurred, operations=recurrent.PLAIN),
    "Det": determined,
    "AffineGrid": grid,
    "Attention": attended,
    "LinearAttention": linear_attention,
    "RotaryEmbedding": rotated,
    **_all("AveragePool MaxPool", pooled),
    "LpPool": partial(pooled, operations=2),
    **_all("Resize Upsample", resized),
    "GridSample": gridded,
    "RoiAlign": regions,
    "MaxRoiPool": largest_regions,
    "DFT": fourier,
    "STFT": short_time,
}

_CONTRIB: dict[str, Formula] = {
    **_all("FusedMatMul TransposeMatMul FusedMatMulActivation", scaled_product),
    **_all("MatMulInteger16", product),
    "MatMulIntegerToFloat": partial(product, operations=2),
    "DynamicQuantizeMatMul": partial(product, operations=2),
    **_all("MatMulNBits MatMulBnb4 MatMulFpQ4", narrow),
    "FusedGemm": gemm,
    "QGemm": partial(product, extras=("C",), operations=6),
    "GemmFastGelu": partial(product, left="X", operations=_GELU_TANH),
    "Gelu": gelu,
    "QuickGelu": partial(each, operations=_SILU + 1),
    "FastGelu": partial(biased, operations=_GELU_TANH, bias=("bias",)),
    "BiasGelu": gelu_of_sum,
    "BiasAdd": partial(biased, operations=0, bias=("bias", "skip")),
    "BiasSoftmax": partial(each, operations=6),
    "BiasSplitGelu": partial(each, operations=2 + _ERF + 1),
    "LayerNormalization": partial(normed, operations=5, affine=("Scale", "B")),
    "SimplifiedLayerNormalization": partial(normed, operations=3, affine=("scale",)),
    "SkipLayerNormalization": partial(skipped, operations=5, affine=("gamma", "beta")),
    "SkipSimplifiedLayerNormalization": partial(skipped, operations=3, affine=("gamma",)),
    "EmbedLayerNormalization": embedded,
    "GroupNorm": partial(normed, operations=5, affine=("gamma", "beta")),
    "SkipGroupNorm": partial(skipped, operations=5, affine=("gamma", "beta")),
    "Attention": projected_attention,
    "QAttention": partial(projected_attention, weight="weight"),
    "MultiHeadAttention": multi_head,
    "GroupQueryAttention": grouped_query,
    "RotaryEmbedding": rotated,
    **_all("MoE QMoE", experts),
    **_all("FusedConv", convolved),
    **_all("NhwcConv NhwcFusedConv", convolved),
    "QLinearConv": partial(convolved, data="x", weight="w", operations=6),
    "QLinearConvTranspose": partial(convolved, data="x", weight="w", transposed=True, operations=6),
    "NhwcMaxPool": pooled,
    **_all("QLinearAdd QLinearMul", quantized_spread),
    "QLinearSigmoid": partial(requantized, operations=_SIGMOID),
    "QLinearLeakyRelu": partial(requantized, operations=2),
    "QLinearSoftmax": partial(requantized, operations=5),
    "QLinearAveragePool": pooled,
    "QLinearGlobalAveragePool": inputs,
    "QLinearConcat": partial(each, operations=7),
    "QuantizeLinear": partial(each, operations=5),
    "DequantizeLinear": partial(each, operations=2),
    "GatherBlockQuantized": dequantized_rows,
    "Trilu": copied,
}

_TREES: dict[str, Formula] = {
    **_all("LinearClassifier LinearRegressor", linear_model),
    **_all("Binarizer Imputer", each),
    "Scaler": partial(each, operations=2),
    "Normalizer": partial(each, operations=3),
    **_all("ArrayFeatureExtractor FeatureVectorizer CastMap DictVectorizer ZipMap LabelEncoder", copied),
    **_all("CategoryMapper OneHotEncoder", copied),
}

_TRAINING: dict[str, Formula] = {
    "Adagrad": partial(stepped, operations=7, state=1),
    "Adam": partial(stepped, operations=13, state=2),
    "Momentum": partial(stepped, operations=5, state=1),
}

ONNX: dict[str, Formula] = {
    name: formula
    for domain, table in (
        ("onnx", _DEFAULT),
        ("com.microsoft", _CONTRIB),
        ("ai.onnx.ml", _TREES),
        ("ai.onnx.preview.training", _TRAINING),
    )
    for name, formula in _under(domain, table)
}
"""What one call costs, by ``onnx.<name>`` or ``<domain>.<name>``."""
