"""Formulas of the operators of ONNX and ONNX Runtime, by name.

Conventions are those of the PyTorch operators, whose formulas are used where they fit. An operator that its
schema defines as a function, such as GroupNormalization, costs what its formula says, not what its expansion
would cost.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from modeldyno.core.static.flops import onnx_attention, onnx_formulas, recurrent
from modeldyno.core.static.flops.elementwise import copied, each, free, gelu, made

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from modeldyno.core.static.flops import Formula

_GELU_TANH, _ERF, _SIGMOID, _SILU = 9, 5, 4, 5


def _all(names: str, formula: Formula) -> dict[str, Formula]:
    return dict.fromkeys(names.split(), formula)


def _in_domain(domain: str, table: Mapping[str, Formula]) -> Iterable[tuple[str, Formula]]:
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
    **{
        name: partial(onnx_formulas.inputs, operations=n)
        for n, names in _OF_INPUT.items()
        for name in names.split()
    },
    **_all(_FREE, free),
    **_all(_COPIES, copied),
    **_all(_MAKERS, made),
    **_all("Bernoulli Multinomial", copied),
    **_all("Slice", onnx_formulas.taken),
    **_all("Loop Scan", onnx_formulas.taken),
    **_all("Add Sub", each),
    "Mul": partial(onnx_formulas.multiplied, operations=6),
    "Div": partial(onnx_formulas.multiplied, operations=11),
    "Abs": each,
    **_all("Max Min Sum", onnx_formulas.joined),
    "Mean": partial(onnx_formulas.joined, operations=1),
    "Clip": onnx_formulas.clipped,
    "Gelu": gelu,
    "Dropout": onnx_formulas.dropped,
    "SoftmaxCrossEntropyLoss": partial(onnx_formulas.inputs, operations=7),
    "DynamicQuantizeLinear": onnx_formulas.dynamically_quantized,
    **_all("TopK Unique", onnx_formulas.ordered),
    **_all("Gather GatherElements GatherND", onnx_formulas.gathered),
    **_all("Scatter ScatterElements ScatterND", onnx_formulas.scattered),
    "NonMaxSuppression": onnx_formulas.scored,
    "BatchNormalization": onnx_formulas.batched,
    "InstanceNormalization": partial(onnx_formulas.normed, operations=5, affine=("scale", "B")),
    "LayerNormalization": partial(onnx_formulas.normed, operations=5, affine=("Scale", "B")),
    "GroupNormalization": partial(onnx_formulas.normed, operations=5, affine=("scale", "bias")),
    "RMSNormalization": partial(onnx_formulas.normed, operations=3, affine=("scale",)),
    "SimplifiedLayerNormalization": partial(onnx_formulas.normed, operations=3, affine=("scale",)),
    "LRN": onnx_formulas.local_response,
    "MatMul": onnx_formulas.product,
    "MatMulInteger": onnx_formulas.product,
    "QLinearMatMul": partial(onnx_formulas.product, left="a", operations=6),
    "Gemm": onnx_formulas.gemm,
    "Einsum": onnx_formulas.einsum,
    "Conv": onnx_formulas.convolved,
    "ConvInteger": partial(onnx_formulas.convolved, data="x", weight="w"),
    "QLinearConv": partial(onnx_formulas.convolved, data="x", weight="w", operations=6),
    "ConvTranspose": partial(onnx_formulas.convolved, transposed=True),
    "DeformConv": onnx_formulas.deformed,
    "CausalConvWithState": onnx_formulas.causal_convolution,
    "LSTM": partial(onnx_formulas.recurred, operations=recurrent.LSTM),
    "GRU": partial(onnx_formulas.recurred, operations=recurrent.GRU),
    "RNN": partial(onnx_formulas.recurred, operations=recurrent.PLAIN),
    "Det": onnx_formulas.determined,
    "AffineGrid": onnx_formulas.grid,
    "Attention": onnx_attention.attended,
    "LinearAttention": onnx_attention.linear_attention,
    "RotaryEmbedding": onnx_attention.rotated,
    **_all("AveragePool MaxPool", onnx_formulas.pooled),
    "LpPool": partial(onnx_formulas.pooled, operations=2),
    **_all("Resize Upsample", onnx_formulas.resized),
    "GridSample": onnx_formulas.gridded,
    "RoiAlign": onnx_formulas.regions,
    "MaxRoiPool": onnx_formulas.largest_regions,
    "DFT": onnx_formulas.fourier,
    "STFT": onnx_formulas.short_time,
}

_CONTRIB: dict[str, Formula] = {
    **_all("FusedMatMul TransposeMatMul FusedMatMulActivation", onnx_formulas.scaled_product),
    **_all("MatMulInteger16", onnx_formulas.product),
    "MatMulIntegerToFloat": partial(onnx_formulas.product, operations=2),
    "DynamicQuantizeMatMul": partial(onnx_formulas.product, operations=2),
    "DynamicQuantizeLSTM": partial(onnx_formulas.recurred, operations=recurrent.LSTM, rescaled=2),
    **_all("MatMulNBits MatMulBnb4 MatMulFpQ4", onnx_formulas.narrow),
    "FusedGemm": onnx_formulas.gemm,
    "QGemm": partial(onnx_formulas.product, extras=("C",), operations=6),
    "GemmFastGelu": partial(onnx_formulas.product, left="X", operations=_GELU_TANH),
    "Gelu": gelu,
    "QuickGelu": partial(each, operations=_SILU + 1),
    "FastGelu": partial(onnx_formulas.biased, operations=_GELU_TANH, bias=("bias",)),
    "BiasGelu": onnx_formulas.gelu_of_sum,
    "BiasAdd": partial(onnx_formulas.biased, operations=0, bias=("bias", "skip")),
    "BiasSoftmax": partial(each, operations=6),
    "BiasSplitGelu": partial(each, operations=2 + _ERF + 1),
    "LayerNormalization": partial(onnx_formulas.normed, operations=5, affine=("Scale", "B")),
    "SimplifiedLayerNormalization": partial(onnx_formulas.normed, operations=3, affine=("scale",)),
    "SkipLayerNormalization": partial(onnx_formulas.skipped, operations=5, affine=("gamma", "beta")),
    "SkipSimplifiedLayerNormalization": partial(onnx_formulas.skipped, operations=3, affine=("gamma",)),
    "EmbedLayerNormalization": onnx_formulas.embedded,
    "GroupNorm": partial(onnx_formulas.normed, operations=5, affine=("gamma", "beta")),
    "SkipGroupNorm": partial(onnx_formulas.skipped, operations=5, affine=("gamma", "beta")),
    "Attention": onnx_attention.projected_attention,
    "QAttention": partial(onnx_attention.projected_attention, weight="weight"),
    "MultiHeadAttention": onnx_attention.multi_head,
    "GroupQueryAttention": onnx_attention.grouped_query,
    "RotaryEmbedding": onnx_attention.rotated,
    **_all("MoE QMoE", onnx_attention.experts),
    **_all("FusedConv", onnx_formulas.convolved),
    **_all("NhwcConv NhwcFusedConv", onnx_formulas.convolved),
    "QLinearConv": partial(onnx_formulas.convolved, data="x", weight="w", operations=6),
    "QLinearConvTranspose": partial(
        onnx_formulas.convolved, data="x", weight="w", transposed=True, operations=6
    ),
    "NhwcMaxPool": onnx_formulas.pooled,
    **_all("QLinearAdd QLinearMul", onnx_formulas.quantized_spread),
    "QLinearSigmoid": partial(onnx_formulas.requantized, operations=_SIGMOID),
    "QLinearLeakyRelu": partial(onnx_formulas.requantized, operations=2),
    "QLinearSoftmax": partial(onnx_formulas.requantized, operations=5),
    "QLinearAveragePool": onnx_formulas.pooled,
    "QLinearGlobalAveragePool": onnx_formulas.inputs,
    "QLinearConcat": partial(each, operations=7),
    "QuantizeLinear": partial(each, operations=5),
    "DequantizeLinear": partial(each, operations=2),
    "GatherBlockQuantized": onnx_formulas.dequantized_rows,
    "Trilu": copied,
}

_TREES: dict[str, Formula] = {
    **_all("LinearClassifier LinearRegressor", onnx_formulas.linear_model),
    **_all("SVMClassifier SVMRegressor", onnx_formulas.support_vectors),
    **_all("Binarizer Imputer", each),
    "Scaler": partial(each, operations=2),
    "Normalizer": partial(each, operations=3),
    **_all("ArrayFeatureExtractor FeatureVectorizer CastMap DictVectorizer ZipMap LabelEncoder", copied),
    **_all("CategoryMapper OneHotEncoder", copied),
}

_TRAINING: dict[str, Formula] = {
    "Adagrad": partial(onnx_formulas.stepped, operations=7, state=1),
    "Adam": partial(onnx_formulas.stepped, operations=13, state=2),
    "Momentum": partial(onnx_formulas.stepped, operations=5, state=1),
}

ONNX: dict[str, Formula] = {
    name: formula
    for domain, table in (
        ("onnx", _DEFAULT),
        ("com.microsoft", _CONTRIB),
        ("ai.onnx.ml", _TREES),
        ("ai.onnx.preview.training", _TRAINING),
    )
    for name, formula in _in_domain(domain, table)
}
"""``onnx.<name>`` or ``<domain>.<name>`` to formula."""
